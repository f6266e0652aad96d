#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# verify.sh - `dcpkit verify` and `hash` next to programs that read the same files, in one run.
#
#   DCPKIT=build/dcpkit tests/bench/verify.sh [--gb N] [--reps N] [--work DIR]
#
# Makes a synthetic torch_dist checkpoint of N GB (10^9 bytes; default 2) with an integrity.json, and reads it by turns with
# cat (what storage and page cache give to one thread), sha256sum (what the list in integrity.json costs with coreutils), and
# ours: each with the files dropped from the page cache (cold) and in it (warm). Prints the best of the runs.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
DCPKIT=$(realpath "${DCPKIT:-$here/../../build/dcpkit}")
build=$(dirname "$DCPKIT")
gb=2 reps=3 parent=${TMPDIR:-/tmp}
while [ $# -gt 0 ]; do
    case $1 in
    --gb) gb=$2; shift 2 ;;
    --reps) reps=$2; shift 2 ;;
    --work) parent=$2; shift 2 ;;
    *) sed -n '5s/^# *//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    esac
done
work=$(mktemp -d "$parent/dcpkit_verify.XXXXXX")
trap 'rm -rf "$work"' EXIT
in=$work/in runs=$work/runs # what state seconds peak_bytes
"$build/tests/bench/make_checkpoint" --like "$build/samples/torch_dist_c_dense_tp2pp2/iter_0000004" --gb "$gb" "$in"
files=("$in"/iter_*/__*.distcp)
bytes=$(cat "${files[@]}" | wc -c)
echo "$(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg), folder $work on $(stat -f -c %T "$work")"

# one WHAT STATE COMMAND...: measure it once.
one() {
    local what=$1 state=$2 seconds peak cached
    shift 2
    read -r seconds peak cached < <("$build/tests/bench/measure" "--$state" "$in" -- "$@" 2>"$work/said") || {
        cat "$work/said" >&2
        exit 1
    }
    echo "$what $state $seconds $peak $cached" >>"$runs"
}

for ((rep = 0; rep < reps; rep++)); do
    for state in cold warm; do
        one cat "$state" cat "${files[@]}"
        one "verify,1_thread" "$state" "$DCPKIT" verify --quiet --threads 1 "$in"
        one verify "$state" "$DCPKIT" verify --quiet "$in"
        one hash "$state" "$DCPKIT" hash --quiet "$in"
        one sha256sum "$state" sha256sum "${files[@]}"
    done
done
awk -v n="$bytes" '
    { k = $2 " " $1; if (!(k in best) || $3 < best[k]) best[k] = $3; if ($4 > peak[k]) peak[k] = $4; if (!(k in seen)) { order[++m] = k; seen[k] = 1 } }
    END { printf "%-24s %8s %8s %10s\n", "", "best s", "GB/s", "peak MiB"
          for (i = 1; i <= m; i++) { k = order[i]; printf "%-24s %8.2f %8.2f %10.1f\n", k, best[k], n / best[k] / 1e9, peak[k] / 1048576 } }' "$runs"
