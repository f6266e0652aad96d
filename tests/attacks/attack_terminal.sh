#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# attack_terminal.sh - names, values, classes, paths and arguments that hold ESC, U+009B, newlines and what is no
# UTF-8: no command prints a control byte but its own newlines (and inspect --chunks its tabs), and no line of theirs.
n=0 shown=0
# says ARGUMENT...: run dcpkit, whatever its answer, and look at every byte that it prints.
says() {
    timeout 60 "$DCPKIT" "$@" >text 2>&1 </dev/null
    local code=$?
    n=$((n + 1))
    [ "$code" -le 4 ] || printf 'exit %s: %q\n' "$code" "$*"
    grep -qF '\x1b' text && shown=$((shown + 1))
    [ "$1 ${2:-}" != "inspect --chunks" ] || { tr -d '\t' <text >kept && mv kept text; }
    if LC_ALL=C grep -qP '[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xaa-\xae]' text ||
        ! iconv -f UTF-8 -t UTF-8 text >/dev/null 2>&1; then
        printf 'controls: %q\n' "$*"
        LC_ALL=C grep -aP '[\x00-\x09\x0b-\x1f\x7f-\xff]' text | head -n 3 | cat -v
    fi
    grep -q '^FORG' text && printf 'a line of theirs: %q\n' "$*"
    return 0
}

# all PATH: everything that prints text about a checkpoint, alone and beside the one that it was.
all() {
    local in=$1 good=$2 key command
    for command in inspect "inspect --chunks" "inspect --stats" "inspect --keys ." hash "hash --files" verify check \
        "check --all --finite" print-torch-dcp-in-json "print-torch-dcp-in-json --dry-run" "verify --integrity"; do
        # shellcheck disable=SC2086 # words
        says $command "$in"
        # shellcheck disable=SC2086
        [ "$command" = "${command#print}" ] && says $command --json "$in"
    done
    for command in "" --strict --as-stored --weights-only; do
        says compare-two-checkpoint $command "$in" "$good"
        says compare-two-checkpoint $command "$good" "$in"
    done
    says verify --against "$in" "$good"
    says verify --against "$good" "$in"
    for command in torch_dist fsdp_dtensor zarr; do
        says convert --dry-run --to $command "$in" new
        says convert --drop FORG --verify --report report --hashes hashes --to $command "$in" "$in.$command"
        rm -rf "$in.$command" report hashes
    done
    says modify-state-dict --dry-run --op 'rename FORG \x1b[2J' --op 'remove optimizer' "$in" new
    says modify-state-dict --op 'keep FORG' "$in" "$in.less"
    says hash "$in.less"
    "$DCPKIT" hash --json "$in" 2>/dev/null | jq -r '.tensors, .objects | keys[] | select(contains("FORG")) | @base64' |
        sort | sed -n '1p;$p' >keys
    while read -r key; do
        says print-tensor "$in" "$(base64 -d <<<"$key")"
        says print-tensor --npy "$in.npy" "$in" "$(base64 -d <<<"$key")[0]"
        says print-tensor --json "$in" "$(base64 -d <<<"$key")"
    done <keys
    for key in args "args.s"$'\x1b\x0a'FORG iteration nothing$'\xc2\x9b' 'x[1'$'\x1b'; do
        says print-tensor "$in" "$key"
    done
    says hash "$good" >/dev/null
    "$DCPKIT" hash "$in" >recorded 2>/dev/null
    says hash --check recorded "$good"
    says convert --args-from "$in" --to torch_dist "$good" new
    says convert --iteration $'\x1b[1m' --to torch_dist "$in" new
    rm -rf new "$in.less" "$in.npy"
}

evil='x\x1b\xc2\x9b\x0aFORGED' # as long as linear_proj
bad='x\x1b[2\x9b\xff\x0aFORG' # no UTF-8
for sample in torch_dist_b_dense_tp2pp2 torch_dist_c_extra_state fsdp_dtensor_native_dp2 torch_dist_b_dense_tp2pp2_p2g; do
    for text in "$evil" "$bad"; do
        folder=$'\x1b[31m\xc2\x9b\nFORGED\xff'
        sample "$sample" "$folder"
        at=$folder/iter_0000004
        [ -d "$at" ] || at=$folder
        "$MANGLE" replace "$at/.metadata" linear_proj "$text" 2>/dev/null
        # Of args a name and a value, and a class; what has them is a torch.save archive or an item of a file of them.
        for file in "$at"/common.pt "$at"/*.distcp; do
            [ -f "$file" ] || continue
            "$MANGLE" replace "$file" swiglu 's\x1b\x0aFOR' 2>/dev/null
            "$MANGLE" replace "$file" AttnBackend "$text" 2>/dev/null
            "$MANGLE" replace "$file" cosine '\x1b\x0aFORG' 2>/dev/null
            [ "$file" != "$at/common.pt" ] || "$MANGLE" seal "$file"
        done
        ln -s "$folder" $'\x1b]0;link\x07' && says inspect $'\x1b]0;link\x07' && rm $'\x1b]0;link\x07'
        all "$folder" "$SAMPLES/$sample"
        rm -rf "$folder"*
    done
done

# Files and folders of arrays are called so.
sample zarr_dense_tp2dp2 zarr
mv zarr/iter_0000004/decoder.final_layernorm.weight zarr/iter_0000004/$'decoder.\x1b\xc2\x9b\nFORG.weight'
echo >zarr/iter_0000004/$'\x1b[1m\nFORG'
all zarr "$SAMPLES/zarr_dense_tp2dp2"
tar -cf $'\x1b[1m\nFORG.tar' -C zarr iter_0000004
says inspect $'\x1b[1m\nFORG.tar'
says verify $'\x1b[1m\nFORG.tar'
says convert --to torch_dist $'\x1b[1m\nFORG.tar' $'\x1bout\n'

# Arguments.
e=$'\x1b[2J\xc2\x9b\xff\nFORG'
for word in "$e" "--$e" "-$e"; do
    says "$word"
    for command in convert hash inspect check verify compare-two-checkpoint modify-state-dict print-tensor print-torch-dcp-in-json; do
        says "$command" "$word" zarr
        says "$command" zarr "$word" zarr "$word" zarr
    done
done
for option in to from target-mesh target-impl drop report hashes iteration args-from tracker threads memory; do
    says convert "--$option" "$e" zarr new
    says convert "--$option=$e" --to torch_dist zarr new
done
for option in format check keys loads-in against op rtol npy output as mesh; do
    for command in hash inspect check verify compare-two-checkpoint modify-state-dict print-tensor print-torch-dcp-in-json; do
        says "$command" "--$option" "$e" zarr new
    done
done
[ "$n" -gt 600 ] && [ "$shown" -gt 100 ] && echo "many commands, and what is escaped shows" || echo "$n commands, $shown show an escape"
