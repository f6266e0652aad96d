# SPDX-License-Identifier: Apache-2.0
"""megatron_requests.py - what Megatron's own load_checkpoint() asks a checkpoint for, written down.

    export MEGATRON_TREES=/where/the/releases/are OMP_NUM_THREADS=1
    python megatron_requests.py ask core_v0.19.0 OUT [REGEX]
    python megatron_requests.py join OUT FIXTURES
    python megatron_requests.py compare OUT FIXTURES "core_v0.19.0 HEAD" REGEX

`ask`: for every case of CASES whose name matches it builds the model, the optimizer and the arguments as training does (megatron_toy.py;
arguments by Megatron's own parser and validate_args), calls Megatron's load_checkpoint() on an empty folder, and stops where the
reader would be called: dist_checkpointing.load for torch_dist, PyTorch's load_state_dict for fsdp_dtensor. Every rank's request is
written, joined, as OUT/<release>.<format>.<case>.txt; tests/golden/requests/README.md says what stands in it. `join` makes one file
of those of several releases that ask for the same; `compare` holds OUT against them. A process is forked for each rank of each case, so that Megatron is imported once.
"""
import contextlib
import copy
import io
import json
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import traceback
import types

import torch

import megatron_cpu

# name: (family, settings of megatron_toy.py, formats, first release). One rank, and te's Adam, where nothing else is said. Under STOPS
# Megatron itself ends before it has asked: its message is the fixture.
BOTH = ("torch_dist", "fsdp_dtensor")
TORCH_DIST, FSDP, V2 = ("torch_dist",), ("fsdp_dtensor",), ("fsdp_v2",)
CASES = {
    "dense": ("dense", "", BOTH, (0, 15)),
    "dense_dp2": ("dense", "dp=2", BOTH, (0, 15)),
    "dense_tp2": ("dense", "tp=2", BOTH, (0, 15)),
    "dense_pp2": ("dense", "pp=2", TORCH_DIST, (0, 15)),
    "dense_vpp2": ("dense", "pp=2 vpp=2", TORCH_DIST, (0, 15)),
    "dense_tp2pp2dp2": ("dense", "tp=2 pp=2 dp=2", TORCH_DIST, (0, 15)),
    "dense_fp32": ("dense", "dtype=fp32", BOTH, (0, 15)),
    "gelu_fp32": ("gelu", "dtype=fp32", FSDP, (0, 15)),
    "dense_fp16": ("dense", "dtype=fp16", TORCH_DIST, (0, 15)),
    "dense_torch_adam": ("dense", "adam=torch", BOTH, (0, 15)),
    "dense_sgd": ("dense", "zero=0 adam=sgd", TORCH_DIST, (0, 15)),
    "dense_no_optim": ("dense", "without=optim", BOTH, (0, 15)),
    "dense_no_rng": ("dense", "without=rng", BOTH, (0, 15)),
    "dense_not_distributed": ("dense", "zero=0", TORCH_DIST, (0, 15)),
    "dense_not_distributed_torch_adam": ("dense", "zero=0 adam=torch", TORCH_DIST, (0, 15)),
    "dense_fp32_not_distributed": ("dense", "zero=0 dtype=fp32", TORCH_DIST, (0, 15)),
    "dense_dp_reshardable": ("dense", "layout=dp_reshardable dp=2", TORCH_DIST, (0, 15)),
    "dense_dp_reshardable_tp2pp2": ("dense", "layout=dp_reshardable tp=2 pp=2", TORCH_DIST, (0, 15)),
    "dense_rerun": ("dense", "rerun=1 dp=2", TORCH_DIST, (0, 15)),
    "common_state": ("gelu", "common=1", TORCH_DIST, (0, 15)),
    "gelu": ("gelu", "", BOTH, (0, 15)),
    "bias": ("bias", "", BOTH, (0, 15)),
    "layernorm": ("layernorm", "", BOTH, (0, 15)),
    "tied": ("tied", "", BOTH, (0, 15)),
    "tied_pp2": ("tied", "pp=2", TORCH_DIST, (0, 15)),
    "per_layer": ("per_layer", "", TORCH_DIST, (0, 15)),
    "moe": ("moe", "", BOTH, (0, 15)),
    "moe_ep2": ("moe", "ep=2", BOTH, (0, 15)),
    "moe_tp2ep2": ("moe", "tp=2 ep=2 etp=1", BOTH, (0, 15)),
    "moe_etp2": ("moe", "tp=2 ep=1 etp=2", TORCH_DIST, (0, 15)),
    "moe_ep2pp2": ("moe", "ep=2 pp=2", TORCH_DIST, (0, 15)),
    "moe_dp_reshardable_ep2": ("moe", "layout=dp_reshardable ep=2", TORCH_DIST, (0, 15)),
    "moe_mixed": ("moe_mixed", "", BOTH, (0, 15)),
    "moe_shared": ("moe_shared", "", BOTH, (0, 15)),
    "moe_bias": ("moe_bias", "", BOTH, (0, 15)),
    "mtp": ("mtp", "", BOTH, (0, 15)),
    "mtp_pp2": ("mtp", "pp=2", TORCH_DIST, (0, 15)),
    "mtp_dense": ("mtp_dense", "", BOTH, (0, 15)),
    "mla": ("mla", "", BOTH, (0, 15)),
    "mla_tp2": ("mla", "tp=2", TORCH_DIST, (0, 15)),
    "mla_moe": ("mla_moe", "", BOTH, (0, 15)),
    "mla_no_q": ("mla_no_q", "", BOTH, (0, 15)),
    "mamba": ("mamba", "", BOTH, (0, 15)),
    "mamba_tp2": ("mamba", "tp=2", TORCH_DIST, (0, 15)),
    "mamba_mtp": ("mamba_mtp", "", BOTH, (0, 18)),
    "gdn": ("gdn", "", BOTH, (0, 17)),
    "gdn_tp2": ("gdn", "tp=2", TORCH_DIST, (0, 17)),
    "heterogeneous": ("heterogeneous_run", "", BOTH, (0, 15)),
    "te_dense": ("dense", "impl=te", BOTH, (0, 15)),
    "te_dense_tp2": ("dense", "impl=te tp=2", BOTH, (0, 15)),
    "te_layernorm": ("layernorm", "impl=te", BOTH, (0, 15)),
    "te_gelu_tp2": ("gelu", "impl=te tp=2", FSDP, (0, 15)),
    "te_tied": ("tied", "impl=te", TORCH_DIST, (0, 15)),
    "te_moe": ("moe", "impl=te", BOTH, (0, 15)),
    "te_moe_grouped": ("moe_grouped", "impl=te", BOTH, (0, 15)),
    "te_moe_grouped_ep2": ("moe_grouped", "impl=te ep=2", BOTH, (0, 15)),
    "te_moe_grouped_bias": ("moe_grouped_bias", "impl=te ep=2", BOTH, (0, 15)),
    "te_moe_shared": ("moe_shared", "impl=te", BOTH, (0, 15)),
    "te_mtp": ("mtp", "impl=te", BOTH, (0, 15)),
    "te_mla": ("mla", "impl=te", BOTH, (0, 15)),
    "te_mla_moe_grouped": ("mla_moe_grouped", "impl=te ep=2", BOTH, (0, 15)),
    "te_mla_fused": ("mla_fused", "impl=te", BOTH, (0, 18)),
    "te_mla_fused_no_optim": ("mla_fused", "impl=te without=optim", TORCH_DIST, (0, 18)),
    "te_mamba": ("mamba", "impl=te", BOTH, (0, 15)),
    "te_mamba_mtp": ("mamba_mtp", "impl=te", BOTH, (0, 18)),
    "te_gdn": ("gdn", "impl=te", BOTH, (0, 17)),
    "te_heterogeneous": ("heterogeneous_run", "impl=te", TORCH_DIST, (0, 15)),
    "v2_gelu": ("gelu", "fsdp=2 without=optim dp=2", FSDP, (99,)),
    "v2_te_gelu": ("gelu", "fsdp=2 without=optim impl=te", FSDP, (99,)),
    "v2_gelu_with_optim": ("gelu", "fsdp=2", FSDP, (99,)),
    "v2_dense": ("dense", "fsdp=2 without=optim", FSDP, (99,)),
    "v2_moe_gelu_ep2": ("moe_gelu", "fsdp=2 without=optim ep=2", FSDP, (99,)),
    "dense_dp2_v2": ("dense", "fsdp=2 dp=2", V2, (99,)),
    "moe_v2": ("moe", "fsdp=2", V2, (99,)),
    "tied_v2": ("tied", "fsdp=2", V2, (99,)),
    "te_moe_grouped_v2": ("moe_grouped", "fsdp=2 impl=te", V2, (99,)),
    "dense_torch_adam_v2": ("dense", "fsdp=2 adam=torch", V2, (99,)),
    "golden_dense": ("golden_dense", "tp=2 pp=2", TORCH_DIST, (0, 15)),
    "golden_dense_dp2": ("golden_dense", "dp=2", FSDP, (0, 15)),
    "golden_fp32": ("golden_dense", "dtype=fp32", TORCH_DIST, (0, 15)),
    "golden_moe": ("golden_moe", "ep=2 pp=2", TORCH_DIST, (0, 15)),
    "golden_moe_ep2dp4": ("golden_moe_groups", "ep=2 dp=4", FSDP, (0, 15)),
    "golden_moe_groups": ("golden_moe_groups", "ep=2 pp=2", TORCH_DIST, (0, 15)),
}
STOPS = set("""torch_dist.dense_torch_adam torch_dist.dense_sgd torch_dist.te_mla_fused fsdp_dtensor.dense_no_optim fsdp_dtensor.dense_fp32
 fsdp_dtensor.v2_dense fsdp_dtensor.v2_gelu_with_optim fsdp_dtensor.dense_tp2 fsdp_dtensor.moe_ep2
 fsdp_dtensor.moe_tp2ep2 fsdp_dtensor.golden_moe_ep2dp4 fsdp_dtensor.te_moe_grouped_ep2 fsdp_dtensor.te_moe_grouped_bias
 fsdp_dtensor.te_mla_moe_grouped fsdp_dtensor.mamba fsdp_dtensor.te_mamba""".split())
