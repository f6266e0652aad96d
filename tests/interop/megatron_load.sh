#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# megatron_load.sh - Megatron's own loaders, strict, on what `dcpkit convert --to fsdp_dtensor` writes.
#
# Usage: megatron_load.sh DCPKIT GOLDENS [--converted DIR] [--only REGEX]
#   DCPKIT         the binary; GOLDENS: folder of unpacked torch_dist goldens
#   --converted    take DIR/<golden>/ instead of converting (to try the harness)
#   --only         run the cases whose line matches
# Environment:
#   MEGATRON_TREES folder of Megatron-LM trees: core_v0.16.1 core_v0.18.2 core_v0.19.0 HEAD
#   DCPK_LAB       folder with megatron_on_cpu/fsdp_sim.py and check_dcp_equal.py
#   PYTHON         python with torch 2.11, numpy, einops, packaging, pyyaml, click (0.16.1 also needs
#                  six, regex, pydantic, requests); default python3
#   DCPK_KEEP=1    keep the work folder
# Every case: strict load (0 missing keys), optimizer state taken with its step and lr, and what was
# loaded is saved again and equals our folder bit for bit. Exit 1 when one fails. About 10 s a case.
set -u

usage() { sed -n '5,16s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 2 ] || usage
dcpkit=$1 goldens=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
shift 2
converted='' only='.'
while [ $# -gt 0 ]; do
    case $1 in
    --converted) converted=$2; shift 2 ;;
    --only) only=$2; shift 2 ;;
    *) usage ;;
    esac
done
: "${MEGATRON_TREES:?set it to the folder of Megatron trees}"
: "${DCPK_LAB:?set it to the folder of fsdp_sim.py and check_dcp_equal.py}"
python=${PYTHON:-python3}
export MEGATRON_TREES OMP_NUM_THREADS=1

work=$(mktemp -d "${TMPDIR:-/tmp}/megatron_load.XXXXXX") || exit 4
[ "${DCPK_KEEP:-}" = 1 ] || trap 'rm -rf "$work"' EXIT
results=$work/results
: >"$results"

# The toy model of a golden, as its PROVENANCE and shapes tell it.
model_of() {
    case $1 in
    *moe*) echo "layers=4 groups=4 ffn=96 vocab=256 experts=4" ;;
    *_a_*) echo "layers=4 h=32 groups=2 ffn=96 vocab=4096" ;;
    *) echo "layers=4 groups=2 ffn=96 vocab=256" ;;
    esac
}

# state_of SOURCE: the step and lr that its optimizer has. The toy run starts at step 1 and lr 0.001, so the
# goldens' lr would not show whether it came back; a copy with other numbers does.
state_of() {
    case $1 in
    *other_state) echo "9 0.00042" ;;
    *) echo "4 0.001" ;;
    esac
}

# make_other_state GOLDEN OUT: the golden (generation B) with that step and lr in its parameter groups.
make_other_state() {
    cp -rL "$1" "$2" && chmod -R u+w "$2" && PYTHONDONTWRITEBYTECODE=1 "$python" -W ignore - "$here" "$2" <<'EOF'
import argparse, glob, sys
sys.path.insert(0, sys.argv[1])
import torch
from dcp_folder import STUB_PICKLE, is_plain
path, = glob.glob(sys.argv[2] + "/iter_*/common.pt")
common = torch.load(path, weights_only=False, pickle_module=STUB_PICKLE)
common["args"] = argparse.Namespace(**{k: v for k, v in vars(common["args"]).items() if is_plain(v)})
for group in common["optimizer"]["optimizer"]["param_groups"]:
    group.update(step=9.0, lr=0.00042)
torch.save(common, path)
EOF
}

# layouts_of SOURCE TREE: "name ranks options..." lines. The harness has no TP under 0.16.
layouts_of() {
    echo "te-adam_dp1 1 fusedlike=1"
    echo "adamw_dp1 1 fusedlike=0"
    case $1 in *other_state) return ;; esac
    echo "te-adam_dp2 2 fusedlike=1"
    case $1 in
    *moe*) echo "te-adam_ep2 2 fusedlike=1 ep=2" ;;
    *) [ "$2" = core_v0.16.1 ] || echo "te-adam_tp2 2 fusedlike=1 tp=2" ;;
    esac
}

# all_are VALUE LIST: is every item of the comma-separated LIST this VALUE?
all_are() {
    ! tr ',' '\n' <<<"$2" | grep -qvx " *$1"
}

# judge LOG ADAM STEP LR: what is wrong with the load, nothing when all is well. torch's AdamW keeps its step
# in tensors, which the re-saved folder shows.
judge() {
    local ok
    if ! grep -q '^REQUESTED [0-9]* MISSING 0$' "$1"; then
        echo "missing keys: $(grep -m1 -A3 MISSING "$1" | tr '\n' ' ')"
    elif grep -q LOADFAIL "$1"; then
        grep -m1 LOADFAIL "$1"
    elif ! ok=$(grep -m1 '^optimizer.load_state_dict ok' "$1"); then
        echo "the optimizer's state was not taken"
    elif ! grep -q '^resaved' "$1"; then
        echo "not saved again"
    elif ! [[ $ok =~ steps\ \[(.*)\]\ lr\ \[(.*)\] ]]; then
        echo "cannot read: $ok"
    elif ! all_are "$4" "${BASH_REMATCH[2]}"; then
        echo "lr $4 did not come back: $ok"
    elif [ "$2" = te-adam ] && ! all_are "$3" "${BASH_REMATCH[1]}"; then
        echo "step $3 did not come back: $ok"
    fi
}

