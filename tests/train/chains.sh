#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# chains.sh - runs stop at iteration 10, are converted and resumed under other layouts: their steps are those of the
# uninterrupted run, bit for bit. Acceptance tests A4 to A7, A9 to A11, A14, A18, A20 of the training loop, by their names.
#
#   chains.sh [--part I/N] [PREFIX...]   the cases whose names begin so; default: the quick ones, with DCPK_ALL_CHAINS all
#                                        of them, with "others" those that are not quick; every N-th from the I-th on
#
# DCPKIT: the program; DCPK_MPIEXEC: how N ranks are started; DCPK_SAMPLES: Megatron's checkpoints; DCPK_IO_FAULT: the
# library of fault/fault.h, empty where it cannot be preloaded.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"

fail() {
    echo "chains.sh: ${case_name:-}: $*" >&2
    exit 1
}

# ---- runs ----

base=(--num-layers 4 --hidden-size 32 --num-attention-heads 4 --group-query-attention --num-query-groups 2
    --ffn-hidden-size 48 --vocab-size 256 --seq-length 16 --max-position-embeddings 16 --transformer-impl local
    --micro-batch-size 1 --global-batch-size 24 --train-iters 20 --lr 1e-2 --min-lr 1e-3 --lr-decay-style cosine
    --leaf-tokens 4 --untie-embeddings-and-output-weights)

# What words of models and layouts mean.
declare -A words=(
    [dense]='' [bf16]='--bf16' [moe]='--num-experts 4 --moe-ffn-hidden-size 24 --moe-router-topk 2'
    [list]='--moe-layer-freq [0,1,0,1]' [shared]='--moe-shared-expert-intermediate-size 40' [qk]='--qk-layernorm'
    [mtp]='--mtp-num-layers 1' [tied]='--no-untie-embeddings-and-output-weights'
    [te]='--transformer-impl transformer_engine' [local]='--transformer-impl local --no-moe-grouped-gemm'
    [grouped]='--moe-grouped-gemm' [wide]='--num-query-groups 4 --vocab-size 255'
    [pad512]='--make-vocab-size-divisible-by 512' [decay11]='--lr-decay-iters 11'
    [override]='--override-opt-param-scheduler' [bucket]='--bucket-size 1000' [B]='--generation B'
    [A]='--generation A --optimizer-layout flattened'
    [order]='--use-tp-pp-dp-mapping' [buckets]='--optimizer-layout dp_reshardable'
    [no_shard]='--data-parallel-sharding-strategy no_shard' [optim]='--data-parallel-sharding-strategy optim'
    [optim_grads]='--data-parallel-sharding-strategy optim_grads' [hsdp]='--num-distributed-optimizer-instances 2'
    [hfsdp]='--num-distributed-optimizer-instances 2 --outer-dp-sharding-strategy optim'
)

take_words() {
    local word more
    for word in ${1//,/ }; do
        [ -n "${words[$word]+there}" ] || fail "'$word' is not a word of models and layouts"
        read -ra more <<<"${words[$word]}"
        flags+=(${more[@]+"${more[@]}"})
    done
}

# take_layout LAYOUT: "tp2pp2dp1,WORD...": sizes of groups, data-parallel ranks with those of experts among them. "f:" in
# front: Megatron-FSDP, which saves fsdp_dtensor; "z:": zarr; else torch_dist.
take_layout() {
    local text=${1%%,*} size
    local -A names=([tp]=tensor-model [pp]=pipeline-model [cp]=context [ep]=expert-model)
    case $text in
    f:*) flags+=(--use-megatron-fsdp --ckpt-format fsdp_dtensor) connections=8 ;;
    z:*) flags+=(--use-distributed-optimizer --ckpt-format zarr) ;;
    *) flags+=(--use-distributed-optimizer --dist-ckpt-optim-fully-reshardable) ;;
    esac
    text=${text#?:}
    while [[ $text =~ ^([a-z]+)([0-9]+)(.*)$ ]]; do
        size=${BASH_REMATCH[1]} text=${BASH_REMATCH[3]}
        [ "$size" = ep ] || ranks=$((ranks * BASH_REMATCH[2]))
        [ "$size" = dp ] || flags+=("--${names[$size]}-parallel-size" "${BASH_REMATCH[2]}")
    done
    [[ $1 != *,* ]] || take_words "${1#*,}"
}