# Not to be built in a release: core 0.16 has MLA with Transformer Engine only; core 0.15 stops at experts with TP, without sequence
# parallelism (model_parallel_config.py lacks an import).
LEFT_OUT = {"core-0.16": r"\.mla", "core-0.15": r"\.moe_tp2ep2"}
# Of the arguments those that a loader's request follows from, and whatever else is not the parser's default.
SHAPING = """num_layers hidden_size ffn_hidden_size num_attention_heads group_query_attention num_query_groups kv_channels padded_vocab_size
 vocab_size make_vocab_size_divisible_by swiglu squared_relu add_bias_linear add_qkv_bias normalization qk_layernorm
 untie_embeddings_and_output_weights position_embedding_type max_position_embeddings tensor_model_parallel_size pipeline_model_parallel_size
 virtual_pipeline_model_parallel_size expert_model_parallel_size expert_tensor_parallel_size context_parallel_size world_size
 data_parallel_size num_experts moe_layer_freq moe_ffn_hidden_size moe_shared_expert_intermediate_size moe_shared_expert_gate
 moe_grouped_gemm moe_router_enable_expert_bias moe_router_topk mtp_num_layers multi_latent_attention q_lora_rank kv_lora_rank qk_head_dim
 qk_pos_emb_head_dim v_head_dim is_hybrid_model hybrid_override_pattern hybrid_layer_pattern experimental_attention_variant
 transformer_impl fp16 bf16 params_dtype optimizer use_distributed_optimizer use_precision_aware_optimizer use_megatron_fsdp
 data_parallel_sharding_strategy num_distributed_optimizer_instances ckpt_format dist_ckpt_strictness ckpt_fully_parallel_save
 dist_ckpt_optim_fully_reshardable data_parallel_random_init no_load_optim no_load_rng no_save_optim no_save_rng""".split()
