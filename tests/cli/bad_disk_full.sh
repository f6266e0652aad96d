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
    refuses "disk full" 4 "No space left" "$DCPKIT" convert --to fsdp_dtensor in disk/out
    refuses "disk full, run folder" 4 "No space left" "$DCPKIT" convert --to fsdp_dtensor in disk/a/b
'
