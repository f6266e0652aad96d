#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# print_tensor.sh - elements as torch reads them (torch 2.11, .tolist() and numpy's str), and bad requests.
sample=$SAMPLES/torch_dist_c_dense_tp2pp2
key=decoder.layers.mlp.linear_fc2.weight
print() { "$DCPKIT" print-tensor "$@"; }
print --json "$sample" "${key}[0, 3:5, :8]"
print "$sample" "optimizer.state.exp_avg.decoder.final_layernorm.weight[:3]"
print "$sample" "$key" | wc -l
print --all "$sample" "$key" | tr -cd , | wc -c
refuses "no tensor" 2 'no tensor .decoder.layers.mlp.linear_fc2. .but' print "$sample" "${key%.weight}[0]"
refuses "an object" 2 'is no tensor but an object' print "$sample" rng_state/shard_0.0_2.2
refuses "out of bounds" 2 'index 64 is out of bounds for axis 1 of 64' print "$sample" "${key}[0, 64]"
refuses "no slice" 2 'is no number' print "$sample" "${key}[]"