SILENT = """rank local_rank load save tokenizer_type train_iters lr min_lr micro_batch_size global_batch_size seq_length use_cpu_initialization
 gradient_accumulation_fusion no_persist_layer_norm masked_softmax_fusion bias_swiglu_fusion bias_gelu_fusion bias_dropout_fusion
 apply_rope_fusion encoder_seq_length encoder_num_layers start_weight_decay end_weight_decay max_lr hidden_dropout attention_dropout
 consumed_train_samples consumed_valid_samples skipped_train_samples iteration distributed_backend num_workers eod_mask_loss
 auto_detect_ckpt_format""".split()


class Asked(Exception):
    """The reader would be called now."""


def parsed_args(toy, settings, folder):
    """The arguments of this run as Megatron has them, from the configuration that the model was built with."""
    from megatron.training import arguments

    command, sys.argv = sys.argv, ["pretrain"]
    args = arguments.parse_args()
    sys.argv = command
    renamed = dict(gated_linear_unit="swiglu", num_moe_experts="num_experts")
    for name, value in {**toy.settings, **toy.cut}.items():
        name = renamed.get(name, name)
        if name in vars(args) and not callable(value) and name not in ("params_dtype",):
            setattr(args, name, value)
    family = toy.family
    args.group_query_attention = not toy.is_mla
    args.untie_embeddings_and_output_weights = not family.get("tied", False)
    args.position_embedding_type = family.get("positions", "rope")
    args.max_position_embeddings = args.seq_length = 32
    args.padded_vocab_size = args.vocab_size = toy.VOCAB
    args.make_vocab_size_divisible_by = 1
    args.tokenizer_type, args.transformer_impl = "NullTokenizer", "transformer_engine" if toy.IS_TE else "local"
    args.micro_batch_size, args.global_batch_size, args.train_iters, args.lr, args.min_lr = 1, 8, 16, 1e-3, 1e-4
    args.no_persist_layer_norm = True
    args.gradient_accumulation_fusion = args.masked_softmax_fusion = args.apply_rope_fusion = False
    args.bias_swiglu_fusion = args.bias_gelu_fusion = args.bias_dropout_fusion = False
    if toy.is_heterogeneous:
        args.use_rope_scaling = args.use_rotary_position_embeddings = True
    if toy.VPP > 1:
        args.num_virtual_stages_per_pipeline_rank = toy.VPP
    if "pattern" in family:
        pattern = "hybrid_layer_pattern" if "hybrid_layer_pattern" in vars(args) else "hybrid_override_pattern"
        setattr(args, pattern, family["pattern"])
        args.is_hybrid_model = True
    args.optimizer = "sgd" if toy.LAYOUT["adam"] == "sgd" else "adam"
    args.use_distributed_optimizer = (toy.IS_ZERO or toy.IS_FSDP) and not toy.IS_V2
    if toy.IS_V2:
        args.megatron_fsdp_version = 2
    args.num_distributed_optimizer_instances = toy.INSTANCES
    args.ckpt_format = "fsdp_dtensor" if toy.IS_FSDP else "torch_dist"
    args.dist_ckpt_optim_fully_reshardable = toy.LAYOUT["layout"] == "fully_reshardable"
    if toy.IS_FSDP:
        args.use_megatron_fsdp, args.data_parallel_sharding_strategy = True, "optim_grads_params"
    args.load = folder
    torch.cuda.get_device_properties = lambda *a: types.SimpleNamespace(major=9, minor=0, multi_processor_count=132)
    torch.cuda.get_device_capability, torch.cuda.device_count = lambda *a: (9, 0), lambda: 8
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "8" if toy.IS_FSDP else "1"
    return arguments.validate_args(args) or args


