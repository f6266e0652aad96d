#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# delta.sh - time and size of a delta on disk, and of applying it, next to other tools, in one run.
#
#   DCPKIT=build/dcpkit tests/bench/delta.sh [--gb N] [--piece BYTES] [--reps N] [--work DIR] [SHARE]...
#
# Makes a synthetic torch_dist checkpoint of N GB (default 1), and by turns a second one in which SHARE (0.001 0.01 0.1 1 by
# default) of all pieces of BYTES (default 65536) differ: of each four bytes of a piece the lower two are random, as those
# of float32 weights after a step. Times and CPU times are the least of N runs (default 3), warm, with what is written synced: dcpkit's
# delta and apply, `cp -r` of the second one, and where they are installed `zstd -1 --patch-from` and
# `xdelta3 -1 -S none` of each file. The results are compared with `diff -r`. Needs five times N
# on DIR.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
DCPKIT=$(realpath "${DCPKIT:-$here/../../build/dcpkit}")
build=$(dirname "$DCPKIT")
gb=1 piece=65536 reps=3 parent=${TMPDIR:-/tmp}
while [ $# -gt 0 ]; do
    case $1 in
    --gb) gb=$2; shift 2 ;;
    --piece) piece=$2; shift 2 ;;
    --reps) reps=$2; shift 2 ;;
    --work) parent=$2; shift 2 ;;
    -*) sed -n '5s/^# *//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    *) break ;;
    esac
done
[ $# -gt 0 ] || set -- 0.001 0.01 0.1 1
work=$(mktemp -d "$parent/dcpkit_bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
"$build/tests/bench/make_checkpoint" --like "$build/samples/torch_dist_c_dense_tp2pp2/iter_0000004" --gb "$gb" "$work/in"
base=$work/in/iter_0000004 next=$work/next
echo "$(nproc) CPUs, load $(cut -d' ' -f1-3 /proc/loadavg), folder on $(stat -f -c %T "$work")"
printf '%-6s %-22s %8s %8s %12s %7s\n' share what seconds CPU bytes peak

# change FOLDER SHARE PIECE: seeded; the last bytes of each file, its index, stay.
change='
import os, random, sys
folder, share, piece = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
draw = random.Random(7)
for name in sorted(os.listdir(folder)):
    path = os.path.join(folder, name)
    if not name.endswith(".distcp"):
        continue
    with open(path, "r+b") as f:
        for at in range(1000, os.path.getsize(path) - piece, piece): # not at the borders of blocks
            if draw.random() < share:
                f.seek(at)
                bytes_ = bytearray(f.read(piece))
                noise = draw.randbytes(piece)
                bytes_[0::4], bytes_[1::4] = noise[0::4], noise[1::4]
                f.seek(at)
                f.write(bytes_)
'

# timed SHARE WHAT OUT COMMAND...: the best of all runs; OUT may be made anew each time.
timed() {
    local share=$1 what=$2 out=$3 seconds peak cached cpu times='' cpus=''
    shift 3
    for ((i = 0; i < reps; i++)); do
        rm -rf "$out"
        sync
        read -r seconds peak cached cpu < <("$build/tests/bench/measure" --warm "$base" --warm "$next" --sync "$out" -- "$@" 2>"$work/said") ||
            { cat "$work/said" >&2; exit 1; }
        : "$cached"
        times+="$seconds"$'\n' cpus+="$cpu"$'\n'
    done
    printf '%-6s %-22s %8.2f %8.2f %12d %6dM\n' "$share" "$what" "$(sort -g <<<"${times%?}" | head -n 1)" \
        "$(sort -g <<<"${cpus%?}" | head -n 1)" "$(du -sb "$out" | cut -f1)" $((peak >> 20))
}

# each TOOL: a command for each file of the checkpoint; $b, $n, $d: in BASE, in NEW, in the delta.
each() {
    echo "mkdir -p '$2'; for n in '$next'/* '$next'/.metadata; do f=\${n##*/}; b='$base'/\$f d='$work/peer'/\$f o='$2'/\$f; $1 || exit 1; done"
}

for share in "$@"; do
    rm -rf "$next"
    cp -r "$base" "$next"
    python3 -c "$change" "$next" "$share" "$piece"
    timed "$share" 'cp -r' "$work/copy" cp -r --reflink=never "$next" "$work/copy"
    timed "$share" 'dcpkit delta' "$work/delta" "$DCPKIT" delta --quiet "$base" "$next" "$work/delta"
    timed "$share" 'dcpkit apply' "$work/out" "$DCPKIT" apply --quiet "$base" "$work/delta" "$work/out"
    diff -r "$next" "$work/out"
    # shellcheck disable=SC2016 # the inner shell expands them
    if command -v zstd >/dev/null; then
        timed "$share" 'zstd -1 --patch-from' "$work/peer" bash -c "$(each 'zstd -q -1 --long=31 --patch-from="$b" "$n" -o "$d"' "$work/peer")"
        timed "$share" 'zstd -d --patch-from' "$work/out" bash -c "$(each 'zstd -q -d --long=31 --memory=2048MB --patch-from="$b" "$d" -o "$o"' "$work/out")"
        diff -r "$next" "$work/out"
    fi
    # shellcheck disable=SC2016
    if command -v xdelta3 >/dev/null && awk -v s="$share" 'BEGIN { exit s > 0.1 }'; then # with all changed it takes minutes
        timed "$share" 'xdelta3 -1 -S none' "$work/peer" bash -c "$(each 'xdelta3 -1 -S none -B 512000000 -e -s "$b" "$n" "$d"' "$work/peer")"
        timed "$share" 'xdelta3 -d' "$work/out" bash -c "$(each 'xdelta3 -B 512000000 -d -s "$b" "$d" "$o"' "$work/out")"
        diff -r "$next" "$work/out"
    fi
done
