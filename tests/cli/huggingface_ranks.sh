#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# huggingface_ranks.sh - several processes write a model's folder, read one, and add up checkpoints: the bytes of one process.
need_mpi
sample safetensors_qwen3 model
small=(--to huggingface --max-shard-size 20KB)

# same WHAT COMMAND...: OUT is appended; by one process alone, then by 2 and 4.
same() {
    local what=$1 n
    shift
    "$DCPKIT" "$@" --quiet "one_$what"
    for n in 2 4; do
        by_ranks "$n" "$@" --quiet "by_$n" | grep '^dcpkit: ' || true
        diff -r "one_$what" "by_$n" && echo "$what by $n: the same bytes"
        rm -rf "by_$n"
    done
}
same import convert --to torch_dist --target-mesh tp=2 model
same export convert "${small[@]}" one_import
same fp8 convert "${small[@]}" --quantize fp8-block one_import
same merge merge "${small[@]}" --verify --weights 0.5,0.3,0.2 one_import one_export model
find one_export -name '*.safetensors' | wc -l

# What is complete is found so by all; what one of them cannot read, all report as one.
by_ranks 4 convert --resume "${small[@]}" one_import one_export | grep -o '^already complete'
by_ranks 2 verify --quiet --against model one_import | tail -n 1
truncate -s -1 one_export/model-00003-of-00004.safetensors
by_ranks 4 convert --to zarr one_export none || echo "exit $?"
[ ! -e none ] && echo "nothing is written"
