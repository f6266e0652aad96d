#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# hub.sh - a run of Megatron's and a model of Hugging Face's under names of trainers on DCP, and back.
convert() { "$DCPKIT" convert "$@"; }
keys() { "$DCPKIT" hash "$1" | awk '{print $2}'; }
run=$SAMPLES/torch_dist_c_dense_tp2pp2
sample safetensors_qwen3 model

# The optimizer goes along, through both schemes: all but the padding of the vocabulary and what trainers do not have.
for layout in app.model. titan; do
    convert --quiet --verify --to dcp --layout $layout "$run" "$layout"
    "$DCPKIT" inspect --quiet "$layout" | grep '^format'
    convert --quiet --to torch_dist --args-from "$run" "$layout" "back_$layout" && ls "back_$layout"
    "$DCPKIT" compare-two-checkpoint "$run" "back_$layout" | grep -E '^  [a-z_.]*weight |^(weights|masters|moments)' | sed 's/;.*//'
done
keys titan | grep -E '^optim.*(s.0.*wqkv.weight.(exp|step|lr)|groups.norm.weight.(lr|params))|^norm'
keys app.model. | grep -E 'param_groups.(0.params|0.lr)|optim.state.lm_head|param_groups.lm_head.weight.betas'
convert --quiet --to dcp --layout titan app.model. titan2
convert --quiet --to dcp --layout app.model titan2 app2
diff <("$DCPKIT" hash app.model.) <("$DCPKIT" hash app2) && echo "there and back: equal"
convert --quiet --to dcp --layout titan-unfused titan2 unfused && keys unfused | grep -c 'state.*w[qkv].weight.exp_avg$'
convert --quiet --to torchtitan unfused fused && diff <("$DCPKIT" hash titan2) <("$DCPKIT" hash fused) && echo "fused again: equal"

