# SPDX-License-Identifier: Apache-2.0
"""megatron_toy.py - a tiny model of a family, with its optimizer, as Megatron itself builds it on CPU.

Imported once a process by a script that is called with ACTION TREE FAMILY FOLDER [SETTING=VALUE...]; what its names hold
follows from these. Families: see FAMILIES; settings: see LAYOUT. Every value of a parameter is a function of its name.
"""
import argparse
import contextlib
import inspect
import io
import json
import os
import re
import sys
import types
import zlib

import torch

import megatron_cpu
import megatron_old
from megatron_old import call

ACTION, TREE, FAMILY, FOLDER = sys.argv[1:5]
# Sizes of parallel groups (etp: as tp); stages: a pipeline layout; bucket: elements of a DDP bucket, 0: one bucket; precise: a
# precision-aware optimizer keeps masters as "fp32" or as "remainders" of the weights, moments as bf16; names=te: the norms in front of
# Mamba and Gated DeltaNet are part of their in_proj, as Transformer Engine has them; hidden, dtype: to be given to load too. zero=0:
# optimizers that are not distributed; adam=torch: its step with each parameter; adam=sgd; without=optim+rng: not saved; first, last: layers of
# the pipeline's ends; instances: of the distributed optimizer;
# impl=te: Transformer Engine's layers (megatron_engine.py).
LAYOUT = dict(names="", tp="1", pp="1", vpp="1", ep="1", etp="", bucket="0", stages="", precise="", layout="fully_reshardable", hidden="16",
              backend="torch_dist", dtype="bf16", zero="1", adam="fused", without="", first="", last="", instances="1", fsdp="", impl="local", rerun="", common="", verl="")
LAYOUT.update(setting.split("=") for setting in sys.argv[5:])
IS_FSDP = LAYOUT["fsdp"] in ("1", "2") or ACTION == "load" and LAYOUT["backend"] != "torch" and not os.path.exists(os.path.join(FOLDER, "metadata.json"))
TP, PP, VPP, EP, ETP, BUCKET = (int(LAYOUT[size] or LAYOUT["tp"]) for size in ("tp", "pp", "vpp", "ep", "etp", "bucket"))
INSTANCES, IS_ZERO = int(LAYOUT["instances"]), LAYOUT["zero"] == "1"
DTYPE = dict(bf16=torch.bfloat16, fp16=torch.float16, fp32=torch.float32)[LAYOUT["dtype"]]
WORLD = int(os.environ.get("WORLD_SIZE", 1))
ITERATION = 4

MOE = dict(num_moe_experts=4, moe_ffn_hidden_size=12, moe_router_topk=2, moe_token_dispatcher_type="alltoall")
SHARED = dict(MOE, moe_layer_freq=[0, 1], moe_shared_expert_intermediate_size=8, moe_shared_expert_gate=True,
              moe_router_enable_expert_bias=True, moe_router_score_function="sigmoid")
MLA = dict(q_lora_rank=12, kv_lora_rank=8, qk_head_dim=8, qk_pos_emb_head_dim=4, v_head_dim=8, rope_type="rope")
MAMBA = dict(mamba_state_dim=4, mamba_head_dim=8, mamba_num_groups=2)
GDN = dict(experimental_attention_variant="gated_delta_net", linear_attention_freq=2, linear_conv_kernel_dim=4,
           linear_key_head_dim=8, linear_value_head_dim=4, linear_num_key_heads=2, linear_num_value_heads=4)
LLAMA = dict(hidden_act="silu", num_hidden_layers=4, hidden_size=16, num_attention_heads=4, tie_word_embeddings=False, rope_theta=10000,
             rope_scaling=dict(factor=8.0))  # what a run's arguments are held against
KINDS = [  # of layers: attention and MLP, each of another size, a linear layer, or nothing
    dict(attention=dict(n_heads_in_group=2), ffn=dict(ffn_hidden_size=24)),
    dict(attention=dict(n_heads_in_group=None, no_op=True), ffn=dict(ffn_hidden_size=12)),
    dict(attention=dict(n_heads_in_group=None, replace_with_linear=True), ffn=dict(ffn_hidden_size=None, replace_with_linear=True)),
    dict(attention=dict(n_heads_in_group=4), ffn=dict(ffn_hidden_size=None, no_op=True)),
]

GOLDEN = dict(hidden_size=64, ffn_hidden_size=96)  # the models of sample-data

