# SPDX-License-Identifier: Apache-2.0
"""The engine from Python: between processes over gloo, equal to what DTensor redistributes; alone, with numpy.

    DCPKIT_LIBRARY=build/libdcpkit.so DCPKIT_SAMPLES=build/samples PYTHONPATH=tools/python \\
        python3 -m pytest tests/python/test_engine.py

Processes are started once; each of the functions whose name begins with `ranks_` runs in all of
them, and is a test. Without torch those are skipped.
"""

import datetime
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import signal
import tempfile
import threading
import time
import traceback
import types
import unittest
import weakref

import dcpkit

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.placement_types import _StridedShard
except ImportError:
    torch = None

N_RANKS = 4
PATIENCE = 240  # seconds for all of it


# --- what ranks do ---


def numbers(shape, dtype, seed=0):
    """Elements that bfloat16 holds, too, other ones in every place near by."""
    n = torch.Size(shape).numel()
    return ((torch.arange(n) * 7 + seed) % 251).reshape(shape).to(dtype)


def poisoned(shape, dtype, mesh, placements):
    return distribute_tensor(torch.full(shape, 99, dtype=dtype), mesh, placements)


def same_bits(a, b):
    return (
        a.shape == b.shape
        and a.dtype == b.dtype
        and torch.equal(a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8))
    )


def remap(engine, sources, targets):
    """Plan and run a map; returns its plan."""
    with engine.map() as m:
        m.sources(sources)
        m.targets(targets)
        plan = m.plan()
        m.run()
        m.run()
        for name, value in m.fingerprints("sources").items():
            if targets.get(name) is not None and targets[name].dtype == sources[name].dtype:
                assert m.fingerprints()[name] == value, name
        return plan


def move(engine, mesh, shape, before, after, dtype=None, to=None):
    """From one list of placements to another; what lands is what DTensor makes of it."""
    dtype = dtype or torch.float32
    whole = numbers(shape, dtype)
    source = distribute_tensor(whole, mesh, before)
    target = poisoned(shape, to or dtype, mesh, after)
    remap(engine, {"w": source}, {"w": target})
    assert torch.equal(target.full_tensor(), whole.to(to or dtype)), (shape, before, after)
    assert same_bits(source.full_tensor(), whole)
    want = source.redistribute(mesh, after).to(to or dtype).to_local()
    assert same_bits(target.to_local(), want), (shape, before, after)


def ranks_rows_to_columns_and_back(rank):
    mesh = init_device_mesh("cpu", (N_RANKS,))
    with dcpkit.Engine(dcpkit.torch_world(), check=True) as engine:
        for shape in ((8, 12), (7, 5), (3, 9), (1, 4), (5, 3, 2)):  # uneven, and ranks without any
            for axis in range(2):
                move(engine, mesh, shape, [Shard(axis)], [Shard(1 - axis)])


def ranks_replicas(rank):
    mesh = init_device_mesh("cpu", (N_RANKS,))
    with dcpkit.Engine(dcpkit.torch_world(), check=True, unit_bytes=64) as engine:
        move(engine, mesh, (6, 5), [Replicate()], [Shard(0)])
        move(engine, mesh, (6, 5), [Shard(1)], [Replicate()])
        move(engine, mesh, (), [Replicate()], [Replicate()])


def ranks_meshes_of_two_dimensions(rank):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    with dcpkit.Engine(dcpkit.torch_world()) as engine:
        for before, after in (
            ([Shard(0), Shard(1)], [Shard(1), Shard(0)]),
            ([Shard(0), Shard(0)], [Replicate(), Shard(1)]),
            ([Replicate(), Shard(1)], [Shard(0), Shard(0)]),
            ([Shard(1), Shard(1)], [Shard(0), Replicate()]),
        ):
            move(engine, mesh, (9, 6), before, after)
            move(engine, mesh, (4, 8, 3), before, after, torch.int64)


