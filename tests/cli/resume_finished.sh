#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# resume_finished.sh - --resume on an output that is there: complete when all that it holds is what would be written.
sample torch_dist_c_dense_tp2pp2 in
tracker=latest_checkpointed_iteration.txt
convert=("$DCPKIT" convert --to fsdp_dtensor)
modify=("$DCPKIT" modify-state-dict)

# again LABEL CMD...: after CMD has written, CMD --resume changes no file and says so.
again() {
    local label=$1 status=0
    shift
    "$@" >"$GOT/said" 2>&1 || echo "$label, first: exit $?: $(cat "$GOT/said")"
    snapshot >"$GOT/before"
    "$@" --resume >"$GOT/said" 2>"$GOT/err" || status=$?
    snapshot >"$GOT/after"
    if [ "$status" -eq 0 ] && grep -q '^already complete: ' "$GOT/said" && [ ! -s "$GOT/err" ] &&
        diff "$GOT/before" "$GOT/after"; then
        echo "$label: already complete"
    else
        echo "$label: exit $status: $(cat "$GOT/said" "$GOT/err")"
    fi
}

again "fsdp_dtensor" "${convert[@]}" in fsdp
again "zarr" "$DCPKIT" convert --to zarr in zarr
again "torch_dist" "$DCPKIT" convert --to torch_dist zarr dist
again "other threads" "${convert[@]}" -j1 --memory 16M zarr threads
again "archive" "${convert[@]}" in run.tar
again "verified" "${convert[@]}" --verify --integrity in verified
again "modified, linked" "${modify[@]}" --op 'remove ^optimizer' in linked
again "modified, cast" "${modify[@]}" --op 'cast ^decoder.*weight float32' in cast
again "modified, archive" "${modify[@]}" --op 'remove ^optimizer' in linked.tar
again "modified, zarr" "${modify[@]}" --op 'cast ^decoder.*weight float32' zarr cast_zarr

# Killed between the folder and its tracker.
for out in fsdp linked; do rm "$out/$tracker"; done
"${convert[@]}" --resume in fsdp | grep -oE '^(already complete|would compare with the existing output)'
"${modify[@]}" --resume --op 'remove ^optimizer' in linked | grep -o '^already complete'
echo "trackers: $(cat fsdp/$tracker), $(cat linked/$tracker)"
"${convert[@]}" --resume --json in fsdp | grep -E '"(already_complete|written_bytes)"'
"${convert[@]}" --resume --dry-run in fsdp | grep -oE '^(already complete|would compare with the existing output)'

no='exists, and differs from the output of this input and these options'
refuses "other options" 2 "$no" "${convert[@]}" --resume --weights-only in fsdp
refuses "another prefix" 2 "$no.*tensor 'x.embedding.* is missing \(--force" "${convert[@]}" --resume --output-model-weight-prefix x in fsdp
refuses "another size in args" 2 "$no.*'__0_0.distcp' differs in [0-9]* bytes from byte [0-9]+ on" "${convert[@]}" --resume --target-dp 1 in fsdp
refuses "another format" 2 "$no" "$DCPKIT" convert --to zarr --resume in fsdp
refuses "other options, zarr" 2 "$no" "$DCPKIT" convert --to zarr --weights-only --resume in zarr
refuses "other options, archive" 2 "$no" "${convert[@]}" --weights-only --resume in run.tar
refuses "other operations" 2 "$no" "${modify[@]}" --resume --op 'remove ^model|^optimizer|^decoder' in linked
refuses "other operations, archive" 2 "$no" "${modify[@]}" --resume --op 'remove ^decoder' in linked.tar
refuses "without --resume" 2 "exists \(--force" "${convert[@]}" in fsdp
# An input with the same keys, shapes and lengths, and one weight that is another.
cp -r in other
read -r file at < <("$DCPKIT" inspect --chunks other |
    awk -F'\t' '$1 == "optimizer.state.param.output_layer.weight" { print $4, $5 + 2000; exit }')
printf '\x41' | dd of="other/iter_0000004/$file" conv=notrunc bs=1 seek="$at" 2>"$GOT/said"
refuses "another input" 2 "$no.*1 elements of 'model.module.output_layer.weight' differ, the first is number [0-9]+" "${convert[@]}" --resume other fsdp
# An output that was damaged since, cut short, or has lost a file.
cp -r fsdp damaged && printf x | dd of=damaged/iter_0000004/__0_0.distcp conv=notrunc bs=1 seek=70000 2>"$GOT/said"
refuses "damaged output" 2 "$no.*item at byte [0-9]+ of '__0_0.distcp': .* is damaged" "${convert[@]}" --resume in damaged
rm damaged/iter_0000004/.metadata
refuses "no .metadata" 2 "$no.*damaged" "${convert[@]}" --resume in damaged
truncate -s -10240 run.tar
refuses "archive cut short" 2 "$no" "${convert[@]}" --resume in run.tar
mkdir -p empty/iter_0000004
refuses "an empty folder" 2 "$no.*'.metadata': there is no such file" "${convert[@]}" --resume in empty
