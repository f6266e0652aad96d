#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# huggingface.sh - a model of Hugging Face's to Megatron and back, by built-in maps and by a file.
convert() { "$DCPKIT" convert "$@"; }
equal() { "$DCPKIT" compare-two-checkpoint "$@" | grep -E '^(tensors|weights) .*compared|^verdict'; }
source=$(dirname "$TOOLS")
maps=$source/formats/safetensors/maps
sample safetensors_qwen3 model

# There and back, through every format of Megatron's.
convert --to torch_dist model run | grep -E 'loads in|family'
cat run/latest_checkpointed_iteration.txt && echo
cat run/release/megatron_command_line.txt
convert --to huggingface run back | grep -E 'family|rows'
equal model back
"$DCPKIT" verify --against model run 2>said | tail -n 1
convert --verify --to huggingface run proven >said
for format in zarr fsdp_dtensor; do
    convert --quiet --to $format model run_$format
    convert --quiet --to huggingface --family qwen3 run_$format back_$format
    cmp back/model.safetensors back_$format/model.safetensors && echo "$format: the same bytes"
done
# An archive of the folder; what a run needs beside its args goes along with it.
convert --quiet --to huggingface run back.tar && tar tf back.tar && equal back.tar back
cmp run/release/megatron_command_line.txt run_zarr/release/megatron_command_line.txt
convert --to zarr run again | grep -o 'in addition to the checkpoint.s args.*'
cmp run/release/megatron_command_line.txt again/release/megatron_command_line.txt && echo "the same command line"
printf '\033[2J' >again/release/megatron_command_line.txt
convert --to fsdp_dtensor again twice 2>said | grep -A 1 'please check'
convert --quiet --to torch_dist --target-mesh tp=2,pp=3 --make-vocab-size-divisible-by 64 model cut
convert --quiet --to huggingface cut back_cut
cmp back/model.safetensors back_cut/model.safetensors && echo "tp=2,pp=3: the same bytes"

# A vocabulary, a dtype, files of a size; the configuration that is laid under, the tokenizer.
convert --quiet --to huggingface --vocab-size 100 --dtype float32 --max-shard-size 20KB run small
find small -type f | LC_ALL=C sort
grep total_size small/model.safetensors.index.json # 32040 elements
head -c 42 small/model-00001-of-00007.safetensors | tail -c +9 && echo
"$DCPKIT" inspect small | grep -E 'embed_tokens|down_proj'
# A file for each tensor; threads and memory do not show in the bytes.
convert --quiet --to huggingface --max-shard-size 1 --threads 1 --memory 16M run apart
convert --quiet --to huggingface --max-shard-size 1 --threads 7 run apart_7
find apart -name '*.safetensors' | wc -l
diff -r apart apart_7 && equal back apart
for size in 0 -1 1.5GB 1kb 99999999999999999999 20000000000GB; do
    refuses "--max-shard-size $size" 2 "is not a number of bytes" convert --to huggingface --max-shard-size=$size run none
done
convert --quiet --to huggingface --hf-config model/config.json --hf-assets model run based
find based -type f | LC_ALL=C sort
grep -E 'eos_token_id|vocab_size' based/config.json

# Optimizer state that is seen through views is accounted for: flattened (A), buckets.
for run in torch_dist_a_dense_tp2pp2 torch_dist_c_dp_reshardable_tp2dp2; do
    convert -v --verify --to huggingface "$SAMPLES/$run" "of_$run" | grep -c 'optimizer state'
done

# A run that was resumed, whose tokenizer has no vocabulary of its own, is the same model.
echo '{"iteration": 4, "consumed_train_samples": 8, "vocab_size": null}' >resumed.json
convert --quiet --args-from resumed.json --to zarr "$SAMPLES/torch_dist_c_dense_tp2pp2" resumed
convert -v --verify --to huggingface --vocab-size 250 resumed of_resumed 2>said | grep verified
equal of_resumed resumed

