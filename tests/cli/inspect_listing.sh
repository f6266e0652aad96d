#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# inspect_listing.sh - parameters and totals of each part, against the manifests that PyTorch wrote; --keys; no line is
# longer than a terminal, except for a name.
export COLUMNS=100 # as in a pipe without it
for name in torch_dist_a_dense_tp2pp2 torch_dist_b_dense_tp2pp2 torch_dist_c_dense_tp2pp2 torch_dist_c_fp32_dp1 \
    torch_dist_c_moe_ep2pp2 torch_dist_c_dp_reshardable_tp2dp2 zarr_dense_tp2dp2 fsdp_dtensor_native_moe_ep2dp4; do
    "$DCPKIT" inspect --json "$SAMPLES/$name" >out.json
    want=$(jq '[.tensors | to_entries[] | select(.key | test("^(optimizer|chained_|rng_state)") | not) |
        .value.shape | reduce .[] as $n (1; . * $n)] | add' "$SAMPLES/$name/MANIFEST.iter_0000004.json")
    [ "$(jq .totals.n_params out.json)" = "$want" ] || echo "$name: $(jq .totals.n_params out.json) parameters, wanted $want"
    jq -r --arg name "$name" '.totals | [$name, (.by_content[] | .n_elems)] | @tsv' out.json
    jq -e '.totals | .n_tensors - .n_alias_tensors == ([.by_content[].n_tensors] | add) and
        .tensor_bytes == ([.by_content[].tensor_bytes] | add)' out.json >said || echo "$name: the parts do not add up"
    "$DCPKIT" inspect "$SAMPLES/$name" >out.txt
    awk -v name="$name" 'length > 100 && !/^checkpoint/ && !/^  [a-z]+[.][^ ]*(, torch[^ ]*)?$/ { print name ": " $0 }' out.txt
    # The text names every key that JSON does, folded.
    [ "$(sed -n '/^tensors:/,/^objects:/p' out.txt | grep -oE ' x[0-9]+ ' | tr -d ' x' | paste -sd+ | bc)" = \
        "$(jq '.tensors | length' out.json)" ] || echo "$name: tensors are missing in the text"
done

# Aliases are counted once: two spellings of a norm have the same bytes.
"$DCPKIT" convert --to fsdp_dtensor "$SAMPLES/torch_dist_c_moe_ep2pp2" fsdp >said
"$DCPKIT" inspect --json fsdp | jq -c '.totals | [.n_alias_tensors > 0, .n_params, .by_content.moments.n_elems]'

sample=$SAMPLES/torch_dist_c_dense_tp2pp2
"$DCPKIT" inspect --keys 'linear_fc[12]\.weight$|^rng' "$sample" | sed '1,/^keys/d'
"$DCPKIT" inspect --keys '^decoder\..*norm' "$sample" | grep ^keys
"$DCPKIT" inspect --json --keys 'layernorm' "$sample" | jq -c '[.keys, (.tensors | keys), (.objects | keys), .totals.n_tensors]'
"$DCPKIT" inspect --chunks --keys '^decoder.final_layernorm' "$sample" | sed -n '/^chunks/,$p'
refuses "no key" 2 "no key matches" "$DCPKIT" inspect --keys nowhere "$sample"
refuses "no expression" 2 "keys '\('" "$DCPKIT" inspect --keys '(' "$sample"
# A key that no line holds stands alone on its line, whole.
long=$(printf 'deep.%.0s' {1..40})
"$DCPKIT" modify-state-dict --op "rename ^output_layer ${long}output_layer" "$sample" long >said
"$DCPKIT" inspect --stats --keys '^deep' long >said
awk 'length > 100 && NF > 1' said
[ "$(sed -n '/^tensors:/,/^statistics/p' said | tr -d ' \n' | grep -c "$(printf 'deep.%.0s' {1..40})output_layer.weightbfloat16")" -eq 1 ] ||
    echo "the listing lacks the long key"
[ "$(sed -n '/^statistics/,$p' said | tr -d ' \n' | grep -c "%$(printf 'deep.%.0s' {1..40})output_layer.weight1tensors")" -eq 1 ] ||
    echo "the table lacks the long key"

# The largest ones, by the bytes of all keys of a row.
"$DCPKIT" inspect --tree "$SAMPLES/torch_dist_c_moe_ep2pp2" | sed -n '/^tensors, as a tree/,/^  optimizer/p'
"$DCPKIT" inspect --tree --top 3 . 2>&1 || echo "exit $?"
"$DCPKIT" inspect --sort size "$SAMPLES/torch_dist_c_dense_tp2pp2" | sed -n '/^tensors, by size/,/^objects/p' |
    sed -n '3p;$p' # no row is left out before objects
"$DCPKIT" inspect --sort name . 2>&1 || echo "exit $?"
"$DCPKIT" inspect --top 3 "$SAMPLES/torch_dist_c_moe_ep2pp2" | sed -n '/^tensors, by size/,/^  and/p'
"$DCPKIT" inspect --json --top 3 "$sample" | diff - <("$DCPKIT" inspect --json "$sample")
