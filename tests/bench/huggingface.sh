#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# huggingface.sh - to a Hugging Face folder and back, next to writing and copying as many bytes, in one run.
#
#   DCPKIT=build/dcpkit [PYTHON=python3] tests/bench/huggingface.sh [--gb N] [--reps N] [--gpt-oss | --plan | --hub] [--work DIR]
#
# Makes a synthetic torch_dist checkpoint with optimizer of N GB (10^9 bytes; default 2; a seventh of it is weights) and by
# turns, the input in the page cache and the output synced within the time: writes as many zeros as the folder has bytes
# (write), converts (export), copies the folder (cp), converts it to torch_dist (import). PYTHON, one with torch and
# transformers: also peer_huggingface.py, by safetensors and by save_pretrained. Prints the best of the runs and medians of
# the ratios of neighbours. --gpt-oss: of N GB of layers of GPT-OSS, whose experts are stored transposed, gate and up by turns;
# without optimizer and peers. --hub: checkpoints of N GB of other trainers (make_hub.py, by $PYTHON under torchrun, 8 ranks),
# each next to writing as many zeros as its output has, and by 1 and 8 threads, whose outputs must be equal. --plan: only a DeepSeek-V3-shaped model (61 layers, 256 experts, MTP) of tiny tensors, planned.
# Exit 1 when a conversion passes 256 MiB (--hub: 300), or a plan 2 s of processor time.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
DCPKIT=$(realpath "${DCPKIT:-$here/../../build/dcpkit}")
build=$(dirname "$DCPKIT")
gb=2 reps=3 parent=${TMPDIR:-/tmp} shape=llama
while [ $# -gt 0 ]; do
    case $1 in
    --gb) gb=$2; shift 2 ;;
    --reps) reps=$2; shift 2 ;;
    --plan | --gpt-oss | --hub) shape=${1#--}; shift ;;
    --work) parent=$2; shift 2 ;;
    *) sed -n '5s/^# *//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    esac
done
work=$(mktemp -d "$parent/dcpkit_huggingface.XXXXXX")
trap 'rm -rf "$work"' EXIT
runs=$work/runs # what seconds peak_bytes cpu_seconds

# write WHAT IN FOLDER: as many zeros as FOLDER has bytes.
write() {
    one "$1" "$2" dd if=/dev/zero of="$work/out" bs=1M count="$(du -sb "$3" | cut -f1)" iflag=count_bytes status=none
}

# one WHAT IN COMMAND...: measure it once.
one() {
    local what=$1 in=$2 seconds peak cached cpu
    shift 2
    rm -rf "$work/out"
    sync
    read -r seconds peak cached cpu < <("$build/tests/bench/measure" --warm "$in" --sync "$work" -- "$@" 2>"$work/said") || {
        cat "$work/said" >&2
        exit 1
    }
    echo "$what $seconds $peak $cpu $cached" >>"$runs"
}

# table LIMIT PAIR...: best runs; of each PAIR "WHAT PEER" the median of their neighbours' ratios. Exit 1 when a WHAT passes LIMIT.
table() {
    awk -v limit="$1" -v pairs="${*:2}" '
        function median(list, n,    i, k, x) { # sorts list[1..n]
            for (i = 2; i <= n; i++) { x = list[i]; for (k = i - 1; k > 0 && list[k] > x; k--) list[k + 1] = list[k]; list[k + 1] = x }
            return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
        }
        { if (!($1 in best)) { order[++m] = $1; best[$1] = $2; cpu[$1] = $4 } if ($2 < best[$1]) best[$1] = $2; if ($4 < cpu[$1]) cpu[$1] = $4
          if ($3 > peak[$1]) peak[$1] = $3; time[$1, ++count[$1]] = $2 }
        END { printf "%-20s %8s %8s %10s\n", "", "best s", "CPU s", "peak MiB"
              for (i = 1; i <= m; i++) { k = order[i]; printf "%-20s %8.2f %8.2f %10.1f\n", k, best[k], cpu[k], peak[k] / 1048576 }
              for (n = split(pairs, pair); p < n; p += 2) {
                  what = pair[p + 1]; peer = pair[p + 2]
                  for (i = 1; i <= count[what]; i++) ratios[i] = time[what, i] / time[peer, i]
                  printf "%s / %s %.2f (median of pairs)\n", what, peer, median(ratios, count[what])
                  bad = bad || peak[what] > limit
              }
              exit bad }' "$runs"
}