FAMILIES = {
    "dense": dict(layers=4, config={}),
    "gelu": dict(layers=2, swiglu=False, config={}),
    "bias": dict(layers=2, config=dict(add_bias_linear=True)),
    "golden_dense": dict(layers=4, vocab=256, config=GOLDEN),
    "golden_moe": dict(layers=4, vocab=256, config=dict(GOLDEN, **MOE) | dict(num_query_groups=4, moe_ffn_hidden_size=48, moe_layer_freq=[0, 1, 1, 1])),
    "golden_moe_groups": dict(layers=4, vocab=256, config=dict(GOLDEN, **MOE) | dict(moe_ffn_hidden_size=48, moe_layer_freq=[0, 1, 1, 1])),
    "mtp_dense": dict(layers=2, config=dict(mtp_num_layers=1)),
    "moe_grouped": dict(layers=2, config=dict(MOE, moe_layer_freq=[0, 1], moe_grouped_gemm=True)),
    "moe_grouped_bias": dict(layers=2, config=dict(MOE, moe_grouped_gemm=True, add_bias_linear=True)),
    "mla_moe_grouped": dict(layers=2, config=dict(MLA, qk_layernorm=True, multi_latent_attention=True, moe_grouped_gemm=True, **MOE)),
    "moe_gelu": dict(layers=2, swiglu=False, config=MOE),
    "moe_mixed": dict(layers=4, config=dict(MOE, moe_layer_freq=[0, 1, 0, 1], moe_shared_expert_intermediate_size=8, qk_layernorm=True)),
    "moe": dict(layers=4, config=dict(MOE, moe_ffn_hidden_size=24)),  # old releases have one size for all
    "moe_shared": dict(layers=2, config=dict(SHARED, qk_layernorm=True, add_qkv_bias=True)),
    "moe_bias": dict(layers=2, config=dict(MOE, moe_layer_freq=[0, 1], add_bias_linear=True)),
    "tied": dict(layers=2, tied=True, config=dict(add_qkv_bias=True)),
    "mtp": dict(layers=2, config=dict(MOE, moe_layer_freq=[0, 1], mtp_num_layers=2)),
    "mla": dict(layers=2, config=dict(MLA, qk_layernorm=True, multi_latent_attention=True)),
    "mla_moe": dict(layers=2, config=dict(MLA, qk_layernorm=True, multi_latent_attention=True, **MOE)),
    "mla_no_q": dict(layers=2, config=dict(MLA, q_lora_rank=None, multi_latent_attention=True)),
    "mla_fused": dict(layers=2, config=dict(MLA, qk_layernorm=True, multi_latent_attention=True, mla_down_proj_fusion=True)),
    "layernorm": dict(layers=2, swiglu=False, positions="learned_absolute",
                      config=dict(normalization="LayerNorm", add_bias_linear=True)),
    "per_layer": dict(layers=2, metadata=dict(non_homogeneous_layers=True), config={}),
    "extra_state": dict(layers=2, extra_state=True, config=MOE),
    "mamba": dict(layers=4, pattern="M*-M", config=MAMBA),
    "mamba_mtp": dict(layers=4, pattern="M*-M/M-/M-", config=dict(MAMBA, mtp_num_layers=2)),
    "gdn": dict(layers=2, config=GDN),
    "heterogeneous": dict(layers=4, config=dict(heterogeneous_layers_config_encoded_json=json.dumps(dict(block_configs=KINDS)))),
    "heterogeneous_run": dict(layers=4, config=dict(heterogeneous_layers_config_encoded_json=json.dumps(dict(LLAMA, block_configs=[
        *KINDS[:3], dict(KINDS[3], attention=dict(n_heads_in_group=2))])))),  # arguments let all groups be of one size only
}
family = FAMILIES[FAMILY]
VOCAB = family.get("vocab", 32)
RELEASE = megatron_cpu.release_of(TREE)
IS_OLD = RELEASE < (0, 13)  # its functions know nothing of metadata, nor of the chunk of a virtual pipeline they are asked of
IS_V2 = LAYOUT["fsdp"] == "2"  # Megatron-FSDP's second version, experimental in main
IS_TE = LAYOUT["impl"] == "te"
megatron_cpu.start(TREE, IS_TE)
if not IS_FSDP:
    megatron_cpu.use_cuda_types()
if "pattern" in family:
    megatron_cpu.stub_mamba()
if "experimental_attention_variant" in family["config"]:
    megatron_cpu.stub_delta_net()
megatron_cpu.join(WORLD)

# --- the model ---
import torch.nn.functional as F  # noqa: E402

