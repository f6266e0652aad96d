#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# train_ranges.sh - phases as NVTX ranges: a profiler sees them nested as they ran, also of a run that fails; without one a note.
[ -n "$INJECTION" ] || {
    echo "NVTX is not built in; skipped"
    exit 77
}
train() {
    "$DCPKIT" train --num-layers 2 --hidden-size 16 --ffn-hidden-size 32 --num-attention-heads 2 --seq-length 8 --vocab-size 100 \
        --micro-batch-size 1 --train-iters 2 --quiet --lr-decay-style constant "$@" 2>&1
}

"$DCPKIT" train --config "$TOOLS/train_tiny.json" --exit-at 1 --nvtx-ranges 2>&1 | grep -o 'no ranges.*'
export NVTX_INJECTION64_PATH=$INJECTION
train --exit-at 1 --save run --nvtx-ranges --note-times
echo "== resumed"
train --load run --nvtx-ranges | grep -o '^(load.*'
echo "== fails in an iteration"
train --reduce native --lr 1e10 --min-lr 0 --clip-grad 0 --weight-decay 0 --nvtx-ranges | tail -n 3 | sed 's/ of a microbatch.*//'
echo "== not asked for"
train --exit-at 1
