# SPDX-License-Identifier: Apache-2.0
"""trainer_chain.py - a llama that PyTorch trains, saves with dcp.save and trains on, and Megatron, which loads the conversion and trains on: the losses are the same.

    export MEGATRON_TREES=/where/the/releases/are OMP_NUM_THREADS=1 DCPKIT=/the/program
    python trainer_chain.py core_v0.19.0 WORK          # a new folder; needs torch, transformers and what Megatron imports

Weights, moments, steps and groups go through dcp_hf, torchtitan (fused wqkv) and torch_dist. All is float32. Megatron's model, loader, DDP and distributed
optimizer are its own; Adam is that of Transformer Engine by its formula, since it needs a GPU. A control: without exp_avg the losses differ.
"""
import json
import os
import subprocess
import sys
import types

import torch

TREE, WORK = sys.argv[1:3]
SIDE = sys.argv[3] if len(sys.argv) > 3 else ""
LAYERS, HIDDEN, FFN, HEADS, GROUPS, VOCAB, STEPS, SAVED = 2, 64, 96, 4, 2, 128, 6, 3
LR, BETAS, EPS = 3e-3, (0.9, 0.95), 1e-8
MOST = 1e-6  # relative


def batches():
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(0, VOCAB, (4, 33), generator=generator) for _ in range(STEPS)]


def at(*names):
    return os.path.join(WORK, *names)


