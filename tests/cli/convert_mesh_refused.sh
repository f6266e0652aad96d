#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# convert_mesh_refused.sh - meshes and vocabularies that do not fit are refused by name; options that cannot be read, too.
dense=$SAMPLES/torch_dist_c_dense_tp2pp2
moe=$SAMPLES/torch_dist_c_moe_ep2pp2
mesh() { refuses "$1" "$2" "$3" "$DCPKIT" convert --to torch_dist --target-mesh "$4" "${5:-$dense}" out; }
dp() { refuses "$1" "$2" "$3" "$DCPKIT" convert --to fsdp_dtensor --target-dp "$4" "${5:-$dense}" out; }
mesh "heads" 3 'tp=3 does not divide the 4 attention heads' tp=3
mesh "layers" 3 'pp=3 does not divide the 4 layers' pp=3
mesh "layers of the ends" 3 'first=3 and last=2 leave -1 of the model.s 4 layers for 0 stages' pp=2,first=3,last=2
mesh "layers of a chunk" 3 'vpp=3 does not divide the 2 layers of a stage; without vpp' pp=2,vpp=3
mesh "no pipeline" 3 'pp is 1: leave them out' tp=2,first=2
mesh "no experts to cut" 3 'etp=2 is given, but the model has no experts' etp=2
mesh "experts" 3 'ep=3 does not divide the 4 experts' ep=3 "$moe"
mesh "no experts" 3 'the model has no experts' ep=2
mesh "experts and ranks" 3 'etp=1 times ep=4 does not divide the 2 ranks of a pipeline stage' ep=4,dp=2 "$moe"
mesh "an unknown dimension" 2 "'xp=2' is not a list" tp=2,xp=2
mesh "a dimension twice" 2 "'tp=2' is not a list" tp=2,tp=2
mesh "no number" 2 "'tp=' is not a list" tp=
mesh "a zero" 2 'tp is 0, expected 1 to' tp=0
mesh "too large" 2 'tp is 99999999, expected 1 to' tp=99999999
mesh "trailing comma" 2 "'' is not a list" tp=2,
dp "rows" 3 "'embedding.word_embeddings.weight': tp=3 does not divide the 256 rows" 2,tp=3
dp "experts of FSDP" 3 "ep=3 does not divide the 4 experts" 3,ep=3 "$moe"
dp "ranks of FSDP" 3 'etp=1 times ep=2 does not divide the 3 ranks of a pipeline stage' 3,ep=2 "$moe"
dp "instances" 2 '3 ranks are not 2 equal instances' 3,hsdp=2
dp "instances and experts" 3 'etp=1 times ep=4 does not divide the 2 ranks of an instance' 4,hsdp=2,ep=4 "$moe"
dp "no ranks" 2 'does not start with a number of ranks' tp=2
refuses "another format's mesh" 2 'target-mesh is for --to torch_dist, zarr, torch, not for fsdp_dtensor$' \
    "$DCPKIT" convert --to fsdp_dtensor --target-mesh tp=2 "$dense" out
refuses "another format's ranks" 2 'target-dp is for --to fsdp_dtensor' \
    "$DCPKIT" convert --to torch_dist --target-dp 2 "$dense" out
refuses "nothing to do" 2 'is torch_dist already \(--target-mesh.* writes it again\)$' \
    "$DCPKIT" convert --to torch_dist "$dense" out
refuses "nothing to do, zarr" 2 'is zarr already \(--target-mesh.* writes it again\)$' \
    "$DCPKIT" convert --to zarr "$SAMPLES/zarr_dense_tp2dp2" out
refuses "nothing to do, fsdp_dtensor" 2 'is fsdp_dtensor already \(.*--target-dp writes it again\)$' \
    "$DCPKIT" convert --to fsdp_dtensor "$SAMPLES/fsdp_dtensor_native_dp2" out
refuses "half a vocabulary" 2 'vocab-size needs --make-vocab-size-divisible-by' \
    "$DCPKIT" convert --to fsdp_dtensor --vocab-size 256 "$dense" out
refuses "rows that are not there" 3 "has 256 rows, a vocabulary of 300" \
    "$DCPKIT" convert --to fsdp_dtensor --vocab-size 300 --make-vocab-size-divisible-by 8 "$dense" out
refuses "real rows" 3 'would cut into the 2.. tokens' \
    "$DCPKIT" convert --to fsdp_dtensor --vocab-size 8 --make-vocab-size-divisible-by 8 "$dense" out
