#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# train.sh - the command train: knobs from flags, configurations and overrides; saving, resuming, logs, what is explained,
# what is refused.
cat >tiny.yaml <<'EOF'
model: {num_layers: 2, hidden_size: 16, num_attention_heads: 2, ffn_hidden_size: 32, seq_length: 8, vocab_size: 64}
train: {micro_batch_size: 1, global_batch_size: 4, train_iters: 8}
optimizer: {lr: 0.01}
EOF
flags=(--num-layers 2 --hidden-size 16 --num-attention-heads 2 --ffn-hidden-size 32 --seq-length 8 --vocab-size 64
    --micro-batch-size 1 --global-batch-size 4 --train-iters 8 --lr 0.01)
train() { "$DCPKIT" train --config tiny.yaml "$@"; }
same() {
    "$DCPKIT" losscmp "$1" "$2" >compared && tail -n 1 compared && return
    cat compared
}

# steps, on stdout as Megatron prints them, in the log as JSON
train --log whole.jsonl >steps
sed -n 's/^ \[[0-9: .-]*\] \(iteration .*\) |.*lm loss/\1 lm loss/p' steps | sed 's/:.*//' | sort -u | head -n 2
"$DCPKIT" losscmp steps whole.jsonl | grep 'verdict'
jq -c 'select(.command) | [.command[0], .n_ranks, .run.data_parallelism, .run.reduce, .run.exact_lsb]' whole.jsonl
for reduce in exact native; do
    train --use-megatron-fsdp --bf16 --megatron-fsdp-main-grads-dtype bf16 --reduce $reduce --exit-at 1 --json 2>notes |
        jq -r 'select(.run).run | .megatron_fsdp_main_grads_dtype + " " + .megatron_fsdp_grad_comm_dtype'
    grep -c 'megatron_fsdp_main_grads_dtype has no effect' notes
done
train --noise-floor --exit-at 2 --json | jq -c 'select(.iteration) | [.iteration, (.loss_noise | type)]'
"$DCPKIT" train "${flags[@]}" --json >flags.jsonl && same whole.jsonl flags.jsonl
[ -z "$(train --quiet --log quiet.jsonl)" ] && same whole.jsonl quiet.jsonl
echo '{"ddp": {"use_megatron_fsdp": true, "data_parallel_sharding_strategy": "optim_grads_params",
    "average_in_collective": false}, "dist": {"use_megatron_fsdp": true}, "checkpoint": {"ckpt_format": "fsdp_dtensor"}}' >fsdp.json
"$DCPKIT" train --config fsdp.json "${flags[@]}" --log fsdp.jsonl >/dev/null 2>&1 && same whole.jsonl fsdp.jsonl
train --use_megatron_fsdp true --ckpt-format fsdp_dtensor train.global_batch_size=8 optimizer.lr=1e-3 --exit-at 1 2>&1 |
    grep -E 'note: data_par|samples' | sed 's/^.*\] //; s/elapsed time per iteration (ms): [0-9.]* | //; s/lm.*//'

# curves on a page, which names how the run ended
train --quiet --html page.html
train --quiet --exit-at 6 --html page.html
grep -o 'badge good">ended\|<figcaption>[a-z ,]*\|[0-9]* of [0-9]*<\|refresh' page.html
train --quiet --html tiny.yaml 2>&1 || echo "exit $?"

# saved in each format, resumed by another; the log goes on
train --exit-at 4 --save one/run --save-interval 2 --ckpt-format zarr --log part.jsonl >/dev/null
ls one/run
train --load one/run --exit-at 6 --ckpt-format torch_dist --save two --log part.jsonl >/dev/null
train --load two --use-megatron-fsdp --ckpt-format fsdp_dtensor --save three/iter_0000008 --log part.jsonl >/dev/null 2>&1
same whole.jsonl part.jsonl
"$DCPKIT" verify three | tail -n 1

# the weights of norms stored less one, of the same model
echo '{"layernorm_zero_centered_gamma": true}' >less_one.json
"$DCPKIT" convert --quiet --to huggingface two model
"$DCPKIT" convert --quiet --to torch_dist model plain
"$DCPKIT" convert --quiet --args-from less_one.json --to torch_dist model centered
for run in plain centered; do
    train --load $run --finetune --no-load-optim --exit-at 2 --log $run.jsonl >/dev/null