# start LOG LAYOUT MODEL FLAGS...: a run, whose steps are LOG's. Megatron asks for one connection to the device where ranks
# share layers, Megatron-FSDP for more.
start() {
    local log=$1 ranks=1 connections=1 flags=("${base[@]}") by=()
    take_words "$3"
    take_layout "$2"
    shift 3
    # The launcher with its option; what MPI keeps until the end is not ours.
    # shellcheck disable=SC2206
    [ "$ranks" = 1 ] || by=(env ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" $DCPK_MPIEXEC "$ranks")
    rm -f "$log"
    CUDA_DEVICE_MAX_CONNECTIONS=$connections ${by[@]+"${by[@]}"} "$DCPKIT" train "${flags[@]}" --log "$log" "$@" \
        >out 2>err </dev/null
}

train() {
    start "$@" || fail "train $*: $(tail -n 20 err)"
}

# save LAYOUT MODEL: iteration 10 of a run in the folder `saved`.
save() {
    rm -rf saved
    train saved.log "$1" "$2" --exit-at 10 --save saved
}

# whole MODEL: makes the log of its uninterrupted run, whole.MODEL.log, once.
whole() {
    [ -e "whole.$1.log" ] || train "whole.$1.log" dp1 "$1"
}

# same A B N: N steps of B, which are those of A bit for bit.
same() {
    [ "$(grep -c '"iteration"' "$2")" = "$3" ] || fail "$2 has not $3 steps"
    "$DCPKIT" losscmp --exact "$1" "$2" >out 2>&1 || fail "$1 and $2: $(head -n 20 out)"
}

# resume FOLDER LAYOUT MODEL: iterations 11 to 20 from FOLDER are those of the uninterrupted run.
resume() {
    train resumed.log "$2" "$3" --load "$1"
    same "whole.$3.log" resumed.log 10
}

# convert FROM TO FLAGS...
convert() {
    rm -rf "$2"
    "$DCPKIT" convert --quiet "${@:3}" "$1" "$2" >out 2>&1 || fail "convert $*: $(cat out)"
}

equal() {
    "$DCPKIT" compare-two-checkpoint "$1" "$2" >out 2>&1 || fail "$1 and $2: $(cat out)"
}

# ---- A4 to A7, A9, A10: chains ----

# A row: name, model, who saves iteration 10, what becomes of it (none: nothing), who resumes. "+": quick.
chains() {
    cat <<'ROWS'
+ A4_ranks      dense          f:dp4            none              f:dp2 f:dp3
- A4_ranks_more dense          f:dp4            none              f:dp1 f:dp8 f:tp2dp2 tp2pp2
- A4_buckets    dense          f:dp4            none              f:dp2,bucket f:dp4,bucket,optim f:dp4,optim_grads
- A4_bucketed   dense          f:dp4,bucket     none              f:dp4 f:dp2,no_shard f:dp4,hsdp f:dp4,hfsdp
- A4_optim      dense          f:dp4,optim      none              f:dp2 f:dp3,no_shard
- A4_no_shard   dense          f:dp2,no_shard   none              f:dp4 f:dp4,optim_grads
- A4_hfsdp      moe            f:dp4,hfsdp      none              f:dp2 f:dp4,hsdp
- A4_hfsdp_ep   moe            f:ep2dp4,hfsdp   none              f:dp2 f:ep2dp4,hsdp f:ep2dp8,hsdp
- A4_experts    moe            f:ep2dp4         none              f:dp2 f:ep2dp8 f:ep2dp2,bucket
+ A5_tp2pp2     dense          tp2pp2           fsdp_dtensor      f:dp4 f:tp2dp2
- A5_tp2dp2     dense          tp2dp2           fsdp_dtensor      f:dp4 f:tp2dp2
- A5_dp4        dense          dp4              fsdp_dtensor      f:dp4 f:tp2dp2
- A5_cp2        dense          cp2              fsdp_dtensor      f:dp4 f:tp2dp2
- A5_cp2dp2     dense          cp2dp2           fsdp_dtensor      f:dp4 f:cp2dp2
+ A5_ep2pp2     moe            ep2pp2dp2        fsdp_dtensor      f:ep2dp4
- A5_ep2pp2more moe            ep2pp2dp2        fsdp_dtensor      f:dp4 f:tp2dp2
- A5_tp2ep2     moe            tp2ep2dp2        fsdp_dtensor      f:dp4 f:tp2dp2 f:ep2dp4
- A5_all        moe            tp2pp2ep2dp2     fsdp_dtensor      f:dp8 f:tp2ep2dp4
- A5_zarr       dense          z:tp2pp2         fsdp_dtensor      f:dp4
- A5_B          dense          tp2pp2,B         fsdp_dtensor      f:dp4
- A5_order      moe            tp2pp2dp2,order  fsdp_dtensor      f:dp4
- A5_stage      dense          f:pp2dp2         torch_dist        tp2dp2
+ A6_B          dense          f:dp4            torch_dist:B      tp2pp2
- A6_A          dense          f:dp4            torch_dist:A      tp2pp2 cp2dp2
- A6_C          dense          f:dp4            torch_dist:C      tp2pp2 cp2dp2
- A6_zarr       dense          f:tp2dp2         zarr              tp2pp2 z:dp2
- A6_experts_B  moe            f:ep2dp4         torch_dist:B      ep2pp2dp2 tp2ep2dp2
- A6_experts_C  moe            f:ep2dp4         torch_dist:C      tp2pp2ep2dp2
- A6_buckets    dense          f:dp4            torch_dist:dp_reshardable:tp=2,dp=2 tp2dp2 pp2
- A7_dp4        dense          dp4,buckets      fsdp_dtensor      f:dp4 f:tp2dp2
- A7_experts    moe            ep2dp4,buckets   fsdp_dtensor      f:ep2dp4 f:dp2
- A7_full       dense          tp2dp2,buckets   torch_dist:C      tp2dp2 pp2
- A7_as_it_is   dense          tp2dp2,buckets   none              tp2dp2 f:dp3
- A8_flattened  moe            ep2pp2dp2,A      fsdp_dtensor      f:ep2dp4
- A9_mtp        mtp            tp2pp2           fsdp_dtensor      f:dp4 f:tp2dp2
- A9_tied       tied           tp2pp2           fsdp_dtensor      f:dp4 f:tp2dp2
+ A9_tied_mtp   tied,mtp       pp2dp2           fsdp_dtensor      f:dp2
- A9_qk         qk             tp2pp2           fsdp_dtensor      f:dp4 f:tp2dp2
- A9_shared     moe,shared     ep2pp2dp2        fsdp_dtensor      f:dp4 f:tp2dp2 f:ep2dp4
- A9_list       moe,list       tp2pp2           fsdp_dtensor      f:dp4 f:tp2dp2 f:ep2dp4
- A9_everything moe,list,shared,qk,tied,mtp tp2pp2ep2dp2 fsdp_dtensor f:dp4 f:tp2ep2dp4
- A10_to_te     moe            ep2pp2dp2        fsdp_dtensor:te   f:dp4,te,grouped
- A10_to_te_B   moe,list       tp2pp2           torch_dist:B:te   tp2pp2,te,grouped f:dp2,te
- A10_to_local  moe,te,grouped ep2pp2dp2        fsdp_dtensor:local f:dp4,local
+ A10_local_C   dense,te       tp2dp2           torch_dist:C:local pp2,local
- A10_as_it_is  moe,te,grouped f:dp4            none              ep2pp2dp2,local f:dp2,local
ROWS
}

# chain MODEL SAVER TARGET RESUMER...: what is converted holds the same, and so it does back in the saver's format.
chain() {
    local model=$1 saver=$2 to=$3 folder=saved word flags
    shift 3
    whole "$model"
    save "$saver" "$model"
    same "whole.$model.log" saved.log 10
    if [ "$to" != none ]; then
        folder=converted
        flags=(--to "${to%%:*}")
        for word in ${to//:/ }; do
            case $word in
            A | B | C) flags+=(--target-generation "$word") ;;
            te | local) flags+=(--target-impl "$word") ;;
            dp_reshardable) flags+=(--target-optimizer "$word") ;;
            *=*) flags+=(--target-mesh "$word") ;;
            esac
        done
        convert saved converted "${flags[@]}"
        equal saved converted
        case $saver in
        f:*) convert converted back --to fsdp_dtensor ;;
        z:*) convert converted back --to zarr ;;
        *) convert converted back --to torch_dist --target-generation C ;;
        esac
        equal saved back
    fi
    for word in "$@"; do
        resume "$folder" "$word" "$model"
    done
}

