# SPDX-License-Identifier: Apache-2.0
# test_huggingface.py - models of transformers as Megatron's checkpoints and back: the class computes what it computed.
"""Needs transformers 5 beside torch. What Megatron computes from such a checkpoint is judged elsewhere, with its trees."""
import copy
import dataclasses
import inspect
import json
import os
import re
import shutil
import subprocess
import tempfile
import types
import unittest

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TQDM_DISABLE="1")
import torch
import torch.distributed.checkpoint as dcp
import transformers
from safetensors.torch import load_file, save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from dcp_folder import Folder
from tool import DCPKIT, dcpkit, dcpkit_fails, sample

BASE = dict(vocab_size=99, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=40, max_position_embeddings=64, tie_word_embeddings=False, bos_token_id=1,
            eos_token_id=2, pad_token_id=None, rope_parameters=dict(rope_type="default", rope_theta=10000.0))
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=8.0, beta_fast=32.0, beta_slow=1.0)
FAMILIES = {
    "llama": ("LlamaForCausalLM", dict(BASE, rope_parameters=dict(
        rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=8192))),
    "qwen3_moe": ("Qwen3MoeForCausalLM", dict(
        BASE, head_dim=12, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=12, norm_topk_prob=True,
        mlp_only_layers=[1], decoder_sparse_step=1)),
    "deepseek_v3": ("DeepseekV3ForCausalLM", dict(
        BASE, num_key_value_heads=4, q_lora_rank=12, kv_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=4,
        v_head_dim=6, moe_intermediate_size=12, n_shared_experts=2, first_k_dense_replace=1, n_routed_experts=8,
        num_experts_per_tok=4, n_group=4, topk_group=2, norm_topk_prob=True, routed_scaling_factor=2.5,
        rope_parameters=dict(YARN, original_max_position_embeddings=4096, mscale=0.8, mscale_all_dim=0.6),
        num_mtp_layers=0)),
    "glm_moe_dsa": ("GlmMoeDsaForCausalLM", dict(
        BASE, num_key_value_heads=4, q_lora_rank=12, kv_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=4,
        v_head_dim=6, moe_intermediate_size=12, n_shared_experts=2, first_k_dense_replace=1, n_routed_experts=8,
        num_experts_per_tok=4, n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=2.5,
        index_topk=6, index_head_dim=8, index_n_heads=3, index_topk_freq=2)),
    "deepseek_v32": ("DeepseekV32ForCausalLM", dict(
        BASE, num_key_value_heads=4, q_lora_rank=12, kv_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=4,
        v_head_dim=6, moe_intermediate_size=12, n_shared_experts=2, first_k_dense_replace=1, n_routed_experts=8,
        num_experts_per_tok=4, n_group=4, topk_group=2, norm_topk_prob=True, routed_scaling_factor=2.5,
        index_topk=6, index_head_dim=8, index_n_heads=3)),
    "gpt_oss": ("GptOssForCausalLM", dict(
        BASE, num_hidden_layers=4, head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=8,
        rope_parameters=dict(YARN, truncate=False, original_max_position_embeddings=32))),
    "phi3": ("Phi3ForCausalLM", dict(BASE, sliding_window=8)),
    "gpt2": ("GPT2LMHeadModel", dict(vocab_size=99, n_embd=32, n_layer=3, n_head=4, n_positions=64, attn_pdrop=0.2,
                                     resid_pdrop=0.3, embd_pdrop=0.3, bos_token_id=1, eos_token_id=2)),
    "glm4_moe": ("Glm4MoeForCausalLM", dict(
        BASE, head_dim=12, attention_bias=True, use_qk_norm=True, moe_intermediate_size=12, n_shared_experts=2,
        first_k_dense_replace=1, n_routed_experts=8, num_experts_per_tok=4, n_group=4, topk_group=2, norm_topk_prob=True,
        routed_scaling_factor=2.5, num_mtp_layers=0, rope_parameters=dict(BASE["rope_parameters"], partial_rotary_factor=0.5))),
    "qwen3_next": ("Qwen3NextForCausalLM", dict(
        BASE, num_hidden_layers=4, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=8,
        linear_value_head_dim=4, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=12, norm_topk_prob=True,
        shared_expert_intermediate_size=20, mlp_only_layers=[1],
        rope_parameters=dict(BASE["rope_parameters"], partial_rotary_factor=0.25))),
    "qwen3_5_text": ("Qwen3_5ForCausalLM", dict(
        BASE, num_hidden_layers=4, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=8,
        linear_value_head_dim=4, rope_parameters=dict(BASE["rope_parameters"], partial_rotary_factor=0.25))),
    "qwen3_5_moe_text": ("Qwen3_5MoeForCausalLM", dict(
        {k: v for k, v in BASE.items() if k != "intermediate_size"}, num_hidden_layers=4, head_dim=16,
        linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=8, linear_value_head_dim=4, num_experts=6,
        num_experts_per_tok=2, moe_intermediate_size=12, shared_expert_intermediate_size=20,
        rope_parameters=dict(BASE["rope_parameters"], partial_rotary_factor=0.25))),
    "dots1": ("Dots1ForCausalLM", dict(
        BASE, head_dim=12, moe_intermediate_size=12, n_shared_experts=2, first_k_dense_replace=1, n_routed_experts=8,
        num_experts_per_tok=4, n_group=4, topk_group=2, norm_topk_prob=True, routed_scaling_factor=2.5, sliding_window=None)),
    "ernie4_5": ("Ernie4_5ForCausalLM", dict(BASE, head_dim=12, tie_word_embeddings=True)),
    "seed_oss": ("SeedOssForCausalLM", dict(BASE, head_dim=12, attention_dropout=0.3)),
    "smollm3": ("SmolLM3ForCausalLM", dict(BASE, num_hidden_layers=4, no_rope_layers=[1, 0, 1, 1], tie_word_embeddings=True)),
    "stablelm": ("StableLmForCausalLM", dict(BASE, use_qkv_bias=True, rope_parameters=dict(
        BASE["rope_parameters"], partial_rotary_factor=0.25))),
    "starcoder2": ("Starcoder2ForCausalLM", dict(
        BASE, tie_word_embeddings=True, sliding_window=8, attention_dropout=0.1, residual_dropout=0.2, embedding_dropout=0.2)),
    "nemotron_h": ("NemotronHForCausalLM", dict(
        {k: v for k, v in BASE.items() if k not in ("num_hidden_layers", "rope_parameters")}, head_dim=12, n_groups=2,
        layers_block_type=["linear_attention", "moe", "full_attention", "mlp", "linear_attention"], ssm_state_size=6,
        mamba_num_heads=6, mamba_head_dim=8, moe_intermediate_size=12, moe_shared_expert_intermediate_size=20,
        n_routed_experts=8, num_experts_per_tok=4, n_group=4, topk_group=2, routed_scaling_factor=2.5, chunk_size=16)),
}
# Models that Megatron core has no layers for: between Hugging Face's folders and FSDP2's alone.
FOREIGN = {
    "olmoe": ("OlmoeForCausalLM", dict(BASE, num_experts=6, num_experts_per_tok=2)),
    "minimax_m2": ("MiniMaxM2ForCausalLM", dict(BASE, head_dim=12, num_local_experts=6, num_experts_per_tok=2,
                                                rope_parameters=dict(BASE["rope_parameters"], partial_rotary_factor=0.5))),
    "gemma3_text": ("Gemma3ForCausalLM", {k: v for k, v in dict(
        BASE, head_dim=12, sliding_window=8, sliding_window_pattern=2, tie_word_embeddings=True).items()
        if k not in ("rope_parameters", "pad_token_id")}),
}
# Types that are read as those of a family.
ALIASES = {"kimi_k2": ("deepseek_v3", dict(n_group=1, topk_group=1, n_shared_experts=1, rope_parameters=dict(
    YARN, beta_fast=1.0, factor=32.0, original_max_position_embeddings=4096, mscale=1.0, mscale_all_dim=1.0)))}
