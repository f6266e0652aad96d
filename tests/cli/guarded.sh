#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# guarded.sh - what stands around a run harms nothing: closed descriptors, the input under another name, reports
# onto devices and into OUT, many runs at one tracker.
dense=$SAMPLES/torch_dist_b_dense_tp2pp2
tree() { (cd "$1" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum); }

# any of 0 to 2 closed: the same bytes; a packed archive is unpacked to a descriptor, whose number matters
sample zarr_dense_tp2dp2 in # tar fails where a test beside this one links a file that it reads
tar -czf in.tar.gz -C in . && rm -r in
"$DCPKIT" convert --quiet --to fsdp_dtensor in.tar.gz right/iter_0000004
for closed in '<&-' '2>&-' '<&- 2>&-' '<&- >&- 2>&-' '>&-'; do
    rm -rf wrong
    eval "\"\$DCPKIT\" convert --quiet --to fsdp_dtensor in.tar.gz wrong/iter_0000004 $closed" || echo "$closed: exit $?"
    [ "$(tree right)" = "$(tree wrong)" ] || echo "$closed: other bytes"
done
rm -rf wrong
"$DCPKIT" convert --to fsdp_dtensor "$dense" wrong >&- 2>err
echo "stdout closed: exit $?, $(cat err)$(ls wrong 2>/dev/null)"
"$DCPKIT" hash "$dense" >&- 2>err
echo "hash, stdout closed: exit $?, $(cat err)"

# IN is what --force or --resume would move or delete
for suffix in old partial; do
    for option in --force --resume; do
        rm -rf run
        mkdir run && cp -RL --no-preserve=mode "$dense/iter_0000004" "run/iter_0000004.dcpkit-$suffix"
        refuses "IN called .dcpkit-$suffix, $option" 2 "the input '.*-$suffix' is .* would move or delete" \
            "$DCPKIT" convert $option --to fsdp_dtensor "run/iter_0000004.dcpkit-$suffix" run/iter_0000004
    done
done
refuses "modify as well" 2 'would move or delete' \
    "$DCPKIT" modify-state-dict --force --op 'remove ^optimizer' run/iter_0000004.dcpkit-partial run/iter_0000004

# reports: into a device, not over it; never into OUT
ln -s /dev/null null
"$DCPKIT" convert --quiet --to fsdp_dtensor --report null --hashes null "$dense" reported || echo "exit $?"
readlink null
refuses "a report in OUT" 2 "report 'kept/iter_0000004/r' would be inside the output" \
    "$DCPKIT" convert --to fsdp_dtensor --report kept/iter_0000004/r "$dense" kept/iter_0000004
refuses "hashes in OUT" 2 "list of hashes 'kept/h' would be inside the output" \
    "$DCPKIT" convert --to fsdp_dtensor --hashes kept/h "$dense" kept
refuses "both in one file" 2 "two of the report, the page and the list of hashes are 'r'" \
    "$DCPKIT" convert --to fsdp_dtensor --report r --hashes r "$dense" new

# several iterations into one run folder at once: each succeeds, and the tracker names the newest
for i in 0000003 0000022 0000111 4444444; do
    mkdir -p "many/$i" && ln -s "$dense/iter_0000004" "many/$i/iter_$i"
done
for ((round = 0; round < 5; round++)); do
    rm -rf out
    for i in 0000003 0000022 0000111 4444444; do
        { "$DCPKIT" convert --quiet --to fsdp_dtensor "many/$i/iter_$i" out 2>err.$i || echo "exit $?: $(cat err.$i)"; } &
    done
    wait
    [ "$(cat out/latest_checkpointed_iteration.txt)" = 4444444 ] ||
        echo "the tracker names $(cat out/latest_checkpointed_iteration.txt)"
    [ "$(find out | grep -c tmp)" = 0 ] || echo "left: $(ls out)"
done
