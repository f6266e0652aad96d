#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# verify_whole.sh - a folder that has lost a file beside its items is not ok; weights alone, and what another program wrote, are.
# loses SAMPLE FILE REGEX: without FILE the answer is no.
loses() {
    rm -rf gone && sample "$1" gone
    folder=gone/iter_0000004
    [ -d "$folder" ] || folder=gone
    rm "$folder/$2"
    answers_no "$1 without $2" "^whole +FAILED .*$3" "$DCPKIT" verify "$folder"
}
for name in torch_dist_a_dense_tp2pp2 torch_dist_b_dense_tp2pp2 zarr_dense_tp2dp2; do
    loses "$name" common.pt "there is (no|neither) 'common.pt'"
done
# zarr has no list of keys: chunks speak of an array whose .zarray is gone, the names of an object's files count them.
loses zarr_dense_tp2dp2 decoder.layers.mlp.linear_fc2.weight/.zarray "'decoder.layers.mlp.linear_fc2.weight' holds chunks, but no '.zarray'"
refuses "its conversion" 3 "'decoder.layers.mlp.linear_fc2.weight' holds chunks.*not whole[)]\$" "$DCPKIT" convert --to torch_dist gone out
loses zarr_dense_tp2dp2 optimizer.state.exp_avg.output_layer.weight/.zarray "'optimizer.state.exp_avg.output_layer.weight' holds chunks"
refuses "its conversion" 3 "'optimizer.state.exp_avg.output_layer.weight' holds chunks" "$DCPKIT" convert --to torch_dist gone out
loses zarr_dense_tp2dp2 rng_state/shard_0.0_1.2.pt "'rng_state' holds 1 of 2 files"
loses zarr_dense_tp2dp2 decoder.layers.mlp.linear_fc2._extra_state/shard_3_4.pt "'decoder.layers.mlp.linear_fc2._extra_state' holds 3 of 4 files"
loses torch_dist_a_dense_tp2pp2 metadata.json "'common.pt': Megatron"
rm gone/iter_0000004/common.pt
answers_no "and without common.pt" "^whole +FAILED .*the key '.*/shard_0_4': Megatron" "$DCPKIT" verify gone/iter_0000004
loses torch_dist_c_dense_tp2pp2 metadata.json "the key '.*/shard_0_4'"
loses torch_dist_c_moe_ep2pp2 metadata.json "the key '.*/shard_"
# Objects gone as well: layers that are stacked, or states of parameters, are Megatron's still.
"$DCPKIT" modify-state-dict --op 'keep ^decoder[.]layers[.]mlp.*weight$' "$SAMPLES/torch_dist_c_dense_tp2pp2" tensors 2>said >&2
find tensors -name metadata.json -delete
answers_no "tensors alone" "^whole +FAILED .*the key 'decoder.layers.mlp" "$DCPKIT" verify tensors/iter_0000004
for op in 'remove ^args$' 'remove ^iteration$'; do
    rm -rf fewer
    "$DCPKIT" modify-state-dict --op "$op" "$SAMPLES/fsdp_dtensor_native_dp2" fewer 2>said >&2 || cat said
    answers_no "fsdp_dtensor, $op" "^whole +FAILED .*no object '(args|iteration)'" "$DCPKIT" verify fewer
done
touch fewer/iter_0000004/run_config.yaml
"$DCPKIT" verify fewer | grep '^verdict'
rm -rf fewer
"$DCPKIT" modify-state-dict --op 'keep ^model' "$SAMPLES/fsdp_dtensor_native_dp2" fewer 2>said >&2 || cat said
"$DCPKIT" verify fewer | grep '^verdict'

# The bytes of the items, aliases once: what inspect calls stored, whatever threads and buffers.
sample fsdp_dtensor_native_dp2 in
stored=$("$DCPKIT" inspect in | sed -n 's/^stored .*(\([0-9]*\) bytes).*/\1/p')
for options in "--threads 1" "--threads 2" "--threads 7" "--threads 3 --memory 16M" "--threads 4"; do
    # shellcheck disable=SC2086 # several words
    "$DCPKIT" verify $options in | grep -q "^checksums .*($stored bytes) read$" || echo "$options: $stored bytes wanted"
done
