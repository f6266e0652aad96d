#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# convert_told.sh - what a conversion says of itself: losses in two groups, every file that it wrote, every key in
# the JSON report; nothing under --quiet; no file replaced that it was not told to replace.
dense=$SAMPLES/torch_dist_c_dense_tp2pp2
export COLUMNS=100 # as a pipe without it
"$DCPKIT" convert -v --to fsdp_dtensor --report r.json --hashes h.json "$dense" out >said || echo "exit $?"
sed -n '/^  tracker/,$p' said | sed "s|$TMP/||"
awk 'length > 100 { print "more than 100 columns: " $0 }' <(tail -n +4 said)

# an object that no rule knows is something to look at, and stands last
"$DCPKIT" modify-state-dict -q --op 'rename ^rerun_state_machine_state odd_state' "$dense" odd
"$DCPKIT" convert --to fsdp_dtensor odd from_odd | sed -n '/^  left out (please/,$p'

# every key of the output stands in the report, each once
"$DCPKIT" inspect --json out | jq -c '[.totals.n_tensors, .totals.n_objects]'
for kind in tensors objects; do
    jq -r ".${kind}[] | .key, .aliases[]" r.json | sort >reported
    wc -l <reported
    uniq -d reported
done
grep -x 'optimizer.param_to_group_meta.module.module.module.output_layer.weight.lr' reported
jq -c '[.dropped[].harmless] | unique' r.json

for option in --report --hashes; do
    echo "mine" >mine
    refuses "$option of a file that exists" 2 "'mine' exists" "$DCPKIT" convert --to zarr $option mine "$dense" z
    refuses "$option of one, to be resumed" 2 "'mine' exists" "$DCPKIT" convert --to zarr --resume $option mine "$dense" z
done
"$DCPKIT" convert --quiet --to zarr "$dense" quiet
"$DCPKIT" convert --quiet --force --report mine --to zarr "$dense" quiet
jq -r .to mine
"$DCPKIT" modify-state-dict --quiet --op 'remove ^optimizer' quiet modified

# what was complete already: an earlier run's report stays
for run in first again; do
    "$DCPKIT" convert --resume --report done.json --hashes done.hashes --to fsdp_dtensor "$dense" whole >said || echo "$run: exit $?"
    sha256sum done.json done.hashes >sums.$run
    grep -cE '^  (report|hashes) ' said
done
cmp sums.first sums.again