if [ "$shape" = hub ]; then
    "${PYTHON:-python3}" -W ignore -m torch.distributed.run --standalone --nproc-per-node 8 "$here/make_hub.py" "$work/made" "$gb" 2>"$work/said" || {
        cat "$work/said" >&2
        exit 1
    }
    made=$work/made pairs=()
    "$DCPKIT" convert --quiet --to huggingface --hf-assets "$made/dense" "$made/dense_dcp" "$work/hf"
    # name, input, what it becomes
    rows=("dcp dense_dcp --to huggingface --hf-assets $made/dense" "stacked_experts experts_dcp --to huggingface --hf-assets $made/experts"
        "verl verl/global_step_1/actor --to huggingface" "lora adapter --merge-lora --base $work/hf" "fp8 ../hf --to huggingface --quantize fp8-block:deepseek"
        "to_dcp ../hf --to dcp --layout model." "to_titan ../hf --to dcp --layout titan" "to_torch_dist dense_dcp --to torch_dist --hf-config $made/dense/config.json")
    for row in "${rows[@]}"; do
        read -r name in flags <<<"$row"
        rm -rf "$work/eight"
        # shellcheck disable=SC2086 # words
        "$DCPKIT" convert --quiet --threads 8 $flags "$made/$in" "$work/eight"
        for ((rep = 0; rep < reps; rep++)); do
            write "write_$name" "$made/$in" "$work/eight"
            # shellcheck disable=SC2086
            one "$name" "$made/$in" "$DCPKIT" convert --quiet $flags "$made/$in" "$work/out"
        done
        rm -rf "$work/out"
        # shellcheck disable=SC2086
        "$DCPKIT" convert --quiet --threads 1 $flags "$made/$in" "$work/out"
        diff -r "$work/out" "$work/eight" || exit 1
        pairs+=("$name" "write_$name")
    done
    echo "$(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg), folder $work on $(stat -f -c %T "$work")"
    table 314572800 "${pairs[@]}"
    exit
fi

if [ "$shape" = plan ]; then
    python3 "$here/make_huggingface.py" "$work/hf"
    "$DCPKIT" convert --quiet --to torch_dist "$work/hf" "$work/run"
    for ((rep = 0; rep < reps; rep++)); do
        one plan_export "$work/run" "$DCPKIT" convert --dry-run --quiet --to huggingface "$work/run" "$work/out"
        one plan_import "$work/hf" "$DCPKIT" convert --dry-run --quiet --to torch_dist "$work/hf" "$work/out"
    done
    awk '{ if (!($1 in best) || $2 < best[$1]) best[$1] = $2; if (!($1 in cpu) || $4 < cpu[$1]) cpu[$1] = $4; if ($3 > peak[$1]) peak[$1] = $3 }
        END { for (k in best) { printf "%-12s best %.2f s, %.2f s of CPU, peak %.1f MiB\n", k, best[k], cpu[k], peak[k] / 1048576; bad = bad || cpu[k] > 2 } exit bad }' "$runs"
    exit
fi

if [ "$shape" = gpt-oss ]; then
    PYTHON=
    python3 "$here/make_huggingface.py" "$work/hf" "$gb"
    "$DCPKIT" convert --quiet --to torch_dist "$work/hf" "$work/in"
else
    "$build/tests/bench/make_checkpoint" --like "$build/samples/torch_dist_c_dense_tp2pp2/iter_0000004" --gb "$gb" "$work/in"
    "$DCPKIT" convert --quiet --to huggingface "$work/in" "$work/hf"
fi
bytes=$(du -sb "$work/hf" | cut -f1)
echo "$(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg), folder $work on $(stat -f -c %T "$work"); the model's folder has $bytes bytes"
for ((rep = 0; rep < reps; rep++)); do
    write write "$work/in" "$work/hf"
    one export "$work/in" "$DCPKIT" convert --quiet --to huggingface "$work/in" "$work/out"
    one cp "$work/hf" cp -r --reflink=never "$work/hf" "$work/out"
    one import "$work/hf" "$DCPKIT" convert --quiet --to torch_dist "$work/hf" "$work/out"
    [ -n "${PYTHON:-}" ] || continue
    for peer in safetensors save_pretrained; do
        one "$peer" "$work/in" env PYTHONPATH="$here/../interop" "$PYTHON" -W ignore "$here/peer_huggingface.py" "$peer" \
            "$work/in/iter_0000004" "$work/hf" "$work/out"
    done
done
table 268435456 export write import cp
