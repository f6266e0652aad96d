#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh - everything that needs GPUs: twins, sanitizer, ranks, figures, faults, Python.
#
#   tests/device/run.sh [--build FOLDER] [--logs FOLDER] [--gb N] [--megatron FOLDER] [STEP...]
#   tests/device/run.sh --pack FOLDER [--build FOLDER]
#
# Builds in FOLDER (default: build) and runs each STEP (default: all; a name or its beginning: "bench"), with a log of its own in the
# folder of --logs (default: device-logs); what is loaded has --gb (12); of a Megatron-LM the copy service is measured, too. Prints
# what each measured, then a table of all. A step that needs more GPUs than there are, or a program that was not built, is skipped.
# Exit 1 when a step fails, 77 where there is no GPU.
# --pack puts programs, libraries, Python files and this script into FOLDER: FOLDER/run.sh runs them on a machine without a
# compiler. MPI, Python with torch, NCCL and compute-sanitizer are that machine's.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$here/../../build logs=device-logs gigabytes=12 pack='' steps=() peers_options=(--device cuda)
while [ "$#" -gt 0 ]; do
    case $1 in
    --build) build=$2 ;;
    --logs) logs=$2 ;;
    --gb) gigabytes=$2 ;;
    --megatron) peers_options+=(--megatron "$2") ;;
    --pack) pack=$2 ;;
    -*)
        sed -n '5,6s/^# *//p' "${BASH_SOURCE[0]}" >&2
        exit 2
        ;;
    *) steps+=("$1") && set -- one "$@" ;;
    esac
    shift 2
done

programs=(test_device test_ops test_ops_gradients test_ops_fast collective_processes layouts tiles plan_time load device_faults make_checkpoint dcpkit)
logs=$(realpath -m "$logs")
# What was packed lies beside this script; in the repository it is built first.
if [ -d "$here/bin" ]; then
    bin=$here/bin python=$here/python library=$here/lib/libdcpkit.so samples=$here/samples
    # of the libraries that were brought along, those that this machine lacks
    mkdir -p "$logs/lib"
    known=$(ldconfig -p)
    for file in "$here"/lib/*; do
        [[ $known == *$'\t'"${file##*/} "* ]] || ln -sf "$file" "$logs/lib/"
    done
    export LD_LIBRARY_PATH=$logs/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
    cmake -S "$here/../.." -B "$build" -G Ninja >/dev/null
    cmake --build "$build"
    bin=$build/device-bin python=$here/../../tools/python library=$build/libdcpkit.so samples=$build/samples
    mkdir -p "$bin"
    for program in "${programs[@]}"; do
        find "$build" "$build/tests" "$build/tests/bench" -maxdepth 1 -type f -name "$program" -exec cp -t "$bin" {} +
    done
fi
old_driver=$bin/old_driver
[ -d "$old_driver" ] || cp -r "$build/tests/old_driver" "$old_driver"
peers=$python/peers.py python_tests=$python
[ -e "$peers" ] || peers=$here/../bench/remap/peers.py python_tests=$here/../python