import megatron.core.distributed  # noqa: E402
import megatron.core.parallel_state as mpu  # noqa: E402
from megatron.core import tensor_parallel  # noqa: E402
from megatron.core.models.common.language_module.language_module import LanguageModule  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt import gpt_layer_specs as specs  # noqa: E402
from megatron.core.transformer.module import Float16Module  # noqa: E402
from megatron.core.transformer import transformer_block, transformer_config  # noqa: E402


class Tracker:
    """RNG states by name; drawing is plain."""

    def get_states(self):
        return {"model-parallel-rng": torch.get_rng_state()}

    def set_states(self, _states):
        pass

    def is_initialized(self):
        return True

    def fork(self, *_args):
        return contextlib.nullcontext()


LanguageModule._is_in_embd_group = lambda self: False  # stages need not agree on an embedding that save() sets
call(mpu.initialize_model_parallel, TP, PP, VPP if VPP > 1 else None, expert_model_parallel_size=EP,
     expert_tensor_parallel_size=ETP, num_distributed_optimizer_instances=INSTANCES)
if IS_OLD:
    megatron_old.use_norm(specs, transformer_block)
    megatron_old.name_linears(specs)
if RELEASE < (0, 9):
    megatron_old.add_bytes_once()
if IS_OLD:  # whose modules have the function by then
    tensor_parallel.get_cuda_rng_tracker().fork = Tracker().fork
tensor_parallel.get_cuda_rng_tracker = lambda *a, **k: Tracker()
swiglu = family.get("swiglu", True)
settings = dict(num_layers=family["layers"], hidden_size=int(LAYOUT["hidden"]), num_attention_heads=4, num_query_groups=2, ffn_hidden_size=24,
                add_bias_linear=False, normalization="RMSNorm", gated_linear_unit=swiglu,
                activation_func=F.silu if swiglu else F.gelu, use_cpu_initialization=True, params_dtype=DTYPE,
                bf16=DTYPE == torch.bfloat16, fp16=DTYPE == torch.float16, gradient_accumulation_fusion=False, bias_dropout_fusion=False, masked_softmax_fusion=False,
                persist_layer_norm=False, pipeline_dtype=DTYPE, hidden_dropout=0.0, attention_dropout=0.0)
settings.update(family["config"])
cut = dict(tensor_model_parallel_size=TP, pipeline_model_parallel_size=PP, expert_model_parallel_size=EP,
           virtual_pipeline_model_parallel_size=VPP if VPP > 1 else None, expert_tensor_parallel_size=ETP,
           pipeline_model_parallel_layout=LAYOUT["stages"] or None)
for end in ("first", "last"):
    if LAYOUT[end]:
        cut[f"num_layers_in_{end}_pipeline_stage"] = int(LAYOUT[end])
for option, release in (("pipeline_model_parallel_layout", (0, 13)), ("expert_tensor_parallel_size", (0, 10))):
    if RELEASE < release:
        del cut[option]
is_mla = settings.get("multi_latent_attention")
if is_mla:
    del settings["num_query_groups"]
config_class = transformer_config.MLATransformerConfig if is_mla else transformer_config.TransformerConfig
is_heterogeneous = "heterogeneous_layers_config_encoded_json" in settings
if is_heterogeneous:
    from megatron.core.transformer.heterogeneous.heterogeneous_config import HeterogeneousTransformerConfig as config_class
config = call(config_class, **{**settings, **cut})
with_experts = settings.get("num_moe_experts")


def ends(chunk):
    """Where a pipeline's model chunk lies."""
    at = dict(ignore_virtual=False, vp_stage=chunk if VPP > 1 else None)
    if VPP > 1 and IS_OLD:
        mpu.set_virtual_pipeline_model_parallel_rank(chunk)
    return dict(pre_process=call(mpu.is_pipeline_first_stage, **at), post_process=call(mpu.is_pipeline_last_stage, **at),
                vp_stage=at["vp_stage"])


def norm_linear():
    """A linear layer with the norm in front of it inside, which Megatron has for Transformer Engine only."""
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear

    class NormLinear(ColumnParallelLinear):
        def __init__(self, input_size, *args, **kwargs):
            super().__init__(input_size, *args, **kwargs)
            self.layer_norm_weight = torch.nn.Parameter(torch.ones(input_size, dtype=torch.bfloat16))

    return NormLinear