# A class that no map has: by its model_type, as transformers takes it.
sample safetensors_qwen3 class
sed -i 's/Qwen3ForCausalLM/MyForCausalLM/' class/config.json
convert --to torch_dist class class_run | grep -E "no family has|args.no_save"

# What others may not read stays so: a link to it is refused, a private file makes OUT private.
mkdir assets && echo '{}' >assets/tokenizer.json && echo secret >secret && chmod 600 secret
ln -s ../secret assets/tokenizer_config.json
refuses "a link to a private file" 2 "'tokenizer_config.json' links to a file that fewer users may read" \
    convert --to huggingface --hf-assets assets run based_not
rm assets/tokenizer_config.json && chmod 600 assets/tokenizer.json
convert --quiet --to huggingface --hf-assets assets run based_private && stat -c '%a' based_private/tokenizer.json

# A family that is a file: a toy of other names.
"$DCPKIT" modify-state-dict --op 'rename ^model\.layers\.(\d+)\.(self_attn|mlp)\.(\w+)\.weight$ blocks.\1.\3' \
    --op 'rename ^model\.layers\.(\d+)\.input_layernorm\.weight blocks.\1.norm_in' \
    --op 'rename ^model\.layers\.(\d+)\.post_attention_layernorm\.weight blocks.\1.norm_mlp' \
    --op 'rename ^model\.embed_tokens\.weight tokens' --op 'rename ^model\.norm\.weight norm' \
    --op 'rename ^lm_head\.weight head' model toy >said
sed -i 's/Qwen3ForCausalLM/ToyForCausalLM/; s/"qwen3"/"toy"/' toy/config.json
refuses "an unknown family" 3 "of no family" convert --to torch_dist toy none
convert --quiet --maps "$source/tests/cli/maps" --to torch_dist toy toy_run
equal run toy_run
convert --verify --quiet --maps "$source/tests/cli/maps" --family toy --to huggingface toy_run toy_back
"$DCPKIT" verify --quiet --maps "$source/tests/cli/maps" --against toy_run toy_back | tail -n 1
refuses "verify --maps alone" 2 "are for --against SRC" "$DCPKIT" verify --maps "$source/tests/cli/maps" toy_back
equal --maps "$source/tests/cli/maps" toy toy_back
equal --maps "$source/tests/cli/maps" run toy
refuses "a family that is not there" 2 "no family is called 'toy': llama" convert --to huggingface --family toy run none

# A map that is wrong gives another model: what each mistake changes is seen.
wrong() {
    mkdir "maps_$1" && sed "$2" "$maps/qwen3.json" >"maps_$1/qwen3.json"
    if cmp -s "$maps/qwen3.json" "maps_$1/qwen3.json"; then
        echo "$1: the map did not change"
    elif ! convert --quiet --maps "maps_$1" --to torch_dist model "wrong_$1" 2>said; then
        echo "$1: refused"
    else
        "$DCPKIT" compare-two-checkpoint run "wrong_$1" | tail -n 1
    fi
}
wrong gate_and_up 's/"mlp.gate_proj.weight", "mlp.up_proj.weight"/"mlp.up_proj.weight", "mlp.gate_proj.weight"/'
wrong k_and_v 's/"self_attn.k_proj.weight", "self_attn.v_proj.weight"/"self_attn.v_proj.weight", "self_attn.k_proj.weight"/'
wrong contiguous 's/\(q_proj.*\)"op": "qkv"/\1"op": "cat"/'
wrong norms 's/"input_layernorm.weight"/"NAME"/; s/"post_attention_layernorm.weight"/"input_layernorm.weight"/; s/"NAME"/"post_attention_layernorm.weight"/'
wrong q_norm 's/"self_attn.q_norm/"NAME/; s/"self_attn.k_norm/"self_attn.q_norm/; s/"NAME/"self_attn.k_norm/'
wrong transposed 's/"hf": "mlp.down_proj.weight"/&, "op": "transpose"/'
wrong missing '/"self_attn.q_norm/d'
wrong word 's/"op": "cat"/"op": "dog"/'