def same_model(toy, args):
    """The configuration that training would make of these arguments is the model's in everything that the family sets."""
    from megatron.training import arguments

    config = arguments.core_transformer_config_from_args(args)
    wrong = {name: (getattr(config, name), getattr(toy.config, name)) for name in {**toy.settings, **toy.cut}
             if hasattr(config, name) and hasattr(toy.config, name) and getattr(config, name) != getattr(toy.config, name)
             and not callable(getattr(config, name))}
    assert not wrong, f"arguments and model differ: {wrong}"


def rows_of_torch_dist(request):
    """The items behind dist_checkpointing.load(request), by the functions that it begins with."""
    from megatron.core.dist_checkpointing.mapping import ShardedObject
    from megatron.core.dist_checkpointing.dict_utils import nested_values
    from megatron.core.dist_checkpointing.state_dict_utils import load_preprocess
    from megatron.core.dist_checkpointing.utils import extract_sharded_base

    items, _ = extract_sharded_base(load_preprocess(request)[0])
    for item in nested_values(items):
        if isinstance(item, ShardedObject):
            yield "object", item.unique_key
        else:
            yield "tensor", item.key, item.dtype, tuple(item.global_shape)


def rows_of_dcp(request):
    """The items that DCP's planner makes of a nested state dict."""
    from torch.distributed.checkpoint._nested_dict import flatten_state_dict

    for key, value in flatten_state_dict(request)[0].items():
        if torch.is_tensor(value):
            yield "tensor", key, value.dtype, tuple(value.shape)
        else:
            yield "object", key


def text_of(row):
    if row[0] in ("object", "common"):
        return "\t".join(row)
    _, key, dtype, shape = row
    return "\t".join(["tensor", key, str(dtype).removeprefix("torch."), ",".join(map(str, shape)) or "-"])


