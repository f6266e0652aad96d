# SPDX-License-Identifier: Apache-2.0
# hub_world.py - several ranks save a model as trainers do: layouts of names in torch's distributed checkpoint.
"""Usage: torchrun --nproc-per-node N hub_world.py MODEL OUT      MODEL: a folder of Hugging Face's, of a llama."""
import json
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

source, out = sys.argv[1:]
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
config = json.load(open(os.path.join(source, "config.json"), encoding="ascii"))
weights = load_file(os.path.join(source, "model.safetensors"))
EMBEDDING = "model.embed_tokens.weight"
TITAN = {
    "self_attn.q_proj": "attention.qkv_linear.wq",
    "self_attn.k_proj": "attention.qkv_linear.wk",
    "self_attn.v_proj": "attention.qkv_linear.wv",
    "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3",
    "mlp.down_proj": "feed_forward.w2",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
    EMBEDDING[:-7]: "tok_embeddings",
    "model.norm": "norm",
    "lm_head": "lm_head",
}


def shards(tensors):
    return {name: distribute_tensor(t.clone(), mesh, [Shard(0)]) for name, t in tensors.items()}


def save(name, state):
    dcp.save(state, checkpoint_id=os.path.join(out, name))


def to_titan(name, tensor):
    """torchtitan's name and rows: rotary halves of a head take turns."""
    layer, _, module = name.rpartition("layers.")[2].partition(".")
    stem = (module if "layers." in name else name)[: -len(".weight")]
    if stem.endswith(("q_proj", "k_proj")):
        heads = config["num_attention_heads" if stem.endswith("q_proj") else "num_key_value_heads"]
        tensor = tensor.view(heads, 2, -1, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)
    return (f"layers.{layer}." if "layers." in name else "") + TITAN[stem] + ".weight", tensor


def state_of(tensors):
    return {name: {"exp_avg": t / 2, "exp_avg_sq": t * t, "step": torch.tensor(3.0)} for name, t in tensors.items()}


def fields_of(shape):
    """Two groups: matrices decay."""
    return {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1 * (len(shape) > 1), "foreach": None}


def groups_of(tensors):
    """As get_state_dict has them, by number."""
    groups = [{"params": [n for n, t in tensors.items() if t.dim() == dim]} for dim in (1, 2)]
    return [group | fields_of(range(i + 1)) for i, group in enumerate(groups)]


model = shards(weights)
titan = shards(dict(to_titan(*item) for item in weights.items()))
save("nested/checkpoint-7/pytorch_model_fsdp_0", {"model": model})
save("nested/checkpoint-7/optimizer_0", {"optimizer": {"state": state_of(model)}})
save("several/a", model)
save("several/b", model)
wrapped = {"_orig_mod." + name.replace(".mlp.", "._checkpoint_wrapped_module.mlp."): t for name, t in model.items()}
optimizer = {"state": state_of(model), "param_groups": groups_of(model)}
save("wrapped", {"app": {"model": wrapped, "optim": optimizer, "progress": {"step": 7}}})
save("collides", {"model": model | {"_orig_mod.model.norm.weight": model["model.norm.weight"]}})
save("two", {"model": model, "ema": model})
tied = weights | {"lm_head.weight": weights[EMBEDDING].clone()}
save("tied", shards(tied))
tied["lm_head.weight"][-1, -1] += 1
save("differs", shards(tied))
save("more", model | {"model.other.weight": model[EMBEDDING]})
flat = {name: fields_of(t.shape) for name, t in titan.items()}  # flatten_optimizer_state_dict
save("titan", titan | {"optimizer": {"state": state_of(titan), "param_groups": flat}, "train_state": {"step": 7}})
mixed = {name.replace("layers.1.attention.qkv_linear.wk", "layers.1.attention.wk"): t for name, t in titan.items()}
save("titan_mixed", mixed)
dist.barrier()
# As in dcp_world.py.
os._exit(0)
