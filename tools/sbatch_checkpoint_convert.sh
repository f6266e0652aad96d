#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#SBATCH --job-name=dcpkit-convert
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#
# sbatch_checkpoint_convert.sh - convert a checkpoint on several nodes over a shared file system.
#
#   sbatch --account=NAME --partition=NAME tools/sbatch_checkpoint_convert.sh
#   IN=/ckpt/run OUT=/ckpt/fsdp sbatch --nodes=8 tools/sbatch_checkpoint_convert.sh
#
# Edit the lines above and the settings below, or give the settings in the environment. No GPU is needed. A process uses the
# cores it is given, at most 16; more than one a node only pays where the file system keeps up. A job that is killed, requeued
# or submitted again goes on where it was (--resume).
# Without Slurm the same file runs under mpirun: IN=... OUT=... RANKS=4 tools/sbatch_checkpoint_convert.sh
set -euo pipefail

# ---- settings ----
IN=${IN:-/path/to/checkpoints/run}             # run folder, or an iter_NNNNNNN folder in it; never touched
OUT=${OUT:-/path/to/checkpoints/run_fsdp}      # on a file system that all nodes share
FORMAT=${FORMAT:-fsdp_dtensor}                 # fsdp_dtensor, torch_dist, zarr
OPTIONS=${OPTIONS:-}                           # more options of 'dcpkit convert', separated by spaces
DCPKIT=${DCPKIT:-dcpkit}                       # the program, built where MPI is installed, at the same path on all nodes
MPI=${MPI:-pmix}                               # of srun: one that 'srun --mpi=list' names and the MPI of the build knows
RANKS=${RANKS:-2}                              # without Slurm: how many processes
# ------------------

read -r -a options <<<"$OPTIONS"
command=("$DCPKIT" convert --to "$FORMAT" --resume "${options[@]+"${options[@]}"}" "$IN" "$OUT")

if [ -n "${SLURM_JOB_ID:-}" ]; then
    # srun takes the cores of a task from its own command line
    launch=(srun --mpi="$MPI" --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --kill-on-bad-exit=1)
else
    # left alone, mpirun binds each process to one core
    launch=(mpirun -n "$RANKS" --bind-to none)
fi

echo "${launch[*]} ${command[*]}"
exec "${launch[@]}" "${command[@]}"