# What of a key is folded, one after the other; the group is what differs.
FOLDS = [re.compile(pattern) for pattern in (
    r"^object\toptimizer\.param_.*\.([a-z_]+)$", r"\toptimizer\.state\..*\.(exp_avg|exp_avg_sq|step)\b(?=\t|$)",
    r"\toptimizer\.state\.(exp_avg|exp_avg_sq|param|fp32_param)\.", r"/shard_([\d.]+)_[\d.]+$", r"\.local_experts\.(\d+)\.",
    r"linear_fc[12]\.(?:weight|bias)(\d+)", r"linear_fc1\.(?:weight|bias)(?:\{[\d,]+\}|\d*)_([wv])\b", r"layers\.(\d+)\.")]


def folded(lines):
    """The lines, with those that differ in one place as one: a.b.{lr,step}. A key has no braces of its own."""
    for pattern in FOLDS:
        parts, out = {}, []
        for line in lines:
            found = pattern.search(line)
            if found:
                parts.setdefault((line[:found.start(1)], line[found.end(1):]), []).append(found[1])
            else:
                out.append(line)
        for (before, after), values in parts.items():
            values.sort(key=lambda value: [(not n.isdigit(), int(n) if n.isdigit() else 0, n) for n in value.split(".")])
            out.append(before + ("{%s}" % ",".join(values) if len(values) > 1 else values[0]) + after)
        lines = out
    return sorted(lines)


def shown(args):
    """The arguments in a fixture's head."""
    from megatron.training import arguments

    sys.argv = ["pretrain"]
    default = vars(arguments.parse_args())
    out = {}
    for name, value in sorted(vars(args).items()):
        is_plain = isinstance(value, (type(None), bool, int, float, str, list))
        if name in SHAPING or (is_plain and name not in SILENT and value != default.get(name)):
            out[name] = value if is_plain else str(value)
    return out


def content_metadata(toy):
    """As save_checkpoint() writes them."""
    metadata = dict(singleton_local_shards=False, chained_optim_avoid_prefix=True, **toy.family.get("metadata", {}))
    if toy.IS_ZERO:
        metadata["distrib_optim_sharding_type"] = toy.LAYOUT["layout"]
        if toy.LAYOUT["layout"] == "fully_reshardable":
            metadata["distrib_optim_fully_reshardable_mem_efficient"] = False
    return metadata


def ask(toy, args):
    """What load_checkpoint() asks for on this rank, as a list of rows."""
    import torch.distributed.checkpoint as dcp
    from megatron.core import tensor_parallel

    checkpointing = toy.checkpointing
    checkpointing.get_args = lambda: args
    torch.cuda.get_rng_state = lambda *a, **k: torch.zeros(16, dtype=torch.uint8)  # a GPU's: seed and offset
    tensor_parallel.get_cuda_rng_tracker = tensor_parallel.random.get_cuda_rng_tracker  # Megatron's own, which the model needs not
    tensor_parallel.random.model_parallel_cuda_manual_seed(1234)
    args.no_load_optim = args.no_save_optim = "optim" in toy.LAYOUT["without"] or None
    args.no_load_rng = args.no_save_rng = "rng" in toy.LAYOUT["without"] or None
    stored = dict(args=args, iteration=toy.ITERATION, checkpoint_version=3.0, content_metadata=content_metadata(toy))
    if toy.LAYOUT["rerun"]:
        from megatron.core.rerun_state_machine import RerunState

        stored["rerun_state_machine"] = dict(state=RerunState.WILL_RERUN_FROM_CHECKPOINT)
    found = []

    def asked(rows):
        def stop(*positional, **named):
            request = named.get("state_dict", positional[0] if positional else None)
            found.extend(rows(request))
            raise Asked

        return stop

    checkpointing.dist_checkpointing.load_common_state_dict = lambda *_: dict(stored)
    checkpointing.dist_checkpointing.load = asked(rows_of_torch_dist)
    dcp.load = lambda state_dict, **_: state_dict.update({k: stored[k] for k in state_dict})
    dcp.load_state_dict = asked(rows_of_dcp)
    dcp.FileSystemReader.read_metadata = lambda _self: types.SimpleNamespace(state_dict_metadata={})
    if toy.IS_FSDP:
        models = [toy.wrap_fsdp()]
    else:
        models = [toy.wrap(chunk) for chunk in range(toy.VPP)]
    optimizer, scheduler = toy.make_optimizer(models)
    groups = getattr(checkpointing.unwrap_model(models)[0], "pg_collection", None)
    groups = dict(tp_group=groups.tp, pp_group=groups.pp) if toy.RELEASE >= (0, 19) and groups is not None else {}
    try:
        toy.call(checkpointing.load_checkpoint, models, optimizer, scheduler, **groups)
    except Asked:
        return found
    raise AssertionError("load_checkpoint() asked for nothing")


