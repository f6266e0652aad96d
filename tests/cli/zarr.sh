#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# zarr.sh - zarr folders: there and back, proofs, and damage that is named. What is expected was written down
# from the manifest and the specification.
dense=$SAMPLES/zarr_dense_tp2dp2
"$DCPKIT" inspect --json "$dense" | jq '{dp: .layout.dp, format, iteration, n_objects: .totals.n_objects, n_tensors: .totals.n_tensors, tp: .layout.tp}' |
    sed -n 's/^  //; s/,$//; /:/p'
"$DCPKIT" convert --to fsdp_dtensor "$dense" fsdp >/dev/null && "$DCPKIT" verify --against "$dense" fsdp | tail -n 1
"$DCPKIT" convert --to torch_dist "$dense" torch_dist >/dev/null && "$DCPKIT" verify --against "$dense" torch_dist | tail -n 1
"$DCPKIT" convert --to zarr --target-mesh tp=2 torch_dist zarr >/dev/null && "$DCPKIT" verify --against "$dense" zarr | tail -n 1
diff -r --brief zarr/iter_0000004/embedding.word_embeddings.weight \
    "$dense/iter_0000004/embedding.word_embeddings.weight" && echo "same array"
"$DCPKIT" convert --to zarr -j 3 --target-mesh tp=2 torch_dist again >/dev/null
diff -r --brief zarr again && echo "same again"
rm -rf fsdp torch_dist zarr again

tiny=tiny_generations/zarr_0.12.0_torch2.5
sample $tiny short && truncate -s 47 short/tp.weight/1.0
sample $tiny gone && rm gone/tp.weight/1.0
sample $tiny text && echo '{' >text/tp.weight/.zarray
sample $tiny filter && sed -i 's/"filters": null/"filters": [{"id": "delta"}]/' filter/tp.weight/.zarray
sample $tiny lzma && sed -i 's/"compressor": null/"compressor": {"id": "lzma"}/' lzma/tp.weight/.zarray
sample $tiny damaged && sed -i 's/"compressor": null/"compressor": {"id": "gzip"}/' damaged/tp.weight/.zarray
sample $tiny bare && rm -r bare/*/
sample $tiny object && truncate -s 100 object/obj/shard_1_2.pt
refuses "a short chunk" 3 "tp.weight/1.0' has 47 bytes, a chunk has 48" "$DCPKIT" inspect short
refuses "a missing chunk" 3 "tp.weight/1.0' is missing" "$DCPKIT" inspect gone
refuses "no JSON" 3 "tp.weight/.zarray': " "$DCPKIT" inspect text
refuses "a filter" 3 'filter "delta"' "$DCPKIT" inspect filter
refuses "another compressor" 3 'compressor "lzma"' "$DCPKIT" inspect lzma
refuses "no arrays" 3 'no arrays' "$DCPKIT" inspect bare
refuses "not what the compressor wrote" 3 "decoding 'tp.weight/0.0' .gzip." "$DCPKIT" hash damaged
answers_no "that, by verify" "decoding 'tp.weight/[01].0' .gzip." "$DCPKIT" verify damaged
answers_no "a cut object" 'obj/shard_1_2' "$DCPKIT" verify object
refuses "another reader" 3 'sharded_backend "zarr"' "$DCPKIT" convert --from torch_dist --to fsdp_dtensor "$dense" out
# an array has one name, that of the modules which the run had: the one release that reads zarr still finds it
for name in v016_moe_ep2pp2 torch_dist_c_moe_ep2pp2; do
    "$DCPKIT" convert --to zarr "$SAMPLES/$name" "$name" >/dev/null && "$DCPKIT" check "$name" | grep -E '^(loader|verdict)'
done
