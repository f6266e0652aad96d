#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# named_once.sh - no message says the name of a damaged item twice: who goes through items names them, nobody below.

# The file and place of the first object of each kind (keys that differ by numbers alone are of one), then of a tensor.
items() {
    "$DCPKIT" inspect --json "$1" 2>said |
        awk '/^  "objects": \{/ { on = 1; next } on && /^  \}/ { on = 0 }
             on && /": \{/ { key = $1; gsub(/[0-9]+/, "N", key); seen = kinds[key]++ }
             on && /"file"/ { split($0, file, "\"") }
             on && /"offset_bytes"/ && !seen { gsub(/[^0-9]/, ""); print file[4], $0 + '"$2"' }' | head -n 6
}
# twice FILE...: messages with one quoted name twice; a file's name may stand in several.
twice() { grep -hE "('[^' ]*[a-z][^' ]*').*\1" "$@"; }

n_damaged=0 n_said=0
for row in torch_dist_c_extra_state:iter_0000004:zarr fsdp_dtensor_v2_tied_dp2:iter_0000004:torch_dist \
    zarr_dense_tp2dp2:iter_0000004:torch_dist; do
    IFS=: read -r name inner target <<<"$row"
    sample "$name" in
    items in 66 >places # in the pickle
    items in 1 | head -n 1 >>places # where the archive begins
    while read -r file at; do
        cp "in/$inner/$file" kept
        "$MANGLE" flip "in/$inner/$file" "$at"
        for run in "verify in" "hash in" "inspect in" "check in" "convert --to $target in out" \
            "convert --to $target --like-megatron-inspector in out" "print-torch-dcp-in-json in"; do
            rm -rf out
            # shellcheck disable=SC2086 # words of a command
            "$DCPKIT" $run >said 2>&1 || n_said=$((n_said + 1))
            twice said
        done
        n_damaged=$((n_damaged + 1))
        cp kept "in/$inner/$file"
    done <places
    rm -rf in out
done
echo "$n_damaged items damaged, messages of failures: $((n_said > 2 * n_damaged))"