def ask_v2(toy):
    """What Megatron-FSDP v2's own load_checkpoint(model, optimizer, folder) asks for."""
    import torch.distributed.checkpoint as dcp
    from megatron.core.distributed.fsdp.src.megatron_fsdp.experimental import fully_shard_optimizer, load_checkpoint

    found = []

    def stop(request, **_):
        found.extend(rows_of_dcp(request))
        raise Asked

    dcp.load = stop
    model = toy.checkpointing.unwrap_model([toy.wrap_fsdp()])[0]
    # Megatron's own optimizer leaves out what a rank holds nothing of, and with it ranks would wait for each other forever.
    optimizer = (toy.Fused if toy.LAYOUT["adam"] == "fused" else torch.optim.AdamW)(model.parameters())
    fully_shard_optimizer(optimizer)
    try:
        load_checkpoint(model, optimizer, "")
    except Asked:
        return found
    raise AssertionError("load_checkpoint() asked for nothing")


def paths_of(value, prefix=()):
    """Of every entry of nested dicts, and of the fields of the first group."""
    for key, inner in value.items():
        yield (*prefix, key)
        if isinstance(inner, dict):
            yield from paths_of(inner, (*prefix, key))
        elif key == "param_groups":
            yield from ((*prefix, key, field) for field in inner[0])


def without(value, path):
    """A copy of nested dicts that lacks this entry; of param_groups, every group lacks it."""
    if isinstance(value, list):
        return [without(group, path) for group in value]
    if len(path) == 1:
        return {key: inner for key, inner in value.items() if key != path[0]}
    return {key: without(inner, path[1:]) if key == path[0] else inner for key, inner in value.items()}


def rows_of_common_state(toy, args, folder):
    """What load_checkpoint() says of a checkpoint that is whole but for one entry of its common state."""
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing.strategies import common as strategies

    checkpointing = toy.checkpointing
    checkpointing.get_args = lambda: args
    checkpointing.update_num_microbatches = lambda *a, **k: None
    models = [toy.wrap(0)]
    optimizer, scheduler = toy.make_optimizer(models)
    metadata = content_metadata(toy)
    for group in optimizer.param_groups:
        group["step"] = toy.ITERATION
    for _, _, main, state in toy.each_master(optimizer):
        state[main] = {kind[1:]: torch.zeros_like(main) for kind in toy.STATES}
    state = toy.state_of(optimizer, scheduler, metadata, toy.rng_state("torch_dist"))
    state.update(args=args, num_floating_point_operations_so_far=1.0)
    iteration = os.path.join(folder, "iter_0000004")
    os.remove(os.path.join(iteration, "metadata.json"))
    toy.call(dist_checkpointing.save, state, iteration, ("torch_dist", 1), content_metadata=metadata)
    whole = dist_checkpointing.load_common_state_dict(iteration)
    for path in [(), *paths_of(whole)]:
        left = without(whole, path) if path else whole
        for module in (dist_checkpointing, dist_checkpointing.serialization, strategies):
            for name in ("load_common_state_dict", "load_common"):
                if hasattr(module, name):
                    setattr(module, name, lambda *_a, left=left: copy.deepcopy(left))
        for strategy in [c for c in vars(strategies).values() if isinstance(c, type) and hasattr(c, "load_common")]:
            strategy.load_common = lambda _self, *_a, left=left: copy.deepcopy(left)
        said = io.StringIO()
        checkpointing._CHECKPOINT_VERSION = None  # as in a new process
        try:
            with contextlib.redirect_stdout(said):
                toy.call(checkpointing.load_checkpoint, models, optimizer, scheduler)
            verdict = "loads"
        except SystemExit:
            verdict = "stops: sys.exit"
        except Exception as error:
            verdict = f"stops: {type(error).__name__}: " + re.sub(r"/\S+", "...", str(error).splitlines()[0])[:100]
        said = [line.strip() for line in said.getvalue().splitlines() if re.search("(?i)warn|unable|could not|not found", line)]
        yield "common", ".".join(path) or "(whole)", verdict, re.sub(r"/\S+", "...", "; ".join(said))


