#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# train_ranks.sh - a run of several processes: one voice, one error, a rank that dies; the job for Slurm, under mpirun.
need_mpi
tiny=$TOOLS/train_tiny.json
"$DCPKIT" train --config "$tiny" --exit-at 6 --log one.jsonl >/dev/null
by_ranks 2 train --config "$tiny" --exit-at 6 --log two.jsonl --tensor-model-parallel-size 2 | grep -c 'lm loss'
"$DCPKIT" losscmp one.jsonl two.jsonl | tail -n 1
by_ranks 2 train --config "$tiny" --context-parallel-size 4 || echo "exit $?"
by_ranks 2 train --config "$tiny" --context-parallel-size 2 || echo "exit $?"
by_ranks 2 train --config "$tiny" --load nowhere | sed "s/: No such.*//"

CONFIG=$tiny RUN=$TMP/run OPTIONS="--exit-at 4" INTERVAL=2 "$TOOLS/sbatch_train.sh" >"$GOT/out" 2>"$GOT/all" || cat "$GOT/all"
CONFIG=$tiny RUN=$TMP/run OPTIONS="--exit-at 6" INTERVAL=2 "$TOOLS/sbatch_train.sh" >"$GOT/out" 2>"$GOT/all" || cat "$GOT/all"
"$DCPKIT" losscmp one.jsonl run.jsonl | tail -n 1
CONFIG=none "$TOOLS/sbatch_train.sh" 2>&1 | sed 's/ on .*//'

# a rank is killed: the job ends, and what it saved is whole
# shellcheck disable=SC2016 # the shell of each rank expands
mpirun -n 2 bash -c 'echo $$ >pid.$OMPI_COMM_WORLD_RANK; exec "$@"' - "$DCPKIT" train --config "$tiny" --train-iters 200000 \
    --save dies --save-interval 3 --quiet >/dev/null 2>&1 &
child=$!
for ((i = 0; i < 600; i++)); do
    [ ! -e dies/latest_checkpointed_iteration.txt ] || break
    sleep 0.1
done
kill -KILL "$(cat pid.1)"
for ((i = 0; i < 600; i++)); do
    kill -0 $child 2>/dev/null || break
    sleep 0.1
done
wait $child && echo "the job ended well"
"$DCPKIT" verify dies | tail -n 1
