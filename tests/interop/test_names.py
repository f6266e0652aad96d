# SPDX-License-Identifier: Apache-2.0
# test_names.py - the engine between the names of Megatron's modules, transformers', vLLM's and SGLang's.
"""What a rank of each program holds is cut here, by rules of their own sources, from whole tensors; ranks are threads."""
import copy
import functools
import json
import os
import re
import tempfile
import threading
import types
import unittest

import dcpkit as library
import torch
from safetensors.torch import load_file, save_file

import test_huggingface
from test_huggingface import BASE, logits
from tool import dcpkit

MOE = dict(num_experts_per_tok=2, moe_intermediate_size=12)
MORE = {
    "mistral": ("MistralForCausalLM", dict(BASE, sliding_window=8, head_dim=8)),
    "mixtral": ("MixtralForCausalLM", dict(BASE, num_local_experts=4, num_experts_per_tok=2)),
    "nemotron": ("NemotronForCausalLM", dict(BASE, rope_parameters=dict(BASE["rope_parameters"], partial_rotary_factor=0.5))),
    "qwen2": ("Qwen2ForCausalLM", dict(BASE, tie_word_embeddings=True)),
    "qwen3": ("Qwen3ForCausalLM", dict(BASE, head_dim=12)),
    "qwen2_moe": ("Qwen2MoeForCausalLM", dict(BASE, **MOE, num_experts=4, shared_expert_intermediate_size=20)),
    "deepseek_v2": ("DeepseekV2ForCausalLM", dict(
        BASE, **MOE, num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=4,
        v_head_dim=6, n_shared_experts=2, first_k_dense_replace=1, n_routed_experts=8)),
    "gemma2": ("Gemma2ForCausalLM", dict(BASE, head_dim=8, sliding_window=8, tie_word_embeddings=True)),
}
#: all but those whose modules have projections of several parts (megatron_models.py push has Megatron's own)
FAMILIES = {name: family for name, family in {**test_huggingface.FAMILIES, **MORE}.items() if name not in
            ("nemotron_h", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")}
make = functools.partial(test_huggingface.make, more=MORE)
N_LAYERS, VOCAB = 4, 130  # tokens: padded to 256 by Megatron, to 192 by vLLM


def whole_model(folder):
    """The tensors of a Megatron checkpoint by the names of modules: layers and experts apart."""
    with library.open(folder) as ckpt:
        stored = {key: tensor.torch() for key, tensor in ckpt.items()}
    whole = {}
    for key, tensor in stored.items():
        layers = re.match(r"decoder\.layers\.(?!\d)(.*)", key)
        pairs = [(f"decoder.layers.{l}.{layers[1]}", t) for l, t in enumerate(tensor)] if layers else [(key, tensor)]
        for name, one in pairs:
            if ".experts.experts." in name:
                name = name.replace(".experts.experts.", ".experts.")
                whole.update((f"{name}{e}", t) for e, t in enumerate(one))
            else:
                whole[name] = one
    return whole


def spell(whole, is_te):
    """The spelling of Transformer Engine's modules or of Megatron's local ones."""
    fused = {"self_attention.linear_qkv.layer_norm_": "input_layernorm.", "mlp.linear_fc1.layer_norm_": "pre_mlp_layernorm.",
             "self_attention.linear_q_up_proj.layer_norm_": "self_attention.q_layernorm.",
             "self_attention.linear_kv_up_proj.layer_norm_": "self_attention.kv_layernorm."}
    made = {}
    for name, tensor in whole.items():
        layer = re.match(r"decoder\.layers\.\d+\.|mtp\.layers\.\d+\.transformer_layer\.|", name)[0]
        has_router = layer + "mlp.router.weight" in whole
        for te, local in fused.items():
            keeps = te.startswith("mlp") and has_router  # the norm before experts is a module in both
            if name.startswith(layer + te):
                name = name if is_te and not keeps else name.replace(te, local)
            elif layer and name.startswith(layer + local) and is_te and not keeps and name.replace(local, te) in whole:
                name = name.replace(local, te)
        if not is_te:
            name = re.sub(r"(mlp\.experts\.)(linear_fc\d\.\w+?)(\d+)$", r"\1local_experts.\3.\2", name)
        made[name] = tensor
    return made


def cut_rows(tensor, n, index, parts=1):
    return torch.cat([part.chunk(n)[index] for part in tensor.chunk(parts)])


def pad(tensor, multiple, value):
    """Rows of tokens, then others, to a multiple."""
    rows = torch.full((-(-VOCAB // multiple) * multiple, *tensor.shape[1:]), value)
    rows[:VOCAB] = tensor[:VOCAB]
    return rows


ROW_PARALLEL = re.compile(r"(word_embeddings|output_layer|linear_qkv|linear_fc1|linear_q_up_proj|linear_kv_up_proj"
                          r"|linear_q_proj|eh_proj)\.(weight|bias)|softmax_offset$")
COLUMN_PARALLEL = re.compile(r"(linear_proj|linear_fc2)\.weight")


def megatron_rank(whole, rank, gated, is_tied, tp, pp, vpp, ep, etp):
    """Parameters of a rank, in the order tp-cp-ep-dp-pp, as ModuleList(model).named_parameters() lists them."""
    r, stage = rank % tp, rank // tp
    e_rank, et_rank = rank % tp // etp % ep, rank % etp
    n_experts = 1 + max((int(re.search(r"\d+", n.partition(".experts.")[2].partition("linear_fc1.weight")[2] or
                                       n.partition("local_experts.")[2])[0])
                         for n in whole if ".experts.local_experts." in n or re.search(r"experts\.linear_fc1\.weight\d", n)), default=0)
    held = {}
    for name, tensor in whole.items():
        layer = re.match(r"decoder\.layers\.(\d+)\.(.*)", name)
        chunk = 0
        if layer:
            per_chunk = N_LAYERS // (pp * vpp)
            which, local = divmod(int(layer[1]), per_chunk)
            if which % pp != stage:
                continue
            chunk, name = which // pp, f"decoder.layers.{local}.{layer[2]}"
        elif stage != (0 if name.startswith("embedding.") else pp - 1):
            continue
        elif not name.startswith("embedding."):
            chunk = vpp - 1
        n, index = tp, r
        if ".mlp.experts." in name:
            n, index = etp, et_rank
            number = re.search(r"local_experts\.(\d+)|(\d+)$", name)
            expert = int(number[1] or number[2])
            if expert // (n_experts // ep) != e_rank:
                continue
            at = number.start(1) if number[1] else number.start(2)
            name = f"{name[:at]}{expert % (n_experts // ep)}{name[at + len(str(expert)):]}"
        if re.search("word_embeddings|output_layer", name):
            tensor = pad(tensor, 128 * tp, 77.0)
        if ROW_PARALLEL.search(name):
            tensor = cut_rows(tensor, n, index, 2 if gated and "linear_fc1" in name else 1)
        elif COLUMN_PARALLEL.search(name):
            tensor = tensor.chunk(n, 1)[index]
        held[f"{chunk}.module.module.{name}" if vpp > 1 else name] = tensor.clone()
    if is_tied and stage == pp - 1 and pp > 1:
        rows = pad(whole["embedding.word_embeddings.weight"], 128 * tp, 77.0)
        held[f"{vpp - 1}.output_layer.weight" if vpp > 1 else "output_layer.weight"] = cut_rows(rows, tp, r)
    return held


def fsdp_parameter(name, block, tp, dp, rank):
    """The rows of a rank's block that the buffers of Megatron-FSDP give it, one more than even on all but the last."""
    shape = list(block.shape)
    axis = 0 if ROW_PARALLEL.search(name) else 1 if COLUMN_PARALLEL.search(name) else None
    if axis is not None:
        shape[axis] *= tp
    row, rows = block[0].numel(), 1 + len(block) // dp
    begin, end = min(rank // tp * rows, len(block)), min((rank // tp + 1) * rows, len(block))
    return types.SimpleNamespace(
        _local_tensor=block[begin:end], _spec=types.SimpleNamespace(mesh=types.SimpleNamespace(get_coordinate=lambda: [0, 0])),
        shape=shape, orig_param=block, megatron_fsdp_slice=slice(begin * row, end * row),
        megatron_fsdp_dist_index=types.SimpleNamespace(tp_dim="tp"), device_mesh=types.SimpleNamespace(get_local_rank=lambda dim: rank % tp))


def served_name(name, config, program):
    """Where a module of the server has a tensor of the files: in its model, or ("draft.") in that of multi-token prediction."""
    vllm, own = program == "vllm", ("embed_tokens", "enorm", "hnorm", "eh_proj", "shared_head")
    later = re.match(r"model\.layers\.(\d+)\.(\w+)(.*)", name)
    if config.model_type == "qwen3_next":
        if name.startswith("mtp."):
            name = "draft." + (name[4:] if not vllm and name.startswith(("mtp.fc", "mtp.pre_fc")) else "model." + name[4:])
        return name if vllm else name.replace(".self_attn", "")
    if config.model_type == "gpt_oss" and vllm:
        return name.replace(".self_attn.", ".attn.").replace(".embed_tokens.", ".embedding.")
    if not later or int(later[1]) < config.num_hidden_layers:
        return name
    layer, module, rest = int(later[1]), later[2], later[3]
    if module == "embed_tokens":
        return "draft.model.embed_tokens" + rest if layer == config.num_hidden_layers else None
    if vllm:
        return f"draft.model.layers.{layer}." + ("" if module in own else "mtp_block.") + module + rest
    if (module + rest).startswith("shared_head.head"):
        return "draft.lm_head.weight"
    return "draft.model." + ("" if module in own else "decoder.") + module + rest


def served_experts(w, kind, program, tp, r, experts):
    """Those of GPT-OSS, in one tensor (gpt_oss.py: _load_weights_other, _load_normal_weights)."""
    w, size = w[experts[0]:experts[-1] + 1], w.shape[1 if kind == "down_proj" else -1]
    name = {"gate_up_proj": "w13_weight", "down_proj": "w2_weight"}.get(kind)
    if name is None:
        name = ("w13_" if "gate" in kind else "w2_") + ("bias" if program == "vllm" else "weight_bias")
    if kind == "down_proj_bias":
        return name, w if r == 0 else torch.zeros_like(w)
    part = slice(r * size // tp, (r + 1) * size // tp)
    if kind == "down_proj":
        return name, w[:, part, :].permute(0, 2, 1).contiguous()
    return name, w[..., part].permute(0, 2, 1).contiguous() if kind == "gate_up_proj" else w[..., part].clone()


def served_rank(files, config, tp, rank, ep=1, program="vllm", later="experts."):
    """What the weight loaders of a server leave on a rank (linear.py, fused_moe/layer.py, vocab_parallel_embedding.py)."""
    heads, kv_heads = config.num_attention_heads, getattr(config, "num_key_value_heads", config.num_attention_heads)
    r, copies = rank % tp, max(1, tp // kv_heads)
    a_proj = "fused_qkv_a_proj" if program == "vllm" else "fused_qkv_a_proj_with_mqa"
    # SGLang: the ranks of an expert follow each other in tensor parallelism; vLLM: one has it
    etp = tp if ep == 1 else 1 if program == "vllm" else tp // ep
    e_rank, et_rank = (rank if program == "vllm" else r // etp) % ep, r % etp
    fused, held = {}, {}

    def mine(n):
        return range(e_rank * n // ep, (e_rank + 1) * n // ep)

    def put(name, number, tensor):
        fused.setdefault(name, {})[number] = tensor

    for key, w in files.items():
        name = served_name(key, config, program)
        if name is None:
            continue
        base, _, ending = name.rpartition(".")
        before, _, module = base.rpartition(".")
        expert = re.match(r"(.*\.)experts\.(\d+)\.(\w+)\.weight", name)
        siblings = key.rpartition(".")[0].rpartition(".")[0]
        conv1d = module in ("c_attn", "c_fc", "c_proj") and ending == "weight" and not key.startswith("model.")
        w = w.t() if conv1d else w  # Conv1D of GPT-2
        if expert:
            number = {"w2": 0, "down_proj": 0, "w1": 0, "gate_proj": 0, "w3": 1, "up_proj": 1}[expert[3]]
            kind, axis = ("w2_weight", 1) if expert[3] in ("w2", "down_proj") else ("w13_weight", 0)
            put(f"{expert[1]}{later}{kind}", (int(expert[2]), number), w.chunk(etp, axis)[et_rank])
        elif module == "experts":
            kind, tensor = served_experts(w, ending, program, etp, et_rank, mine(len(w)))
            held[f"{before}.{later}{kind}"] = tensor
        elif module in ("qkv_proj", "c_attn"):
            q, k, v = w.split([w.shape[0] * n // (heads + 2 * kv_heads) for n in (heads, kv_heads, kv_heads)])
            held[name] = torch.cat([q.chunk(tp)[r], *(x.chunk(min(tp, kv_heads))[r // copies] for x in (k, v))])
        elif module == "q_proj" and siblings + ".k_proj.weight" in files:
            put(f"{before}.qkv_proj.{ending}", 0, w.chunk(tp)[r])
        elif module in ("k_proj", "v_proj"):
            put(f"{before}.qkv_proj.{ending}", 1 + (module == "v_proj"), w.chunk(min(tp, kv_heads))[r // copies])
        elif module in ("gate_proj", "up_proj") and siblings + ".gate_proj.weight" in files:
            put(f"{before}.gate_up_proj.{ending}", int(module == "up_proj"), w.chunk(tp)[r])
        elif module == "gate_up_proj":
            held[name] = torch.cat([half.chunk(tp)[r] for half in w.chunk(2)])
        elif module in ("q_a_proj", "kv_a_proj_with_mqa") and siblings + ".q_a_proj.weight" in files:
            put(f"{before}.{a_proj}.{ending}", int(module != "q_a_proj"), w)
        elif module == "conv1d":
            key_rows = config.linear_num_key_heads * config.linear_key_head_dim
            held[name] = torch.cat([part.chunk(tp)[r] for part in w.split([key_rows, key_rows, len(w) - 2 * key_rows])])
        elif module in ("q_proj", "q_b_proj", "kv_b_proj", "up_proj", "in_proj_qkvz", "in_proj_ba", "c_fc") or ending in ("sinks", "A_log", "dt_bias") \
                or module == "fc" and program == "vllm":
            held[name] = w.chunk(tp)[r]
        elif module in ("o_proj", "down_proj", "out_proj", "c_proj"):
            held[name] = w.chunk(tp, 1)[r] if w.dim() > 1 else w
        elif module in ("embed_tokens", "embedding", "lm_head", "head", "wte"):
            held[name] = pad(w, 64, -5.0).chunk(tp)[r]  # padding is not loaded
        else:
            held[name] = w
    for name, parts in fused.items():
        if not name.endswith(("w13_weight", "w2_weight")):
            held[name] = torch.cat([parts[n] for n in sorted(parts)])
            continue
        held[name] = torch.stack([torch.cat([parts[e, i] for i in range(2) if (e, i) in parts]) for e in mine(1 + max(e for e, _ in parts))])
    return held


class Ranks:
    """Threads of this process as the ranks of a world."""

    def __init__(self, n):
        self.n, self.barrier, self.given, self.failed = n, threading.Barrier(n), [b""] * n, []

    def world(self, rank):
        def all_gather(mine, everything):
            self.given[rank] = bytes(mine)
            self.barrier.wait(30)
            everything[:] = b"".join(self.given)
            self.barrier.wait(30)

        return library.World(rank, self.n, all_gather)

    def run(self, work):
        def of_rank(rank):
            try:
                with library.Engine(self.world(rank), transport="gather") as engine:
                    work(rank, engine)
            except BaseException as error:  # noqa: BLE001 - the first one is raised
                self.failed.append(error)
                self.barrier.abort()

        threads = [threading.Thread(target=of_rank, args=(rank,)) for rank in range(self.n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failed:
            raise self.failed[0]


def push(engine, like, sources, targets, held, wanted):
    """From what this rank holds to what it wants, by two schemes."""
    with engine.map() as m:
        m.names(like, sources=sources, targets=targets)
        m.sources(held)
        m.targets(wanted)
        m.plan()
        m.run()
        m.verify()


def in_memory(model):
    yield from model.named_parameters()
    yield from ((n, b) for n, b in model.named_buffers() if n.endswith("correction_bias"))


class Names(unittest.TestCase):
    def prepare(self, family, folder):
        """A model, a Megatron checkpoint of it, and the same after a step of training: in transformers' memory, as its files, as
        whole tensors of Megatron."""
        layers = {"n_layer" if family == "gpt2" else "num_hidden_layers": N_LAYERS}
        model = make(family, os.path.join(folder, "hf"), vocab_size=VOCAB, **layers)
        like = os.path.join(folder, "like")
        library.convert(os.path.join(folder, "hf"), like, "torch_dist")
        tokens = torch.arange(24).mul(7).remainder(99)[None]
        model(input_ids=tokens, labels=tokens).loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                if p.grad is not None:
                    p.sub_(0.1 * p.grad)
        model.save_pretrained(os.path.join(folder, "stepped"))
        library.convert(os.path.join(folder, "stepped"), os.path.join(folder, "trained"), "torch_dist")
        files = load_file(os.path.join(folder, "stepped", "model.safetensors"))
        return model, like, files, whole_model(os.path.join(folder, "trained"))

    def test_every_family(self):
        """Modules of Megatron on 4 ranks, with stages, chunks, tensor and expert parallelism, after a step: into transformers'
        class, which computes what it computed, and into tensors of vLLM and SGLang on 1, 2 and 4 ranks."""
        for family in FAMILIES:
            with self.subTest(family), tempfile.TemporaryDirectory() as folder:
                self.check_family(family, folder)

    def check_family(self, family, folder):
        model, like, files, whole = self.prepare(family, folder)
        is_te = len(family) % 2 == 0
        live = spell(whole, is_te)
        sizes = dict(tp=2, pp=2, vpp=2, ep=2, etp=1)
        if family == "gemma2":  # which Megatron core does not have: no rule cuts its norms after projections
            sizes.update(tp=1, pp=4, vpp=1)
        if not any(".experts.linear_fc1" in n for n in whole):
            sizes.update(ep=1, etp=sizes["tp"])
        layout = ",".join(f"{k}={v}" for k, v in sizes.items() if sizes["ep"] > 1 or k not in ("ep", "etp"))
        phi = ":family=phi3" if family == "phi3" else ""  # args fit Mistral, too
        gated = family not in ("gpt2", "nemotron", "starcoder2")
        got = copy.deepcopy(model)
        with torch.no_grad():
            for _, p in in_memory(got):
                p.fill_(99)
        written = {name: torch.full_like(tensor, 99) for name, tensor in files.items()}
        serving = [("vllm:tp=4", dict(tp=4)), ("sglang:tp=2", dict(tp=2, program="sglang")), ("vllm", dict(tp=1))]
        if sizes["ep"] > 1:
            serving += [("vllm:tp=2,ep=2", dict(tp=2, ep=2, later="experts.routed_experts.")),
                        ("sglang:tp=4,ep=2", dict(tp=4, ep=2, program="sglang"))]
        if family in ("glm_moe_dsa", "deepseek_v32"):  # their modules are refused by name
            serving = []

        def work(rank, engine):
            held = megatron_rank(live, rank, gated, model.config.tie_word_embeddings, **sizes)
            push(engine, like, f"megatron:{layout}", "transformers" + phi, held, in_memory(got) if rank == 0 else [])
            push(engine, like, f"megatron:{layout}", "huggingface" + phi, held, written if rank == 0 else {})
            for scheme, options in serving:
                want = served_rank(files, model.config, rank=rank, **options)
                mine = {name: torch.full_like(tensor, -5.0) for name, tensor in want.items()}
                push(engine, like, f"megatron:{layout}", scheme + (phi if ":" not in scheme else phi.replace(":", ",")), held, mine)
                for name, tensor in want.items():
                    self.assertTrue(torch.equal(mine[name], tensor), f"{scheme}: {name}")

        Ranks(4).run(work)
        self.assertTrue(torch.equal(logits(got), logits(model)))
        for name, tensor in files.items():
            self.assertTrue(torch.equal(written[name], tensor), name)

    def test_drafts(self):
        """Layers of multi-token prediction, which servers have in a model of their own: from modules of Megatron."""
        for family, n_drafts in (("deepseek_v3", 2), ("glm4_moe", 1), ("qwen3_next", 1)):
            with self.subTest(family), tempfile.TemporaryDirectory() as folder:
                self.check_drafts(family, n_drafts, folder)

    def check_drafts(self, family, n_drafts, folder):
        source, like = os.path.join(folder, "hf"), os.path.join(folder, "like")
        config = make(family, source, vocab_size=VOCAB, num_hidden_layers=N_LAYERS, **{"num_experts": 8} if family == "qwen3_next" else {}).config
        files = load_file(os.path.join(source, "model.safetensors"))
        last = f"model.layers.{N_LAYERS - 1}."
        width = config.hidden_size
        for i in range(n_drafts):
            draft = f"mtp.layers.{i}." if family == "qwen3_next" else f"model.layers.{N_LAYERS + i}."
            files.update({draft + name[len(last):]: torch.randn_like(w) for name, w in files.items() if name.startswith(last)})
            own = {"mtp.pre_fc_norm_embedding": 1, "mtp.pre_fc_norm_hidden": 1, "mtp.norm": 1, "mtp.fc": 2} if family == "qwen3_next" else \
                {draft + name: dim for name, dim in (("enorm", 1), ("hnorm", 1), ("shared_head.norm", 1), ("eh_proj", 2))}
            files.update((name + ".weight", torch.randn(width) if dim == 1 else torch.randn(width, 2 * width)) for name, dim in own.items())
            if family != "qwen3_next":
                files.update({draft + "embed_tokens.weight": files["model.embed_tokens.weight"].clone(),
                              draft + "shared_head.head.weight": files["lm_head.weight"].clone()})
        save_file(files, os.path.join(source, "model.safetensors"))
        with open(os.path.join(source, "config.json")) as file:
            settings = dict(json.load(file), num_nextn_predict_layers=n_drafts)
        with open(os.path.join(source, "config.json"), "w") as file:
            json.dump(settings, file)
        library.convert(source, like, "torch_dist")
        names, stored = "megatron:tp=2,pp=2,ep=2,etp=1", files
        whole = spell(whole_model(like), False)
        if family == "qwen3_next":  # whose layers megatron_rank does not cut; the norm there is another one by one
            names, stored = "huggingface", {name: w for name, w in files.items() if not name.endswith("linear_attn.norm.weight")}
            files = dict(stored, **{"mtp.embed_tokens.weight": files["model.embed_tokens.weight"], "mtp.lm_head.weight": files["lm_head.weight"]})

        def work(rank, engine):
            held = stored if rank == 0 else {}
            if names != "huggingface":
                held = megatron_rank(whole, rank, True, False, tp=2, pp=2, vpp=1, ep=2, etp=1)
            for scheme, options in (("vllm:tp=2,ep=4", dict(tp=2, ep=4)), ("vllm:tp=2", dict(tp=2)), ("sglang:tp=2,ep=2", dict(tp=2, ep=2, program="sglang"))):
                if n_drafts > 1 and scheme[0] == "s":
                    continue
                want = {name.replace("draft.model.lm_head", "draft.lm_head"): w
                        for name, w in served_rank(files, config, rank=rank, **options).items()}
                mine = {name: torch.full_like(tensor, -5.0) for name, tensor in want.items()}
                push(engine, like, names, scheme, held, mine)
                for name, tensor in want.items():
                    self.assertTrue(torch.equal(mine[name], tensor), f"{scheme}: {name}")

        Ranks(4).run(work)

    def test_apart_and_back(self):
        """Two ranks train, a third one serves; then what it serves goes into modules of Megatron, whose padding stays."""
        with tempfile.TemporaryDirectory() as folder:
            model, like, files, whole = self.prepare("qwen3", folder)
            want = served_rank(files, model.config, 1, 0)
            served = {name: torch.full_like(tensor, -5.0) for name, tensor in want.items()}
            sizes = dict(tp=2, pp=1, vpp=1, ep=1, etp=2)
            held = [megatron_rank(spell(whole, True), rank, True, False, **sizes) for rank in range(2)] + [{}]
            back = [{name: torch.full_like(tensor, 77.0) for name, tensor in one.items()} for one in held]

            def work(rank, engine):
                push(engine, like, "megatron:tp=2,ranks=2", "vllm:at=2", held[rank], served if rank == 2 else {})
                push(engine, like, "vllm:at=2", "megatron:tp=2,ranks=2", served if rank == 2 else {}, back[rank])
                with engine.map() as m:
                    m.names(like, sources="megatron:tp=2,ranks=2", targets="vllm:at=2")
                    if rank == 1:
                        with self.assertRaisesRegex(library.FormatError, "layers.4.input_layernorm.*no tensor of that name on this rank"):
                            m.source("decoder.layers.4.input_layernorm.weight", torch.zeros(32))
                            m.plan()
                    else:
                        self.assertRaises(library.FormatError, m.plan)

            Ranks(3).run(work)
            for made, wanted in [(served, want), *zip(back, held)]:
                for name, tensor in wanted.items():
                    self.assertTrue(torch.equal(made[name], tensor), name)

    def test_layout(self):
        """Stages of 2, 1, 0 and 1 layers, in two chunks of two stages."""
        with tempfile.TemporaryDirectory() as folder:
            _, like, files, whole = self.prepare("qwen3_moe", folder)
            live, got = spell(whole, True), {name: torch.zeros_like(tensor) for name, tensor in files.items()}
            places = {0: "0.0", 1: "0.1", 2: "0.0", 3: "1.0"}  # by layer: the chunk, and its number there
            stages = {0: 0, 1: 0, 2: 1, 3: 1}

            def work(rank, engine):
                held = {}
                for name, tensor in live.items():
                    layer = re.match(r"decoder\.layers\.(\d+)\.(.*)", name)
                    if layer and stages[int(layer[1])] == rank:
                        chunk, number = places[int(layer[1])].split(".")
                        held[f"{chunk}.decoder.layers.{number}.{layer[2]}"] = tensor
                    elif not layer and rank == (0 if name.startswith("embedding.") else 1):
                        held[("0." if rank == 0 else "1.") + name] = pad(tensor, 128, 77.0) if tensor.dim() > 1 else tensor
                push(engine, like, "megatron:pp=2,layout=Et*2|t||t,L", "huggingface", held, got if rank == 0 else {})

            Ranks(2).run(work)
            for name, tensor in files.items():
                self.assertTrue(torch.equal(got[name], tensor), name)

    def test_fsdp(self):
        """Parameters of Megatron-FSDP are rows of this rank's block, which tensor parallelism cuts; experts are this rank's."""
        for family, tp, dp, etp in (("qwen3_moe", 1, 2, 1), ("qwen3_moe", 2, 2, 2), ("qwen3_moe", 2, 1, 1), ("llama", 2, 1, 2)):
            with self.subTest(family, tp=tp, dp=dp), tempfile.TemporaryDirectory() as folder:
                _, like, files, whole = self.prepare(family, folder)
                got = {name: torch.zeros_like(tensor) for name, tensor in files.items()}

                def work(rank, engine):
                    blocks = megatron_rank(spell(whole, True), rank % tp, True, False, tp=tp, pp=1, vpp=1, ep=1, etp=etp)
                    with engine.map() as m:
                        m.names(like, sources=f"megatron:fsdp={dp},tp={tp}" + (",etp=1" if etp < tp else ""), targets="huggingface")
                        for name, block in blocks.items():
                            m.source("module." + name, fsdp_parameter(name, block, etp if ".experts." in name else tp, dp, rank))
                        m.targets(got if rank == 0 else {})
                        m.plan()
                        m.run()

                Ranks(tp * dp).run(work)
                for name, tensor in files.items():
                    self.assertTrue(torch.equal(got[name], tensor), name)

    def test_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            make("qwen3_moe", os.path.join(folder, "hf"))
            like, centered = os.path.join(folder, "like"), os.path.join(folder, "centered")
            library.convert(os.path.join(folder, "hf"), like, "torch_dist")
            with open(os.path.join(folder, "args.json"), "w") as file:
                json.dump({"apply_layernorm_1p": True}, file)
            dcpkit("convert", "--to", "torch_dist", "--args-from", os.path.join(folder, "args.json"), os.path.join(folder, "hf"), centered)
            for scheme, words in (("vllm:tp=3", "ranks"), ("megatron:tp=2", "are not the 1 ranks"), ("vllm:at=1", "has not"),
                                  ("megatron:pp", "tp=2"), ("nemo:tp=1", "are called 'nemo:tp=1'"), ("megatron:at=x", "no number"),
                                  ("huggingface:tp=1", "are called"), ("transformers:family=none", "no family is called 'none'"),
                                  ("sglang:pp=1,cp=1,ranks=1,at=0,tp", "tp=2"), ("megatron:fsdp=1,tp=2", "ranks"), ("vllm:etp=1", "only a run of Megatron has etp"),
                                  ("transformers:layout=EtttL", "only a run of Megatron"), ("sglang:ep=2", "does not divide"),
                                  ("megatron:layout=EttL", "the layout has 2 layers 't', the model 3"), ("megatron:layout=Ettx", "'x' in the layout"),
                                  ("megatron:vpp=2,layout=EttttL", "1 parts, which 1 stages of 2 chunks"),
                                  ("megatron:first=1,layout=EttttL", "does not go with"), ("megatron:layout=E(t*9999)*9999L", "more than 1048576")):
                with self.subTest(scheme), library.Engine() as engine, engine.map() as m:
                    with self.assertRaisesRegex(library.Error, words):
                        m.names(like, targets=scheme)
            make("nemotron_h", os.path.join(folder, "mamba"))
            with library.Engine() as engine, engine.map() as m, self.assertRaisesRegex(library.Error, "layers with Mamba are not known there"):
                m.names(os.path.join(folder, "mamba"), targets="vllm:tp=1")
            for path, name, tensor, words in (
                    (like, "model.layers.0.self_attn.qkv_proj.weight", torch.zeros(4, 32), r"\[4, 32\], but by the checkpoint that is \[96, 32\]"),
                    (like, "model.layers.0.self_attn.q_proj.weight", torch.zeros(48, 32), "no tensor of that name"),
                    (like, "draft.model.layers.4.enorm.weight", torch.zeros(32), "no tensor of that name on this rank"),
                    (centered, "model.norm.weight", torch.zeros(32), "is computed")):
                with self.subTest(name), library.Engine() as engine, engine.map() as m:
                    m.names(path, targets="vllm")
                    m.target(name, tensor)
                    with self.assertRaisesRegex(library.Error, words):
                        m.plan()


if __name__ == "__main__":
    unittest.main()
