#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check.sh - what a loader asks for and does not find is named: keys removed one at a time, renamed, of another shape;
# what is whole loads in the releases that wrote it.

# without FORMAT REGEX OF: the key that REGEX removes is missing, of that part, and nothing else is told.
without() {
    local from=$SAMPLES/$1 regex=$2 of=$3
    rm -rf less
    "$DCPKIT" modify-state-dict --quiet --op "remove $regex" "$from" less >modified || return
    answers_no "$of" "^$of +FAILED +1 of [0-9]+ lacking: .* is missing" "$DCPKIT" check less
    sed -n "s/^  $of *//p" "$GOT/out"
    grep -E ' FAILED ' "$GOT/out" | grep -v "^$of " | grep -v '^whole '
}

echo "whole:"
for name in torch_dist_b_dense_tp2pp2 torch_dist_c_dense_tp2pp2 torch_dist_c_moe_ep2pp2 torch_dist_c_fp32_dp1 \
    torch_dist_c_dp_reshardable_tp2dp2 torch_dist_a_dense_tp2pp2 zarr_dense_tp2dp2 fsdp_dtensor_native_dp2 \
    fsdp_dtensor_native_moe_ep2dp4; do
    status=0
    "$DCPKIT" check "$SAMPLES/$name" >said 2>err || status=$?
    echo "$name: $status, $(sed -n 's/^loader *\([^(]*\) (.*), /\1, /p' said); $(grep '^loads in' said)"
done

echo "torch_dist:"
td=torch_dist_c_dense_tp2pp2
without $td '^decoder.layers.mlp.linear_fc2.weight$' weights
without $td '^optimizer.state.param.output_layer.weight$' masters
without $td '^optimizer.state.exp_avg_sq.decoder.final_layernorm.weight$' moments
without $td '^rng_state/shard_1.0_2.2$' rng
without $td '^decoder.layers.self_attention.linear_proj._extra_state/shard_2_4$' extra
without torch_dist_c_dp_reshardable_tp2dp2 'dp_group_idx_1.gbuf_idx_0.*bucket_idx_0.exp_avg$' moments
without torch_dist_c_dp_reshardable_tp2dp2 'dp_group_idx_0.per_bucket_numel/' groups
without torch_dist_c_moe_ep2pp2 '^decoder.layers.2.mlp.router.weight$' weights

echo "fsdp_dtensor:"
fd=fsdp_dtensor_native_dp2
q=module.module.module
without $fd '^model.module.decoder.layers.1.mlp.linear_fc1.weight_v$' weights
without $fd "^optimizer.state.$q.decoder.layers.1.mlp.linear_fc2.weight.exp_avg\$" moments
without $fd "^optimizer.state.$q.decoder.layers.1.mlp.linear_fc1.weight_w.step\$" moments
without $fd "^optimizer.param_to_group_meta.$q.decoder.layers.1.mlp.linear_fc1.weight.fused\$" groups
without $fd '^opt_param_scheduler.wd_incr_style$' scheduler
without $fd 'rng_tracker_states.expert-parallel-rng$' rng
without $fd '^iteration$' common

echo "renamed:"
rm -rf less
"$DCPKIT" modify-state-dict --quiet --op 'rename ^model\.module\.decoder\.final_layernorm model.module.decoder.final_norm' \
    "$SAMPLES/$fd" less >modified
answers_no "one misspelt weight" '^model +FAILED +1 stored weights .*model.module.decoder.final_norm.weight' "$DCPKIT" check less
grep -E '^  weights' "$GOT/out"

echo "another run:"
answers_no "tp=4 pads the vocabulary" 'word_embeddings.weight is \[256, 64\], \[512, 64\] is asked for' \
    "$DCPKIT" check --mesh tp=4,dp=1 "$SAMPLES/$fd"
answers_no "two optimizers, one asked for" "groups +FAILED .*KeyError: 'optimizer'" \
    "$DCPKIT" check --mesh pp=2,dp=4 "$SAMPLES/torch_dist_c_moe_ep2pp2"
answers_no "common.pt" '^common +FAILED .*common.pt is not there' "$DCPKIT" check --loads-in core-0.18 "$SAMPLES/$td"
answers_no "RNG in three numbers" 'rng_state/shard_0.0.0_2.2.1 is missing' "$DCPKIT" check --loads-in main "$SAMPLES/$td"
"$DCPKIT" check --loads-in main --no-load-rng "$SAMPLES/$td" >said && tail -n 1 said
answers_no "buckets of other ranks" '^moments +FAILED .*dp_reshardable this layout' \
    "$DCPKIT" check --mesh tp=1,dp=4 "$SAMPLES/torch_dist_c_dp_reshardable_tp2dp2"
"$DCPKIT" check --mesh tp=1,dp=4 --no-load-optim "$SAMPLES/torch_dist_c_dp_reshardable_tp2dp2" >said && tail -n 1 said
answers_no "torch's groups" 'bias_correction is missing' "$DCPKIT" check --optimizer te "$SAMPLES/$fd"
answers_no "Transformer Engine's names" 'linear_qkv.layer_norm_weight is missing' "$DCPKIT" check --impl te "$SAMPLES/$fd"

