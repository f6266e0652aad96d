#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# campaign.sh - run the fuzz targets for many executions, on all cores.
#
#   tests/fuzz/campaign.sh [--runs N | --seconds N] [--jobs N] [--build FOLDER] [--found FOLDER] [TARGET...]
#   tests/fuzz/campaign.sh --pack FOLDER
#
# Builds the targets with libFuzzer and the sanitizers in FOLDER (default: build-fuzz; needs clang), then gives each TARGET
# ("pickle"; default: all) N executions (default: ten million; 0: the corpora alone), or N seconds. A target is run in several
# parts at once that share what they find; its first finding ends it. --found keeps inputs, findings and logs (default: fuzz-found).
# --pack puts the targets, the libraries that they need, the corpora and this script into FOLDER: FOLDER/campaign.sh runs them on a
# machine without a compiler. Prints a table, with the seconds of all parts together; exit 1 when there is a finding.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
runs=10000000 seconds=0 jobs=$(nproc) build='' found=fuzz-found pack='' targets=()
while [ "$#" -gt 0 ]; do
    case $1 in
    --runs) runs=$2 ;;
    --seconds) seconds=$2 ;;
    --jobs) jobs=$2 ;;
    --build) build=$2 ;;
    --found) found=$2 ;;
    --pack) pack=$2 ;;
    -*)
        sed -n '5,6s/^# *//p' "${BASH_SOURCE[0]}" >&2
        exit 2
        ;;
    *) targets+=("$1") && set -- one "$@" ;;
    esac
    shift 2
done

if [ "${#targets[@]}" -eq 0 ]; then
    for corpus in "$here"/corpus/*/; do
        targets+=("$(basename "$corpus")")
    done
fi

# What was packed lies beside this script; in the repository it is built first.
build_all() {
    cmake -S "$here/../.." -B "$build" -G Ninja -DCMAKE_C_COMPILER=clang -DDCPK_FUZZ=ON -DDCPK_MPI=OFF -DDCPK_WERROR=ON &&
        cmake --build "$build" --target "${targets[@]/#/fuzz_}"
}
if [ -d "$here/bin" ]; then
    bin=$here/bin
    export LD_LIBRARY_PATH=$here/lib
else
    build=${build:-$here/../../build-fuzz}
    bin=$build/tests
    mkdir -p "$build"
    if ! build_all >"$build/build.log" 2>&1; then
        cat "$build/build.log"
        exit 1
    fi
fi

# The libraries too, but for the C library, which the other machine has.
pack_all() {
    local target
    mkdir -p "$pack/bin" "$pack/lib"
    cp -r "$here/campaign.sh" "$here/corpus" "$pack/"
    for target in "${targets[@]}"; do
        cp "$bin/fuzz_$target" "$pack/bin/"
        ldd "$bin/fuzz_$target"
    done | awk '$2 == "=>" && $1 !~ /^lib(c|m|dl|rt|pthread)\.so/ { print $3 }' | sort -u | xargs cp -Lt "$pack/lib"
    echo "it needs $(cat "$pack"/bin/* "$pack"/lib/* | grep -aoE 'GLIBC_2\.[0-9]+' | sort -Vu | tail -n 1)"
}
if [ -n "$pack" ]; then
    pack_all
    exit
fi

# part TARGET NUMBER: a share of the executions, with a log of its own; the first finding stops the others.
# shellcheck disable=SC2317 # xargs calls it
part() {
    local target=$1 log=$found/$1.$2.log limit=-runs=$((runs / parts)) start=$EPOCHSECONDS status=0
    [ "$seconds" -eq 0 ] || limit=-max_total_time=$seconds
    [ ! -e "$found/$target.stop" ] || return 0
    "$bin/fuzz_$target" "$limit" -timeout=60 -rss_limit_mb=2048 -print_final_stats=1 -stop_file="$found/$target.stop" \
        -artifact_prefix="$found/$target-" "$found/$target" "$here/corpus/$target" >"$log" 2>&1 || status=$?
    echo "seconds: $((EPOCHSECONDS - start))" >>"$log"
    [ "$status" -eq 0 ] || echo "$log" >>"$found/$target.stop"
}

# sum TARGET FIELD: of the final statistics in the target's logs.
sum() {
    cat "$found/$1".*.log 2>/dev/null | awk -v field="$2" '$1 == field { sum += $2 } END { print sum + 0 }'
}

parts=1
[ "$seconds" -ne 0 ] || [ "$runs" -lt "$((jobs * 1000))" ] || parts=$jobs
export bin found here runs seconds parts
export -f part
mkdir -p "$found"
rm -f "$found"/*.stop "$found"/*.log
for target in "${targets[@]}"; do
    mkdir -p "$found/$target"
done
for ((number = 0; number < parts; number++)); do
    printf "%s $number\n" "${targets[@]}"
done | xargs -P "$jobs" -L 1 bash -c 'part "$@"' part

status=0
printf '%-12s %12s %9s %8s  %s\n' target executions seconds exec/s result
for target in "${targets[@]}"; do
    n=$(sum "$target" stat::number_of_executed_units:)
    took=$(sum "$target" seconds:)
    result="no finding"
    if [ -e "$found/$target.stop" ]; then
        result="FINDING: $(paste -sd ' ' "$found/$target.stop")"
        status=1
    fi
    printf '%-12s %12d %9d %8d  %s\n' "$target" "$n" "$took" "$((n / (took > 0 ? took : 1)))" "$result"
done
exit "$status"
