#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# args_from.sh - checkpoints without args, as Megatron-Bridge and RL frameworks write them; args_from.yaml is what
# PyYAML and megatron/training/config/yaml_utils.py (main of 2026-08-22) make of TransformerConfig, OptimizerConfig
# and DistributedDataParallelConfig with the sizes of the sample; args_from_common.pt is the sample's, by torch, without args.
convert() { "$DCPKIT" convert "$@"; }
config=${BASH_SOURCE[0]%.sh}.yaml
sample fsdp_dtensor_native_dp2 full
"$DCPKIT" modify-state-dict --op 'remove ^args$' full in >said
convert --to torch_dist full want >said
print() { "$DCPKIT" print-tensor --json "$@" | jq -c .value; }
command -v jq >/dev/null || exit 77
yaml=yes
! "$DCPKIT" --version | grep -q 'not built in.*libyaml' || yaml=

refuses "no args" 3 'has no args.* .--args-from takes args from a JSON object' convert --to torch_dist in out
# same FROM: the tensors are those of the checkpoint with args, and OUT is proven.
same() {
    convert --verify --args-from "$1" --to torch_dist in out >said 2>err || cat err
    "$DCPKIT" compare-two-checkpoint --tensors-only want out | tail -n 1
    "$DCPKIT" verify --args-from "$1" --against in out | tail -n 1
    print out args.num_layers
    print out args.params_dtype
    print out args.swiglu
    rm -rf out
}
echo "a checkpoint" && same full
"$DCPKIT" print-tensor --json full args >printed.json
jq .value printed.json >args.json
echo "JSON" && same args.json && same printed.json
if [ -n "$yaml" ]; then
    echo "YAML" && same "$config"
    # What Bridge keeps beside it goes along; its configuration is found where it lies, if that is asked for.
    cp "$config" in/iter_0000004/run_config.yaml
    cp "${BASH_SOURCE[0]%.sh}_common.pt" in/iter_0000004/train_state.pt # a dict that torch.save wrote
    mkdir in/iter_0000004/tokenizer && echo '{}' >in/iter_0000004/tokenizer/tokenizer.json
    refuses "no args, but a configuration" 3 "has no args.* a run_config.yaml of Megatron-Bridge" \
        convert --to torch_dist in out
    echo "beside it" && same in
    convert --integrity --args-from in --to torch_dist in out >said
    convert --resume --args-from in --to torch_dist in out | head -n 1 | cut -d ' ' -f 1-3
    for file in run_config.yaml train_state.pt tokenizer/tokenizer.json; do
        cmp "in/iter_0000004/$file" "out/iter_0000004/$file"
    done
    grep -c '"run_config.yaml"\|"train_state.pt"' out/iter_0000004/integrity.json
    "$DCPKIT" verify out | tail -n 1
    for key in untie_embeddings_and_output_weights padded_vocab_size num_experts ddp_bucket_size lr ckpt_format train_iters activation_func _target_; do
        echo "$key $(print out args.$key 2>/dev/null)"
    done
    # train_state.pt is a pickle that Bridge loads: one that calls something is left out by name, and verify tells.
    cp -r in odd && printf 'no archive' >odd/iter_0000004/train_state.pt
    convert --args-from odd --report odd.json --to torch_dist odd odd_out >said
    [ -e odd_out/iter_0000004/train_state.pt ] && echo "train_state.pt that cannot be read goes along"
    grep -A 1 'train_state.pt' said | head -n 2 || cat said
    "$DCPKIT" verify odd >said || echo "verify: exit $?, $(grep -c "^pickles .*'train_state.pt'" said)"
    tar -cf in.tar in && convert --args-from in --to torch_dist in.tar new.tar >said && tar -tf new.tar | grep -c 'run_config\|train_state\|tokenizer.json'
else
    echo "this build has no libyaml" && exit 77
