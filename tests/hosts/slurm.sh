#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# slurm.sh - Slurm on three hosts (hosts.bash): ranks started by srun, and tools/sbatch_*.sh as jobs: done, by an unpacked
# release and in an image, stopped before their time limit and continued, with settings that cannot work.
#
# Usage: slurm.sh BUILD     BUILD: the build folder, with dcpkit, samples/ and tests/bench/make_checkpoint
# Needs root, ip, nsenter, unshare, mpirun, cmake, jq, pgrep, slurmctld, slurmd, munged (tools/deps.sh hosts; none of them is
# started as a service). One minute and 3 GB in $DCPK_HOSTS_DIR (default /var/tmp).
# Exit 77: something is missing; 1: a check failed.
set -euo pipefail
[ $# -eq 1 ] || { sed -n '6,9s/^# \{0,1\}//p' "$0" >&2 && exit 2; }
build=$(realpath "$1")
tools=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../tools")
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/hosts.bash"
need ip nsenter unshare mpirun cmake jq pgrep slurmctld slurmd srun munged
"$build/dcpkit" --version | grep -q '^  mpi ' || { echo "skipped: no plug-in for MPI" && exit 77; }
WORK=$(mktemp -d "${DCPK_HOSTS_DIR:-/var/tmp}/dcpk_hosts.XXXXXX")
trap 'kill "$(cat "$WORK/munged.pid")" 2>/dev/null || true; hosts_down; rm -rf "$WORK"' EXIT
cd "$WORK"
export SLURM_CONF=$WORK/slurm.conf

start_slurm() {
    local i
    chmod 755 "$WORK"
    mkdir state
    (umask 077 && head -c 1024 /dev/urandom >munge.key)
    munged --force --key-file="$WORK/munge.key" --socket="$WORK/munged" --pid-file="$WORK/munged.pid" \
        --log-file="$WORK/munged.log" --seed-file="$WORK/munged.seed" 2>/dev/null
    # slurmd asks for a control group's folders also where nothing uses them
    printf 'CgroupPlugin=cgroup/v1\nCgroupMountpoint=/tmp/cgroup\nCgroupAutomount=no\n' >cgroup.conf
    cat >slurm.conf <<CONF
ClusterName=dcpk
SlurmctldHost=${HOST}a
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$WORK/munged
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
StateSaveLocation=$WORK/state
SlurmdSpoolDir=/tmp/slurmd
SlurmctldPidFile=/tmp/slurmctld.pid
SlurmdPidFile=/tmp/slurmd.pid
SlurmctldLogFile=$WORK/slurmctld.log
SlurmdLogFile=$WORK/slurmd.%h.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
NodeName=${HOST}a,${HOST}b,${HOST}c CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
CONF
    on 0 slurmctld -f "$SLURM_CONF"
    for ((i = 0; i < N_HOSTS; i++)); do
        on "$i" mkdir -p /tmp/cgroup/freezer /tmp/cgroup/cpuset /tmp/cgroup/memory
        on "$i" slurmd -f "$SLURM_CONF"
    done
    for ((i = 0; i < 60; i++)); do
        [[ $(on 0 sinfo -h -o '%D %T') != "$N_HOSTS idle" ]] || return 0
        sleep 0.5
    done
    echo "skipped: Slurm does not start here: $(tail -n 1 slurmd.*.log)"
    exit 77
}

# steps ARGUMENT... : srun in $WORK, by three tasks on three hosts.
steps() {
    on 0 srun --chdir="$WORK" -N3 -n3 "$@"
}

# job SCRIPT NAME SETTING=... : the script as a job of three tasks, without waiting; NAME.out gets what it prints.
job() {
    local script=$1 name=$2
    shift 2
    on 0 env --chdir="$WORK" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 DCPKIT="$WORK/dcpkit" "$@" sbatch --parsable \
        --nodes=3 --ntasks-per-node=1 --cpus-per-task=1 --mem=1G --output="$WORK/$name.out" "$tools/$script"
}
conversion() {
    job sbatch_checkpoint_convert.sh "$1" IN="$WORK/big" OUT="$WORK/$1" OPTIONS="--quiet --target-dp 8" "${@:2}"
}
training() {
    job sbatch_train.sh "$1" CONFIG="$WORK/train.json" RUN="$WORK/$1" INTERVAL=2 "${@:2}"
}

# ends ID: wait for the job's end; its exit code.
ends() {
    local i state
    [ -n "$1" ] || { echo 99 && return; } # it was not taken
    for ((i = 0; i < 400; i++)); do
        state=$(on 0 scontrol show job "$1")
        [[ $state =~ JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT) ]] && break
        sleep 0.5
    done
    [[ $state =~ \ ExitCode=([0-9]+): ]] && echo "${BASH_REMATCH[1]}"
}

