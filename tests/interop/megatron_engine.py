# SPDX-License-Identifier: Apache-2.0
"""megatron_engine.py - stands in for Transformer Engine 2.9, which needs a GPU to be built: its modules' parameters and nothing else.

Megatron's own classes (megatron/core/extensions/transformer_engine.py) inherit from these, so that what they make of parameters in a
checkpoint is Megatron's code. Names, order and shapes as in Transformer Engine v2.9: transformer_engine/pytorch/module/linear.py,
layernorm_linear.py, grouped_linear.py (__init__, reset_parameters), ops/basic/layer_norm.py, rmsnorm.py, attention/dot_product_attention/
dot_product_attention.py; every one of them has an extra state (module/base.py and ops/op.py, get_extra_state: without FP8 an empty tensor).
"""
import contextlib
import importlib.metadata
import sys

import torch

import megatron_old

VERSION = "2.9.0"


class WithState(torch.nn.Module):
    """module/base.py, TransformerEngineBaseModule."""

    def __init__(self):
        super().__init__()
        self.fp8 = self.fp8_calibration = False
        self.fp8_meta = dict(fp8_checkpoint=False)

    def get_extra_state(self):
        return torch.empty(0, dtype=torch.uint8)

    def set_extra_state(self, _state):
        pass

    def add(self, name, *shape, dtype=None):
        self.register_parameter(name, torch.nn.Parameter(torch.zeros(*shape, dtype=dtype or torch.get_default_dtype())))

    def mark(self):
        """reset_parameters(): how the layer's own parameters are cut."""
        for name, param in self.named_parameters(recurse=False):
            if name.startswith("weight") or name.startswith("bias") and self.parallel_mode == "column":
                param.tensor_model_parallel, param.partition_stride = True, 1
                param.partition_dim = 1 if self.parallel_mode == "row" else 0

    def cut(self, in_features, out_features, tp_group=None, tp_size=1, parallel_mode=None, **_kwargs):
        """The features of this rank."""
        size = tp_size if tp_group is None else torch.distributed.get_world_size(tp_group)
        self.tp_size, self.parallel_mode = size, parallel_mode
        self.in_features = in_features // (size if parallel_mode == "row" else 1)
        self.out_features = out_features // (size if parallel_mode == "column" else 1)


class Linear(WithState):
    def __init__(self, in_features, out_features, bias=True, params_dtype=None, **kwargs):
        super().__init__()
        self.cut(in_features, out_features, **kwargs)
        self.use_bias = bias
        self.add("weight", self.out_features, self.in_features, dtype=params_dtype)
        if bias:
            self.add("bias", self.out_features, dtype=params_dtype)
        self.mark()


class LayerNormLinear(WithState):
    def __init__(self, in_features, out_features, bias=True, normalization="LayerNorm", params_dtype=None, **kwargs):
        super().__init__()
        self.cut(in_features, out_features, **kwargs)
        self.use_bias = bias
        self.add("layer_norm_weight", in_features, dtype=params_dtype)
        if normalization != "RMSNorm":
            self.add("layer_norm_bias", in_features, dtype=params_dtype)
        self.add("weight", self.out_features, self.in_features, dtype=params_dtype)
        if bias:
            self.add("bias", self.out_features, dtype=params_dtype)
        self.mark()


class GroupedLinear(WithState):
    def __init__(self, num_gemms, in_features, out_features, bias=True, params_dtype=None, **kwargs):
        super().__init__()
        self.cut(in_features, out_features, **kwargs)
        self.num_gemms, self.use_bias = num_gemms, bias
        for i in range(num_gemms):
            self.add(f"weight{i}", self.out_features, self.in_features, dtype=params_dtype)
            if bias:
                self.add(f"bias{i}", self.out_features, dtype=params_dtype)
        self.mark()


class RMSNorm(WithState):
    def __init__(self, normalized_shape=None, hidden_size=None, dtype=None, **_kwargs):
        super().__init__()
        self.add("weight", normalized_shape or hidden_size, dtype=dtype)


class LayerNorm(RMSNorm):
    def __init__(self, normalized_shape=None, hidden_size=None, dtype=None, **_kwargs):
        super().__init__(normalized_shape, hidden_size, dtype)
        self.add("bias", normalized_shape or hidden_size, dtype=dtype)


class DotProductAttention(WithState):
    def __init__(self, *_args, softmax_type="vanilla", **_kwargs):
        super().__init__()


def install():
    """Before Megatron is imported: Transformer Engine is there."""
    for name in ("", ".common", ".common.recipe", ".pytorch", ".pytorch.attention", ".pytorch.attention.rope", ".pytorch.cpp_extensions",
                 ".pytorch.cpu_offload", ".pytorch.cross_entropy", ".pytorch.distributed", ".pytorch.float8_tensor", ".pytorch.fp8",
                 ".pytorch.graph", ".pytorch.module", ".pytorch.module.base", ".pytorch.ops", ".pytorch.optimizers", ".pytorch.permutation",
                 ".pytorch.router", ".pytorch.tensor", ".pytorch.tensor.mxfp8_tensor", ".pytorch.tensor.utils", ".pytorch.utils",
                 ".pytorch.tensor.float8_tensor", ".pytorch.tensor.nvfp4_tensor", ".pytorch.export", ".pytorch.jit", ".pytorch.constants"):
        path = "transformer_engine" + name
        sys.modules[path] = megatron_old.Stub(path)
        above, _, own = path.rpartition(".")
        if above:
            setattr(sys.modules[above], own, sys.modules[path])
    sys.modules["transformer_engine_torch"] = megatron_old.Stub("transformer_engine_torch")
    engine = sys.modules["transformer_engine"]
    engine.__version__ = VERSION
    for made in (Linear, LayerNormLinear, GroupedLinear, RMSNorm, LayerNorm, DotProductAttention):
        setattr(engine.pytorch, made.__name__, made)
        setattr(engine.pytorch.module, made.__name__, made)
    engine.pytorch.module.base.TransformerEngineBaseModule = WithState
    engine.pytorch.fp8.FP8GlobalStateManager.is_fp8_enabled = staticmethod(lambda: False)
    engine.pytorch.cpu_offload.get_cpu_offload_context = lambda *a, **k: (contextlib.nullcontext(), lambda tensor: tensor)
    version = importlib.metadata.version
    importlib.metadata.version = lambda name: VERSION if name in ("transformer-engine", "transformer_engine") else version(name)