def empty_run(ckpt_format, folder):
    """A run folder that Megatron takes for one with a checkpoint."""
    iteration = os.path.join(folder, "iter_0000004")
    os.makedirs(iteration)
    with open(os.path.join(folder, "latest_checkpointed_iteration.txt"), "w", encoding="utf-8") as out:
        out.write("4")
    name, text = ("metadata.json", '{"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch", '
                  '"common_backend_version": 1}') if ckpt_format == "torch_dist" else (".metadata", "")
    with open(os.path.join(iteration, name), "w", encoding="utf-8") as out:
        out.write(text)


def run_rank(tree, case, ckpt_format, folder, out):
    """One rank of a case, in a process of its own."""
    family, settings, _, _ = CASES[case]
    words = [word for word in settings.split() if not word.startswith("dp=")]
    sys.argv = ["megatron_requests.py", "request", tree, family, folder, f"fsdp={int(ckpt_format != 'torch_dist')}", *words]
    import megatron_toy as toy

    stops = None
    args = parsed_args(toy, settings, folder)
    same_model(toy, args)
    try:
        if ckpt_format == "fsdp_v2":
            rows = ask_v2(toy)
        else:
            rows = list(rows_of_common_state(toy, args, folder)) if toy.LAYOUT["common"] else ask(toy, args)
    except (AssertionError, AttributeError, KeyError, NotImplementedError, TypeError, ValueError) as error:
        if f"{ckpt_format}.{case}" not in STOPS:
            raise
        last = traceback.extract_tb(error.__traceback__)
        frame = [f for f in last if tree in f.filename][-1]
        stops, rows = f"{type(error).__name__} in {frame.name}: {frame.line}", []
    gathered = [None] * toy.WORLD
    torch.distributed.all_gather_object(gathered, rows)
    if torch.distributed.get_rank() == 0:
        lines = sorted({text_of(row) for part in gathered for row in part})
        model = toy.TP * toy.PP
        mesh = f"tp={toy.TP} pp={toy.PP} ep={toy.EP} etp={toy.ETP} dp={toy.WORLD // model}"
        head = [f"releases: {release_name(tree)}", f"format: {ckpt_format}", f"case: {case}", f"family: {family} {settings}".rstrip(),
                f"mesh: {mesh}", f"impl: {impl_of(settings)}",
                "optimizer: " + {"fused": "te", "torch": "torch"}.get(toy.LAYOUT["adam"], toy.LAYOUT["adam"])]
        if ckpt_format == "torch_dist":
            head.append("content_metadata: " + json.dumps(content_metadata(toy)))
        if stops:
            head.append("stops: " + stops)
        head.append("args: " + json.dumps(shown(args)))
        with open(out, "w", encoding="utf-8") as file:
            file.write("".join(f"# {line}\n" for line in head) + "".join(f"{line}\n" for line in lines))
    torch.distributed.barrier()


def release_name(tree):
    return "core-" + ".".join(tree.removeprefix("core_v").split(".")[:2]) if tree.startswith("core_v") else "main"


def world_of(settings):
    """Ranks of a case: dp= says how many replicas, else as few as hold its parts."""
    size = {name: int(value) for name, value in (word.split("=") for word in settings.split()) if value.isdigit()}
    experts = size.get("ep", 1) * size.get("etp", size.get("tp", 1))
    return size.get("pp", 1) * max(size.get("tp", 1) * size.get("dp", 1), experts)


def run_case(tree, case, ckpt_format, out):
    """All ranks of a case; true when all of them ended well."""
    world = world_of(CASES[case][1])
    folder = tempfile.mkdtemp(prefix="megatron_requests.")
    empty_run(ckpt_format, folder)
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        number = port.getsockname()[1]
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(number))
            log = os.path.join(folder, f"log.{rank}")
            sys.stdout = sys.stderr = open(log, "w", encoding="utf-8")
            code = 1
            signal.alarm(300)  # ranks that wait for each other
            try:
                run_rank(tree, case, ckpt_format, folder, out)
                code = 0
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            os._exit(code)
        children.append(child)
    failed = [rank for rank, child in enumerate(children) if os.waitpid(child, 0)[1] != 0]
    if failed:
        print(f"FAIL {release_name(tree)} {ckpt_format} {case}: rank {failed[0]}")
        with open(os.path.join(folder, f"log.{failed[0]}"), encoding="utf-8") as log:
            print("    " + "    ".join(log.readlines()[-4:]).rstrip())
    shutil.rmtree(folder)
    return not failed


def impl_of(settings):
    return "te" if "impl=te" in settings.split() else "local"


