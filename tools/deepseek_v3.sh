#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# deepseek_v3.sh - a run of DeepSeek-V3's shape in Megatron-LM, of three dimensions, to be migrated to Megatron-FSDP.
#
#   dcpkit migrate --to megatron-fsdp --mesh ep=64,dp=1024 deepseek_v3.sh -o deepseek_v3_fsdp.sh
#
# Runs in a folder of Megatron-LM (core 0.19), on each node. Variables change sizes: LAYERS=4 HIDDEN=64 is a toy. LAUNCH=echo prints
# the command. MLA, 256 experts of which a token has 8, a shared expert, multi-token prediction, three dense layers.
set -euo pipefail

export CUDA_DEVICE_MAX_CONNECTIONS=1
RUN=${RUN:-checkpoints/deepseek_v3}
DATA=${DATA:-data/text_document}
LAYERS=${LAYERS:-61}
HIDDEN=${HIDDEN:-7168}
EXPERTS=${EXPERTS:-256}
PP=${PP:-16}
EP=${EP:-64}
LAUNCH=${LAUNCH:-torchrun --nproc-per-node 8 --nnodes 128 --node-rank ${NODE_RANK:-0} --master-addr ${MASTER_ADDR:-localhost}}

model=(
    --num-layers "$LAYERS"
    --hidden-size "$HIDDEN"
    --ffn-hidden-size $((HIDDEN * 18 / 7))
    --num-attention-heads $((HIDDEN / 56))
    --kv-channels 128
    --multi-latent-attention
    --q-lora-rank 1536
    --kv-lora-rank 512
    --qk-head-dim 128
    --qk-pos-emb-head-dim 64
    --v-head-dim 128
    --qk-layernorm
    --normalization RMSNorm
    --norm-epsilon 1e-6
    --swiglu
    --disable-bias-linear
    --position-embedding-type rope
    --rotary-base 10000
    --rotary-scaling-factor 40
    --mscale 1.0
    --mscale-all-dim 1.0
    --seq-length 4096
    --max-position-embeddings 4096
    --untie-embeddings-and-output-weights
    --make-vocab-size-divisible-by 3232
    --mtp-num-layers 1
    --attention-dropout 0.0
    --hidden-dropout 0.0
)
experts=(
    --num-experts "$EXPERTS"
    --moe-layer-freq "([0]*3+[1]*$((LAYERS - 3)))"
    --moe-ffn-hidden-size $((HIDDEN * 2 / 7))
    --moe-shared-expert-intermediate-size $((HIDDEN * 2 / 7))
    --moe-router-topk 8
    --moe-router-score-function sigmoid
    --moe-router-enable-expert-bias
    --moe-router-num-groups 8
    --moe-router-group-topk 4
    --moe-router-topk-scaling-factor 2.5
    --moe-router-load-balancing-type seq_aux_loss
    --moe-aux-loss-coeff 1e-4
    --moe-router-dtype fp32
    --moe-token-dispatcher-type alltoall
    --moe-grouped-gemm
)
layout=(
    --tensor-model-parallel-size 1
    --pipeline-model-parallel-size "$PP"
    --decoder-last-pipeline-num-layers 1
    --expert-model-parallel-size "$EP"
    --expert-tensor-parallel-size 1
    --use-distributed-optimizer
    --overlap-grad-reduce
    --overlap-param-gather
)
# shellcheck disable=SC2054 # the commas are of one word
course=(
    --micro-batch-size 1
    --global-batch-size 15360
    --train-iters 1000
    --lr 2.2e-4
    --min-lr 2.2e-5
    --lr-decay-style cosine
    --lr-warmup-iters 100
    --weight-decay 0.1
    --clip-grad 1.0
    --adam-beta1 0.9
    --adam-beta2 0.95
    --bf16
    --tokenizer-type NullTokenizer
    --vocab-size 129280
    --data-path "$DATA"
    --split 99,1,0
    --load "$RUN"
    --save "$RUN"
    --save-interval 100
    --ckpt-format torch_dist
)
# shellcheck disable=SC2086 # the launcher is words
exec $LAUNCH pretrain_gpt.py "${model[@]}" "${experts[@]}" "${layout[@]}" "${course[@]}"
