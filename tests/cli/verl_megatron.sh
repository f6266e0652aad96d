#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# verl_megatron.sh - folders of a step as verl saves them with Megatron: one and three torch_dist folders, read as one.
# The folders are a save of core 0.19.0, as it is and taken apart by its keys.
convert() { "$DCPKIT" convert --quiet "$@"; }
inspect() { "$DCPKIT" inspect --quiet "$@"; }
equal() { diff <("$DCPKIT" hash "$1") <("$DCPKIT" hash "$2") && echo "$3: equal"; }
sample torch_dist_c_dense_tp2pp2 whole
convert --to huggingface whole model
touch model/tokenizer.json

# 0.4.1 to 0.8: one folder. Weights, optimizer and RNG states are those of the save.
one=run/global_step_7/actor
mkdir -p $one/huggingface && cp -r whole/iter_0000004 $one/dist_ckpt && cp model/*.json $one/huggingface
echo '{"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "num_layers_in_first_pipeline_stage": null}' >$one/transformer_config.json
printf 7 >run/latest_checkpointed_iteration.txt
inspect run | grep -E '^(checkpoint|format|iteration|model|optimizer)'
convert --verify --to huggingface run one_hf && equal model one_hf "one folder" && ls one_hf
convert --verify --to torch_dist --args-from whole run one_dist
"$DCPKIT" compare-two-checkpoint whole one_dist | grep -E '^(weights|masters|moments|verdict)' | sed 's/;.*//'

# 0.9: three folders, and the manifest that is written last.
three=three/global_step_7/actor
mkdir -p $three/model
part() { # FOLDER OP
    "$DCPKIT" modify-state-dict --quiet --op "$2" whole/iter_0000004 "apart/$1" && mkdir -p "$three/$1" &&
        mv "apart/$1/iter_0000004" "$three/$1/dist_ckpt"
}
part model 'remove ^(optimizer|rng_state|rerun)'
part optimizer 'keep ^(optimizer|common_state)'
part extra 'keep ^(rng_state|common_state)'
entry() { echo "\"$1\": {\"path\": \"$2\", \"format\": \"megatron_dist_checkpoint\"}"; }
manifest() { echo "{\"schema_version\": ${2:-2}, \"global_step\": 9, \"world_size\": 4, \"contents\": {$1}}"; }
listed="$(entry model model/dist_ckpt), $(entry optimizer optimizer/dist_ckpt), $(entry rng_state extra/dist_ckpt)"
manifest "$listed" >$three/ckpt_contents.json
cp $one/transformer_config.json $three
inspect three | grep -E '^(checkpoint|format|iteration|model|optimizer)'
"$DCPKIT" hash three 2>said | grep common_state | cut -d' ' -f2
"$DCPKIT" verify $three | grep -E '^(whole|verdict)'
refuses "no configuration" 3 "verl saves no args of Megatron's, and no config.json is in 'huggingface' or 'model/huggingface' \(--args-from .*--hf-config" \
    convert --to torch_dist three out
convert --verify --to huggingface --hf-config model/config.json three three_hf && diff model/model.safetensors three_hf/model.safetensors && echo "three folders: equal"
mkdir $three/model/huggingface && cp model/*.json $three/model/huggingface
convert --verify --to huggingface three three_in && equal model three_in "with its own config.json" && ls three_in
convert --verify --to torch_dist three three_dist && ls three_dist
"$DCPKIT" compare-two-checkpoint one_dist three_dist | grep -E '^(weights|masters|moments)' | sed 's/;.*//'

# Half-written, or moved, or of another schema.
mv $three/optimizer optimizer
refuses "a listed folder is missing" 3 "has 'optimizer' in 'optimizer/dist_ckpt/', and no metadata.json is there: the copy is not whole" inspect $three
mkdir -p $three/optimizer/dist_ckpt && mv $three/ckpt_contents.json listed
refuses "cut short" 3 "no 'ckpt_contents.json', which verl writes last, and 'optimizer/dist_ckpt/' has no metadata.json: the save was cut short" inspect $three
rm -r $three/optimizer
manifest "$listed" 3 >$three/ckpt_contents.json
refuses "another schema" 3 "is not of schema_version 2" inspect $three
manifest "$(entry model elsewhere)" >$three/ckpt_contents.json
refuses "another place" 3 "has 'model' in another place than 'model/dist_ckpt/'" inspect $three
manifest '"model": {"path": "model/huggingface", "format": "huggingface"}' >$three/ckpt_contents.json
refuses "Hugging Face's alone" 3 "lists no folder of Megatron's: the model is in 'model/huggingface'" inspect $three
manifest "$(entry model model/dist_ckpt)" >$three/ckpt_contents.json
convert --verify --to huggingface three no_optimizer && equal model no_optimizer "without an optimizer"
mv optimizer $three
manifest "$(entry optimizer optimizer/dist_ckpt)" >$three/ckpt_contents.json
refuses "weights elsewhere" 3 "no weights are in Megatron's folders: they have Hugging Face's names, in 'model/huggingface'" convert --to torch_dist three out
mkdir common && mv $three/optimizer/dist_ckpt/.metadata common
refuses "no .metadata" 3 "there is no 'optimizer/dist_ckpt/.metadata': a copy of 'FOLDER/\*' leaves hidden files out" inspect $three

# verl's script for older saves makes three copies, and no manifest.
moved=moved/global_step_7/actor
for part in model optimizer extra; do mkdir -p $moved/$part && cp -r $one/dist_ckpt $moved/$part; done
cp -r $one/huggingface $moved/model && cp $one/transformer_config.json $moved
convert --verify --to huggingface moved moved_hf && equal model moved_hf "three copies"
equal $one $moved "hashes of the copies"

# Buckets of an optimizer are cut by the number of ranks, which an older save has in its files alone.
sample torch_dist_c_dp_reshardable_tp2dp2 buckets
convert --to torch_dist --target-optimizer fully_reshardable buckets plain && convert --to huggingface buckets buckets_hf
mkdir -p older/actor/huggingface && cp -r buckets/iter_0000004 older/actor/dist_ckpt && cp buckets_hf/config.json older/actor/huggingface
echo '{"tensor_model_parallel_size": 2}' >older/actor/transformer_config.json
convert --to torch_dist older older_dist && "$DCPKIT" compare-two-checkpoint plain older_dist | grep -E '^(weights|masters|moments)' | sed 's/;.*//'

# Adapters of Megatron-Bridge.
"$DCPKIT" modify-state-dict --quiet --op 'rename linear_proj.weight$ linear_proj.adapter.linear_in.weight' whole adapter
refuses "an adapter" 3 "adapter.linear_in.weight': it belongs to an adapter \(LoRA\) of Megatron-Bridge, .*--drop" convert --to fsdp_dtensor adapter out
