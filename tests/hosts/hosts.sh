#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# hosts.sh - ranks on several hosts: Open MPI over TCP between three hosts (hosts.bash), one shared file system, as it
# is and seen through a client that remembers names and sizes for 20 s (sshfs, one on each host).
#
# Usage: hosts.sh BUILD     BUILD: the build folder, with dcpkit, samples/ and tests/bench/make_checkpoint
# Needs root, ip, nsenter, unshare, mpirun; sshfs and sftp-server for the second part, which is left out without them.
# About three minutes and 3 GB in $DCPK_HOSTS_DIR (default /var/tmp; not /tmp, which each host has for itself).
# Exit 77: something is missing; 1: a check failed.
set -euo pipefail
[ $# -eq 1 ] || { sed -n '6,9s/^# \{0,1\}//p' "$0" >&2 && exit 2; }
build=$(realpath "$1")
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/hosts.bash"
need ip nsenter unshare mpirun
"$build/dcpkit" --version | grep -q '^  mpi ' || { echo "skipped: no plug-in for MPI" && exit 77; }
WORK=$(mktemp -d "${DCPK_HOSTS_DIR:-/var/tmp}/dcpk_hosts.XXXXXX")
trap 'hosts_down; umount "$WORK/seen" 2>/dev/null || true; rm -rf "$WORK"' EXIT

# what mpirun calls in the place of ssh: HOST COMMAND...
cat >"$WORK/agent" <<'AGENT'
#!/bin/bash
here=$(dirname "$0") host=$1
shift
case $host in *a) n=0 ;; *b) n=1 ;; *) n=2 ;; esac
exec nsenter --target "$(cat "$here/pid$n")" --net --uts --mount -- bash -c "$*"
AGENT
chmod +x "$WORK/agent"
cp "$build/dcpkit" "$build/libdcpkit-mpi.so" "$WORK/"

# by_hosts N ARGUMENT... : dcpkit by one process on each of N hosts, in $WORK.
by_hosts() {
    local i list="" n=$1
    shift
    for ((i = 0; i < n; i++)); do list+=${list:+,}$HOST${letters[i]}:1; done
    on 0 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm_rsh_agent="$WORK/agent" \
        OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,tcp \
        mpirun --wdir "$WORK" --host "$list" -n "$n" "$@"
}

# attempt NAME ARGUMENT... : by three hosts; NAME.said gets what is printed, and the exit code.
attempt() {
    local name=$1 code=0
    shift
    by_hosts 3 "$@" >"$name.said" 2>&1 || code=$?
    echo "exit $code" >>"$name.said"
}

# refused NAME REGEX: that attempt failed (exit 4), and one rank said so.
refused() {
    { grep -qx 'exit 4' "$1.said" && [ "$(grep -c '^dcpkit: ' "$1.said")" -eq 1 ] && grep -qE "^dcpkit: .*$2" "$1.said"; } ||
        { cat "$1.said" && return 1; }
}

proof=(--check-input --verify --integrity --quiet)
cd "$WORK"
hosts_up
cp -rL "$build/samples/torch_dist_c_moe_ep2pp2" in
"$build/tests/bench/make_checkpoint" --like "$build/samples/torch_dist_c_dense_tp2pp2/iter_0000004" --gb 0.5 big >/dev/null

check "three hosts" test "$(by_hosts 3 hostname | sort | tr '\n' ' ')" = "${HOST}a ${HOST}b ${HOST}c "
./dcpkit convert "${proof[@]}" --hashes one.hashes --to fsdp_dtensor --target-dp 8 big one >/dev/null
check "convert, verified" by_hosts 3 ./dcpkit convert "${proof[@]}" --hashes three.hashes --to fsdp_dtensor --target-dp 8 big three
check "as by one process" diff -r one three
check "its hashes" cmp one.hashes three.hashes
./dcpkit convert --quiet --to zarr in zarr_one >/dev/null
check "convert to zarr" by_hosts 3 ./dcpkit convert --quiet --to zarr in zarr_three
check "as by one process" diff -r zarr_one zarr_three
check "verify" by_hosts 3 ./dcpkit verify --against big three
check "hash" cmp <(./dcpkit hash three) <(by_hosts 3 ./dcpkit hash three 2>hash.err | grep -E '^[0-9a-f]{32,64} ')

# Each refusal waits until a file system that shows names late would have shown them: both at once.
for i in 1 2; do on "$i" mkdir -p /tmp/each/iter_0000004.dcpkit-partial; done
attempt only_one ./dcpkit convert --quiet --to zarr in /tmp/out &
attempt each ./dcpkit convert --quiet --to zarr in /tmp/each
wait
check "a folder that only one host has" refused only_one 'rank [12] of 3: .*on a file system that all ranks share'
check "one that each has for itself" refused each 'rank [12] of 3: .*on a file system that all ranks share'

# A host goes down while it writes; two others go on.
for ((try = 1; try <= 10; try++)); do
    rm -rf cut cut.said
    by_hosts 3 ./dcpkit convert --quiet --to fsdp_dtensor --target-dp 8 big cut >cut.said 2>&1 &
    pid=$!
    while kill -0 "$pid" 2>/dev/null && [ "$(du -sk cut 2>/dev/null | cut -f1)0" -lt 2000 ]; do sleep 0.05; done
    sleep "0.0$try"
    stop_host 2
    ! wait "$pid" || continue
    [ -e cut/iter_0000004.dcpkit-partial ] && break
done
check "a host went down" test -e cut/iter_0000004.dcpkit-partial -a ! -e cut/iter_0000004
check "two go on" by_hosts 2 ./dcpkit convert --quiet --resume --to fsdp_dtensor --target-dp 8 big cut
check "as by one process" diff -r <(cd one && find . -name integrity.json -o -type f -print0 | sort -z | xargs -0 sha256sum) \
    <(cd cut && find . -type f -print0 | sort -z | xargs -0 sha256sum)

# The same through clients that remember what they have seen, and what was not there, for 20 s.
sftp=/usr/lib/openssh/sftp-server
if ! command -v sshfs >/dev/null || [ ! -x "$sftp" ] || [ ! -e /dev/fuse ]; then
    echo "left out: sshfs"
else
    printf '#!/bin/sh\nexec %s\n' "$sftp" >ssh && chmod +x ssh
    mkdir shared seen
    cp -r in shared/in
    for ((i = 0; i < N_HOSTS; i++)); do
        on "$i" sshfs "x:$WORK/shared" "$WORK/seen" -o "ssh_command=$WORK/ssh" \
            -o attr_timeout=20,entry_timeout=20,negative_timeout=20,dcache_timeout=20
    done
    check "zarr, seen late" by_hosts 3 ./dcpkit convert "--quiet" --verify --to zarr seen/in seen/zarr
    check "as by one process" diff -r zarr_one shared/zarr
    ./dcpkit convert --quiet --integrity --to fsdp_dtensor --target-dp 4 in fsdp_one >/dev/null
    check "fsdp_dtensor, seen late" by_hosts 3 ./dcpkit convert "${proof[@]}" --to fsdp_dtensor --target-dp 4 seen/in seen/fsdp
    check "as by one process" diff -r fsdp_one shared/fsdp
    # shellcheck disable=SC2016 # for the inner shell
    attempt no_room bash -c 'trap "" XFSZ; ulimit -f 1; exec ./dcpkit convert --quiet --to zarr seen/in seen/none'
    check "no room for one of them" refused no_room 'File too large' # all ranks may meet it before they hear of each other
    check "nothing left" test ! -e shared/none
fi
[ "$n_failed" -eq 0 ] || exit 1
