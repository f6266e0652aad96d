#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# migrate.sh - the configuration of a run becomes one for Megatron-FSDP, and one for DDP again: a shell script, flags, YAML, JSON, args of
# a checkpoint. Everything that is not changed keeps its bytes; `train` runs what was written; steps are commands that work.
migrate() { "$DCPKIT" migrate "$@"; }
dcpkit() { "$DCPKIT" "$@"; }
changed() { diff "$1" "$2" | grep '^[<>]'; }
command -v jq >/dev/null || exit 77
! dcpkit --version | grep -q 'not built in.*libyaml' || exit 77

# a script: variables, arrays, a quoted text of flags, comments, tabs; flags that nobody knows stay and are named
cat >run.sh <<'EOS'
#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1 # --load none
TP=2; PP=${PP:-"4"}
CKPT=/ckpt/llama
MODEL="
	--num-layers 32 \
	--hidden-size 4096 --num-attention-heads 32 --swiglu --bf16
"
LAYOUT=(
    --tensor-model-parallel-size $TP
    --pipeline-model-parallel-size ${PP}  # stages
    --num-layers-per-virtual-pipeline-stage 4
    --sequence-parallel
)
torchrun --nproc-per-node 8 pretrain_gpt.py $MODEL ${LAYOUT[@]} --micro-batch-size 1 \
    --global-batch-size $GBS --use-tp-pp-dp-mapping \
    --ddp-average-in-collective \
    --check-weight-hash-across-dp-replicas-interval 10 \
    --load "$CKPT/" \
    --save $CKPT/ --my-flag "a b" \
    --ckpt-format=torch_dist
EOS
migrate --to megatron-fsdp run.sh -o fsdp.sh >said
changed run.sh fsdp.sh
bash -n fsdp.sh || echo "it is no script"
sed -n '/^note/,$p' said
migrate --json run.sh | jq -r '.changes[] | "\(.name): \(.from) -> \(.to); \(.source)"'
migrate fsdp.sh 2>&1 >again.sh | grep '^changes' && cmp fsdp.sh again.sh
migrate --to ddp --mesh tp=4,pp=2,dp=2 fsdp.sh -o ddp.sh >said
changed fsdp.sh ddp.sh
sed -n '/^steps/,$p' said

# a script of one line, there and back: new flags stand next to those that go
echo 'torchrun p.py --num-layers 2 --use-tp-pp-dp-mapping --ckpt-format torch_dist' >one.sh
migrate one.sh -o one_fsdp.sh >said && cat one_fsdp.sh
migrate --to ddp one_fsdp.sh --quiet

# a command in a word, with blanks and brackets, is left whole
cat >command.sh <<'EOS'
N=`nproc`
torchrun --nproc-per-node `nproc` p.py --load `pwd`/c --micro-batch-size $(( (GBS+1)/$(echo "$DP)") )) --num-layers ${L:-${M}} \
    --hidden-size $N --use-tp-pp-dp-mapping --ckpt-format torch_dist --save `cd "a b"; pwd`/c --lr `echo --lr 3`
EOS
migrate command.sh 2>/dev/null >command_fsdp.sh
bash -n command_fsdp.sh && changed command.sh command_fsdp.sh
migrate --to ddp command_fsdp.sh --quiet | bash -n

# load and save of one folder stay one, however each is written; steps with a folder that variables make have a word for it
# shellcheck disable=SC2016 # as in a script
for folders in '--load /a --save /a/' '--load $CKPT/ --save "$CKPT"' '--load ${CKPT:?not set} --save "${CKPT}"' '--load ${A}b --save $Ab'; do
    echo "--num-layers 2 $folders --ckpt-format torch_dist" >folders
    migrate folders 2>said | grep -o -- '--load.*'
    sed -n '/^note *RUN/p; /^  dcpkit/p' said
done

# quotes within quotes; a folder that is not there stays so
cat >quotes.sh <<'EOS'
bash -c "torchrun p.py --num-layers 2 --load \"$X\" --save \"$X/\" --ckpt-format torch_dist"
EOS
migrate quotes.sh 2>/dev/null >quotes_fsdp.sh
bash -n quotes_fsdp.sh && cat quotes_fsdp.sh
for load in '--load' '--load ""' '--load="" --save ""'; do
    echo "--num-layers 2 $load --ckpt-format torch_dist" >folders
    migrate folders --quiet | grep -oF -- "$load --ckpt-format fsdp_dtensor"