done
same plain.jsonl centered.jsonl

# until an interval divides the iteration, three times; the model is described by the checkpoint
train --exit-interval 3 --save parts --log parts.jsonl | grep -c 'lm loss'
for _ in 1 2; do
    "$DCPKIT" train --use-checkpoint-args --load parts --save parts "${flags[@]:10}" --exit-interval 3 --log parts.jsonl \
        2>&1 | sed -n 's/^.*\] iteration *\([0-9]*\).*/iteration \1/p; s/^.*note: //p'
done
same whole.jsonl parts.jsonl
checkpoint=$SAMPLES/torch_dist_c_dense_tp2pp2 # its args have dropout
refuses "dropout of args" 2 'dropout is not modelled; set hidden_dropout' \
    "$DCPKIT" train --use-checkpoint-args --load "$checkpoint" --micro-batch-size 1 --train-iters 6
refuses "a model without args" 3 "no args.*'dcpkit convert --to torch_dist' writes one" \
    "$DCPKIT" train --use-checkpoint-args --load "$SAMPLES/safetensors_qwen3" --micro-batch-size 1 --train-iters 6
"$DCPKIT" train --use-checkpoint-args --load "$checkpoint" --micro-batch-size 1 --train-iters 6 --override-opt-param-scheduler \
    --hidden-dropout 0 --attention-dropout 0 2>/dev/null | grep -c 'lm loss'
train --train-iters 0 --dump-param-to-param-group-map maps/of/groups
wrote=(--exit-at 2 --save wrote/run --log wrote.jsonl --tensorboard-dir wrote/events --dump-param-to-param-group-map wrote/map)
train "${wrote[@]}" --html wrote.html | grep '^ written' # each, and nothing else
train "${wrote[@]}" --json | tail -n 1
train --exit-at 1 --json | tail -n 1
"$DCPKIT" print-torch-dcp-in-json maps/of/groups | grep -o '"module.embedding.word_embeddings.weight": [0-9]*'
train --load two/iter_0000006 --train-iters 3 --override-opt-param-scheduler 2>&1 | grep 'nothing to train'
train --load two --train-iters 3 --override-opt-param-scheduler --save two --json 2>/dev/null | tail -n 1 # not the one that was there
dd if=/dev/zero of=tokens bs=4 count=900 status=none
train --token-file tokens --exit-at 2 | grep -c 'lm loss'
head -c 3600 /dev/zero | tr '\0' '\377' >masked # -1 - 0: no token has a loss
train --token-file masked --exit-at 1 --log masked.jsonl | sed -n 's/^.*lm loss: *\([^ ]*\) .*/\1/p'
jq 'select(.iteration).loss' masked.jsonl

# explained
train --explain-memory --device-memory 16M | grep -E ': (fits|micro)'
for more in "" "--use-megatron-fsdp --ckpt-format fsdp_dtensor --fsdp-double-buffer" \
    "--bf16 --reduce native --grad-reduce-in-bf16 --recompute-granularity full" \
    "--num-experts 4 --moe-router-topk 2 --moe-layer-freq [0,1] --use-megatron-fsdp --ckpt-format fsdp_dtensor"; do
    # what is explained is what is held in the end, on stdout and in the log
    rm -f held.jsonl
    # shellcheck disable=SC2086 # flags
    train $more --explain-memory 2>/dev/null | sed -n '/Megatron by strategy/,/^all/s/^\([a-z]*\) .*  \([0-9]\)/\1: \2/p' >explained
    # shellcheck disable=SC2086
    train $more --exit-at 2 --log held.jsonl 2>/dev/null | sed -n 's/^ memory of the rank that held most | //p' |
        sed 's/ | /\n/g; s/ |$//' | diff explained - && wc -l <explained
    # shellcheck disable=SC2086
    train $more --explain-memory --json 2>/dev/null | jq -S .this_run | diff - <(tail -n 1 held.jsonl | jq -S .held)
