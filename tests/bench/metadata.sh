#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# metadata.sh - time and memory of `dcpkit inspect` next to torch's own reading of the same .metadata, in one run.
#
#   DCPKIT=build/dcpkit tests/bench/metadata.sh [--vs DCPKIT] [--work DIR] [KIND N]...
#
# KIND: as make_metadata.py; default: chunks 1000000, rows 1000000, tensors 100000, tensors 1000000, objects 1000000.
# torch: pickle.load, as FileSystemReader.read_metadata does; its seconds are those of the load alone. Memory is what the
# items add: to what importing torch takes, and to what inspect takes for one item. CPU: seconds of it that both programs
# used, which other work on the machine changes less. --vs: another build of dcpkit. Exit 1 when 100 000 items or more of
# any kind take inspect more than 300 B each; 77 without a python3 (or $PYTHON) that has torch. Needs 8 GB of memory for
# torch.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
DCPKIT=$(realpath "${DCPKIT:-$here/../../build/dcpkit}")
measure=$(dirname "$DCPKIT")/tests/bench/measure
python=${PYTHON:-python3} parent=${TMPDIR:-/tmp} previous=''
while [ $# -gt 0 ]; do
    case $1 in
    --vs) previous=$(realpath "$2"); shift 2 ;;
    --work) parent=$2; shift 2 ;;
    chunks | rows | tensors | objects) break ;;
    *) sed -n '5s/^# *//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    esac
done
[ $# -gt 0 ] || set -- chunks 1000000 rows 1000000 tensors 100000 tensors 1000000 objects 1000000
"$python" -c 'import torch' 2>/dev/null || { echo "skipped: $python has no torch"; exit 77; }
work=$(mktemp -d "$parent/dcpkit_bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "$(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg)"
printf '%-8s %9s  %-9s %8s %8s %9s\n' kind items what seconds CPU B/item

# peak_of_one DCPKIT: bytes that it takes to inspect one tensor.
peak_of_one() {
    [ -d "$work/one" ] || "$python" "$here/make_metadata.py" "$work/one" tensors 1
    "$measure" --warm "$work/one/.metadata" -- "$1" inspect "$work/one" >"$work/one_measured" 2>"$work/said"
    cut -d' ' -f2 "$work/one_measured"
}

# row KIND N WHAT SECONDS CPU BYTES
row() {
    printf '%-8s %9d  %-9s %8.2f %8.2f %9d\n' "$1" "$2" "$3" "$4" "$5" $(($6 / $2))
}

# inspect KIND N WHAT DCPKIT: of "$work/in"; sets bytes.
inspect() {
    local seconds cpu TIMEFORMAT='%U %S'
    { time "$measure" --warm "$work/in/.metadata" -- "$4" inspect "$work/in" >"$work/measured" 2>"$work/said"; } 2>"$work/cpu" || {
        cat "$work/said" >&2
        exit 1
    }
    read -r seconds bytes _ <"$work/measured"
    bytes=$((bytes - $(peak_of_one "$4")))
    cpu=$(awk '{ print $1 + $2 }' "$work/cpu")
    row "$1" "$2" "$3" "$seconds" "$cpu" "$bytes"
}

load='
import pickle, resource, sys, time
import torch.distributed.checkpoint
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before, start, cpu = peak(), time.perf_counter(), time.process_time()
with open(sys.argv[1], "rb") as f:
    metadata = pickle.load(f)
print(time.perf_counter() - start, time.process_time() - cpu, peak() - before)'

status=0
while [ $# -ge 2 ]; do
    rm -rf "$work/in"
    "$python" "$here/make_metadata.py" "$work/in" "$1" "$2"
    read -r seconds cpu bytes < <("$python" -c "$load" "$work/in/.metadata")
    row "$1" "$2" torch "$seconds" "$cpu" "$bytes"
    [ -z "$previous" ] || inspect "$1" "$2" previous "$previous"
    inspect "$1" "$2" dcpkit "$DCPKIT"
    if [ "$2" -ge 100000 ] && [ "$bytes" -gt $((300 * $2)) ]; then
        echo "more than 300 B an item" >&2
        status=1
    fi
    shift 2
done
exit $status