done

echo 'echo "see --load"; torchrun p.py --num-layers 2 --save; ls' >prose
migrate prose --quiet | grep -c '"see --load"; torchrun p.py .* --save; ls$'

# flags alone, on a mesh of several nodes
printf -- '%s\n' --num-layers 4 --num-attention-heads 4 --pipeline-model-parallel-size=2 --global-batch-size 32 --micro-batch-size 1 >flags
migrate --mesh tp=2,dp=16 flags 2>said
tail -n 1 said
"$DCPKIT" migrate --mesh tp=2,dp=16 flags --quiet 2>said >/dev/null
cat said

# a configuration of Megatron-Bridge, YAML in blocks with comments, JSON in one line and in several: train runs it
cat >bridge.yaml <<'EOS'
# Größe
model:
  num_layers: 4 # vier
  bf16: true
  hidden_size: 16
  num_attention_heads: 2
  ffn_hidden_size: 32
  seq_length: 8
  pipeline_model_parallel_size: 2
  vocab_size: 64
train: {micro_batch_size: 1, global_batch_size: 4, train_iters: 4}
dist:
  use_tp_pp_dp_mapping: true
optimizer: {}
checkpoint:
  save: "old run"
  load: 'old run'
  ckpt_format: torch_dist
ddp:
EOS
dcpkit train --config bridge.yaml dist.use_tp_pp_dp_mapping=false model.pipeline_model_parallel_size=1 checkpoint.load=None \
    --exit-at 2 >/dev/null 2>said || cat said
migrate bridge.yaml -o fsdp.yaml >said
changed bridge.yaml fsdp.yaml
sed -n '/^steps/,$s/^  //p' said | head -n 2 >steps
cat steps
# shellcheck source=/dev/null # the steps that were printed
. ./steps >/dev/null
dcpkit train --config fsdp.yaml 2>&1 | sed -n 's/^.*\] \(iteration *[0-9]*\).*/\1/p'
ls 'old run-fsdp_dtensor'
sed '/vocab_size/i\  pipeline_model_parallel_layout:\n    - [embedding, decoder] # a\n    - [decoder, loss]\n\n  # rows' bridge.yaml >layout.yaml
migrate layout.yaml --quiet | grep -A4 layout
migrate --to ddp fsdp.yaml 2>/dev/null | grep -E 'fsdp|format|load'
echo '{"model": {"num_layers": 4, "tensor_model_parallel_size": 2}, "ddp": {}, "checkpoint": {"load": "a/b"}}' >bridge.json
for json in compact pretty; do
    jq . bridge.json >pretty.json
    jq -c . bridge.json >compact.json
    migrate --quiet $json.json | tee out.json | head -n 4
    jq -cS . out.json
done

# flat names, with their sections before a dot: each switch is one of them
echo '{"model.num_layers": 4, "ddp.use_megatron_fsdp": false, "checkpoint.load": "a", "checkpoint.save": "a/"}' >flat.json
migrate --quiet flat.json | tee flat_fsdp.json
migrate --quiet --to ddp flat_fsdp.json
printf 'model.num_layers: 4 # a\nnum_attention_heads: 2\n' >flat.yaml
(printf '\xef\xbb\xbf' && cat flat.yaml) >bom.yaml
migrate --quiet flat.yaml
diff <(migrate --quiet flat.yaml) <(migrate --quiet bom.yaml | tail -c +4)

# args of a checkpoint, as flags
cp -RL --no-preserve=mode "$SAMPLES/torch_dist_c_dense_tp2pp2" run
migrate run -o run.flags >said
grep -E -- '--(num-layers|hidden-size|swiglu|disable-bias-linear|no-rope-fusion|load|save|ckpt-format|pipeline|no-grad)' run.flags
sed -n 's/^note *\([0-9]* args\).*/\1/p; /^steps/,$p' said
sed -n '/^steps/,$s/^  //p' said | head -n 2 >steps
# shellcheck source=/dev/null
. ./steps | grep -E '^(verdict|core 0.19)'
grep -vE 'dropout|train-iters|-parallel-size|mtp-loss' run.flags | xargs "$DCPKIT" train --override-opt-param-scheduler --train-iters 6 2>&1 |
    sed -n 's/^.*\] \(iteration *[0-9]*\).*/\1/p; /^dcpkit: train: [^n]/p'
