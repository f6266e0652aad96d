#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# torchrun.sh - under torchrun rank 0 works and the others end; MPI's launchers, and DCPKIT_ALONE=1, have their way.
# (PyTorch's own torchrun: tests/interop/test_torchrun.py.)
sample torch_dist_c_dense_tp2pp2 in
torchrun=(env RANK=1 LOCAL_RANK=1 WORLD_SIZE=4 TORCHELASTIC_RUN_ID=none)

# aside LABEL CMD...: CMD ends with 0 and one line, and neither prints nor writes anything; else "works".
aside() {
    local label=$1 status=0
    shift
    rm -rf out
    "$@" >"$GOT/out" 2>"$GOT/err" || status=$?
    if [ "$status" -eq 0 ] && [ "$(wc -l <"$GOT/err")" -eq 1 ] && [ ! -s "$GOT/out" ] && [ ! -e out ] &&
        grep -q '^dcpkit: [a-z-]*: rank [0-9]* of [0-9]* under torchrun has nothing to do' "$GOT/err"; then
        echo "$label: aside"
    elif [ "$status" -eq 0 ] && [ -s "$GOT/out" ] && [ ! -s "$GOT/err" ]; then
        echo "$label: works"
    else
        echo "$label: exit $status: $(head -c 500 "$GOT/err")"
    fi
}

convert=("$DCPKIT" convert --to fsdp_dtensor in out)
for command in "convert --to fsdp_dtensor in out" "modify-state-dict --op keep_no in out" "hash in" "verify in" \
    "inspect in" "compare-two-checkpoint in in" "print-tensor in decoder.final_layernorm.weight" \
    "print-torch-dcp-in-json in" "convert --nonsense" "nonsense"; do
    read -ra words <<<"$command"
    aside "${words[*]:0:2}" "${torchrun[@]}" "$DCPKIT" "${words[@]}"
done
aside "rank 0" "${torchrun[@]}" RANK=0 LOCAL_RANK=0 "${convert[@]}"
aside "one process" "${torchrun[@]}" RANK=0 WORLD_SIZE=1 "${convert[@]}"
aside "rank past the end" "${torchrun[@]}" RANK=4 "${convert[@]}"
for name in RANK LOCAL_RANK WORLD_SIZE TORCHELASTIC_RUN_ID; do
    aside "without $name" "${torchrun[@]}" env -u "$name" "${convert[@]}"
done
aside "DCPKIT_ALONE" "${torchrun[@]}" DCPKIT_ALONE=1 "${convert[@]}"
aside "the version" "${torchrun[@]}" "$DCPKIT" --version
# srun of one torchrun a node: 2 of them with 8 processes each, or one.
aside "torchruns under srun" "${torchrun[@]}" WORLD_SIZE=16 SLURM_STEP_NUM_TASKS=2 PMI_SIZE=2 "${convert[@]}"
aside "rank 0 of them" "${torchrun[@]}" RANK=0 WORLD_SIZE=16 SLURM_STEP_NUM_TASKS=2 PMI_SIZE=2 "${convert[@]}"
aside "torchrun under srun -n 1" "${torchrun[@]}" SLURM_STEP_NUM_TASKS=1 "${convert[@]}"
# Exported for the training, while mpirun or srun starts us.
for mpi in OMPI_COMM_WORLD_SIZE=4 SLURM_STEP_NUM_TASKS=4 OMPI_COMM_WORLD_SIZE=2; do
    "${torchrun[@]}" "$mpi" "$DCPKIT" inspect in 2>&1 | grep -o 'started as one of [0-9] processes'
done
