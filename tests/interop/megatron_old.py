# SPDX-License-Identifier: Apache-2.0
"""megatron_old.py - what megatron_models.py needs beside itself to save with core 0.6 to 0.12."""
import importlib.metadata
import inspect
import sys
import types

import torch


class Stub(types.ModuleType):
    """A package that is not installed: whatever is asked of it is there, to be named or inherited from."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (torch.nn.Module,), {}) if name[0].isupper() else Stub(f"{self.__name__}.{name}")
        setattr(self, name, made)
        return made


def stub_packages():
    """Core 0.6 and 0.7 import Transformer Engine in any case."""
    for name in ("transformer_engine", "transformer_engine.common", "transformer_engine.common.recipe",
                 "transformer_engine.pytorch", "transformer_engine.pytorch.distributed"):
        sys.modules.setdefault(name, Stub(name))
    engine = sys.modules["transformer_engine"]
    engine.pytorch, engine.common = (sys.modules[f"transformer_engine.{part}"] for part in ("pytorch", "common"))
    for name in ("apex", "apex.optimizers", "apex.multi_tensor_apply", "amp_C"):
        sys.modules.setdefault(name, Stub(name))
    if "pkg_resources" not in sys.modules:
        import packaging.version

        sys.modules["pkg_resources"] = types.ModuleType("pkg_resources")
        sys.modules["pkg_resources"].packaging = packaging
    version = importlib.metadata.version
    importlib.metadata.version = lambda name: "0.10.0" if name == "transformer-engine" else version(name)


class Norm(torch.nn.Module):
    """The parameters of Apex' and Transformer Engine's norms."""

    def __init__(self, config, hidden_size, eps=1e-5, **_kwargs):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype))
        if config.normalization == "LayerNorm":
            self.bias = torch.nn.Parameter(torch.zeros(hidden_size, dtype=config.params_dtype))


def use_norm(*modules):
    """For every layer and the end of the decoder, whatever the release calls its choice."""
    for module in modules:
        for name in ("TENorm", "FusedLayerNorm", "LNImpl", "LayerNormImpl"):
            if hasattr(module, name):
                setattr(module, name, Norm)


def name_linears(specs):
    """Core 0.10 asks for Transformer Engine's in its local spec of experts, and takes none of them."""
    for name in ("TEColumnParallelGroupedLinear", "TEColumnParallelLinear", "TERowParallelLinear"):
        if not hasattr(specs, name):
            setattr(specs, name, None)


def call(function, *args, **kwargs):
    """With those of the keywords that this release knows."""
    known = inspect.signature(function).parameters
    return function(*args, **{k: v for k, v in kwargs.items() if k in known})


def add_bytes_once():
    """Since torch 2.4 every rank plans its objects by itself; core 0.6 to 0.8 would add them once more."""
    from megatron.core.dist_checkpointing.strategies import torch as strategies

    strategies.MCoreSavePlanner._add_non_coordinator_iobytes_request = lambda _self, _plan: None