# A model of Hugging Face's: one file for each size, resumed, without a prefix.
convert --quiet --to dcp --layout titan --max-shard-size 20KB model small && find small -name '*.distcp' | wc -l
convert --resume --to dcp --layout titan --max-shard-size 20KB model small | sed -n '1s/, .*//p'
convert --quiet --to huggingface small again && diff <("$DCPKIT" hash model) <("$DCPKIT" hash again) && echo "and back: equal"
mkdir bare && cp model/*.safetensors* bare # torchtitan's last export, of Hugging Face's names
convert --quiet --verify --to huggingface --hf-config model/config.json bare whole && diff <("$DCPKIT" hash model) <("$DCPKIT" hash whole) && ls whole
convert --quiet --to dcp --layout '' model plain && keys plain | grep embed
convert --quiet --to dcp_hf --output-model-weight-prefix x.model --output-optimizer-state-prefix y app.model. named && keys named |
    grep -E 'norm.weight(.step)?$' | tail -n 2

# Without a prefix, state of the run is known by whole names: "step_size" and "optimal" are of a model.
"$DCPKIT" modify-state-dict --quiet --op 'rename ^model.norm.weight$ step_size.w' --op 'rename ^lm_head.weight optimal.w' plain release && mv release odd
refuses "keys that begin as others" 3 "'step_size.w'" convert --to huggingface odd out

# A critic has another head: everything keeps its name.
"$DCPKIT" modify-state-dict --quiet --op 'rename ^lm_head score' plain release && mv release critic && sed 's/ForCausalLM/ForTokenClassification/' plain/config.json >critic/config.json
refuses "a critic" 3 "no rule takes 'score.weight'; convert's option keep-other would keep" convert --to hf critic out
convert --quiet --verify --keep-other --to dcp --layout x. critic critic2 && convert --quiet --verify --keep-other --to hf critic2 critic3 && keys critic3 | grep score

refuses "no layout" 2 '--to dcp needs --layout' convert --to dcp model out
refuses "a layout of another format" 2 '--layout is for --to dcp, not for zarr' convert --to zarr --layout titan model out
refuses "two prefixes" 2 'exclude each other' convert --to dcp --layout '' --output-model-weight-prefix x model out

# Damage: state of two optimizers, in part, of no group, at two steps, of other shapes; weights of 16 bits.
damage() {
    local ops=()
    for op; do ops+=(--op "$op"); done
    rm -rf bad release && "$DCPKIT" modify-state-dict --quiet "${ops[@]}" titan2 release >/dev/null && mv release bad
}
damaged() { refuses "$1" 3 "$2" convert --to torch_dist bad out; }
damage 'rename ^optimizer(.state.norm) optim_ema\1'
damaged "two optimizers" "'optim.*.state' and 'optim.*.state.*' are of two optimizers .*--drop RE"
damage 'remove wqkv.weight.exp_avg_sq'
damaged "one moment of two" "'decoder.layers.0.self_attention.linear_qkv.weight' has the state exp_avg but no exp_avg_sq"
damage 'remove state.layers.1.feed_forward.w3.weight.exp_avg$'
damaged "a part" "'layers.1.feed_forward.w3.weight' has no exp_avg, and other parts"
damage 'remove param_groups.norm'
damaged "no group" "'norm.weight' has optimizer state and is in no parameter group .*--weights-only"
damage 'cast norm.weight.step bfloat16'
damaged "a step that is none" "'optimizer.state.norm.weight.step' is not a single float32"
damage 'rename exp_avg_sq$ exp_inf'
damaged "Adamax" "the optimizer is Adamax, by 'optimizer.state.[a-z._0-9]*.exp_inf': Megatron would .*--weights-only"
damage 'remove exp_avg_sq$'
damaged "one moment" "the optimizer is one without exp_avg_sq, such as Lion, by "
damage 'remove amsgrad$'
damaged "RAdam" "the optimizer is RAdam .*by 'optimizer.param_groups.[a-z._0-9]*.differentiable'"
convert --quiet --to dcp --layout titan bad radam && diff <(keys bad) <(keys radam) && echo "no field of Adam's is added"
damage 'remove maximize$' 'rename decoupled_weight_decay$ maximize'
damaged "maximize" "the optimizer is one that maximizes, by 'optimizer.param_groups.[a-z._0-9]*.maximize'"
damage 'cast ^(norm|layers|tok|lm) bfloat16'
damaged "no masters" "is bfloat16 and trained: Megatron loads optimizer state with float32 masters"
convert --quiet --weights-only --to torch_dist bad weights && ls weights
convert --quiet --trust weights --verify --to torch_dist bad trusted && "$DCPKIT" inspect trusted | grep -E '^ +(weights|masters|moments) '

# The model and its optimizer in a folder each, as accelerate has them, are one checkpoint.
mkdir -p run/checkpoint-4 parts
part() {
    "$DCPKIT" modify-state-dict --quiet --compact --op "$2" app2 release >/dev/null && mv release "run/checkpoint-4/$1"
}
part pytorch_model_fsdp_0 'keep ^app\.model\.' && part optimizer_0 'remove ^app\.model\.'
"$DCPKIT" inspect run 2>/dev/null | grep -E '^(checkpoint|format|stored)'
diff <("$DCPKIT" hash app2) <("$DCPKIT" hash run) && echo "in two folders: equal"
convert --quiet --to dcp --layout titan --hf-config app2/config.json run titan3 && diff <("$DCPKIT" hash titan2) <("$DCPKIT" hash titan3) && echo "converted: equal"
"$DCPKIT" verify --quiet run | tail -n 1
for inside in checkpoint-4 .; do # and in an archive, with a folder around them and without
    tar -C "run/$([ $inside = . ] && echo checkpoint-4)" -cf parts.tar $inside
    diff <("$DCPKIT" hash app2) <("$DCPKIT" hash parts.tar) && "$DCPKIT" inspect --quiet parts.tar | grep -E '^(checkpoint|format)'
done
"$DCPKIT" inspect --quiet parts.tar:pytorch_model_fsdp_0 | grep '^stored'
cp -r run/checkpoint-4/optimizer_0 run/checkpoint-4/optimizer_1
refuses "two optimizers" 3 "several checkpoints; give one of them: 'checkpoint-4/optimizer_0', 'checkpoint-4/opt" "$DCPKIT" inspect run
tar -C run -cf parts.tar checkpoint-4
refuses "two optimizers in an archive" 3 "the archive holds 3 checkpoints" "$DCPKIT" inspect parts.tar
rm -r run/checkpoint-4/optimizer_1 && cp run/checkpoint-4/{pytorch_model_fsdp_0,optimizer_0}/.metadata
refuses "a key in both" 3 "reading 'optimizer_0/.metadata': .*occurs twice" "$DCPKIT" inspect run
rm run/checkpoint-4/optimizer_0/.metadata
refuses "a save cut short" 3 "its folder 'checkpoint-4/optimizer_0' is not whole: .*none: take an earlier one; give one that is: 'checkpoint-4/pytorch_model_fsdp_0'" "$DCPKIT" inspect run
mkdir -p job/step-10 && mv run/checkpoint-4/optimizer_0 job/step-20
refuses "the only save cut short" 3 "its folder 'step-20' is not whole" "$DCPKIT" inspect job
