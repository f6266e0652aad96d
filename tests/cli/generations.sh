#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# generations.sh - the label of every sample and the releases that write such folders, as text and JSON, before and after
# modify-state-dict. Expected: the release in the sample's name or PROVENANCE.txt lies in the range.
label() {
    "$DCPKIT" inspect "$1" | sed -n 's/^format  *//p'
    "$DCPKIT" inspect --json "$1" | tr -d ' \n' | grep -oE '"(generation|releases)":("[A-Z]"|null|\{[^}]*\})' | paste -sd' '
}

mkdir out cast
while read -r name key; do
    echo "== $name"
    label "$SAMPLES/$name" >before
    cat before
    "$DCPKIT" modify-state-dict --op "rename $key renamed" "$SAMPLES/$name" out/iter_0000004 >said || echo "exit $?"
    label out/iter_0000004 | diff before - || echo "$name: modify changes the label"
    "$DCPKIT" modify-state-dict --op "cast $key float32" "$SAMPLES/$name" cast/iter_0000004 >said || echo "exit $?"
    label cast/iter_0000004 | diff before - || echo "$name: a cast changes the label"
    rm -r out/* cast/*
done <<'END'
tiny_generations/torch_dist_0.8.0_torch2.1 rep.bias
tiny_generations/torch_dist_0.10.0_torch2.5 rep.bias
tiny_generations/torch_dist_0.12.0_torch2.5 rep.bias
tiny_generations/torch_dist_0.14.0_torch2.11 rep.bias
tiny_generations/torch_dist_0.19.0_torch2.11 rep.bias
tiny_generations/torch_dist_main_torch2.11 rep.bias
torch_dist_a_dense_tp2pp2 final_layernorm.weight$
torch_dist_a_bucket_space_tied final_layernorm.weight$
torch_dist_b_dense_tp2pp2 final_layernorm.weight$
torch_dist_c_dense_tp2pp2 final_layernorm.weight$
zarr_dense_tp2dp2 final_layernorm.weight$
fsdp_dtensor_native_dp2 final_layernorm.weight$
fsdp_dtensor_telike_dp2_015/iter_0000004 final_layernorm.weight$
fsdp_dtensor_telike_dp2_019/iter_0000004 final_layernorm.weight$
fsdp_dtensor_converted_by_megatron final_layernorm.weight$
END

# modify writes .metadata as torch 2.9 does, without 0.15's own class, which no other release can import: the name stays,
# the releases that write such a folder are more.
for name in torch_dist_0.15.0_torch2.5 torch_dist_0.17.0_torch2.5; do
    echo "== $name"
    label "$SAMPLES/tiny_generations/$name"
    "$DCPKIT" modify-state-dict --op 'rename rep.bias renamed' "$SAMPLES/tiny_generations/$name" out/iter_0000004 >said
    label out/iter_0000004
    rm -r out/*
done
# Weights alone have no groups; the halves of gated experts show it still.
for name in fsdp_dtensor_native_dp2 fsdp_dtensor_native_moe_ep2dp4; do
    echo "== weights of $name"
    "$DCPKIT" modify-state-dict --op 'keep ^model' --force "$SAMPLES/$name" out/iter_0000004 >said 2>&1 || cat said
    label out/iter_0000004
done
