#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh - time and memory of `dcpkit convert` next to `cp -r` of the same checkpoint, in one run.
#
#   DCPKIT=build/dcpkit tests/bench/run.sh [--short] [--gb N] [--layers N] [--per-layer] [--reps N] [--threads N] [--work DIR]
#
# Makes a synthetic torch_dist checkpoint of N GB (10^9 bytes; default 4.295 = 4 GiB), then by turns copies it with
# `cp -r --reflink=never` and converts it to fsdp_dtensor: input dropped from the page cache (cold) or read into it
# (warm), output synced within the time. Prints each run and a table. Exit 1 when a conversion passes the memory
# limit of DESIGN.md section 6: 256 MiB + 300 B a chunk or object item. --short: 256 MiB, one repetition.
# --layers: that many layers of a tiny model instead, a metadata of many small items.
# make_checkpoint, measure and samples/ lie in the build folder, beside the binary. Needs three times N on DIR.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
DCPKIT=$(realpath "${DCPKIT:-$here/../../build/dcpkit}")
build=$(dirname "$DCPKIT")
gb=4.295 reps=3 parent=${TMPDIR:-/tmp}
make_options=() convert_options=()
while [ $# -gt 0 ]; do
    case $1 in
    --short) gb=0.268435 reps=1; shift ;;
    --gb) gb=$2; shift 2 ;;
    --reps) reps=$2; shift 2 ;;
    --layers) make_options+=(--layers "$2" --hidden 16 --ffn 32 --heads 2 --groups 2 --vocab 256); shift 2 ;;
    --per-layer) make_options+=(--per-layer); shift ;;
    --threads) convert_options+=(--threads "$2"); shift 2 ;;
    --work) parent=$2; shift 2 ;;
    *) sed -n '5s/^# *//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    esac
done
work=$(mktemp -d "$parent/dcpkit_bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
in=$work/in out=$work/out
runs=$work/runs # what state seconds peak_bytes

"$build/tests/bench/make_checkpoint" --like "$build/samples/torch_dist_c_dense_tp2pp2/iter_0000004" \
    --gb "$gb" "${make_options[@]+"${make_options[@]}"}" "$in" | tee "$work/made"
in_bytes=$(du -sb "$in" | cut -f1)
echo "$(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg), folder $work on $(stat -f -c %T "$work")"

# number TEXT_BEHIND FILE: the count that stands before some text.
number() {
    sed -nE "s/.*[^0-9]([0-9]+) $1.*/\1/p" "$2" | head -n 1
}

# one WHAT STATE COMMAND...: measure it once.
one() {
    local what=$1 state=$2 seconds peak cached
    shift 2
    rm -rf "$out"
    sync
    read -r seconds peak cached < <("$build/tests/bench/measure" "--$state" "$in" --sync "$out" -- "$@" 2>"$work/said") || {
        cat "$work/said" >&2
        exit 1
    }
    echo "$what $state $seconds $peak" >>"$runs"
    awk -v what="$what" -v state="$state" -v s="$seconds" -v p="$peak" -v c="$cached" -v n="$in_bytes" \
        'BEGIN { printf "%-8s %-5s %8.2f s %6.2f GB/s, peak %6.1f MiB (%.0f%% of the input cached)\n", what, state, s, n / s / 1e9, p / 1048576, c * 100 }'
}

for ((rep = 0; rep < reps; rep++)); do
    for state in cold warm; do
        one cp "$state" cp -r --reflink=never "$in" "$out"
        one convert "$state" "$DCPKIT" convert --to fsdp_dtensor "${convert_options[@]+"${convert_options[@]}"}" "$in" "$out"
    done
done

# Chunks and object items of both sides, as both programs counted them.
items=$(($(number chunks "$work/made") + $(number objects "$work/made") + $(number chunks "$work/said") + $(number 'keys for' "$work/said")))
limit=$((256 * 1048576 + 300 * items))
echo
awk -v n="$in_bytes" -v limit="$limit" -v items="$items" '
    { k = $1 "|" $2; if (!(k in runs) || $3 < best[k]) best[k] = $3; total[k] += $3; runs[k]++
      if ($4 > peak[k]) peak[k] = $4; if ($1 == "convert" && $4 > highest) highest = $4 }
    END {
        printf "%-6s %-8s %5s %9s %9s %9s %10s\n", "state", "what", "runs", "best s", "mean s", "GB/s", "peak MiB"
        split("cold warm", states); split("cp convert", whats)
        for (i = 1; i <= 2; i++) for (j = 1; j <= 2; j++) {
            k = whats[j] "|" states[i]
            printf "%-6s %-8s %5d %9.2f %9.2f %9.2f %10.1f\n", states[i], whats[j], runs[k], best[k], total[k] / runs[k], n / best[k] / 1e9, peak[k] / 1048576
        }
        for (i = 1; i <= 2; i++)
            printf "%s: convert takes %.2f of the time of cp (best runs; means %.2f)\n", states[i], best["convert|" states[i]] / best["cp|" states[i]],
                (total["convert|" states[i]] / runs["convert|" states[i]]) / (total["cp|" states[i]] / runs["cp|" states[i]])
        printf "memory: peak %.1f MiB, limit %.1f MiB (256 MiB + 300 B x %d items): %s\n", highest / 1048576, limit / 1048576, items, highest <= limit ? "ok" : "PASSED"
        exit highest > limit
    }' "$runs"