MAPS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "formats", "safetensors", "maps")
# Said by the writer, or no part of what the model computes.
NOT_COMPARED = {"transformers_version", "_name_or_path", "dtype", "torch_dtype"}


def make(family, folder, seed=0, more={}, **changes):
    """A model whose weights are larger than a fresh one's, and whose norms are not 1. more: families that others add."""
    name, config = {**FAMILIES, **FOREIGN, **more}[family]
    config = copy.deepcopy({**config, **changes})  # the class writes into it
    kind = getattr(transformers, name)
    torch.manual_seed(len(family) + seed)
    model = kind(kind.config_class(**config)).eval()
    with torch.no_grad():
        for tensor in [*model.parameters(), *(b for n, b in model.named_buffers() if n.endswith("correction_bias"))]:
            tensor.add_(0.2 * torch.randn(tensor.shape))
    model.save_pretrained(folder)
    return model


@torch.no_grad()
def logits(model):
    tokens = torch.arange(48).mul(31).remainder(99)[None]
    return model(input_ids=tokens, use_cache=False).logits


def spread(scales, block, shape):
    """Each scale over its block, cut to the shape."""
    return scales.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)[: shape[0], : shape[1]]


def quantised(name, tensor, variant):
    """A weight in blocks of fp8, in torch; transformers' by its own quantiser where it takes the shape."""
    variant, _, fmt = variant.partition(",")
    if variant == "transformers" and all(n % 128 == 0 for n in tensor.shape):
        config = types.SimpleNamespace(weight_block_size=(128, 128), scale_fmt=fmt or "float")
        return Fp8Quantize(types.SimpleNamespace(quantization_config=config)).convert({name: tensor})
    rows, cols = (-(-n // 128) for n in tensor.shape)
    padded = torch.zeros(rows * 128, cols * 128)
    padded[: tensor.shape[0], : tensor.shape[1]] = tensor
    blocks = padded.view(rows, 128, cols, 128)
    most = blocks.abs().amax(dim=(1, 3))
    ones = torch.ones_like(most)
    if variant == "transformers":
        scale = 1.0 / torch.where(most > 0, 448.0 / torch.where(most > 0, most, ones), ones)
        factor = torch.where(most > 0, 448.0 / most, ones)
    elif variant == "deepgemm" or fmt:
        scale = most.clamp(min=1e-4) / 448.0
        factor = 1.0 / scale
    else:
        scale, factor = torch.where(most > 0, most / 448.0, ones), None
    if fmt:
        part, exponent = torch.frexp(scale)
        scale = torch.ldexp(ones, torch.where(part == 0.5, exponent - 1, exponent))
        factor = 1.0 / scale
    spread = (lambda s: s[:, None, :, None])
    small = blocks / spread(scale) if factor is None else blocks * spread(factor)
    small = small.clamp(-448, 448).to(torch.float8_e4m3fn).view_as(padded)[: tensor.shape[0], : tensor.shape[1]]
    if variant == "transformers" and fmt:
        scale = scale.to(torch.float8_e8m0fnu)
    return {name: small.contiguous(), name + "_scale_inv": scale}


def without(tensors, name):
    return {n: t for n, t in tensors.items() if n != name}


def each_map():
    """The maps of classes of transformers, as (map, class); a map with a scheme is of another trainer's names."""
    for name in sorted(os.listdir(MAPS)):
        with open(os.path.join(MAPS, name)) as file:
            one = json.load(file)
        if "scheme" not in one:
            yield one, transformers.CONFIG_MAPPING[one["model_type"]]


class HuggingFace(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.dir = holder.name

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def test_both_ways(self):
        """Loaded by the class without a complaint, equal to the bit in what it computes and in its configuration."""
        for family in FAMILIES:
            with self.subTest(family=family):
                model = make(family, self.path(family))
                megatron, back = self.path(family + "_mg"), self.path(family + "_back")
                dcpkit("convert", "--to", "torch_dist", self.path(family), megatron)
                dcpkit("convert", "--to", "huggingface", "--hf-config", os.path.join(self.path(family), "config.json"),
                       megatron, back)
                again, told = transformers.AutoModelForCausalLM.from_pretrained(back, output_loading_info=True)
                self.assertEqual({k: v for k, v in told.items() if v}, {})
                self.assertEqual(type(again), type(model))
                self.assertTrue(torch.equal(logits(again.eval()), logits(model)))
                ours, theirs = again.config.to_dict(), model.config.to_dict()
                for key in theirs.keys() - NOT_COMPARED:
                    self.assertEqual(ours[key], theirs[key], f"{family}: {key}")

    def test_published_hybrid(self):
        """As NVIDIA publishes it: a pattern of symbols, and infinity as Python's json writes it."""
        model = make("nemotron_h", self.path("in"))
        self.rewrite("in", lambda tensors: tensors, layers_block_type=None, hybrid_override_pattern="ME*-M", num_hidden_layers=5,
                     time_step_limit=[0.0, float("inf")])
        dcpkit("convert", "--to", "torch_dist", self.path("in"), self.path("run"))
        dcpkit("convert", "--to", "huggingface", "--hf-config", self.path("in", "config.json"), self.path("run"), self.path("back"))
        again = transformers.AutoModelForCausalLM.from_pretrained(self.path("back")).eval()
        self.assertEqual(again.config.time_step_limit[1], float("inf"))
        self.assertTrue(torch.equal(logits(again), logits(model)))

    def test_foreign(self):
        """The same through shards of FSDP2 and another size of files; Megatron's formats are refused by name."""
        for family in FOREIGN:
            with self.subTest(family=family):
                model = make(family, self.path("in"))
                dcpkit("convert", "--force", "--to", "dcp", "--layout", "model.", self.path("in"), self.path("shards"))
                for source, *options in ((self.path("shards"), "--hf-assets", self.path("in")),
                                         (self.path("in"), "--max-shard-size", "50KB")):
                    dcpkit("convert", "--force", "--verify", "--to", "huggingface", *options, source, self.path("back"))
                    again, told = transformers.AutoModelForCausalLM.from_pretrained(self.path("back"),
                                                                                    output_loading_info=True)
                    self.assertEqual({k: v for k, v in told.items() if v}, {})
                    self.assertTrue(torch.equal(logits(again.eval()), logits(model)))
                    for key in model.config.to_dict().keys() - NOT_COMPARED:
                        self.assertEqual(again.config.to_dict()[key], model.config.to_dict()[key], key)
                self.assertIn(f"Megatron core has no model of family {family}: it", dcpkit_fails(
                    "convert", "--to", "torch_dist", self.path("in"), self.path("none"))[1])

    def test_state_dicts(self):
        """What dcp.save makes of a class in memory: tied heads, fused experts, and none of the MTP layers of its configuration."""
        for family in {**FAMILIES, **FOREIGN}:
            with self.subTest(family=family):
                folder, saved, made = (self.path(family + end) for end in ("", "_dcp", "_made"))
                model = make(family, folder, **(dict(num_nextn_predict_layers=1) if family == "glm4_moe" else {}))
                dcp.save({"model": model.state_dict()}, checkpoint_id=saved, no_dist=True)
                config = ["--hf-config", os.path.join(folder, "config.json")]
                dcpkit("convert", "--verify", "--to", "huggingface", *config, saved, self.path(family + "_back"))
                want, back = (load_file(os.path.join(f, "model.safetensors")) for f in (folder, self.path(family + "_back")))
                self.assertEqual(want.keys(), back.keys())
                for name, tensor in want.items():
                    self.assertTrue(torch.equal(back[name], tensor), name)
                dcpkit("convert", "--to", "dcp", "--layout", "model.", folder, made)
                lists = [[line.split()[:2] for line in dcpkit("hash", f).splitlines() if "model." in line] for f in (saved, made)]
                self.assertEqual(*lists)

    def test_mtp_of_torchtitan(self):
        """MTP layers come back without copies of the embedding and the output layer, as torchtitan's own export has them."""
        make("deepseek_v3", self.path("in"))

        def add(tensors):
            last = {n.replace("layers.2.", "layers.3."): t + 1 for n, t in tensors.items() if "layers.2." in n}
            shapes = {"enorm": [32], "hnorm": [32], "eh_proj": [32, 64], "shared_head.norm": [32]}
            return tensors | last | {f"model.layers.3.{n}.weight": torch.randn(shape) for n, shape in shapes.items()}

        self.rewrite("in", add, num_nextn_predict_layers=1)
        dcpkit("convert", "--verify", "--to", "dcp", "--layout", "titan", self.path("in"), self.path("titan"))
        config = ["--hf-config", self.path("in", "config.json")]
        dcpkit("convert", "--verify", "--to", "huggingface", *config, self.path("titan"), self.path("out"))
        want, made = (load_file(self.path(name, "model.safetensors")) for name in ("in", "out"))
        self.assertEqual(want.keys(), made.keys())
        self.assertTrue(all(torch.equal(made[name], tensor) for name, tensor in want.items()))

    def test_aliases(self):
        """A published model whose type is another name of a class: made a run, it comes back as that class."""
        for name, (family, changes) in ALIASES.items():
            with self.subTest(name=name):
                model = make(family, self.path("in"), **changes)
                self.rewrite("in", lambda tensors: tensors, model_type=name)
                self.there_and_back()
                again = transformers.AutoModelForCausalLM.from_pretrained(self.path("back")).eval()
                self.assertEqual(type(again), type(model))
                self.assertTrue(torch.equal(logits(again), logits(model)))

    def config_row(self, folder):
        """What `check` says of config.json."""
        done = subprocess.run([DCPKIT, "check", "--json", folder], capture_output=True, text=True)
        return next(row for row in json.loads(done.stdout)["checks"] if row["name"] == "config")

    def test_default_groups(self):
        """A map takes as many key and value heads as its class does where config.json has no number."""
        for one, kind in each_map():
            row = next((row for row in one["config"] if row[0] == "num_key_value_heads"), None)
            if row is not None:
                usual = next(f.default for f in dataclasses.fields(kind) if f.name == row[0])
                self.assertEqual(dict(enumerate(row)).get(4), usual, one["family"])

    def test_check_knows_kinds(self):
        """Each field of each class, with a value of each kind: `check` names those that from_dict refuses."""
        folder = self.path("kinds")
        os.mkdir(folder)
        save_file({"x": torch.zeros(1)}, self.path("kinds", "model.safetensors"))
        for one, kind in each_map():
            model_type = one["model_type"]
            usual = kind().to_dict()
            fields = [f.name for f in dataclasses.fields(kind) if f.name != "layer_types"]
            for value in (None, True, 1, 0.5, "x"):
                refused, named = set(), set()
                for field in fields:
                    try:
                        kind.from_dict({**copy.deepcopy(usual), field: value})
                    except Exception as error:  # others than of one field depend on its neighbours
                        if f"Validation error for field '{field}'" in str(error):
                            refused.add(field)
                for first in range(0, len(fields), 20):
                    part = fields[first:first + 20]
                    with open(self.path("kinds", "config.json"), "w") as file:
                        json.dump({**{field: value for field in part}, "model_type": model_type}, file)
                    named.update(re.findall(r"'(\w+)' is [^;]*, not", self.config_row(folder)["text"]))
                if (model_type, value) == ("qwen2_moe", None):
                    refused.add("num_key_value_heads")  # the model divides by it
                self.assertEqual(named, refused, f"{model_type}: {value}")

    def test_check_knows_models(self):
        """What stops from_pretrained, or the model behind it, and nothing else."""
        cases = [("llama", {}, {"pad_token_id": n}) for n in (98, 99, -99, -100)]
        cases += [("gpt2", {}, {"pad_token_id": 99}), ("phi3", {}, {"pad_token_id": "DEL"}), ("phi3", {}, {"pad_token_id": 0}),
                  ("smollm3", {}, {"pad_token_id": "DEL"})]
        cases += [("llama", {}, {"torch_dtype": text, "dtype": "DEL"}) for text in ("torch.float32", "bfloat16")]
        cases += [("llama", {}, {"initializer_range": n}) for n in (1.0, 1.5)]
        cases += [("glm4_moe", dict(head_dim=6), {}), ("qwen3_moe", dict(head_dim=10), {})]
        cases += [("phi3", dict(hidden_size=20), {}), ("phi3", dict(hidden_size=24), {}), ("llama", {}, {"model_type": "DEL"})]
        for family, sizes, changes in cases:
            with self.subTest(family=family, **sizes, **changes):
                folder = self.path("model")
                shutil.rmtree(folder, ignore_errors=True)
                make(family, folder, **sizes)
                with open(os.path.join(folder, "config.json")) as file:
                    config = {k: v for k, v in {**json.load(file), **changes}.items() if v != "DEL"}
                with open(os.path.join(folder, "config.json"), "w") as file:
                    json.dump(config, file)
                try:
                    logits(transformers.AutoModelForCausalLM.from_pretrained(folder).eval())
                    loads = True
                except Exception:
                    loads = False
                said = self.config_row(folder)
                self.assertEqual(said["ok"], loads, said["text"])

    def test_without_configuration(self):
        """What transformers takes for absent keys does not count: rows that are not there, another dropout."""
        for family in ("phi3", "gpt2"):
            with self.subTest(family=family):
                model = make(family, self.path(family))
                dcpkit("convert", "--to", "torch_dist", self.path(family), self.path(family + "_mg"))
                dcpkit("convert", "--verify", "--to", "huggingface", "--family", family, self.path(family + "_mg"),
                       self.path(family + "_back"))
                again = transformers.AutoModelForCausalLM.from_pretrained(self.path(family + "_back")).eval()
                self.assertTrue(torch.equal(logits(again), logits(model)))
                self.assertIsNone(again.config.pad_token_id)
                for key in ("attn_pdrop", "resid_pdrop", "embd_pdrop"):
                    if family == "gpt2":
                        self.assertEqual(getattr(again.config, key), getattr(model.config, key))

    def test_rows_of_a_group(self):
        """linear_qkv has each group's queries, then its key, then its value; linear_fc1 the gate, then up."""
        make("llama", self.path("in"))
        dcpkit("convert", "--to", "torch_dist", self.path("in"), self.path("out"))
        stored = load_file(self.path("in", "model.safetensors"))
        folder = Folder(self.path("out", "release"))
        qkv, fc1 = "decoder.layers.self_attention.linear_qkv.weight", "decoder.layers.mlp.linear_fc1.weight"
        made = folder.load([qkv, fc1, "output_layer.weight"])
        for layer in range(3):
            at = f"model.layers.{layer}."
            q, k, v = (stored[f"{at}self_attn.{n}_proj.weight"].reshape(2, -1, 8, 32) for n in "qkv")
            self.assertTrue(torch.equal(made[qkv][layer], torch.cat([q, k, v], 1).reshape(-1, 32)))
            want = torch.cat([stored[f"{at}mlp.{n}_proj.weight"] for n in ("gate", "up")])
            self.assertTrue(torch.equal(made[fc1][layer], want))
        head = made["output_layer.weight"]
        self.assertEqual(head.shape[0], 128)
        self.assertTrue(torch.equal(head[:99], stored["lm_head.weight"]))
        self.assertFalse(head[99:].any())

    def test_rows_of_families(self):
        """Of Phi-3 one tensor of q, k, v and one of gate and up; of GLM-4.5 norms, biases and experts by their names."""
        make("phi3", self.path("phi3"))
        dcpkit("convert", "--to", "torch_dist", self.path("phi3"), self.path("phi3_run"))
        stored = load_file(self.path("phi3", "model.safetensors"))
        qkv, fc1 = "decoder.layers.self_attention.linear_qkv.weight", "decoder.layers.mlp.linear_fc1.weight"
        made = Folder(self.path("phi3_run", "release")).load([qkv, fc1])
        for layer in range(3):
            parts = stored[f"model.layers.{layer}.self_attn.qkv_proj.weight"].split([32, 16, 16])
            want = torch.cat([part.reshape(2, -1, 8, 32) for part in parts], 1).reshape(-1, 32)
            self.assertTrue(torch.equal(made[qkv][layer], want))
            self.assertTrue(torch.equal(made[fc1][layer], stored[f"model.layers.{layer}.mlp.gate_up_proj.weight"]))
        make("glm4_moe", self.path("glm"))
        dcpkit("convert", "--to", "torch_dist", self.path("glm"), self.path("glm_run"))
        stored = load_file(self.path("glm", "model.safetensors"))
        ours, theirs = "decoder.layers.2.", "model.layers.2."
        names = {"self_attention.q_layernorm.weight": "self_attn.q_norm.weight",
                 "self_attention.k_layernorm.weight": "self_attn.k_norm.weight",
                 "self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
                 "pre_mlp_layernorm.weight": "post_attention_layernorm.weight",
                 "mlp.router.expert_bias": "mlp.gate.e_score_correction_bias"}
        bias, shared = "self_attention.linear_qkv.bias", "mlp.shared_experts.linear_fc1.weight"
        made = Folder(self.path("glm_run", "release")).load([ours + n for n in [*names, bias, shared]])
        for mine, name in names.items():
            self.assertTrue(torch.equal(made[ours + mine], stored[theirs + name]), mine)
        parts = [stored[f"{theirs}self_attn.{n}_proj.bias"].reshape(2, -1) for n in "qkv"]
        self.assertTrue(torch.equal(made[ours + bias], torch.cat(parts, 1).reshape(-1)))
        parts = [stored[f"{theirs}mlp.shared_experts.{n}_proj.weight"] for n in ("gate", "up")]
        self.assertTrue(torch.equal(made[ours + shared], torch.cat(parts)))

    def test_zero_centered_norms(self):
        """Of a run under --apply-layernorm-1p a Llama's norms have one more: one sum of float32, rounded once."""
        model = make("llama", self.path("in"))
        with open(self.path("1p.json"), "w") as f:
            json.dump({"apply_layernorm_1p": True}, f)
        dcpkit("convert", "--to", "torch_dist", "--args-from", self.path("1p.json"), self.path("in"), self.path("run"))
        stored = load_file(self.path("in", "model.safetensors"))
        norms = [name for name in stored if "norm" in name]
        name = "decoder.layers.self_attention.linear_qkv.layer_norm_weight"
        made = Folder(self.path("run", "release")).load([name])[name]
        want = torch.stack([stored[f"model.layers.{i}.input_layernorm.weight"] for i in range(3)]) - 1
        self.assertTrue(torch.equal(made, want))
        dcpkit("convert", "--verify", "--to", "huggingface", self.path("run"), self.path("back"))
        again = transformers.AutoModelForCausalLM.from_pretrained(self.path("back")).eval()
        torch.testing.assert_close(logits(again), logits(model), rtol=1e-5, atol=1e-5)
        dcpkit("convert", "--verify", "--to", "huggingface", "--dtype", "bfloat16", self.path("run"), self.path("half"))
        half = load_file(self.path("half", "model.safetensors"))
        for norm in norms:
            want = ((stored[norm] - 1) + 1).to(torch.bfloat16)
            self.assertTrue(torch.equal(half[norm], want), norm)
            self.assertFalse(torch.equal(half[norm], stored[norm].to(torch.bfloat16) - 1), norm)

    def rewrite(self, folder, change, **config):
        """Put change(tensors) and further keys into a folder; a key of None is removed."""
        tensors = change(load_file(self.path(folder, "model.safetensors")))
        save_file(tensors, self.path(folder, "model.safetensors"), metadata={"format": "pt"})
        with open(self.path(folder, "config.json"), encoding="utf-8") as f:
            known = json.load(f)
        known = {k: v for k, v in {**known, **config}.items() if v is not None}
        with open(self.path(folder, "config.json"), "w", encoding="utf-8") as f:
            json.dump(known, f)

    def there_and_back(self, *options):
        dcpkit("convert", "--force", *options, "--to", "torch_dist", self.path("in"), self.path("run"))
        dcpkit("convert", "--force", "--to", "huggingface", self.path("run"), self.path("back"))
        return load_file(self.path("back", "model.safetensors"))

    def refuses(self, change, *parts):
        """The folder with that change is refused, the message has the parts, and nothing is written."""
        shutil.rmtree(self.path("bad"), ignore_errors=True)
        shutil.copytree(self.path("in"), self.path("bad"))
        self.rewrite("bad", change)
        status, message = dcpkit_fails("convert", "--to", "torch_dist", self.path("bad"), self.path("none"))
        self.assertEqual(status, 3, message)
        for part in parts:
            self.assertIn(part, " ".join(message.split()))
        self.assertFalse(os.path.exists(self.path("none")))

    def test_fp8(self):
        """Values of 8 bits times the scales of their blocks: one product of float32, rounded once, as transformers has it."""
        block = (16, 24)
        make("deepseek_v3", self.path("in"), intermediate_size=1500)

        def quantise(tensors):
            small = {}
            for name, t in tensors.items():
                small[name] = t if "correction_bias" in name else t.bfloat16()
                if t.ndim != 2 or ".layers." not in name or name.endswith("mlp.gate.weight"):
                    continue
                rows, cols = (-(-n // b) for n, b in zip(t.shape, block))
                small[name + "_scale_inv"] = scale = torch.rand(rows, cols) / 20 + 0.005
                small[name] = (t / spread(scale, block, t.shape)).to(torch.float8_e4m3fn)
            return small

        self.rewrite("in", quantise, dtype="bfloat16", quantization_config=dict(
            quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=block))
        stored = load_file(self.path("in", "model.safetensors"))
        made = self.there_and_back("--memory", "16MiB", "--target-mesh", "tp=2,ep=2")
        peer = Fp8Dequantize(None)
        for name in made:
            want = stored[name]
            if name + "_scale_inv" in stored:
                padded = [-(-n // b) * b for n, b in zip(want.shape, block)]
                whole = torch.zeros(padded).to(want.dtype)
                whole[: want.shape[0], : want.shape[1]] = want
                whole = peer._dequantize_one(whole, stored[name + "_scale_inv"], torch.bfloat16)
                want = whole[: want.shape[0], : want.shape[1]]
            self.assertTrue(torch.equal(made[name], want), name)
        self.assertEqual(made.keys(), {n for n in stored if not n.endswith("_scale_inv")})
        down = "model.layers.0.mlp.down_proj.weight"
        self.refuses(lambda t: without(t, down + "_scale_inv"), f"'{down}' is float8_e4m3fn without its scales")
        self.refuses(lambda t: without(t, down), f"'{down}_scale_inv' scales '{down}', which is missing")
        self.refuses(lambda t: {**t, down + "_scale_inv": t[down + "_scale_inv"].T.contiguous()}, "for each block")
        self.refuses(lambda t: {**t, down: t[down].bfloat16()}, "a scale is for values of float8_e4m3fn")

    def test_fp8_blocks(self):
        """--quantize: the bits of each public quantiser, whatever the source and its cuts; verify holds to half a step."""
        make("gpt2", self.path("gpt2"))
        make("qwen3_moe", self.path("in"), hidden_size=192, head_dim=64, intermediate_size=256, moe_intermediate_size=130)
        self.rewrite("in", lambda tensors: {**tensors, **self.hard_blocks(tensors)})
        stored = load_file(self.path("in", "model.safetensors"))
        dcpkit("convert", "--to", "torch_dist", "--target-mesh", "tp=2", self.path("in"), self.path("cut"))
        for variant in ("deepseek", "deepgemm", "transformers", "deepseek,ue8m0", "transformers,ue8m0"):
            with self.subTest(variant=variant):
                out = self.path(variant)
                says = dcpkit("convert", "--to", "huggingface", "--verify", "--quantize", "fp8-block:" + variant,
                              self.path("in"), out)
                self.assertRegex(" ".join(says.split()), r"rounded to fp8 blocks, within half a step.*variant " + variant[:8])
                made = load_file(os.path.join(out, "model.safetensors"))
                small = {n for n, t in stored.items() if t.ndim == 2 and ".layers." in n and not n.endswith("mlp.gate.weight")}
                self.assertEqual(made.keys(), stored.keys() | {n + "_scale_inv" for n in small})
                for name, tensor in stored.items():
                    want = {name: tensor}
                    if name in small:
                        want = quantised(name, tensor, variant)
                    for key in want:
                        self.assertEqual(made[key].dtype, want[key].dtype, key)
                        self.assertTrue(torch.equal(made[key].view(torch.uint8), want[key].view(torch.uint8)), key)
                again = self.path(variant + "_cut")
                dcpkit("convert", "--to", "huggingface", "--memory", "16MiB", "--max-shard-size", "90KB", "--quantize",
                       "fp8-block:" + variant, self.path("cut"), again)
                parts = {}
                for file in os.listdir(again):
                    if file.endswith(".safetensors"):
                        parts.update(load_file(os.path.join(again, file)))
                self.assertEqual(parts.keys(), made.keys())
                for key in made:
                    self.assertTrue(torch.equal(parts[key].view(torch.uint8), made[key].view(torch.uint8)), key)
        one = "model.layers.0.self_attn.o_proj.weight"
        bad = load_file(self.path("deepseek", "model.safetensors"))
        bad[one].view(torch.uint8)[150, 7] ^= 2
        save_file(bad, self.path("deepseek", "model.safetensors"), metadata={"format": "pt"})
        done = subprocess.run([DCPKIT, "verify", "--against", self.path("in"), self.path("deepseek")], capture_output=True,
                              text=True)
        self.assertEqual((done.returncode, "1 elements of the weight" in done.stdout.replace("\n" + 20 * " ", " ")), (1, True))
        stored[one].fill_(1e-38)[:, ::2] = 0
        save_file(stored, self.path("in", "model.safetensors"), metadata={"format": "pt"})
        says = dcpkit("convert", "--to", "huggingface", "--quantize", "fp8-block:transformers", self.path("in"), self.path("lost"))
        self.assertRegex(" ".join(says.split()), "blocks of fp8 with the scale 0: [1-9]")
        made = load_file(self.path("lost", "model.safetensors"))
        for key, want in quantised(one, stored[one], "transformers").items():
            self.assertTrue(torch.equal(made[key].view(torch.uint8), want.view(torch.uint8)), key)
        for most, value, folder, why in ((1e-44, 0, "in", "whose scale is 0"),
                                         (1e-38, float("nan"), "in", f"'{one}'[150, 7] is NaN or infinite"),
                                         (1e-38, 0, "gpt2", "there are no blocks of fp8 for it")):
            stored[one].fill_(most)[150, 7] = value
            save_file(stored, self.path("in", "model.safetensors"), metadata={"format": "pt"})
            code, says = dcpkit_fails("convert", "--to", "huggingface", "--quantize", "fp8-block", self.path(folder),
                                      self.path("none"))
            self.assertEqual((code, why in says), (3, True), says)
            self.assertFalse(os.path.exists(self.path("none")))

    @staticmethod
    def hard_blocks(tensors):
        """A block of zeros, of tiny numbers, of one huge number, ties of the rounding at a scale of 1."""
        made = {n: tensors[f"model.layers.0.self_attn.{n[0]}_proj.weight"].clone() for n in ("q", "k", "v", "o")}
        made["q"][:128, :128] = 0
        made["k"][:, :128] *= 1e-35
        made["v"][3, 5] = 3e38
        made["o"][:, :128] = (torch.arange(128) / 8 + 400)[None]
        made["o"][0, 0] = 448
        made["o"][1, :128] = -0.0
        return {f"model.layers.0.self_attn.{n}_proj.weight": t for n, t in made.items()}

    def test_mxfp4(self):
        """Blocks of 32 values of 4 bits with an exponent each, as OpenAI publishes GPT-OSS; config.json has no dtype."""
        make("gpt_oss", self.path("in"), hidden_size=64, intermediate_size=96)

        def quantise(tensors):
            small = {n: t.bfloat16() for n, t in tensors.items() if not n.endswith(("gate_up_proj", "down_proj"))}
            for name in tensors.keys() - small.keys():
                experts, cols, rows = tensors[name].shape
                small[name + "_blocks"] = torch.randint(0, 256, (experts, rows, cols // 32, 16)).to(torch.uint8)
                small[name + "_scales"] = torch.randint(0, 250, (experts, rows, cols // 32)).to(torch.uint8)
            return small

        self.rewrite("in", quantise, dtype=None, quantization_config=dict(quant_method="mxfp4"))
        stored = load_file(self.path("in", "model.safetensors"))
        made = self.there_and_back("--memory", "16MiB")
        for name, got in made.items():
            want = stored.get(name)
            if want is None:
                want = convert_moe_packed_tensors(stored[name + "_blocks"], stored[name + "_scales"], dtype=torch.bfloat16)
            self.assertTrue(torch.equal(got, want), name)
        down = "model.layers.0.mlp.experts.down_proj"
        self.refuses(lambda t: without(t, down + "_scales"), f"'{down}_blocks' is uint8 without its scales")
        self.refuses(lambda t: without(t, down + "_blocks"), f"'{down}_scales' scales '{down}_blocks'")
        self.refuses(lambda t: {**t, down: torch.zeros(4, 96, 64).bfloat16()}, "both hold 'decoder.layers.0.mlp.experts.linear_fc2.weight3'")

    def check_merge(self, weights, inputs, operands):
        """merge gives what torch's own arithmetic does, to the bit, in float32 and rounded once to bfloat16."""
        names = "w0 * a + w1 * b + w2 * c".split(" + ")[:len(weights)]
        given = {f"w{i}": w for i, w in enumerate(weights)}
        for dtype in (torch.bfloat16, torch.float32):
            out = tempfile.mkdtemp(dir=self.dir)
            dcpkit("merge", "--force", "--verify", "--weights", ",".join(map(str, weights)), "--to", "huggingface",
                   "--dtype", str(dtype).removeprefix("torch."), *inputs, out)
            made = load_file(os.path.join(out, "model.safetensors"))
            self.assertEqual(made.keys(), operands[0].keys())
            for key, got in made.items():
                values = {n: o[key].float() for n, o in zip("abc", operands)}
                want = eval(" + ".join(names), {}, {**given, **values}).to(dtype)  # pylint: disable=eval-used
                self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape), key)
                size = torch.int32 if dtype == torch.float32 else torch.int16
                self.assertTrue(torch.equal(got.view(size), want.view(size)), key)

    def test_merge(self):
        """Of three formats: a folder of Hugging Face's in bfloat16, torch_dist, fsdp_dtensor."""
        inputs, operands = [], []
        for i, to in enumerate((None, "torch_dist", "fsdp_dtensor")):
            folder = self.path(f"in{i}")
            make("llama", folder, seed=i)
            if to is None:
                dcpkit("convert", "--to", "huggingface", "--dtype", "bfloat16", folder, self.path("half"))
                folder = self.path("half")
            operands.append(load_file(os.path.join(folder, "model.safetensors")))
            inputs.append(folder if to is None else self.path(to))
            if to is not None:
                mesh = ("--target-mesh", "tp=2") if to == "torch_dist" else ()
                dcpkit("convert", "--to", to, *mesh, folder, inputs[-1])
        self.check_merge((0.7, 0.3), inputs[:2], operands[:2])
        self.check_merge((0.1, 0.2), inputs[1:], operands[1:])
        self.check_merge((0.5, 0.3, 0.2), inputs, operands)
        self.check_merge((1.0, 0.35, -0.35), inputs, operands)

    def test_merge_masters(self):
        """Where there are fp32 masters they are the operands, and not the weights that lie beside them."""
        inputs = [sample("torch_dist_c_dense_tp2pp2"), sample("fsdp_dtensor_native_dp2")]
        operands, halves = [], []
        for i, folder in enumerate(inputs):
            for dtype, into in (("float32", operands), ("bfloat16", halves)):
                out = self.path(f"{dtype}{i}")
                dcpkit("convert", "--to", "huggingface", "--dtype", dtype, folder, out)
                into.append(load_file(os.path.join(out, "model.safetensors")))
        self.assertTrue(any(not torch.equal(a, b.float()) for a, b in zip(operands[0].values(), halves[0].values())))
        self.check_merge((0.6, 0.4), inputs, operands)

    def test_refused(self):
        """A configuration that Megatron has no args for: all that is wrong is named, nothing is written."""
        make("llama", self.path("in"))
        with open(self.path("in", "config.json"), encoding="utf-8") as f:
            config = json.load(f)
        config.update(hidden_act="gelu", mlp_bias=True, rope_parameters=dict(rope_type="dynamic", rope_theta=1e4))
        with open(self.path("in", "config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)
        status, message = dcpkit_fails("convert", "--to", "torch_dist", self.path("in"), self.path("out"))
        self.assertEqual(status, 3)
        for part in ("'hidden_act' is \"gelu\"", "'mlp_bias' is true", "rope kind 'dynamic'"):
            self.assertIn(part, " ".join(message.split()))
        self.assertFalse(os.path.exists(self.path("out")))


# Keys that the program reads or refuses whatever the map (formats/safetensors/hf_config_import.c, hf_config_view.c).
READ_ALWAYS = {"vocab_size", "rope_parameters", "layer_types", "sliding_window", "head_dim", "attention_dropout", "resid_pdrop",
               "is_causal", "attention_chunk_size", "per_layer_config", "rope_interleave", "max_position_embeddings",
               "num_attention_heads", "hidden_size", "indexer_types", "mlp_layer_types"}
# Read by the class, and no part of what it computes in evaluation; of another head than that of a language model.
HARMLESS = {"pad_token_id", "use_cache", "output_router_logits", "router_jitter_noise", "reorder_and_upcast_attn", "num_labels",
            "problem_type", "summary_first_dropout", "summary_proj_to_labels", "summary_use_proj", "summary_activation",
            "summary_type", "get_text_config", "default_theta", "standardize_rope_params", "validate_rope", "json",
            "original_max_position_embeddings", "num_logits_to_keep", "chunk_size", "use_mamba_kernels", "rescale_prenorm_residual",
            "time_step_max", "time_step_floor", "time_step_min"}  # the last one: a trap of formats/safetensors/MAPS.md


class Maps(unittest.TestCase):
    """The maps beside the classes of transformers, which are the judge."""

    def test_defaults(self):
        """What a map takes for an absent key is what the class computes with."""
        for one, kind in each_map():
            usual, small = kind(), kind(hidden_size=48, num_attention_heads=6)
            rope = getattr(usual, "rope_parameters", None) or {}
            for keys, _, *word in one["config"]:
                key = keys.split("|")[0]
                with self.subTest(family=one["family"], key=key):
                    if word[:1] in (["or"], ["not"]):
                        unset = re.search(rf'kwargs.get\("{key}", (\d+)\)', inspect.getsource(kind))
                        self.assertEqual(rope.get(key, int(unset[1]) if unset else getattr(usual, key, None)), word[1])
                    elif word[:1] == ["or_arg"]:  # None: the class cannot do without
                        self.assertIn(getattr(small, key), (word[2] if len(word) > 2 else 6, None))
                    elif word == ["head_dim"]:
                        self.assertIn(getattr(small, key, None), (None, 8))
            with self.subTest(family=one["family"]):
                taken = one.get("hf", {}) | one.get("usual", {})
                self.assertEqual({key: getattr(usual, key, value) for key, value in taken.items()}, taken)
                if "rope" in one:
                    self.assertEqual(rope["rope_theta"], one["rope"].get("usual_theta", 10000))

    def test_every_key_is_read(self):
        """No key of config.json that the class reads is passed over."""
        common = "".join(inspect.getsource(module) for module in (transformers.masking_utils, transformers.modeling_rope_utils))
        for one, kind in each_map():
            if "foreign" in one:  # its config.json is kept as it is
                continue
            with open(inspect.getfile(kind).replace("configuration_", "modeling_")) as file:
                source = common + file.read()
            read = re.findall(r"\bconfig\.([a-z]\w*)|getattr\(\w*config, \"(\w+)\"", source)
            known = {key for row in one["config"] for key in re.split("[|,]", row[0])} | set(one.get("hf", {}))
            known |= {row[1] for row in one["config"] if row[2:] == ["hf_only"]}
            known |= {new for new, old in kind.attribute_map.items() if old in known}
            usual = kind()
            left = {a or b for a, b in read if hasattr(usual, a or b)} - known - READ_ALWAYS - HARMLESS
            with self.subTest(family=one["family"]):
                self.assertEqual(left, set())


if __name__ == "__main__":
    unittest.main()
