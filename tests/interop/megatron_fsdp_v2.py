# SPDX-License-Identifier: Apache-2.0
"""megatron_fsdp_v2.py - Megatron-FSDP v2, experimental in main, saves a tiny model on CPU, and loads what dcpkit wrote for it.

    export MEGATRON_TREES=/where/the/releases/are OMP_NUM_THREADS=1
    torchrun --standalone --nproc-per-node 2 megatron_fsdp_v2.py save HEAD FAMILY FOLDER [by=training] [adam=torch] [impl=te] [ep=2]
    torchrun --standalone --nproc-per-node 2 megatron_fsdp_v2.py load HEAD FAMILY FOLDER ...

By its own save_checkpoint(model, optimizer, folder) and load_checkpoint(), with the optimizer; by=training: as Megatron's training saves
and loads fsdp_dtensor, weights alone, since its optimizer refuses there. Every value is a function of the parameter's name; load prints
"CHECKED n bad 0", and the step and the learning rate of the groups.
"""
import sys

settings = [word for word in sys.argv[5:] if not word.startswith("by=")]
by_training = "by=training" in sys.argv[5:]
sys.argv[5:] = ["fsdp=2", *settings]

import argparse  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402

import megatron_toy as toy  # noqa: E402
from megatron.core.distributed.fsdp.src.megatron_fsdp import experimental  # noqa: E402

STATES = ("exp_avg", "exp_avg_sq")
STEP = 4


def local_rows(param):
    """Where this rank's rows of a parameter lie: ranks of its mesh hold them one behind the other."""
    group = param.device_mesh.get_group()
    sizes = [None] * dist.get_world_size(group)
    dist.all_gather_object(sizes, param.to_local().shape[0], group=group)
    start = sum(sizes[: dist.get_rank(group)])
    return slice(start, start + param.to_local().shape[0])


def want(name, param, kind=""):
    return toy.value_of(toy.whole_name(toy.bare, name), param.shape, kind)[local_rows(param)]


def groups_of(model, wrapped):
    """Megatron's, with what it leaves out of them on each rank: parameters of which that holds nothing. v2's functions gather over ranks
    for every parameter, and would wait for each other forever."""
    made, _ = toy.make_optimizer([wrapped])
    held = [None] * toy.WORLD
    dist.all_gather_object(held, [dict(group, params=[]) for group in getattr(made, "chained_optimizers", [made])[0].optimizer.param_groups])
    groups = []
    for group in sum(held, []):
        groups += [group] if group not in groups else []
    for name, param in model.named_parameters():
        decays = param.dim() > 1 and not name.endswith("bias")
        next(group for group in groups if (group["wd_mult"] > 0) == decays)["params"].append(param)
    return groups


def built():
    wrapped = toy.wrap_fsdp()
    model = toy.checkpointing.unwrap_model([wrapped])[0]
    optimizer = (toy.Fused if toy.LAYOUT["adam"] == "fused" else torch.optim.AdamW)(groups_of(model, wrapped))
    experimental.fully_shard_optimizer(optimizer)
    return model, optimizer


def training_state(model):
    """What generate_state_dict() makes of a run with --no-save-optim, on its way to the writer or the reader."""
    args = argparse.Namespace(**{**vars(toy.args), "no_save_optim": True, "use_distributed_optimizer": False})
    state = toy.checkpointing.generate_state_dict(args, [model], None, None, toy.rng_state("fsdp_dtensor"), iteration=toy.ITERATION)
    return toy.checkpointing.preprocess_fsdp_dtensor_state_dict(args, state, model)


def save():
    model, optimizer = built()
    for name, param in model.named_parameters():
        param.to_local().copy_(want(name, param).to(param.dtype))
    if by_training:
        state = training_state(model)
        state["args"] = argparse.Namespace(**{k: v for k, v in vars(toy.args).items() if isinstance(v, (bool, int, float, str, type(None)))})
        dcp.save(state, checkpoint_id=toy.FOLDER)
        return 0
    experimental.checkpoint._init_optimizer_state(optimizer)
    for name, param in model.named_parameters():
        for kind in STATES:
            optimizer.state[param][kind].to_local().copy_(want(name, param, "." + kind))
        if "step" in optimizer.state[param]:
            optimizer.state[param]["step"].fill_(STEP)
    for group in optimizer.param_groups if toy.LAYOUT["adam"] == "fused" else ():
        group["step"] = STEP
    experimental.save_checkpoint(model, optimizer, toy.FOLDER)
    return 0


def load():
    model, optimizer = built()
    for param in model.parameters():
        param.to_local().fill_(-1)
    if by_training:
        dcp.load_state_dict(training_state(model), storage_reader=dcp.FileSystemReader(toy.FOLDER),
                            planner=dcp.default_planner.DefaultLoadPlanner())
    else:
        experimental.load_checkpoint(model, optimizer, toy.FOLDER)
    checked, bad = 0, []
    for name, param in model.named_parameters():
        kinds = [("", param)] + [("." + kind, optimizer.state[param][kind]) for kind in STATES if not by_training]
        for kind, got in kinds:
            checked += 1
            if not torch.equal(got.to_local(), want(name, param, kind).to(got.dtype)):
                bad.append(name + kind)
    steps = {float(state["step"]) for state in optimizer.state.values() if "step" in state} | {
        float(group["step"]) for group in optimizer.param_groups if "step" in group}
    print("CHECKED", checked, "bad", len(bad), *bad[:5], "steps", sorted(steps), "lr", sorted({g["lr"] for g in optimizer.param_groups}))
    return 1 if bad or not checked else 0


with torch.no_grad():
    code = save() if toy.ACTION == "save" else load()
sys.stdout.flush()
dist.barrier()
sys.exit(code)