def mamba_model(chunk):
    """A hybrid stack; Megatron has it with Transformer Engine's modules only."""
    import importlib

    from megatron.core.ssm import mamba_mixer

    mamba_mixer.get_cuda_rng_tracker = lambda *a, **k: Tracker()
    try:
        stack = importlib.import_module("megatron.core.models.hybrid.hybrid_layer_specs").hybrid_stack_spec
        model = importlib.import_module("megatron.core.models.hybrid.hybrid_model").HybridModel
    except ImportError:
        stack = importlib.import_module("megatron.core.models.mamba.mamba_layer_specs").mamba_stack_spec
        model = importlib.import_module("megatron.core.models.mamba").MambaModel
    if not IS_TE:
        use_local_modules(stack, model)
    names = inspect.signature(model).parameters
    pattern = {"hybrid_layer_pattern": family["pattern"]} if "hybrid_layer_pattern" in names else {
        "hybrid_override_pattern": family["pattern"]}
    place = {k: v for k, v in ends(chunk).items() if k in names}
    return model(config, stack, vocab_size=VOCAB, max_sequence_length=32, **pattern, **place)


def use_local_modules(stack, model):
    """In a hybrid stack."""
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer import multi_token_prediction
    from megatron.core.transformer.identity_op import IdentityOp
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    # Without Transformer Engine main's test for its inference layers fails.
    multi_token_prediction.is_inference_column_parallel_linear = lambda _module: False
    local = specs.get_gpt_layer_local_spec(normalization="RMSNorm").submodules
    parts = stack.submodules
    parts.mamba_layer.submodules.mixer.submodules.in_proj = ColumnParallelLinear
    parts.mamba_layer.submodules.mixer.submodules.out_proj = RowParallelLinear
    parts.mamba_layer.submodules.norm = WrappedTorchNorm
    if LAYOUT["names"] == "te":
        parts.mamba_layer.submodules.mixer.submodules.in_proj = norm_linear()
        parts.mamba_layer.submodules.norm = IdentityOp
    parts.attention_layer.submodules.self_attention = local.self_attention
    parts.attention_layer.submodules.input_layernorm = local.input_layernorm
    parts.mlp_layer.submodules.mlp = local.mlp
    parts.mlp_layer.submodules.pre_mlp_layernorm = local.pre_mlp_layernorm
    if "/" in family["pattern"]:
        wrapper = parts.mtp_block_spec.submodules.layer_specs[0].submodules
        wrapper.enorm = wrapper.hnorm = wrapper.layer_norm = WrappedTorchNorm
        wrapper.eh_proj = ColumnParallelLinear
    for layer in (parts.attention_layer, parts.mlp_layer):  # stored as Transformer Engine's fused norms
        layer.submodules.sharded_state_dict_keys_map = local.sharded_state_dict_keys_map
    for module in {sys.modules[model.__module__], sys.modules[stack.module.__module__]}:
        if hasattr(module, "TENorm"):
            module.TENorm = WrappedTorchNorm


def trackers_are_plain():
    """Where Gated DeltaNet draws its parameters."""
    import megatron.core.ssm.gated_delta_net  # noqa: F401

    for module in [m for n, m in sys.modules.items() if n.startswith("megatron.core.ssm.gated_delta_net")]:
        if hasattr(module, "get_cuda_rng_tracker"):
            module.get_cuda_rng_tracker = lambda *a, **k: Tracker()


def gdn_spec():
    """Gated DeltaNet in every other layer, between local modules; Megatron has Transformer Engine's only."""
    from megatron.core.ssm import gated_delta_net
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer.identity_op import IdentityOp
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    trackers_are_plain()
    parts = gated_delta_net.GatedDeltaNetSubmodules(in_proj=ColumnParallelLinear, out_norm=WrappedTorchNorm,
                                                    out_proj=RowParallelLinear)
    layers = [specs.get_gpt_layer_local_spec(normalization="RMSNorm") for _ in range(2)]
    if LAYOUT["names"] == "te":
        parts.in_proj = norm_linear()
        layers[0].submodules.input_layernorm = IdentityOp
    layers[0].submodules.self_attention = ModuleSpec(module=gated_delta_net.GatedDeltaNet, submodules=parts)
    layers[0].submodules.sharded_state_dict_keys_map = {  # as Megatron's spec for ModelOpt has it
        "input_layernorm.": "self_attention.in_proj.layer_norm_", "pre_mlp_layernorm.": "mlp.linear_fc1.layer_norm_"}
    return specs.TransformerBlockSubmodules(layer_specs=layers, layer_norm=WrappedTorchNorm)