done
pool="--num-experts 4 --moe-layer-freq [0,1] --use-megatron-fsdp --ckpt-format fsdp_dtensor --fsdp-double-buffer"
# shellcheck disable=SC2086 # flags
train $pool --exit-at 1 2>&1 | sed -n 's/^.*note: the double buffer/the double buffer/p'
# shellcheck disable=SC2086
train $pool --explain-memory --json 2>/dev/null | jq -c '.this_run.gather_bytes - (.double_buffer[0] | 2 * .buffer_bytes + .layer_bytes)'
train --explain-comm | head -n 1
train model.num_layers=6 --pipeline-model-parallel-size 3 --use-megatron-fsdp --ranks 3 --explain-memory --device-memory 80G --json \
    2>/dev/null | jq -c '[.fits, .smallest_layout]'
train --explain-comm --ranks 4 --use-megatron-fsdp --json 2>/dev/null | jq -c '[.volumes[].strategy]'
"$DCPKIT" help knob --nccl-ub | grep -E '^(knob|default)'
"$DCPKIT" help knob | grep -A1 -x seq_length
"$DCPKIT" help knob log | sed -n '/^changes/,/^source/p'

# a byte of the stored elements differs from their checksum
cp -r two/iter_0000006 bitten
"$MANGLE" flip bitten/__0_0.distcp 30000
refuses "a wrong checksum" 3 "checking 'embedding.*CRC-32" train --load bitten --exit-at 7
train --load bitten --exit-at 7 --no-check-input | grep -c 'lm loss'

# refused: the words of the reference documents, what mends it, and nothing is written
refuses "a page of what is explained" 2 '--html is the page of a run' train --explain-memory --html idle.html
refuses "a page of a sweep" 2 '--html is the page of a run' train --sweep tp --html idle.html
refuses "ranks of a run" 2 '--ranks is for --explain-memory' train --ranks 4
refuses "memory in a run" 2 '--device-memory is for --explain-memory' train --device-memory 1G
refuses "memory next to traffic" 2 '--device-memory is for --explain-memory' train --explain-comm --device-memory 1G
refuses "a rate in a run" 2 '--link-rate is for --explain-comm' train --link-rate 1
refuses "a rate next to memory" 2 '--link-rate is for --explain-comm' train --explain-memory --link-rate 1
refuses "a slip in a knob" 2 "'--num-layer'; did you mean '--num-layers'" train --num-layer 3
refuses "a slip in an override" 2 "'model.num_layer'; did you mean 'model.num_layers'" train model.num_layer=3
refuses "another section" 2 "no knob 'ddp.num_layers'" train ddp.num_layers=3
refuses "a word" 2 "'three' is neither a knob nor section.name=value" train three
refuses "not a number" 2 "num_layers is 'x': it takes a whole number" train --num-layers x
refuses "no value" 2 'lr has no value' train --lr
refuses "not set" 2 'num_layers is not set' "$DCPKIT" train
refuses "no device" 2 "no device 'abacus'" train --device abacus
refuses "unknown knob" 2 "nccl_up: unknown knob; did you mean 'nccl_ub'" "$DCPKIT" help knob nccl_up
refuses "a field of a configuration" 2 'fp8: unknown knob; .dcpkit help knob. lists all names' "$DCPKIT" help knob fp8
refuses "E1" 2 'at the same time is not supported; choose one' train --use-megatron-fsdp --use-torch-fsdp2
refuses "E2" 2 'only supports fsdp_dtensor checkpoint format; set' train --use-megatron-fsdp --save out
refuses "E3" 2 'only supports Megatron FSDP; set' train --ckpt-format fsdp_dtensor --save out
refuses "E4" 2 'use_tp_pp_dp_mapping is not supported with Megatron FSDP; remove' train --use-megatron-fsdp --use-tp-pp-dp-mapping
refuses "E5" 2 'value large than one; unset' env CUDA_DEVICE_MAX_CONNECTIONS=1 "$DCPKIT" train --config tiny.yaml --use-megatron-fsdp
refuses "E6" 2 'only supported with nccl-ub option; set nccl_ub' train --use-megatron-fsdp --fsdp-manual-registration
echo 'model: {layers: 3}' >odd.yaml
refuses "an unknown key" 2 "configuration 'odd.yaml': unknown key model.layers" "$DCPKIT" train --config odd.yaml
(echo "{" && head -c 5000000 /dev/zero | tr "\0" " ") >long.json
refuses "a long configuration" 3 "the limit is 4194304" "$DCPKIT" train --config long.json
refuses "no configuration" 4 "configuration 'none.yaml'" "$DCPKIT" train --config none.yaml
refuses "a flag of Megatron's alone" 2 '--data-path is not in this loop: data are .*; set token_file' train --data-path corpus
refuses "no help for it" 2 'window-size is not in this loop: attention is' "$DCPKIT" help knob --window-size
refuses "args of no checkpoint" 2 'use_checkpoint_args takes the model from .*: set load' train --use-checkpoint-args
refuses "another model than the args'" 3 "has no value of 'decoder.layers.2" train --use-checkpoint-args --num-layers 3 --load two
refuses "no checkpoint" 4 "resuming from 'none'" train --load none
refuses "another model" 3 "in 20 tensors, the first: .* is \[128, 16\] in the checkpoint and \[128, 32\] in the model; .*; .* \('dcpkit inspect'" \
    train --load two --hidden-size 32 --num-layers 3
