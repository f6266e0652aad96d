#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# inspect_samples.sh - format, generation, iteration and counts of the samples, from the JSON form. What is
# expected was written down from PROVENANCE.txt and the manifests.
for name in torch_dist_a_dense_tp2pp2 torch_dist_b_dense_tp2pp2 torch_dist_c_dense_tp2pp2 \
    torch_dist_c_dp_reshardable_tp2dp2 torch_dist_c_fp32_dp1 torch_dist_c_moe_ep2pp2 \
    fsdp_dtensor_native_dp2 fsdp_dtensor_converted_by_megatron; do
    "$DCPKIT" inspect --json "$SAMPLES/$name" >out.json || exit
    echo "$name $(jq -r '"format:\(.format) iteration:\(.iteration) ep:\(.layout.ep) pp:\(.layout.pp) tp:\(.layout.tp) " +
        "optimizer_layout:\(.optimizer_layout) n_objects:\(.totals.n_objects) n_tensors:\(.totals.n_tensors) "' out.json)"
    "$DCPKIT" inspect "$SAMPLES/$name" >out.txt || exit
    "$DCPKIT" inspect --chunks "$SAMPLES/$name" >chunks.txt || exit
    [ "$(wc -l <chunks.txt)" -gt "$(wc -l <out.txt)" ] || echo "$name: --chunks adds nothing"
done
