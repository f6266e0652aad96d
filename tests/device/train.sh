#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# train.sh - the training loop on GPUs: the acceptance tests that need no other program than dcpkit.
#
#   tests/device/train.sh DCPKIT CASE       CASE: a row of `case` below; run.sh starts each
#
# Prints what losscmp finds; exit 1 where two runs differ. A5 has TP, PP, EP or CP on two GPUs, a conversion, FSDP on two.
set -euo pipefail

dcpkit=$1 name=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_hwloc_base_binding_policy=none NCCL_NVLS_ENABLE=0

model=(--num-layers 2 --hidden-size 64 --ffn-hidden-size 96 --num-attention-heads 4 --seq-length 32
    --max-position-embeddings 32 --vocab-size 256 --swiglu --normalization RMSNorm --position-embedding-type rope
    --disable-bias-linear --untie-embeddings-and-output-weights --micro-batch-size 2 --global-batch-size 8 --train-iters 20
    --lr 1e-3)
experts=(--num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 48 --moe-token-dispatcher-type alltoall)
ddp=(--use-distributed-optimizer --dist-ckpt-optim-fully-reshardable)
fsdp=(--use-megatron-fsdp --ckpt-format fsdp_dtensor --use-distributed-optimizer --no-gradient-accumulation-fusion)
zero3=("${fsdp[@]}" --data-parallel-sharding-strategy optim_grads_params)

quiet=(--quiet)
# train LOG RANKS DEVICE KNOB...
train() {
    local log=$work/$1 ranks=$2 device=$3
    shift 3
    mpirun -n "$ranks" "$dcpkit" train "${quiet[@]}" --device "$device" --log "$log" "${model[@]}" "$@"
}

# same A B [OPTION...]: the verdict of losscmp.
same() {
    "$dcpkit" losscmp "${@:3}" "$work/$1" "$work/$2" | tail -n 1
}

# chain KNOB...: ten iterations on two GPUs under another layout than FSDP's, the rest under FSDP.
chain() {
    local of=()
    [[ $* != *expert* ]] || of=("${experts[@]}")
    train whole 1 cuda "${ddp[@]}" "${of[@]}"
    CUDA_DEVICE_MAX_CONNECTIONS=1 train chain 2 cuda "${ddp[@]}" "${of[@]}" "$@" --exit-at 10 --save "$work/first"
    "$dcpkit" convert --quiet --to fsdp_dtensor "$work/first" "$work/second"
    train chain 2 cuda "${zero3[@]}" "${of[@]}" --load "$work/second"
    same whole chain --exact
}

case $name in
fp32) # A19, spec 5.5
    train cpu 1 cpu "${ddp[@]}"
    train gpu 1 cuda "${ddp[@]}"
    same cpu gpu --tol 1e-5
    ;;
bf16)
    train cpu 1 cpu "${ddp[@]}" --bf16
    train gpu 1 cuda "${ddp[@]}" --bf16
    same cpu gpu --tol 5e-3
    ;;
cublas)
    train cpu 1 cpu "${ddp[@]}"
    train gpu 1 cublas "${ddp[@]}"
    train again 1 cublas "${ddp[@]}"
    same gpu again --exact
    same cpu gpu --tol 1e-4
    ;;
a1)
    train one 1 cuda "${ddp[@]}"
    for strategy in no_shard optim optim_grads optim_grads_params; do
        train "$strategy" 2 cuda "${fsdp[@]}" --data-parallel-sharding-strategy "$strategy"
        same one "$strategy" --exact
    done
    ;;
a3)
    train whole 2 cuda "${zero3[@]}"
    train parts 2 cuda "${zero3[@]}" --exit-at 10 --save "$work/saved"
    train parts 2 cuda "${zero3[@]}" --load "$work/saved"
    same whole parts --exact
    ;;
a5-tp2) chain --tensor-model-parallel-size 2 ;;
a5-pp2) chain --pipeline-model-parallel-size 2 ;;
a5-ep2) chain --expert-model-parallel-size 2 ;;
a5-cp2) # leaves of one size, so that the bits do not depend on CP
    model+=(--leaf-tokens 8)
    chain --context-parallel-size 2
    ;;
times | times2) # phases add up to what passed; on two GPUs transfers have streams
    ranks=1
    [ "$name" = times ] || ranks=2
    train times "$ranks" cuda "${zero3[@]}" --note-times --save "$work/saved"
    python3 - "$work/times" "$ranks" <<'END'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
steps = [line["seconds"] for line in lines if "seconds" in line]
run = [line["seconds_of_run"]["mean"] for line in lines if "seconds_of_run" in line]
assert len(steps) == 21 and len(run) == 1, (len(steps), len(run))
for t in steps + run:
    phases = {key: t[key] for key in t if key not in ("iteration", "all", "gather_stream", "reduce_stream")}
    total = sum(phases.values())
    assert min(t.values()) >= 0, t
    assert 0.8 * t["all"] - 1e-3 <= total <= 1.001 * t["all"] + 1e-4, (total, t)
assert all(t[key] > 0 for t in steps[1:] for key in ("forward", "backward", "optimizer")), steps
assert sys.argv[2] == "1" or all(t["gather_stream"] > 0 and t["reduce_stream"] > 0 for t in steps[1:]), steps
print(json.dumps(run[0]))
END
    # timing changes no bit
    train plain "$ranks" cuda "${zero3[@]}"
    same plain times --exact
    ;;
ub) # registered buffers change no bit: as windows, locally when asked to, locally where NCCL is made to have no windows
    # buffers LOG HOW KNOB...: with --use-nccl-ub; the note has bytes, and HOW
    buffers() {
        local log=$1 how=$2
        shift 2
        if ! train "$log" 2 cuda "$@" --use-nccl-ub 2>"$work/text" ||
            ! grep -E "note: nccl_ub: rank 0 registered [1-9][0-9]* bytes [(]buffers: [1-9][0-9]*[)], $how\$" "$work/text"; then
            cat "$work/text"
            exit 1
        fi
    }
    quiet=()
    train plain 2 cuda "${zero3[@]}"
    buffers windows 'as symmetric windows' "${zero3[@]}"
    same plain windows --exact
    buffers local locally "${zero3[@]}" --disable-symmetric-registration
    same plain local --exact
    for name in NCCL_WIN_ENABLE NCCL_CUMEM_ENABLE; do
        export "$name=0"
        buffers "$name" 'locally: there are no symmetric windows' "${zero3[@]}"
        unset "$name"
        same plain "$name" --exact
    done
    train ddp 2 cuda "${ddp[@]}"
    buffers ddp-windows 'as symmetric windows' "${ddp[@]}"
    same ddp ddp-windows --exact
    ;;
step) # one iteration, for compute-sanitizer, by each row
    for device in cuda cublas; do
        compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 1 "$dcpkit" train --quiet --device "$device" \
            "${model[@]}" "${ddp[@]}" --exit-at 1 | tail -n 1
    done
    ;;
*) exit 2 ;;
esac