hosts_up
cp "$build/dcpkit" "$build/libdcpkit-mpi.so" .
cmake --install "$build" --prefix "$WORK/release" >/dev/null # the tree of the archive that tools/release.sh makes
jq '.train.global_batch_size = 12' "$tools/train_tiny.json" >train.json
"$build/tests/bench/make_checkpoint" --like "$build/samples/torch_dist_c_dense_tp2pp2/iter_0000004" --gb 0.5 big >/dev/null
./dcpkit convert --quiet --to fsdp_dtensor --target-dp 8 big one >/dev/null
start_slurm

check "srun on three hosts" test "$(steps hostname | sort | tr '\n' ' ')" = "${HOST}a ${HOST}b ${HOST}c "
check "srun --mpi=pmix" steps --mpi=pmix ./dcpkit convert --quiet --to fsdp_dtensor --target-dp 8 big three
check "as by one process" diff -r one three
check "verify" steps --mpi=pmix ./dcpkit verify --against big three
code=0
steps --mpi=none ./dcpkit verify three >said 2>&1 || code=$?
check "srun without MPI is told so" test "$code" -eq 2 -a "$(grep -c 'srun started several processes without MPI' said)" -gt 0

check "a job by srun" test "$(ends "$(conversion by_srun)")" -eq 0
check "as by one process" diff -r one by_srun
check "a job by mpirun" test "$(ends "$(conversion by_mpirun LAUNCH=mpirun)")" -eq 0
check "as by one process" diff -r one by_mpirun
check "no such --mpi" test "$(ends "$(conversion none MPI=nothing)")" -eq 2 -a "$(grep -c 'srun has no --mpi=nothing' none.out)" -eq 1
check "no such program" test "$(ends "$(conversion none DCPKIT=nothing)")" -eq 2 -a "$(grep -c "no program 'nothing'" none.out)" -eq 1

# What a step of the next job needs is taken on each host.
for ((i = 0; i < N_HOSTS; i++)); do on "$i" bash -c 'touch /tmp/slurmd/stepd.slurm.pmix.{1..40}.0'; done
check "no step starts" test "$(ends "$(conversion none)")" -eq 4 -a "$(grep -c "'$WORK/none' is not complete" none.out)" -eq 1
check "nor one of a training" test "$(ends "$(training none)")" -eq 4 -a "$(grep -c 'nothing was started' none.out)" -eq 1
for ((i = 0; i < N_HOSTS; i++)); do on "$i" find /tmp/slurmd -name 'stepd.slurm.pmix.*' -delete; done