# steps_came_back FOLDER STEP: every step tensor in it is STEP (torch's AdamW).
steps_came_back() {
    "$python" -W ignore - "$1" "$2" <<'EOF'
import sys, torch, torch.distributed.checkpoint as dcp
reader = dcp.FileSystemReader(sys.argv[1])
keys = [k for k in reader.read_metadata().state_dict_metadata if k.endswith(".step")]
state = {k: torch.zeros(()) for k in keys}
dcp.load(state, storage_reader=reader, no_dist=True)
sys.exit(0 if keys and all(v.item() == float(sys.argv[2]) for v in state.values()) else 1)
EOF
}

# run_case GOLDEN FOLDER TREE NAME RANKS OPTIONS...: one line and one row of results.
run_case() {
    local golden=$1 folder=$2 tree=$3 name=$4 ranks=$5 why='' n step lr
    shift 5
    read -r step lr < <(state_of "$golden")
    local log=$work/$golden.$tree.$name.log resaved=$work/resaved
    rm -rf "$resaved"
    # shellcheck disable=SC2046 # options are words
    timeout 300 "$python" -m torch.distributed.run --standalone --nproc-per-node "$ranks" \
        "$DCPK_LAB/megatron_on_cpu/fsdp_sim.py" "$tree" "$folder" mode=load norng=1 \
        $(model_of "$golden") "$@" "resave=$resaved" >"$log" 2>&1
    why=$(judge "$log" "${name%%_*}" "$step" "$lr")
    if [ -z "$why" ]; then
        "$python" "$DCPK_LAB/check_dcp_equal.py" "$folder" "$resaved" --subset >"$log.equal" 2>&1 ||
            why="re-saved differs: $(grep -A1 -m1 differ "$log.equal" | tr '\n' ' ')"
    fi
    if [ -z "$why" ] && [ "${name%%_*}" = adamw ] && ! steps_came_back "$resaved" "$step"; then
        why="step tensors of torch AdamW did not come back as $step"
    fi
    n=$(sed -n 's/^REQUESTED \([0-9]*\).*/\1/p' "$log" | head -n 1)
    if [ -z "$why" ]; then
        echo "PASS $golden $tree $name: $n keys requested, 0 missing; $(tail -n 1 "$log.equal")"
        echo "$golden|$name|$tree|pass" >>"$results"
    else
        echo "FAIL $golden $tree $name: $why"
        if [ "${DCPK_KEEP:-}" = 1 ]; then echo "     log: $log"; else grep -m3 Error "$log" | sed 's/^/     /'; fi
        echo "$golden|$name|$tree|FAIL" >>"$results"
    fi
}

trees=()
for tree in core_v0.16.1 core_v0.18.2 core_v0.19.0 HEAD; do
    if [ -d "$MEGATRON_TREES/$tree" ]; then
        trees+=("$tree")
    else
        echo "FAIL $tree: no such tree in $MEGATRON_TREES"
        echo "-|-|$tree|FAIL" >>"$results"
    fi
done

sources=(torch_dist_{a_dense_tp2pp2,b_dense_tp2pp2,c_dense_tp2pp2,c_moe_ep2pp2,c_dp_reshardable_tp2dp2})
for golden in "${sources[@]}" other_state; do
    source=$goldens/$golden
    if [ "$golden" = other_state ]; then
        source=$work/other_state
        make_other_state "$goldens/torch_dist_b_dense_tp2pp2" "$source" || exit 4
    fi
    out=${converted:+$converted/$golden}
    if [ -z "$out" ]; then
        out=$work/converted/$golden
        if ! "$dcpkit" convert --to fsdp_dtensor "$source" "$out" >"$work/convert.log" 2>&1; then
            echo "FAIL $golden: convert: $(tail -n 1 "$work/convert.log")"
            echo "$golden|convert|-|FAIL" >>"$results"
            continue
        fi
    fi
    iteration=$(printf 'iter_%07d' "$(cat "$out/latest_checkpointed_iteration.txt")")
    for tree in "${trees[@]}"; do
        while read -r name ranks options; do
            [[ "$golden $tree $name" =~ $only ]] || continue
            # shellcheck disable=SC2086 # options are words
            run_case "$golden" "$out/$iteration" "$tree" "$name" "$ranks" $options </dev/null
        done < <(layouts_of "$golden" "$tree")
    done
done

echo
awk -F'|' '
    { cell[$1 "|" $2 "|" $3] = $4; if (!seen[$1 "|" $2]++) row[++rows] = $1 "|" $2
      if (!tree[$3]++) col[++cols] = $3; if ($4 == "FAIL") failed++ }
    END {
        printf "%-28s %-12s", "source", "case"
        for (c = 1; c <= cols; c++) printf " %-13s", col[c]
        print ""
        for (r = 1; r <= rows; r++) {
            split(row[r], p, "|"); printf "%-28s %-12s", p[1], p[2]
            for (c = 1; c <= cols; c++) { v = cell[row[r] "|" col[c]]; printf " %-13s", v == "" ? "-" : v }
            print ""
        }
        printf "%d cases, %d failed\n", NR, failed + 0
        exit failed > 0 || NR == 0
    }' "$results"
