#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bad_output.sh - places where a conversion cannot or must not write.
sample torch_dist_c_dense_tp2pp2 in
mkdir -p there/iter_0000004 && echo mine >there/iter_0000004/keep
echo text >file
ln -s in link

convert=("$DCPKIT" convert --to fsdp_dtensor)
refuses "output exists" 2 'there/iter_0000004.*--force' "${convert[@]}" in there
refuses "output exists, by its own name" 2 '--force' "${convert[@]}" in there/iter_0000004
refuses "output is a file" 2 'file' "${convert[@]}" in file
refuses "output is the input" 2 'in' "${convert[@]}" in in
refuses "output is the input, forced" 2 'in' "${convert[@]}" --force in in
refuses "output is the input by a link" 2 'link' "${convert[@]}" --force in link
refuses "output in the input" 2 'in/out' "${convert[@]}" in in/out
refuses "output in the input by dots" 2 'in' "${convert[@]}" in ./out/../in/deep/out
refuses "output in the iteration" 2 'iter_0000004' "${convert[@]}" in in/iter_0000004/out
refuses "input in the output, forced" 2 'in' "${convert[@]}" --force in/iter_0000004 in
refuses "input in the output's parent, forced" 2 '' "${convert[@]}" --force in .
refuses "a file as the output's parent" 4 'file' "${convert[@]}" in file/out
refuses "unknown target" 2 'torch_dits' "$DCPKIT" convert --to torch_dits in out
refuses "read-only target" 2 'dcp' "$DCPKIT" convert --to dcp in out
refuses "no target" 2 '--to' "$DCPKIT" convert in out
# A limit on the size of files stands in for a full disk: preallocation fails, and so would a write.
too_large() {
    (
        ulimit -f 64
        exec "${convert[@]}" in out
    )
}
refuses "files limited to 64 KiB" 4 'distcp' too_large
for name in x.zip x.tar.gz x.tgz x.tar.zst; do
    refuses "$name" 2 'the only archive that is written is .tar' "${convert[@]}" in "$name"
done
for option in --report --hashes; do
    refuses "$option into IN" 2 "is inside the input 'in'" "${convert[@]}" "$option" in/iter_0000004/.metadata in out
done