check "a job by an unpacked release" test "$(ends "$(conversion by_release DCPKIT="$WORK/release")")" -eq 0
check "as by one process" diff -r one by_release
./dcpkit train --config train.json --exit-at 4 --log trained.jsonl >/dev/null
check "training by it" test "$(ends "$(training by_tasks DCPKIT="$WORK/release" OPTIONS="--exit-at 2")")" -eq 0
check "continued" test "$(ends "$(training by_tasks DCPKIT="$WORK/release" OPTIONS="--exit-at 4")")" -eq 0
check "as by one process" ./dcpkit losscmp --all trained.jsonl by_tasks.jsonl
# No image is made here. A program that takes Apptainer's arguments shows that they are in order.
mkdir bin
cat >bin/apptainer <<'APPTAINER'
#!/bin/bash
[ "$1" = exec ] && shift
[ "$1" != --nv ] || shift
[ "$1" = --bind ] && [ -d "${2%,*}" ] && [ -d "${2#*,}" ] && [ "${3##*/}" = dcpkit.sif ] && [ "$4" = dcpkit ] || exit 255
exec "${3%/*}/release/bin/dcpkit" "${@:5}"
APPTAINER
chmod +x bin/apptainer
touch dcpkit.sif
check "a job in an image" test "$(ends "$(conversion by_image PATH="$WORK/bin:$PATH" DCPKIT_IMAGE="$WORK/dcpkit.sif")")" -eq 0
check "as by one process" diff -r one by_image
check "no such image" test "$(ends "$(conversion none DCPKIT_IMAGE=nothing)")" -eq 2 -a "$(grep -c "no 'nothing'" none.out)" -eq 1

# Slurm's signal before a time limit (--signal), while the ranks write and after some of it is in the journal. A part that
# is done goes there once five seconds are over: the ranks stand still that long (SIGSTOP), go on for 20 ms at a time until
# the journal has a record, and stand still until the signal has reached them. So a fast machine cannot end first.
ranks() {
    pgrep -f "^$WORK/dcpkit convert .*/cut\$"
}
has_record() {
    [ "$(stat -c %s cut/iter_0000004.dcpkit-partial/.dcpkit-journal)" -gt 44 ] # its header
}
are_told() {
    local pid
    for pid in $(ranks); do # bit 1 of the signals that wait: SIGINT
        [[ $(grep -E '^(SigPnd|ShdPnd)' "/proc/$pid/status") =~ [2367abef]($'\n'|$) ]] || return 1
    done
}
# until_it SECONDS COMMAND... : try it every 20 ms.
until_it() {
    local n=$(($1 * 50))
    shift
    for (( ; n > 0; n--)); do
        ! "$@" >/dev/null 2>&1 || return 0
        sleep 0.02
    done
    return 1
}
stopped_in_its_midst() {
    local i
    rm -rf cut cut.out
    id=$(conversion cut OPTIONS="--verbose --threads 1 --target-dp 8") # its report says what was resumed
    until_it 60 test -e cut/iter_0000004.dcpkit-partial/__0_0.distcp || return 1
    ranks | xargs -r kill -STOP
    sleep 5
    for ((i = 0; i < 100; i++)); do
        ! has_record 2>/dev/null || break
        ranks | xargs -r kill -CONT
        sleep 0.02
        ranks | xargs -r kill -STOP
    done
    on 0 scancel --signal=USR1 --batch "$id"
    until_it 30 are_told || true
    ranks | xargs -r kill -CONT
    until_it 30 grep -q -e 'the job goes on later' -e '^verified' cut.out || true
    grep -q 'finished parts are kept' cut.out
}
for ((try = 1; try <= 3; try++)); do
    ! stopped_in_its_midst || break
    on 0 scancel "$id" 2>/dev/null || true
    sleep 2
done
check "stopped in order" test "$(grep -c 'finished parts are kept' cut.out)" -eq 1 -a -e cut/iter_0000004.dcpkit-partial
check "and queued again" test "$(grep -c 'the job goes on later' cut.out)" -eq 1
# Slurm would wait two minutes before it starts a job again. It need not, once the first turn is gone from all hosts.
is_gone() {
    local i
    [[ $(on 0 scontrol show job "$id") == *JobState=PENDING* ]] || return 1
    for ((i = 0; i < N_HOSTS; i++)); do
        # shellcheck disable=SC2016 # for the inner shell
        on "$i" sh -c '! ls /tmp/slurmd/*."$1".*' - "$id" || return 1
    done
}
until_it 100 is_gone || true
on 0 scontrol update "JobId=$id" StartTime=now
second_turn() {
    { [ "$(ends "$id")" -eq 0 ] && grep '^ *resumed ' cut.out; } || { cat cut.out && return 1; }
}
check "its second turn" second_turn
check "as by one process" diff -r one cut
[ "$n_failed" -eq 0 ] || exit 1
