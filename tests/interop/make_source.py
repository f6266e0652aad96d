# SPDX-License-Identifier: Apache-2.0
# make_source.py - small torch_dist folders of generation A and B, for models that no sample has.
"""Keys, shapes and common state as Megatron 0.16 to 0.18 writes them (its sharded_state_dict methods), the flattened
ones as 0.8 to 0.15 does; tensors are random. The samples come from Megatron itself and go first: these only widen
the cases."""
import argparse
import json
import os
import re

import torch
import torch.distributed.checkpoint as dcp

import flattened as flat

HIDDEN, FFN, LAYERS, EXPERTS, VOCAB = 16, 24, 2, 4, 64
GROUP = {"is_expert_parallel": False, "default_config": True, "wd_mult": 1.0, "lr_mult": 1.0,
         "is_decoupled_lr": False, "max_lr": 0.003, "min_lr": 0.0003, "lr": 0.002, "betas": (0.9, 0.95),
         "eps": 1e-8, "weight_decay": 0.1}
ADAMW = {"amsgrad": False, "maximize": False, "foreach": None, "capturable": False,
         "differentiable": False, "fused": None, "decoupled_weight_decay": True, "step": 7.0}
FUSED = {"bias_correction": True, "step": 7}  # Transformer Engine

ENDS = {"embedding.word_embeddings.weight": (VOCAB, HIDDEN), "decoder.final_layernorm.weight": (HIDDEN,),
        "output_layer.weight": (VOCAB, HIDDEN)}
ATTENTION = {"self_attention.linear_qkv.layer_norm_weight": (HIDDEN,),
             "self_attention.linear_qkv.weight": (3 * HIDDEN, HIDDEN),
             "self_attention.linear_proj.weight": (HIDDEN, HIDDEN)}
DENSE = {**ATTENTION, "mlp.linear_fc1.layer_norm_weight": (HIDDEN,),
         "mlp.linear_fc1.weight": (2 * FFN, HIDDEN), "mlp.linear_fc2.weight": (HIDDEN, FFN)}
UNGATED = {**DENSE, "mlp.linear_fc1.weight": (FFN, HIDDEN)}
BIASED = {**DENSE, "self_attention.linear_qkv.bias": (3 * HIDDEN,), "self_attention.linear_proj.bias": (HIDDEN,),
          "mlp.linear_fc1.bias": (2 * FFN,), "mlp.linear_fc2.bias": (HIDDEN,),
          "self_attention.q_layernorm.weight": (8,), "self_attention.k_layernorm.weight": (8,)}
MOE = {**ATTENTION, "pre_mlp_layernorm.weight": (HIDDEN,), "mlp.router.weight": (EXPERTS, HIDDEN),
       "mlp.experts.experts.linear_fc1.weight": (EXPERTS, 2 * FFN, HIDDEN),
       "mlp.experts.experts.linear_fc2.weight": (EXPERTS, HIDDEN, FFN),
       "mlp.shared_experts.linear_fc1.weight": (2 * FFN, HIDDEN),
       "mlp.shared_experts.linear_fc2.weight": (HIDDEN, FFN)}
BUFFERS = {"mlp.router.expert_bias": (EXPERTS,)}


def layered(shapes, stacked):
    """The keys of LAYERS layers: one with a layer axis, or one a layer."""
    if stacked:
        return {f"decoder.layers.{name}": (LAYERS, *shape) for name, shape in shapes.items()}
    return {f"decoder.layers.{i}.{name}": shape for name, shape in shapes.items() for i in range(LAYERS)}


def groups(fields, is_moe):
    """Decayed, not decayed, and for experts decayed."""
    dense = [{**GROUP, **fields}, {**GROUP, **fields, "wd_mult": 0.0, "weight_decay": 0.0}]
    if not is_moe:
        return {"optimizer": {"param_groups": dense}, "param_state_sharding_type": "fully_reshardable"}
    experts = [{**GROUP, **fields, "is_expert_parallel": True}]
    return {i: {"optimizer": {"param_groups": g}, "param_state_sharding_type": "fully_reshardable"}
            for i, g in enumerate((dense, experts))}


