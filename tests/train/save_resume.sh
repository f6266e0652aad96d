#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# save_resume.sh - what runs save in every format and layout is whole, holds the same, and is resumed under others bit
# for bit; what does not fit is refused by name; a save that was cut short leaves the older checkpoint.
#
# Runs are those of fake_ranks.c: DCPK_FAKE_RANKS, under DCPK_MPIEXEC where there is MPI, else alone. DCPKIT: the program;
# DCPK_SAMPLES: Megatron's checkpoints; DCPK_IO_FAULT: the library of fault/fault.h, empty where it cannot be preloaded.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"

fail() {
    echo "save_resume.sh: $*" >&2
    exit 1
}

# fake N ARGUMENTS...: N ranks; without MPI only 1 has any.
fake() {
    local n=$1
    shift
    if [ "$n" = 1 ]; then
        "$DCPK_FAKE_RANKS" "$@"
    else
        # The launcher with its option; what MPI keeps until the end is not ours.
        # shellcheck disable=SC2086
        ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 $DCPK_MPIEXEC "$n" "$DCPK_FAKE_RANKS" "$@"
    fi
}

# save FOLDER N FORMAT LAYOUT [GENERATION]
save() {
    local folder=$1 n=$2
    shift 2
    fake "$n" save "$folder" "$@" >out 2>err || fail "saving $folder on $n ranks as $*: $(cat out err)"
}

# resume FOLDER N LAYOUT [STRICTNESS]
resume() {
    local folder=$1 n=$2
    shift 2
    fake "$n" resume "$folder" "$@" >out 2>err || fail "resuming $folder on $n ranks as $*: $(cat out err)"
}

# refuses TEXT FOLDER LAYOUT [STRICTNESS]
refuses() {
    local text=$1 folder=$2
    shift 2
    if fake 1 resume "$folder" "$@" >out 2>err; then
        fail "$folder was resumed as $*"
    fi
    grep -qF -- "$text" err || fail "$folder as $*: no '$text' in: $(cat err)"
}

whole() {
    "$DCPKIT" verify "$1" >out 2>&1 || fail "verify $1: $(cat out)"
}

equal() {
    "$DCPKIT" compare-two-checkpoint "$1" "$2" >out 2>&1 || fail "$1 and $2 differ: $(cat out)"
}

has_mpi() {
    [ -n "${DCPK_MPIEXEC:-}" ]
}

# formats MODEL: one rank saves MODEL in every format; each is whole, and holds the same.
formats() {
    save td 1 torch_dist "$1"
    save tc 1 torch_dist "$1" C
    save buckets 1 torch_dist "$1,buckets" C
    save old 1 torch_dist "$1" A
    save zarr 1 zarr "$1"
    save fsdp 1 fsdp_dtensor "$1"
    for folder in td tc buckets old zarr fsdp; do
        whole "$folder"
        equal td "$folder"
        resume "$folder" 1 "$1"
    done
}

# layouts MODEL: ranks of other layouts save and resume it.
layouts() {
    local model=$1
    save td22 4 torch_dist "$model,tp=2,pp=2"
    save td4 4 torch_dist "$model,dp=4"
    save buckets22 4 torch_dist "$model,tp=2,pp=2,buckets"
    save buckets4 4 torch_dist "$model,dp=4,buckets"
    save old22 4 torch_dist "$model,tp=2,pp=2" A
    save zarr2 2 zarr "$model,pp=2"
    save fsdp4 4 fsdp_dtensor "$model,fsdp,dp=4"
    save fsdp22 4 fsdp_dtensor "$model,fsdp,tp=2,dp=2"
    equal td td22
    equal td td4
    equal td buckets22
    equal td buckets4
    equal td old22
    equal td zarr2
    equal fsdp4 fsdp22
    for folder in td22 td4 buckets22 buckets4 old22 zarr2 fsdp4 fsdp22; do
        whole "$folder"
        resume "$folder" 1 "$model"
    done
    resume td22 4 "$model,fsdp,dp=4"
    resume td4 2 "$model,tp=2"
    resume buckets4 2 "$model,pp=2"
    resume buckets22 4 "$model,fsdp,dp=4"
    resume old22 4 "$model,fsdp,dp=4"
    resume fsdp4 2 "$model,fsdp,dp=2"
    resume fsdp4 4 "$model,tp=2,pp=2"
    resume fsdp22 4 "$model,cp=2,dp=2"
    rm -rf td22 td4 buckets22 buckets4 old22 zarr2 fsdp4 fsdp22
}

# Parts of the checkpoint that a run does without, and what does not fit it.
misfits() {
    save td 1 torch_dist moe,te
    resume td 1 moe,te no_load_optim
    resume td 1 moe,te finetune
    resume td 1 moe # the other names
    refuses "the checkpoint does not fit the model, in 6 tensors, the first: the checkpoint has no value of " \
        td moe,te,layers=5
    refuses "'embedding.word_embeddings.weight' is [128, 32] in the checkpoint and [128, 16] in the model" \
        td moe,te,hidden=16
    refuses "has no value of 'decoder.layers.1.mlp.router.expert_bias'" td moe,te,bias
    refuses "the model has no 'decoder.layers.3.self_attention.linear_proj.weight'" td moe,te,layers=3 raise_all
    refuses "'strict' is not a strictness" td moe,te strict
    for samples in -8 9223372036854775800; do
        rm -rf stray
        FAKE_SAMPLES=$samples save stray 1 torch_dist moe,te
        refuses "after $samples samples, more than a run can count" stray moe,te
    done
    refuses "the checkpoint has no momentum_buffer of" td sgd
    refuses "num_layers value from checkpoint (4) is not equal to the input argument value (3)" td moe,te,layers=3
    resume td 1 moe,te,layers=3 finetune
    save normed 1 torch_dist qk
    resume normed 1 tp=1
    fake 1 resume normed tp=1 log_all >out
    grep -q "the model has no 'decoder.layers.3.self_attention.q_layernorm.weight'" out || fail "no note of a norm"
    save half 1 torch_dist fp16,buckets C
    resume half 1 fp16
    save half 1 torch_dist fp16
    resume half 1 fp16
    save half 1 zarr fp16
    resume half 1 fp16
    save sgd 1 torch_dist sgd
    resume sgd 1 sgd
    if fake 1 save other archive tp=1 2>err || ! grep -q "no checkpoint is written in the format 'archive'" err; then
        fail "a format that is not written: $(cat err)"
    fi
    if fake 1 save other torch_dist tp=1,buckets A 2>err || ! grep -q "has optimizer state in buckets" err; then
        fail "generation A in buckets: $(cat err)"
    fi
    [ ! -e other ] || fail "a refused save left a folder"
}

