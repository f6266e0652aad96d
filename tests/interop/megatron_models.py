# SPDX-License-Identifier: Apache-2.0
"""megatron_models.py - Megatron itself, on CPU, saves a tiny model of a family as torch_dist, and loads its conversions.

    export MEGATRON_TREES=/where/the/releases/are OMP_NUM_THREADS=1
    python megatron_models.py save core_v0.19.0 FAMILY FOLDER
    dcpkit convert --to fsdp_dtensor FOLDER OUT
    python megatron_models.py load core_v0.19.0 FAMILY OUT/iter_0000004
    dcpkit convert --to torch_dist OUT BACK
    python megatron_models.py load core_v0.19.0 FAMILY BACK/iter_0000004

The same state, cut over ranks, in another optimizer layout (settings: see LAYOUT in megatron_toy.py). Core 0.6 to 0.12 save too (dense, moe, tied, layernorm),
with torch 2.5:

    torchrun --standalone --nproc-per-node 4 megatron_models.py save core_v0.19.0 FAMILY FOLDER tp=2 layout=dp_reshardable
    torchrun --standalone --nproc-per-node 2 megatron_models.py load core_v0.19.0 FAMILY OUT/iter_0000004 tp=2

The older formats, loaded as what dcpkit makes of them:

    torchrun --standalone --nproc-per-node 4 megatron_models.py save core_v0.19.0 FAMILY RUN backend=torch tp=2 ep=2 zero=0
    python megatron_models.py save core_v0.19.0 FAMILY FOLDER backend=torch_dcp zero=0 dtype=fp32
    dcpkit convert --to torch_dist --target-mesh tp=1 RUN/iter_0000004 OUT
    python megatron_models.py load core_v0.19.0 FAMILY OUT/iter_0000004

What dcpkit writes as torch, loaded as load_checkpoint does, for the ranks that it was written for:

    dcpkit convert --to torch OUT PLAIN
    torchrun --standalone --nproc-per-node 4 megatron_models.py load core_v0.19.0 FAMILY PLAIN backend=torch tp=2 ep=2 zero=0

Modules in memory, pushed by the engine (the library: see tools/python/README.md) to where FOLDER, saved by Megatron, has the same values:

    torchrun --standalone --nproc-per-node 4 megatron_models.py push core_v0.19.0 FAMILY FOLDER tp=2 pp=2 vpp=2

Families: see FAMILIES there. Every value is a function of the parameter's name, so `load` needs nothing from `save`. It loads fsdp_dtensor
strictly with Megatron-FSDP's own code, through PyTorch's reader, and prints "REQUESTED n MISSING 0" and "CHECKED n bad 0"; torch_dist and
zarr (core 0.15) with Megatron's dist_checkpointing and default strictness, model and optimizer strict, and prints "EXTRA STATE n none m"
(fsdp_dtensor keeps none) and "CHECKED n bad 0". Megatron's local layer spec stands in for Transformer Engine's; where a module has no local
form (Mamba, Gated DeltaNet) its kernels are stubs.
"""
import argparse
import os
import sys

import torch
import torch.distributed as dist

from megatron_old import call
from megatron_toy import (ACTION, FAMILY, FOLDER, IS_FSDP, IS_ZERO, ITERATION, LAYOUT, STATES, TP, VPP, WORLD, args, bare, checkpointing, chunks,
                          each_master, extra_state_of, extra_states, family, live_parameters, local_value, make_optimizer, owners,
                          rng_state, same_extra_state, state_of, value_of, weight_of, whole_name, wrap, wrap_fsdp)


