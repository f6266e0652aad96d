#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# resumes_run.sh - makes resumes.tsv: real Megatron trains on from what `dcpkit convert` wrote.
#
#   MEGATRON_TREES=FOLDER [PYTHON=...] tests/interop/resumes_run.sh DCPKIT [--only REGEX] [--jobs N] >tests/interop/resumes.tsv
#
# Trains each source for 8 iterations and saves it after 4 and 8. Converts what was saved after 4 and resumes it for 5 to 8, in the
# same release unless the row says otherwise. bf16, no dropout, two ranks; on GPUs where there are two, else on the CPU (slow).
# Prints a row a run; exit 1 when one fails.
set -euo pipefail
export LC_ALL=C OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 NCCL_NVLS_ENABLE=0

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -ge 1 ] || { sed -n '5s/^# *//p' "$0" >&2; exit 2; }
dcpkit=$(realpath "$1") only=. jobs=1
shift
while [ $# -gt 1 ]; do
    case $1 in
    --only) only=$2 ;;
    --jobs) jobs=$2 ;;
    esac
    shift 2
done
: "${MEGATRON_TREES:?set it to the folder of Megatron trees}"
export MEGATRON_TREES
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

model=(--num-layers 4 --hidden-size 64 --num-attention-heads 4 --group-query-attention --num-query-groups 2 --ffn-hidden-size 96
    --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights
    --vocab-size 255 --seq-length 32 --max-position-embeddings 32 --bf16 --attention-dropout 0 --hidden-dropout 0
    --micro-batch-size 1 --global-batch-size 4 --train-iters 8 --lr 1e-3 --min-lr 1e-3 --lr-decay-style constant
    --transformer-impl local --tokenizer-type NullTokenizer --eval-iters 0 --eval-interval 1000 --log-interval 1 --num-workers 0
    --no-gradient-accumulation-fusion --no-persist-layer-norm --attention-backend unfused --no-masked-softmax-fusion
    --no-rope-fusion --no-bias-swiglu-fusion --no-bias-dropout-fusion)
nvidia-smi -L >/dev/null 2>&1 || model+=(--distributed-backend gloo)
td="--use-distributed-optimizer --ckpt-format torch_dist" full=--dist-ckpt-optim-fully-reshardable
fsdp="--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --use-distributed-optimizer"
fsdp+=" --ckpt-format fsdp_dtensor --calculate-per-token-loss"
tp2="--tensor-model-parallel-size 2" pp2="--pipeline-model-parallel-size 2" ep2="--expert-model-parallel-size 2"
moe="--num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 48 --moe-token-dispatcher-type alltoall --moe-layer-freq [0,1,1,1]"
to_fsdp="--to fsdp_dtensor" to_td="--to torch_dist" c="--target-generation C"

