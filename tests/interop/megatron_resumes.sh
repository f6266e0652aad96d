#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# megatron_resumes.sh - A15: real Megatron trains on from what `dcpkit train` saved, and `train` from what Megatron saved.
#
#   MEGATRON_TREES=FOLDER megatron_resumes.sh DCPKIT [--only REGEX] [--work FOLDER]
#
# For each case the same batches are trained on: 8 iterations without interruption, and 4 that are saved, converted where the case has it,
# and resumed by the other side for 5 to 8. `losscmp` holds the resumed losses against the uninterrupted ones: within a relative 1e-5 in
# fp32, 5e-3 in bf16 and fp16; of fp16 the skipped steps are equal. Prints a row of megatron_resumes.tsv each; exit 1 when one fails.
#
# Megatron is core 0.19.0 in MEGATRON_TREES (megatron_train.py: its own pretrain(), on GPUs where there are some, else on the CPU). PYTHON:
# with torch 2.11, default python3. DCPK_TRAIN: more flags of train ("--device cuda"). DCPK_MPIEXEC: default "mpirun -n". DCPK_TREE.
# DCPK_GOLDENS: the folder of v019_shifted_*.tar.xz, for the cases that repair them; left out without it.
set -euo pipefail
export LC_ALL=C OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 NCCL_NVLS_ENABLE=0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -ge 1 ] || { sed -n '5s/^# *//p' "$0" >&2; exit 2; }
dcpkit=$(realpath "$1") only=. work=
shift
while [ $# -gt 1 ]; do
    case $1 in
    --only) only=$2 ;;
    --work) work=$2 ;;
    esac
    shift 2
