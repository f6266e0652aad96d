#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# convert_weights_only.sh - the weights alone: the way out for optimizer layouts that are not converted.
for name in torch_dist_a_dense_tp2pp2 torch_dist_c_dp_reshardable_tp2dp2; do
    "$DCPKIT" convert --to fsdp_dtensor --weights-only "$SAMPLES/$name" "$name" >said 2>&1 ||
        echo "$name: exit $?: $(cat said)"
    "$DCPKIT" hash "$name" | grep -c 'optimizer\.'
    # Untouched tensors keep the hash that PyTorch found, under the name that Megatron-FSDP asks for; generation A
    # has flattened masters, whose order is that of the weight where no other axis than the first was cut.
    stored=
    [ "$name" != torch_dist_a_dense_tp2pp2 ] || stored=optimizer.state.fp32_param.
    for key in decoder.final_layernorm.weight embedding.word_embeddings.weight output_layer.weight; do
        want=$(grep -A 12 "^\"$stored$key\": {" "$SAMPLES/$name/MANIFEST.iter_0000004.json" |
            sed -n 's/^"xxh3_128": "\(.*\)",$/\1/p' | head -n 1)
        "$DCPKIT" hash "$name" | grep -qx "$want  model\.module\.$key" || echo "$name: $key differs"
    done
done
# Flattened masters are optimizer state that is left out, by name: they stop neither format.
for format in "torch_dist --target-generation B" zarr; do
    # shellcheck disable=SC2086 # several words
    "$DCPKIT" convert -v --to $format --weights-only --verify "$SAMPLES/torch_dist_a_dense_tp2pp2" "a_${format%% *}" >said 2>&1 ||
        echo "$format: exit $?: $(cat said)"
    grep -o '9 x optimizer.state.fp32_param' said
done
# To the format that it has: the optimizer is all that is lost.
for name in torch_dist_c_dense_tp2pp2 zarr_dense_tp2dp2 fsdp_dtensor_native_dp2; do
    to=${name%_native_dp2}
    to=${to%_c_dense_tp2pp2}
    "$DCPKIT" convert -q --weights-only --verify --to "${to%_dense_tp2dp2}" "$SAMPLES/$name" "less_$name" || echo "$name: exit $?"
    "$DCPKIT" compare-two-checkpoint "$SAMPLES/$name" "less_$name" | grep -E '^(weights|masters|verdict)'
    "$DCPKIT" hash "less_$name" | grep -c 'optimizer\.state'
done
refuses "a model" 2 'is safetensors already' "$DCPKIT" convert --weights-only --to hf "$SAMPLES/safetensors_qwen3" model