# ---- the others ----

# Instances of two ranks, which share out the experts, save what one instance of four ranks does, in the chunks of a
# conversion to such ranks; another cut resumes it.
A4_outer_experts() { # [,WORD]
    local model=moe${1:-} folder
    whole "$model"
    save f:ep2dp4 "$model"
    convert saved converted --to fsdp_dtensor --target-impl local --target-dp 4,ep=2,hsdp=2
    save f:ep2dp4,hsdp "$model"
    same "whole.$model.log" saved.log 10
    equal converted saved
    for folder in converted saved; do
        "$DCPKIT" inspect --chunks --json "$folder" |
            jq -S '.tensors | map_values(.chunks | map([.offsets, .extents]) | sort)' >"$folder.json"
    done
    grep -q 'experts.*linear_fc1' saved.json || fail "no chunks of experts"
    cmp -s converted.json saved.json || fail "the chunks are not those of a conversion"
    resume saved f:ep2dp4,hfsdp "$model"
}

# A checkpoint of 256 rows of the vocabulary, 255 of which are tokens, for a run whose ranks pad to 512. Rows that come are
# zero, whoever adds them; they take part in the softmax, so that the steps are not those of 256 rows.
A11_padded_vocabulary() { # [,WORD]
    local model=wide${1:-}
    whole "$model"
    save dp1 "$model"
    train padded.log dp1 "$model,pad512" --load saved
    if "$DCPKIT" losscmp "whole.$model.log" padded.log >out 2>&1; then
        fail "rows of padding do not count"
    fi
    grep -q '^iteration 11: ' out || fail "rows of padding count later: $(cat out)"
    train resumed.log tp4 "$model" --load saved
    same padded.log resumed.log 10
    convert saved converted --to fsdp_dtensor --make-vocab-size-divisible-by 512
    train resumed.log f:tp4 "$model" --load converted
    same padded.log resumed.log 10
    convert converted saved --to torch_dist --make-vocab-size-divisible-by 128
    resume saved dp1 "$model"
}