def ranks_fsdp_over_tensor_parallel(rank):
    """_StridedShard: rows that tensor parallelism cut first."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    coordinate = mesh.get_coordinate()
    with dcpkit.Engine(dcpkit.torch_world(), check=True) as engine:
        for n_rows in (8, 9, 6):
            whole = numbers((n_rows, 3), torch.float32)
            rows = whole.chunk(2)[coordinate[1]].chunk(2)
            local = rows[coordinate[0]].clone()
            source = DTensor.from_local(
                local,
                mesh,
                [_StridedShard(0, split_factor=2), Shard(0)],
                shape=whole.shape,
                stride=whole.stride(),
                run_check=False,
            )
            target = poisoned(whole.shape, torch.float32, mesh, [Shard(1), Shard(0)])
            remap(engine, {"w": source}, {"w": target})
            assert same_bits(target.full_tensor(), whole), n_rows
            # alone on an axis: a local tensor of two runs of rows
            back = DTensor.from_local(
                torch.zeros(sum(len(c.chunk(2)[coordinate[0]]) for c in whole.chunk(2)), 3),
                mesh,
                [_StridedShard(0, split_factor=2), Replicate()],
                shape=whole.shape,
                stride=whole.stride(),
                run_check=False,
            )
            remap(engine, {"w": target}, {"w": back})
            want = torch.cat([c.chunk(2)[coordinate[0]] for c in whole.chunk(2)])
            assert same_bits(back.to_local(), want), n_rows


def flattened(tensor):
    """view(-1); where this torch refuses it, the placements that later ones make of it."""
    try:
        return tensor.view(-1)
    except RuntimeError:
        from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry, TensorMeta

        axis = tensor.placements[0].dim
        split = torch.Size(tensor.shape[:axis]).numel()
        meta = TensorMeta(torch.Size([tensor.numel()]), (1,), tensor.dtype)
        spec = DTensorSpec(
            tensor.device_mesh,
            (_StridedShard(0, split_factor=split),),
            meta,
            shard_order=(ShardOrderEntry(tensor_dim=0, mesh_dims=(0,)),),
            use_strided_shard_as_shard_order=False,
        )
        return DTensor(tensor.to_local().reshape(-1), spec, requires_grad=False)


def ranks_views(rank):
    """A flattened DTensor has strides in its placements, and an order of shards as well."""
    mesh = init_device_mesh("cpu", (N_RANKS,))
    with dcpkit.Engine(dcpkit.torch_world(), check=True) as engine:
        for shape in ((3, 8), (2, 4, 3)):
            whole = numbers(shape, torch.float32)
            source = flattened(distribute_tensor(whole, mesh, [Shard(1)]))
            assert source.placements[0].split_factor == shape[0], source.placements
            target = torch.zeros(whole.numel())
            remap(engine, {"w": source}, {"w": target})
            assert same_bits(target, source.full_tensor()), shape
            assert same_bits(target, whole.view(-1)), shape


def ranks_casts(rank):
    mesh = init_device_mesh("cpu", (N_RANKS,))
    with dcpkit.Engine(dcpkit.torch_world(), check=True) as engine:
        for dtype, to in (
            (torch.float32, torch.bfloat16),
            (torch.bfloat16, torch.float32),
            (torch.float64, torch.float16),
        ):
            move(engine, mesh, (6, 7), [Shard(0)], [Shard(1)], dtype, to)
        for dtype in (torch.bool, torch.int8, torch.complex64):
            move(engine, mesh, (6, 7), [Shard(0)], [Shard(1)], dtype)


def ranks_boxes(rank):
    """Plain tensors: boxes of any size and stride, several of one tensor, some ranks without."""
    whole = numbers((10, 6), torch.float32)
    cuts = [0, 1, 1, 7, 10]
    low, high = cuts[rank], cuts[rank + 1]
    with dcpkit.Engine(dcpkit.torch_world(), check=True) as engine, engine.map() as m:
        m.source("w", whole[low:high].clone(), box=((low, 0), (high - low, 6)), shape=(10, 6))
        target = torch.zeros(6, 10).t()  # columns first
        if rank == 3:
            m.target("w", target)
        elif rank == 0:  # two boxes in one piece of memory
            m.target("w", target[:2, :3], box=((4, 1), (2, 3)), shape=(10, 6))
            m.target("w", target[5:7, :3], box=((8, 3), (2, 3)), shape=(10, 6))
        m.plan()
        m.run()
        if rank == 3:
            assert same_bits(target.contiguous(), whole)
        elif rank == 0:
            assert torch.equal(target[:2, :3], whole[4:6, 1:4])
            assert torch.equal(target[5:7, :3], whole[8:10, 3:6])
            assert target.sum() == target[:2, :3].sum() + target[5:7, :3].sum()


def ranks_two_of_four(rank):
    """A world of two, which the others have no part in."""
    group = dist.new_group([1, 3], backend="gloo")
    if rank not in (1, 3):
        try:
            dcpkit.torch_world(group)
        except dcpkit.UsageError:
            return
        raise AssertionError("a stranger is in the group")
    mesh = DeviceMesh.from_group(group, "cpu")
    world = dcpkit.torch_world(group, timeout=datetime.timedelta(seconds=60))
    assert (world.rank, world.size) == ([1, 3].index(rank), 2)
    with dcpkit.Engine(world, transport="gather", check=True) as engine:
        for axis in range(2):
            move(engine, mesh, (5, 7), [Shard(axis)], [Shard(1 - axis)])


def ranks_many_and_in_units(rank):
    mesh = init_device_mesh("cpu", (N_RANKS,))
    names = [f"layer.{i}" for i in range(200)]
    wholes = {name: numbers((8, 8), torch.float32, i) for i, name in enumerate(names)}
    sources = {n: distribute_tensor(w, mesh, [Shard(0)]) for n, w in wholes.items()}
    targets = {n: poisoned((8, 8), torch.float32, mesh, [Shard(1)]) for n in names}
    seen = []
    with dcpkit.Engine(
        dcpkit.torch_world(), unit_bytes=400, link_bytes_a_second=1e9
    ) as engine, engine.map() as m:
        m.sources(sources.items())
        m.targets(targets)
        plan = m.plan()
        stats = m.run(done=lambda unit, done_names: seen.append((unit, done_names)))
        assert plan.n_tensors == 200 and plan.n_units > 10 and stats.units_done == plan.n_units
        assert [unit for unit, _ in seen] == list(range(plan.n_units))
        assert sorted(name for _, done_names in seen for name in done_names) == sorted(names)
        # processes' private memory cannot be mapped: that is said
        assert plan.n_link_peers == 3 and "'gather'" in plan.note and "private" in plan.note
        assert "over the link 'gather'" in str(plan) and plan.predicted_seconds > 0
        assert (plan.in_bytes, plan.all_bytes) == (200 * 48, 200 * 192), plan
        for sources_too in range(2):  # what they hold now is what moves
            for name, source in sources.items():
                source.to_local().add_(1)
            m.run()
        for name, target in targets.items():
            assert same_bits(target.full_tensor(), wholes[name] + 2), name


def ranks_feed_from_a_checkpoint(rank):
    """What torch reads of the folder, cut over the ranks, in another dtype."""
    mesh = init_device_mesh("cpu", (2, 2))
    sample = pathlib.Path(os.environ["DCPKIT_SAMPLES"]) / "torch_dist_c_dense_tp2pp2/iter_0000004"
    seen = []
    engine = dcpkit.Engine(
        dcpkit.torch_world(), check=True, threads=2, progress=lambda *step: seen.append(step)
    )
    with dcpkit.open(sample) as ckpt, engine:
        wholes = {key: t.torch() for key, t in ckpt.items() if t.dtype == "float32"}
        assert len(wholes) > 10
        targets = {}
        for i, (key, whole) in enumerate(wholes.items()):
            dtype = (torch.float32, torch.bfloat16)[i % 2]
            axis = i % max(whole.dim(), 1)
            placements = [Shard(axis), Replicate()] if whole.dim() else [Replicate(), Replicate()]
            targets[key] = poisoned(whole.shape, dtype, mesh, placements)
        with engine.map() as m:
            m.checkpoint(sample)
            m.targets(targets)
            plan = m.plan()
            stats = m.run()
            assert plan.n_tensors == len(wholes) and plan.read_bytes > 0 and stats.read_bytes > 0
            assert set(m.fingerprints()) == set(wholes)
            assert seen and all(stage == "loading" and n <= total for stage, n, total in seen), seen
            assert m.verify() == len(wholes)
            names = sorted(wholes)
            changed = [targets[name].to_local().view(-1)[-1:] for name in names[2:6:3] if rank == 3]
            before = [last.clone() for last in changed]
            for last in changed:  # in one replica
                last += 1
            differ(m.verify, names[2:6:3])
            for last, was in zip(changed, before):
                last.copy_(was)
        for key, whole in wholes.items():
            assert same_bits(targets[key].full_tensor(), whole.to(targets[key].dtype)), key
        check_model(rank, sample, targets, [key for key in ckpt if key not in wholes])
        with engine.map() as m:  # only some ranks know it
            if rank > 0:
                m.checkpoint(sample)
            m.target("w", torch.zeros(4))
            raises(dcpkit.UsageError, "checkpoint", m.plan)
        with engine.map() as m:
            raises(dcpkit.SystemError, "/nowhere", m.checkpoint, "/nowhere")
            raises(dcpkit.SystemError, "/nowhere", m.plan)


def differ(call, names, no_file=(), no_model=()):
    try:
        call()
    except dcpkit.DifferenceError as raised:
        got = sorted(raised.differing), raised.not_in_checkpoint, raised.not_in_model
        assert got == (sorted(names), sorted(no_file), list(no_model)), got
        for first in (*names[:1], *no_file[:1], *no_model[:1]):
            assert len(names) > 1 or repr(first) in str(raised), raised
        return
    raise AssertionError("all is equal")


def check_model(rank, sample, targets, others):
    """verify_weights: a rank lists some tensors only, one is of no file, one has other elements."""
    mine = {key: t for i, (key, t) in enumerate(targets.items()) if i % 3 != 1 or rank % 2 == 0}
    assert dcpkit.verify_weights(mine, sample, ignore=others) == len(targets)
    differ(lambda: dcpkit.verify_weights(mine, sample), [], (), others)
    gone, changed = list(targets)[4], list(targets)[6]
    strange = {**{key: t for key, t in mine.items() if key != gone}, "strange.w": torch.ones(2)}
    if rank == 1:
        targets[changed].to_local().view(-1)[:1] += 1
    differ(lambda: dcpkit.verify_weights(strange, sample, ignore=others), [changed], ["strange.w"], [gone])
    path = "/nowhere" if rank == 2 else sample
    raises(dcpkit.SystemError, "/nowhere", dcpkit.verify_weights, mine, path)


def ranks_verify(rank):
    """What a caller changes after a run is found: in one replica, in a source, under a cast."""
    mesh = init_device_mesh("cpu", (2, 2))
    names = list("abcd")
    sources = {n: distribute_tensor(numbers((9, 6), torch.float32, i), mesh, [Shard(0), Shard(1)]) for i, n in enumerate(names)}
    targets = {n: poisoned((9, 6), (torch.float32, torch.bfloat16)[i % 2], mesh, [Replicate(), Shard(0)]) for i, n in enumerate(names)}
    for transport in ("auto", "staged"):
        with dcpkit.Engine(dcpkit.torch_world(), transport=transport) as engine, engine.map() as m:
            m.sources(sources)
            m.targets(targets)
            raises(dcpkit.UsageError, "planned", m.verify)
            m.plan()
            if transport == "auto":
                differ(m.verify, names)
            m.run()
            assert m.verify() == 4
            if rank == 2:
                targets["b"].to_local()[-1, -1] += 128
                sources["c"].to_local()[0, 0] += 1
            differ(m.verify, ["b", "c"])
            m.run()
            assert m.verify() == 4
            if rank == 0:  # less than the cast keeps
                sources["d"].to_local()[0, 0] += 2.0**-20
            assert m.verify() == 4


def ranks_run_what_changed(rank):
    mesh = init_device_mesh("cpu", (N_RANKS,))
    wholes = {n: numbers((64, 1100), torch.float32, i) for i, n in enumerate("abcde")}
    sources = {n: distribute_tensor(w, mesh, [Shard(0)]) for n, w in wholes.items()}
    targets = {n: poisoned((64, 1100), (torch.float32, torch.bfloat16)[i % 2], mesh, [Shard(1)]) for i, n in enumerate(wholes)}
    for check in (False, True):
        with dcpkit.Engine(dcpkit.torch_world(), check=check, unit_bytes=200000) as engine, engine.map() as m:
            m.sources(sources)
            m.targets(targets)
            m.plan()
            stats = m.run(delta=True)
            assert stats.n_sent_blocks == stats.n_blocks == 20 and stats.n_messages > 0, stats
            if rank == 1:
                sources["c"].to_local()[0, 0] += 1  # goes to rank 0
            if rank == 2:
                sources["b"].to_local()[0, 0] += 2.0**-20  # less than the cast keeps
            stats = m.run(delta=True)
            want = (1, 16 * 275 * 4, 1) if rank == 1 else (0, 0, 0)
            assert (stats.n_sent_blocks, stats.sent_bytes, stats.n_messages) == want, stats
            assert m.verify() == 5
            if rank == 3:
                targets["e"].to_local()[0, 0] += 1
            if check:
                raises(dcpkit.SystemError, "'e'", m.run, delta=True)
                assert m.run(delta=True).n_sent_blocks == 20
            else:
                m.run(delta=True)
                differ(m.verify, ["e"])
                m.run()
            assert m.verify() == 5


def raises(kind, words, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except kind as raised:
        assert words in str(raised), raised
        return
    raise AssertionError(f"no {kind.__name__} with {words!r}")


def ranks_fail_together(rank):
    """What one rank does wrong, all learn; the next map works."""
    mesh = init_device_mesh("cpu", (N_RANKS,))
    whole = numbers((8, 4), torch.float32)
    with dcpkit.Engine(dcpkit.torch_world()) as engine:
        with engine.map() as m:  # rank 2 has no source
            if rank != 2:
                m.source("w", distribute_tensor(whole, mesh, [Shard(0)], src_data_rank=None))
            target = torch.zeros(8, 4)
            m.target("w", target)
            raises(dcpkit.FormatError, "'w'", m.plan)
            raises(dcpkit.UsageError, "planned", m.run)
            assert not target.any()
        with engine.map() as m:  # rank 1 has another shape
            shape = (8, 5) if rank == 1 else (8, 4)
            m.source("w", torch.zeros(shape))
            m.target("w", torch.zeros(8, 4))
            raises(dcpkit.FormatError, "rank 1", m.plan)
        with engine.map() as m:  # cannot be cast
            m.source("w", torch.zeros(4, dtype=torch.int32))
            m.target("w", torch.zeros(4))
            raises(dcpkit.UnsupportedError, "int32", m.plan)
        with engine.map() as m:  # what rank 1 has cannot be listed
            if rank == 1:
                raises(TypeError, "list", m.source, "w", [1.0])
            m.source("w", torch.ones(4))
            m.target("w", torch.zeros(4))
            raises(dcpkit.UsageError, "TypeError: a torch tensor", m.plan)
        with engine.map() as m:  # both targets of rank 3 are the same memory
            both = torch.zeros(4)
            for name in "ab":
                m.source(name, torch.ones(4))
                m.target(name, both if rank == 3 else torch.zeros(4))
            raises(dcpkit.FormatError, "rank 3", m.plan)
        move(engine, mesh, (8, 4), [Shard(0)], [Shard(1)])
    raises(dcpkit.UsageError, "options", dcpkit.Engine, dcpkit.torch_world(), check=rank == 1)
    with dcpkit.Engine(dcpkit.torch_world(), transport="direct") as engine, engine.map() as m:
        m.source("w", distribute_tensor(whole, mesh, [Shard(0)]))
        m.target("w", torch.zeros(8, 4))
        raises(dcpkit.UnsupportedError, "private", m.plan)
    with dcpkit.Engine(dcpkit.torch_world()) as engine, engine.map() as m:
        partial = DTensor.from_local(torch.zeros(4), mesh, [Partial()])
        raises(dcpkit.UsageError, "partial", m.source, "w", partial)


def ranks_lose_one(rank):
    """An all_gather that fails on one rank fails on all that wait for it, as their world says."""
    whole = numbers((8, 4), torch.float32)
    inner = dcpkit.torch_world(timeout=datetime.timedelta(seconds=3))
    calls = []

    def all_gather(mine, everything):
        calls.append(len(mine))
        if rank == 0 and len(calls) > limit[0]:
            raise ConnectionError("rank 0 has had enough")
        inner.all_gather(mine, everything)

    limit = [10**9]
    engine = dcpkit.Engine(dcpkit.World(rank, N_RANKS, all_gather))
    m = engine.map()
    m.source("w", whole[2 * rank : 2 * rank + 2].clone(), box=((2 * rank, 0), (2, 4)), shape=(8, 4))
    m.target("w", torch.zeros(8, 4))
    m.plan()
    m.run()
    limit = [len(calls) + 2]
    try:
        m.run()
    except ConnectionError:
        assert rank == 0
    except RuntimeError as raised:  # gloo's: it waited in vain
        assert rank != 0, raised
    else:
        raise AssertionError("it went well")
    raises((dcpkit.SystemError, RuntimeError, ConnectionError), "", m.run)
    engine.close()  # before its map


# --- models in memory ---

SIZES = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
         "intermediate_size": 24, "max_position_embeddings": 64, "tie_word_embeddings": False, "num_experts_per_tok": 2}
ATTENTION = {"q_proj": (32, 32), "k_proj": (16, 32), "v_proj": (16, 32), "o_proj": (32, 32)}


def qwen3_moe():
    """A configuration of Hugging Face's, and shapes of the tensors of its layer."""
    shapes = {f"self_attn.{n}.weight": shape for n, shape in ATTENTION.items()} | {f"self_attn.{n}_norm.weight": (8,) for n in "qk"}
    for e in range(4):
        shapes.update({f"mlp.experts.{e}.{n}_proj.weight": (24, 32) for n in ("gate", "up")}, **{f"mlp.experts.{e}.down_proj.weight": (32, 24)})
    config = {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_experts": 4, "moe_intermediate_size": 24,
              "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "rope_theta": 10000.0, "rms_norm_eps": 1e-6}
    return config, shapes | {"mlp.gate.weight": (4, 32)}


def gpt_oss():
    """The same, of experts whose gate and up columns take turns."""
    shapes = {f"self_attn.{n}.weight": shape for n, shape in ATTENTION.items()} | {f"self_attn.{n}.bias": shape[:1] for n, shape in ATTENTION.items()}
    shapes.update({"mlp.experts.gate_up_proj": (4, 32, 48), "mlp.experts.gate_up_proj_bias": (4, 48), "mlp.experts.down_proj": (4, 24, 32),
                   "mlp.experts.down_proj_bias": (4, 32), "mlp.router.weight": (4, 32), "mlp.router.bias": (4,), "self_attn.sinks": (4,)})
    yarn = {"rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 32}
    config = {"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "num_local_experts": 4, "sliding_window": 8, "rope_theta": 150000,
              "rope_scaling": yarn, "attention_bias": True, "layer_types": ["sliding_attention"], "rms_norm_eps": 1e-5, "swiglu_limit": 7.0}
    return config, shapes


def write_model(folder, config, shapes):
    """A folder of Hugging Face's. Returns its tensors."""
    norms = ("model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm")
    shapes = {f"model.layers.0.{n}": shape for n, shape in shapes.items()} | {n + ".weight": (32,) for n in norms}
    shapes |= {"model.embed_tokens.weight": (64, 32), "lm_head.weight": (64, 32)}
    files = {name: torch.randn(shape) for name, shape in sorted(shapes.items())}
    header, at = {}, 0
    for name, tensor in files.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + 4 * tensor.numel()]}
        at += 4 * tensor.numel()
    text = json.dumps(header).encode()
    os.mkdir(folder)
    with open(f"{folder}/config.json", "w") as file:
        json.dump({**SIZES, **config}, file)
    with open(f"{folder}/model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(t.numpy().tobytes() for t in files.values()))
    return files


def megatron_layer(files):
    """Parameters of Megatron's layer 0, by the formulas of its modules."""
    of = {name.removeprefix("model.layers.0."): tensor for name, tensor in files.items()}
    made = {}
    for kind in ("weight", "bias"):
        if f"self_attn.q_proj.{kind}" in of:
            q, k, v = (of[f"self_attn.{n}_proj.{kind}"].chunk(2) for n in "qkv")
            made[f"decoder.layers.0.self_attention.linear_qkv.{kind}"] = torch.cat([t for group in zip(q, k, v) for t in group])
    for e in range(4):
        fc1, fc2 = (f"decoder.layers.0.mlp.experts.linear_fc{n}.weight{e}" for n in (1, 2))
        if "mlp.experts.down_proj" in of:
            both = of["mlp.experts.gate_up_proj"][e]
            made[fc1] = torch.cat([both[:, 0::2].t(), both[:, 1::2].t()])
            made[fc2] = of["mlp.experts.down_proj"][e].t().contiguous()
            both = of["mlp.experts.gate_up_proj_bias"][e]
            made[fc1.replace("weight", "bias")] = torch.cat([both[0::2], both[1::2]])
        else:
            made[fc1] = torch.cat([of[f"mlp.experts.{e}.{n}_proj.weight"] for n in ("gate", "up")])
            made[fc2] = of[f"mlp.experts.{e}.down_proj.weight"]
    return made


def served_layer(files):
    """Tensors of transformers 5 and of vLLM that the above makes."""
    layer = "model.layers.0."
    if layer + "mlp.experts.down_proj" in files:
        return {"transformers": {layer + n: files[layer + n] for n in ("mlp.experts.gate_up_proj", "mlp.experts.gate_up_proj_bias",
                                                                      "mlp.experts.down_proj", "self_attn.k_proj.bias")}}
    gate, up, down = (torch.stack([files[f"{layer}mlp.experts.{e}.{n}_proj.weight"] for e in range(4)]) for n in ("gate", "up", "down"))
    qkv = torch.cat([files[f"{layer}self_attn.{n}_proj.weight"] for n in "qkv"])
    both = torch.cat([gate, up], 1)
    return {"transformers": {layer + "mlp.experts.gate_up_proj": both, layer + "mlp.experts.down_proj": down},
            "vllm": {layer + "mlp.experts.w13_weight": both, layer + "mlp.experts.w2_weight": down, layer + "self_attn.qkv_proj.weight": qkv}}


# --- processes ---


def rank_main(rank, rendezvous, results):
    ends = {}
    dist.init_process_group(
        "gloo",
        init_method=f"file://{rendezvous}",
        rank=rank,
        world_size=N_RANKS,
        timeout=datetime.timedelta(seconds=30),
    )
    for name, function in scripts():
        try:
            function(rank)
        except BaseException:  # noqa: BLE001 - it is reported
            ends[name] = traceback.format_exc()
    results.put((rank, ends))
    results.close()
    results.join_thread()
    os._exit(0)  # gloo's threads may still wait for a rank that left


def scripts():
    return [(n, f) for n, f in sorted(globals().items()) if n.startswith("ranks_")]


def run_ranks():
    """What each script came to: {name: {rank: traceback}}."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["test_engine", "torch._dynamo"])  # DTensor imports it
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        rendezvous = os.path.join(folder, "rendezvous")
        processes = [
            context.Process(target=rank_main, args=(rank, rendezvous, results))
            for rank in range(N_RANKS)
        ]
        for process in processes:
            process.start()
        ends = {name: {} for name, _ in scripts()}
        try:
            for _ in processes:
                rank, failed = results.get(timeout=PATIENCE)
                for name, text in failed.items():
                    ends[name][rank] = text
        finally:
            for process in processes:
                process.join(10)
                if process.is_alive():
                    process.kill()
    return ends


@unittest.skipIf(torch is None, "needs torch")
class Ranks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ends = run_ranks()


def add_test(name):
    def test(self):
        if self.ends[name]:
            self.fail("\n".join(f"rank {r}: {text}" for r, text in sorted(self.ends[name].items())))

    setattr(Ranks, "test_" + name[len("ranks_") :], test)


for script, _ in scripts():
    add_test(script)


class Placements(unittest.TestCase):
    """What a rank has of an axis, by specs that are made up."""

    def test_an_order_of_shards_has_splits(self):
        placement = types.SimpleNamespace(
            dim=0, split_factor=3, is_partial=lambda: False, is_replicate=lambda: False
        )
        mesh = types.SimpleNamespace(get_coordinate=lambda: [1], size=lambda dim: 2)
        order = [types.SimpleNamespace(tensor_dim=0, mesh_dims=(0,))]
        for order in (order, None):
            spec = types.SimpleNamespace(placements=[placement], mesh=mesh, shard_order=order)
            tensor = types.SimpleNamespace(_spec=spec, _local_tensor=None, shape=(12,))
            runs = dcpkit._engine._dtensor_runs(tensor)
            self.assertEqual(runs, [[(2, 2), (6, 2), (10, 2)]])

    def test_state_dicts_of_megatron_fsdp_have_boxes(self):
        chunk = types.SimpleNamespace(offsets=(5, 0), sizes=(2, 3))
        local = types.SimpleNamespace(__create_chunk_list__=lambda: [chunk])
        mesh = types.SimpleNamespace(get_coordinate=lambda: [1])
        tensor = types.SimpleNamespace(
            _spec=types.SimpleNamespace(mesh=mesh), _local_tensor=local, shape=(8, 3)
        )
        self.assertEqual(dcpkit._engine._dtensor_runs(tensor), [[(5, 2)], [(0, 3)]])


@unittest.skipIf(torch is None or numpy is None, "needs torch and numpy")
class Memory(unittest.TestCase):
    """What of a torch tensor is listed."""

    def test_memory_stays_that_a_tensor_gives_up(self):
        array = numpy.arange(6, dtype=numpy.float32)
        kept = weakref.ref(array)
        tensor = torch.nn.Parameter(torch.from_numpy(array))
        target = torch.zeros(6)
        with dcpkit.Engine() as engine, engine.map() as m:
            m.source("w", tensor)
            m.target("w", target)
            m.plan()
            del array
            tensor.data = torch.zeros(6)
            self.assertIsNotNone(kept())
            m.run()
            self.assertEqual(target.tolist(), [0, 1, 2, 3, 4, 5])
        self.assertIsNone(kept())

    def test_views_that_compute_are_refused(self):
        view = torch.ones(4, dtype=torch.complex64).conj()
        with dcpkit.Engine() as engine, engine.map() as m:
            for wrong, words in ((view, "resolve_conj"), (view.imag, "resolve_neg")):
                with self.assertRaisesRegex(dcpkit.UsageError, words):
                    m.source("w", wrong)


@unittest.skipIf(numpy is None, "needs numpy")
class Alone(unittest.TestCase):
    """One process: from one place of its memory to another."""

    def test_numpy_arrays(self):
        whole = numpy.arange(60, dtype=numpy.float32).reshape(6, 10)
        target = numpy.zeros((10, 6), numpy.float64).T
        with dcpkit.Engine() as engine, engine.map() as m:
            m.source("w", whole[:, ::-1][:, ::-1])
            m.target("w", target)
            plan = m.plan()
            m.run()
            self.assertEqual((plan.in_bytes, plan.local_bytes, plan.note), (0, 240, ""))
            numpy.testing.assert_array_equal(target, whole)

    def test_a_fingerprint_is_what_its_definition_says(self):
        words = numpy.arange(100, 137, dtype=numpy.uint32)
        number = numpy.arange(1, 38, dtype=numpy.uint64)
        with numpy.errstate(over="ignore"):
            key = number * numpy.uint64(0x9E3779B97F4A7C15)
            key ^= key >> numpy.uint64(32)
            key = (key * numpy.uint64(0xD6E8FEB86659FD93)) | numpy.uint64(1)
            want = int((key * words.astype(numpy.uint64)).sum())
        with dcpkit.Engine() as engine, engine.map() as m:
            m.source("w", words[:20], box=((0,), (20,)), shape=(37,))
            m.source("w", words[20:], box=((20,), (17,)), shape=(37,))
            m.target("w", numpy.zeros(37, numpy.uint32))
            m.plan()
            self.assertEqual(m.fingerprints("sources"), {"w": want})
            self.assertEqual(m.fingerprints("targets"), {"w": 0})
            m.run()
            self.assertEqual(m.fingerprints(), {"w": want})
            with self.assertRaises(dcpkit.UsageError):
                m.fingerprints("edges")

    def test_sources_have_the_names_of_another_format(self):
        """What a conversion writes to disk is what lands, from halves of tensors, by two kinds of names."""
        sample = pathlib.Path(os.environ["DCPKIT_SAMPLES"]) / "torch_dist_c_dense_tp2pp2/iter_0000004"
        try:
            import ml_dtypes  # noqa: F401 - numpy's bfloat16
        except ImportError:
            self.skipTest("needs ml_dtypes")

        def arrays(path):
            with dcpkit.open(path) as ckpt:
                return {key: numpy.array(t) for key, t in ckpt.items() if not key.startswith("optimizer")}

        with tempfile.TemporaryDirectory() as folder:
            dcpkit.convert(sample, f"{folder}/hf", "huggingface", weights_only=True)
            dcpkit.convert(sample, f"{folder}/fsdp", "fsdp_dtensor", weights_only=True)
            want = arrays(f"{folder}/hf")
            for kind, held in ((None, arrays(sample)), ("fsdp_dtensor", arrays(f"{folder}/fsdp"))):
                got = {key: numpy.zeros_like(array) for key, array in want.items()}
                with dcpkit.Engine() as engine, engine.map() as m:
                    m.targets(got)
                    for key, array in held.items():
                        for half in numpy.array_split(numpy.arange(array.shape[0]), 2):
                            box = ((int(half[0]), *[0] * (array.ndim - 1)), (len(half), *array.shape[1:]))
                            m.source(key, array[half], box=box, shape=array.shape)
                    m.names(sample, sources=kind, targets="huggingface")
                    m.plan()
                    m.run()
                    self.assertEqual(m.verify(), len(want))
                for key, array in want.items():
                    self.assertEqual(got[key].tobytes(), array.tobytes(), key)
        for source, words in (("strange", "no tensor of that name"), ("embedding.word_embeddings.weight", r"\[256, 64\]")):
            with dcpkit.Engine() as engine, engine.map() as m:
                m.names(sample, targets="huggingface")
                m.source(source, numpy.zeros(3, numpy.float32))
                with self.assertRaisesRegex(dcpkit.FormatError, words):
                    m.plan()
        with dcpkit.Engine() as engine, engine.map() as m:
            m.names(sample, targets="huggingface")
            m.target("model.norm.weight", numpy.zeros(64, numpy.float32))
            with self.assertRaisesRegex(dcpkit.FormatError, "model.norm.weight.*no source"):
                m.plan()
        for names, words in ((("huggingface", None), "names already"), (("nonsense",), "nonsense")):
            with dcpkit.Engine() as engine, engine.map() as m:
                with self.assertRaisesRegex(dcpkit.UsageError, words):
                    for name in names:
                        m.names(sample, targets=name)
                with self.assertRaisesRegex(dcpkit.UsageError, words):
                    m.plan()

    @unittest.skipIf(torch is None, "needs torch")
    def test_models_in_memory_on_every_device(self):
        """Files' tensors become Megatron's modules, and those tensors of transformers and vLLM: transposes, rows that take turns."""
        for device, family in itertools.product(["cpu", *(["cuda"] if torch.cuda.is_available() else [])], (qwen3_moe, gpt_oss)):
            with self.subTest(device=device, family=family.__name__), tempfile.TemporaryDirectory() as folder:
                files = write_model(f"{folder}/hf", *family())
                dcpkit.convert(f"{folder}/hf", f"{folder}/like", "torch_dist")
                held = {name: tensor.to(device) for name, tensor in files.items()}
                with dcpkit.Engine(device=device) as engine:

                    def push(names, sources, want):
                        made = {name: torch.full(t.shape, 99.0, device=device) for name, t in want.items()}
                        with engine.map() as m:
                            m.names(f"{folder}/like", sources=names[0], targets=names[1])
                            m.sources(sources)
                            m.targets(made)
                            m.plan()
                            m.run()
                            m.verify()
                        for name, tensor in want.items():
                            self.assertTrue(same_bits(made[name].cpu(), tensor), f"{names}: {name}")
                        return made

                    modules = push(("huggingface", "megatron"), held, megatron_layer(files))
                    for scheme, want in served_layer(files).items():
                        push(("megatron", scheme), modules, want)
                    with engine.map() as m:
                        odd = torch.zeros(4, 32, 47, device=device)
                        m.names(f"{folder}/like", targets="huggingface")
                        m.target("model.layers.0.mlp.experts.gate_up_proj", odd, box=((0, 0, 0), (4, 32, 47)), shape=(4, 32, 48))
                        words = "take turns" if family is gpt_oss else "no source"
                        with self.assertRaisesRegex(dcpkit.Error, words):
                            m.plan()

    @unittest.skipIf(torch is None, "needs torch")
    def test_changes_and_casts_on_every_device(self):
        """Runs of what changed and proofs, where tensors are in several blocks, of each kind of tile."""
        for device in ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
            with self.subTest(device), dcpkit.Engine(device=device) as engine, engine.map() as m:
                sources, targets = {}, {}
                for i, (dtype, to) in enumerate(itertools.product((torch.float32, torch.bfloat16), repeat=2)):
                    sources[f"w{i}"] = torch.randn(1100, 1000, device=device).to(dtype)
                    targets[f"w{i}"] = torch.zeros(1000, 1100, dtype=to, device=device).t() if i == 3 else torch.zeros(1100, 1000, dtype=to, device=device)
                m.sources(sources)
                m.targets(targets)
                m.plan()

                def run(least, most):
                    stats = m.run(delta=True)
                    self.assertTrue(least <= stats.n_sent_blocks <= most, stats)
                    self.assertEqual(m.verify(), 4)
                    for name, source in sources.items():
                        self.assertTrue(same_bits(targets[name], source.to(targets[name].dtype)), name)
                    return stats.n_blocks

                n = run(20, 100)
                run(0, 0)
                sources["w0"][1099, 999] += 1
                sources["w1"][0, 0] += 1
                sources["w3"][600] += 1
                run(3, 3)
                for _ in range(3):
                    for source in sources.values():
                        source += 1
                    run(n, n)
                run(n, n)  # its sample has not changed
                run(n, n)  # so this one takes the sums of all
                run(0, 0)
                targets["w1"][500, 500] += 1
                differ(m.verify, ["w1"])
                m.run(delta=True)
                differ(m.verify, ["w1"])
                m.run()
                run(n, n)

    @unittest.skipIf(torch is None, "needs torch")
    def test_a_model_is_that_of_a_checkpoint(self):
        """Parameters, a tied one once, a buffer, and none that is not kept; two casts on the way."""
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(3, 4))
        model[2].weight = model[0].weight
        model[0].register_buffer("mask", torch.ones(3), persistent=False)
        model[1].running_mean.copy_(torch.arange(4.0) + 2.0**-20)
        state = {name: t for name, t in model.state_dict().items() if name != "2.weight"}
        with tempfile.TemporaryDirectory() as folder:
            dcp.save(state, checkpoint_id=folder, no_dist=True)
            self.assertEqual(dcpkit.verify_weights(model, folder), 8)
            self.assertEqual(dcpkit.verify_weights(model.state_dict(), folder, ignore=["2."]), 8)
            with self.assertRaises(dcpkit.UsageError):
                dcpkit.verify_weights(model, folder, ignore="2.")
            model[1].running_mean[1] = 1
            with self.assertRaises(dcpkit.DifferenceError) as caught:
                dcpkit.verify_weights(model, folder)
            self.assertEqual(caught.exception.differing, ["1.running_mean"])
            model[1].running_mean[1] += 2.0**-20
            half = {name: t.bfloat16() if t.is_floating_point() else t for name, t in state.items()}
            self.assertEqual(dcpkit.verify_weights(half, folder), 8)
            if torch.cuda.is_available():
                self.assertEqual(dcpkit.verify_weights(model.cuda().bfloat16(), folder), 8)

    def test_what_cannot_be_is_refused(self):
        array = numpy.zeros(4, numpy.float32)
        fixed = numpy.zeros(4, numpy.float32)
        fixed.flags.writeable = False
        for options, words in (
            ({"device": "abacus"}, "abacus"),
            ({"device": "cpu:x"}, "cpu:x"),
            ({"transport": "pigeon"}, "pigeon"),
            ({"timeout": -1}, "below 0"),
        ):
            with self.assertRaisesRegex(dcpkit.UsageError, words):
                dcpkit.Engine(**options)
        with self.assertRaises(dcpkit.UnsupportedError):
            dcpkit.Engine(device="cpu:7")
        with dcpkit.Engine() as engine, engine.map() as m:
            for wrong in (
                lambda: m.source("w", array, box=((0,), (4,))),
                lambda: m.source("w", array, box=((0,), (3,)), shape=(8,)),
                lambda: m.source("w", array, box=((6,), (4,)), shape=(8,)),
                lambda: m.source("w", array.astype(">f4")),
                lambda: m.target("w", fixed),
            ):
                with self.assertRaises(dcpkit.UsageError):
                    wrong()
            with self.assertRaises(TypeError):
                m.source("w", [1, 2, 3])

    def test_ctrl_c_is_not_lost(self):
        whole = numpy.ones((2048, 2048), numpy.float32)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        end = time.monotonic() + 20
        with dcpkit.Engine(threads=1, unit_bytes=1) as engine, engine.map() as m:
            for i in range(8):
                m.source(str(i), whole[i * 256 : (i + 1) * 256].T)
                m.target(str(i), numpy.zeros((2048, 256), numpy.float32))
            m.plan()
            try:
                with self.assertRaises(KeyboardInterrupt):
                    timer.start()
                    while time.monotonic() < end:
                        m.run(done=lambda unit, names: None)
            finally:
                timer.join()
                signal.signal(signal.SIGINT, before)
            m.run()

    def test_done_does_not_use_what_calls_it(self):
        for use in (lambda m, e: m.close(), lambda m, e: e.close(), lambda m, e: e.map(),
                    lambda m, e: m.run(), lambda m, e: m.fingerprints()):
            a, b = numpy.arange(64.0), numpy.zeros(64)
            with dcpkit.Engine() as engine, engine.map() as m:
                m.source("w", a)
                m.target("w", b)
                m.plan()
                with self.assertRaisesRegex(dcpkit.UsageError, "in use"):
                    m.run(done=lambda *_: use(m, engine))
                m.run()
                numpy.testing.assert_array_equal(b, a)

    def test_numbers_fit_their_fields(self):
        for options in ({"unit_bytes": -1}, {"staging_bytes": 2**64}, {"n_blocks": 2**32},
                        {"timeout": 2.0**40}, {"timeout": float("nan")}, {"device": "cpu\0"},
                        {"transport": "auto\0"}):
            with self.subTest(options), self.assertRaises((dcpkit.UsageError, ValueError)):
                dcpkit.Engine(**options)
        for rank, size in ((0, 2**32 + 1), (2**32, 2), (-1, 2), (2, 2)):
            with self.subTest((rank, size)), self.assertRaises(dcpkit.UsageError):
                dcpkit.Engine(dcpkit.World(rank, size, lambda mine, everything: None))
        with dcpkit.Engine() as engine, engine.map() as m:
            with self.assertRaises(dcpkit.UsageError):
                m.source("w", numpy.zeros(4), box=((2**64,), (4,)), shape=(8,))
            with self.assertRaisesRegex(dcpkit.UsageError, "NUL"):
                m.source("w\0x", numpy.zeros(4))
            with self.assertRaisesRegex(dcpkit.UsageError, "could not list"):
                m.plan()

    def run_two(self, flip_at, draw):
        """Two ranks as threads move a tensor; one bit that rank 1 gave arrives otherwise on rank 0."""
        given, barrier, ended = {}, threading.Barrier(2), {}

        def world(rank):
            calls = itertools.count()

            def all_gather(mine, everything):
                n = len(mine)
                given[rank] = bytes(mine)
                barrier.wait(30)
                for r in range(2):
                    everything[r * n : (r + 1) * n] = given[r]
                if rank == 0 and next(calls) == flip_at and n > 0:
                    everything[n + draw.randrange(n)] ^= 1 << draw.randrange(8)
                barrier.wait(30)

            return dcpkit.World(rank, 2, all_gather)

        def work(rank):
            array, whole = numpy.full(20, rank + 1.0), numpy.zeros(40)
            try:
                with dcpkit.Engine(world(rank), transport="staged", check=True) as e, e.map() as m:
                    m.source("w", array, box=((20 * rank,), (20,)), shape=(40,))
                    m.target("w", whole)
                    m.plan()
                    m.run()
                ended[rank] = whole.tolist() == [1.0] * 20 + [2.0] * 20
            except Exception as error:  # of the engine, of the barrier, of calls that differ
                ended[rank] = error
                barrier.abort()

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return ended

    def test_a_bit_that_changes_on_its_way_is_found(self):
        self.assertEqual(self.run_two(None, None), {0: True, 1: True})
        found = []
        for seed in range(16):
            ended = self.run_two(seed, random.Random(seed))
            with self.subTest(seed=seed):
                self.assertNotIn(False, ended.values())
                found.append("arrived with other bytes" in str(ended[0]))
        self.assertGreater(found.count(True), 8)  # not all bytes of all calls are used

    def test_bytes_of_an_all_gather_are_of_its_call(self):
        kept = []

        def all_gather(mine, everything):
            for r in range(2):
                everything[r * len(mine) : (r + 1) * len(mine)] = mine
            kept.append((mine, everything))

        with self.assertRaises(dcpkit.Error):
            dcpkit.Engine(dcpkit.World(0, 2, all_gather))
        for view in (view for views in kept for view in views):
            with self.assertRaises(ValueError):
                view[0]

    def test_closing_comes_in_any_order(self):
        array, target = numpy.ones(4, numpy.float32), numpy.zeros(4, numpy.float32)
        engine = dcpkit.Engine()
        m = engine.map()
        m.source("w", array)
        m.target("w", target)
        m.plan()
        with self.assertRaises(ZeroDivisionError):
            m.run(done=lambda unit, names: 1 // 0)
        engine.close()
        engine.close()
        m.run()
        self.assertEqual(target.sum(), 4)
        with self.assertRaisesRegex(dcpkit.UsageError, "closed"):
            engine.map()
        m.close()
        m.close()
        with self.assertRaisesRegex(dcpkit.UsageError, "closed"):
            m.run()


if __name__ == "__main__":
    unittest.main()
