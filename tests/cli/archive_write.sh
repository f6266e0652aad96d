#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# archive_write.sh - an output named .tar holds, by GNU tar, what the folder would; any number of threads.
can_read=true
! "$DCPKIT" --version | grep -q 'not built in.*libarchive' || can_read=false

for name in torch_dist_b_dense_tp2pp2 torch_dist_c_moe_ep2pp2; do
    "$DCPKIT" convert --to fsdp_dtensor "$SAMPLES/$name" folder >said 2>&1 || cat said
    "$DCPKIT" convert --to fsdp_dtensor -j 1 "$SAMPLES/$name" out.tar >said 2>&1 || cat said
    "$DCPKIT" convert --to fsdp_dtensor -j 4 "$SAMPLES/$name" again.tar >said 2>&1 || cat said
    cmp out.tar again.tar
    mkdir unpacked && tar -C unpacked -xf out.tar
    diff -r folder unpacked && echo "$name: $(tar -tf out.tar | tr '\n' ' ')"
    if $can_read; then
        "$DCPKIT" verify --against "$SAMPLES/$name" out.tar >said 2>&1 || cat said
        "$DCPKIT" convert --to torch_dist out.tar back.tar >said 2>&1 || cat said
        "$DCPKIT" convert --to torch_dist folder back >said 2>&1 || cat said
        mkdir unback && tar -C unback -xf back.tar && diff -r back unback
    fi
    refuses "an archive that exists" 2 "'out.tar' exists" \
        "$DCPKIT" convert --to fsdp_dtensor "$SAMPLES/$name" out.tar
    "$DCPKIT" convert --force --to fsdp_dtensor "$SAMPLES/$name" out.tar >said 2>&1 || cat said
    cmp out.tar again.tar
    rm -rf folder unpacked back unback ./*.tar said
done

mkdir folder.tar
"$DCPKIT" convert --to fsdp_dtensor "$SAMPLES/$name" folder.tar >/dev/null && find folder.tar -type f | sort
"$DCPKIT" convert --dry-run --to fsdp_dtensor "$SAMPLES/$name" dry.tar | grep '^  to '
(
    ulimit -f 512 # KiB that a file may have; the signal is ignored, so that writing fails
    refuses "no space" 4 'out.tar' "$DCPKIT" convert --to fsdp_dtensor "$SAMPLES/$name" new/out.tar
)
find . -name '*partial*' -o -name new -o -name dry.tar
