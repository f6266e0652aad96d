#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# verify.sh - `dcpkit verify` and `hash` next to programs that read the same files, in one run.
#
#   DCPKIT=build/dcpkit tests/bench/verify.sh [--gb N] [--layers N] [--reps N] [--vs DCPKIT] [--work DIR]
#
# Makes a synthetic torch_dist checkpoint of N GB (10^9 bytes; default 2) with an integrity.json, and reads it by turns with
# cat (what storage and page cache give to one thread), sha256sum (what the list in integrity.json costs with coreutils), and
# ours: each with the files dropped from the page cache (cold) and in it (warm). --layers: that many layers of a tiny
# model instead, each apart: 24 small tensors a layer. --vs: another build of dcpkit. Prints the best of the runs.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
DCPKIT=$(realpath "${DCPKIT:-$here/../../build/dcpkit}")
build=$(dirname "$DCPKIT")
gb=2 reps=3 parent=${TMPDIR:-/tmp} previous=''
make_options=()
while [ $# -gt 0 ]; do
    case $1 in
    --gb) gb=$2; shift 2 ;;
    --layers) make_options=(--layers "$2" --hidden 16 --ffn 32 --heads 2 --groups 2 --vocab 256 --per-layer); shift 2 ;;
    --reps) reps=$2; shift 2 ;;
    --vs) previous=$(realpath "$2"); shift 2 ;;
    --work) parent=$2; shift 2 ;;
    *) sed -n '5s/^# *//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    esac
done
work=$(mktemp -d "$parent/dcpkit_verify.XXXXXX")
trap 'rm -rf "$work"' EXIT
in=$work/in runs=$work/runs # what state seconds peak_bytes cached cpu_seconds
"$build/tests/bench/make_checkpoint" --like "$build/samples/torch_dist_c_dense_tp2pp2/iter_0000004" --gb "$gb" \
    "${make_options[@]+"${make_options[@]}"}" "$in"
files=("$in"/iter_*/__*.distcp)
bytes=$(cat "${files[@]}" | wc -c)
echo "$(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg), folder $work on $(stat -f -c %T "$work")"

# one WHAT STATE COMMAND...: measure it once.
one() {
    local what=$1 state=$2 seconds peak cached cpu
    shift 2
    read -r seconds peak cached cpu < <("$build/tests/bench/measure" "--$state" "$in" -- "$@" 2>"$work/said") || {
        cat "$work/said" >&2
        exit 1
    }
    echo "$what $state $seconds $peak $cached $cpu" >>"$runs"
}

for ((rep = 0; rep < reps; rep++)); do
    for state in cold warm; do
        one cat "$state" cat "${files[@]}"
        one "verify,1_thread" "$state" "$DCPKIT" verify --quiet --threads 1 "$in"
        one verify "$state" "$DCPKIT" verify --quiet "$in"
        one hash "$state" "$DCPKIT" hash --quiet "$in"
        if [ -n "$previous" ]; then
            one previous_verify "$state" "$previous" verify --quiet "$in"
            one previous_hash "$state" "$previous" hash --quiet "$in"
        fi
        one sha256sum "$state" sha256sum "${files[@]}"
    done
done
awk -v n="$bytes" '
    { k = $2 " " $1; if (!(k in best) || $3 < best[k]) best[k] = $3; if (!(k in cpu) || $6 < cpu[k]) cpu[k] = $6; if ($4 > peak[k]) peak[k] = $4; if (!(k in seen)) { order[++m] = k; seen[k] = 1 } }
    END { printf "%-24s %8s %8s %8s %10s\n", "", "best s", "GB/s", "CPU s", "peak MiB"
          for (i = 1; i <= m; i++) { k = order[i]; printf "%-24s %8.2f %8.2f %8.2f %10.1f\n", k, best[k], n / best[k] / 1e9, cpu[k], peak[k] / 1048576 } }' "$runs"