refuses "fewer layers" 3 'num_layers value from checkpoint \(2\) is not equal to the input argument value \(1\) \(.dcpkit inspect' \
    train --load two --num-layers 1
refuses "other heads of the same shapes" 3 'num_attention_heads value from checkpoint \(2\)' train --load two --num-attention-heads 4
refuses "another theta" 3 "args.rotary_base of the checkpoint is not equal to this run's \(.dcpkit inspect'" train --load two --rotary-base 500000
train --load two --finetune --rotary-base 500000 --exit-at 1 | grep -c 'iteration'
for arg in window_size:'[7, 0]' use_mup:true moe_input_jitter_eps:0.1; do # the last means nothing without experts
    echo "{\"${arg%%:*}\": ${arg#*:}}" >arg.json
    "$DCPKIT" convert --quiet --force --args-from arg.json --to zarr two odd
    train --load odd --finetune --exit-at 1 2>&1 | grep -oE "args.${arg%%:*} of the checkpoint is not what this program computes|iteration" | head -n 1
done
refuses "another schedule" 3 "lr_decay_steps is 36 here and 32 in the checkpoint \(--override-opt" train --load two --train-iters 9
refuses "its folder is a file" 2 "output 'tokens': it exists and is not a folder" train --save tokens --exit-at 1
for path in tiny.yaml tokens two/latest_checkpointed_iteration.txt three/iter_0000008/.metadata; do
    refuses "a log in $path" 2 "is not a log" train --log $path --exit-at 1
done
refuses "a log in the checkpoint" 2 "is inside the input 'two/iter_0000006'" train --load two --log two/iter_0000006/log
refuses "a map in the checkpoint" 2 "is inside the input" train --load two --dump-param-to-param-group-map two/iter_0000006/map
refuses "a map where it saves" 2 "is inside the input 'new'" train --save new --dump-param-to-param-group-map new --exit-at 1
refuses "a save in the checkpoint" 2 "is the input 'two/iter_0000006'" train --load two --save two/iter_0000006
refuses "a save over the checkpoint" 2 "is the input 'two/iter_0000006'" train --load two --finetune --save two
refuses "a log that cannot be" 4 "opening 'three'" train --log three --exit-at 1

# the least that fits, and why; the sweep has what a layout of its own has
wide=(--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --seq-length 4096 --vocab-size 128000
    --micro-batch-size 1 --global-batch-size 64 --lr 1e-4 --train-iters 1 --bf16 --swiglu --recompute-granularity full)
for memory in 200G 80G 40G 16G 1G; do
    "$DCPKIT" train "${wide[@]}" --ranks 16 --explain-memory --device-memory $memory --json 2>/dev/null | jq -c '[.choice, .advice]'
done
"$DCPKIT" train "${wide[@]}" --ranks 16 --sweep dp,tp,pp --device-memory 80G --json |
    jq '.sweep | length, (.[] | select(.tp == 2 and .pp == 2) | del(.fits, .tp, .pp, .dp))' >swept
"$DCPKIT" train "${wide[@]}" --ranks 16 --explain-memory --json --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 |
    jq '14, (.strategies | map({(.strategy + "_bytes"): .all_bytes}) | add)' | diff -w swept - && echo "the same"
"$DCPKIT" train "${wide[@]}" --ranks 16 --sweep pp --device-memory 80G
"$DCPKIT" train "${wide[@]}" --ranks 16 --sweep tp,cp 2>&1 || echo "exit $?"