# cut KIND N STEP LEAST: a save of N ranks meets it at every STEP-th call or byte, until there are no more: LEAST or more.
# The tracker then names what is whole.
cut() {
    local kind=$1 n=$2 step=$3 least=$4 nth=1 was
    rm -rf run
    save run 1 fsdp_dtensor fsdp
    mv run/iter_0000010 run/iter_0000009
    printf 9 >run/latest_checkpointed_iteration.txt
    while :; do
        truncate -s 0 report
        truncate -s 4096 report
        if LD_PRELOAD=$DCPK_IO_FAULT DCPK_FAULT="own-$kind $nth $place/report" \
            fake "$n" save run torch_dist fsdp,dp="$n" >out 2>err; then
            break
        fi
        was=$(cat run/latest_checkpointed_iteration.txt)
        [ "$was" = 9 ] || [ "$was" = 10 ] || fail "$kind at call $nth: the tracker is '$was'"
        whole run
        # A run's state is gone with it: what a save wrote until the disk was full can be resumed by no other.
        [ "$kind" = kill ] || [ -z "$(find run -name '*.dcpkit-partial')" ] || fail "$kind at call $nth: something is kept"
        nth=$((nth + step))
    done
    [ "$nth" -gt "$least" ] || fail "$kind: the save met only $nth"
    [ "$(cat run/latest_checkpointed_iteration.txt)" = 10 ] || fail "$kind: no tracker at the end"
    whole run
    resume run 1 fsdp
}

# copies SAMPLE MODEL: what Megatron wrote goes through a run's memory into our own checkpoint, bit for bit.
copies() {
    local toy=hidden=64,ffn=96,head=16,vocab=256,tokens=255
    rm -rf copy
    fake 1 copy "$DCPK_SAMPLES/$1" "$toy,$2" torch_dist copy >out 2>err || fail "copying $1: $(cat err)"
    "$DCPKIT" compare-two-checkpoint "$DCPK_SAMPLES/$1" copy >out 2>&1 || true # args and groups are the run's own
    # Megatron-FSDP stores no weights next to its masters
    [ "$(grep -cE '^(weights|masters|moments) +[1-9][0-9]* compared, 0 differ' out)" = 3 ] ||
        { [[ $1 = fsdp_dtensor* ]] && [ "$(grep -cE '^(masters|moments) +[1-9][0-9]* compared, 0 differ|^weights +0 compared' out)" = 3 ]; } ||
        fail "$1: $(cat out)"
}

# The map of groups is Megatron's.
groups() {
    local n=$1
    fake "$n" groups map "moe,more,ep=2,dp=2,pp=$((n / 2))"
    "$DCPKIT" print-torch-dcp-in-json -o map.json map >/dev/null
    diff <(tr -d , <map.json | sort) \
        <(tr -d , <"$DCPK_SAMPLES/torch_dist_c_moe_ep2pp2_p2g/param_to_param_group_map.json" | sort) ||
        fail "groups of $n ranks are not Megatron's"
}

for model in moe,qk,shared=40 fp32 mtp=1,tied; do
    formats "$model"
done
if has_mpi; then
    save staged 2 torch_dist mtp=1,tied,pp=2
    equal td staged
    resume staged 1 mtp=1,tied
    resume td 2 tied,mtp=1,pp=2
fi
for model in tp=1 moe,te,bias; do
    formats "$model"
    if has_mpi; then layouts "$model"; fi
done
if has_mpi; then
    save moe 4 torch_dist moe,ep=2,pp=2,dp=2
    whole moe
    resume moe 2 moe,fsdp,ep=2,dp=2
    save moebuckets 4 torch_dist moe,ep=2,pp=2,dp=2,buckets
    equal moe moebuckets
    resume moebuckets 2 moe,fsdp,ep=2,dp=2
    save moefsdp 4 fsdp_dtensor moe,fsdp,ep=2,dp=4
    whole moefsdp
    resume moefsdp 4 moe,tp=2,ep=2,dp=2
    groups 4
fi
misfits
copies torch_dist_b_dense_tp2pp2 layers=4
copies torch_dist_c_dp_reshardable_tp2dp2 layers=4
copies fsdp_dtensor_native_dp2 layers=4
copies fsdp_dtensor_converted_by_megatron layers=4
copies torch_dist_c_moe_ep2pp2 width=48,groups=4,moe,more
copies torch_dist_c_fp32_dp1 fp32
if [ -n "${DCPK_IO_FAULT:-}" ]; then
    cut kill 1 13 100
    cut full 1 60000 300000
    if has_mpi; then cut kill 2 307 300; fi
fi