# Weights are equal, and the model is not: what config.json decides is compared as args, else key by key.
other() {
    sed "$2" model/config.json >changed && ! cmp -s model/config.json changed || echo "$1: config.json did not change"
    cp -r model "other_$1" && mv changed "other_$1/config.json"
    "$DCPKIT" compare-two-checkpoint model "other_$1" | grep -E '^  (args|config)|^verdict'
}
other theta 's/"rope_theta": 1000000.0/"rope_theta": 500000.0/'
other heads 's/"num_attention_heads": 4/"num_attention_heads": 2/'
other family 's/"Qwen3For/"OtherFor/; s/"qwen3"/"other"/'
other cache 's/"use_cache": true/"use_cache": false/'
rm other_cache/config.json
"$DCPKIT" compare-two-checkpoint model other_cache | tail -n 1

# What does not match is listed, all of it, and nothing is written.
sample safetensors_qwen3 damaged
"$DCPKIT" modify-state-dict --op 'remove layers.1.mlp.up_proj' --op 'rename layers.2.self_attn.o_proj more' damaged less >said
"$DCPKIT" convert --to torch_dist less none 2>&1 | fold -w 110
sed -i 's/"intermediate_size": [0-9]*/"intermediate_size": 48/' damaged/config.json
refuses "a configuration that contradicts the tensors" 3 "not what the configuration asks for|hidden size" convert --to torch_dist damaged none
# Shapes are held to it also where args do not describe all of a model: norms that no module of Megatron's has.
mkdir maps_more && sed 's/self_attention\.\([qk]\)_layernorm/self_attention.\1_more_norm/; s/"qk_layernorm": true/"qk_layernorm": false/' \
    "$maps/qwen3.json" >maps_more/qwen3.json
convert --maps maps_more --to torch_dist model more | grep -o 'cannot be said: .* weights are'
refuses "sizes of a model that args do not describe" 3 "not what the configuration asks for, in [0-9]* places: 'dec" \
    convert --maps maps_more --to torch_dist damaged none
for n in 1 98 100; do
    sed "s/\"vocab_size\": 99/\"vocab_size\": $n/" model/config.json >damaged/config.json
    refuses "vocab_size $n" 3 "'model.embed_tokens.weight' has 99 rows, and 'vocab_size' is $n; 'lm_head.weight' has" \
        convert --to torch_dist damaged none
done
sample safetensors_qwen3 damaged
# More layers and experts than there are tensors cost nothing.
sample safetensors_qwen3 many
sed -i 's/"num_hidden_layers": [0-9]*/"num_hidden_layers": 200/; /"layer_types"/,/]/d' many/config.json
refuses "more layers than tensors" 3 "fewer than the 200 layers" convert --to torch_dist many none
refuses "--quantize for another target" 2 "--quantize is for --to huggingface" convert --quantize fp8-block --to zarr model none
refuses "--quantize of another kind" 2 "is not fp8-block" convert --quantize fp8 --to huggingface model none
refuses "--dtype for another target" 2 "--dtype is for --to huggingface" convert --dtype float32 --to zarr model none
[ ! -e none ] && echo "nothing is written"

# The tokenizer that Megatron-Bridge keeps in a folder goes to where transformers looks for it; without one a note says so.
cp -rL run bridged && mkdir bridged/release/tokenizer && echo '{"a": 1}' >bridged/release/tokenizer/tokenizer.json
echo 'import os' >bridged/release/tokenizer/tokenizer.py
convert --to huggingface bridged of_bridged | grep -c 'has no tokenizer'
cmp bridged/release/tokenizer/tokenizer.json of_bridged/tokenizer.json && ls of_bridged
convert --to huggingface run of_run | grep 'has no tokenizer'

# A private file that a link of the source leads to is named and not copied.
cp -rL model linked && echo '{}' >private.json && chmod 600 private.json && ln -sf ../private.json linked/tokenizer.json
convert --to huggingface --max-shard-size 1MB linked of_linked | grep 'tokenizer.json'
[ ! -e of_linked/tokenizer.json ] || echo "it is there"