def save():
    from megatron.core import dist_checkpointing

    live = live_parameters()
    for param, (chunk, name) in live.items():
        param.data.copy_(local_value(chunk, name, param, "").to(param.dtype))
    for chunk in chunks:
        for name, buffer in chunk.named_buffers():
            if name.endswith("expert_bias"):  # in fp32, as the first forward pass makes it
                buffer.data = value_of(whole_name(chunk, name), buffer.shape, "")
    optimizer, scheduler = make_optimizer([wrap(chunk) for chunk in range(VPP)])
    for param, span, main, state in each_master(optimizer):
        values = {kind: local_value(*live[param], param, kind).flatten()[span.start:span.end].view(main.shape)
                  for kind in ("", *STATES)}
        if LAYOUT["precise"]:
            state[main] = dict(master_param=values.pop(""), **{kind[1:]: value.bfloat16() for kind, value in values.items()})
        else:
            main.data.copy_(values.pop(""))
            state[main] = {kind[1:]: value for kind, value in values.items()}
            if LAYOUT["adam"] == "torch":
                state[main]["step"] = torch.tensor(float(ITERATION))
        if LAYOUT["precise"] == "remainders":
            state[main]["master_param"] = state[main]["master_param"].view(torch.int16)[::2].clone()  # the low half of each
    for group in optimizer.param_groups if LAYOUT["adam"] == "fused" else ():
        group["step"] = ITERATION
    if LAYOUT["backend"] in ("torch", "torch_dcp"):
        return save_plain(optimizer, scheduler)
    metadata = dict(distrib_optim_sharding_type=LAYOUT["layout"], distrib_optim_fully_reshardable_mem_efficient=False,
                    singleton_local_shards=False, chained_optim_avoid_prefix=True, **family.get("metadata", {}))
    state = state_of(optimizer, scheduler, metadata, None if args.no_save_rng else rng_state("torch_dist"))
    if LAYOUT["verl"]:
        return save_verl(state, metadata)
    state["num_floating_point_operations_so_far"] = 1.0
    os.makedirs(FOLDER, exist_ok=WORLD > 1)
    dist.barrier()
    call(dist_checkpointing.save, state, FOLDER, (LAYOUT["backend"], 1), content_metadata=metadata)
    print("SAVED", len(live), "parameters")
    dist.barrier()


def save_verl(state, metadata):
    """As verl's MegatronCheckpointManager: 2: three folders, of release 0.9; 1: one, of 0.7.1; 0: one without content_metadata, of 0.7.0."""
    import dataclasses
    import json

    import megatron.core.parallel_state as mpu
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing.strategies import fully_parallel, torch as strategies
    from transformers import LlamaConfig

    from megatron_toy import VOCAB, config

    parts = dict(model={name: part for name, part in state.items() if name.startswith("model")},
                 optimizer=dict(optimizer=state["optimizer"], lr_scheduler=state["opt_param_scheduler"]),
                 extra=dict(rng_state=state["rng_state"]))
    if LAYOUT["verl"] != "2":
        parts = {"": {**parts["model"], **parts["optimizer"], **parts["extra"]}}
    for folder, part in parts.items():
        path = os.path.join(FOLDER, folder, "dist_ckpt")
        os.makedirs(path, exist_ok=True)
        dist.barrier()
        strategy = fully_parallel.FullyParallelSaveStrategyWrapper(
            call(strategies.TorchDistSaveShardedStrategy, backend="torch_dist", version=1), mpu.get_data_parallel_group(with_context_parallel=True))
        known = {} if LAYOUT["verl"] == "0" else dict(content_metadata=metadata)
        dist_checkpointing.save(part, path, sharded_strategy=strategy, async_sharded_save=False, validate_access_integrity=True, **known)
        dist.barrier()
    if dist.get_rank() == 0:
        inner = os.path.join(FOLDER, *(["model"] if LAYOUT["verl"] == "2" else []), "huggingface")
        LlamaConfig(vocab_size=VOCAB, hidden_size=config.hidden_size, intermediate_size=config.ffn_hidden_size, num_hidden_layers=config.num_layers,
                    num_attention_heads=config.num_attention_heads, num_key_value_heads=config.num_query_groups, max_position_embeddings=32,
                    rms_norm_eps=config.layernorm_epsilon, tie_word_embeddings=False, dtype="bfloat16",
                    architectures=["LlamaForCausalLM"]).save_pretrained(inner)
        plain = {name: str(value) if isinstance(value, torch.dtype) else value for name, value in vars(config).items()
                 if value is None or isinstance(value, (str, int, float, bool, torch.dtype))}
        with open(os.path.join(FOLDER, "transformer_config.json"), "w") as file:
            json.dump(plain, file, indent=2)
        if LAYOUT["verl"] == "2":
            contents = {name: dict(path=f"{name}/dist_ckpt", format="megatron_dist_checkpoint") for name in ("model", "optimizer")}
            contents["rng_state"] = dict(path="extra/dist_ckpt", format="megatron_dist_checkpoint", key="rng_state")
            manifest = dict(schema_version=2, framework="megatron", role="actor", arch="LlamaForCausalLM", global_step=ITERATION, world_size=WORLD,
                            backend=dict(has_bridge=False, use_dist_checkpointing=True, peft=False),
                            save_contents=["model", "optimizer", "extra"], contents=contents, directories={}, saved_any_dist_ckpt=True)
            with open(os.path.join(FOLDER, "ckpt_contents.json"), "w") as file:
                json.dump(manifest, file, indent=2, sort_keys=True)
    print("SAVED", FOLDER)
    dist.barrier()


