#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# determinism.sh - the same conversion gives the same bytes, whatever the threads and the memory.
#
#   DCPKIT=build/dcpkit tests/bench/determinism.sh
#
# Samples, and a synthetic checkpoint whose largest tensor does not fit into 16 MiB, so that it goes through in slabs.
set -euo pipefail

DCPKIT=$(realpath "$DCPKIT")
build=$(dirname "$DCPKIT")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$build/tests/bench/make_checkpoint" --like "$build/samples/torch_dist_c_dense_tp2pp2/iter_0000004" \
    --layers 2 --hidden 256 --ffn 704 --vocab 20000 "$work/synthetic"

failed=0
# convert TO THREADS MEMORY: $in to $work/TO
convert() {
    "$DCPKIT" convert --to fsdp_dtensor --threads "$2" --memory "$3" "$in" "$work/$1" >"$work/said" 2>&1 || {
        cat "$work/said"
        exit 1
    }
}

for in in "$work/synthetic" "$build"/samples/torch_dist_{b_dense_tp2pp2,c_moe_ep2pp2,c_fp32_dp1}; do
    convert first 1 1G
    for how in "1 16M" "2 256M" "7 16M" "7 1G"; do
        read -r threads memory <<<"$how"
        convert other "$threads" "$memory"
        if ! diff -r "$work/first" "$work/other"; then
            echo "$in: $threads threads and $memory give other bytes than 1 thread and 1G"
            failed=1
        fi
        rm -rf "$work/other"
    done
    rm -rf "$work/first"
done
exit "$failed"
