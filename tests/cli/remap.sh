#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# remap.sh - a checkpoint goes into the memory of ranks, to another layout and back, and is proven (a flipped bit:
# tests/golden/test_remap_golden.c); what cannot be done is refused.
dense=$SAMPLES/torch_dist_c_dense_tp2pp2

# remap LABEL ARGUMENT... : the steps and the verdict, without figures that change.
remap() {
    local label=$1
    shift
    "$DCPKIT" remap --json "$@" >answer.json || echo "exit $?"
    jq -r --arg what "$label" '"\($what): \(.n_ranks) ranks, " +
        ([.steps[] | "\(.name) \(.moved_bytes) \(.ok)"] | join(", ")) + ", link \(.link.name), \(.ok)"' answer.json
}
"$DCPKIT" remap --from tp=2 --to fsdp=2 "$dense" >text
sed -E 's/[0-9]+\.[0-9]+ GB/N GB/; s/  +/  /g' text | grep -vE '^  (load|there|back) '
grep -cE '^  (load|there|back) .* ok$' text
remap "alone" --from tp=1 --to fsdp=1 "$dense"
"$DCPKIT" remap --from tp=1 --to fsdp=1 "$dense" | grep -o 'by [0-9]* ranks* in'
remap "two threads" --from tp=2 --to fsdp=2 "$dense"
remap "four threads" --ranks 4 --check --from tp=4 --to tp=2,pp=2 "$dense"
remap "replicas" --ranks 4 --from tp=2 --to fsdp=4,hsdp=2 "$dense"
remap "fewer ranks" --ranks 3 --from fsdp=3 --to tp=2,dp=1 "$dense"
remap "messages" --transport staged --from tp=2 --to fsdp=2 "$dense"
remap "chunks of stages" --from pp=2,vpp=2 --to pp=2 "$dense"
remap "weights" --weights-only --from tp=2 --to tp=1,pp=2 "$dense"
remap "its format" --format torch_dist --from tp=2 --to tp=1,dp=1 "$dense"
"$DCPKIT" remap --progress --from tp=2 --to tp=1 "$dense" 2>&1 >out | grep -c 'loading'

refuses "another format" 3 "format is torch_dist, not zarr" "$DCPKIT" remap --format zarr --from tp=2 --to tp=1 "$dense"
refuses "no layout" 2 "give the two layouts as --from and --to" "$DCPKIT" remap --from tp=2 "$dense"
refuses "not a layout" 2 "--to: 'x=2' is not a list" "$DCPKIT" remap --from tp=2 --to x=2 "$dense"
refuses "too many ranks" 2 "layout to load has 4 ranks, there are 2" "$DCPKIT" remap --ranks 2 --from tp=4 --to tp=2 "$dense"
refuses "heads" 3 "tp=3 does not divide" "$DCPKIT" remap --from tp=3 --to tp=1 "$dense"
refuses "layers" 3 "pp=3 does not divide" "$DCPKIT" remap --from pp=3 --to tp=1 "$dense"
refuses "instances" 2 "3 ranks are not 2 equal instances" "$DCPKIT" remap --from tp=1 --to fsdp=3,hsdp=2 "$dense"
refuses "no time" 2 "--timeout is shorter than 1 ms" "$DCPKIT" remap --timeout 0.0005 --from tp=2 --to tp=1 "$dense"
refuses "no such device" 2 "there is no device 'abacus'" "$DCPKIT" remap --device abacus --from tp=2 --to tp=1 "$dense"
refuses "no such link" 2 "'pigeon' is neither" "$DCPKIT" remap --transport pigeon --from tp=2 --to tp=1 "$dense"
refuses "not a model" 3 "not a checkpoint of a Megatron model" "$DCPKIT" remap --from tp=2 --to tp=1 "$SAMPLES/torch_dist_b_dense_tp2pp2_p2g"
# A GPU is used where there is one; else why not is said.
status=0
"$DCPKIT" remap --device cuda --from tp=1 --to fsdp=1 "$dense" >out 2>err || status=$?
if [ "$status" -eq 0 ] || { [ "$status" -eq 3 ] && grep -qE 'driver|not built in|GPU' err; }; then
    echo "cuda: answered"
else
    echo "cuda: exit $status: $(cat err)"
fi