# args.no_save_optim keeps no loader from reading the optimizer's entry; a release begins without one
"$DCPKIT" convert --quiet --to torch_dist --weights-only "$SAMPLES/$fd" unsaved
answers_no "no optimizer was saved" "^groups +FAILED .*KeyError: 'optimizer'" "$DCPKIT" check unsaved
"$DCPKIT" check --no-load-optim unsaved >said && tail -n 1 said
mkdir released && mv unsaved/iter_* released/release && printf release >released/latest_checkpointed_iteration.txt
"$DCPKIT" check released >said && tail -n 1 said

echo "not told:"
answers_no "args without sizes" 'no table has the requests of loaders for a model without args.num_layers' \
    "$DCPKIT" check "$SAMPLES/fsdp_dtensor_telike_dp2_019/iter_0000004"
rm -rf less && sample $fd less && "$MANGLE" replace less/iter_0000004/.metadata 'h3K@\x85' 'h3K?\x85' 1
answers_no "a gap between chunks" '^cover +FAILED +the chunks of .model.module.decoder' "$DCPKIT" check less
! grep '^loads in' "$GOT/out"
"$DCPKIT" check --json less >said || jq -c '[.ok, .loads.unknown, (.loads.loads_in | [.[]] | unique)]' said
rm -rf less
"$DCPKIT" modify-state-dict --quiet --op 'remove ^args$' "$SAMPLES/$fd" less >modified
refuses "no args" 3 'there are no args' "$DCPKIT" check less
refuses "not Megatron's" 3 'this is dcp' "$DCPKIT" check "$SAMPLES/torch_dist_c_moe_ep2pp2_p2g"
refuses "no such release" 2 "no release is called 'core-1'" "$DCPKIT" check --loads-in core-1 "$SAMPLES/$fd"
refuses "no such layers" 2 "no implementation is called 'x'" "$DCPKIT" check --impl x "$SAMPLES/$fd"
refuses "no mesh" 2 "^dcpkit: check: --mesh: 'tp' is not a list" "$DCPKIT" check --mesh tp "$SAMPLES/$fd"

echo "as text and JSON:"
"$DCPKIT" check --mesh tp=2,pp=2,dp=1 --loads-in core-0.16 "$SAMPLES/torch_dist_b_dense_tp2pp2" | sed "s|$SAMPLES|SAMPLES|"
"$DCPKIT" check --json --mesh tp=4,dp=1 "$SAMPLES/$fd" |
    grep -vE '"(text|folder)"' | sed '/"checks"/,/^  \],/d' | head -n 42

# mends RELEASE FOLDER: the command with which the answer ends makes a folder that loads, as it says.
mends() {
    local way run flags status=0
    "$DCPKIT" check --loads-in "$1" "$2" >answer 2>said && echo "$1 loads it"
    way=$(sed -n 's/^to load it *//p' answer)
    read -ra run <<<"${way%%;*}"
    flags=$(sed -n 's/.*; load that with //p' <<<"$way")
    rm -rf OUT
    "$DCPKIT" "${run[@]:1}" >said 2>&1 || cat said
    # shellcheck disable=SC2086 # a list of flags, or none
    "$DCPKIT" check $flags --loads-in "$1" OUT >answer 2>said || status=$?
    echo "$1: ${run[*]:1:3}${flags:+, $flags}: $status"
}
echo "mended:"
mends core-0.16 "$SAMPLES/zarr_dense_tp2dp2"
mends core-0.16 "$SAMPLES/torch_dist_c_dense_tp2pp2"
mends main "$SAMPLES/torch_dist_c_dense_tp2pp2"
mends core-0.19 "$SAMPLES/torch_dist_a_dense_tp2pp2"
mends core-0.15 "$SAMPLES/fsdp_dtensor_native_moe_ep2dp4"
mends core-0.19 "$SAMPLES/fsdp_dtensor_converted_by_megatron"

echo "finite:"
"$DCPKIT" check --finite "$SAMPLES/fsdp_dtensor_native_dp2" | grep '^finite'
sample zarr_dense_tp2dp2 z
# layers x rows x columns, in chunks of one layer and a half of the columns: chunk 2.0.1 begins at [2, 0, 48]
printf '\xc0\x7f' | dd of=z/iter_0000004/decoder.layers.mlp.linear_fc2.weight/2.0.1 bs=1 seek=$((2 * (3 * 48 + 5))) \
    conv=notrunc status=none
answers_no "a NaN" '^finite +FAILED +1 tensors? holds? NaN or Inf, .*: decoder.layers.mlp.linear_fc2.weight\[2, 3, 53\] = nan' \
    "$DCPKIT" check --finite z

echo "warnings:"
"$DCPKIT" print-tensor --json "$SAMPLES/$fd" args | jq '.value | .ckpt_format = "torch_dist" | .use_torch_fsdp2 = true |
    .pipeline_model_parallel_size = 2' >args.json
rm -rf less
"$DCPKIT" modify-state-dict --quiet --op 'remove ^args$' "$SAMPLES/$fd" less >modified
"$DCPKIT" check --args-from args.json less | grep '^warning' | grep -v gradient_accumulation_fusion