# From Megatron's iteration 8 through our own save in every format: the losses that Megatron logged of 9 to 16, and ours
# without the detour.
A14_golden_curve() { # LAYOUT...
    local sample=$DCPK_SAMPLES/fp32_curve_nodropout layout
    local base=(--num-layers 4 --hidden-size 64 --num-attention-heads 4 --group-query-attention --num-query-groups 2
        --ffn-hidden-size 96 --vocab-size 255 --seq-length 32 --max-position-embeddings 32 --transformer-impl local
        --untie-embeddings-and-output-weights --micro-batch-size 1 --global-batch-size 2 --train-iters 24 --lr 1e-3
        --min-lr 1e-3 --lr-decay-style constant --adam-form torch --token-file "$sample/tokens.i32" --leaf-tokens 8)
    train golden.log dp1 dense --load "$sample" --exit-at 16
    for layout in "$@"; do
        rm -rf saved
        train none.log "$layout" dense --load "$sample" --save saved --exit-at 8
        train resumed.log "$layout" dense --load saved --exit-at 16
        same golden.log resumed.log 8
        "$DCPKIT" losscmp --tol 1e-5 resumed.log "$sample/log.txt" >out 2>&1 || fail "$layout: $(cat out)"
    done
}

# wrong NAME MODEL OPERATION...: a conversion that goes wrong so is caught at the first step that is resumed from it.
wrong() {
    local name=$1 model=$2 operations=() operation
    shift 2
    for operation in "$@"; do
        operations+=(--op "$operation")
    done
    rm -rf wrong
    "$DCPKIT" modify-state-dict --quiet "${operations[@]}" converted wrong >out 2>&1 || fail "$name: $(cat out)"
    train resumed.log f:dp1,override "$model" --load wrong
    if "$DCPKIT" losscmp "whole.$model.log" resumed.log >out 2>&1; then
        fail "$name is not caught"
    fi
    head -n 1 out | grep -q '^iteration 11: ' || fail "$name is caught late: $(head -n 1 out)"
}

# swap A B: operations that give keys with A the name of those with B, and the other way.
swap() {
    printf '%s\n' "rename $1 !" "rename $2 ${1//\\/}" "rename ! ${2//\\/}"
}

A18_wrong_conversions() { # [,WORD]
    local model=moe,decay11${1:-} swapped
    whole "$model"
    save tp2pp2 "$model"
    convert saved converted --to fsdp_dtensor --target-impl local
    train resumed.log f:dp1,override "$model" --load converted
    same "whole.$model.log" resumed.log 10
    wrong "bf16 masters" "$model" 'cast ^model\. bfloat16'
    mapfile -t swapped < <(swap '\.weight_w' '\.weight_v')
    wrong "swapped gate and up" "$model" "${swapped[@]}"
    mapfile -t swapped < <(swap '\.local_experts\.0\.' '\.local_experts\.1\.')
    wrong "permuted experts" "$model" "${swapped[@]}"
    mapfile -t swapped < <(swap '\.layers\.2\.' '\.layers\.0\.')
    wrong "stale layer index" "$model" "${swapped[@]}"
    # The decay ends after 11 iterations: one more than the steps that were made.
    mapfile -t swapped < <(swap 'scheduler\.num_steps' 'scheduler\.lr_decay_steps')
    wrong "steps off by a batch" "$model" "${swapped[@]}"
    rm -rf wrong
    "$DCPKIT" modify-state-dict --quiet --op 'remove \.step$' converted wrong >out 2>&1 || fail "step: $(cat out)"
    if start resumed.log f:dp1 "$model" --load wrong; then
        fail "the missing step is not caught"
    fi
    grep -q "no step of its groups" err || fail "the missing step: $(cat err)"
}