# Sources, and after each the runs that resume it: core | source | run | tree | flags | conversions, separated by ";".
# "whole" is the source's own uninterrupted run; "source" the same, not printed, where the runs after it are of another release.
runs="0.19|dense PP2 torch_dist|whole|core_v0.19.0|$td $full $pp2|
0.19|dense PP2 torch_dist|native, TP2|core_v0.19.0|$td $full $tp2|
0.19|dense PP2 torch_dist|torch_dist tp=2, TP2|core_v0.19.0|$td $full $tp2|$to_td --target-mesh tp=2
0.19|dense PP2 torch_dist|fsdp_dtensor, FSDP DP2|core_v0.19.0|$fsdp|$to_fsdp
0.19|MoE EP2 torch_dist|whole|core_v0.19.0|$moe $td $full $ep2|
0.19|MoE EP2 torch_dist|native, EP2|core_v0.19.0|$moe $td $full $ep2|
0.19|MoE EP2 torch_dist|fsdp_dtensor, FSDP EP2|core_v0.19.0|$moe $fsdp $ep2|$to_fsdp
0.19|MoE EP2 torch_dist|fsdp_dtensor and back, EP2|core_v0.19.0|$moe $td $full $ep2|$to_fsdp;$to_td --target-mesh ep=2
0.19|MoE EP2 torch_dist|torch_dist tp=2, PP2|core_v0.19.0|$moe $td $full $pp2|$to_td --target-mesh tp=2
0.19|dense DP2 dp_reshardable|whole|core_v0.19.0|$td|
0.19|dense DP2 dp_reshardable|native, DP2|core_v0.19.0|$td|
0.19|dense DP2 dp_reshardable|torch_dist, PP2|core_v0.19.0|$td $full $pp2|$to_td --target-generation B
0.19|FSDP DP2|whole|core_v0.19.0|$fsdp|
0.19|FSDP DP2|native, DP2|core_v0.19.0|$fsdp|
0.19|FSDP DP2|torch_dist, TP2|core_v0.19.0|$td $full $tp2 --calculate-per-token-loss|$to_td
0.19|FSDP MoE EP2|whole|core_v0.19.0|$moe $fsdp $ep2|
0.19|FSDP MoE EP2|torch_dist, EP2|core_v0.19.0|$moe $td $full $ep2 --calculate-per-token-loss|$to_td --target-mesh ep=2
0.19|FSDP MoE EP2|torch_dist pp=2, PP2|core_v0.19.0|$moe $td $full $pp2 --calculate-per-token-loss|$to_td --target-mesh pp=2
0.16.1 in 0.19|dense TP2 torch_dist of 0.16.1|source|core_v0.16.1|$td $full $tp2|
0.16.1 in 0.19|dense TP2 torch_dist of 0.16.1|native, PP2|core_v0.19.0|$td $full $pp2|
0.16.1 in 0.19|dense TP2 torch_dist of 0.16.1|torch_dist C, PP2|core_v0.19.0|$td $full $pp2|$to_td $c
0.16.1 in 0.19|dense TP2 torch_dist of 0.16.1|fsdp_dtensor, FSDP DP2|core_v0.19.0|$fsdp|$to_fsdp
0.18.2|dense PP2 torch_dist|whole|core_v0.18.2|$td $full $pp2|
0.18.2|dense PP2 torch_dist|fsdp_dtensor, FSDP DP2|core_v0.18.2|$fsdp|$to_fsdp
0.18.2|dense PP2 torch_dist|torch_dist tp=2, TP2|core_v0.18.2|$td $full $tp2|$to_td --target-mesh tp=2
0.18.2|FSDP TP2|whole|core_v0.18.2|$fsdp $tp2|
0.18.2|FSDP TP2|torch_dist, PP2|core_v0.18.2|$td $full $pp2 --calculate-per-token-loss|$to_td
main|MoE EP2 dp_reshardable|whole|HEAD|$moe $td $ep2|
main|MoE EP2 dp_reshardable|fsdp_dtensor, FSDP EP2|HEAD|$moe $fsdp $ep2|$to_fsdp
main|MoE EP2 dp_reshardable|torch_dist C ep=2, EP2|HEAD|$moe $td $full $ep2|$to_td $c --target-mesh ep=2
main|FSDP MoE EP2|whole|HEAD|$moe $fsdp $ep2|
main|FSDP MoE EP2|torch_dist C pp=2, PP2|HEAD|$moe $td $full $pp2 --calculate-per-token-loss|$to_td $c --target-mesh pp=2"

# megatron LOG TREE FLAGS...: two ranks; a line of JSON an iteration goes to LOG.
megatron() {
    local log=$1 tree=$2 connections=1
    shift 2
    [[ " $* " != *" --use-megatron-fsdp "* ]] || connections=8
    CUDA_DEVICE_MAX_CONNECTIONS=$connections DCPK_LOG=$log timeout 400 "$python" -W ignore -m torch.distributed.run --standalone \
        --nproc-per-node 2 "$here/megatron_train.py" "$tree" "$work/tokens.i32" "${model[@]}" "$@" >"$log.txt" 2>&1
}

