#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# merge.sh - weighted sums of checkpoints of several formats; what is refused; resumed and shared runs.
merge() { "$DCPKIT" merge "$@"; }
convert() { "$DCPKIT" convert --quiet "$@"; }
sample torch_dist_c_dense_tp2pp2 first
dense=$SAMPLES/fsdp_dtensor_native_dp2
sample safetensors_qwen3 model

merge -v --weights 0.5,0.5 --verify first "$dense" sum | grep -E 'verified|to load|of the run|^  to '
cat sum/latest_checkpointed_iteration.txt && echo
"$DCPKIT" check sum | tail -n 1
"$DCPKIT" inspect sum | grep -E '^(format|parameters|optimizer)'

# Of runs, the iteration that is asked for; what has no sum is listed.
cp -r first/iter_0000004 first/iter_0000008 && printf 8 >first/latest_checkpointed_iteration.txt
merge --iteration 4 --weights 0.5,0.5 first "$dense" fourth | grep '^  from'
rm -r first/iter_0000008 && printf 4 >first/latest_checkpointed_iteration.txt
diff -r -x .metadata sum fourth && echo "iteration 4: the same bytes"
merge -v --weights 1,1 "$SAMPLES/torch_dist_c_extra_state" "$SAMPLES/torch_dist_c_extra_state" fp8 | grep '\._extra_state'
convert --to fsdp_dtensor --weights-only "$SAMPLES/torch_dist_c_moe_bias" biased
merge --weights 1,1 --drop router.bias biased biased unbiased 2>said | grep -A 1 'please check'

# One weight of 1: that checkpoint's values, whatever is beside it; half of it twice is it as well.
convert --to huggingface --dtype float32 first want
for weights in 1,0 0.5,0.5 2,-1; do
    merge --quiet --weights $weights --to huggingface --dtype float32 first first got_$weights
    cmp want/model.safetensors got_$weights/model.safetensors && echo "$weights: the same bytes"
done
merge --weights 2,-0.5 --dry-run first first none | grep 'add up'

# Any three formats, in any order of what each is; the vocabulary is padded in two of them.
convert --to torch_dist model run
convert --to zarr --target-mesh tp=2 model run_zarr
for to in torch_dist fsdp_dtensor zarr huggingface; do
    merge --quiet --verify --weights 0.25,0.25,0.5 --to $to model run run_zarr all_$to
    "$DCPKIT" compare-two-checkpoint model all_$to | tail -n 1
done
merge --quiet --verify --weights 0.25,0.75 run model by_first && "$DCPKIT" compare-two-checkpoint run by_first | tail -n 1

# Archives; sixteen of them.
tar cf run.tar run && tar czf model.tar.gz model
merge --quiet --weights 0.25,0.25,0.5 --to zarr run.tar run_zarr model.tar.gz packed && diff -r all_zarr packed && echo "archives: the same bytes"
sixteen=(first "$dense" first "$dense" first "$dense" first "$dense" first "$dense" first "$dense" first "$dense" first "$dense")
merge --quiet --weights "$(printf '0.0625,%.0s' {1..15})0.0625" "${sixteen[@]}" of_16
diff -r -x .metadata sum of_16 && echo "sixteen: the same bytes"

# Threads, memory and ranks do not show in the bytes.
merge --quiet --weights 0.3,0.7 --threads 1 --memory 16M first "$dense" one
merge --quiet --weights 0.3,0.7 --threads 7 first "$dense" many
diff -r one many && echo "threads: the same bytes"
merge -v --weights 0.3,0.7 --resume first "$dense" one | grep -c '^already complete\|equal to the existing output'
refuses "another sum" 2 'differs from the output of this input' merge --weights 0.4,0.6 --resume first "$dense" one

# What shapes do not show: runs that compute other things have no sum, unless the user says what all of them compute.
cp -r model other && sed -i 's/"rope_theta": 1000000.0/"rope_theta": 5000.0/' other/config.json
refuses "another theta" 1 "not of one model: they differ from 'model' in 1 args: 'other' has another args.rotary_base$" \
    merge --weights 0.5,0.5 --dry-run model other none
echo '{"rotary_base": 1000000}' >args.json
merge --weights 0.5,0.5 --dry-run --args-from args.json model other none | grep -c '^  from'
echo '{"vocab_size": 100}' >args.json && convert --args-from args.json --to zarr run more
refuses "a token more" 1 "has 100 tokens \(args.vocab_size\) and not 99$" merge --weights 0.5,0.5 run more none
refuses "and in the first" 1 "has 99 tokens \(args.vocab_size\) and not 100$" merge --weights 0.5,0.5 more run none