migrate --to ddp run/iter_0000004 --quiet | grep -E -- '--(use-meg|ckpt-f|load)'

# the example of DeepSeek-V3's shape
migrate --mesh ep=64,dp=1024 "$TOOLS/deepseek_v3.sh" -o deepseek.sh | tail -n 3
changed "$TOOLS/deepseek_v3.sh" deepseek.sh
LAUNCH=echo LAYERS=4 bash deepseek.sh | tr ' ' '\n' | grep -A1 -E -- '--(num-layers|moe-layer-freq|use-megatron-fsdp|load)'

# refused
: >empty
refuses "an empty file" 3 'is empty' migrate empty
echo 'just words' >words
refuses "words" 3 'not a command line.*a configuration.*or a checkpoint.s folder' migrate words
refuses "a folder without a checkpoint" 3 "args of '.*'" migrate "$GOT"
refuses "no file" 4 "'no/such': No such file" migrate no/such
echo '{"model": {"num_layers": 4}, "optimizer": {"optimizer": "muon"}}' >muon.json
refuses "an optimizer" 3 'Megatron-FSDP does not support the muon optimizer yet.; choose adam or sgd' migrate muon.json
refuses "another target" 2 "--to takes megatron-fsdp or ddp, not" migrate --to fsdp2 run.sh
refuses "stages" 2 'the mesh has pp=2: Megatron-FSDP has no pipeline stages' migrate --mesh pp=2 flags
for list in '["--num-layers", "2"]' "['--num-layers=2',"$'\n'"'--bf16']" 'bash -c "bash -c \"p.py --num-layers 2\""'; do
    echo "$list" >list
    refuses "a list or quotes" 3 "line 1: '--num-layers.*' is in a list of another language, or in quotes" migrate list
done
for section in 'model: 3' 'ddp: [a]' 'ddp: null'; do
    printf '%s\ntrain: {train_iters: 1}\n' "$section" >section.yaml
    refuses "$section" 3 "is a section: write a mapping" migrate section.yaml
done
refuses "heads" 3 'tp=8' migrate --mesh tp=8 flags
refuses "the batch" 3 'global_batch_size 32 is not a multiple' migrate --mesh tp=2,dp=24 flags
refuses "layers" 3 'pp=3 does not divide the 4 layers; choose another size, or set' migrate --to ddp --mesh pp=3 flags
(cat flags && echo --decoder-first-pipeline-num-layers 2) >uneven
migrate --to ddp --mesh pp=3 uneven --quiet | grep -c decoder-first
refuses "chunks of stages" 2 'takes tp, pp, dp' migrate --mesh tp=2,vpp=2 flags
refuses "a file that is there" 2 "'fsdp.sh' exists \(--force replaces it\)" migrate run.sh -o fsdp.sh
migrate run.sh -o fsdp.sh --force >/dev/null && bash -n fsdp.sh
printf 'model: {num_layers: &n 4}\ndist:\n  pipeline_model_parallel_size: *n\n' >alias.yaml
refuses "an alias" 3 "line 3: the value of 'pipeline_model_parallel_size' is an alias" migrate alias.yaml

# a path of a stranger's file is one word in the steps
printf 'checkpoint: {load: "a'"'"'; touch pwned; echo '"'"'b", ckpt_format: torch_dist}\nmodel: {num_layers: 2}\n' >hostile.yaml
"$DCPKIT" migrate hostile.yaml 2>said >/dev/null
sed -n '/^steps/,/check/p' said
# shellcheck disable=SC2317 # the steps call it
(dcpkit() { printf '<%s>' "$@" && echo; } && eval "$(sed -n 's/^  \(dcpkit \)/\1/p' said)")
[ ! -e pwned ] || echo "the path was run"
