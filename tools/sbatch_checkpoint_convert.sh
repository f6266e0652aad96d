#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#SBATCH --job-name=dcpkit-convert
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=8G
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@180
#SBATCH --requeue
#SBATCH --open-mode=append
#
# sbatch_checkpoint_convert.sh - convert a checkpoint on several nodes over a shared file system.
#
#   sbatch --account=NAME --partition=NAME tools/sbatch_checkpoint_convert.sh
#   IN=/ckpt/run OUT=/ckpt/fsdp sbatch --nodes=8 tools/sbatch_checkpoint_convert.sh
#
# Edit the lines above and the settings below, or give the settings in the environment. Nothing has to be installed: DCPKIT may
# name the folder of an unpacked release, DCPKIT_IMAGE an image of tools/packaging/dcpkit.def. No GPU is needed. A process uses the
# cores it is given, at most 16; more than one a node only pays where the file system keeps up. A job that is killed, preempted
# or submitted again goes on where it was (--resume); one that meets its time limit ends in order and queues itself again.
# Without Slurm the same file runs under mpirun: IN=... OUT=... RANKS=4 tools/sbatch_checkpoint_convert.sh
# Exit codes are those of dcpkit; 2 also for a setting that cannot work here.
set -euo pipefail

# ---- settings ----
IN=${IN:-/path/to/checkpoints/run}             # run folder, or an iter_NNNNNNN folder in it; never touched
OUT=${OUT:-/path/to/checkpoints/run_fsdp}      # on a file system that all nodes share
FORMAT=${FORMAT:-fsdp_dtensor}                 # fsdp_dtensor, torch_dist, zarr
OPTIONS=${OPTIONS:-}                           # more options of 'dcpkit convert', separated by spaces
DCPKIT=${DCPKIT:-dcpkit}                       # the program, or the folder of an unpacked release: the same path on all nodes
DCPKIT_IMAGE=${DCPKIT_IMAGE:-}                 # in its place: an Apptainer image; APPTAINER_BIND names file systems that IN links to
MODULES=${MODULES:-}                           # what 'module load' gets first: the MPI that dcpkit was built with
MPI=${MPI:-pmix}                               # of srun: one that 'srun --mpi=list' names and the MPI of the build knows
LAUNCH=${LAUNCH:-srun}                         # or mpirun, where no --mpi= of srun fits the MPI of the build
RANKS=${RANKS:-2}                              # without Slurm: how many processes
RESTARTS=${RESTARTS:-20}                       # how often the job may queue itself again
# ------------------

fail() {
    echo "sbatch_checkpoint_convert.sh: $*" >&2
    exit 2
}

load_modules() {
    local modules
    read -r -a modules <<<"$MODULES"
    set +eu # of which their scripts know nothing
    # shellcheck source=/dev/null
    type module >/dev/null 2>&1 || source /etc/profile
    module load "${modules[@]}" || fail "module load $MODULES has failed"
    set -eu
}

check() {
    [ -e "$IN" ] || fail "IN: there is no '$IN' on $(hostname)"
    [ -z "$DCPKIT_IMAGE" ] || [ -e "$DCPKIT_IMAGE" ] || fail "DCPKIT_IMAGE: there is no '$DCPKIT_IMAGE' on $(hostname)"
    command -v "${dcpkit[0]}" >/dev/null || fail "there is no program '${dcpkit[0]}' on $(hostname); set DCPKIT to a program or a release, or DCPKIT_IMAGE"
    "${dcpkit[@]}" --version >/dev/null || fail "'${dcpkit[*]}' does not start on $(hostname); MODULES may name what it lacks"
    [ "$(grep -c '^  mpi ' <("${dcpkit[@]}" --version))" -gt 0 ] ||
        fail "'${dcpkit[*]}' finds no MPI plug-in, and would work in one process (see '${dcpkit[*]} --version')"
    command -v "${launch[0]}" >/dev/null || fail "there is no ${launch[0]} on $(hostname); MODULES may name its module"
    [ "${launch[0]}" = mpirun ] || srun --mpi=list 2>&1 | grep -qwF -- "$MPI" ||
        fail "srun has no --mpi=$MPI: $(srun --mpi=list 2>&1 | tr -s '\n\t ' ' '); set MPI to one of these, or LAUNCH=mpirun"
}

# srun itself would kill them: its processes are signalled by way of Slurm.
interrupt() {
    is_told=yes
    if [ "${launch[0]}" = srun ]; then
        scancel --signal=INT "$SLURM_JOB_ID"
    else
        kill -INT "$child"
    fi
}

# Before its time is over the job is told (--signal): the processes end in order, and the rest is another turn's.
run_in_time() {
    local child code=0 is_told=no
    trap interrupt USR1
    "$@" &
    child=$!
    wait "$child" || code=$?
    if [ "$is_told" = yes ]; then # that wait was cut short
        code=0
        wait "$child" || code=$?
    fi
    [ "$is_told" = no ] || [ "$code" -eq 0 ] || {
        [ "${SLURM_RESTART_COUNT:-0}" -lt "$RESTARTS" ] || fail "restarted $RESTARTS times, and not done (RESTARTS)"
        echo "the time is nearly over: the job goes on later"
        scontrol requeue "$SLURM_JOB_ID"
    }
    [ "$code" -ne 0 ] || is_complete || {
        echo "sbatch_checkpoint_convert.sh: ${launch[0]} ended with 0, and '$OUT' is not complete" >&2
        code=4
    }
    return "$code"
}

# srun of Slurm 22.05 ends with 0 where it can start the step on no node.
is_complete() {
    [[ " $OPTIONS " == *" --dry-run "* ]] || { [ -e "$OUT" ] && ! compgen -G "$OUT/*.dcpkit-partial" >/dev/null; }
}

read -r -a options <<<"$OPTIONS"
[ ! -d "$DCPKIT" ] || DCPKIT=$DCPKIT/bin/dcpkit
dcpkit=("$DCPKIT")
[ -z "$DCPKIT_IMAGE" ] || dcpkit=(apptainer exec --bind "$(dirname "$IN"),$(dirname "$OUT")" "$DCPKIT_IMAGE" dcpkit)
command=("${dcpkit[@]}" convert --to "$FORMAT" --resume "${options[@]+"${options[@]}"}" "$IN" "$OUT")
if [ -n "${SLURM_JOB_ID:-}" ] && [ "$LAUNCH" = srun ]; then
    # srun takes the cores of a task from its own command line
    launch=(srun --mpi="$MPI" --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --kill-on-bad-exit=1)
elif [ -n "${SLURM_JOB_ID:-}" ]; then
    launch=(mpirun -n "${SLURM_NTASKS:-1}" --bind-to none)
else
    # left alone, mpirun binds each process to one core
    launch=(mpirun -n "$RANKS" --bind-to none)
fi
[ -z "$MODULES" ] || load_modules
check
echo "${launch[*]} ${command[*]}"
[ -n "${SLURM_JOB_ID:-}" ] || exec "${launch[@]}" "${command[@]}"
run_in_time "${launch[@]}" "${command[@]}"
