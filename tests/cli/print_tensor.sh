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
refuses "no tensor" 2 "no tensor or object 'decoder.layers.mlp.linear_fc2' .but" print "$sample" "${key%.weight}[0]"
# Objects, and the common state, which is an item, a file, or a file of zarr: as PROVENANCE.txt has the run.
print "$sample" rng_state/shard_0.0_2.2 | grep -c '"random_rng_state"\|"torch_rng_state"'
for name in torch_dist_c_dense_tp2pp2 torch_dist_b_dense_tp2pp2 zarr_dense_tp2dp2; do
    print --json "$SAMPLES/$name" common | grep -E '^    "iteration": |"tensor_model_parallel_size": |^  "key": '
done
refuses "no object" 2 "no tensor or object 'rng_state' \\(but there is 'rng_state/shard_" print "$sample" rng_state
refuses "out of bounds" 2 'index 64 is out of bounds for axis 1 of 64' print "$sample" "${key}[0, 64]"
refuses "no slice" 2 'is not a number' print "$sample" "${key}[]"
refuses "no end" 2 "the slice '.0, 5' does not end" print "$sample" "${key}[0, 5"
refuses "a slip" 2 "but there is '$key'" print "$sample" "${key/weight/wieght}"
# Backwards: numpy's order. The second row is longer than what is read at once.
values() { print --json "$1" "$2" | sed 's/.*"values": \[\(.*\)\], "version.*/\1/; s/, /\n/g'; }
diff <(values "$sample" "${key}[1, 2, 90:10:-7]") <(values "$sample" "${key}[1, 2, 13:91:7]" | tac)
long="optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_0.exp_avg"
sample=$SAMPLES/torch_dist_c_dp_reshardable_tp2dp2
diff <(values "$sample" "${long}[::-1]") <(values "$sample" "$long" | tac)
values "$sample" "${long}[::-1]" | wc -l
