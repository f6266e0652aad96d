#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# megatron_load_torch_dist.sh - Megatron's own loaders, default strictness, on what `dcpkit convert --to torch_dist` writes.
#
# Usage: megatron_load_torch_dist.sh DCPKIT GOLDENS [--only REGEX]
#   DCPKIT         the binary; GOLDENS: folder of unpacked fsdp_dtensor goldens
#   --only         run the cases whose line matches
# Environment:
#   MEGATRON_TREES folder of Megatron-LM trees: core_v0.14.0 core_v0.15.3 core_v0.16.1 core_v0.18.2 core_v0.19.0 HEAD
#   DCPK_LAB       folder with megatron_on_cpu/td_load.py
#   PYTHON         python with torch 2.11, numpy, einops, packaging, pyyaml, click (0.15 and 0.16 also
#                  six, regex, pydantic, requests); default python3
#   DCPK_KEEP=1    keep the work folder
# Every case: the model loads strictly, the optimizer takes its state, and every weight, master and moment equals the
# source's bit for bit (megatron_torch_dist.py). Exit 1 when one fails. About 8 s a case.
set -u

usage() { sed -n '5,16s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 2 ] || usage
dcpkit=$1 goldens=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
shift 2
only='.'
while [ $# -gt 0 ]; do
    case $1 in
    --only) only=$2; shift 2 ;;
    *) usage ;;
    esac
done
: "${MEGATRON_TREES:?set it to the folder of Megatron trees}"
: "${DCPK_LAB:?set it to the folder of megatron_on_cpu/td_load.py}"
python=${PYTHON:-python3}
export MEGATRON_TREES OMP_NUM_THREADS=1

work=$(mktemp -d "${TMPDIR:-/tmp}/megatron_load_torch_dist.XXXXXX") || exit 4
[ "${DCPK_KEEP:-}" = 1 ] || trap 'rm -rf "$work"' EXIT
failed=0 n=0

# The cases: source, name, ranks, the toy model (PROVENANCE and shapes of the source tell it), the optimizer's step; then
# options of convert behind "--". The native runs had a lower bound of the learning rate of 0.001, which groups are found by.
cases() {
    cat <<'EOF'
fsdp_dtensor_native_dp2 dp1 1 4 layers=4 groups=2 min_lr=0.001 --
fsdp_dtensor_native_dp2 dp2 2 4 layers=4 groups=2 min_lr=0.001 --
fsdp_dtensor_native_dp2 tp2 2 4 layers=4 groups=2 min_lr=0.001 tp=2 -- --target-impl local
fsdp_dtensor_native_dp2 generation_C 1 4 layers=4 groups=2 min_lr=0.001 -- --target-generation C
fsdp_dtensor_native_moe_ep2dp4 ep2 2 4 layers=4 groups=2 experts=4 ep=2 min_lr=0.001 --
fsdp_dtensor_native_moe_ep2dp4 ep1 1 4 layers=4 groups=2 experts=4 min_lr=0.001 -- --target-mesh ep=1
fsdp_dtensor_native_dp2 tp2_chunks 2 4 layers=4 groups=2 min_lr=0.001 tp=2 -- --target-mesh tp=2
fsdp_dtensor_native_moe_ep2dp4 ep2_chunks 2 4 layers=4 groups=2 experts=4 ep=2 min_lr=0.001 -- --target-mesh tp=2,ep=2
fsdp_dtensor_native_dp2 buckets_dp2 2 4 layers=4 groups=2 min_lr=0.001 -- --target-mesh dp=2 --target-optimizer dp_reshardable --target-impl local
fsdp_dtensor_native_dp2 tp2_buckets 2 4 layers=4 groups=2 min_lr=0.001 tp=2 -- --target-mesh tp=2,dp=1 --target-optimizer dp_reshardable --target-impl local
fsdp_dtensor_native_moe_ep2dp4 buckets_ep2 2 4 layers=4 groups=2 experts=4 ep=2 min_lr=0.001 -- --target-mesh ep=2,dp=2 --target-optimizer dp_reshardable --target-impl local
fsdp_dtensor_native_dp2 flattened_dp1 1 4 layers=4 groups=2 min_lr=0.001 -- --target-generation A
fsdp_dtensor_native_dp2 flattened_dp2 2 4 layers=4 groups=2 min_lr=0.001 -- --target-generation A --target-mesh tp=2,pp=2
fsdp_dtensor_native_dp2 tp2_flattened 2 4 layers=4 groups=2 min_lr=0.001 tp=2 -- --target-generation A
fsdp_dtensor_native_moe_ep2dp4 flattened_ep2 2 4 layers=4 groups=2 experts=4 ep=2 min_lr=0.001 -- --target-generation A
fsdp_dtensor_native_moe_ep2dp4 flattened_ep1 1 4 layers=4 groups=2 experts=4 min_lr=0.001 -- --target-generation A --target-mesh ep=1
fsdp_dtensor_telike_dp2_015 dp1 1 1 layers=2 --
fsdp_dtensor_telike_dp2_019 dp2 2 1 layers=2 --
fsdp_dtensor_telike_tp2dp2 tp2 2 1 layers=2 tp=2 --
fsdp_dtensor_telike_ep2dp4 ep1 1 1 layers=2 experts=4 shared=1 --
EOF
}