def common_state(is_moe, swiglu, fields):
    args = argparse.Namespace(
        num_layers=LAYERS, hidden_size=HIDDEN, num_attention_heads=2, num_query_groups=2, ffn_hidden_size=FFN,
        moe_ffn_hidden_size=FFN, num_experts=EXPERTS if is_moe else None, moe_layer_freq=1, swiglu=swiglu,
        gated_linear_unit=swiglu, bf16=True, fp16=False, params_dtype=torch.bfloat16, iteration=7,
        tensor_model_parallel_size=1, pipeline_model_parallel_size=1, expert_model_parallel_size=1,
        data_parallel_size=1, world_size=1, add_position_embedding=True, consumed_train_samples=28,
        apply_wd_to_qk_layernorm=False, padded_vocab_size=VOCAB, transformer_impl="transformer_engine")
    scheduler = {"max_lr": 0.003, "lr_warmup_steps": 1, "num_steps": 28, "lr_decay_style": "cosine",
                 "lr_decay_steps": 100, "min_lr": 0.0003, "start_wd": 0.1, "end_wd": 0.1,
                 "wd_incr_style": "constant", "wd_incr_steps": 100}
    state = {"args": args, "checkpoint_version": 3.0, "iteration": 7, "num_floating_point_operations_so_far": 1e9,
             "content_metadata": {"distrib_optim_sharding_type": "fully_reshardable"}}
    if fields is not None:
        state.update(optimizer=groups(fields, is_moe), opt_param_scheduler=scheduler)
    return state


def block_counts(key, tensor, swiglu):
    """Into how many blocks two tensor-parallel ranks and the halves of SwiGLU cut a tensor, each axis. Experts
    have no tensor parallelism; a layer and an expert is a block of its own."""
    expert = ".experts.experts." in key
    lead = int(expert) + bool(re.search(r"\.layers\.(?!\d)", key))
    counts = [*tensor.shape[:lead], *[1] * (tensor.dim() - lead)]
    if key.endswith(("word_embeddings.weight", "output_layer.weight", "linear_qkv.weight", "linear_qkv.bias",
                     "linear_fc1.weight", "linear_fc1.bias")):
        counts[lead] = (1 if expert else 2) * (2 if swiglu and "linear_fc1" in key else 1)
    elif key.endswith(("linear_proj.weight", "linear_fc2.weight")) and not expert:
        counts[-1] = 2
    return counts


def save_flattened(folder, tensors, swiglu, kind, generator):
    """kind: recorded (mcore_data has the shapes), lost (it is gone), plain_1d (core 0.8 to 0.10)."""
    stored, record = {}, {}
    for key, tensor in tensors.items():
        match, record[key] = flat.STATE.match(key), {}
        if match is None:
            stored[key] = (tuple(tensor.shape), [((0,) * tensor.dim(), tensor)])
        elif kind == "plain_1d" and tensor.dim() == 1:
            stored[key] = flat.plain_chunks(tensor, generator)
        else:
            stored[key] = flat.flat_chunks(tensor, block_counts(match[2], tensor, swiglu), generator)
            record[key] = {flat.RECORD: tuple(tensor.shape)}
    flat.save(folder, stored, None if kind == "lost" else record)


def make_source(run, layer, buffers=None, stacked=True, swiglu=True, fields=None, master="param", flattened=None,
                chained=False, seed=0):
    """Write `run`/iter_0000007. fields: of the optimizer's groups, None: no optimizer. chained: every optimizer's
    state has its own prefix."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for key, shape in {**ENDS, **layered(layer, stacked)}.items():
        value = torch.randn(shape, generator=generator)
        tensors[key] = value.bfloat16()
        for role in (master, "exp_avg", "exp_avg_sq") if fields is not None else ():
            moment = torch.randn(shape, generator=generator).abs()
            prefix = f"chained_{int('.experts.' in key)}." if chained else ""
            tensors[f"{prefix}optimizer.state.{role}.{key}"] = value if role == master else moment
    for key, shape in layered(buffers or {}, stacked).items():
        tensors[key] = torch.randn(shape, generator=generator)
    folder = os.path.join(run, "iter_0000007")
    os.makedirs(folder)
    if flattened is None:
        dcp.save(tensors, storage_writer=dcp.FileSystemWriter(folder), no_dist=True)
    else:
        save_flattened(folder, tensors, swiglu, flattened, generator)
    torch.save(common_state("mlp.router.weight" in layer, swiglu, fields), os.path.join(folder, "common.pt"))
    with open(os.path.join(folder, "metadata.json"), "w", encoding="ascii") as f:
        json.dump({"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch",
                   "common_backend_version": 1}, f)
    with open(os.path.join(run, "latest_checkpointed_iteration.txt"), "w", encoding="ascii") as f:
        f.write("7")