def save_plain(optimizer, scheduler):
    """As save_checkpoint has the formats torch (the folders of each model-parallel rank) and torch_dcp (of what is not sharded)."""
    import megatron.core.parallel_state as mpu

    args.ckpt_format = LAYOUT["backend"]
    state = checkpointing.generate_state_dict(args, chunks, optimizer, scheduler, None if args.no_save_rng else rng_state(args.ckpt_format),
                                              iteration=ITERATION)
    state["num_floating_point_operations_so_far"] = 1.0
    if args.ckpt_format == "torch_dcp":
        torch.distributed.checkpoint.save(state, checkpoint_id=FOLDER)
        return
    name = checkpointing.get_checkpoint_name(FOLDER, ITERATION)
    if mpu.get_data_parallel_rank() == 0 or mpu.get_expert_data_parallel_rank() == 0:
        os.makedirs(os.path.dirname(name), exist_ok=True)
        torch.save(state, name)
    dist.barrier()
    if IS_ZERO and not args.no_save_optim:
        optimizer.save_parameter_state(checkpointing.get_distributed_optimizer_checkpoint_name(name))
    print("SAVED", name)
    dist.barrier()


def report(checked, bad):
    print("CHECKED", checked, "bad", len(bad), *bad[:10], sep="\n  " if bad else " ")
    return 1 if bad or not checked else 0


def forget():
    for kind in (bare.named_parameters(), bare.named_buffers()):
        for _, tensor in kind:
            tensor.data.fill_(-1)


def load_3d():
    """As Megatron loads torch_dist or zarr: the default strictness, then the model and the optimizer strictly."""
    from megatron.core import dist_checkpointing

    forget()
    live = live_parameters()
    optimizer, scheduler = make_optimizer([wrap(chunk) for chunk in range(VPP)])
    if LAYOUT["backend"] == "torch":
        load_plain(optimizer)
        return check_loaded(live, optimizer)
    common = dist_checkpointing.load_common_state_dict(FOLDER)
    rng = None if getattr(common["args"], "no_save_rng", False) else rng_state("torch_dist")
    request = state_of(optimizer, scheduler, common["content_metadata"], rng, is_loading=True)
    state = dist_checkpointing.load(request, FOLDER, strict="assume_ok_unexpected")
    bare.load_state_dict(state["model"], strict=True)
    if not args.no_save_optim:
        optimizer.load_state_dict(state["optimizer"])
    return check_loaded(live, optimizer)


def load_plain(optimizer):
    """As load_checkpoint loads the format torch, but strict without its second attempt."""
    name = checkpointing.get_checkpoint_name(FOLDER, ITERATION)
    state = torch.load(name, map_location="cpu")
    for number, chunk in enumerate(chunks):
        chunk.load_state_dict(state["model" if VPP == 1 else f"model{number}"], strict=True)
    for size in ("tensor_model_parallel_size", "pipeline_model_parallel_size"):  # check_checkpoint_args
        assert getattr(state["args"], size) == getattr(args, size), size
    if not args.no_save_optim:
        optimizer.load_state_dict(state["optimizer"])
        if IS_ZERO:
            optimizer.load_parameter_state(checkpointing.get_distributed_optimizer_checkpoint_name(name))
    assert state["checkpoint_version"] == 3.0 and state["iteration"] == ITERATION
    assert state["args"].no_save_rng or state["rng_state"][0].keys() == rng_state("torch")[0].keys()


def check_loaded(live, optimizer):
    checked, bad = 0, []

    def check(what, got, want):
        nonlocal checked
        checked += 1
        if not torch.equal(got, want):
            bad.append(what)

    for param, (chunk, name) in live.items():
        check(name, param.data, local_value(chunk, name, param, "").to(param.dtype))
    for name, tensor in bare.named_buffers():
        if not name.endswith("local_tokens_per_expert"):
            check(name, tensor.data, weight_of(name, tensor))
    for param, span, main, state in each_master(optimizer) if not args.no_save_optim else ():
        for kind, got in (("", main.data), *((kind, state[main][kind[1:]]) for kind in STATES)):
            chunk, name = live[param]
            want = local_value(chunk, name, param, kind).flatten()[span.start:span.end]
            check(name + (kind or ".master"), got.flatten(), want)
    extra_states.pop(getattr(bare, "output_layer", None), None)
    print("EXTRA STATE", len(extra_states), "none", sum(state is None for state in extra_states.values()))
    for module, state in extra_states.items():
        checked += 1
        if state is not None and not same_extra_state(extra_state_of(module), state):
            bad.append(owners[module] + "._extra_state")
    if LAYOUT["adam"] == "fused" and not args.no_save_optim:
        check("step", torch.tensor([float(g["step"]) for g in optimizer.param_groups]),
              torch.full((len(optimizer.param_groups),), float(ITERATION)))
    return report(checked, bad)