# judge LOG RANKS STEP: what is wrong with the load, nothing when all is well.
judge() {
    if [ "$(grep -c '^[0-9]* CHECKED .* bad 0 ' "$1")" != "$2" ]; then
        grep -m1 -E 'BAD|Error' "$1" || echo "the checks did not run"
    elif [ "$(grep -c "steps \[$3.0\]" "$1")" != "$2" ]; then
        echo "step did not come back: $(grep -m1 CHECKED "$1")"
    fi
}

# run_case SOURCE NAME RANKS STEP MODEL... -- CONVERT...: every tree, one line each.
run_case() {
    local source=$1 name=$2 ranks=$3 step=$4 tree why log folder out
    local -a model=()
    shift 4
    while [ "$1" != -- ]; do
        model+=("$1")
        shift
    done
    shift
    folder=$goldens/$source/iter_0000004
    out=$work/$source.$name/iter_0000004
    if ! "$dcpkit" convert --to torch_dist "$@" "$folder" "$out" >"$work/convert.log" 2>&1; then
        echo "FAIL $source $name: convert: $(tail -n 1 "$work/convert.log")"
        failed=$((failed + 1))
        return
    fi
    for tree in core_v0.14.0 core_v0.15.3 core_v0.16.1 core_v0.18.2 core_v0.19.0 HEAD; do
        [[ "$source $tree $name" =~ $only ]] || continue
        # Generation C is what 0.19 began to write, A what 0.16 ceased to read; TP is not to be had in the harness before 0.18.
        case "$name $tree" in
        *flattened*" core_v0.1"[45]*) ;;
        *flattened* | *core_v0.14*) continue ;;
        "generation_C core_v0.1"[5-8]* | "tp2"*" core_v0.1"[56]*) continue ;;
        esac
        log=$work/$source.$name.$tree.log
        timeout 300 "$python" -W ignore -m torch.distributed.run --standalone --nproc-per-node "$ranks" \
            "$here/megatron_torch_dist.py" "$DCPK_LAB" "$tree" "$out" "src=$folder" "${model[@]}" \
            >"$log" 2>&1 </dev/null
        why=$(judge "$log" "$ranks" "$step")
        n=$((n + 1))
        if [ -z "$why" ]; then
            echo "PASS $source $tree $name: $(grep -m1 -o 'CHECKED .*' "$log")"
        else
            echo "FAIL $source $tree $name: $why"
            failed=$((failed + 1))
        fi
    done
}

while read -r line; do
    # shellcheck disable=SC2086 # a line is words
    run_case $line
done < <(cases)
echo "$n cases, $failed failed"
[ "$failed" -eq 0 ] && [ "$n" -gt 0 ]