def ask_all(tree, out, only="."):
    """With the local layers and with Transformer Engine's, which are there from the first import on or not at all."""
    os.makedirs(out, exist_ok=True)
    codes = []
    for impl in ("local", "te"):
        child = os.fork()
        if child == 0:
            code = ask_of(tree, out, only, impl)
            sys.stdout.flush()
            os._exit(code)
        codes.append(os.waitpid(child, 0)[1])
    return 1 if any(codes) else 0


def ask_of(tree, out, only, impl):
    cases = [(case, ckpt_format, f"{release_name(tree)}.{ckpt_format}.{case}") for case, (_, settings, formats, since) in CASES.items()
             for ckpt_format in formats if megatron_cpu.release_of(tree) >= since and impl_of(settings) == impl]
    cases = [row for row in cases if not re.search(LEFT_OUT.get(release_name(tree), "$^"), row[2])]
    cases = [row for row in cases if re.search(only, row[2])]
    if not cases:
        return 0
    megatron_cpu.start(tree, impl == "te")
    megatron_cpu.stub_mamba()
    megatron_cpu.stub_delta_net()
    import megatron.core.models.gpt.gpt_layer_specs  # noqa: F401  (what every rank imports, once)
    import megatron.core.optimizer  # noqa: F401
    import megatron.training.arguments  # noqa: F401
    import megatron.training.checkpointing  # noqa: F401

    failed = sum(not run_case(tree, case, ckpt_format, os.path.join(out, name + ".txt")) for case, ckpt_format, name in cases)
    print(f"{tree} {impl}: {len(cases)} cases, {failed} failed")
    return 1 if failed else 0


def halves(path):
    """Of a file: its head by name, and its items."""
    with open(path, encoding="utf-8") as file:
        lines = file.readlines()
    head = dict(line[2:].rstrip("\n").split(": ", 1) for line in lines if line.startswith("# "))
    return head, [line for line in lines if not line.startswith("# ")]


def join(asked, out):
    """One file for the releases that ask for the same, with the head of the first of them."""
    os.makedirs(out, exist_ok=True)
    groups = {}
    for name in sorted(os.listdir(asked)):  # core-0.15 .. core-0.19, main
        head, items = halves(os.path.join(asked, name))
        items = folded([line.rstrip("\n") for line in items])
        first = groups.setdefault((head["format"], head["case"], *items), (name, head, items, []))
        first[3].append(head["releases"])
    for name, head, items, releases in groups.values():
        head["releases"] = " ".join(releases)
        with open(os.path.join(out, name), "w", encoding="utf-8") as file:
            file.write("".join(f"# {key}: {value}\n" for key, value in head.items()) + "".join(f"{item}\n" for item in items))
    print(f"{len(groups)} files")
    return 0 if groups else 1


def unfolded(line):
    found = re.search(r"\{([^}]*)\}", line)
    return [line] if not found else [text for value in found[1].split(",") for text in unfolded(line[:found.start()] + value + line[found.end():])]


def compare(asked, fixtures, trees, only="."):
    """What was asked for now against the fixtures of these releases: the same cases, the same items, the same head."""
    kept, same, wrong = {}, 0, []
    for name in sorted(os.listdir(fixtures)):
        if name.endswith(".txt"):
            head, items = halves(os.path.join(fixtures, name))
            for release in head["releases"].split():
                kept[f"{release}.{head['format']}.{head['case']}"] = (head, [text for item in items for text in unfolded(item)])
    wanted = {name for name in kept if re.search(only, name) and any(name.startswith(release_name(tree) + ".") for tree in trees.split())}
    got = {name.removesuffix(".txt"): halves(os.path.join(asked, name)) for name in os.listdir(asked)}
    for name in sorted(wanted | set(got)):
        if name not in kept or name not in got:
            wrong.append(f"{name}: {'not asked now' if name in kept else 'no fixture'}")
            continue
        (head, items), (new_head, new_items) = kept[name], got[name]
        is_first = head["releases"].split()[0] == new_head["releases"]
        differ = [f"  - {line}" for line in items if line not in set(new_items)] + [f"  + {line}" for line in new_items if line not in set(items)]
        differ += [f"  # {key}\n" for key in head if is_first and key != "releases" and head[key] != new_head.get(key)]
        if differ:
            wrong.append(f"{name}:\n" + "".join(differ[:20]).rstrip())
        same += not differ
    print(*wrong, f"{same} requests equal their fixtures, {len(wrong)} do not", sep="\n")
    return 1 if wrong or not same else 0


if __name__ == "__main__":
    sys.exit(dict(ask=ask_all, join=join, compare=compare)[sys.argv[1]](*sys.argv[2:]))
