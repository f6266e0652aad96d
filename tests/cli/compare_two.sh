#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# compare_two.sh - equal across formats, unequal where one byte or key is another; the exit code says it.
compare() { "$DCPKIT" compare-two-checkpoint "$@"; }
sample torch_dist_c_dense_tp2pp2 in
"$DCPKIT" convert --to fsdp_dtensor in out >said 2>&1 || echo "exit $?: $(cat said)"
for pair in "in in" "in out" "out in" "out out/iter_0000004"; do
    # shellcheck disable=SC2086 # two folders
    compare $pair >said 2>err && grep -q '^verdict     equal$' said && echo "$pair: equal" ||
        echo "$pair: $(tail -n 3 said err)"
done
# What only one format keeps is told: 27 rounded weights, 27 steps, classes of args.
compare in out | grep -c 'only one side keeps'

# Megatron-FSDP keeps routed experts in the dense groups, so that one field of theirs is another.
"$DCPKIT" convert --to torch_dist "$SAMPLES/fsdp_dtensor_native_moe_ep2dp4" moe >said 2>&1 || cat said
compare "$SAMPLES/fsdp_dtensor_native_moe_ep2dp4" moe | tail -n 1
answers_no "strictly" 'is_expert_parallel: A has false, B true' compare --strict "$SAMPLES/fsdp_dtensor_native_moe_ep2dp4" moe

cp -r in flipped
# A byte of an element; it happens to be one of a weight.
"$MANGLE" flip flipped/iter_0000004/__0_0.distcp 100000
# The place is the stored one: byte 100000 of the file, whichever name the parameter has.
compare in flipped | grep -cE '^    [a-z_.]+\[[0-9, ]+\]: A [-0-9.e+]+, B [-0-9.e+]+$'
compare in flipped | grep -E '^(weights|masters|moments|groups|args)'
answers_no "one byte" '^verdict     DIFFERENT \(' compare in flipped
compare --json in flipped >json
grep -cE '"(kind": "elements"|n_different": 1|equal": false|logical": true|n_differences": 1)' json
grep -cE '"max_(abs_error|rel_error|ulp)": [1-9]' json
compare --rtol 1e30 --atol 1e30 in flipped | tail -n 1
cp -r out renamed
"$MANGLE" replace renamed/iter_0000004/.metadata layers.3.mlp.linear_fc2.weight \
    layers.3.mlp.linear_fc9.weight
answers_no "one name" 'layers.3.mlp.linear_fc9.weight: only in B' compare in renamed
answers_no "another run" 'args\.' compare in "$SAMPLES/torch_dist_b_dense_tp2pp2"
answers_no "no tensor equal" 'max abs .*max rel .*max ULP' \
    compare --tensors-only --weights-only in "$SAMPLES/torch_dist_b_dense_tp2pp2"
# Another mesh and padding of the vocabulary is another layout; row 255 of 256 is of no token.
"$DCPKIT" convert --to torch_dist --target-mesh tp=4 --make-vocab-size-divisible-by 100 in other >said
compare in other | grep -v '^      ' | sed -n 's/ only in A: .*/ only in A/; /^layout/,/^tolerated/p; $p'
answers_no "another layout, strictly" '^  args.tensor_model_parallel_size: A has 2, B 4$' compare --strict in other
compare --json in other | grep -cE '"name": "(args.(tensor|pipeline)_model_parallel_size|rng_state.*)"'
"$DCPKIT" convert --to torch_dist --target-mesh tp=1 --make-vocab-size-divisible-by 1 in fewer >said
compare fewer other | tail -n 1
answers_no "a row of a token" 'output_layer.weight weight bfloat16 \[400, 64\]: 64 elements differ;' \
    compare --vocab-size 256 fewer other
refuses "fewer tokens than args say" 3 '250 would cut into the 255 tokens' compare --vocab-size 250 in other
# Plain containers: key by key.
compare "$SAMPLES/torch_dist_b_dense_tp2pp2_p2g" "$SAMPLES/torch_dist_b_dense_tp2pp2_p2g"
answers_no "other plain" 'local_experts.0.linear_fc1.weight: only in A' \
    compare "$SAMPLES/torch_dist_c_moe_ep2pp2_p2g" "$SAMPLES/torch_dist_b_dense_tp2pp2_p2g"
compare --as-stored in in
refuses "no folder" 4 'nowhere' compare in nowhere
refuses "a tolerance below 0" 2 'rtol' compare --rtol -1 in in
