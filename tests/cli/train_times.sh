#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# train_times.sh - the seconds that training stood still for a load and a save, noted where they are asked for.

train() {
    "$DCPKIT" train --num-layers 1 --hidden-size 16 --ffn-hidden-size 32 --num-attention-heads 2 --seq-length 8 --vocab-size 100 --micro-batch-size 1 \
        --train-iters 3 --lr-decay-style constant --log log "$@" 2>&1 >/dev/null | sed -E 's/in [0-9]+\.[0-9]{3} s$/in N s/'
}
train --exit-at 2 --save run --note-times
train --load run --save more --note-times
train --load run --note-times
train --load run --save again