# killed LAYOUT MODEL FIRST STEP: a run is killed at call FIRST of its files, then at every STEP-th behind, until it is
# not; each time it is resumed from what the tracker names.
killed() {
    local layout=$1 model=$2 nth=$3 step=$4 named
    whole "$model"
    rm -rf before
    train first.log "$layout" "$model" --exit-at 5 --save before
    while :; do
        rm -rf run
        cp -r before run
        truncate -s 0 report
        truncate -s 4096 report
        if LD_PRELOAD=$DCPK_IO_FAULT DCPK_FAULT="own-kill $nth $place/report" \
            start second.log "$layout" "$model" --exit-at 10 --load run --save run; then
            break
        fi
        named=$(cat run/latest_checkpointed_iteration.txt)
        [ "$named" = 5 ] || [ "$named" = 10 ] || fail "killed at call $nth: the tracker is '$named'"
        "$DCPKIT" verify run >out 2>&1 || fail "killed at call $nth: $(cat out)"
        train resumed.log f:dp2 "$model" --load run
        same "whole.$model.log" resumed.log $((20 - named))
        nth=$((nth + step))
    done
    [ "$nth" -gt "$3" ] || fail "a run meets not even $3 calls"
    [ "$(cat run/latest_checkpointed_iteration.txt)" = 10 ] || fail "no tracker at the end"
}

# ---- which ----

n_cases=0 n_wanted=0
# is_wanted QUICK NAME
is_wanted() {
    local prefix
    for prefix in ${wanted[@]+"${wanted[@]}"}; do
        [[ $2 != "$prefix"* ]] || return 0
    done
    [ "${#wanted[@]}" = 0 ] || return 1
    case ${DCPK_ALL_CHAINS:-} in
    '') [ "$1" = + ] ;;
    others) [ "$1" = - ] ;;
    *) true ;;
    esac
}

# run QUICK NAME COMMAND...
run() {
    is_wanted "$1" "$2" || return 0
    n_wanted=$((n_wanted + 1))
    [ $(((n_wanted - part) % n_parts)) = 0 ] || return 0
    case_name=$2
    SECONDS=0
    "${@:3}"
    n_cases=$((n_cases + 1))
    echo "$2: ${SECONDS} s"
}

[ -n "${DCPK_MPIEXEC:-}" ] || exit 77
part=1 n_parts=1
if [ "${1:-}" = --part ]; then
    part=${2%/*} n_parts=${2#*/}
    shift 2
fi
wanted=("$@")
while read -r quick name model row; do
    read -ra row <<<"$row"
    run "$quick" "$name" chain "$model,bf16" "${row[@]}"
    run - "${name}_fp32" chain "$model" "${row[@]}"
done < <(chains)
run + A4_outer_experts A4_outer_experts ,bf16
run - A4_outer_experts_fp32 A4_outer_experts
run - A11_padded_vocabulary A11_padded_vocabulary
run - A11_padded_vocabulary_bf16 A11_padded_vocabulary ,bf16
run + A14_golden_curve A14_golden_curve dp1 z:dp1 f:dp1
run - A14_golden_curve_ranks A14_golden_curve dp1,B dp2,buckets tp2pp2 cp2 f:dp2,bucket f:tp2
run + A18_wrong_conversions A18_wrong_conversions
run - A18_wrong_conversions_bf16 A18_wrong_conversions ,bf16
if [ -n "${DCPK_IO_FAULT:-}" ]; then
    run + A20_killed killed f:dp1 dense,bf16 150 200
    run - A20_killed_ranks killed f:dp2 dense,bf16 100 131
    run - A20_killed_torch_dist killed tp2pp2 dense 100 173
fi
[ "$n_cases" -gt 0 ] || fail "no case is called ${wanted[*]}"
echo "$n_cases chains hold"
