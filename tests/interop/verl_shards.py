# SPDX-License-Identifier: Apache-2.0
# verl_shards.py - torch's own FSDP2 cuts a model, and each rank's part is saved as verl's checkpoint manager does.
"""Usage: verl_shards.py MODEL OUT      MODEL: a folder of Hugging Face's, of a llama.

No rank runs: a process group of the kind "fake" lets this one be each of them in turn, and cutting needs no communication.
"""
import json
import os
import pickle
import shutil
import sys

import torch
import torch.distributed as dist
from torch.distributed._shard.sharded_tensor import ShardedTensor
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoModelForCausalLM

source, out = sys.argv[1:]
STEP = os.path.join("global_step_3", "actor")
LR = 2**-10


def cut_by_tp(model, mesh):
    """Rows of some projections, columns of others: Shard(0) and Shard(1)."""
    axes = dict.fromkeys(("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"), 0) | {"o_proj": 1, "down_proj": 1}
    for name, module in model.named_modules():
        axis = axes.get(name.rpartition(".")[2])
        if axis is not None:
            cut = distribute_tensor(module.weight.data, mesh, [Shard(axis)], src_data_rank=None)
            module.weight = torch.nn.Parameter(cut)


def save_items(folder, rank, n_ranks, model, optimizer):
    """The same as torch_checkpointing 2.0 lays it out: items by name, a file for each rank."""
    os.makedirs(folder, exist_ok=True)
    flat = {f"state.{name}.{key}": t for name, p in model.named_parameters() for key, t in optimizer.state[p].items()}
    flat |= {f"param_groups.{name}.lr": 1e-3 for name, _ in model.named_parameters()}
    torch.save(dict(model.state_dict()), os.path.join(folder, f"model_{rank}.pt"))
    torch.save(flat, os.path.join(folder, f"optimizer_{rank}.pt"))
    with open(os.path.join(folder, "metadata.pkl"), "wb") as f:
        pickle.dump({"version": "2.0", "world_size": n_ranks, "metadata": {"model": {}, "optimizer": {}}}, f)


def save(name, rank, n_ranks, shape, names, version=2):
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=n_ranks)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    if "tp" in names:
        cut_by_tp(model, mesh["tp"])
        mesh = mesh["fsdp"]
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    lr = torch.tensor(LR) if name == "replicated" else LR  # as fused optimizers may have it
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for p in model.parameters():
        p.grad = p.detach().clone()
    optimizer.step()
    with torch.no_grad():  # back to the weights that the test knows
        for p in model.parameters():
            p.copy_(p.grad)
    state = model.state_dict()
    assert all(isinstance(t, DTensor) for t in state.values())
    folder = os.path.join(out, name, STEP)
    os.makedirs(os.path.join(folder, "huggingface"), exist_ok=True)
    part = f"world_size_{n_ranks}_rank_{rank}.pt"
    torch.save(state, os.path.join(folder, "model_" + part))
    torch.save(optimizer.state_dict(), os.path.join(folder, "optim_" + part))
    torch.save({"lr_scheduler": {}}, os.path.join(folder, "extra_state_" + part))
    shutil.copy(os.path.join(source, "config.json"), os.path.join(folder, "huggingface"))
    with open(os.path.join(folder, "fsdp_config.json"), "w", encoding="ascii") as f:
        json.dump({"FSDP_version": version, "world_size": n_ranks}, f, indent=4)
    save_items(os.path.join(out, "items", name, "step-3"), rank, n_ranks, model, optimizer)
    placements = {str(t.placements) for t in state.values()}
    dist.destroy_process_group()
    return placements


def save_odd(name, rank, change):
    """The part of two ranks of a small state dict, which `change` spoils."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("fsdp",))
    embedding = DTensor.from_local(torch.ones(4, 6), mesh, [Shard(0)], run_check=False)
    state = change(rank, mesh, {"model.embed_tokens.weight": embedding, "model.norm.weight": torch.ones(6)})
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    torch.save(state, os.path.join(folder, f"model_world_size_2_rank_{rank}.pt"))
    with open(os.path.join(folder, "fsdp_config.json"), "w", encoding="ascii") as f:
        json.dump({"FSDP_version": 2, "world_size": 2}, f)
    dist.destroy_process_group()


def cycle(rank, mesh, state):
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("a", "b"))
    mesh._flatten("c")
    return state | {"model.norm.weight": DTensor.from_local(torch.ones(3), mesh, [Shard(0), Replicate()], run_check=False)}


class Sharded:
    """A ShardedTensor by its class alone: making a real one needs all ranks at once."""

    def __reduce__(self):
        return ShardedTensor, ()


def partial(rank, mesh, state):
    return state | {"model.norm.weight": DTensor.from_local(torch.ones(6), mesh, [Partial()], run_check=False)}


def cut(rank, mesh, state):
    """The shape of the whole tensor is another than that of its parts."""
    state["model.embed_tokens.weight"]._spec.tensor_meta = None
    part = DTensor.from_local(torch.ones(4 + rank, 6), mesh, [Shard(0)], shape=(8, 6), stride=(6, 1), run_check=False)
    return state | {"model.embed_tokens.weight": part}


ODD = {
    "whole": lambda rank, mesh, state: state,
    "unequal": lambda rank, mesh, state: state | {"model.norm.weight": torch.full((6,), float(rank))},
    "fewer": lambda rank, mesh, state: dict(list(state.items())[rank:]),
    "dtypes": lambda rank, mesh, state: {name: t.to(torch.bfloat16) if rank else t for name, t in state.items()},
    "foreign": lambda rank, mesh, state: state | {"model.norm.weight": torch.nn.Linear(6, 1)},
    "apart": lambda rank, mesh, state: state | {"model.norm.weight": torch.ones(6, 6).t()},
    "sharded": lambda rank, mesh, state: state | {"model.norm.weight": Sharded()},
    "cycle": cycle,
    "partial": partial,
    "cut": cut,
}
for name, change in ODD.items():
    for rank in range(2):
        save_odd(name, rank, change)
for rank in range(3):
    save("flat", rank, 3, (3,), ("fsdp",))
for rank in range(4):
    save("replicated", rank, 4, (2, 2), ("ddp", "fsdp"))
seen = set()
for rank in range(4):
    seen |= save("strided", rank, 4, (2, 2), ("fsdp", "tp"))
assert any("_StridedShard" in placements for placements in seen), seen
