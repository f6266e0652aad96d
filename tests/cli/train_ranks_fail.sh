#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# train_ranks_fail.sh - what fails on one rank alone, before a step or inside it, ends the run of all: no rank waits for it.
need_mpi
mkdir 0 1

# ends LABEL OPTION... : a run of 2 processes, each in a folder of its own.
ends() {
    local label=$1 status=0
    shift
    # shellcheck disable=SC2016 # the shell of each rank expands
    timeout 20 mpirun -n 2 bash -c 'cd "$OMPI_COMM_WORLD_RANK" && exec "$@"' - "$DCPKIT" train \
        --config "$TOOLS/train_tiny.json" --quiet "$@" >"$GOT/out" 2>"$GOT/all" || status=$?
    [ "$status" -ne 124 ] || echo "$label: no end within 20 s"
    echo "$label: exit $status: $(grep '^dcpkit: ' "$GOT/all" | sed 's/-nan/nan/')"
}

# Samples of 17 tokens, of 4 bytes each.
for rank in 0 1; do
    head -c 204 /dev/zero >$rank/three
    head -c $((2040 + rank)) /dev/zero >$rank/thirty
done
ends "a sample is missing" --token-file three --global-batch-size 4
ends "a file of samples is cut short" --token-file thirty --use-megatron-fsdp --ckpt-format fsdp_dtensor
ends "a loss is not finite" --bf16 false --pipeline-model-parallel-size 2 --reduce native --lr 1e10 --min-lr 0 \
    --clip-grad 0 --weight-decay 0 --lr-decay-style constant
