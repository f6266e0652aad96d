#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# identical.sh - two builds write the same bytes and say the same, whatever is converted to whatever.
#
#   DCPKIT=build/dcpkit tests/bench/identical.sh --vs DCPKIT [--only REGEX] [--work DIR] [FOLDER...]
#
# Every checkpoint below FOLDER (default: the samples of the build) by every row below, by both builds: the files made,
# their bytes, the report, what is printed and the exit code are compared; refusals, too. Left out are times, speeds
# and how much was read (of compressed chunks that depends on the threads). --only: rows "SOURCE OPTIONS" that match.
# Prints each row that differs, and how many did not; exit 1 when one differs. A change of behaviour shows here: name in
# its commit the rows that it changes.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
DCPKIT=$(realpath "${DCPKIT:-$here/../../build/dcpkit}")
previous='' only=. parent=${TMPDIR:-/tmp} folders=()
while [ $# -gt 0 ]; do
    case $1 in
    --vs) previous=$(realpath "$2"); shift 2 ;;
    --only) only=$2; shift 2 ;;
    --work) parent=$2; shift 2 ;;
    -*) previous=''; break ;;
    *) folders+=("$(realpath "$1")"); shift ;;
    esac
done
[ -n "$previous" ] || { sed -n '5s/^# *//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
[ ${#folders[@]} -gt 0 ] || folders=("$(dirname "$DCPKIT")/samples")
work=$(mktemp -d "$parent/identical.XXXXXX")
trap 'rm -rf "$work"' EXIT

# A command each; IN and OUT stand for the checkpoint and a new folder.
rows() {
    local options
    while read -r options; do
        echo "convert --report report.json --to $options IN OUT"
    done <<'END'
fsdp_dtensor
fsdp_dtensor --weights-only
fsdp_dtensor --target-impl te
fsdp_dtensor --target-generation V2
fsdp_dtensor --target-dp 2
fsdp_dtensor --target-dp 4,tp=2,bucket=1000
fsdp_dtensor --target-dp 4,ep=2,hsdp=2
fsdp_dtensor --like-megatron-inspector --swiglu
torch_dist
torch_dist --weights-only
torch_dist --target-generation C
torch_dist --target-mesh tp=2,pp=2
torch_dist --target-mesh tp=2,ep=2,dp=2 --target-generation C
torch_dist --make-vocab-size-divisible-by 96 --target-mesh tp=4
zarr
zarr --target-mesh tp=2,pp=2,vpp=2
END
    echo "modify-state-dict --op remove\ ^optimizer IN OUT"
    echo "modify-state-dict --op rename\ weight\$\ w --op cast\ norm\ float16 IN OUT"
    echo "inspect --chunks --json IN"
    echo "inspect --stats IN"
    echo "hash IN"
    echo "verify IN"
    echo "check --json IN"
    echo "compare-two-checkpoint --strict IN IN"
    echo "print-torch-dcp-in-json --dry-run IN"
}

checkpoints() {
    find -L "${folders[@]}" \( -name .metadata -o -name metadata.json \) -printf '%h\n' | sort -u
}

# run BUILD FOLDER COMMAND: in a new FOLDER; everything that it makes and says lies there.
run() {
    local words code=0
    rm -rf "$2"
    mkdir "$2"
    eval "words=($3)"
    (cd "$2" && "$1" "${words[@]}" >said 2>&1) || code=$?
    echo "exit $code" >>"$2/said"
    sed -i -E 's/^  time .*/  time/; s/[0-9.]+ GB\/s//; s/, [0-9.]+ [KMGT]?i?B in [0-9.e-]+ s$//' "$2/said"
    [ ! -f "$2/report.json" ] || sed -i -E '/"(seconds|read_bytes)":/d' "$2/report.json"
}

n=0 n_refused=0 n_differ=0
while read -r checkpoint; do
    while read -r row; do
        grep -qE -- "$only" <<<"${checkpoint##*/samples/} $row" || continue
        command=${row//IN/$(printf %q "$checkpoint")}
        command=${command//OUT/out}
        run "$previous" "$work/run" "$command"
        rm -rf "$work/before"
        mv "$work/run" "$work/before"
        run "$DCPKIT" "$work/run" "$command"
        n=$((n + 1))
        grep -q '^exit [2-4]' "$work/run/said" && n_refused=$((n_refused + 1))
        if ! diff -r "$work/before" "$work/run" >"$work/diff" 2>&1; then
            n_differ=$((n_differ + 1))
            echo "DIFFERS: $row: $checkpoint"
            sed -n '1,6s/^/    /p' "$work/diff"
        fi
    done < <(rows)
done < <(checkpoints)
echo "$n runs of each build, $n_refused of them refused, $n_differ differ"
[ "$n" -gt 0 ] && [ "$n_differ" -eq 0 ]
