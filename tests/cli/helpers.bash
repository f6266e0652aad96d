# SPDX-License-Identifier: Apache-2.0
# helpers.bash - the functions that every case has; read by bash before the case (BASH_ENV).
# shellcheck shell=bash

# sample NAME [AS]: copy $SAMPLES/NAME into $TMP, to be damaged.
sample() {
    cp -RL --no-preserve=mode "$SAMPLES/$1" "$TMP/${2:-$(basename "$1")}"
}

# Every file and link in $TMP with its content, of a huge (sparse) one its times; an empty folder looks like nothing
# and is not listed.
snapshot() {
    (cd "$TMP" && find . \( -type l -printf '%p -> %l\n' \) -o \( -type f -size +63M -printf '%p %s %T@ %C@\n' \) | sort &&
        find . -type f -size -64M -print0 | sort -z | xargs -0 -r sha256sum)
}

# refuses LABEL CODE REGEX CMD...: CMD must exit with CODE, say one line "dcpkit: ..." (notes apart) that
# REGEX finds, print no result, and leave every file of $TMP as it was. Prints "LABEL: refused", else the fault.
refuses() {
    local label=$1 code=$2 regex=$3 status=0 fault=
    shift 3
    snapshot >"$GOT/before"
    "$@" >"$GOT/out" 2>"$GOT/all" || status=$?
    grep -v '^dcpkit: [a-z-]*: note: ' "$GOT/all" >"$GOT/err" || true
    snapshot >"$GOT/after"
    if [ "$status" -ne "$code" ]; then
        fault="exit $status, wanted $code"
    elif [ "$(wc -l <"$GOT/err")" -ne 1 ]; then
        fault="wanted one line on stderr"
    elif ! grep -q '^dcpkit: ' "$GOT/err"; then
        fault="the message does not begin with 'dcpkit: '"
    elif ! grep -qE -- "$regex" "$GOT/err"; then
        fault="the message does not hold '$regex'"
    elif [ -s "$GOT/out" ]; then
        fault="printed a result: $(head -c 200 "$GOT/out")"
    elif ! diff "$GOT/before" "$GOT/after" >"$GOT/diff"; then
        fault="left something changed: $(head -n 5 "$GOT/diff")"
    fi
    if [ -z "$fault" ]; then
        echo "$label: refused"
    else
        echo "$label: $fault; stderr: $(head -c 2000 "$GOT/err")"
    fi
}

# answers_no LABEL REGEX CMD...: CMD must exit with 1, say why on stdout where REGEX finds it, say no more
# than notes on stderr, and leave every file of $TMP as it was. Prints "LABEL: no", else the fault.
answers_no() {
    local label=$1 regex=$2 status=0 fault=
    shift 2
    snapshot >"$GOT/before"
    "$@" >"$GOT/out" 2>"$GOT/all" || status=$?
    grep -v '^dcpkit: [a-z-]*: note: ' "$GOT/all" >"$GOT/err" || true
    snapshot >"$GOT/after"
    if [ "$status" -ne 1 ]; then
        fault="exit $status, wanted 1"
    elif ! grep -qE -- "$regex" "$GOT/out"; then
        fault="the answer does not hold '$regex'"
    elif [ -s "$GOT/err" ]; then
        fault="a message on stderr"
    elif ! diff "$GOT/before" "$GOT/after" >"$GOT/diff"; then
        fault="left something changed: $(head -n 5 "$GOT/diff")"
    fi
    if [ -z "$fault" ]; then
        echo "$label: no"
    else
        echo "$label: $fault; stdout: $(head -c 1000 "$GOT/out"); stderr: $(head -c 1000 "$GOT/err")"
    fi
}

# attack LABEL CODE REGEX PATH [COMMAND...]: each COMMAND (inspect, verify, convert) refuses the checkpoint at PATH,
# as `refuses` checks it, within $BOUNDED's time and memory. PATH is gone then. Prints "LABEL: refused", else the faults.
attack() {
    local label=$1 code=$2 regex=$3 path=$4 command words line faults=0
    shift 4
    [ "$#" -gt 0 ] || set -- inspect verify "convert --to fsdp_dtensor"
    for command in "$@"; do
        read -ra words <<<"$command"
        # shellcheck disable=SC2086 # BOUNDED is a command with its arguments
        line=$(refuses "$label, ${words[0]}" "$code" "$regex" $BOUNDED "$DCPKIT" "${words[@]}" "$path" ${words[1]:+out})
        [[ $line == *": refused" ]] || { echo "$line" && faults=1; }
    done
    [ "$faults" -ne 0 ] || echo "$label: refused"
    rm -rf "$path"
}

# spoilt LABEL REGEX PATH COMMAND...: what can be opened but not read: verify finds it (exit 1; 3 for what is not
# supported) within the same bounds, its findings hold REGEX, and each COMMAND refuses it as `attack` checks it.
spoilt() {
    local label=$1 regex=$2 path=$3 status=0
    shift 3
    # shellcheck disable=SC2086 # BOUNDED is a command with its arguments
    $BOUNDED "$DCPKIT" verify "$path" >"$GOT/verified" 2>&1 || status=$?
    grep -qE -- "$regex" "$GOT/verified" || status="$status without '$regex'"
    [[ $status == [13] ]] || echo "$label, verify: exit $status: $(head -c 2000 "$GOT/verified")"
    attack "$label" 3 "$regex" "$path" "$@"
}

# need_mpi: skip the case where the program or the machine has no MPI; else make it run on a test machine, which
# has few cores, perhaps as root.
need_mpi() {
    if ! "$DCPKIT" --version | grep -q '^  mpi ' || ! command -v mpirun >/dev/null; then
        echo "no MPI"
        exit 77
    fi
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    export OMPI_MCA_hwloc_base_binding_policy=none
    # Open MPI does not free all that it allocates when it starts
    export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
}

# by_ranks N ARGUMENT... : dcpkit by N processes: its result, then its messages; what mpirun itself says at a
# failure is left out. Processes that wait for each other for ever are given up.
by_ranks() {
    local n=$1 status=0
    shift
    timeout -k 5 100 mpirun -n "$n" "$DCPKIT" "$@" 2>"$GOT/all" || status=$?
    [ "$status" -ne 124 ] || echo "no end within 100 s"
    grep '^dcpkit: ' "$GOT/all" || true
    return "$status"
}
