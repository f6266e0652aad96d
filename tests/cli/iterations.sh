#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# iterations.sh - several iterations in a run folder or an archive: inspect lists them, --iteration and ARCHIVE:FOLDER choose.
sample torch_dist_c_dense_tp2pp2 run
tracker=latest_checkpointed_iteration.txt
(cd run && cp -r iter_0000004 iter_0000008 && cp -r iter_0000004 release && cp -r iter_0000004 iter_0000012 &&
    cp -r iter_0000004 iter_0000016 && rm iter_0000012/.metadata iter_0000016/__1_0.distcp &&
    mkdir iter_0000020.dcpkit-partial iter_0000002 logs && echo 4 >iter_0000024 && printf 8 >$tracker)
"$DCPKIT" modify-state-dict --op 'remove ^optimizer' run/iter_0000004 small/iter_0000004 >"$GOT/said"
rm -r run/iter_0000004 && mv small/iter_0000004 run && rm -r small
"$DCPKIT" convert --to zarr run/iter_0000008 zarr/iter_0000006 >"$GOT/said" && mv zarr/iter_0000006 run && rm -r zarr

# list DIR: the list, without sizes, which other tests know.
list() {
    "$DCPKIT" inspect -q "$@" 2>&1 | sed -n '/^iterations/,/^$/p' | sed -E 's/ +[0-9.]+ (KiB|MiB|bytes) +[0-9]+ files? / /; s/ +/ /g' |
        cut -c 1-110
}
list run
list run/iter_0000008
"$DCPKIT" inspect -q run | sed -n '/^checkpoint/p'
"$DCPKIT" inspect -q run --json | grep -A 9 -F '"iterations": [' | grep -v bytes
for name in 4 8 release 0000008 6; do
    "$DCPKIT" inspect -q --iteration "$name" run | grep ^checkpoint
done
# Without a tracker: the list all the same, and what is wrong.
rm run/$tracker
list run | head -n 1
"$DCPKIT" inspect -q run >"$GOT/said" 2>"$GOT/err"
echo "exit $?: $(grep -c 'neither a checkpoint' "$GOT/err")"
printf 8 >run/$tracker

# Wherever a run folder goes.
run() { "$DCPKIT" "$@" >"$GOT/said" 2>"$GOT/err" || echo "exit $?: $(cat "$GOT/err")"; }
run hash --iteration 4 run && mv "$GOT/said" hashes
run hash run/iter_0000004 && diff hashes "$GOT/said" && echo "hash: the same"
run verify --iteration 4 run && tail -n 1 "$GOT/said"
run print-tensor --iteration release run 'decoder.final_layernorm.weight[:2]' && wc -l <"$GOT/said"
run convert --iteration 4 --to fsdp_dtensor --weights-only run out && ls out
run verify --iteration 4 --weights-only out --against run && tail -n 1 "$GOT/said"
run modify-state-dict --iteration release --op 'remove ^optimizer' run out2 && ls out2
run compare-two-checkpoint --iteration 4 run out2/release --as-stored
run compare-two-checkpoint --iteration 4 run run/iter_0000004 --as-stored && tail -n 1 "$GOT/said"
refuses "no such iteration" 3 "'run' has no iteration 5; it has release, 2, 4, 6, 8, 12, 16" "$DCPKIT" hash --iteration 5 run
refuses "another one itself" 2 'is itself a checkpoint, and not called iteration 8' "$DCPKIT" inspect --iteration 8 run/iter_0000004
refuses "a word" 2 "'newest' is neither a number" "$DCPKIT" inspect --iteration newest run
refuses "a sign" 2 "'-4' is neither a number" "$DCPKIT" inspect --iteration=-4 run

# In an archive, by number or as it is printed.
mkdir ckpt && mv run/iter_0000004 run/iter_0000008 ckpt && tar cf two.tar ckpt && tar czf two.tar.gz ckpt
for name in two.tar:ckpt/iter_0000004 two.tar:iter_0000008 two.tar:/ckpt/iter_0000004/ two.tar.gz:ckpt/iter_0000004; do
    "$DCPKIT" inspect -q "$name" | grep ^checkpoint
done
"$DCPKIT" inspect -q --iteration 8 two.tar | grep ^checkpoint
"$DCPKIT" inspect -q --iteration 8 two.tar:ckpt | grep ^checkpoint
run hash two.tar:ckpt/iter_0000004 && diff hashes "$GOT/said" && echo "hash: the same"
run convert --iteration 4 --to fsdp_dtensor --weights-only two.tar out3 && diff -r out out3 && echo "converted: the same"
run convert --resume --to fsdp_dtensor --weights-only two.tar:iter_0000004 out3 && grep -o '^already complete' "$GOT/said"
cp two.tar a:b.tar && "$DCPKIT" inspect a:b.tar:iter_0000004 | grep ^checkpoint
refuses "two of them" 3 "2 checkpoints and not one tracker.*'ckpt/iter_0000008'; add the folder of one after a colon, ARCHIVE:FOLDER" "$DCPKIT" hash two.tar
refuses "not in it" 3 "2 checkpoints and not one called 'iter_0000005': 'ckpt/iter_0000004'" "$DCPKIT" hash --iteration 5 two.tar
refuses "not in its folder" 3 "not one called 'ckpt/iter_0000005'" "$DCPKIT" hash --iteration 5 two.tar:ckpt
refuses "another one in it" 2 "is itself a checkpoint" "$DCPKIT" hash --iteration 5 two.tar:ckpt/iter_0000004
refuses "half a name" 3 "not one called '0000004'" "$DCPKIT" hash two.tar:0000004
refuses "no such archive" 4 "No such file" "$DCPKIT" hash three.tar:iter_0000004
refuses "onto its archive" 2 "is the input" "$DCPKIT" convert --force --to zarr two.tar:iter_0000004 two.tar
