#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# foreign_folders.sh - folders that people take for a checkpoint: the message says what they are and the way on.
inspect() { "$DCPKIT" inspect "$@"; }
mkdir above && sample torch_dist_c_dense_tp2pp2 above/run
mkdir -p legacy/iter_0000010/mp_rank_00 cut/iter_0000004.dcpkit-partial hf pickled shards
touch shards/model_world_size_2_rank_0.pt legacy/iter_0000010/mp_rank_00/model_optim_rng.pt hf/config.json hf/model-00001-of-00002.safetensors \
    pickled/pytorch_model-00001-of-00002.bin
printf 10 >legacy/latest_checkpointed_iteration.txt
mkdir star && cp above/run/iter_0000004/*.distcp star
sample tiny_generations/zarr_0.12.0_torch2.5 bare_zarr && rm bare_zarr/metadata.json

refuses "the folder above" 3 "; give a folder in it, such as 'run'" inspect above
refuses "Megatron's old format, empty" 3 "opening 'legacy/iter_0000010': reading 'mp_rank_00/model_optim_rng.pt'" inspect legacy
refuses "Megatron's old format, rank" 3 "it is the folder of one rank of Megatron's format torch: give the folder above it" inspect legacy/iter_0000010/mp_rank_00
refuses "Hugging Face without its index" 3 "; its files have lost their model.safetensors.index.json" inspect hf
mkdir named && touch named/merged.safetensors
mkdir -p beside/base && touch beside/logits.safetensors beside/base/model.safetensors
refuses "a model in a folder, and a file" 3 "run folder; give a folder in it, such as 'base'$" inspect beside
refuses "a file alone" 3 "run folder; give one of its files, such as 'merged.safetensors'$" inspect named
mkdir parts && touch parts/shard-0000{1,2}-model-00001-of-00001.safetensors
refuses "shards of HuggingFaceStorageWriter" 3 "; its files are parts of tensors, which .* join them with" inspect parts
refuses "verl's shards alone" 3 "; it has shards of FSDP and no fsdp_config.json, which verl and SkyRL write last" inspect shards
mkdir ranks && echo '{"FSDP_version": 2, "world_size": 2}' >ranks/fsdp_config.json && touch ranks/optim_world_size_4_rank_0.pt
refuses "an optimizer of another size" 3 "'optim_world_size_4_rank_0.pt' is of another world size than 2" inspect ranks
mv ranks/optim_world_size_{4_rank_0,2_rank_2}.pt
refuses "an optimizer of another rank" 3 "'optim_world_size_2_rank_2.pt' is of a rank past the world size 2" inspect ranks
refuses "Hugging Face in pickles" 3 "; it is a Hugging Face model in pickles" inspect pickled
refuses "copied with a star" 3 "lost their .metadata: a copy of 'FOLDER/\*'" inspect star
refuses "a conversion cut short" 3 "; a conversion to it was cut short and can be resumed" inspect cut
refuses "zarr without its metadata.json" 3 "is an array in zarr, so a metadata.json is missing" inspect bare_zarr

# Another format than is asked for, by name or by a command that reads one alone.
in=$SAMPLES/fsdp_dtensor_native_dp2
refuses "--from" 3 "not torch_dist; 'dcpkit convert --to torch_dist $in OUT' makes that \(without --from the format is detected\)$" inspect --from torch_dist "$in"
refuses "--from of convert" 3 'fsdp_dtensor, not torch_dist \(without --from the format is detected\)$' "$DCPKIT" convert --from torch_dist --to fsdp_dtensor "$in" out
refuses "--from, no target" 3 'zarr, not dcp \(without --from the format is detected\)$' inspect --from dcp "$SAMPLES/zarr_dense_tp2dp2"
refuses "the Python tool's command" 3 "its format is fsdp_dtensor, not torch_dist; 'dcpkit convert --to fsdp_dtensor' takes every format$" \
    "$DCPKIT" convert-torch-dist-to-fsdp-dtensor "$in" out
refuses "its reverse" 3 "torch_dist, not fsdp_dtensor; 'dcpkit convert --to torch_dist' takes every format$" \
    "$DCPKIT" convert-fsdp-dtensor-to-torch-dist above/run out
refuses "objects of zarr" 3 'its format is zarr, not dcp$' "$DCPKIT" print-torch-dcp-in-json "$SAMPLES/zarr_dense_tp2dp2"
# ... or as its container, which has keys and no model.
refuses "--from dcp" 3 'its format is fsdp_dtensor; read as dcp it has only keys, no model \(without --from' \
    "$DCPKIT" convert --from dcp --to fsdp_dtensor "$in" out
refuses "--from dcp, check" 3 'its format is fsdp_dtensor; read as dcp' "$DCPKIT" check --from dcp "$in"
inspect --from dcp "$in" 2>said | grep ^format && cat said

# Without its common state the generation is not known, and that is said.
sample torch_dist_b_dense_tp2pp2 headless && rm headless/iter_0000004/common.pt
inspect headless 2>said | grep ^format && cat said

# Checkpoints of other programs: by names of files, as these programs write them.
# of LABEL REGEX FILE...: a folder with these files is known for what it is, also from the folder above.
of() {
    local label=$1 regex=$2 file
    shift 2
    rm -rf other && mkdir -p other/sub
    for file in "$@"; do touch "other/sub/$file"; done
    refuses "$label" 3 "; it is $regex" inspect other/sub
    refuses "$label, above" 3 "; its folder 'sub' is $regex" inspect other
}
of "DeepSpeed" "a checkpoint of DeepSpeed .*zero_to_fp32.py . OUT --safe_serialization" \
    mp_rank_00_model_states.pt zero_pp_rank_0_mp_rank_00_optim_states.pt
of "DeepSpeed, stage 3" "a checkpoint of DeepSpeed" bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt zero_pp_rank_0_mp_rank_00_model_states.pt
of "PEFT" "an adapter of PEFT without its adapter_model.safetensors" adapter_config.json README.md
mkdir -p lora/adapter && touch lora/adapter/adapter_config.json
mkdir -p several/checkpoint-{10,20}/{optimizer_0,pytorch_model_fsdp_0} several/notes
touch several/checkpoint-{10,20}/{optimizer_0,pytorch_model_fsdp_0}/.metadata several/notes/text
refuses "PEFT, convert" 3 "; its folder 'adapter' is an adapter" "$DCPKIT" convert --to torch_dist lora out
refuses "several folders" 3 "several checkpoints; give one of them: 'checkpoint-10/pytorch_model_fsdp_0', 'check" inspect several
rm -r several/checkpoint-20
refuses "one of them" 3 "opening 'several/checkpoint-10': reading 'pytorch_model_fsdp_0/.metadata'" inspect several
mkdir -p deep/trainer/global_step_3/actor && touch deep/trainer/global_step_3/actor/adapter_config.json
refuses "three folders down" 3 "; its folder 'trainer/global_step_3/actor' is an adapter" inspect deep

# An adapter with its base in one folder: transformers 5.23 with peft 0.21.2 computes with both, without peft with the base.
sample safetensors_qwen3 both && touch both/adapter_config.json
refuses "an adapter with its base" 3 "'adapter_config.json' of PEFT with the model" "$DCPKIT" convert --to torch_dist both out
rm both/config.json both/adapter_config.json
refuses "no config.json" 3 "there is no config.json.*: copy the model's into the folder" "$DCPKIT" convert --to torch_dist both out

# By keys of PyTorch's folders: those that accelerate, prime-rl and torchtitan gave their embedding.
# plain NAME: a folder `plain` in which that is the name of the only tensor but two.
plain() {
    rm -rf plain
    "$DCPKIT" modify-state-dict --quiet --op 'remove ^(args|iteration|checkpoint_version|num_float|rng|opt)' \
        --op 'remove ^model\.module\.decoder\.(layers\.[123]|.*(norm|qkv|proj|fc2))' --op 'remove weight_v$' \
        --op 'rename ^model\.module\.output_layer\.weight$ layers.0.attention.wo.weight' \
        --op 'rename ^model\.module\.decoder\.layers\.0\.mlp\.linear_fc1\.weight_w$ layers.0.other.weight' \
        --op "rename ^model\.module\.embedding\.word_embeddings\.weight\$ $1" "$in" plain >said
}
# keys LABEL REGEX NAME...: each in turn in a plain folder.
keys() {
    local label=$1 regex=$2 name
    shift 2
    for name in "$@"; do
        plain "$name"
        inspect plain 2>said >listed && grep -q '^format *dcp' listed && grep -cE "note: this is $regex" said
    done
    refuses "$label, convert" 3 "this is $regex" "$DCPKIT" convert --to huggingface plain out
    refuses "$label, check" 3 "this is $regex" "$DCPKIT" check plain
}
for name in model.model.embed_tokens.weight app.model.model.embed_tokens.weight \
    _fsdp_wrapped_module.model.embed_tokens.weight tok_embeddings.weight; do
    plain "$name"
    inspect plain 2>said | grep '^format' && grep -o "names.*: . layers" said
    refuses "$name, convert" 3 "there is no config.json.*--hf-config FILE" "$DCPKIT" convert --to huggingface plain out
    "$DCPKIT" check plain 2>said | grep -c '^model *FAILED.*there is no config.json'
done
keys "optimizer alone" "optimizer state of FSDP2 without its weights" optimizer.state.model.embed_tokens.weight.exp_avg

# Addresses are not folders, to be read or written.
refuses "an address" 3 "'gs://bucket/run' is an address" inspect gs://bucket/run
refuses "an S3 address to write" 3 "'s3://bucket/out' is an address.*'aws s3 sync'" "$DCPKIT" convert --to torch_dist "$in" s3://bucket/out
refuses "an address, convert" 3 "'hf://a/b' is an address.*'hf download'" "$DCPKIT" convert --to torch_dist hf://a/b out
refuses "an address to write" 3 "'gs://bucket/out' is an address" "$DCPKIT" convert --to torch_dist "$in" gs://bucket/out
refuses "another scheme" 3 "'https://a/b.tar' is an address.*: copy it, or mount it" "$DCPKIT" convert --to torch_dist "$in" https://a/b.tar
mkdir -p s3: && cp -rL --no-preserve=mode "$in" s3:/run && inspect s3://run | grep ^format
