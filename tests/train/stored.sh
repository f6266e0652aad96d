#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# stored.sh - A7 and A8: what runs store in buckets, zarr and generation A is converted, and resumed runs go the way of the
# uninterrupted one; a save beside the run stores the same, and one that is killed leaves an older checkpoint whole.
#
# DCPKIT: the program; DCPK_MPIEXEC: the launcher, where there is MPI; DCPK_SAMPLES: Megatron's checkpoints; DCPK_IO_FAULT:
# the library of fault/fault.h, empty where it cannot be preloaded.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"

model=(--num-layers 2 --hidden-size 32 --num-attention-heads 4 --group-query-attention --num-query-groups 2
    --ffn-hidden-size 48 --swiglu --normalization RMSNorm --position-embedding-type rope
    --untie-embeddings-and-output-weights --disable-bias-linear --vocab-size 128 --seq-length 16
    --max-position-embeddings 16 --transformer-impl local --attention-dropout 0 --hidden-dropout 0
    --global-batch-size 8 --micro-batch-size 1 --train-iters 30 --lr 1e-2 --min-lr 1e-3 --lr-decay-style cosine
    --clip-grad 1.0 --seed 1234 --bf16)
plain=(--use-distributed-optimizer --ckpt-format torch_dist)
fsdp=(--use-megatron-fsdp --ckpt-format fsdp_dtensor)

fail() {
    echo "stored.sh: $*" >&2
    exit 1
}

# train N ARGUMENTS...: N ranks.
train() {
    local n=$1
    shift
    if [ "$n" = 1 ]; then
        "$DCPKIT" train "${model[@]}" -q "$@" >out 2>err || fail "train $*: $(cat out err)"
    else
        # The launcher with its option; what MPI keeps until the end is not ours.
        # shellcheck disable=SC2086
        ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 $DCPK_MPIEXEC "$n" \
            "$DCPKIT" train "${model[@]}" -q "$@" >out 2>err || fail "train $* on $n ranks: $(cat out err)"
    fi
}

# resumes NAME LOG N ARGUMENTS...: a run of N ranks, of which each step is that of LOG.
resumes() {
    local name=$1 log=$2 n=$3
    shift 3
    rm -f "$name.log"
    train "$n" "$@" --log "$name.log"
    "$DCPKIT" losscmp "$log" "$name.log" >out 2>&1 || fail "$name: $(cat out)"
    grep -q '^compared .*4 iterations' out || fail "$name: $(cat out)"
}

convert() {
    "$DCPKIT" convert -q "$@" >out 2>&1 || fail "convert $*: $(cat out)"
}

train 1 --exit-at 8 --log whole.log
ranks=1
if [ -n "${DCPK_MPIEXEC:-}" ]; then ranks=4; fi

# A7
train "$ranks" "${plain[@]}" --exit-at 4 --save buckets
"$DCPKIT" inspect buckets | grep -q '^optimizer *dp_reshardable' || fail "not in buckets"
convert --to fsdp_dtensor buckets a7_fsdp
convert --to torch_dist --target-optimizer fully_reshardable buckets a7_model
resumes a7_fsdp whole.log "$ranks" "${fsdp[@]}" --exit-at 8 --load a7_fsdp
resumes a7_model whole.log 1 "${plain[@]}" --exit-at 8 --load a7_model
# and back: what FSDP has trained on goes on in buckets.
train 1 "${fsdp[@]}" --exit-at 4 --save sharded
convert --to torch_dist --target-optimizer dp_reshardable --target-mesh "dp=$ranks" --target-impl local sharded a7_back
resumes a7_back whole.log "$ranks" "${plain[@]}" --exit-at 8 --load a7_back

# A8: of zarr, and of a run of Megatron's older releases, from itself and from what it was converted to.
train "$ranks" --use-distributed-optimizer --ckpt-format zarr --exit-at 4 --save arrays
convert --to fsdp_dtensor arrays a8_zarr
resumes a8_zarr whole.log "$ranks" "${fsdp[@]}" --exit-at 8 --load a8_zarr
old=(--num-layers 4 --ffn-hidden-size 96 --vocab-size 4096 --seq-length 32 --max-position-embeddings 32
    --global-batch-size 4 --use-checkpoint-opt-param-scheduler --exit-at 8)
train 1 "${plain[@]}" "${old[@]}" --load "$DCPK_SAMPLES/torch_dist_a_dense_tp2pp2" --log old.log
convert --to fsdp_dtensor "$DCPK_SAMPLES/torch_dist_a_dense_tp2pp2" a8_old
resumes a8_old old.log "$ranks" "${fsdp[@]}" "${old[@]}" --load a8_old

# Generation A's releases make GroupedMLP of these experts, whose state they keep in another order.
train 1 "${plain[@]}" --num-experts 2 --moe-grouped-gemm --exit-at 1 --save grouped
if "$DCPKIT" convert -q --to torch_dist --target-generation A grouped a8_grouped >out 2>&1 ||
    ! grep -q "flattened optimizer state of GroupedMLP experts" out; then
    fail "GroupedMLP: $(cat out)"
fi

# A save beside the run is the one that it would wait for.
train 1 "${plain[@]}" --exit-at 8 --save-interval 2 --save waits
train "$ranks" "${plain[@]}" --exit-at 8 --save-interval 2 --save beside --async-save --log beside.log
"$DCPKIT" losscmp whole.log beside.log >out 2>&1 || fail "beside: $(cat out)"
for i in 2 4 6 8; do
    "$DCPKIT" compare-two-checkpoint "waits/iter_000000$i" "beside/iter_000000$i" >out 2>&1 || fail "iteration $i: $(cat out)"
done

# Killed at every STEP-th call that writes, the run has stored what its tracker names.
killed() {
    local nth=40 step=40 was
    while :; do
        rm -rf run
        truncate -s 0 report
        truncate -s 4096 report
        if LD_PRELOAD=$DCPK_IO_FAULT DCPK_FAULT="own-kill $nth $place/report" "$DCPKIT" train "${model[@]}" "${plain[@]}" -q \
            --no-sandbox --exit-at 8 --save-interval 2 --save run --async-save >out 2>err; then
            break
        fi
        if [ -e run/latest_checkpointed_iteration.txt ]; then
            was=$(cat run/latest_checkpointed_iteration.txt)
            "$DCPKIT" verify run >out 2>&1 || fail "killed at call $nth: iteration $was: $(cat out)"
        fi
        nth=$((nth + step))
    done
    [ "$nth" -gt 200 ] || fail "the saves met only $nth calls"
    [ "$(cat run/latest_checkpointed_iteration.txt)" = 8 ] || fail "no tracker at the end"
}
if [ -n "${DCPK_IO_FAULT:-}" ]; then killed; fi
