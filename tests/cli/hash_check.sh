#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# hash_check.sh - hashes recorded by PyTorch hold; a changed byte, a missing and an added tensor do not pass.
n=0
for manifest in "$SAMPLES"/torch_dist_[bc]_*/MANIFEST.iter_*.json; do
    folder=$(dirname "$manifest")/$(basename "$manifest" .json | sed 's/^MANIFEST\.//')
    "$DCPKIT" hash --check "$manifest" "$folder" >said 2>&1 || echo "$folder: exit $?: $(cat said)"
    n=$((n + 1))
done
[ "$n" -gt 3 ] && echo "recorded by PyTorch: ok"

sample torch_dist_c_dense_tp2pp2 c
"$DCPKIT" hash --json c >c.json
"$DCPKIT" hash --check c.json c
"$MANGLE" flip c/iter_0000004/__1_0.distcp 300000
answers_no "a flipped bit" '^verdict +NOT ok: tensors NOT ok .36 recorded, 36 found, 1 differ., objects ok' "$DCPKIT" hash --check c.json c
sed 's/"output_layer.weight"/"x"/' c.json >renamed.json
answers_no "another key" '^differs +output_layer.weight$' "$DCPKIT" hash --check renamed.json "$SAMPLES/torch_dist_c_dense_tp2pp2"
"$DCPKIT" hash --check renamed.json "$SAMPLES/torch_dist_c_dense_tp2pp2"
refuses "no list" 3 "reading the hashes in 'c/iter_0000004/metadata.json'.*tensors" \
    "$DCPKIT" hash --check c/iter_0000004/metadata.json c
refuses "no file" 4 "nowhere" "$DCPKIT" hash --check nowhere c

echo "as JSON:"
"$DCPKIT" hash --json --check c.json "$SAMPLES/torch_dist_c_dense_tp2pp2" | sed 's/"[0-9a-f]\{64\}"/"SHA256"/'
"$DCPKIT" hash --json --check renamed.json "$SAMPLES/torch_dist_c_dense_tp2pp2" | grep -cE '"(found|recorded)": null'

# A list of another format: a line for that, not one for each key; a verdict for tensors and one for objects. zarr has
# torch_dist's keys of tensors, Megatron-FSDP has none of them. A text records no format.
run=$SAMPLES/torch_dist_c_dense_tp2pp2
"$DCPKIT" hash --json "$run" >run.json
"$DCPKIT" hash "$run" >run.txt
for format in zarr fsdp_dtensor; do
    "$DCPKIT" convert --quiet --to $format "$run" to_$format
    "$DCPKIT" hash --check run.json to_$format && echo "$format: ok?"
done
"$DCPKIT" hash --check run.txt to_fsdp_dtensor | grep '^format'
"$DCPKIT" hash --check run.json --json to_zarr | jq -c '[.format, .tensors, .objects], (.differences | length)'
