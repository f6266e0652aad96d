#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bad_disk_full.sh - a file system that is too small for the output, where a test may mount one.
# shellcheck disable=SC2016 # the inner shell expands
unshare -rm bash -c 'mount -t tmpfs -o size=64k none "$1"' - "$TMP" 2>/dev/null || exit 77
sample torch_dist_c_dense_tp2pp2 in
mkdir disk
# shellcheck disable=SC2016
unshare -rm bash -uc '
    mount -t tmpfs -o size=256k none disk
    foreseen="needs [0-9]+ bytes, and its file system has 262144 free: No space left"
    refuses "disk full" 4 "$foreseen" "$DCPKIT" convert --to fsdp_dtensor in disk/out
    refuses "disk full, run folder" 4 "$foreseen" "$DCPKIT" convert --to fsdp_dtensor in disk/a/b
    "$DCPKIT" convert --to fsdp_dtensor --dry-run in disk/out >"$GOT/out" 2>&1 || echo "disk full, dry run: exit $?"
    grep -oE "^would convert|$foreseen" "$GOT/out"
    refuses "disk full, archive" 4 "$foreseen" "$DCPKIT" convert --to fsdp_dtensor in disk/out.tar
    refuses "disk full, cast" 4 "$foreseen" "$DCPKIT" modify-state-dict --op "cast weight float32" in disk/out
    refuses "disk full, copied" 4 "$foreseen" "$DCPKIT" modify-state-dict --op "remove ^rerun" in disk/out
    refuses "disk full, copied to an archive" 4 "$foreseen" "$DCPKIT" modify-state-dict --op "remove ^rerun" in disk/out.tar
    # What is replaced stays until the end; what is linked takes no room.
    mount -o remount,size=3m disk
    "$DCPKIT" convert --to fsdp_dtensor in disk/out >"$GOT/out" || echo "exit $?"
    refuses "old and new" 4 "needs [0-9]+ bytes, and its file system has" "$DCPKIT" convert --force --to fsdp_dtensor in disk/out
    "$DCPKIT" convert --resume --to fsdp_dtensor in disk/out | grep -o "^already complete"
    "$DCPKIT" modify-state-dict --op "remove ^rerun|^rng" disk/out disk/linked | grep -o "[0-9]* files* linked"
    # No room for the second of two files: inodes, which are not foreseen, end as any write that fails.
    umount disk && mount -t tmpfs -o size=100m,nr_inodes=5 none disk
    refuses "no inodes" 4 "No space left" "$DCPKIT" convert --to zarr in disk/out
'
