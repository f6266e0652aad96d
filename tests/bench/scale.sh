#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scale.sh - what DeepSeek-V3 with its optimizer takes to plan: 9.4 TB in sparse files, of which only metadata exists.
#
#   DCPKIT=build/dcpkit PYTHON=python3 tests/bench/scale.sh [--work DIR] [--ranks 'N...'] [TP PP EP ETP]
#
# PYTHON: one with torch; PYTHONPATH: Megatron-LM, whose classes the sample's args have. Needs 6 GB of memory for torch and
# 0.5 GB of disk. Default: 1, 16 and 512 ranks, TP8 PP16 EP64 ETP8. Exit 1 when a plan takes more than 10 s of processor time
# or 1 GB, or when ranks would not write within 5 % of each other; 77 without torch.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
DCPKIT=$(realpath "${DCPKIT:-$here/../../build/dcpkit}")
build=$(dirname "$DCPKIT") python=${PYTHON:-python3} parent=${TMPDIR:-/tmp} ranks='1 16 512'
while [ $# -gt 0 ]; do
    case $1 in
    --work) parent=$2; shift 2 ;;
    --ranks) ranks=$2; shift 2 ;;
    [0-9]*) break ;;
    *) sed -n '5s/^# *//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    esac
done
"$python" -c 'import torch' 2>/dev/null || { echo "skipped: $python has no torch"; exit 77; }
work=$(mktemp -d "$parent/dcpkit_scale.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 "$here/make_huggingface.py" "$work/hf" >/dev/null
"$DCPKIT" convert --quiet --to torch_dist --no-mtp "$work/hf" "$work/small"
in=$work/iter_0000004
"$python" -W ignore "$here/make_deepseek.py" "$build/samples/v016_moe_ep2pp2/iter_0000004" "$work/small/release" "$in" "$@"
status=0

# take WHAT COMMAND...: measure it once; its output is in $work/out. A dry run fails in the end where 8 TB are not free.
take() {
    local what=$1 seconds peak cached cpu
    shift
    # shellcheck disable=SC2016 # the inner shell expands
    read -r seconds peak cached cpu < <("$build/tests/bench/measure" --warm "$in/.metadata" -- bash -c '"$@" >"$0" || true' "$work/out" "$@" 2>"$work/said")
    [ "$cached" = 1.00 ] || echo "$what: not all of .metadata was in the page cache"
    awk -v what="$what" -v s="$seconds" -v peak="$peak" -v cpu="$cpu" 'BEGIN {
        printf "%-30s %6.2f s, %5.2f s of CPU, peak %4.0f MiB\n", what, s, cpu, peak / 1048576
        exit cpu > 10 || peak > 1e9 }' || status=1
}

take inspect "$DCPKIT" inspect "$in"
take check "$DCPKIT" check "$in"
grep -E '^(structure|whole|cover|places|model|weights) ' "$work/out"
for to in fsdp_dtensor huggingface; do
    for n in $ranks; do
        take "convert --to $to, $n" "$DCPKIT" convert --dry-run --ranks "$n" --report "$work/report.json" --force --to "$to" "$in" "$work/plan/iter_0000004"
        grep -A 1 -E '^  (ranks|time) ' "$work/out"
        jq -e '.ranks | .most_written_bytes <= 1.05 * .least_written_bytes' "$work/report.json" >/dev/null || status=1
    done
done
exit $status
