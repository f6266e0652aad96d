#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#SBATCH --job-name=dcpkit-train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=4
#SBATCH --mem=16G
#SBATCH --time=01:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#
# sbatch_train.sh - train on several nodes over a shared file system, from where an earlier job of the same folder ended.
#
#   sbatch --account=NAME --partition=NAME tools/sbatch_train.sh
#   CONFIG=model.yaml RUN=/ckpt/run OPTIONS="--use-megatron-fsdp --ckpt-format fsdp_dtensor" sbatch --nodes=8 tools/sbatch_train.sh
#
# Edit the lines above and the settings below, or give the settings in the environment. Nothing has to be installed: DCPKIT may
# name the folder of an unpacked release, DCPKIT_IMAGE an image of tools/packaging/dcpkit.def. A task is a rank; with --device cuda
# in OPTIONS each takes a GPU of its node (add --gpus-per-node). A job that is killed, preempted or submitted again resumes
# from the newest checkpoint in RUN, and RUN.jsonl goes on. Without Slurm the same file runs under mpirun:
# CONFIG=... RUN=... RANKS=4 tools/sbatch_train.sh. Exit codes are those of dcpkit; 2 also for a setting that cannot work here,
# 4 for a job of which nothing was started.
set -euo pipefail

# ---- settings ----
CONFIG=${CONFIG:-/path/to/model.yaml} # knobs as Megatron-Bridge has them: 'dcpkit train --help'
RUN=${RUN:-/path/to/checkpoints/run}  # where iterations are saved, on a file system that all nodes share
OPTIONS=${OPTIONS:-}                  # more knobs and options of 'dcpkit train', separated by spaces
INTERVAL=${INTERVAL:-100}             # iterations between two checkpoints
DCPKIT=${DCPKIT:-dcpkit}              # the program, or the folder of an unpacked release: the same path on all nodes
DCPKIT_IMAGE=${DCPKIT_IMAGE:-}        # in its place: an Apptainer image; APPTAINER_BIND names file systems of the data
MPI=${MPI:-pmix}                      # of srun: one that 'srun --mpi=list' names and the MPI of the build knows
RANKS=${RANKS:-2}                     # without Slurm: how many processes
# ------------------

fail() {
    echo "sbatch_train.sh: $*" >&2
    exit 2
}

[ ! -d "$DCPKIT" ] || DCPKIT=$DCPKIT/bin/dcpkit
dcpkit=("$DCPKIT")
# --nv: with the GPUs of the node, where it has any
[ -z "$DCPKIT_IMAGE" ] || dcpkit=(apptainer exec --nv --bind "$(dirname "$CONFIG"),$(dirname "$RUN")" "$DCPKIT_IMAGE" dcpkit)
[ -z "$DCPKIT_IMAGE" ] || [ -e "$DCPKIT_IMAGE" ] || fail "DCPKIT_IMAGE: there is no '$DCPKIT_IMAGE' on $(hostname)"
command -v "${dcpkit[0]}" >/dev/null ||
    fail "there is no program '${dcpkit[0]}' on $(hostname); set DCPKIT to a program or a release, or DCPKIT_IMAGE"
[ "$(grep -c '^  mpi ' <("${dcpkit[@]}" --version))" -gt 0 ] ||
    fail "'${dcpkit[*]}' finds no MPI plug-in, and would train in one process"
[ -e "$CONFIG" ] || fail "CONFIG: there is no '$CONFIG' on $(hostname)"
launch=(mpirun -n "$RANKS" --bind-to none)
# srun takes the cores of a task from its own command line
[ -z "${SLURM_JOB_ID:-}" ] || launch=(srun --mpi="$MPI" --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --kill-on-bad-exit=1)
command -v "${launch[0]}" >/dev/null || fail "there is no ${launch[0]} on $(hostname)"
read -r -a options <<<"$OPTIONS"
[ ! -e "$RUN/latest_checkpointed_iteration.txt" ] || options+=(--load "$RUN")
command=("${dcpkit[@]}" train --config "$CONFIG" "${options[@]+"${options[@]}"}" --save "$RUN" --save-interval "$INTERVAL" --log "$RUN.jsonl")
echo "${launch[*]} ${command[*]}"
[ "${launch[0]}" = srun ] || exec "${launch[@]}" "${command[@]}"
# srun of Slurm 22.05 ends with 0 where it can start the step on no node. A run that starts adds a line to its log.
before=$(stat -c %s "$RUN.jsonl" 2>/dev/null || echo 0)
"${launch[@]}" "${command[@]}"
[ "$(stat -c %s "$RUN.jsonl" 2>/dev/null || echo 0)" -gt "$before" ] || {
    echo "sbatch_train.sh: srun ended with 0, and '$RUN.jsonl' has no new line: nothing was started" >&2
    exit 4
}
