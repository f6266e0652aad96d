#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# compare_args.sh - differences of the settings of two runs: checkpoints, command lines and configurations, each with each. What was
# changed is named, Megatron-FSDP's first, and nothing else is. Broken and hostile files are refused or named.
args() { "$DCPKIT" compare-two-checkpoint --args "$@"; }
differing() { args --json "$@" | jq -r '.differences[] | "\(.kind) \(.name): \(.a) \(.b)"'; }
command -v jq >/dev/null || exit 77
dense=$SAMPLES/torch_dist_c_dense_tp2pp2

# flags of Megatron: one change of FSDP in a script, in another spelling of everything else
cat >a.sh <<'EOS'
LR=1e-4
torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 4 --lr $LR --ddp-average-in-collective \
    --data-path 30 /data/a 70 \
    "/data/b" --no-save-rng --untie-embeddings-and-output-weights --swiglu --clip-grad 1 --layernorm-epsilon 1e-6 \
    --list 1 2 >log 2>&1
EOS
printf '%s\n' --norm-epsilon=0.000001 --swiglu --overlap-grad-reduce=false --untie_embeddings_and_output_weights --no-save-rng \
    '--data-path 30 /data/a 70 /data/b' '--list 1 2' --lr 0.0001 '--average-in-collective true' --num-layers=04 --nproc-per-node=8 >b
args a.sh b
sed 's/--lr/--use-megatron-fsdp &/; s/70 /71 /; s/--swiglu//' a.sh >c.sh
args a.sh c.sh
echo "exit $?"
# a default is no difference, and the last of two flags counts; a default that releases differ in is one
printf '%s\n' --ckpt-format torch_dist --overlap-grad-reduce=false --moe-router-topk 2 --hidden-dropout 0.1 --no-use-megatron-fsdp --add-bias-linear >defaults
printf '%s\n' --num-layers 4 --num-layers 8 '--seed 1234' >d
printf '%s\n' --num-layers 8 >e
cat defaults e >f
differing d f
printf '%s\n' --num-layers 8 --data-parallel-sharding-strategy optim_grads_params --lr 0.0003 >e
differing d e

# a checkpoint and the flags that make it: folders apart they are equal, in both directions; the switch to Megatron-FSDP is named first
"$DCPKIT" migrate --to ddp --quiet "$dense" >ddp.flags 2>/dev/null
"$DCPKIT" migrate --quiet "$dense" >fsdp.flags 2>/dev/null
differing ddp.flags "$dense" | sed 's/: .*/:/'
differing "$dense" fsdp.flags | sed -n 's/\(load\|save\): .*/\1/; p'
args "$dense" "$SAMPLES/fsdp_dtensor_native_dp2" | sed -n '1,/pipeline/p; $p'
args --strict "$dense" "$SAMPLES/torch_dist_b_dense_tp2pp2" >said
echo "strict: exit $?, $(grep -c 'only in' said) only in one"
args "$SAMPLES/fsdp_dtensor_native_dp2" "$SAMPLES/fsdp_dtensor_native_dp2" | tail -n 1
args --iteration 4 "$dense" ddp.flags | tail -n 1

# configurations, by their sections; next to flags by the names of knobs; lists and objects are values
cat >a.json <<'EOS'
{"model": {"num_layers": 4, "params_dtype": {"_target_": "torch.bfloat16", "_call_": false}, "moe_layer_freq": [0, 1, 1, 1]},
 "ddp": {"use_megatron_fsdp": false, "overlap_grad_reduce": true}, "dist": {"use_megatron_fsdp": false}, "optimizer": {"lr": 1e-4},
 "dataset": {"blend": [["a", "b"], null]}, "other": {"x": "1.10", "names": ["u", "v"]}}
EOS
jq -c '.ddp.use_megatron_fsdp = true | .dist.use_megatron_fsdp = true | .dataset.blend[0][1] = "c" | .other.x = "1.1"
    | .model.params_dtype._target_ = "torch.float16"' a.json >b.json
differing a.json b.json
printf '%s\n' --num-layers 4 --use-megatron-fsdp --lr 0.0001 --overlap-grad-reduce --moe-layer-freq '"[0,1,1,1]"' '--names u v' '--x 1.10' >flags
args flags b.json
jq -c '.dist.use_megatron_fsdp = true' a.json >one.json # either of the two switches of one configuration is that of the run
jq -c '.ddp.use_megatron_fsdp = true' a.json >other.json
differing flags one.json | sed -n '/fsdp/p'
differing one.json other.json
differing a.json other.json
echo '{"ddp.use_megatron_fsdp": true, "checkpoint.strict_fsdp_dtensor_load": false, "no.such": 1}' >flat.json
printf '%s\n' --use-megatron-fsdp --disable-strict-fsdp-dtensor-load >same
differing flat.json same
differing flat.json a.json | sed -n '1p; /strict/p'
if ! "$DCPKIT" --version | grep -q 'not built in.*libyaml'; then
    jq -r 'to_entries[] | "\(.key): \(.value | tojson)"' a.json >a.yaml # maps of YAML are JSON too
    printf 'model:\n  num_layers: 4 # --lr 3\n  script: "--lr 5"\n' >script.yaml
    differing a.json a.yaml 
    args script.yaml a.yaml | sed -n '/only in A/p' # it has no flags of a command line
else
    echo '  args.model.script: only in A: "--lr 5"'
fi

# attacks: neither of them, broken, endless, with control characters
: >empty
printf ' \n' >blank
echo hello >hello
echo '{"a": ' >cut.json
mkdir folder
head -c 300000 /dev/zero | tr '\0' '[' >deep.json
head -c 100 "$DCPKIT" >binary
seq 20001 | sed 's/.*/--flag-& &/' >many
for other in empty blank hello cut.json deep.json folder binary missing "$SAMPLES/safetensors_qwen3" many; do
    code=3 text=.
    [ "$other" != missing ] || code=4 text="'missing': No such file"
    refuses "${other##*/}" "$code" "$text" args flags "$other"
    refuses "${other##*/} first" "$code" "$text" args "$other" "$other"
done
# shellcheck disable=SC2016 # as in a script
for brace in 'X=${A:-' 'X=${A:' 'X=${' 'X=$' '--n ${A:-${B:-' '--n "${A:-'; do
    printf '%s' "--num-layers 4 $brace" >brace
    args brace brace | tail -n 1
done | uniq -c
refuses "tensors" 2 'compares no tensors' args --rtol 1 flags flags
printf -- '--num-layers 4\n--a\033[31m "b\033[0m\a"\n' >control
args e control --top 100 | grep -a 'only in B' | grep -c '^  args\.a\\x1b\[31m: only in B: "b\\u001b\[0m\\u0007"$'
args --json e control | tr -d '[:print:]\n' | wc -c
