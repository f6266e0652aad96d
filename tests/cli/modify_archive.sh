#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# modify_archive.sh - keys changed from and into archives: what the folder gives, without a copy beside it.
! "$DCPKIT" --version | grep -q 'not built in.*libarchive' || exit 77
modify() { "$DCPKIT" modify-state-dict "$@"; }

for name in torch_dist_b_dense_tp2pp2 zarr_dense_tp2dp2; do
    cp -r "$SAMPLES/$name" "$name" # where its files can be linked
    tar -cf in.tar "$name"
    gzip -k in.tar
    for op in 'rename linear_fc([12])\. fc\1.' 'cast ^decoder.*weight float32'; do
        modify --op "$op" "$name" folder >said
        modify --op "$op" in.tar.gz out.tar >said 2>err || cat err
        modify --op "$op" in.tar unpacked >said 2>err || cat err
        diff -r folder unpacked && echo "$name: $op"
        rm -r unpacked && mkdir unpacked && tar -C unpacked -xf out.tar && diff -r folder unpacked
        rm -r folder unpacked out.tar
    done
    rm -r in.tar.gz "$name"
    mv in.tar "$name.tar"
done
mv "$name.tar" in.tar
touch out.tar
refuses "OUT exists" 2 "'out.tar' exists \(--force" modify --op 'remove exp_avg' in.tar out.tar
modify --force --op 'remove exp_avg' in.tar out.tar | tail -n 1
"$DCPKIT" verify out.tar | tail -n 1
rm out.tar
refuses "OUT is IN" 2 "'in.tar' is the input" modify --force --op 'remove exp_avg' in.tar in.tar
modify --dry-run --op 'keep decoder' in.tar out.tar | tail -n 2
(
    ulimit -f 512 # KiB that a file may have; the signal is ignored, so that writing fails
    refuses "no space" 4 'out.tar' modify --op 'rename decoder encoder' in.tar new/out.tar
)
find . -name '*partial*' -o -name new -o -name out.tar
