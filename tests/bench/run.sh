#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh - time and memory of `dcpkit convert` next to `cp -r` of the same checkpoint, in one run.
#
#   DCPKIT=build/dcpkit tests/bench/run.sh [--short] [--gb N] [--tensors N] [--layers N] [--per-layer] [--make OPTIONS] [--reps N] [--threads N] [--vs DCPKIT] [--peer COMMAND] [--ranks 'N ...'] [--work DIR]
#
# Makes a synthetic torch_dist checkpoint of N GB (10^9 bytes; default 4.295 = 4 GiB), then by turns copies it with
# `cp -r --reflink=never` and converts it to fsdp_dtensor: input dropped from the page cache (cold) or read into it
# (warm), output synced within the time. Prints each run and a table. Exit 1 when a conversion passes the memory
# limit of lib/README.md: 256 MiB + 300 B a chunk or object item. --short: 256 MiB, one repetition.
# --tensors: N GB in about that many tensors, each layer's apart. --layers: that many layers of a tiny model instead, a
# metadata of many small items. --make: options of make_checkpoint, as '--vocab 1048576 --hidden 2048' for one huge tensor.
# Further ones that take their turns: --vs: another build of dcpkit, of the commit before; --peer: a command that is
# given the iteration's folder and OUT; --ranks: so many processes under mpirun.
# --vs compares pairs, the two runs of a repetition that follow each other, and takes medians: other work on the machine
# slows both of a pair. Exit 1 also where this build has a loss: more than 1.05 of both the time and the CPU time of the
# other, or of its peak memory (and 1 MiB), as the medians of the pairs. Give it 7 repetitions or more.
# make_checkpoint, measure and samples/ lie in the build folder, beside the binary. Needs three times N on DIR.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
DCPKIT=$(realpath "${DCPKIT:-$here/../../build/dcpkit}")
build=$(dirname "$DCPKIT")
gb=4.295 reps=3 parent=${TMPDIR:-/tmp} tensors=0
make_options=() convert_options=() # of make_checkpoint, of convert
whats=(cp convert) previous='' peer=() ranks=()
while [ $# -gt 0 ]; do
    case $1 in
    --short) gb=0.268435 reps=1; shift ;;
    --gb) gb=$2; shift 2 ;;
    --reps) reps=$2; shift 2 ;;
    --tensors) tensors=$2; shift 2 ;;
    --layers) make_options+=(--layers "$2" --hidden 16 --ffn 32 --heads 2 --groups 2 --vocab 256); shift 2 ;;
    --per-layer) make_options+=(--per-layer); shift ;;
    --make) read -r -a words <<<"$2"; make_options+=("${words[@]}"); shift 2 ;;
    --threads) convert_options+=(--threads "$2"); shift 2 ;;
    --vs) previous=$(realpath "$2"); whats+=(previous); shift 2 ;;
    --peer) read -r -a peer <<<"$2"; whats+=(peer); shift 2 ;;
    --ranks) read -r -a ranks <<<"$2"; shift 2 ;;
    --work) parent=$2; shift 2 ;;
    *) sed -n '5s/^# *//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    esac
done
for n in ${ranks[@]+"${ranks[@]}"}; do
    whats+=("ranks-$n")
done
if [ "$tensors" -gt 0 ]; then # a layer has 24, and 10 hidden^2 parameters of 14 bytes
    layers=$((tensors / 24 / 2 * 2))
    hidden=$(awk -v gb="$gb" -v layers="$layers" 'BEGIN { print int(sqrt(gb * 1e9 / 140 / layers) / 16 + 0.5) * 16 }')
    make_options+=(--layers "$layers" --hidden "$hidden" --ffn $((2 * hidden)) --heads 2 --groups 2 --vocab 256 --per-layer)
fi
work=$(mktemp -d "$parent/dcpkit_bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
in=$work/in out=$work/out
runs=$work/runs # what state seconds peak_bytes cpu_seconds

"$build/tests/bench/make_checkpoint" --like "$build/samples/torch_dist_c_dense_tp2pp2/iter_0000004" \
    --gb "$gb" "${make_options[@]+"${make_options[@]}"}" "$in" | tee "$work/made"
in_bytes=$(du -sb "$in" | cut -f1)
echo "$(nproc) CPUs, load $(cut -d' ' -f1-3 /proc/loadavg), folder $work on $(stat -f -c %T "$work")"

# number TEXT_BEHIND FILE: the count that stands before some text.
number() {
    sed -nE "s/.*[^0-9]([0-9]+) $1.*/\1/p" "$2" | head -n 1
}

# one WHAT STATE COMMAND...: measure it once.
one() {
    local what=$1 state=$2 seconds peak cached cpu
    shift 2
    rm -rf "$out"
    sync
    read -r seconds peak cached cpu < <("$build/tests/bench/measure" "--$state" "$in" --sync "$out" -- "$@" 2>"$work/said") || {
        cat "$work/said" >&2
        exit 1
    }
    echo "$what $state $seconds $peak $cpu" >>"$runs"
    awk -v what="$what" -v state="$state" -v s="$seconds" -v p="$peak" -v c="$cached" -v cpu="$cpu" -v n="$in_bytes" \
        'BEGIN { printf "%-8s %-5s %8.2f s %6.2f GB/s, %6.2f s of CPU, peak %6.1f MiB (%.0f%% of the input cached)\n", what, state, s, n / s / 1e9, cpu, p / 1048576, c * 100 }'
}

# turn WHAT STATE: one run of one of them.
turn() {
    local convert=(convert --to fsdp_dtensor "${convert_options[@]+"${convert_options[@]}"}" "$in" "$out")
    case $1 in
    cp) one cp "$2" cp -r --reflink=never "$in" "$out" ;;
    convert) one convert "$2" "$DCPKIT" "${convert[@]}" --verbose && cp "$work/said" "$work/said_by_convert" ;;
    previous) one previous "$2" "$previous" "${convert[@]}" ;;
    peer) one peer "$2" "${peer[@]}" "$in/iter_0000004" "$out" ;;
    ranks-*) one "$1" "$2" mpirun -n "${1#ranks-}" --bind-to none "$DCPKIT" "${convert[@]}" ;;
    esac
}

