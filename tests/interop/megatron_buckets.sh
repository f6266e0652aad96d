#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# megatron_buckets.sh - Megatron core 0.6 to 0.14 saves its optimizer as buckets, core 0.19.0 loads what we make of it.
#
# Usage: megatron_buckets.sh DCPKIT [REGEX]
#   DCPKIT         the binary; REGEX: run the cases whose line matches
# Environment:
#   MEGATRON_TREES folder of Megatron-LM trees: core_v0.6.0 to core_v0.14.0 (see the cases) and core_v0.19.0
#   PYTHON         python with torch 2.11 and what Megatron imports (requirements: megatron_load.sh); default python3
#   OLD_PYTHON     the same with torch 2.5, numpy 1, zarr 2 and tensorstore before 0.1.70, for what core 0.6 to 0.12 saves
# Every case: converted with --verify to torch_dist and to fsdp_dtensor, both loaded strictly by core 0.19.0 on one rank; every
# weight, master and moment must be what the saving run had. Exit 1 when one fails. About a minute a case.
set -u

[ $# -ge 1 ] || { sed -n '5,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
dcpkit=$1 only=${2:-.}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${MEGATRON_TREES:?set it to the folder of Megatron trees}"
python=${PYTHON:-python3} old_python=${OLD_PYTHON:?set it to a python with torch 2.5}
export MEGATRON_TREES OMP_NUM_THREADS=1
work=$(mktemp -d "${TMPDIR:-/tmp}/megatron_buckets.XXXXXX") || exit 4
trap 'rm -rf "$work"' EXIT

# release, family, ranks, settings of megatron_models.py. hidden=128 bucket=1 gives each parameter a bucket that it fills: all that
# core 0.11 to 0.14 can save; a shared embedding behind a bucket that is full is all that 0.7 to 0.12 can.
cases() {
    local release
    for release in 0.6.0 0.7.0 0.8.0 0.10.0; do
        cat <<END
$release dense 4 tp=2 bucket=700
$release dense 4 pp=2 bucket=700
$release dense 3 bucket=700
$release moe 4 pp=2 ep=2
$release layernorm 2 tp=2
$release tied 4 pp=2 hidden=128
END
    done
    for release in 0.11.0 0.12.3 0.13.1 0.14.0; do
        echo "$release dense 2 hidden=128 bucket=1"
    done
    echo "0.6.0 tied 4 pp=2 bucket=700"
    echo "0.10.0 tied 6 pp=2 hidden=128"
    echo "0.6.0 dense 2 bucket=700 backend=zarr"
    echo "0.7.0 moe 2 ep=2 backend=zarr"
}

# check LOG FORMAT HIDDEN: load the conversion, say what Megatron says.
check() {
    "$python" "$here/megatron_models.py" load core_v0.19.0 "$family" "$work/$2/iter_0000004" "$3" >"$1" 2>&1
    grep -E '^(REQUESTED|CHECKED) ' "$1" | tr '\n' ' '
}

failed=0 n=0
while read -r release family ranks settings; do
    [[ "$release $family $ranks $settings" =~ $only ]] || continue
    hidden=$(grep -o 'hidden=[0-9]*' <<<"$settings" || echo hidden=16)
    saver=$old_python
    case $release in 0.13.* | 0.14.*) saver=$python ;; esac
    rm -rf "${work:?}"/*
    said='not saved'
    # shellcheck disable=SC2086 # settings are words
    if "$saver" -m torch.distributed.run --standalone --nproc-per-node "$ranks" "$here/megatron_models.py" save "core_v$release" \
        "$family" "$work/in" layout=fully_sharded_bucket_space $settings </dev/null >"$work/save.log" 2>&1; then
        said='not converted'
        if "$dcpkit" convert --verify --to torch_dist --target-mesh tp=1,pp=1,ep=1 "$work/in" "$work/td" >"$work/log" 2>&1 &&
            "$dcpkit" convert --verify --to fsdp_dtensor "$work/in" "$work/fd" >"$work/log" 2>&1; then
            said="torch_dist $(check "$work/log.td" td "$hidden")fsdp_dtensor $(check "$work/log.fd" fd "$hidden")"
        fi
    fi
    result=ok
    [[ $said =~ torch_dist\ CHECKED\ [0-9]+\ bad\ 0.*MISSING\ 0.*bad\ 0 ]] || { result=FAIL && failed=$((failed + 1)); }
    n=$((n + 1))
    echo "$result $release $family $ranks ranks, $settings: $said"
done < <(cases)
echo "$n cases, $failed failed"
[ "$failed" = 0 ] && [ "$n" -gt 0 ]