def load_fsdp():
    from torch.distributed.checkpoint import FileSystemReader, default_planner
    from torch.distributed.checkpoint._nested_dict import flatten_state_dict

    forget()
    cut_of = {name: param for name, param in bare.named_parameters()}  # FSDP puts others in their place
    chunk = wrap_fsdp()
    optimizer, scheduler = make_optimizer([chunk])
    unwrapped = checkpointing.unwrap_model([chunk])
    args.no_save_rng |= TP > 1  # what was saved by fewer ranks lacks theirs: --no-load-rng
    if args.no_save_optim:
        optimizer = scheduler = None
    rng = None if args.no_save_rng else rng_state("fsdp_dtensor")
    state = checkpointing.generate_state_dict(args, unwrapped, optimizer, scheduler, rng, iteration=1,
                                              optim_sd_kwargs=dict(metadata={}, is_loading=True))
    state["args"] = argparse.Namespace()
    live, moments = dict(state["model"]), dict(state["optimizer"]["state"]) if optimizer else {}
    request = checkpointing.preprocess_fsdp_dtensor_state_dict(args, state, unwrapped[0])
    reader = FileSystemReader(FOLDER)
    stored = reader.read_metadata().state_dict_metadata
    flat, _ = flatten_state_dict(request)
    missing = sorted(k for k in flat if k not in stored)
    print("REQUESTED", len(flat), "MISSING", len(missing), *missing[:20], sep="\n  " if missing else " ")
    torch.distributed.checkpoint.load_state_dict(state_dict=request, storage_reader=reader,
                                                 planner=default_planner.DefaultLoadPlanner())
    checked, bad = 0, []

    def check(name, kind, tensor):
        nonlocal checked
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        bare_name = name.removeprefix("module.")
        want = local_value(bare, bare_name, cut_of[bare_name], kind) if bare_name in cut_of else value_of(name, tensor.shape, kind)
        checked += 1
        if not torch.equal(local, want.to(local.dtype)):
            bad.append(name + kind)

    for name, tensor in live.items():
        if torch.is_tensor(tensor) and not name.endswith(("local_tokens_per_expert", "_extra_state")):
            check(name, "", tensor)
    for name, entry in moments.items():
        for kind in STATES:
            check(name.removeprefix("module.").removeprefix("module."), kind, entry[kind[1:]])
    return report(checked, bad) or int(bool(missing))


def push():
    """named_parameters() of all ranks as sources of the stored tensors, on rank 0."""
    import dcpkit

    for param, (chunk, name) in live_parameters().items():
        param.data.copy_(local_value(chunk, name, param, "").to(param.dtype))
    names = [f"{size}={LAYOUT[size]}" for size in ("tp", "pp", "vpp", "ep", "etp", "first", "last")
             if LAYOUT[size] not in ("", "1") or size == "etp" and LAYOUT["etp"]]
    modules = torch.nn.ModuleList(chunks) if VPP > 1 else chunks[0]
    if IS_FSDP:  # its buffers take the values that the modules have
        names.append(f"fsdp={dist.get_world_size() // TP}")
        modules = wrap_fsdp()
    if LAYOUT["stages"]:
        names = [name for name in names if not name.startswith("vpp=")] + [f"layout={LAYOUT['stages']}"]
    with dcpkit.open(FOLDER) as ckpt:
        stored = {key: tensor.torch() for key, tensor in ckpt.items() if not key.startswith("optimizer.")}
    trained = {key for key in stored if not key.endswith(("expert_bias", "local_tokens_per_expert"))}
    got = {key: torch.zeros_like(stored[key]) for key in sorted(trained) if dist.get_rank() == 0}
    with dcpkit.Engine(dcpkit.torch_world()) as engine, engine.map() as m:
        m.names(FOLDER, sources=":".join(["megatron", *filter(None, [",".join(names)])]))
        m.sources(modules.named_parameters())
        m.targets(got)
        m.plan()
        m.run()
        m.verify()
    bad = [key for key, tensor in got.items() if not torch.equal(tensor, stored[key])]
    dist.barrier()
    return report(len(trained), bad)


code = save() if ACTION == "save" else push() if ACTION == "push" else load_fsdp() if IS_FSDP else load_3d()
sys.stdout.flush()
os._exit(code or 0)
