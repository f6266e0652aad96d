#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# convert_mesh.sh - from mesh to mesh and back nothing changes but the chunks.

# keeps SOURCE OUT LABEL: every tensor of SOURCE is in OUT, with the hash that it has there.
keeps() {
    "$DCPKIT" hash "$1" | grep -E '^[0-9a-f]{32}  ' | sort >want
    "$DCPKIT" hash "$2" | grep -E '^[0-9a-f]{32}  ' | sort >got
    [ -s want ] || echo "$3: no hashes"
    if comm -23 want got | grep .; then echo "$3: differs"; else echo "$3: the same"; fi
}


while read -r name there back; do
    sample=$SAMPLES/$name
    "$DCPKIT" convert --to torch_dist --target-mesh "$there" "$sample" there >said || exit
    keeps "$sample" there "$name to $there"
    "$DCPKIT" verify --against "$sample" there >said || cat said
    "$DCPKIT" convert --to torch_dist --target-mesh "$back" there again >said || exit
    keeps "$sample" again "$name back to $back"
    "$DCPKIT" verify --against "$sample" again >said || cat said
    rm -r there again
done <<'END'
torch_dist_c_dense_tp2pp2 tp=4,pp=4 tp=2,pp=2
torch_dist_b_dense_tp2pp2 tp=1 tp=2,pp=2
torch_dist_c_moe_ep2pp2 tp=4,ep=4,dp=8 ep=2,pp=2
torch_dist_c_moe_ep2pp2 tp=4,ep=2,etp=1 tp=1,ep=2,etp=2,dp=4
torch_dist_c_dense_tp2pp2 tp=2,pp=3,first=2 pp=2,vpp=2
END

for to in 2 3,tp=2 5,tp=4,bucket=0 8,hsdp=2; do
    "$DCPKIT" convert --to fsdp_dtensor --target-dp "$to" "$SAMPLES/torch_dist_c_dense_tp2pp2" there >said || exit
    "$DCPKIT" verify --against "$SAMPLES/torch_dist_c_dense_tp2pp2" there >said || cat said
    "$DCPKIT" convert --to fsdp_dtensor --target-dp 2 there again >said || exit
    keeps there again "dp=$to to dp=2"
    rm -r there again
done

# The vocabulary, larger and back: 256 real rows, to a multiple of 100 * tp 4, then of 128 * tp 2.
"$DCPKIT" convert --to torch_dist --target-mesh tp=4 --vocab-size 256 --make-vocab-size-divisible-by 100 \
    "$SAMPLES/torch_dist_c_dense_tp2pp2" there >said || exit
"$DCPKIT" inspect there | grep -E 'embedding.word_embeddings.weight|output_layer.weight' | grep -oE '\[400, 64\]' | sort | uniq -c
"$DCPKIT" convert --to torch_dist --target-mesh tp=2,pp=2 --vocab-size 256 --make-vocab-size-divisible-by 128 \
    there again >said || exit
keeps "$SAMPLES/torch_dist_c_dense_tp2pp2" again "vocabulary of 400 rows and back"

# Experts are cut by etp, all else by tp; args say so, and what cut the source's pipeline is gone from them.
"$DCPKIT" convert --to torch_dist --target-mesh tp=4,ep=2,etp=2 "$SAMPLES/torch_dist_c_moe_ep2pp2" etp >said || exit
"$DCPKIT" inspect etp | grep -o 'by chunks  tp 4 etp 2'
"$DCPKIT" print-tensor etp args --json 2>said | jq -c '[.. | objects | select(has("tensor_model_parallel_size")) |
    [.tensor_model_parallel_size, .expert_tensor_parallel_size]] | first'
"$DCPKIT" convert --to torch_dist --target-mesh pp=3,first=2 "$SAMPLES/torch_dist_c_dense_tp2pp2" first >said || exit
"$DCPKIT" convert --to torch_dist --target-mesh pp=2,vpp=2 first even >said || exit
for folder in first even; do
    "$DCPKIT" print-tensor $folder args --json 2>said | jq -c '[.. | objects | select(has("tensor_model_parallel_size")) |
        [.pipeline_model_parallel_size, .decoder_first_pipeline_num_layers, .virtual_pipeline_model_parallel_size]] | first'
done
