#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# rng_ranks.sh - RNG states by two ranks and by three (core 0.16 with expert parallelism, main since 2026-08-25). The keys are
# those of get_rng_state in the releases; tests/interop/megatron_rng.py has Megatron ask for them.
source=$SAMPLES/v016_moe_ep2pp2

# keys OUT: the RNG states that are in there.
keys() {
    "$DCPKIT" inspect --json "$1" | grep -oE '"rng_state[^"]*": \{' | sed 's|"rng_state||; s|".*||' | paste -sd ' '
}

# convert LABEL IN OPTIONS...: with proof; what is in OUT, and what is said of RNG that is not.
convert() {
    local label=$1 in=$2
    shift 2
    "$DCPKIT" convert --verify --force --report report.json "$@" "$in" out >said 2>&1 || echo "$label: exit $?: $(cat said)"
    echo "$label: $(keys out)"
    sed -n '/^  "dropped": \[$/,/^  \]/p' report.json | grep -A 1 '"key": "rng_state' |
        sed -n 's/^      "\(key\|reason\)": "\(.*\)",\?/    \2/p'
    grep -q args.no_save_rng report.json && echo "    args.no_save_rng"
    [[ $* == *--weights-only* ]] || "$DCPKIT" compare-two-checkpoint "$in" out | tail -n 1
}

convert "to torch_dist" "$source" --to torch_dist --target-generation B
convert "another EP" "$source" --to torch_dist --target-mesh pp=2,ep=4
convert "four data-parallel ranks" "$source" --to torch_dist --target-mesh pp=2,ep=2,dp=4
convert "two data-parallel and two context-parallel ranks" "$source" --to torch_dist --target-mesh pp=2,ep=2,dp=2,cp=2
convert "another TP" "$source" --to torch_dist --target-mesh tp=2,pp=2,ep=2
convert "to zarr" "$source" --to zarr
convert "to fsdp_dtensor" "$source" --to fsdp_dtensor
mv out fsdp
convert "back" fsdp --to torch_dist
convert "one state for all" "$SAMPLES/torch_dist_b_dense_tp2pp2" --to torch_dist --target-mesh tp=2,pp=2,dp=2
rm -rf fsdp out

# What is not understood is named, and stops nothing.
sample v016_moe_ep2pp2 in
"$MANGLE" replace in/iter_0000004/.metadata rng_state/shard_0.0.1_2.1.2 rng_state/shard_0.x.1_2.1.2
convert "a key of no known form" in --to torch_dist --target-generation B
convert "weights" in --to fsdp_dtensor --weights-only
rm -rf in out report.json said
