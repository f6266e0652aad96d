#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ranks.sh - several processes share one conversion: the same bytes as one makes, one voice, one error.
need_mpi

# ranks N OPTION... : a conversion by N processes.
ranks() {
    local n=$1
    shift
    by_ranks "$n" convert --quiet "$@" | grep '^dcpkit: '
    return "${PIPESTATUS[0]}"
}

# Each file is a unit of work here, so that every rank has some.
one() {
    "$DCPKIT" convert --quiet "$@" >"$GOT/one"
}
source=$SAMPLES/torch_dist_c_moe_ep2pp2
one --to zarr "$source" zarr1
one --to fsdp_dtensor --target-dp 4 "$source" fsdp1
one --to torch_dist --target-generation B "$SAMPLES/torch_dist_c_dp_reshardable_tp2dp2" proven1
ranks 3 --to zarr "$source" zarr3 && diff -r zarr1 zarr3 && echo "zarr by 3: the same"
ranks 2 --to fsdp_dtensor --target-dp 4 "$source" fsdp2 && diff -r fsdp1 fsdp2 && echo "fsdp_dtensor by 2: the same"
ranks 3 --to torch_dist --target-generation B "$SAMPLES/torch_dist_c_dp_reshardable_tp2dp2" proven3 &&
    diff -r proven1 proven3 && echo "proven by 3: the same"
# What torchrun would set, exported for the training that the job runs besides.
RANK=1 LOCAL_RANK=1 WORLD_SIZE=4 TORCHELASTIC_RUN_ID=none ranks 2 --to zarr "$source" zarr2 && diff -r zarr1 zarr2 &&
    echo "zarr by 2, beside torchrun: the same"
# What is complete already is found so by all together, as is what is another one.
rm zarr3/latest_checkpointed_iteration.txt
by_ranks 3 convert --resume --to zarr "$source" zarr3 | grep -o "^already complete"
diff -r zarr1 zarr3 && echo "with its tracker"
ranks 3 --resume --to zarr --weights-only "$source" zarr3 >"$GOT/out" || echo "exit $?"
sed 's/ [0-9]* bytes/ N bytes/' "$GOT/out"
file=$(find zarr3 -name '0.*' -size +20k | sort | tail -n 1)
printf x | dd of="$file" conv=notrunc bs=1 seek=20000 2>"$GOT/out"
ranks 3 --resume --to zarr "$source" zarr3 >"$GOT/out" || echo "exit $?: $(grep -c ": [0-9]* elements of '.*' differ, the first is number " "$GOT/out")"
# What fails on all is said once, and so is what fails on one.
ranks 3 --to fsdp_dtensor "$source" fsdp1 || echo "exit $?"
sample torch_dist_c_dense_tp2pp2 bad
rm bad/iter_0000004/.metadata
ranks 2 --to fsdp_dtensor bad out || echo "exit $?"
# the second of two may write no file of more than 1 KiB
mpirun -n 1 "$DCPKIT" convert --quiet --to zarr "$source" out : -n 1 bash -c "ulimit -f 1; exec \"\$@\"" - \
    "$DCPKIT" convert --quiet --to zarr "$source" out >"$GOT/out" 2>"$GOT/all" || echo "exit $?"
grep '^dcpkit: ' "$GOT/all" | sed -E "s/writing '[^']*'/writing .../; s/giving file '[^']*' [0-9]+/giving .../"
[ ! -e out ] && echo "nothing left"
# Processes that were told to do different things would wait for each other.
timeout -k 5 100 mpirun -n 1 "$DCPKIT" hash "$source" : -n 2 "$DCPKIT" hash fsdp1 >"$GOT/out" 2>"$GOT/all" ||
    echo "exit $?: $(cat "$GOT/out"; grep '^dcpkit: ' "$GOT/all")"
# A trainer has saved another iteration in between: all else of the two is the same.
mkdir one two
sample torch_dist_c_dense_tp2pp2 one/run
sample torch_dist_c_dense_tp2pp2 two/run
mv two/run/iter_0000004 two/run/iter_0000005
printf 5 >two/run/latest_checkpointed_iteration.txt
timeout -k 5 100 mpirun -n 1 -wdir "$PWD/one" "$DCPKIT" hash run : -n 1 -wdir "$PWD/two" "$DCPKIT" hash run \
    >"$GOT/out" 2>"$GOT/all" || echo "exit $?: $(cat "$GOT/out"; grep '^dcpkit: ' "$GOT/all")"

# The script of a job of several nodes.
env -u SLURM_JOB_ID IN="$source" OUT="$TMP/job" RANKS=2 OPTIONS="--quiet --target-dp 4" DCPKIT="$DCPKIT" \
    "$TOOLS/sbatch_checkpoint_convert.sh" >"$GOT/out" 2>"$GOT/all" || cat "$GOT/all"
diff -r fsdp1 job && echo "sbatch script: the same"
