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
import json
import os
import re
import shutil
import socket
import sys
import tempfile
import traceback
import types

import torch

import megatron_cpu

# name: (family, settings of megatron_toy.py, formats, first release). One rank, and te's Adam, where nothing else is said.
BOTH = ("torch_dist", "fsdp_dtensor")
CASES = {
    "dense": ("dense", "", BOTH, (0, 15)),
    "dense_dp2": ("dense", "dp=2", BOTH, (0, 15)),
    "dense_tp2": ("dense", "tp=2", BOTH, (0, 15)),
    "moe": ("moe", "", BOTH, (0, 15)),
    "moe_ep2": ("moe", "ep=2", BOTH, (0, 15)),
}
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
    args.tokenizer_type, args.transformer_impl = "NullTokenizer", "local"
    args.micro_batch_size, args.global_batch_size, args.train_iters, args.lr, args.min_lr = 1, 8, 16, 1e-3, 1e-4
    args.no_persist_layer_norm = True
    args.gradient_accumulation_fusion = args.masked_softmax_fusion = args.apply_rope_fusion = False
    args.bias_swiglu_fusion = args.bias_gelu_fusion = args.bias_dropout_fusion = False
    if "pattern" in family:
        pattern = "hybrid_layer_pattern" if "hybrid_layer_pattern" in vars(args) else "hybrid_override_pattern"
        setattr(args, pattern, family["pattern"])
        args.is_hybrid_model = True
    args.optimizer = "sgd" if toy.LAYOUT["adam"] == "sgd" else "adam"
    args.use_distributed_optimizer = toy.IS_ZERO or toy.IS_FSDP
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
    if row[0] == "object":
        return "\t".join(row)
    _, key, dtype, shape = row
    return "\t".join(["tensor", key, str(dtype).removeprefix("torch."), ",".join(map(str, shape)) or "-"])


def folded(lines):
    """The lines, with objects that differ in the field behind the last dot as one: a.b.{lr,step}. A key has no braces of its own."""
    fields, out = {}, []
    for line in lines:
        stem, _, field = line.rpartition(".")
        if line.startswith("object\toptimizer.param_") and field.isidentifier():
            fields.setdefault(stem, []).append(field)
        else:
            out.append(line)
    return sorted(out + [f"{stem}.{{{','.join(sorted(names))}}}" for stem, names in fields.items()])


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


def ask(toy, settings, folder):
    """What load_checkpoint() asks for on this rank, as a list of rows, and the run's arguments."""
    import torch.distributed.checkpoint as dcp
    from megatron.core import tensor_parallel

    checkpointing = toy.checkpointing
    args = parsed_args(toy, settings, folder)
    same_model(toy, args)
    checkpointing.get_args = lambda: args
    torch.cuda.get_rng_state = lambda *a, **k: torch.zeros(16, dtype=torch.uint8)  # a GPU's: seed and offset
    tensor_parallel.get_cuda_rng_tracker = tensor_parallel.random.get_cuda_rng_tracker  # Megatron's own, which the model needs not
    tensor_parallel.random.model_parallel_cuda_manual_seed(1234)
    stored = dict(args=args, iteration=toy.ITERATION, checkpoint_version=3.0, content_metadata=content_metadata(toy))
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
        return found, args
    raise AssertionError("load_checkpoint() asked for nothing")


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
    sys.argv = ["megatron_requests.py", "request", tree, family, folder, f"fsdp={int(ckpt_format == 'fsdp_dtensor')}", *words]
    import megatron_toy as toy

    rows, args = ask(toy, settings, folder)
    gathered = [None] * toy.WORLD
    torch.distributed.all_gather_object(gathered, rows)
    if torch.distributed.get_rank() == 0:
        lines = folded({text_of(row) for part in gathered for row in part})
        model = toy.TP * toy.PP
        mesh = f"tp={toy.TP} pp={toy.PP} ep={toy.EP} etp={toy.ETP} dp={toy.WORLD // model}"
        head = [f"releases: {release_name(tree)}", f"format: {ckpt_format}", f"case: {case}", f"family: {family} {settings}".rstrip(),
                f"mesh: {mesh}", "impl: local",
                "optimizer: " + {"fused": "te", "torch": "torch"}.get(toy.LAYOUT["adam"], toy.LAYOUT["adam"])]
        if ckpt_format == "torch_dist":
            head.append("content_metadata: " + json.dumps(content_metadata(toy)))
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
            print("    " + "    ".join(log.readlines()[-12:]).rstrip())
    shutil.rmtree(folder)
    return not failed


def ask_all(tree, out, only="."):
    megatron_cpu.start(tree)
    megatron_cpu.stub_mamba()
    megatron_cpu.stub_delta_net()
    import megatron.core.models.gpt.gpt_layer_specs  # noqa: F401  (what every rank imports, once)
    import megatron.core.optimizer  # noqa: F401
    import megatron.training.arguments  # noqa: F401
    import megatron.training.checkpointing  # noqa: F401

    os.makedirs(out, exist_ok=True)
    done = failed = 0
    for case, (_, _, formats, since) in CASES.items():
        for ckpt_format in formats:
            name = f"{release_name(tree)}.{ckpt_format}.{case}"
            if megatron_cpu.release_of(tree) >= since and re.search(only, name):
                done += 1
                failed += not run_case(tree, case, ckpt_format, os.path.join(out, name + ".txt"))
    print(f"{tree}: {done} cases, {failed} failed")
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
        first = groups.setdefault((head["format"], head["case"], *items), (name, head, items, []))
        first[3].append(head["releases"])
    for name, head, items, releases in groups.values():
        head["releases"] = " ".join(releases)
        with open(os.path.join(out, name), "w", encoding="utf-8") as file:
            file.write("".join(f"# {key}: {value}\n" for key, value in head.items()) + "".join(items))
    print(f"{len(groups)} files")
    return 0 if groups else 1


def compare(asked, fixtures, trees, only="."):
    """What was asked for now against the fixtures of these releases: the same cases, the same items, the same head."""
    kept, same, wrong = {}, 0, []
    for name in sorted(os.listdir(fixtures)):
        if name.endswith(".txt"):
            head, items = halves(os.path.join(fixtures, name))
            for release in head["releases"].split():
                kept[f"{release}.{head['format']}.{head['case']}"] = (head, items)
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