# The libraries too, but for those of C and of MPI, which the other machine has.
if [ -n "$pack" ]; then
    mkdir -p "$pack/lib" "$pack/samples"
    cp -r "$bin" "$pack/bin"
    cp -r "$python" "$pack/python"
    cp "$here"/{run,train}.sh "$pack/"
    cp "$peers" "$python_tests"/*.py "$pack/python/"
    cp -L "$library" "$build/libdcpkit-mpi.so" "$pack/lib/"
    cp -rL "$samples"/{torch_dist_[bc]_dense_tp2pp2,zarr_dense_tp2dp2} "$pack/samples/"
    find "$pack/bin" "$pack/lib" -type f -exec strip {} +
    for program in "$bin"/* "$pack"/lib/*; do
        [ -d "$program" ] || ldd "$program"
    done | awk '$2 == "=>" && $1 !~ /^lib(c|m|dl|rt|pthread|mpi|open-rte|open-pal|hwloc|event.*|udev)\.so/ { print $3 }' |
        sort -u | xargs cp -Lt "$pack/lib"
    exit
fi

gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | wc -l || true)
if [ "$gpus" -eq 0 ]; then
    echo "device/run.sh: there is no GPU here; skipped"
    exit 77
fi
mkdir -p "$logs"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_hwloc_base_binding_policy=none PYTHONUNBUFFERED=1
export PYTHONPATH=$python DCPKIT_LIBRARY=$library DCPKIT_SAMPLES=$samples NCCL_NVLS_ENABLE=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
table=$logs/table
: >"$table"

# ranks N COMMAND...; torch_ranks N SCRIPT...
ranks() {
    mpirun -n "$1" "${@:2}"
}
torch_ranks() {
    python3 -m torch.distributed.run --nproc-per-node "$1" "${@:2}"
}

# step NAME GPUS SECONDS COMMAND...: run it when it is wanted, has the GPUs, and its program is there.
step() {
    local name=$1 needs=$2 seconds=$3 status=0 begun=$EPOCHREALTIME result wanted=${#steps[@]} s
    shift 3
    for s in "${steps[@]}"; do
        [[ $name != "$s"* ]] || wanted=0
    done
    [ "$wanted" -eq 0 ] || return 0
    if [ "$gpus" -lt "$needs" ]; then
        result="skipped: needs $needs GPUs"
    elif ! there "$@"; then
        result="skipped: a program is not there"
    else
        # a group of its own: all of what a step has started ends with its time
        timeout --kill-after=5 "$seconds" bash -c '"$@"' step "$@" >"$logs/$name.log" 2>&1 || status=$?
        case $status in
        0) result=passed ;;
        77) result="skipped: $(tail -n 1 "$logs/$name.log")" ;;
        124 | 137) result="FAILED: more than $seconds s" ;;
        *) result="FAILED: exit $status" ;;
        esac
    fi
    printf '%-28s %6.1f s  %s\n' "$name" "$(awk -v a="$begun" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')" "$result" >>"$table"
    case $result in
    FAILED*) echo "== $name: $result" && tail -n 20 "$logs/$name.log" ;;
    passed) [[ $name != bench* && $name != fault* && $name != remap* ]] || { echo "== $name" && cat "$logs/$name.log"; } ;;
    esac
}

# there COMMAND...: are all of its words that lie in our folders files?
there() {
    local word
    for word in "$@"; do
        [[ $word != "$bin"/* && $word != "$python"/* ]] || [ -e "$word" ] || return 1
    done
    command -v "$1" >/dev/null
}

# fault TEXT COMMAND...: whatever its status, what it prints has TEXT and no WRONG.
fault() {
    local text=$1 printed
    shift
    printed=$("$@" 2>&1 | grep -E '^(rank|tiles|layouts|dcpkit)' || true)
    echo "$printed"
    [[ $printed == *"$text"* && $printed != *WRONG* ]]
}
export bin logs old_driver
export -f ranks torch_ranks fault

step twins 1 120 "$bin/test_device"
step twins-ops 1 120 "$bin/test_ops"
step twins-ops-gradients 1 300 "$bin/test_ops_gradients"
step twins-ops-fast 1 120 "$bin/test_ops_fast"
for n in 1 2; do
    step "collectives-$n" "$n" 60 ranks "$n" env DCPK_COLLECTIVES=nccl "$bin/collective_processes"
done
step train-fp32 1 60 "$here/train.sh" "$bin/dcpkit" fp32
step train-bf16 1 60 "$here/train.sh" "$bin/dcpkit" bf16
step train-cublas 1 60 "$here/train.sh" "$bin/dcpkit" cublas
step train-times-1 1 60 "$here/train.sh" "$bin/dcpkit" times
step train-times-2 2 120 "$here/train.sh" "$bin/dcpkit" times2
for name in a1 a3 a5-tp2 a5-pp2 a5-ep2 a5-cp2; do
    step "train-$name" 2 120 "$here/train.sh" "$bin/dcpkit" "$name"
done
step train-ub 2 240 "$here/train.sh" "$bin/dcpkit" ub
step sanitizer-train 1 120 "$here/train.sh" "$bin/dcpkit" step
step sanitizer-memcheck 1 300 compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 1 \
    "$bin/test_device"
step sanitizer-racecheck 1 300 compute-sanitizer --tool racecheck --error-exitcode 1 "$bin/test_device"

step bench-tiles 1 120 "$bin/tiles" cuda
step bench-plan_time 1 60 "$bin/plan_time"
for n in 2 4; do
    step "bench-layouts-$n-direct" "$n" 60 ranks "$n" "$bin/layouts" cuda 3584 direct
    step "bench-layouts-$n-checked" "$n" 60 ranks "$n" "$bin/layouts" cuda 3584 direct 1
    step "bench-layouts-$n-staged" "$n" 60 ranks "$n" "$bin/layouts" cuda 3584 staged
    step "bench-layouts-$n-staged-1024" "$n" 60 ranks "$n" "$bin/layouts" cuda 3584 staged 0 1024
    step "bench-layouts-$n-staged-2048" "$n" 60 ranks "$n" "$bin/layouts" cuda 3584 staged 0 2048
    step "bench-layouts-$n-staged-checked" "$n" 60 ranks "$n" "$bin/layouts" cuda 3584 staged 1
    step "bench-layouts-$n-changed" "$n" 90 ranks "$n" "$bin/layouts" cuda 3584 direct 0 0 256
    step "bench-layouts-$n-staged-changed" "$n" 90 ranks "$n" "$bin/layouts" cuda 3584 staged 0 0 256
    step "bench-peers-$n" "$n" 180 torch_ranks "$n" "$peers" "${peers_options[@]}"
done

# A checkpoint of TP2 PP2 with optimizer, in the page cache.
step make-checkpoint 1 200 "$bin/make_checkpoint" --like "$samples/torch_dist_b_dense_tp2pp2/iter_0000004" --gb "$gigabytes" \
    "$work/large"
for n in 1 2 4; do
    step "bench-load-$n" "$n" 120 ranks "$n" "$bin/load" cuda "$work/large"
done
for n in 2 4; do
    for way in direct nccl; do
        step "remap-$n-check-$way" "$n" 120 ranks "$n" "$bin/dcpkit" remap --device cuda --transport "$way" \
            --from "tp=$n" --to "fsdp=$n" --check "$samples/torch_dist_c_dense_tp2pp2"
    done
    for in in "$samples/torch_dist_b_dense_tp2pp2" "$work/large"; do
        step "remap-$n-$(basename "$in")" "$n" 120 ranks "$n" "$bin/dcpkit" remap --device cuda --from "tp=$n" --to "fsdp=$n" "$in"
    done
done

for path in direct staged; do
    step "fault-kill-$path" 2 60 fault 'rank 0: ' mpirun --enable-recovery -n 2 "$bin/device_faults" cuda kill "$path"
    step "fault-sleep-$path" 2 60 fault 'rank 1: ' mpirun --enable-recovery -n 2 "$bin/device_faults" cuda sleep "$path"
done
step fault-memory 2 60 fault 'rank 1: ' ranks 2 "$bin/device_faults" cuda memory staged
step fault-flip 2 60 fault 'has the fingerprint' ranks 2 "$bin/device_faults" cuda flip direct
step fault-refuse 2 60 fault "cannot map each other's memory" ranks 2 "$bin/device_faults" cuda refuse direct
# NCCL is there as a file that is not a library; the driver is one of CUDA 11.4
mkdir -p "$logs/no-nccl"
echo text >"$logs/no-nccl/libnccl.so.2"
step fault-no-nccl 2 60 fault 'NCCL is not there' env "LD_LIBRARY_PATH=$logs/no-nccl:${LD_LIBRARY_PATH:-}" \
    mpirun -n 2 "$bin/layouts" cuda 64 staged
step fault-old-driver 1 60 fault 'needed is 12.0' env "LD_LIBRARY_PATH=$old_driver:${LD_LIBRARY_PATH:-}" "$bin/tiles" cuda 1

step union 1 60 python3 -B -m unittest discover -s "$python_tests" -p test_meeting.py -k gpus
step python 1 120 python3 -B -m unittest discover -s "$python_tests"

cat "$table"
[ -z "$(grep FAILED "$table" || true)" ]