fi
# A common state without args, and what convert needs them for: rows of fc1, groups of a bucket.
sample torch_dist_b_dense_tp2pp2 full_b
cp -r full_b in_b && cp "${BASH_SOURCE[0]%.sh}_common.pt" in_b/iter_0000004/common.pt
refuses "a common state without args" 2 '--args-from takes args from' convert --to fsdp_dtensor in_b out_b
convert --to fsdp_dtensor full_b want_b >said
convert --verify --args-from full_b --to fsdp_dtensor in_b out_b >said
"$DCPKIT" compare-two-checkpoint want_b out_b | tail -n 1
"$DCPKIT" compare-two-checkpoint full_b in_b | tail -n 1
"$DCPKIT" compare-two-checkpoint --args-from full_b full_b in_b | tail -n 1
"$DCPKIT" verify --against in_b out_b 2>&1 | grep -c 'note: .*in_b. has no args\|^verdict .*NOT ok'
# check asks by them; that the folder lacks them it says all the same.
refuses "check without" 3 'there are no args, which decide what a loader asks for' "$DCPKIT" check in
checked() { "$DCPKIT" check "$@" 2>&1 | grep -E '^(weights|moments|groups|common|not in|loads in|verdict) '; }
checked full
echo "told:"
checked --args-from full in
echo '{"num_layers": 5}' >five.json
"$DCPKIT" check --args-from five.json full | grep -oE 'weights +FAILED'
# One name given anew: it counts before the stored one.
echo '{"seq_length": 16, "lr": 0.5}' >two.json
convert --args-from two.json --to fsdp_dtensor full_b told >said && print told args.lr && print told args.hidden_size

# A name of another release, and one of a configuration, replace the stored one.
echo '{"norm_epsilon": 0.5, "seq_len_interpolation_factor": 4}' >other.json
convert --force --args-from other.json --to fsdp_dtensor full_b told >said && print told args.norm_epsilon
[ -z "$(print told args.layernorm_epsilon 2>/dev/null)" ] || echo "the stored one is still there"
print told args.rotary_seq_len_interpolation_factor

# Sizes that the stored shapes contradict.
for size in num_layers:5 num_layers:3 hidden_size:128 ffn_hidden_size:100 num_attention_heads:8 num_query_groups:4 kv_channels:8 \
    padded_vocab_size:512 vocab_size:500 num_experts:4 swiglu:false; do
    echo "{\"${size%:*}\": ${size#*:}}" >size.json
    refuses "$size" 3 'contradict what is stored|are stored|would cut into' convert --args-from size.json --to zarr full sized
done

# What is no args.
bad() { refuses "$1" "$2" "$3" convert --args-from "$4" --to torch_dist in other; }
echo '[1]' >list.json && bad "a list" 3 'not a mapping of names' list.json
echo '{"a": ' >broken.json && bad "broken JSON" 3 "args from 'broken.json': JSON.*byte" broken.json
echo '{}' >empty.json && bad "nothing in it" 3 'names no args' empty.json
printf 'a: [1\nb: 2\n' >broken.yaml && bad "broken YAML" 3 "line [0-9]*, column [0-9]*: " broken.yaml
printf 'a: &x [*x]\n' >loop.yaml && bad "an alias to itself" 3 'nested deeper than 64' loop.yaml
{
    echo 'a0: &a0 [x, x, x, x, x, x, x, x, x, x]'
    for i in 1 2 3 4 5 6 7 8 9; do echo "a$i: &a$i [$(printf "*a$((i - 1)), %.0s" 1 2 3 4 5 6 7 8 9)*a$((i - 1))]"; done
} >bomb.yaml
# shellcheck disable=SC2086 # BOUNDED is a command with its arguments
refuses "an alias bomb" 3 'more than 100000 values' $BOUNDED "$DCPKIT" convert --args-from bomb.yaml --to torch_dist in other
for ((i = 0; i < 5000; i++)); do echo "name$i: 1"; done >many.yaml && bad "too many names" 3 'more than 4096 args' many.yaml
printf '%02000d' 0 | sed 's/0/[/g' >deep.yaml && bad "brackets in brackets" 3 'YAML|nested' deep.yaml
head -c 5000000 /dev/zero | tr '\0' '#' >long.yaml && bad "a long text" 3 'the limit is 4194304' long.yaml
: >nothing && bad "an empty file" 3 'no document' nothing
bad "no file" 4 'nowhere' nowhere
mkdir folder && bad "a folder with nothing" 3 "looking for a checkpoint in 'folder'" folder
bad "a checkpoint without" 3 'no run_config.yaml is next to it' in_b
refuses "verify of nothing" 2 'is for --against' "$DCPKIT" verify --args-from args.json want
