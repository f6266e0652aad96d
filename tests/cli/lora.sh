#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# lora.sh - adapters of PEFT: merged into their base, taken out of a run, refused.
convert() { "$DCPKIT" convert "$@"; }
merge() { convert --quiet --merge-lora --base model "$@"; }
sample safetensors_qwen3 model
o=base_model.model.model.layers.1.self_attn.o_proj # [32, 48]
echo '{"peft_type": "LORA", "r": 2, "lora_alpha": 6, "base_model_name_or_path": "qwen/small", "bias": "none", "use_dora": false}' >plain.json

# numbers N STEP: elements 0, STEP, 2 STEP, ... modulo 4, as bytes of bfloat16.
numbers() {
    awk -v n="$1" -v step="$2" 'BEGIN {
        split("\\x00\\x00 \\x80\\x3f \\x00\\x40 \\x40\\x40", bytes, " ")
        for (i = 0; i < n; i++) printf "%s", bytes[i * step % 4 + 1]
    }'
}
# adapter FOLDER CONFIG [NAME SHAPE STEP]...: a folder of PEFT's of tensors of such numbers.
adapter() {
    local folder=$1 header='' at=0 n data=''
    mkdir -p "$folder" && cp "$2" "$folder/adapter_config.json"
    shift 2
    for (( ; $# > 0; )); do
        n=$((${2/,/*}))
        header+=", \"$1\": {\"dtype\": \"BF16\", \"shape\": [$2], \"data_offsets\": [$at, $((at + 2 * n))]}"
        at=$((at + 2 * n))
        data+=$(numbers "$n" "$3")
        shift 3
    done
    header="{${header#, }}"
    # shellcheck disable=SC2059 # they are escapes
    { printf "\\x$(printf %x $((${#header} % 256)))\\x$(printf %x $((${#header} / 256)))\\0\\0\\0\\0\\0\\0%s" "$header" && printf "$data"; } \
        >"$folder/adapter_model.safetensors"
}
hashes() { "$DCPKIT" hash "$1" 2>said | awk 'NF == 2 {print $1, $2}'; } # of tensors
values() { "$DCPKIT" print-tensor --json "$1" model.layers.1.self_attn.o_proj.weight | jq -c '.values | flatten'; }
# sums SCALE OUT: elements of OUT that are not w + SCALE * sum over k of B[i, k] A[k, j], with A[e] = e % 4, B[e] = 3 e % 4.
sums() {
    jq -n --argjson s "$1" --argjson w "$(values model)" --argjson m "$(values "$2")" '[range(1536) | . as $e |
        ((($e / 48 | floor) * 2) as $b | ($e % 48) as $j |
        ([0, 1] | map((3 * ($b + .) % 4) * ((. * 48 + $j) % 4)) | add) * $s + $w[$e] - $m[$e] | fabs) | select(. > 2e-5)] | length'
}

adapter lora plain.json $o.lora_A.weight 2,48 1 $o.lora_B.weight 32,2 3
"$DCPKIT" inspect lora 2>said | grep -E '^(format|tensors  )' && cat said
"$DCPKIT" check lora 2>said | grep -E '^(adapter|verdict)'
# unfit CONFIG [NAME SHAPE STEP]...: what check finds of such a folder.
unfit() {
    rm -rf other && adapter other "$@"
    "$DCPKIT" check --quiet other | grep -E '^(adapter|verdict)'
}
unfit plain.json $o.lora_A.weight 2,48 1 $o.lora_B.weight 32,3 3
unfit plain.json $o.lora_A.weight 3,48 1 $o.lora_B.weight 32,3 3 ${o/o_proj/q_proj}.lora_A.weight 2,32 1 ${o/o_proj/k_proj}.lora_B.weight 96 1
jq '.use_dora = true' plain.json >dora.json && unfit dora.json $o.lora_A.weight 2,48 1 $o.lora_B.weight 32,2 3 $o.lora_magnitude_vector 32 1
rm other/adapter_config.json && "$DCPKIT" check --quiet other | grep '^adapter'
jq 'del(.peft_type)' plain.json >verl.json && unfit verl.json $o.lora_A.weight 2,48 1 $o.lora_B.weight 32,2 3
unfit plain.json $o.lora_A.a.weight 2,48 1 $o.lora_B.b.weight 32,2 3
refuses "two adapters in a folder" 3 "there are two adapters, 'a' and 'b'" convert --merge-lora --base model other none
unfit plain.json $o.lora_embedding_A 2,48 1 $o.lora_B.weight 32,2 3
refuses "matrices of two kinds" 3 "is not a key that PEFT saves of" convert --merge-lora --base model other none
unfit plain.json base_model.model.lm_head.weight 99,32 1
jq '.target_parameters = ["o_proj.weight"]' plain.json >targets.json && unfit targets.json $o.lora_A.weight 8,48 1 $o.lora_B.weight 32,8 3
"$DCPKIT" compare-two-checkpoint lora lora 2>said | grep '^verdict'

# Into the base: one weight changes, by 3 B A; with any threads and memory; for Megatron the same.
merge --verify --dtype float32 --threads 1 --memory 16M lora merged && sums 3 merged
convert --quiet --to huggingface --dtype float32 model wide
diff <(hashes wide) <(hashes merged) | grep '^[<>]' | cut -d ' ' -f 1,3
merge --dtype float32 --threads 7 lora merged7 && diff -r merged merged7 && echo "the same bytes"
cp -r lora merged7/lora_adapter && "$DCPKIT" inspect merged7 2>&1 | grep 'note: an adapter'
merge lora rounded && convert --quiet --to huggingface --dtype bfloat16 merged again && cmp rounded/model.safetensors again/model.safetensors
diff model/config.json rounded/config.json | grep -E 'eps|theta|layers' || echo "the same configuration"
merge --to torch_dist lora run && convert --quiet --to torch_dist rounded run2 && "$DCPKIT" compare-two-checkpoint run run2 | grep '^verdict'
convert --merge-lora --base model --dry-run lora nothing >told && grep -E '^would|note.*(adapter|family)' told

# A base of a run: its moments are of other weights than the merged ones, and stay behind.
convert --quiet --to dcp --layout model. "$SAMPLES/torch_dist_c_dense_tp2pp2" trained
rm -rf other && adapter other plain.json $o.lora_A.weight 2,64 1 $o.lora_B.weight 64,2 3
convert --merge-lora --base trained --to torch_dist other resumed | grep 'of weights as' && ls resumed && "$DCPKIT" inspect --quiet resumed | grep '^optim'

# One projection of the attention has an adapter, and all three become one dtype.
q=base_model.model.model.layers.0.self_attn.q_proj # [48, 32]
rm -rf other && adapter other plain.json $q.lora_A.weight 2,32 1 $q.lora_B.weight 48,2 3
merge --verify other one && merge --verify --dtype float32 other one32 && convert --quiet --to huggingface --dtype bfloat16 one32 again32
diff <(hashes one) <(hashes again32) && echo "rounded once"

# Scales: of rsLoRA, of patterns (the first that matches counts), of a file of the caller's.
scale() {
    rm -rf other out && jq "$1" plain.json >other.json
    adapter other other.json $o.lora_A.weight 2,48 1 $o.lora_B.weight 32,2 3 && merge --dtype float32 other out && sums "$2" out
}
scale '.use_rslora = true | .lora_alpha = 8' 5.656854249492381
scale '.alpha_pattern = {"k_proj": 9, "o_proj": 2, "self_attn.o_proj": 100}' 1
scale '.alpha_pattern = {"proj": 9, "^model.layers.1.self_attn.o_proj": 1}' 0.5
scale '.rank_pattern = {"layers\\.[0-9]+\\.self_attn\\.(o|q)_proj": 2} | .r = 8' 3
scale '.alpha_pattern = ([range(4000) | {("m" + tostring): 1}] | add + {"o_proj": 2})' 1
scale '.alpha_pattern = {"(.*)(.*)(.*)[!?]": 1}' 3 # takes steps, and does not match; of many each has fewer
scale '.init_lora_weights = "gaussian" | .loftq_config = {} | .modules_to_save = ["lm_head"]' 3
echo '{"r": 2, "lora_alpha": -4}' >given.json && rm -rf out && merge --dtype float32 --adapter-config given.json lora out && sums -2 out

# A whole module in the place of the base's; one that is stored turned does not fit this base.
rm -rf other && adapter other plain.json $o.lora_A.weight 2,48 1 $o.lora_B.weight 32,2 3 base_model.model.lm_head.weight 99,32 1
merge other saved && "$DCPKIT" print-tensor saved 'lm_head.weight[98, :6]'
convert --quiet --to peft --dtype float32 other wide_other && hashes wide_other | cut -d ' ' -f 2
h=base_model.model.lm_head # PEFT saves the base of an output layer that has an adapter, too: w + 3 B A is 10 (j % 4)
rm -rf other && adapter other plain.json $h.lora_A.weight 2,32 1 $h.lora_B.weight 99,2 3 $h.base_layer.weight 99,32 1
merge --verify other headed && "$DCPKIT" print-tensor headed 'lm_head.weight[98, :6]'
cp -rL model tied && jq '.tie_word_embeddings = true' model/config.json >tied.json && mv tied.json tied/config.json
refuses "an output layer that is tied" 3 "changes 'lm_head.weight', and the base's embedding and output layer are tied" convert --merge-lora --base tied other none

# A model of no map is merged alike; a layer that may be tied is refused.
cp -rL model odd && jq '.model_type = "odd" | .architectures = ["OddForCausalLM"]' model/config.json >odd.json && mv odd.json odd/config.json
convert --quiet --merge-lora --keep-other --verify --dtype float32 --base odd lora kept && diff <(hashes merged) <(hashes kept) && echo "without a map: the same"
refuses "an output layer of no map" 3 "no map knows whether the base ties" convert --merge-lora --keep-other --base odd other none

# Whole tensors of both layers that are tied: one tensor, if they are equal. PEFT writes them under up to three names, and the base's own under a fourth.
# The run may have resized the vocabulary. both ROWS STEP: the embedding's numbers.
both() {
    rm -rf both && adapter both plain.json $o.lora_A.weight 2,48 1 $o.lora_B.weight 32,2 3 $h.original_module.weight "$1,32" 3 \
        $h.modules_to_save.weight "$1,32" 1 $h.weight "$1,32" 1 base_model.model.model.embed_tokens.weight "$1,32" "$2"
}
"$DCPKIT" modify-state-dict --quiet --op 'remove lm_head' tied tied1
both 99 2 && refuses "tied and different" 3 "'base_model.model.lm_head.*' and 'base_model.model.model.embed_tokens.weight' of the adapter differ, and" convert --merge-lora --base tied1 both none
both 99 1 && convert --quiet --merge-lora --verify --base tied1 both retied && hashes retied | grep -c -e lm_head -e embed_tokens && "$DCPKIT" print-tensor retied 'model.embed_tokens.weight[98, :6]'
both 101 1 && convert --merge-lora --verify --base tied1 both wider | grep -o 'the vocabulary.*' && "$DCPKIT" print-tensor wider 'model.embed_tokens.weight[100, :6]' && jq .vocab_size wider/config.json

# An embedding's matrices are of the transpose: w + 3 (B A)^T, with B[d, k] = (6 d + 3 k) % 4 and A[k, t] = (99 k + t) % 4.
e=base_model.model.model.embed_tokens
rm -rf other && adapter other plain.json $e.lora_embedding_A 2,99 1 $e.lora_embedding_B 32,2 3 $e.base_layer.weight 99,32 1
merge --verify other embedded && "$DCPKIT" print-tensor --json embedded model.embed_tokens.weight | jq -c '.values | flatten as $v | [range(3168) | (. % 32) as $d |
    (. / 32 | floor) as $t | $v[.] - . % 4 - 3 * ([0, 1] | map(((6 * $d + 3 * .) % 4) * ((99 * . + $t) % 4)) | add)] | unique'

# An adapter of the class without an output layer lacks the first part of names, and so may its base.
"$DCPKIT" modify-state-dict --quiet --op "rename ^model\\. ''" model bare
rm -rf other && adapter other plain.json ${o/model.model.model/model.model}.lora_A.weight 2,48 1 ${o/model.model.model/model.model}.lora_B.weight 32,2 3
for base in model bare; do
    rm -rf out && convert --quiet --merge-lora --dtype float32 --base $base other out && diff <(hashes merged) <(hashes out) && echo "$base: the same"
done

# Parameters of all experts, which files have one by one under other names: matrices of 3 experts, of rank 2 and 1. Mixtral's router has two names, too.
echo '{"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "vocab_size": 4, "hidden_size": 5, "num_hidden_layers": 1, "num_attention_heads": 2,
  "num_key_value_heads": 1, "head_dim": 2, "intermediate_size": 3, "num_local_experts": 3, "num_experts_per_tok": 2, "max_position_embeddings": 8, "rope_theta": 1e4,
  "sliding_window": null, "torch_dtype": "bfloat16"}' >moe.json
weights="model.embed_tokens.weight 4,5 1 lm_head.weight 4,5 1 model.norm.weight 5 1"
l=model.layers.0
for part in input_layernorm,5 post_attention_layernorm,5 self_attn.q_proj,4,5 self_attn.k_proj,2,5 self_attn.v_proj,2,5 self_attn.o_proj,5,4 block_sparse_moe.gate,3,5; do
    weights+=" $l.${part%%,*}.weight ${part#*,} 1"
done
for n in 0 1 2; do weights+=" $l.block_sparse_moe.experts.$n.w1.weight 3,5 1 $l.block_sparse_moe.experts.$n.w3.weight 3,5 1 $l.block_sparse_moe.experts.$n.w2.weight 5,3 1"; done
# shellcheck disable=SC2086 # they are words
adapter moe moe.json $weights && mv moe/adapter_config.json moe/config.json && mv moe/adapter_model.safetensors moe/model.safetensors
jq '.r = 1 | .lora_alpha = 2 | .target_parameters = ["mlp.experts.gate_up_proj", "down_proj", "gate.weight"] | .rank_pattern = {".*\\.gate_up_proj": 2} |
    .alpha_pattern = {"gate.weight": 3}' plain.json >experts.json
x=base_model.model.$l.mlp
experts() {
    rm -rf other && adapter other experts.json "$x.experts.base_layer.lora_A.weight" 6,5 1 "$x.experts.base_layer.lora_B.weight" "$1" 1 \
        "$x.experts.lora_A.weight" 3,3 1 "$x.experts.lora_B.weight" 5,3 1 "$x.gate.lora_A.weight" 1,5 1 "$x.gate.lora_B.weight" 3,1 1
}
experts 6,6 && convert --quiet --merge-lora --verify --base moe other mixed
# left EXPR PART: values of a merged weight less w and less the product, which is a function of row $i, column $j.
left() {
    "$DCPKIT" print-tensor --json mixed "$l.block_sparse_moe.$2.weight" |
        jq -c "[.values | . as \$v | range(length) as \$i | range(.[0] | length) as \$j | \$v[\$i][\$j] - (\$i * (\$v[0] | length) + \$j) % 4 - $1] | unique"
}
for n in 0 1 2; do
    left "([0, 1] | map(((6 * \$i + 3 * . + $n) % 4) * ((5 * (2 * $n + .) + \$j) % 4)) | add)" "experts.$n.w1"
    left "([0, 1] | map(((6 * (3 + \$i) + 3 * . + $n) % 4) * ((5 * (2 * $n + .) + \$j) % 4)) | add)" "experts.$n.w3"
    left "2 * ((3 * \$i + $n) % 4) * ((3 * $n + \$j) % 4)" "experts.$n.w2"
done
left "3 * (\$i % 4) * (\$j % 4)" gate
experts 5,6 && refuses "rows of no expert" 3 "does not fit its base: '$l.block_sparse_moe.experts.0.w3.weight'" convert --merge-lora --base moe other none
experts 6,4 && refuses "another number of experts" 3 "are not matrices of 3 experts" convert --merge-lora --base moe other none

# Out of a checkpoint of a run: the keys as PEFT has them, the bytes as they are stored.
convert --quiet --to dcp --layout model.base_model.model. model whole
"$DCPKIT" modify-state-dict --quiet --op 'rename (layers.0.self_attn.)k_proj \1x.lora_A.default' --op 'rename (layers.0.self_attn.)v_proj \1x.lora_B.default' \
    --op 'rename lm_head lm_head.modules_to_save.default' whole release && mv release of_run
refuses "no alpha" 3 "no adapter_config.json or lora_train_meta.json next to it.*--adapter-config" convert --to peft of_run none
convert --quiet --to peft --adapter-config plain.json of_run out_of && find out_of -type f | LC_ALL=C sort && jq -c . out_of/adapter_config.json
hashes out_of | cut -d ' ' -f 2
diff <(hashes out_of | cut -d ' ' -f 1 | sort) <(hashes whole | grep -E 'layers.0.self_attn.[kv]_proj|lm_head' | cut -d ' ' -f 1 | sort) && echo "the same tensors"
echo '{"r": 24, "lora_alpha": 1.5, "task_type": "CAUSAL_LM"}' >of_run/lora_train_meta.json
convert --to peft of_run with_meta 2>said | grep 'left out' && jq -c . with_meta/adapter_config.json
refuses "an adapter with its base" 3 "belongs to an adapter .LoRA.*to huggingface writes both.*--merge-lora merges it.*--drop RE" convert --to dcp --layout model. of_run none
refuses "a module that is not in the base" 3 "the base has no 'lm_head.weight', which the adapter replaces" convert --merge-lora --hf-config model/config.json of_run none
jq '.init_lora_weights = "pissa"' plain.json >pissa.json # its base is the one that was changed
refuses "PiSSA with the run's base" 3 "the base has no 'lm_head.weight'" convert --merge-lora --hf-config model/config.json --adapter-config pissa.json of_run none
refuses "PiSSA alone" 3 "which changed the base" convert --to peft --adapter-config pissa.json of_run none
refuses "experts in a run" 3 "\"target_parameters\" is set" convert --to peft --adapter-config experts.json of_run none
refuses "no adapter in it" 3 "no tensors of an adapter" convert --to peft whole none
jq '.bias = "all"' plain.json >all.json
refuses "biases in a run" 3 "\"bias\" is 'all': biases of the model were trained" convert --to peft --adapter-config all.json of_run none
refuses "of peft to peft" 2 "the adapter is peft already" convert --to peft lora none
convert --to peft --dtype float32 lora wide_lora 2>said | sed -n '1s/, .*//p'
refuses "--to peft, --verify" 2 "is a part of a model.*leave --verify" convert --verify --to peft of_run none

refuses "an adapter alone" 3 "it is an adapter of PEFT .LoRA., not a model .convert --merge-lora merges it; --base DIR gives its model if IN does not hold it, --adapter-config FILE" convert --to huggingface lora none
refuses "no --base" 3 "not a model .*--base DIR" convert --merge-lora lora none
refuses "a base alone" 2 "--base is for --merge-lora" convert --to huggingface --base model lora none
refuses "a model alone" 2 "no tensors of an adapter" convert --merge-lora model none
refuses "a base of Megatron's" 2 "has the format torch_dist, but adapters merge only into models" convert --merge-lora --base run lora none
refuses "two models" 3 "'model': there is no adapter_model.safetensors.*no tensor of an adapter" merge model none
refuses "OUT in the adapter" 2 "" merge lora lora/out
refuses "a report in the base" 2 "" merge --report model/report lora none
# kind LABEL REGEX JQ: a configuration that is refused.
kind() {
    rm -rf other && jq "$3" plain.json >other.json
    adapter other other.json $o.lora_A.weight 2,48 1 $o.lora_B.weight 32,2 3
    refuses "$1" 3 "$2" merge other none
}
for key in use_dora use_qalora use_new lora_bias megatron_config kasa_config trainable_token_indices layer_replication alora_invocation_tokens; do
    kind "$key" "\"$key\" is set" ".$key = [1]"
done
kind "another kind" "\"peft_type\" is 'IA3'" '.peft_type = "IA3"'
kind "PiSSA" "\"init_lora_weights\" is 'pissa_niter_4'" '.init_lora_weights = "pissa_niter_4"'
kind "rank 0" '"r" is not a rank from 1 on' '.r = 0'
kind "half a rank" '"r" is not a rank from 1 on' '.r = 2.5'
kind "another rank" "the rank of 'model.layers.1.self_attn.o_proj' is 2, and the configuration has 3" '.r = 3'
kind "no alpha" '"lora_alpha" is missing' 'del(.lora_alpha)'
kind "alpha of 0" '"lora_alpha" is not a number other than 0' '.lora_alpha = 0'
kind "text for alpha" '"lora_alpha" is not a number' '.lora_alpha = "16"'
kind "too large an alpha" "which float32 cannot hold" '.lora_alpha = 1e300'
kind "no object" "it is not an object" '[.]'
kind "patterns in a list" '"alpha_pattern" is not an object' '.alpha_pattern = ["q"]'
kind "a pattern that is none" '"alpha_pattern"' '.alpha_pattern = {"q(": 1}'
kind "a pattern that tries all ways" 'o_proj|steps' '.alpha_pattern = {"([a-z_.0-9]+)+[!?]": 1}'
kind "one of many that takes steps" 'needs more than 2500 steps' '.alpha_pattern = ([range(3999) | {("m" + tostring): 1}] | add + {"(.*)(.*)(.*)[!?]": 1})'
kind "too many patterns" '5000 patterns, the limit is 4096' '.alpha_pattern = ([range(5000) | {("m" + tostring): 1}] | add)'
kind "a rank of a pattern" '"o_proj" is not a rank' '.rank_pattern = {"o_proj": -2}'
sed 's/"lora_alpha": 6/"lora_alpha": NaN/' plain.json >nan.json && rm -rf other && adapter other nan.json $o.lora_A.weight 2,48 1 $o.lora_B.weight 32,2 3
refuses "alpha NaN" 3 "adapter_config.json" merge other none
# parts LABEL REGEX [NAME SHAPE STEP]...: tensors that are refused.
parts() {
    local label=$1 regex=$2
    shift 2
    rm -rf other && adapter other plain.json "$@"
    refuses "$label" 3 "$regex" merge other none
}
parts "lora_A alone" "has lora_A of 'model.layers.1.self_attn.o_proj' and no lora_B" $o.lora_A.weight 2,48 1
parts "lora_B alone" "has lora_B of 'model.layers.1.self_attn.o_proj' and no lora_A" $o.lora_B.weight 32,2 1
parts "another width" "does not fit its base: .*lora_A.weight' is bfloat16 .2, 47" $o.lora_A.weight 2,47 1 $o.lora_B.weight 32,2 3
parts "turned" "does not fit its base" $o.lora_A.weight 2,32 1 $o.lora_B.weight 48,2 3
parts "ranks that differ" "does not fit its base" $o.lora_A.weight 2,48 1 $o.lora_B.weight 32,3 3
parts "a vector" "does not fit its base" $o.lora_A.weight 96 1 $o.lora_B.weight 32,2 3
parts "no layer" "the base has no 'model.layers.7.x.weight'" ${o/1.self_attn.o_proj/7.x}.lora_A.weight 2,48 1 ${o/1.self_attn.o_proj/7.x}.lora_B.weight 32,2 3
parts "a norm" "does not fit its base" ${o/self_attn.o_proj/input_layernorm}.lora_A.weight 2,32 1 ${o/self_attn.o_proj/input_layernorm}.lora_B.weight 32,2 3
parts "an embedding's" "has lora_A of 'model.embed_tokens' and no lora_B" $e.lora_embedding_A 2,99 1
parts "no such matrix" "lora_embedding_C' belongs to an adapter that is not plain LoRA" $e.lora_embedding_C 2,99 1
parts "rows of tokens" "trainable_tokens_delta' belongs to an adapter that is not plain LoRA" $e.token_adapter.trainable_tokens_delta 2,32 1
parts "a bias" "the base has no 'model.layers.1.self_attn.o_proj.bias', which the adapter replaces" $o.base_layer.bias 32 1
parts "a magnitude" "lora_magnitude_vector' belongs to an adapter that is not plain" $o.lora_magnitude_vector 32 1
parts "another beginning" "does not begin with 'base_model.model.'" model.layers.1.self_attn.o_proj.lora_A.weight 2,48 1
parts "another head" "'model.embed_tokens.weight' has 99 rows, and 'vocab_size' is 100" $o.lora_A.weight 2,48 1 $o.lora_B.weight 32,2 3 base_model.model.lm_head.weight 100,32 1
parts "nothing" "the adapter has no lora_A" base_model.model.lm_head.weight 99,32 1
cp -r lora cut && truncate -s -1 cut/adapter_model.safetensors && refuses "cut short" 3 "adapter_model.safetensors" merge cut none
rm lora/adapter_config.json && refuses "no configuration" 3 "no adapter_config.json" merge lora none
touch lora/adapter_config.json && refuses "an empty configuration" 3 "adapter_config.json" merge lora none
"$DCPKIT" inspect lora 2>said | grep ^format && cat said
mkdir pickled && touch pickled/adapter_model.bin pickled/adapter_config.json && refuses "a pickle" 3 "it is an adapter of PEFT in a pickle.*save_file" merge pickled none