# converted FROM CONVERSIONS: prints the folder that the last of them wrote, or FROM.
converted() {
    local from=$1 rest=$2 step
    while [ -n "$rest" ]; do
        step=${rest%%;*}
        rest=${rest#"$step"} rest=${rest#;}
        # shellcheck disable=SC2086
        "$dcpkit" convert --quiet --verify --force $step "$from" "$from.next" >&2 || return 1
        from+=.next
    done
    printf '%s' "$from"
}

# print_row LOG CORE SOURCE RUN: losses and norms of iterations 5 to 8 of a log, which begins at 1 (whole) or 5.
print_row() {
    local log=$1
    shift
    "$python" - "$log" "$@" <<'PYTHON'
import json, sys
with open(sys.argv[1], encoding="utf-8") as log:
    steps = {line["iteration"]: line for line in map(json.loads, log) if "iteration" in line}
if sorted(steps) != list(range(1 if sys.argv[4] == "whole" else 5, 9)):
    sys.exit(f"Error: the run has the iterations {sorted(steps)}")
cells = [f'{steps[i][name]:.9f}' for name in ("loss", "grad_norm") for i in range(5, 9)]
print("\t".join([*sys.argv[2:], *cells]))
PYTHON
}

# run_source N: the N-th source and all runs after it, one after the other.
run_source() {
    local number=$1 n=0 core source run tree flags conversions folder log from status
    while IFS='|' read -r core source run tree flags conversions; do
        [[ $run != whole && $run != source ]] || n=$((n + 1))
        [ "$n" -eq "$number" ] || continue
        folder=$work/$number log=$work/$number.log
        rm -f "$log"
        status=0
        # shellcheck disable=SC2086
        if [ "$run" = whole ] || [ "$run" = source ]; then
            megatron "$log" "$tree" $flags --save "$folder" --save-interval 4 &&
                printf 4 >"$folder/latest_checkpointed_iteration.txt" || status=$?
        else
            from=$(converted "$folder" "$conversions" 2>"$log.txt") && [ -d "$from" ] &&
                megatron "$log" "$tree" $flags --load "$from" || status=$?
        fi
        if [ "$status" -eq 0 ] && [ "$run" != source ]; then
            print_row "$log" "$core" "$source" "$run" 2>>"$log.txt" || status=$?
        fi
        if [ "$status" -ne 0 ]; then
            printf 'FAILED\t%s\t%s\t%s\n' "$core" "$source" "$run"
            grep -E 'Error|dcpkit:' "$log.txt" | sort -u | tail -n 5 >&2
        fi
    done <<<"$runs" >"$work/$number.tsv"
}

"$python" - "$work/tokens.i32" <<'PYTHON'
import sys
import numpy
rows = numpy.arange(32)[:, None] * 17 + numpy.arange(33)[None, :] ** 2 * (1 + numpy.arange(32)[:, None] % 5)
(rows % 251).astype("<i4").tofile(sys.argv[1])
PYTHON
columns=(core source run 'loss 5' 'loss 6' 'loss 7' 'loss 8' 'norm 5' 'norm 6' 'norm 7' 'norm 8')
(IFS=$'\t' && echo "${columns[*]}")
wanted=()
n=0
while IFS='|' read -r core source run tree flags conversions; do
    [[ $run = whole || $run = source ]] || continue
    n=$((n + 1))
    [[ ! "$core $source" =~ $only ]] || wanted+=("$n")
done <<<"$runs"
for n in "${wanted[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
        wait -n || true
    done
    run_source "$n" &
done
wait
for n in "${wanted[@]}"; do
    cat "$work/$n.tsv"
done | tee "$work/all"
[ "${#wanted[@]}" -gt 0 ] && ! grep -q '^FAILED' "$work/all"