done
: "${MEGATRON_TREES:?set it to the folder of Megatron trees}"
export MEGATRON_TREES
python=${PYTHON:-python3} tree=${DCPK_TREE:-core_v0.19.0}
if [ -z "$work" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
fi
mkdir -p "$work"
cd "$work"
failed=0 n_cases=0 tokens=$work/tokens.i32
gpus=$(nvidia-smi -L 2>/dev/null | wc -l || true)
on=CPU
[ "$gpus" -eq 0 ] || on="$gpus GPUs"

# What both sides are given.
toy=(--num-layers 4 --hidden-size 64 --num-attention-heads 4 --group-query-attention --num-query-groups 2 --ffn-hidden-size 96
    --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear --vocab-size 255 --seq-length 32
    --max-position-embeddings 32 --transformer-impl local --attention-dropout 0 --hidden-dropout 0 --micro-batch-size 1
    --global-batch-size 4 --train-iters 8 --lr 1e-3 --lr-decay-style cosine --min-lr 1e-4 --lr-warmup-iters 2 --weight-decay 0.01
    --clip-grad 1.0)
untied=--untie-embeddings-and-output-weights
moe="--num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 48 --moe-token-dispatcher-type alltoall"
declare -A models=(
    [dense]="$untied"
    [tied]=""
    [qk]="$untied --qk-layernorm"
    [mtp]="$untied --mtp-num-layers 1"
    [moe]="$untied $moe --moe-layer-freq [0,1,1,1]"
    [shared]="$untied $moe --moe-shared-expert-intermediate-size 40"
)
zero="--use-distributed-optimizer --ckpt-format torch_dist --dist-ckpt-optim-fully-reshardable"
fsdp="--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --use-distributed-optimizer"
fsdp+=" --no-gradient-accumulation-fusion --ckpt-format fsdp_dtensor"
scaled="--initial-loss-scale 4194304 --loss-scale-window 3 --hysteresis 1" # steps are skipped before 4 and after it
# What Megatron is given besides: no Transformer Engine, no fusions, nothing that a CPU lacks.
quiet=(--tokenizer-type NullTokenizer --eval-iters 0 --eval-interval 1000 --no-gradient-accumulation-fusion --no-persist-layer-norm
    --attention-backend unfused --no-masked-softmax-fusion --no-rope-fusion --no-bias-swiglu-fusion --no-bias-dropout-fusion
    --log-interval 1 --num-workers 0)
[ "$gpus" -gt 0 ] || quiet+=(--distributed-backend gloo)

words() { # FORMAT PRECISION: flags of either side
    [ "$1" = fsdp ] && printf '%s ' "$fsdp" || printf '%s ' "$zero"
    [ "$2" = fp32 ] || printf -- '--%s ' "$2"
    [ "$2" != fp16 ] || printf '%s' "$scaled"
}

# ours RANKS LOG FLAGS...
ours() {
    local n=$1 log=$2 run=() connections=1
    shift 2
    [[ " $* " != *" --use-megatron-fsdp "* ]] || connections=8
    # shellcheck disable=SC2206
    [ "$n" = 1 ] || run=(${DCPK_MPIEXEC:-mpirun -n} "$n")
    rm -f "$log"
    # shellcheck disable=SC2086
    CUDA_DEVICE_MAX_CONNECTIONS=$connections timeout 200 "${run[@]}" "$dcpkit" train "${toy[@]}" --token-file "$work/tokens.i32" --log "$log" ${DCPK_TRAIN:-} "$@" >"$log.txt" 2>&1
}

# megatron RANKS LOG FLAGS...
megatron() {
    local n=$1 log=$2 connections=1
    shift 2
    [[ " $* " != *" --use-megatron-fsdp "* ]] || connections=8
    rm -f "$log"
    CUDA_DEVICE_MAX_CONNECTIONS=$connections DCPK_LOG=$log timeout 280 "$python" -W ignore -m torch.distributed.run --standalone \
        --nproc-per-node "$n" "$here/megatron_train.py" "$tree" "$tokens" "${toy[@]}" "${quiet[@]}" "$@" >"$log.txt" 2>&1
}

# mesh FORMAT[:FLAGS]
mesh() {
    [[ $1 != *:* ]] || printf '%s' "${1#*:}"
}

# row CASE LOG WHOLE PRECISION [TOLERANCE]: losses of both, and how far they are apart.
row() {
    local tol=1e-5 norm_tol=1e-4 state=ok gaps
    [ "$4" = fp32 ] || tol=${5:-5e-3} norm_tol=5e-2
    "$dcpkit" losscmp --tol "$tol" --norm-tol "$norm_tol" "$2" "$3" >"$2.cmp" 2>&1 || state=DIFFERS
    gaps=$(awk '$1 == "loss" { l = $2 "\t" $NF } $1 == "grad_norm" { n = $NF } END { print l "\t" n }' "$2.cmp")
    [[ $gaps == 4$'\t'* ]] || state=DIFFERS
    printf '%s\t%s\t%s\t%s\n' "$on" "$1" "$gaps" "$state"
    [ $state = ok ] || return 1
}

# to_megatron MODEL PRECISION SAVED RANKS CONVERT RESUMED RANKS [MEGATRON'S MESH]; SAVED, RESUMED: zero or fsdp; train's mesh behind ":".
to_megatron() {
    local model=$1 precision=$2 saved=$3 n=$4 convert=$5 resumed=$6 m=$7 cut=${8:-} name whole flags from
    name="$model $precision"$'\t'"train ${saved/:/ } x$n"$'\t'"${convert:-as it is}"$'\t'"Megatron $resumed $cut x$m"
    from=$work/s.${saved//[^a-z0-9]/}.$model.$precision.$n whole=$work/whole.$model.$precision
    # shellcheck disable=SC2046,SC2086
    {
        flags="${models[$model]}"
        [ -e "$whole" ] || ours 1 "$whole" $flags $(words zero "$precision") || return
        [ -e "$from.log" ] || ours "$n" "$from.log" $flags $(words "${saved%%:*}" "$precision") $(mesh "$saved") --exit-at 4 \
            --save "$from" || return
        if [ -n "$convert" ]; then
            rm -rf "$from.converted"
            "$dcpkit" convert $convert "$from" "$from.converted" >"$from.convert.txt" 2>&1 || return
            from+=.converted
        fi
        megatron "$m" "$work/m.log" $flags $(words "$resumed" "$precision") $cut --load "$from" || return
    }
    row "$name" "$work/m.log" "$whole" "$precision"
}

# from_megatron MODEL PRECISION SAVED RANKS MESH CONVERT RESUMED RANKS
from_megatron() {
    local model=$1 precision=$2 saved=$3 n=$4 cut=$5 convert=$6 resumed=$7 m=$8 name whole flags from
    name="$model $precision"$'\t'"Megatron $saved $cut x$n"$'\t'"${convert:-as it is}"$'\t'"train ${resumed/:/ } x$m"
    from=$work/t.$saved.$model.$precision.${cut//[^a-z0-9]/}.$n
    whole=$from.log
    # shellcheck disable=SC2046,SC2086
    {
        flags="${models[$model]}"
        [ -e "$whole" ] || megatron "$n" "$whole" $flags $(words "$saved" "$precision") $cut --save "$from" --save-interval 4 || return
        printf 4 >"$from/latest_checkpointed_iteration.txt"
        if [ -n "$convert" ]; then
            rm -rf "$from.converted"
            "$dcpkit" convert $convert "$from" "$from.converted" >"$from.convert.txt" 2>&1 || return
            from+=.converted
        fi
        ours "$m" "$work/o.log" $flags $(words "${resumed%%:*}" "$precision") $(mesh "$resumed") --load "$from" || return
    }
    row "$name" "$work/o.log" "$whole" "$precision"
}

# repaired GOLDEN CONVERT RESUMED RANKS [MEGATRON'S MESH]: its shifted/, which Megatron stored at wrong offsets, repaired by `convert`.
repaired() {
    local golden=$1 convert=$2 resumed=$3 m=$4 cut=${5:-} from=$work/repaired tokens=v019_shifted_dp2/tokens.i32
    # shellcheck disable=SC2046,SC2086
    {
        [ -d "$golden" ] || cat "$DCPK_GOLDENS"/v019_shifted_{dp2,tp2dp2}.tar.xz | tar xJif - || return
        rm -rf "$from"
        "$dcpkit" convert --repair bucket-padding $convert "$golden/shifted" "$from" >"$from.convert.txt" 2>&1 || return
        megatron "$m" "$work/r.log" ${models[dense]} $(words "$resumed" bf16) $cut --load "$from" || return
    }
    row "dense bf16"$'\t'"Megatron zero, $golden"$'\t'"$convert"$'\t'"Megatron $resumed $cut x$m" "$work/r.log" \
        "$golden/losses_uninterrupted.jsonl" bf16 3e-4 # unrepaired, it is 1.2e-3
}

# migrated MODEL RANKS SAVED [MESH]: `dcpkit migrate` makes Megatron-FSDP's command line of a run of three dimensions, from flags or from
# the args of its checkpoint; the steps that it prints are taken, and Megatron trains on by that command line alone.
migrated() {
    local model=$1 m=$2 saved=$3 name whole flags from=$work/s.migrated.$1.${3//[^a-z0-9]/}
    name="$model bf16"$'\t'"train $saved x2"$'\t'"migrate --to megatron-fsdp"$'\t'"Megatron fsdp x$m"
    whole=$work/whole.$model.bf16
    # shellcheck disable=SC2046,SC2086
    {
        flags="${models[$model]} $(words zero bf16)"
        [ -e "$whole" ] || ours 1 "$whole" $flags || return
        [ -e "$from" ] || ours 2 "$from.log" $flags $saved --exit-at 4 --save "$from" || return
        rm -rf "$from"-fsdp_dtensor "$work/migrated"
        printf '%s\n' "${toy[@]}" "${quiet[@]}" $flags $saved --use-tp-pp-dp-mapping --load "$from" >"$work/flags"
        sed -i '/--no-gradient-accumulation-fusion/d; /--use-tp-pp-dp-mapping/d' "$work/flags" # the latter is Megatron-Bridge's
        "$dcpkit" migrate --to megatron-fsdp --mesh "dp=$m" -o "$work/migrated" "$work/flags" >"$work/migrated.txt" || return
        # shellcheck disable=SC2317 # the steps call it
        dcpkit() { "$dcpkit" "$@"; }
        eval "$(sed -n 's/^  \(dcpkit \)/\1/p' "$work/migrated.txt")" >"$work/steps.txt" 2>&1 || return
        local -a toy=() quiet=() # all flags are in the file
        megatron "$m" "$work/g.log" $(cat "$work/migrated") || return
    }
    row "$name" "$work/g.log" "$whole" bf16
}

# attempt FUNCTION ARGUMENTS...: one case, unless it is not asked for or there are too few GPUs.
attempt() {
    local -a ranks=()
    [[ "$*" =~ $only ]] || return 0
    if [ "$gpus" -gt 0 ]; then
        mapfile -t ranks < <(printf '%s\n' "$@" | grep -xE '[0-9]+')
        [ "$(printf '%s\n' "${ranks[@]}" | sort -n | tail -n 1)" -le "$gpus" ] || return 0
    fi
    n_cases=$((n_cases + 1))
    if ! "$@"; then
        failed=$((failed + 1))
        printf 'FAILED\t%s\n' "$*"
        find "$work" -maxdepth 1 -name '*.txt' -newer "$work/begun" -exec grep -hE 'Error|rror:|dcpkit' {} + | sort -u | tail -n 4
    fi
    touch "$work/begun"
}

"$python" - "$work/tokens.i32" <<'PYTHON'
import sys
import numpy
rows = numpy.arange(32)[:, None] * 17 + numpy.arange(33)[None, :] ** 2 * (1 + numpy.arange(32)[:, None] % 5)
(rows % 251).astype("<i4").tofile(sys.argv[1])
PYTHON
touch "$work/begun"
printf 'on\tmodel\tsaved by\tbetween\tresumed by\titerations\tloss gap\tnorm gap\tverdict\n'
tp2="--tensor-model-parallel-size 2" pp2="--pipeline-model-parallel-size 2" ep2="--expert-model-parallel-size 2"
to_fsdp="--to fsdp_dtensor" to_td="--to torch_dist --target-generation C"
# Megatron-FSDP stops at SwiGLU in fp32 (AttributeError in handle_swiglu_in_state_dict): its cases are bf16.
attempt to_megatron dense fp32 zero 1 "" zero 1
attempt to_megatron dense fp32 zero 1 "" zero 2
attempt to_megatron dense fp32 zero 1 "" zero 2 "$tp2"
attempt to_megatron dense fp32 zero 1 "" zero 2 "$pp2"
attempt to_megatron dense fp32 "zero:$tp2" 2 "" zero 2 "$pp2"
attempt to_megatron dense bf16 zero 1 "" zero 2
attempt to_megatron dense bf16 zero 1 "$to_fsdp" fsdp 1
attempt to_megatron dense bf16 zero 1 "$to_fsdp" fsdp 2
attempt to_megatron dense bf16 fsdp 1 "" fsdp 2
attempt to_megatron dense bf16 fsdp 2 "" fsdp 2
attempt to_megatron dense bf16 fsdp 1 "$to_td" zero 2 "$pp2"
# Megatron divides by the batches of a rank before it goes back, and so skips other steps with more data-parallel ranks.
attempt to_megatron dense fp16 zero 1 "" zero 1
attempt to_megatron dense fp16 zero 1 "" zero 2 "$tp2"
attempt to_megatron moe fp32 zero 1 "" zero 1
attempt to_megatron moe fp32 zero 1 "$to_td --target-mesh ep=2" zero 2 "$ep2"
attempt to_megatron moe fp32 "zero:$ep2" 2 "" zero 2 "$ep2"
attempt to_megatron moe bf16 zero 1 "$to_fsdp" fsdp 2 "$ep2"
attempt to_megatron moe bf16 fsdp 1 "" fsdp 2 "$ep2"
attempt to_megatron tied fp32 zero 1 "" zero 2 "$pp2"
attempt to_megatron qk fp32 zero 1 "" zero 2 "$tp2"
attempt to_megatron mtp fp32 zero 1 "" zero 1
attempt to_megatron shared fp32 zero 1 "" zero 1
attempt from_megatron dense fp32 zero 1 "" "" zero 1
attempt from_megatron dense fp32 zero 2 "$tp2" "" zero 1
attempt from_megatron dense fp16 zero 1 "" "" zero 1
attempt from_megatron dense fp16 zero 2 "$tp2" "" "zero:$pp2" 2
attempt from_megatron mtp fp16 zero 1 "" "" zero 1
attempt from_megatron moe fp16 zero 1 "" "" zero 1
attempt from_megatron dense fp32 zero 2 "$tp2" "" "zero:$pp2" 2
attempt from_megatron dense bf16 zero 2 "$pp2" "$to_fsdp" fsdp 1
attempt from_megatron dense bf16 fsdp 2 "" "" fsdp 1
attempt from_megatron dense bf16 fsdp 2 "" "$to_td" zero 1
attempt from_megatron moe fp32 zero 2 "$ep2" "" zero 1
attempt from_megatron moe bf16 fsdp 2 "$ep2" "" fsdp 1
attempt migrated dense 2 "$tp2"
attempt migrated dense 1 "$pp2"
attempt migrated moe 2 "$ep2"
if [ -n "${DCPK_GOLDENS:-}" ]; then
    for golden in v019_shifted_dp2 v019_shifted_tp2dp2; do
        attempt repaired $golden "--to torch_dist" zero 2
        attempt repaired $golden "--to torch_dist --target-mesh tp=2" zero 2 "$pp2"
        attempt repaired $golden "$to_fsdp" fsdp 2
    done
fi
echo "$n_cases cases, $failed failed" >&2
[ "$failed" -eq 0 ] && [ "$n_cases" -gt 0 ]