# as root in a container, and more ranks than cores, are no mistake here
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
for ((rep = 0; rep < reps; rep++)); do
    for state in cold warm; do
        for i in "${!whats[@]}"; do # forth, then back: what ran before matters as well (README.md)
            turn "${whats[rep % 2 == 0 ? i : ${#whats[@]} - 1 - i]}" "$state"
        done
    done
done

# Chunks and object items of both sides, as both programs counted them.
said=$work/said_by_convert
items=$(($(number chunks "$work/made") + $(number objects "$work/made") + $(number chunks "$said") + $(number 'keys for' "$said")))
limit=$((256 * 1048576 + 300 * items)) status=0
echo
awk -v n="$in_bytes" -v limit="$limit" -v items="$items" -v what_list="${whats[*]}" '
    { k = $1 "|" $2; if (!(k in runs) || $3 < best[k]) best[k] = $3; total[k] += $3; runs[k]++; if (!(k in cpu) || $5 < cpu[k]) cpu[k] = $5
      if ($4 > peak[k]) peak[k] = $4; if ($1 == "convert" && $4 > highest) highest = $4 }
    END {
        printf "%-6s %-8s %5s %9s %9s %9s %9s %10s\n", "state", "what", "runs", "best s", "mean s", "GB/s", "CPU s", "peak MiB"
        split("cold warm", states); n_whats = split(what_list, whats)
        for (i = 1; i <= 2; i++) for (j = 1; j <= n_whats; j++) {
            k = whats[j] "|" states[i]
            printf "%-6s %-8s %5d %9.2f %9.2f %9.2f %9.2f %10.1f\n", states[i], whats[j], runs[k], best[k], total[k] / runs[k], n / best[k] / 1e9, cpu[k], peak[k] / 1048576
        }
        for (i = 1; i <= 2; i++) for (j = 2; j <= n_whats; j++) {
            k = whats[j] "|" states[i]; cp = "cp|" states[i]
            printf "%s: %s takes %.2f of the time of cp (best runs; means %.2f)\n", states[i], whats[j], best[k] / best[cp], total[k] / runs[k] / (total[cp] / runs[cp])
        }
        printf "memory: peak %.1f MiB, limit %.1f MiB (256 MiB + 300 B x %d items): %s\n", highest / 1048576, limit / 1048576, items, highest <= limit ? "ok" : "PASSED"
        exit highest > limit
    }' "$runs" || status=1

# The k-th run of this build and the k-th of the other are a pair.
[ -z "$previous" ] || awk '
    function median(of, n,    i, k, x) { # sorts of[1..n]
        for (i = 2; i <= n; i++) { x = of[i]; for (k = i - 1; k > 0 && of[k] > x; k--) of[k + 1] = of[k]; of[k + 1] = x }
        return n % 2 ? of[(n + 1) / 2] : (of[n / 2] + of[n / 2 + 1]) / 2
    }
    { k = $1 "|" $2 "|" ++n[$1 "|" $2]; seconds[k] = $3; peak[k] = $4; cpu[k] = $5 }
    END {
        split("cold warm", states)
        for (i = 1; i <= 2; i++) {
            pairs = n["convert|" states[i]]
            for (k = 1; k <= pairs; k++) {
                a = "convert|" states[i] "|" k; b = "previous|" states[i] "|" k
                time[k] = seconds[a] / seconds[b]; work[k] = cpu[a] / cpu[b]; memory[k] = peak[a] / peak[b]; more[k] = peak[a] - peak[b]
            }
            t = median(time, pairs); w = median(work, pairs); m = median(memory, pairs); bytes = median(more, pairs)
            slower = t > 1.05 && w > 1.05; larger = m > 1.05 && bytes > 1048576; lost += slower + larger
            printf "%s: of previous, convert takes %.3f of the time (%.2f to %.2f), %.3f of the CPU time (%.2f to %.2f), %.3f of the memory; medians of %d pairs: %s\n",
                states[i], t, time[1], time[pairs], w, work[1], work[pairs], m, pairs, slower + larger ? "LOSS" : "ok"
        }
        exit lost > 0
    }' "$runs" || status=1
echo "load at the end $(cut -d' ' -f1-3 /proc/loadavg)"
exit "$status"