def alone(port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")


def train_in_torch():
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from transformers import LlamaConfig, LlamaForCausalLM

    alone(29611)
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    model = LlamaForCausalLM(LlamaConfig(
        hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=GROUPS, vocab_size=VOCAB,
        max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=False, attn_implementation="eager", bos_token_id=0, eos_token_id=1)).float()
    model.config.save_pretrained(at("config"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=BETAS, eps=EPS, weight_decay=0.0)
    losses = []
    for step, batch in enumerate(batches()):
        if step == SAVED:
            weights, state = get_state_dict(model, optimizer)
            dcp.save({"model": weights, "optim": state}, checkpoint_id=at("trainer"))
        loss = torch.nn.functional.cross_entropy(model(batch[:, :-1]).logits.reshape(-1, VOCAB), batch[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[SAVED:]


class Adam(torch.optim.Optimizer):
    """transformer_engine/pytorch/optimizers/fused_adam.py in the mode of AdamW."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, **_more):
        super().__init__(params, dict(lr=lr, bias_correction=True, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            first, second = group["betas"]
            for param in (p for p in group["params"] if p.grad is not None):
                state = self.state[param]
                state["exp_avg"].lerp_(param.grad, 1 - first)
                state["exp_avg_sq"].mul_(second).addcmul_(param.grad, param.grad, value=1 - second)
                root = (state["exp_avg_sq"].sqrt() / (1 - second ** group["step"]) ** 0.5).add_(group["eps"])
                param.mul_(1 - group["lr"] * group["weight_decay"])
                param.addcdiv_(state["exp_avg"], root, value=-group["lr"] / (1 - first ** group["step"]))


def train_in_megatron(with_moments):
    import contextlib

    import megatron_cpu

    alone(29612)
    megatron_cpu.start(TREE)
    megatron_cpu.use_cuda_types()
    megatron_cpu.join(1)
    import megatron.core.optimizer as optimizers
    import megatron.core.optimizer.distrib_optimizer as distributed
    import megatron.core.parallel_state as mpu
    import megatron.core.tensor_parallel.random as rng
    import megatron.training.checkpointing as checkpointing
    from megatron.core import dist_checkpointing
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.transformer_config import TransformerConfig

    mpu.initialize_model_parallel()
    rng.CudaRNGStatesTracker.fork = lambda self, *a, **k: contextlib.nullcontext()
    config = TransformerConfig(
        num_layers=LAYERS, hidden_size=HIDDEN, num_attention_heads=HEADS, num_query_groups=GROUPS, ffn_hidden_size=FFN, add_bias_linear=False,
        normalization="RMSNorm", layernorm_epsilon=1e-5, gated_linear_unit=True, activation_func=torch.nn.functional.silu, use_cpu_initialization=True,
        params_dtype=torch.float32, gradient_accumulation_fusion=False, bias_dropout_fusion=False, masked_softmax_fusion=False, persist_layer_norm=False,
        hidden_dropout=0.0, attention_dropout=0.0)
    bare = GPTModel(config, get_gpt_layer_local_spec(normalization="RMSNorm"), vocab_size=VOCAB, max_sequence_length=64, position_embedding_type="rope",
                    share_embeddings_and_output_weights=False)
    model = DistributedDataParallel(config, DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=True), bare)
    optimizers.Adam = distributed.Adam = Adam
    optimizers.USING_PYTORCH_OPTIMIZER = distributed.USING_APEX_OPTIMIZER = False
    distributed.HAVE_APEX_OR_TE = distributed.USING_TE_OPTIMIZER = True
    optimizer = optimizers.get_megatron_optimizer(
        optimizers.OptimizerConfig(optimizer="adam", lr=LR, min_lr=0.0, adam_beta1=BETAS[0], adam_beta2=BETAS[1], adam_eps=EPS, weight_decay=0.0, clip_grad=0.0,
                                   params_dtype=torch.float32, use_distributed_optimizer=True), [model])
    folder = at("megatron", "iter_0000003")
    metadata = dict(dist_checkpointing.load_common_state_dict(folder)["content_metadata"], dp_cp_group=mpu.get_data_parallel_group(with_context_parallel=True))
    args = types.SimpleNamespace(ckpt_format="torch_dist", no_save_optim=False, no_save_rng=True, use_distributed_optimizer=True, swiglu=True, num_experts=None,
                                 data_parallel_random_init=False, ckpt_drop_redundant_extra_state=False, dist_ckpt_save_pre_mcore_014=False)
    checkpointing.get_args = lambda: args
    asked = checkpointing.generate_state_dict(args, [bare], optimizer, None, None, optim_sd_kwargs=dict(metadata=metadata, is_loading=True),
                                              model_sd_kwargs=dict(metadata=metadata))
    loaded = dist_checkpointing.load(asked, folder)
    bare.load_state_dict(loaded["model"], strict=True)
    optimizer.load_state_dict(loaded["optimizer"])
    for state in optimizer.chained_optimizers[0].optimizer.state.values() if not with_moments else ():
        state["exp_avg"].zero_()
    losses = []
    for batch in batches()[SAVED:]:
        model.zero_grad_buffer()
        optimizer.zero_grad()
        n = batch.shape[1] - 1
        mask = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)[None, None]
        loss = model(batch[:, :-1], torch.arange(n)[None].expand(len(batch), n), mask, labels=batch[:, 1:].contiguous()).float().mean()
        loss.backward()
        model.finish_grad_sync()
        optimizer.step()
        losses.append(loss.item())
    return losses


def side(name):
    subprocess.run([sys.executable, __file__, TREE, WORK, name], check=True, stdout=subprocess.DEVNULL, stderr=open(at(name + ".log"), "w"))
    with open(at(name + ".json"), encoding="utf-8") as f:
        return json.load(f)


def apart(one, other):
    return [abs(a - b) / abs(a) for a, b in zip(one, other)]


def main():
    os.makedirs(WORK)
    dcpkit, config = os.environ["DCPKIT"], at("config", "config.json")
    want = side("torch")
    with open(at("args.json"), "w", encoding="utf-8") as f:
        json.dump(dict(params_dtype="torch.float32", bf16=False, fp16=False), f)
    for command in (["--to", "torchtitan", "--hf-config", config, at("trainer"), at("titan")],
                    ["--to", "torch_dist", "--args-from", at("args.json"), at("titan"), at("megatron", "iter_0000003")]):
        subprocess.run([dcpkit, "convert", "--quiet", "--verify", *command], check=True)
    got, control = side("megatron"), side("control")
    print("PyTorch ", want, "\nMegatron", got, "\nrelative", apart(want, got), "\nwithout exp_avg", apart(want, control))
    assert max(apart(want, got)) <= MOST and apart(want, control)[0] <= MOST and max(apart(want, control)) > 100 * MOST


if SIDE:
    made = train_in_torch() if SIDE == "torch" else train_in_megatron(SIDE == "megatron")
    with open(at(SIDE + ".json"), "w", encoding="utf-8") as f:
        json.dump(made, f)
else:
    main()
