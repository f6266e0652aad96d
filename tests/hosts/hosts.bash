# SPDX-License-Identifier: Apache-2.0
# hosts.bash - three hosts on one machine: each has its network, its name, its /tmp and its /etc/hosts; the rest of
# the file system is shared. Read by hosts.sh and slurm.sh.
# shellcheck shell=bash

N_HOSTS=3
HOST=dcpk$$ # their names are ${HOST}a, ${HOST}b, ${HOST}c
BRIDGE=br$$
letters=(a b c)
n_failed=0 # checks

# need PROGRAM... : exit 77 where one is not there, or we are not root.
need() {
    local program
    [ "$(id -u)" -eq 0 ] || { echo "skipped: network namespaces need root" && exit 77; }
    for program in "$@"; do
        command -v "$program" >/dev/null || { echo "skipped: no $program" && exit 77; }
    done
}

# on N COMMAND... : run it on host N (0, 1, 2).
on() {
    local pid
    pid=$(cat "$WORK/pid$1")
    shift
    nsenter --target "$pid" --net --uts --mount -- "$@"
}

# stop_host N: all its processes die at once, as when the power goes; its namespaces stay.
stop_host() {
    local keep pid
    keep=$(cat "$WORK/pid$1")
    for pid in $(ip netns pids "$HOST${letters[$1]}"); do
        [ "$pid" = "$keep" ] || [[ $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null) == sshfs* ]] ||
            kill -KILL "$pid" 2>/dev/null || true
    done
}

hosts_down() {
    local i pid
    for ((i = 0; i < N_HOSTS; i++)); do
        for pid in $(ip netns pids "$HOST${letters[i]}" 2>/dev/null); do
            kill -KILL "$pid" 2>/dev/null || true
        done
        ip netns del "$HOST${letters[i]}" 2>/dev/null || true
    done
    ip link del "$BRIDGE" 2>/dev/null || true
    sleep 0.5 # until the killed are gone
}

# hosts_up: make them; $WORK is a folder outside /tmp. Exit 77 where the kernel does not let us.
hosts_up() {
    local i name
    printf '127.0.0.1 localhost\n' >"$WORK/hosts"
    for ((i = 0; i < N_HOSTS; i++)); do
        echo "10.213.77.$((i + 1)) $HOST${letters[i]}" >>"$WORK/hosts"
    done
    ip link add "$BRIDGE" type bridge 2>/dev/null || { echo "skipped: no network namespaces here" && exit 77; }
    ip link set "$BRIDGE" up
    for ((i = 0; i < N_HOSTS; i++)); do
        name=$HOST${letters[i]}
        ip netns add "$name"
        ip link add "$name" type veth peer name eth0 netns "$name"
        ip link set "$name" master "$BRIDGE" up
        ip -n "$name" addr add "10.213.77.$((i + 1))/24" dev eth0
        ip -n "$name" link set eth0 up
        ip -n "$name" link set lo up
        # shellcheck disable=SC2016 # for the inner shell
        ip netns exec "$name" unshare --uts --mount --propagation private bash -c \
            'hostname "$1" && mount -t tmpfs tmpfs /tmp && mount --bind "$2" /etc/hosts && touch "$3" && exec sleep infinity' \
            - "$name" "$WORK/hosts" "$WORK/up$i" >/dev/null 2>&1 &
        echo $! >"$WORK/pid$i"
        disown # what is said of its end is of no interest
    done
    for ((i = 0; i < 50; i++)); do
        [ "$(find "$WORK" -maxdepth 1 -name 'up?' | wc -l)" -lt "$N_HOSTS" ] || return 0
        sleep 0.1
    done
    echo "skipped: no mount or UTS namespaces here"
    exit 77
}

# check LABEL COMMAND... : it must succeed.
check() {
    local label=$1
    shift
    if "$@" >"$WORK/said" 2>&1; then
        echo "ok      $label"
    else
        echo "FAILED  $label: $(tail -n 5 "$WORK/said")"
        n_failed=$((n_failed + 1))
    fi
}
