#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# compare_strict.sh - compare --strict tells of every object and file that one side lacks, whatever the view of the
# model knows of it; tests/golden/test_compare_golden.c changes each value.
strictly() { "$DCPKIT" compare-two-checkpoint --strict "$@"; }
for name in torch_dist_b_dense_tp2pp2 torch_dist_c_extra_state zarr_dense_tp2dp2 fsdp_dtensor_native_dp2; do
    "$DCPKIT" hash --json "$SAMPLES/$name" | jq -r '.objects | keys[]' |
        grep -v '^common_state/' >keys # without it there is no checkpoint
    # One of each kind: numbers stripped, of a parameter's fields the field.
    sed -E 's/\t.*//; s/[0-9]+//g; s/_meta\..*\./_meta./; s/^(model|optimizer\.state)\..*\./\1./' keys |
        paste keys - | sort -t "$(printf '\t')" -u -k2,2 | cut -f 1 >kinds
    while read -r key; do
        rm -rf less
        "$DCPKIT" modify-state-dict --quiet --op "remove ^\Q$key\E\$" "$SAMPLES/$name" less >said 2>&1 || cat said
        strictly "$SAMPLES/$name" less >told 2>&1
        [ "$?" = 1 ] && grep -q 'only in A' told || echo "$name, $key: $(cat told)"
        strictly less "$SAMPLES/$name" >told 2>&1
        [ "$?" = 1 ] && grep -q 'only in B' told || echo "$name, $key, only in B: $(cat told)"
    done <kinds
    [ "$(wc -l <kinds)" -gt 1 ] && echo "$name: objects told"
done

# What lies beside: a file more, another byte, a folder, what is no file; checksums of files say nothing of the content.
sample torch_dist_b_dense_tp2pp2 a
cp -r a b
"$DCPKIT" verify --write-integrity b >said 2>&1 || cat said
echo '{"version": "1"}' >a/iter_0000004/tokenizer.json
echo '{"version": "2"}' >b/iter_0000004/tokenizer.json
mkdir -p a/iter_0000004/deep/er b/iter_0000004/deep/er
echo 1 >a/iter_0000004/deep/er/only
mkfifo b/iter_0000004/pipe
ln -s nowhere b/iter_0000004/link
strictly a b | sed '/^weights/,$d'
"$DCPKIT" compare-two-checkpoint a b | tail -n 1
# In an archive, too.
tar -cf a.tar -C a iter_0000004
strictly a a.tar | tail -n 1
rm a/iter_0000004/deep/er/only
strictly a a.tar | grep "^  .* only in"

# Between formats: what only the one holds.
"$DCPKIT" convert --to fsdp_dtensor "$SAMPLES/torch_dist_c_extra_state" other >said 2>&1 || cat said
strictly --top 100 --tensors-only "$SAMPLES/torch_dist_c_extra_state" other | grep -c '_extra_state.*only in A'
strictly --top 100 "$SAMPLES/torch_dist_c_extra_state" other | grep -c '_extra_state.*only in A'
"$DCPKIT" compare-two-checkpoint "$SAMPLES/torch_dist_c_extra_state" other | tail -n 1