def take_mla_channels():
    """Only Transformer Engine's attention takes the sizes of MLA's heads; no parameter depends on them."""
    from megatron.core.transformer.dot_product_attention import DotProductAttention

    def init(self, *args, make=DotProductAttention.__init__, k_channels=None, v_channels=None, **kwargs):
        make(self, *args, **kwargs)

    DotProductAttention.__init__ = init


def fuse_down_projections(spec):
    """Main's fused down-projection of MLA with the layer's norm inside it, which Megatron has for Transformer Engine only."""
    from megatron.core.transformer import multi_latent_attention
    from megatron.core.transformer.identity_op import IdentityOp

    NormLinear = multi_latent_attention.TEColumnParallelLinear = norm_linear()
    spec.submodules.self_attention.module = multi_latent_attention.FusedMLASelfAttention
    spec.submodules.self_attention.submodules.linear_qkv_down_proj = NormLinear
    spec.submodules.input_layernorm = IdentityOp
    spec.submodules.sharded_state_dict_keys_map = dict(
        spec.submodules.sharded_state_dict_keys_map,
        **{"self_attention.linear_qkv_down_proj.layer_norm_": "input_layernorm."})
    return spec


def gpt_model(chunk):
    kwargs = ends(chunk)
    if is_mla and not IS_TE:
        take_mla_channels()
    if "experimental_attention_variant" in settings and IS_TE:
        trackers_are_plain()
        from megatron.core.models.gpt import experimental_attention_variant_module_specs as variants

        spec = variants.get_transformer_block_with_experimental_attention_variant_spec(config=config, vp_stage=kwargs["vp_stage"])
    elif "experimental_attention_variant" in settings:
        spec = gdn_spec()
    elif is_heterogeneous:
        from megatron.core.models.gpt.heterogeneous.heterogeneous_layer_specs import get_gpt_heterogeneous_layer_spec

        spec = call(get_gpt_heterogeneous_layer_spec, config=config, use_te=IS_TE, vp_stage=kwargs["vp_stage"])
    elif with_experts and RELEASE >= (0, 13):
        spec = specs.get_gpt_decoder_block_spec(config, use_transformer_engine=IS_TE, normalization="RMSNorm",
                                                vp_stage=kwargs["vp_stage"])
    elif IS_TE:
        spec = call(specs.get_gpt_layer_with_transformer_engine_spec, num_experts=with_experts, moe_grouped_gemm=settings.get("moe_grouped_gemm", False),
                    multi_latent_attention=is_mla, qk_layernorm=settings.get("qk_layernorm", False),
                    mla_down_proj_fusion=settings.get("mla_down_proj_fusion", False))
    else:
        spec = call(specs.get_gpt_layer_local_spec, num_experts=with_experts, normalization=settings["normalization"],
                    multi_latent_attention=is_mla, qk_layernorm=settings.get("qk_layernorm", False))
    if settings.get("mla_down_proj_fusion") and not IS_TE:
        spec = fuse_down_projections(spec)
    if settings.get("mtp_num_layers"):
        from megatron.core.transformer import multi_token_prediction

        # Without Transformer Engine main's test for its inference layers fails.
        multi_token_prediction.is_inference_column_parallel_linear = lambda _module: False
        if getattr(spec, "layer_specs", None) == []:  # a stage for these layers alone: they are like the last
            inner = specs.get_gpt_decoder_layer_specs(config, use_transformer_engine=IS_TE, normalization="RMSNorm")[-1]
        else:
            inner = spec
        kwargs["mtp_block_spec"] = specs.get_gpt_mtp_block_spec(config, inner, use_transformer_engine=IS_TE,
                                                                vp_stage=kwargs["vp_stage"])
    return call(GPTModel, config, spec, vocab_size=VOCAB, max_sequence_length=32,
                position_embedding_type=family.get("positions", "rope"),
                share_embeddings_and_output_weights=family.get("tied", False), **kwargs)


def value_of(name, shape, kind):
    """What `kind` ("", ".exp_avg", ...) of a parameter holds, by its name alone, whatever a release calls it."""
    fused = "self_attention.linear_qkv_down_proj."
    if name.endswith(fused + "weight"):  # the query's rows, then the others'
        rows = MLA["q_lora_rank"], shape[0] - MLA["q_lora_rank"]
        return torch.cat([value_of(name.replace("_qkv_", half), (n, *shape[1:]), kind) for half, n in zip(("_q_", "_kv_"), rows)])
    name = name.replace(fused + "layer_norm_", "input_layernorm.")
    name = name.replace("mixer.in_proj.layer_norm_", "norm.").replace("self_attention.in_proj.layer_norm_", "input_layernorm.")
    name = name.removeprefix("module.").replace("mtp_model_layer.", "transformer_layer.").replace("conv1d_", "conv1d.")
    seed = torch.Generator().manual_seed(zlib.crc32((name + kind).encode()))
    # 12 bits: more than bfloat16 holds, and still a small sample once packed.
    value = torch.randint(-2048, 2048, tuple(shape), generator=seed).float() / 512
    return value.abs() if kind == ".exp_avg_sq" else value


