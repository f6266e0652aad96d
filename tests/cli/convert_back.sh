#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# convert_back.sh - torch_dist to fsdp_dtensor and back: proven, the same tensors, both forms of the common state.
sample torch_dist_c_dense_tp2pp2 in
"$DCPKIT" convert --to fsdp_dtensor in forth >said 2>&1 || echo "exit $?: $(cat said)"
"$DCPKIT" convert --to torch_dist forth back >said 2>&1 || echo "exit $?: $(cat said)"
"$DCPKIT" convert --to torch_dist --target-generation C forth back_c >said 2>&1 || echo "exit $?: $(cat said)"
for run in back back_c; do
    "$DCPKIT" verify --against in $run >said 2>&1 || echo "exit $?: $(cat said)"
    tail -n 1 said
    "$DCPKIT" hash in | grep -E '^[0-9a-f]{32}  ' | sort >a
    "$DCPKIT" hash $run | grep -E '^[0-9a-f]{32}  ' | sort >b
    diff -q a b >/dev/null && echo "$run: the same hashes"
    cat $run/latest_checkpointed_iteration.txt && echo
    (cd $run/iter_0000004 && echo * && cat metadata.json && echo)
done
"$DCPKIT" convert --to torch_dist --target-generation A --verify forth back_a >said 2>&1 || echo "exit $?: $(cat said)"
"$DCPKIT" verify --against in back_a | tail -n 1
"$DCPKIT" inspect back_a | grep -E '^(format|optimizer) '
refuses "a generation for fsdp_dtensor" 2 'target-generation is for --to torch_dist' \
    "$DCPKIT" convert --to fsdp_dtensor --target-generation C in out
refuses "a generation that is none" 2 "'D' is not one of A, B, C, V2" \
    "$DCPKIT" convert --to torch_dist --target-generation D forth out
refuses "another layout of generation A" 2 'has one layout of optimizer state' \
    "$DCPKIT" convert --to torch_dist --target-generation A --target-optimizer dp_reshardable forth out
refuses "an optimizer layout that is none" 2 "'flattened' is not one of fully_reshardable, dp_reshardable" \
    "$DCPKIT" convert --to torch_dist --target-optimizer flattened forth out
refuses "an optimizer layout for zarr" 2 'target-optimizer is for --to torch_dist, not for zarr' \
    "$DCPKIT" convert --to zarr --target-optimizer dp_reshardable forth out
refuses "buckets without an optimizer" 2 'target-optimizer and --weights-only exclude each other' \
    "$DCPKIT" convert --to torch_dist --target-optimizer dp_reshardable --weights-only forth out
refuses "optimizer state without groups" 3 'no parameter groups.*--weights-only' \
    "$DCPKIT" convert --to torch_dist --drop '^optimizer\.param_groups' "$SAMPLES/fsdp_dtensor_converted_by_megatron" out