for arg in rotary_seq_len_interpolation_factor:4 qk_l2_norm:true glu_linear_offset:1 softmax_type:'"off-by-one"'; do
    echo "{\"${arg%%:*}\": ${arg#*:}}" >args.json
    convert --args-from args.json --to torch_dist --force model told
    refuses "${arg%%:*}" 1 "'told/release' has another args.${arg%%:*}" merge --weights 0.5,0.5 --dry-run model told none
    refuses "${arg%%:*}" 1 "'model' has another args.${arg%%:*}" merge --weights 0.5,0.5 --dry-run told model none
done

echo '{"rotary_percent": 1}' >args.json && convert --args-from args.json --to torch_dist --force model told
merge --weights 0.5,0.5 --dry-run model told none | grep -c '^  from'

# Weights of norms that one of them stores less one: summed as the first has them.
echo '{"layernorm_zero_centered_gamma": true}' >args.json
convert --args-from args.json --to torch_dist model centered
convert --to huggingface centered want_norms
merge --quiet --verify --weights 0,1 --to huggingface model centered as_they_are
cmp want_norms/model.safetensors as_they_are/model.safetensors && echo "plus one: the same bytes"
merge --quiet --verify --weights 0,1 centered model less_one && "$DCPKIT" compare-two-checkpoint centered less_one | tail -n 1
merge --weights 0.2,0.3,0.5 --dry-run model centered model none | grep 'plus one'
merge --weights 0.2,0.3,0.5 --dry-run centered model model none | grep -c 'less one'
convert --to fsdp_dtensor --weights-only model fsdp && "$DCPKIT" modify-state-dict --op 'remove ^args$' fsdp argless >said
merge --weights 0.5,0.5 --dry-run centered argless none | grep 'no args'
echo '{"moe_mlp_glu_interleave_size": 32}' >args.json
convert --weights-only --accept-gtp --args-from args.json --to zarr "$SAMPLES/torch_dist_c_moe_ep2pp2" blocks
refuses "rows in another order" 3 'in other orders, by args.moe_mlp_glu_interleave_size' \
    merge --accept-gtp --weights 1,1 "$SAMPLES/torch_dist_c_moe_ep2pp2" blocks none

refuses "no weights" 2 'a number for each' merge first "$dense" none
refuses "too few weights" 2 '1 numbers for 2 checkpoints' merge --weights 1 first "$dense" none
refuses "too many weights" 2 '3 numbers for 2' merge --weights 1,2,3 first "$dense" none
for weights in 1,x "1," ,1 nan,1 1e999,1 1,inf 1e39,1 1,-1e308; do
    refuses "weights $weights" 2 'is not a list of numbers' merge --weights=$weights first "$dense" none
done
refuses "one checkpoint" 2 'merge' merge --weights 1 first none
refuses "OUT in B" 2 'is inside' merge --weights 1,1 first run run/new
refuses "OUT exists" 2 'exists \(--force' merge --weights 1,1 first "$dense" sum
refuses "a report in B" 2 'is inside' merge --weights 1,1 --report first/report.json "$dense" first none
refuses "other sizes" 1 "not of one model: they differ from 'first/iter_0000004' in 27 parameters: .* has 'embedding.word_embeddings.weight' as float32 \[4096, 32\] and not float32 \[256, 64\]; .*; \.\.\.$" \
    merge --weights 1,1 first "$SAMPLES/torch_dist_a_dense_tp2pp2" none
refuses "other layers" 1 "in 33 parameters: 'model' lacks 'decoder.layers.3.*'; lacks .*; alone has 'decoder.layers.0.*q_layernorm.weight'; .*; \.\.\.$" \
    merge --weights 1,1 first model none
"$DCPKIT" modify-state-dict --op 'remove layers.1.self_attn.q_norm' --op 'rename (up_proj) more' model less >said
refuses "a folder that is none" 3 "the map of qwen3 does not fit, in 7 places" merge --weights 1,1 model less none
refuses "another iteration" 3 "has no iteration 5; it has 4" merge --iteration 5 --weights 1,1 first first none
[ ! -e none ] || echo "something was written"

# Under a trainer's names the family is that of the models.
merge --quiet --weights 0.5,0.5 --to dcp_hf model model shards && jq -r '.architectures[0]' shards/config.json

# Outputs of names on DCP, as convert has them; a note of all inputs is printed once.
cp -r model model2
merge --weights 0.5,0.5 --verify --to dcp --layout titan model model2 titan | grep -E '^(merged|  note)' | sed 's/, .*//'
refuses "no layout" 2 '--to dcp needs --layout' merge --weights 1,0 --to dcp model model none
refuses "a layout of zarr" 2 '--layout is for --to dcp, not for zarr' merge --weights 1,0 --to zarr --layout titan model model none
refuses "an adapter" 2 'a merge sums whole models' merge --weights 1,0 --to peft model model none
refuses "names on DCP" 2 "'titan' is torchtitan: give --to torchtitan, or another format" merge --weights 1,0 titan model none