def weight_of(name, tensor):
    return value_of(name, tensor.shape, "").to(tensor.dtype)


def whole_name(chunk, name):
    """The parameter's name in a run on one rank."""
    parts = name.split(".")
    if parts[:2] == ["decoder", "layers"]:
        parts[2] = str(chunk.decoder.layers[int(parts[2])].layer_number - 1)
    if "local_experts" in parts:
        at = parts.index("local_experts") + 1
        parts[at] = str(int(parts[at]) + mpu.get_expert_model_parallel_rank() * (with_experts // EP))
    grouped = re.fullmatch(r"(weight|bias)(\d+)", parts[-1])
    if grouped and "experts" in parts:  # of Transformer Engine's grouped linear layers
        parts[-1] = grouped[1] + str(int(grouped[2]) + mpu.get_expert_model_parallel_rank() * (with_experts // EP))
    if parts[0] == "output_layer" and family.get("tied", False):
        parts[0] = "embedding.word_embeddings"  # a pipeline's copy
    return ".".join(parts)


def local_rows(chunk, name, n_rows):
    """What lies one behind the other in a rank's part of a parameter; each is cut by itself."""
    module = chunk.get_submodule(name.rpartition(".")[0].removesuffix(".in_proj").removesuffix(".conv1d"))
    if swiglu and "linear_fc1" in name:
        return [n_rows // 2] * 2
    if "mixer." in name and ".in_proj." in name:
        groups = module.ngroups_local_tp * module.d_state
        return [module.d_inner_local_tp] * 2 + [groups] * 2 + [module.nheads_local_tp]
    if "mixer." in name and ".conv1d" in name:
        return [module.d_inner_local_tp] + [module.ngroups_local_tp * module.d_state] * 2
    if "attention.in_proj" in name or "attention.conv1d" in name:
        rows = [module.qk_dim // TP] * 2 + [module.v_dim // TP] * 2 + [module.num_value_heads // TP] * 2
        return rows[:3] if "conv1d" in name else rows
    return [n_rows]


def local_value(chunk, name, param, kind):
    """This rank's part of what `kind` of a parameter holds."""
    whole = whole_name(chunk, name)
    n_ranks, rank = TP, mpu.get_tensor_model_parallel_rank()
    if ".experts." in name:
        n_ranks, rank = ETP, getattr(mpu, "get_expert_tensor_parallel_rank", mpu.get_tensor_model_parallel_rank)()
    is_cut = getattr(param, "tensor_model_parallel", False) or ".mixer.norm." in name  # old releases do not flag it
    if n_ranks == 1 or not is_cut:
        return value_of(whole, param.shape, kind)
    axis, shape = max(getattr(param, "partition_dim", 0), 0), list(param.shape)
    rows = local_rows(chunk, name, shape[axis])
    shape[axis] *= n_ranks
    parts = value_of(whole, shape, kind).split([n * n_ranks for n in rows], axis)
    return torch.cat([part.chunk(n_ranks, axis)[rank] for part in parts], axis)


torch.manual_seed(1)
chunks = [(mamba_model if "pattern" in family else gpt_model)(chunk) for chunk in range(VPP)]
bare = chunks[0]
models = [chunk if DTYPE == torch.float32 else Float16Module(config, chunk) for chunk in chunks]

owners = {module: name for name, module in bare.named_modules()}
extra_states = {}  # by module: what it was given


def extra_state_of(module):
    """What Transformer Engine keeps of FP8: a byte tensor, and before its release 2 a stream; here its module's name."""
    name = owners[module].encode()
    return torch.tensor(list(name), dtype=torch.uint8) if "linear_fc1" in owners[module] else io.BytesIO(name)


def same_extra_state(a, b):
    return a.getvalue() == b.getvalue() if isinstance(a, io.BytesIO) else torch.equal(a, b)


if family.get("extra_state"):
    torch.serialization.add_safe_globals([io.BytesIO])  # core 0.15's zarr reader is older than torch's refusal
    for linear in (tensor_parallel.ColumnParallelLinear, tensor_parallel.RowParallelLinear):
        linear.get_extra_state = lambda self: None if owners[self] == "output_layer" else extra_state_of(self)
        linear.set_extra_state = lambda self, state: extra_states.update({self: state})

from megatron.core import optimizer as optimizers  # noqa: E402
from megatron.core.distributed import DistributedDataParallel  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, distrib_optimizer, get_megatron_optimizer  # noqa: E402

try:
    from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler  # noqa: E402
except ImportError:
    from megatron.training.optimizer_param_scheduler import OptimizerParamScheduler  # noqa: E402
from megatron.training import checkpointing  # noqa: E402


class Fused(torch.optim.Optimizer):
    """An Adam with the fields and the policy of Transformer Engine's: state for every parameter, the step in the group."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, **_kwargs):
        super().__init__(params, dict(lr=lr, bias_correction=True, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None, **_kwargs):
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            for param in group["params"]:
                if not self.state[param]:
                    self.state[param] = dict(exp_avg=torch.zeros_like(param), exp_avg_sq=torch.zeros_like(param))

    def get_unscaled_state(self, param, name):
        return self.state[param][name]


if LAYOUT["adam"] == "fused":
    optimizers.Adam = distrib_optimizer.Adam = Fused
    optimizers.USING_PYTORCH_OPTIMIZER = False
    for name, value in dict(HAVE_APEX_OR_TE=True, USING_TE_OPTIMIZER=True, USING_APEX_OPTIMIZER=False).items():
        if not IS_FSDP and hasattr(distrib_optimizer, name):
            setattr(distrib_optimizer, name, value)
optimizer_config = OptimizerConfig(optimizer="sgd" if LAYOUT["adam"] == "sgd" else "adam", lr=1e-3, min_lr=1e-4, weight_decay=0.01,
                                   bf16=DTYPE == torch.bfloat16, fp16=DTYPE == torch.float16, initial_loss_scale=2.0**16,
                                   params_dtype=DTYPE, use_distributed_optimizer=(IS_ZERO or IS_FSDP) and not IS_V2)
STATES = (".momentum_buffer",) if LAYOUT["adam"] == "sgd" else (".exp_avg", ".exp_avg_sq")
if LAYOUT["precise"]:
    # Set behind the check for Transformer Engine.
    optimizer_config.use_precision_aware_optimizer = optimizer_config.use_precision_aware_optimizer_no_fp8_or_ds_fp8 = True
ddp = dict(grad_reduce_in_fp32=True, use_distributed_optimizer=IS_ZERO, num_distributed_optimizer_instances=INSTANCES, overlap_grad_reduce=BUCKET > 0, bucket_size=BUCKET or None)
if IS_FSDP:
    ddp.update(use_distributed_optimizer=True, overlap_grad_reduce=True, overlap_param_gather=True, use_megatron_fsdp=True,
               data_parallel_sharding_strategy="optim_grads_params", bucket_size=40000000)
if IS_V2:
    ddp.update(megatron_fsdp_version=2, use_distributed_optimizer=False)
ddp_config = None if RELEASE < (0, 7) else call(megatron.core.distributed.DistributedDataParallelConfig, **ddp)
args = argparse.Namespace(
    ckpt_format="fsdp_dtensor" if IS_FSDP else "torch_dist", no_save_optim="optim" in LAYOUT["without"],
    no_save_rng="rng" in LAYOUT["without"], swiglu=swiglu,
    num_experts=with_experts, data_parallel_random_init=False, iteration=ITERATION, ckpt_drop_redundant_extra_state=False,
    dist_ckpt_save_pre_mcore_014=False, ckpt_fully_parallel_save=True, dist_ckpt_optim_fully_reshardable=True,
    distrib_optim_fully_reshardable_mem_efficient=False, use_distributed_optimizer=(IS_ZERO or IS_FSDP) and not IS_V2, data_parallel_size=WORLD // TP // PP,
    world_size=WORLD, bf16=DTYPE == torch.bfloat16, fp16=DTYPE == torch.float16,
    max_position_embeddings=32, padded_vocab_size=VOCAB, transformer_impl="local", hybrid_layer_pattern=family.get("pattern"),
    untie_embeddings_and_output_weights=not family.get("tied", False), consumed_train_samples=0,
    use_precision_aware_optimizer=bool(LAYOUT["precise"]), overlap_grad_reduce=BUCKET > 0, **cut, **{k: v for k, v in settings.items() if v is None or isinstance(v, (bool, int, float, str, list, torch.dtype))
       if k not in ("bf16", "fp16", "num_moe_experts")})
for option, release, value in (("ddp_bucket_size", (0, 7), BUCKET or None), ("dist_ckpt_strictness", (0, 8), None)):
    if RELEASE >= release:  # what every run of them has
        setattr(args, option, value)
checkpointing.get_args = lambda: args


def wrap(chunk):
    """As training.py does: later chunks of a virtual pipeline have one bucket each."""
    late = chunk > 0
    if RELEASE >= (0, 8):
        return call(DistributedDataParallel, config, ddp_config, models[chunk], disable_bucketing=late)
    groups = dict(data_parallel_group=mpu.get_data_parallel_group(with_context_parallel=True),
                  expert_data_parallel_group=mpu.get_data_modulo_expert_parallel_group())
    return call(DistributedDataParallel, config, module=models[chunk], ddp_config=ddp_config, disable_bucketing=late,
                accumulate_allreduce_grads_in_fp32=True, **groups, **ddp)


def wrap_fsdp():
    """The first chunk under Megatron-FSDP, which puts parameters of its own in the place of the model's."""
    from megatron.core.distributed.fsdp.mcore_fsdp_adapter import FullyShardedDataParallel

    if IS_V2:
        return wrap_fsdp_v2(FullyShardedDataParallel)
    return FullyShardedDataParallel(config, ddp_config, models[0], device=torch.device("cpu"))


def wrap_fsdp_v2(make):
    """It asks for a CUDA device, of which it uses the streams, and for buffers that know theirs."""
    from megatron.core.distributed.fsdp.src.megatron_fsdp.experimental import dbuffer
    from megatron.core.process_groups_config import ProcessGroupCollection

    dbuffer.DBuffer.allocation_stream = property(lambda _self: torch.cuda.current_stream(), lambda _self, _stream: None)
    groups = ProcessGroupCollection.use_mpu_process_groups()
    return make(config, ddp_config, models[0], device=types.SimpleNamespace(type="cuda"), pg_collection=groups)


def make_optimizer(wrapped):
    made = get_megatron_optimizer(optimizer_config, wrapped)
    scheduler = call(OptimizerParamScheduler, made, init_lr=0, max_lr=1e-3, min_lr=1e-4, lr_warmup_steps=0, lr_decay_steps=16,
                     lr_decay_style="constant", start_wd=0.01, end_wd=0.01, wd_incr_steps=16, wd_incr_style="constant")
    return made, scheduler


def rng_state(ckpt_format):
    groups = mpu.get_tensor_model_parallel_group(), mpu.get_pipeline_model_parallel_group()
    many = len(inspect.signature(checkpointing.get_rng_state).parameters) > 1
    return checkpointing.get_rng_state(ckpt_format, *(groups if many else ()))


def state_of(optimizer, scheduler, metadata, rng, **optimizer_kwargs):
    """Everything that a run saves or asks for, as sharded tensors and objects."""
    if IS_OLD:
        return call(checkpointing.generate_state_dict, args, chunks, optimizer, scheduler, rng, iteration=ITERATION,
                    use_dist_ckpt=True, optim_sd_kwargs=dict(sharding_type=LAYOUT["layout"]))
    full = dict(metadata, dp_cp_group=mpu.get_data_parallel_group(with_context_parallel=True))
    return checkpointing.generate_state_dict(args, chunks, optimizer, scheduler, rng, iteration=ITERATION,
                                             optim_sd_kwargs=dict(metadata=full, **optimizer_kwargs),
                                             model_sd_kwargs=dict(metadata=full))


def live_parameters():
    """The model chunk and the name there of each parameter of this rank."""
    return {param: (chunk, name) for chunk in chunks for name, param in chunk.named_parameters()}


def each_master(optimizer):
    """(parameter, range of it flattened, fp32 master of that, the optimizer's state) of all that are trained on this rank."""
    for chained in getattr(optimizer, "chained_optimizers", [optimizer]):
        if not hasattr(chained, "model_param_group_index_map"):  # not distributed: the whole of each
            halves = [pair for groups in zip(getattr(chained, "float16_groups", []), getattr(chained, "fp32_from_float16_groups", []))
                      for pair in zip(*groups)]
            for param, main in halves or [(param, param) for group in chained.optimizer.param_groups for param in group["params"]]:
                yield param, types.SimpleNamespace(start=0, end=param.numel()), main, chained.optimizer.state
            continue
        for param, (group, order) in chained.model_param_group_index_map.items():
            main = chained.optimizer.param_groups[group]["params"][order]
            yield param, chained._get_model_param_range_map(param)["param"], main, chained.optimizer.state
