#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# train_times.sh - where the time of a run goes: notes of loads and saves, seconds by phase for each iteration and for the run, which
# add up to what passed; also with an asynchronous save, skipped steps, a failure inside an iteration, and several ranks.

# train LOG ARGUMENT...: prints the notes without their seconds.
train() {
    "$DCPKIT" train --num-layers 1 --hidden-size 16 --ffn-hidden-size 32 --num-attention-heads 2 --seq-length 8 --vocab-size 100 \
        --micro-batch-size 1 --train-iters 3 --lr-decay-style constant --log "$@" 2>&1 >stdout | sed -E 's/in [0-9]+\.[0-9]{3} s$/in N s/'
}

# times LOG: a line for each of its times: which phases took time, and whether phases add up to all; then of the run.
times() {
    jq -r 'def of: to_entries | map(select(.key != "all" and .key != "iteration"));
        def sum: of | map(.value) | add;
        def sound: if (of | map(.value) | min) >= 0 and sum <= .all + 1e-6 and sum >= .all * 0.8 - 1e-4
            then "sound" else "NOT SOUND: \(.)" end;
        def phases: . as $t | ["data", "forward", "backward", "optimizer", "save", "load"] | map(select($t[.] > 0)) | tojson;
        (.seconds // empty | "\(.iteration): \(sound): \(phases)"),
        (.seconds_of_run // empty | "run of \(.n_iterations): \(.mean | sound): \(.mean | phases)")' "$1"
    jq -rs '([.[].seconds.all // 0] | add) as $parts | .[].seconds_of_run // empty |
        select($parts > .most.all + 1e-6) | "iterations take more than the run"' "$1"
}

train log --exit-at 2 --save run --note-times
times log
sed -E 's/[0-9]+\.[0-9]{4}/N/g' stdout | grep seconds
train async --load run --save more --async-save --save-interval 1 --note-times
times async
train resumed --load run --note-times
train plain --load run --save again
grep -c seconds plain stdout
echo "== steps that are skipped"
train skipped --fp16 --initial-loss-scale 1e30 --note-times
times skipped
jq -s -c 'map(.skipped // empty)' skipped
echo "== a failure inside an iteration"
train failed --reduce native --lr 1e10 --min-lr 0 --clip-grad 0 --weight-decay 0 --note-times | grep -o 'iteration .*: the loss of token 0'
times failed
echo "== stages and FSDP"
need_mpi
mpirun -n 4 "$DCPKIT" train --config "$TOOLS/train_tiny.json" --quiet --exit-at 2 --use-megatron-fsdp true --ckpt-format fsdp_dtensor \
    --data-parallel-sharding-strategy optim_grads_params --pipeline-model-parallel-size 2 --note-times --log ranks 2>/dev/null
times ranks
jq -r '.seconds // empty | select(.iteration > 0 and ([.gather, .reduce, .pipeline] | min) <= 0) | "a transfer took no time: \(.)"' ranks
