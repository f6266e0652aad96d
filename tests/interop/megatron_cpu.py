# SPDX-License-Identifier: Apache-2.0
"""megatron_cpu.py - a Megatron release without CUDA: what is replaced before it is imported, and packages that are not installed."""
import contextlib
import importlib
import logging
import os
import struct
import queue
import sys
import types
import typing
import warnings

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing
import torch.utils.cpp_extension
import typing_extensions
from torch.distributed.device_mesh import DeviceMesh, _mesh_resources

import megatron_engine
import megatron_old


def release_of(tree):
    """Of core, as numbers; main is behind them all."""
    return tuple(int(n) for n in tree.removeprefix("core_v").split(".")) if tree.startswith("core_v") else (99,)


class FakeStream:
    """Streams and events order nothing on a CPU."""

    def __init__(self, *_args, **_kwargs):
        pass

    def __getattr__(self, _name):
        return lambda *a, **k: True

    def record_event(self, *_args):
        return FakeStream()


class Device(str):
    def __format__(self, _spec):
        return "0"


class Generator:
    """What a GPU's generator keeps: 16 bytes, its seed and how far it is."""

    def __init__(self):
        self.state = torch.zeros(16, dtype=torch.uint8)

    def seed(self, seed):
        self.state = torch.frombuffer(bytearray(struct.pack("<QQ", seed, 0)), dtype=torch.uint8)

    def get(self, *_args, **_kwargs):
        return self.state.clone()

    def set(self, state, *_args, **_kwargs):
        assert state.dtype == torch.uint8 and state.shape == (16,)
        self.state = state.clone()


def on_cpu(make):
    def wrapped(*args, **kwargs):
        if "cuda" in str(kwargs.get("device")):
            kwargs["device"] = "cpu"
        return make(*args, **kwargs)

    return wrapped


def replace_cuda():
    torch.cuda.Stream = torch.cuda.Event = FakeStream
    torch.cuda.current_stream = lambda *a: FakeStream()
    torch.cuda.stream = lambda *a: contextlib.nullcontext()
    torch.cuda.current_device = lambda: Device("cpu")
    for name in ("synchronize", "empty_cache", "set_rng_state", "set_device", "manual_seed"):
        setattr(torch.cuda, name, lambda *a, **k: None)
    torch.cuda.get_rng_state = lambda *a, **k: torch.get_rng_state()
    torch.cuda.memory_allocated = torch.cuda.memory_reserved = lambda *a: 0
    torch.Tensor.cuda = lambda self, *a, **k: self
    torch.nn.Module.cuda = lambda self, *a, **k: self
    for name in ("tensor", "zeros", "empty", "ones", "full", "zeros_like", "empty_like", "arange"):
        setattr(torch, name, on_cpu(getattr(torch, name)))
    if not hasattr(_mesh_resources, "child_to_root_mapping"):
        _mesh_resources.child_to_root_mapping = {}
    from_group = DeviceMesh.from_group
    DeviceMesh.from_group = staticmethod(lambda group, device_type="cpu", *a, **k: from_group(group, "cpu", *a, **k))
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "8"


def start(tree, with_engine=False):
    """Everything that a release needs before its first import. Once a process; done before, it is left."""
    if hasattr(torch, "_megatron_tree"):
        assert torch._megatron_tree == (tree, with_engine)
        return
    torch._megatron_tree = (tree, with_engine)
    release = release_of(tree)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    typing.override = typing_extensions.override
    numpy.product = numpy.prod
    sys.path.insert(0, os.path.join(os.environ["MEGATRON_TREES"], tree))
    # A spawned process would run this script once more; one to keep a queue is not needed in a save that waits.
    forking = torch.multiprocessing.get_context("fork")
    if release >= (0, 15):  # earlier ones save in another process in any case
        forking.Manager = lambda: types.SimpleNamespace(Queue=queue.Queue)
    torch.multiprocessing.get_context = lambda method=None: forking
    torch.utils.cpp_extension.load_inline = lambda *a, **k: types.SimpleNamespace(__file__="x")
    if release < (0, 13):
        importlib.import_module("torch._dynamo")  # (torch 2.5 asks of the plain classes what they are)
    replace_cuda()
    if with_engine:
        megatron_engine.install()
    elif release < (0, 8):
        megatron_old.stub_packages()


def use_cuda_types():
    """Megatron's optimizer knows parameters by the name of their CUDA type."""
    plain_type = torch.Tensor.type

    def cuda_type(self, *args, **kwargs):
        found = plain_type(self, *args, **kwargs)
        return found.replace("torch.", "torch.cuda.") if not args and not kwargs else found

    torch.Tensor.type = torch.nn.Parameter.type = cuda_type


class GatedNorm(torch.nn.Module):
    """The parameter of mamba_ssm's gated RMSNorm."""

    def __init__(self, size, dtype=None, **_kwargs):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size, dtype=dtype))


def stub(path, **names):
    """A module that is not installed, with the names that Megatron imports."""
    parts = path.split(".")
    for i in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:i]), types.ModuleType(".".join(parts[:i])))
    for name, value in names.items():
        setattr(sys.modules[path], name, value)


def kernel(*_args, **_kwargs):
    raise RuntimeError("no kernels on a CPU")


def stub_mamba():
    stub("mamba_ssm", __version__="2.2.6")
    stub("mamba_ssm.ops.triton.layernorm_gated", RMSNorm=GatedNorm)
    stub("mamba_ssm.ops.triton.ssd_combined", mamba_chunk_scan_combined=kernel, mamba_split_conv1d_scan_combined=kernel)
    stub("mamba_ssm.ops.triton.selective_state_update", selective_state_update=kernel)
    stub("causal_conv1d", causal_conv1d_fn=kernel, causal_conv1d_update=kernel)
    stub("causal_conv1d.causal_conv1d_varlen", causal_conv1d_varlen_states=kernel)


def stub_delta_net():
    stub("fla.modules.convolution", causal_conv1d=kernel)
    stub("fla.modules.l2norm", l2norm=kernel)
    stub("fla.ops.gated_delta_rule", chunk_gated_delta_rule=kernel)


def join(world):
    """The process group of `world` ranks, on gloo."""
    if world > 1:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
