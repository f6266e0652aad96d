# SPDX-License-Identifier: Apache-2.0
# test_hub.py - a model in torch's distributed checkpoint, under names of trainers, becomes Hugging Face's and Megatron's.
import filecmp
import json
import os
import pickle
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from tool import DCPKIT, dcpkit, dcpkit_fails, iteration, sample

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDENS = os.environ.get("DCPK_GOLDENS")
N = 3


def hashes(folder):
    """Name -> XXH3-128, as `dcpkit hash` lists them."""
    lines = (line.split() for line in dcpkit("hash", folder).splitlines())
    return {words[1]: words[0] for words in lines if len(words) == 2}


def tensors_of(folder, without=""):
    """The same of tensors alone, by keys without wrappers."""
    wrappers = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
    found = {}
    for key, value in hashes(folder).items():
        for wrapper in wrappers:
            key = key.replace(wrapper, "")
        if not key.startswith("*") and not any(key.endswith(end) for end in without.split()):
            found[key] = value
    return found


class Hub(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = cls.at("model")
        dcpkit("convert", "--to", "huggingface", sample("torch_dist_c_fp32_dp1"), cls.model)
        cls.config = os.path.join(cls.model, "config.json")
        cls.weights = load_file(os.path.join(cls.model, "model.safetensors"))
        with open(cls.config, encoding="ascii") as f:
            tied = json.load(f) | {"tie_word_embeddings": True}
        cls.tied = cls.at("tied.json")
        with open(cls.tied, "w", encoding="ascii") as f:
            json.dump(tied, f)
        command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={N}"]
        subprocess.run(
            [sys.executable, *command, os.path.join(HERE, "hub_world.py"), cls.model, cls.at("")],
            check=True,
            capture_output=True,
            timeout=300,
        )

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def at(cls, *names):
        return os.path.join(cls.folder.name, *names)

    def check(self, layout, config=None, without=()):
        out = self.at("out_" + layout)
        said = dcpkit(
            "convert", "--verify", "--to", "huggingface", "--hf-config", config or self.config, self.at(layout), out
        )
        made = load_file(os.path.join(out, "model.safetensors"))
        self.assertEqual(sorted(made), sorted(set(self.weights) - set(without)))
        for name, tensor in made.items():
            self.assertTrue(tensor.equal(self.weights[name]), name)
        return said

    def refuses(self, layout, regex, config=None):
        out = self.at("none")
        code, said = dcpkit_fails("convert", "--to", "huggingface", "--hf-config", config or self.config, self.at(layout), out)
        self.assertEqual(code, 3, said)
        self.assertRegex(said, regex)
        self.assertFalse(os.path.exists(out))

    def test_nested(self):
        said = self.check("nested")
        self.assertIn("nested/checkpoint-7'", said.replace("\n" + " " * 13, ""))
        self.assertIn("117 tensors and 0 objects of optimizers", " ".join(said.split()))
        self.refuses("several", r"several checkpoints; give one of them: 'a', 'b'$")

    def test_wrapped(self):
        said = " ".join(self.check("wrapped").split())
        self.assertIn("117 tensors and 12 objects of optimizers, 1 keys of other training state", said)
        self.assertIn("39 keys name wrappers of modules", said)

    def test_tied(self):
        self.check("tied", self.tied, ["lm_head.weight"])
        self.refuses("differs", "'lm_head.weight' differs from 'model.embed_tokens.weight', with which it is tied", self.tied)

    def test_kept(self):
        """What no map knows keeps name and bytes, there and back; so does a whole model without a map."""
        config = self.at("new.json")
        with open(self.config, encoding="utf-8") as f:
            document = json.load(f) | {"model_type": "new", "architectures": ["NewForCausalLM"]}
        with open(config, "w", encoding="utf-8") as f:
            json.dump(document, f)
        weights = {"model." + key: tensor for key, tensor in self.weights.items()}
        weights |= {"model.visual.blocks.0.mlp.linear_fc1.weight": torch.randn(6, 3, 2, 2), "model.model.layers.0.mixer.conv1d.weight": torch.randn(4, 1, 3).bfloat16(), "model.visual.index": torch.arange(5), "model.scale": torch.tensor(0.5), "model.mask": torch.tensor([True, False]), "model.level": torch.ones(2, 2, dtype=torch.int8), "model.model.decoder.layers.0.fc1.weight": torch.ones(2, 2)}
        dcp.save({**weights, "scheduler.last": torch.ones(2)}, checkpoint_id=self.at("kept"), no_dist=True)
        keep = ["convert", "--verify", "--keep-other", "--to"]
        for number, given in enumerate((self.config, config)):
            out, back = self.at(f"kept{number}"), self.at(f"back{number}")
            said = " ".join(dcpkit(*keep, "huggingface", "--hf-config", given, self.at("kept"), out).split())
            self.assertIn(f"{(7, len(weights))[number]} tensors that no map knows keep their names", said)
            dcpkit(*keep, "dcp", "--layout", "model.", out, back)
            for folder, prefix in ((out, "model."), (back, "")):
                self.assertEqual({prefix + key: h for key, h in hashes(folder).items()}, {key: h for key, h in hashes(self.at("kept")).items() if key in weights})
            self.assertIn("equal", dcpkit("compare-two-checkpoint", out, back))
            code, said = dcpkit_fails(*keep, "torch_dist", out, self.at("none"))
            self.assertEqual((code, "only formats with Hugging Face's names keep" in said), (2, True), said)
        with open(os.path.join(out, "config.json"), encoding="utf-8") as f:
            self.assertEqual(json.load(f), document)
        dcpkit(*keep, "huggingface", "--dtype", "bfloat16", "--hf-config", config, self.at("kept"), self.at("kept16"))
        for key, tensor in load_file(os.path.join(self.at("kept16"), "model.safetensors")).items():
            stored = weights["model." + key]
            self.assertTrue(tensor.equal(stored.bfloat16() if stored.is_floating_point() else stored), key)

    def test_dtypes(self):
        """Each weight keeps the dtype that it is stored in, but one tensor of all experts has one."""
        mixed = {key: t if t.dim() == 1 or "lm_head" in key else t.bfloat16() for key, t in self.weights.items()}
        dcp.save(mixed, checkpoint_id=self.at("mixed"), no_dist=True)
        out, back = self.at("mixed_out"), self.at("mixed_back")
        said = dcpkit("convert", "--verify", "--to", "huggingface", "--hf-config", self.config, self.at("mixed"), out)
        self.assertIn("float32: each is written as it is stored", " ".join(said.split()))
        made = load_file(os.path.join(out, "model.safetensors"))
        self.assertEqual({key: t.dtype for key, t in made.items()}, {key: t.dtype for key, t in mixed.items()})
        dcpkit("convert", "--verify", "--to", "dcp", "--layout", "", out, back)
        for folder in (out, back):
            self.assertEqual(hashes(folder), hashes(self.at("mixed")))
        with open(self.config, encoding="utf-8") as f:
            config = json.load(f) | {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": None}
        mixtral = {}
        for key, t in mixed.items():
            layer, _, part = key.rpartition(".mlp.")
            for e in range(2 if layer else 0):
                name = {"gate_proj.weight": "w1", "up_proj.weight": "w3", "down_proj.weight": "w2"}[part]
                mixtral[f"{layer}.block_sparse_moe.experts.{e}.{name}.weight"] = t.clone()
            if not layer:
                mixtral[key] = t
        layers = range(config["num_hidden_layers"])
        mixtral |= {f"model.layers.{i}.block_sparse_moe.gate.weight": torch.ones(2, config["hidden_size"]).bfloat16() for i in layers}
        wide = "model.layers.1.block_sparse_moe.experts.1.w2.weight"
        mixtral[wide] = mixtral[wide].float() + 1e-6
        moe, out, back = self.at("moe"), self.at("moe_out"), self.at("moe_back")
        os.mkdir(moe)
        save_file(mixtral, os.path.join(moe, "model.safetensors"), metadata={"format": "pt"})
        with open(os.path.join(moe, "config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)
        said = dcpkit("convert", "--verify", "--to", "dcp", "--layout", "", moe, out)
        self.assertIn("float32: all are written as float32", " ".join(said.split()))
        dcpkit("convert", "--to", "huggingface", out, back)
        for key, t in load_file(os.path.join(back, "model.safetensors")).items():
            self.assertTrue(t.equal(mixtral[key].float()), key)

    def test_refused(self):
        self.refuses("collides", "'model._orig_mod.model.norm.weight' are one tensor of the model")
        self.refuses("two", "'model.model.embed_tokens.weight' and 'ema.*' are both the embedding")
        self.refuses("more", "no rule takes 'model.other.weight'; convert's option keep-other")
        code, said = dcpkit_fails("convert", "--to", "huggingface", self.at("tied"), self.at("none"))
        self.assertEqual(code, 3)
        self.assertRegex(said, r"there is no config.json.*--hf-config FILE")

    def test_prefix(self):
        out = self.at("out_two")
        arguments = ["--input-model-weight-prefix", "ema", "--hf-config", self.config, self.at("two"), out]
        dcpkit("convert", "--verify", "--to", "huggingface", *arguments)
        self.assertEqual(hashes(out), hashes(self.model))

    def test_titan(self):
        self.check("titan")
        self.refuses("titan_mixed", "is missing, a part of 'decoder.layers.1.self_attention.linear_qkv.weight'")

    def test_megatron(self):
        """Weights and optimizer, as a run of float32 and as one of bfloat16 with masters."""
        args = self.at("args.json")
        with open(args, "w", encoding="ascii") as f:
            json.dump({"bf16": True, "params_dtype": "torch.bfloat16", "global_batch_size": 4}, f)
        for layout, name in (("wrapped", "app.model"), ("titan", "titan-unfused")):
            want = tensors_of(self.at(layout), without="progress.step train_state.step")
            for form, given in (("torch_dist", []), ("fsdp_dtensor", []), ("torch_dist", ["--args-from", args])):
                run, back, hf = (self.at(f"{layout}_{form}_{len(given)}_{step}") for step in ("run", "back", "hf"))
                dcpkit("convert", "--verify", "--to", form, "--hf-config", self.config, *given, self.at(layout), run)
                self.assertIn("iter_0000003", os.listdir(run))
                dcpkit("convert", "--verify", "--to", "dcp", "--layout", name, "--hf-config", self.config, run, back)
                self.assertEqual(tensors_of(back), want)
                dcpkit("convert", "--to", "huggingface", "--dtype", "float32", "--hf-config", self.config, run, hf)
                self.assertEqual(hashes(hf), hashes(self.model))

    def test_back(self):
        """torch loads what is written, under any prefix; fused or not, torchtitan's optimizer is the same."""
        for i, prefix in enumerate(("model.", "app.model.", "")):
            out = self.at(f"back_{i}")
            dcpkit("convert", "--verify", "--to", "dcp", "--layout", prefix, "--max-shard-size", "50KB", self.model, out)
            self.assertGreater(len([name for name in os.listdir(out) if name.endswith(".distcp")]), 1)
            found = {prefix + name: torch.empty_like(t) for name, t in self.weights.items()}
            dcp.load(found, checkpoint_id=out, no_dist=True)
            for name, t in self.weights.items():
                self.assertTrue(found[prefix + name].equal(t), name)
        want = tensors_of(self.at("titan"), without="train_state.step")
        config, step = ["--hf-config", self.config], self.at("titan")
        for i, layout in enumerate(("model.", "titan", "app.model.", "titan-unfused")):
            dcpkit("convert", "--verify", "--to", "dcp", "--layout", layout, *config, step, self.at(f"step_{i}"))
            step = self.at(f"step_{i}")
        self.assertEqual(tensors_of(step), want)
        nested = tensors_of(self.at("step_0"))
        wrapped = tensors_of(self.at("wrapped"), without="app.progress.step")
        self.assertEqual({"app." + key: value for key, value in nested.items()}, wrapped)

    def test_groups(self):
        """What set_optimizer_state_dict asks for, by number or by parameter."""
        out, name = self.at("groups"), "model.norm.weight"
        dcpkit("convert", "--to", "dcp", "--layout", "model.", "--hf-config", self.config, self.at("titan"), out)
        groups = [{"params": None, "lr": 0.0, "betas": None, "weight_decay": 1.0} for _ in range(2)]
        found = {"optim": {"param_groups": groups, "state": {name: {"step": torch.tensor(0.0)}}}}
        dcp.load(found, checkpoint_id=out, no_dist=True)
        members = {group["weight_decay"]: group["params"] for group in groups}
        self.assertEqual(sorted(members[0.0] + members[0.1]), sorted(self.weights))
        self.assertIn(name, members[0.0])
        self.assertEqual((groups[0]["lr"], groups[0]["betas"]), (1e-3, (0.9, 0.95)))
        self.assertEqual(found["optim"]["state"][name]["step"].item(), 3.0)
        flat = {f"optim.param_groups.{name}.weight_decay": 1.0}
        dcp.load(flat, checkpoint_id=out, no_dist=True)
        self.assertEqual(list(flat.values()), [0.0])

    def save_trained(self, name, optimizer):
        """A step of an optimizer of torch's with weights as gradients, as get_state_dict has it."""
        params = {key: torch.nn.Parameter(t.clone()) for key, t in self.weights.items()}
        made = optimizer(params.values())
        for p in params.values():
            p.grad = p.detach().clone()
        made.step()
        group = made.state_dict()["param_groups"][0] | {"params": list(params)}
        state = {"state": {key: made.state[p] for key, p in params.items() if made.state[p]}, "param_groups": [group]}
        dcp.save({"model": self.weights, "optim": state}, checkpoint_id=self.at(name), no_dist=True)
        return self.at(name)

    def test_other_optimizers(self):
        """Megatron would take state of any optimizer for Adam's."""
        optim, config = torch.optim, ["--hf-config", self.config]
        for words, make in (
            ("RAdam .*, by 'optim.param_groups.0.differentiable'", optim.RAdam),
            ("NAdam, by 'optim.param_groups.0.momentum_decay'", optim.NAdam),
            ("Adamax, by 'optim.state..*.exp_inf'", optim.Adamax),
            ("SGD, by 'optim.param_groups.0.dampening'", optim.SGD),
            ("Adam with amsgrad, by 'optim.param_groups.0.amsgrad'", lambda params: optim.AdamW(params, amsgrad=True)),
            ("one that maximizes, by 'optim.param_groups.0.maximize'", lambda params: optim.AdamW(params, maximize=True)),
        ):
            folder, out = self.save_trained("other", make), self.at("none")
            code, said = dcpkit_fails("convert", "--to", "torch_dist", *config, folder, out)
            self.assertEqual(code, 3, said)
            self.assertRegex(" ".join(said.split()), f"the optimizer is {words}: Megatron would .*--weights-only")
            shutil.rmtree(folder)
        for make, is_noted in ((optim.Adam, True), (optim.AdamW, False)):
            folder = self.save_trained("adam", lambda params, make=make: make(params, weight_decay=0.5))
            said = dcpkit("convert", "--dry-run", "--to", "torch_dist", *config, folder, self.at("none"))
            self.assertEqual("Adam adds its weight decay of 0.5 to gradients" in " ".join(said.split()), is_noted, said)
            shutil.rmtree(folder)

    def test_tensors_of_groups(self):
        """A learning rate that is a tensor, as fused optimizers may have it, goes on as a number."""
        lr, betas, out = torch.tensor(2**-10), (torch.tensor(0.5), torch.tensor(0.75)), self.at("lr_out")
        folder = self.save_trained("lr", lambda params: torch.optim.AdamW(params, lr=lr, betas=betas, foreach=False))
        dcpkit("convert", "--verify", "--to", "torch_dist", "--target-generation", "B", "--hf-config", self.config, folder, out)
        (group, _) = torch.load(os.path.join(iteration(out), "common.pt"), weights_only=False)["optimizer"]["optimizer"]["param_groups"]
        self.assertEqual((group["lr"], group["max_lr"], group["betas"]), (2**-10, 2**-10, (0.5, 0.75)))

    def test_commands(self):
        layout, out = self.at("titan"), self.at("out_commands")
        config = ["--hf-config", self.config]
        dcpkit("convert", "--to", "huggingface", *config, layout, out)
        self.assertIn("torchtitan", dcpkit("inspect", layout))
        self.assertIn("dcp_hf", dcpkit("inspect", self.at("wrapped")))
        self.assertIn("format       dcp\n", dcpkit("inspect", "--from", "dcp", layout))
        code, said = dcpkit_fails("inspect", "--from", "dcp_hf", layout)
        self.assertEqual(code, 3, said)
        dcpkit("verify", "--against", layout, *config, out)
        dcpkit("compare-two-checkpoint", *config, layout, out)
        code, said = dcpkit_fails("compare-two-checkpoint", *config, self.at("differs"), out)
        self.assertEqual(code, 1, said)
        code, said = dcpkit_fails("check", *config, layout)
        self.assertEqual(code, 1, said)


class Megatron(unittest.TestCase):
    """A save of Megatron's as verl has it (0.4.1 to 0.8): without args, the schedule under another name, config.json in another folder."""

    def test_without_args(self):
        with tempfile.TemporaryDirectory() as folder:
            run, model, out, back = (os.path.join(folder, name) for name in ("whole", "model", "out", "back"))
            actor = os.path.join(folder, "run", "global_step_4", "actor")
            dcpkit("convert", "--to", "torch_dist", "--target-generation", "B", sample("torch_dist_c_dense_tp2pp2"), run)
            dcpkit("convert", "--to", "huggingface", run, model)
            shutil.copytree(iteration(run), os.path.join(actor, "dist_ckpt"))
            shutil.copytree(model, os.path.join(actor, "huggingface"), ignore=lambda _folder, names: [name for name in names if name != "config.json"])
            file = os.path.join(actor, "dist_ckpt", "common.pt")
            common = torch.load(file, weights_only=False)
            verl = {"optimizer": common["optimizer"], "lr_scheduler": common["opt_param_scheduler"], "content_metadata": common["content_metadata"]}
            os.remove(file)
            torch.save(verl, file)
            self.assertIn("has no args", dcpkit_fails("convert", "--to", "huggingface", os.path.join(actor, "dist_ckpt"), out)[1])
            with open(os.path.join(actor, "transformer_config.json"), "w", encoding="ascii") as f:
                json.dump({"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "pipeline_dtype": "torch.bfloat16"}, f)
            dcpkit("convert", "--verify", "--to", "huggingface", os.path.join(folder, "run"), out)
            self.assertEqual(hashes(out), hashes(model))
            self.assertIn("iteration    4\n", dcpkit("inspect", os.path.join(folder, "run")))
            said = dcpkit("convert", "--verify", "--to", "torch_dist", os.path.join(folder, "run"), back)
            self.assertIn("verl's counts steps", " ".join(said.split()))
            made = torch.load(os.path.join(iteration(back), "common.pt"), weights_only=False)
            self.assertEqual(made["opt_param_scheduler"], common["opt_param_scheduler"])
            self.assertEqual(made["optimizer"]["optimizer"]["param_groups"], common["optimizer"]["optimizer"]["param_groups"])
            for name in ("num_layers", "hidden_size", "padded_vocab_size", "tensor_model_parallel_size", "swiglu", "params_dtype", "normalization"):
                self.assertEqual(getattr(made["args"], name), getattr(common["args"], name), name)
            done = subprocess.run([DCPKIT, "compare-two-checkpoint", "--json", run, back], capture_output=True, text=True, check=False)
            parts = json.loads(done.stdout)["parts"]
            self.assertEqual([(parts[name]["n_compared"], parts[name]["n_different"]) for name in ("weights", "masters", "moments", "groups")], [(27, 0), (27, 0), (54, 0), (40, 0)])


class Shards(unittest.TestCase):
    """A file for each rank, as verl and SkyRL save them: torch's FSDP2 has cut the model."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = cls.at("model")
        dcpkit("convert", "--to", "huggingface", sample("torch_dist_c_fp32_dp1"), cls.model)
        command = [sys.executable, "-W", "ignore", os.path.join(HERE, "verl_shards.py"), cls.model, cls.at("")]
        subprocess.run(command, check=True, capture_output=True, timeout=300)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def at(cls, *names):
        return os.path.join(cls.folder.name, *names)

    @classmethod
    def shards(cls, layout):
        return cls.at(layout, "global_step_3", "actor")

    def refuses(self, code, regex, *arguments):
        done = subprocess.run([DCPKIT, *arguments], capture_output=True, text=True, check=False)
        said = " ".join((done.stdout + done.stderr).split())
        self.assertEqual(done.returncode, code, said)
        self.assertRegex(said, regex)

    def test_models(self):
        for layout in ("flat", "replicated", "strided"):
            folder, out = self.shards(layout), self.at("out_" + layout)
            dcpkit("convert", "--verify", "--to", "huggingface", folder, out)
            self.assertEqual(hashes(out), hashes(self.model))
            weights = {key: value for key, value in tensors_of(folder).items() if not key.startswith("optimizer.")}
            self.assertEqual(weights, tensors_of(self.model))
            self.assertIn("format       verl\n", dcpkit("inspect", folder))
            dcpkit("verify", folder)
            dcpkit("verify", "--against", folder, out)
            dcpkit("compare-two-checkpoint", folder, out)

    def test_optimizer(self):
        """Numbers become names: the moments of one step with weights as gradients, through DCP and Megatron."""
        outs = {layout: self.at("dcp_" + layout) for layout in ("flat", "replicated", "strided")}
        for layout, out in outs.items():
            dcpkit("convert", "--verify", "--to", "dcp", "--layout", "model.", self.shards(layout), out)
            self.assertEqual(hashes(out), hashes(outs["flat"]))
        weights = load_file(os.path.join(self.model, "model.safetensors"))
        found = {f"optim.state.{name}.{s}": torch.empty_like(t) for name, t in weights.items() for s in ("exp_avg", "exp_avg_sq")}
        found |= {f"optim.state.{name}.step": torch.tensor(0.0) for name in weights}
        dcp.load(found, checkpoint_id=outs["flat"], no_dist=True)
        for name, t in weights.items():
            torch.testing.assert_close(found[f"optim.state.{name}.exp_avg"], 0.1 * t)
            torch.testing.assert_close(found[f"optim.state.{name}.exp_avg_sq"], 0.001 * t * t)
            self.assertEqual(found[f"optim.state.{name}.step"].item(), 1.0)
        groups = {"optim": {"param_groups": [{"params": None, "lr": 0.0, "betas": None}]}}
        dcp.load(groups, checkpoint_id=outs["flat"], no_dist=True)
        (group,) = groups["optim"]["param_groups"]
        self.assertEqual((sorted(group["params"]), group["lr"], group["betas"]), (sorted(weights), 2**-10, (0.9, 0.999)))
        dcpkit("convert", "--verify", "--to", "torch_dist", self.shards("strided"), self.at("run_dist"))
        self.assertEqual(os.listdir(self.at("run_dist")).count("iter_0000001"), 1)
        config = ["--hf-config", os.path.join(self.model, "config.json")]
        dcpkit("convert", "--to", "dcp", "--layout", "model.", *config, self.at("run_dist"), self.at("run_back"))
        self.assertEqual(tensors_of(self.at("run_back")), tensors_of(outs["flat"]))

    def test_buffers(self):
        """A tensor that no mesh spreads, as a router's bias of experts, has no number among DTensors."""
        folder = self.at("buffers")
        shutil.copytree(self.shards("flat"), folder)
        for rank in range(3):
            name = os.path.join(folder, f"model_world_size_3_rank_{rank}.pt")
            state = list(torch.load(name, weights_only=False).items())
            state.insert(2, ("model.layers.0.mlp.gate.e_score_correction_bias", torch.ones(4)))
            torch.save(dict(state), name)
        want = {key: value for key, value in hashes(self.shards("flat")).items() if "optimizer." in key}
        self.assertEqual({key: value for key, value in hashes(folder).items() if "optimizer." in key}, want)

    def test_items(self):
        """The same tensors in the files of torch_checkpointing 2.0; what is missing or another version is refused."""
        for layout in ("flat", "replicated", "strided"):
            folder = self.at("items", layout, "step-3")
            self.assertEqual(tensors_of(folder), tensors_of(self.shards(layout), without="param_groups.0.lr"))
            self.assertIn("format       torch_checkpointing\n", dcpkit("inspect", self.at("items", layout)))
            dcpkit("verify", folder)
        self.assertIn("*optimizer.param_groups.model.norm.weight.lr\n", dcpkit("hash", folder))
        os.remove(os.path.join(folder, "optimizer_3.pt"))
        self.refuses(3, r"there is no 'optimizer_3.pt', and 'metadata.pkl' has its world size", "inspect", folder)
        for change, regex in (({"version": "1.0"}, "has no version '2.0'"), ({"world_size": 0}, "has no world_size from 1 to"),
                              ({"world_size": 2}, "'model_0.pt'.*mesh")):
            with open(os.path.join(folder, "metadata.pkl"), "wb") as f:
                pickle.dump({"version": "2.0", "world_size": 4} | change, f)
            self.refuses(3, regex, "verify", folder)

    def test_optimizer_refused(self):
        """The weights convert, and an optimizer without names does not."""
        def two_groups(rank, state):
            state["param_groups"].append(dict(state["param_groups"][0], params=[]))

        def frozen(rank, state):
            del state["param_groups"][0]["params"][-2:]

        def turned(rank, state):
            state["state"][0], state["state"][1] = state["state"][1], state["state"][0]

        def apart(rank, state):
            state["param_groups"][0]["lr"] = float(rank)

        def fewer(rank, state):
            del state["state"][3 + rank]

        def foreign(rank, state):
            state["param_groups"][0]["lr"] = torch.nn.Linear(1, 1)

        for change, regex in (
            (two_groups, "it must have one parameter group"),
            (frozen, "state of 37 parameters, and the model has 39"),
            (turned, "its exp_avg of parameter . does not have the shape of"),
            (apart, "world_size_3_rank_1.pt': its parameter groups are not those of rank 0"),
            (fewer, "world_size_3_rank_1.pt': .*rank 0 does not have it"),
            (foreign, "it holds 'torch.nn.modules.linear.Linear'"),
        ):
            with self.subTest(change.__name__):
                folder = self.at("optimizer_" + change.__name__)
                shutil.copytree(self.shards("flat"), folder)
                for rank in range(3):
                    name = os.path.join(folder, f"optim_world_size_3_rank_{rank}.pt")
                    state = torch.load(name, weights_only=False)
                    change(rank, state)
                    torch.save(state, name)
                self.assertNotIn("optimizer.", dcpkit("inspect", folder))
                self.refuses(3, regex + ".*--weights-only", "convert", "--to", "torch_dist", folder, self.at("none"))
                dcpkit("convert", "--verify", "--weights-only", "--to", "torch_dist", folder, folder + "_dist")
                dcpkit("convert", "--verify", "--to", "huggingface", folder, folder + "_hf")
                self.assertEqual(hashes(folder + "_hf"), hashes(self.model))

    def test_targets(self):
        folder = self.shards("flat")
        for form in ("torch_dist", "fsdp_dtensor", "dcp_hf"):
            out, back = self.at("to_" + form), self.at("back_" + form)
            dcpkit("convert", "--verify", "--weights-only", "--to", form, folder, out)
            config = [] if form == "dcp_hf" else ["--hf-config", os.path.join(folder, "huggingface", "config.json")]
            dcpkit("convert", "--to", "huggingface", "--dtype", "float32", *config, out, back)
            self.assertEqual(hashes(back), hashes(self.model))

    def test_run(self):
        """The folder above the steps, with verl's tracker and without."""
        run, step = self.at("run"), self.at("run", "global_step_3")
        shutil.copytree(self.at("flat"), run)
        self.assertIn("checkpoint   " + self.at("run", "global_step_3", "actor"), dcpkit("inspect", run))
        shutil.copytree(step, self.at("run", "global_step_4"))
        self.refuses(3, "several checkpoints; .*'global_step_3/actor', 'global_step_4/actor'", "inspect", run)
        tracker = self.at("run", "latest_checkpointed_iteration.txt")
        for number in ("3", "4"):
            with open(tracker, "w", encoding="ascii") as f:
                f.write(number)
            self.assertIn(self.at("run", f"global_step_{number}", "actor"), dcpkit("inspect", run))
        shutil.copytree(self.at("run", "global_step_4", "actor"), self.at("run", "global_step_4", "critic"))
        self.refuses(3, "several checkpoints; give one of them: 'actor', 'critic'$", "inspect", run)
        shutil.rmtree(self.at("run", "global_step_4"))
        self.refuses(3, "names '.*iter_0000004', but there is no such folder", "inspect", run)
        os.makedirs(self.at("run", "global_step_4"))
        self.refuses(3, "neither a checkpoint nor a run folder; it is empty", "inspect", run)

    def test_adapter(self):
        """LoRA is merged as torch computes it, taken out bit for bit, or left out."""
        name = os.path.join(self.at("adapter"), "model_world_size_1_rank_0.pt")
        os.makedirs(self.at("adapter"))
        torch.manual_seed(29)
        state, merged, parts = {}, {}, {}
        for key, tensor in load_file(os.path.join(self.model, "model.safetensors")).items():
            name_in_base, merged[key], key = key, tensor, "base_model.model." + key
            if key.endswith(("q_proj.weight", "down_proj.weight")):
                stem, key = key[: -len("weight")], key.replace("_proj", "_proj.base_layer")
                a, b = torch.randn(3, tensor.shape[1]), torch.randn(tensor.shape[0], 3)
                state |= {f"{stem}lora_A.default.weight": a, f"{stem}lora_B.default.weight": b}
                parts |= {f"{stem}lora_A.weight": a, f"{stem}lora_B.weight": b}
                product = torch.addcmul(torch.addcmul(b[:, :1] * a[:1], b[:, 1:2], a[1:2]), b[:, 2:], a[2:])
                merged[name_in_base] = tensor + product * (5 / 3)
            if key.endswith(("lm_head.weight", "embed_tokens.weight")):
                parts[key] = merged[name_in_base] = tensor + 1
                state[key.replace(".weight", ".modules_to_save.default.weight")] = tensor + 1
                key = key.replace(".weight", ".original_module.weight")
            state[key] = tensor
        torch.save(state, name)
        with open(os.path.join(self.at("adapter"), "fsdp_config.json"), "w", encoding="ascii") as f:
            json.dump({"FSDP_version": 1, "world_size": 1}, f)
        convert = ["convert", "--to", "huggingface", "--hf-config", os.path.join(self.model, "config.json")]
        self.refuses(3, "lora_A.default.weight' belongs to an adapter .LoRA.*--drop RE", "convert", "--to", "dcp", "--layout", "model.", *convert[3:], self.at("adapter"), self.at("none"))
        dcpkit(*convert, "--drop", "lora_|modules_to_save", self.at("adapter"), self.at("base"))
        self.assertEqual(hashes(self.at("base")), hashes(self.model))
        merge = [*convert, "--merge-lora"]
        self.refuses(3, "no adapter_config.json or lora_train_meta.json next to it", *merge, self.at("adapter"), self.at("none"))
        with open(os.path.join(self.at("adapter"), "lora_train_meta.json"), "w", encoding="ascii") as f:
            json.dump({"r": 3, "lora_alpha": 5, "task_type": "CAUSAL_LM"}, f)
        dcpkit("convert", "--to", "peft", self.at("adapter"), self.at("peft"))
        self.refuses(2, "an adapter is written next to its base", *convert, "--verify", self.at("adapter"), self.at("none"))
        for size in ("5GB", "4KB"):
            dcpkit(*convert, "--max-shard-size", size, self.at("adapter"), self.at(size))
            self.assertEqual(hashes(self.at(size)), hashes(self.model))
            for file in os.listdir(self.at("peft")):
                self.assertTrue(filecmp.cmp(os.path.join(self.at("peft"), file), os.path.join(self.at(size), "lora_adapter", file), shallow=False), file)
        made = load_file(os.path.join(self.at("peft"), "adapter_model.safetensors"))
        self.assertEqual(sorted(made), sorted(parts))
        for key, tensor in made.items():
            self.assertTrue(tensor.equal(parts[key]), key)
        base = ["convert", "--merge-lora", "--base", self.model]
        for out, command in (("merged", [*merge, "--verify", self.at("adapter")]), ("joined", [*base, "--verify", self.at("peft")])):
            dcpkit(*command, self.at(out))
            made = load_file(os.path.join(self.at(out), "model.safetensors"))
            self.assertEqual(sorted(made), sorted(merged))
            for key, tensor in made.items():
                bound = 4 * 2.0**-23 * (merged[key].abs() + merged[key].abs().mean())
                self.assertTrue(bool(((tensor - merged[key]).abs() <= bound).all()), key)
        shutil.copytree(self.at("adapter"), self.at("alone"))
        torch.save({key: tensor for key, tensor in state.items() if ".lora_" in key or "modules_to_save" in key}, os.path.join(self.at("alone"), os.path.basename(name)))
        dcpkit(*base, "--verify", self.at("alone"), self.at("at once"))
        self.assertEqual(hashes(self.at("at once")), hashes(self.at("joined")))
        self.refuses(3, "belongs to a base in the adapter's own checkpoint", *base, self.at("adapter"), self.at("none"))
        state[next(key for key in state if "lora_A" in key).replace("default", "other")] = torch.ones(3, 3)
        torch.save(state, name)
        self.refuses(3, "there are two adapters, 'default' and 'other'", *merge, self.at("adapter"), self.at("none"))
        for to in ("peft", "huggingface"):
            state[next(key for key in state if "lora_A.other" in key).replace("other", "default")] = torch.ones(3, 3)
            torch.save(state, name)
            self.refuses(3, "there are two adapters, 'default' and 'other'", "convert", "--to", to, *convert[3:], self.at("adapter"), self.at("none"))

    def test_turned_adapter(self):
        """GPT-2's weights are [in, out], and its files have no prefix 'transformer.'."""
        torch.manual_seed(2)
        sizes = {"attn.c_attn": (8, 24), "attn.c_proj": (8, 8), "mlp.c_fc": (8, 32), "mlp.c_proj": (32, 8)}
        shapes = {"wte.weight": (10, 8), "wpe.weight": (16, 8), "ln_f.weight": (8,), "ln_f.bias": (8,)}
        shapes |= {f"h.0.ln_{n}.{part}": (8,) for n in "12" for part in ("weight", "bias")}
        for name, (n_in, n_out) in sizes.items():
            shapes |= {f"h.0.{name}.weight": (n_in, n_out), f"h.0.{name}.bias": (n_out,)}
        base, parts = {name: torch.randn(shape) for name, shape in shapes.items()}, {}
        merged = dict(base)
        for name, (n_in, n_out) in sizes.items():
            a, b = torch.randn(4, n_in), torch.randn(n_out, 4)
            stem = f"base_model.model.transformer.h.0.{name}.lora_"
            parts |= {stem + "A.weight": a, stem + "B.weight": b}
            merged[f"h.0.{name}.weight"] = base[f"h.0.{name}.weight"] + 0.75 * (b @ a).T
        config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2}
        files = {
            "gpt2/config.json": config | {"n_positions": 16, "vocab_size": 10, "dtype": "float32", "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new"},
            "turned/adapter_config.json": {"peft_type": "LORA", "r": 4, "lora_alpha": 3, "fan_in_fan_out": False},  # PEFT's of the last module
        }
        for name, value in files.items():
            os.makedirs(os.path.dirname(self.at(name)))
            with open(self.at(name), "w", encoding="ascii") as f:
                json.dump(value, f)
        save_file(base, self.at("gpt2", "model.safetensors"), metadata={"format": "pt"})
        save_file(parts, self.at("turned", "adapter_model.safetensors"))
        dcpkit("convert", "--merge-lora", "--verify", "--base", self.at("gpt2"), self.at("turned"), self.at("out_turned"))
        made = load_file(self.at("out_turned", "model.safetensors"))
        for key, tensor in made.items():
            want = merged[key.removeprefix("transformer.")]
            bound = 4 * 2.0**-23 * (want.abs() + want.abs().mean())
            self.assertTrue(bool(((tensor - want).abs() <= bound).all()), key)
        self.assertEqual(len(made), len(merged))

    def test_whole(self):
        self.assertIn("x1", dcpkit("inspect", self.at("whole")))
        dcpkit("verify", self.at("whole"))
        self.refuses(1, "hold the same elements of 'model.norm.weight', and their bytes differ", "verify", self.at("unequal"))
        config = ["--hf-config", os.path.join(self.model, "config.json")]
        convert = ["convert", "--to", "huggingface", *config]
        self.refuses(3, "hold the same elements of 'model.norm.weight'", *convert, self.at("unequal"), self.at("none"))
        self.refuses(3, "is fewer than the|are fewer than the|is missing", *convert, self.at("whole"), self.at("none"))

    def test_copies(self):
        """The bytes of a replica that is not read are changed: only verify reads them."""
        folder = self.at("changed")
        shutil.copytree(self.shards("replicated"), folder)
        name = os.path.join(folder, "model_world_size_4_rank_3.pt")
        state = torch.load(name, weights_only=False)
        state["model.norm.weight"].to_local()[0] += 1
        torch.save(state, name)
        self.refuses(1, "'model_world_size_4_rank_1.pt' and 'model_world_size_4_rank_3.pt' hold the same", "verify", folder)
        dcpkit("convert", "--to", "huggingface", folder, self.at("out_changed"))
        self.refuses(3, "hold the same", "convert", "--verify", "--to", "huggingface", folder, self.at("none"))

    def test_refused(self):
        for layout, regex in (
            ("fewer", "'model_world_size_2_rank_1.pt': it has 1 tensors, and rank 0 has 2"),
            ("dtypes", "rank 0 has it with another dtype, shape, mesh or placements"),
            ("foreign", "it holds 'torch.nn.modules.linear.Linear', a class that"),
            ("apart", "'model.norm.weight': the elements of its local tensor do not lie in order"),
            ("sharded", "ShardedTensor'.*: save with FSDP2, or give FSDP1 a device mesh"),
            ("cycle", "'model_world_size_2_rank_0.pt': .*holds itself"),
            ("partial", "'model.norm.weight': a placement of it is Partial"),
            ("cut", "its local tensor has the shape .5, 6., and its placements give the rank .4, 6."),
        ):
            with self.subTest(layout):
                self.refuses(3, regex, "inspect", self.at(layout))
        folder = self.at("sizes")
        shutil.copytree(self.at("whole"), folder)
        shutil.copy(os.path.join(folder, "model_world_size_2_rank_0.pt"), os.path.join(folder, "model_world_size_4_rank_0.pt"))
        self.refuses(3, "'model_world_size_4_rank_0.pt' is of another world size than 2", "inspect", folder)
        os.rename(os.path.join(folder, "model_world_size_4_rank_0.pt"), os.path.join(folder, "model_world_size_2_rank_2.pt"))
        self.refuses(3, "'model_world_size_2_rank_2.pt' is of a rank past the world size 2", "inspect", folder)
        os.remove(os.path.join(folder, "model_world_size_2_rank_2.pt"))
        shutil.copy(os.path.join(folder, "model_world_size_2_rank_0.pt"), os.path.join(folder, "model_world_size_2_rank_1.pt"))
        self.refuses(3, "'model_world_size_2_rank_1.pt' was saved as 'model_world_size_2_rank_0.pt'", "inspect", folder)
        os.remove(os.path.join(folder, "model_world_size_2_rank_1.pt"))
        self.refuses(3, "there is no 'model_world_size_2_rank_1.pt'", "inspect", folder)
        os.remove(os.path.join(folder, "fsdp_config.json"))
        self.refuses(3, "no fsdp_config.json, which verl and SkyRL write last", "inspect", folder)


@unittest.skipUnless(GOLDENS, "DCPK_GOLDENS does not name the folder of dcp_*.tar.xz and titan_*.tar.xz")
class Goldens(unittest.TestCase):
    """What accelerate 1.15, prime-rl's layout, torchtitan 0.3.0 and verl's layout saved: every tensor as transformers saves it."""

    def test_all(self):
        names = sorted(n for n in os.listdir(GOLDENS) if n.startswith(("dcp_", "titan_")) and n.endswith(".tar.xz"))
        names = [name for name in names if "peft" not in name]  # test_adapters
        self.assertGreater(len(names), 16)
        for name in names:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                with tarfile.open(os.path.join(GOLDENS, name)) as tar:
                    tar.extractall(folder, filter="data")
                (top,) = os.listdir(folder)
                top, out = os.path.join(folder, top), os.path.join(folder, "out")
                with open(os.path.join(top, "MANIFEST.json"), encoding="utf-8") as f:
                    want = {key: t["xxh3_128"] for key, t in json.load(f)["hf"].items()}
                assets, checkpoint = os.path.join(top, "assets"), os.path.join(top, "checkpoint")
                if "hflast" in name:  # Hugging Face's files
                    checkpoint = os.path.join(checkpoint, "step-3")
                dcpkit("convert", "--verify", "--to", "huggingface", "--hf-assets", assets, checkpoint, out)
                self.assertEqual(hashes(out), want)
                if "hflast" not in name:
                    self.check_back(top, checkpoint, out)

    def test_shards(self):
        names = sorted(n for n in os.listdir(GOLDENS) if n.startswith("verl_") and n.endswith(".tar.xz") and "loraonly" not in n)
        self.assertEqual(len(names), 8)
        for name in names:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                with tarfile.open(os.path.join(GOLDENS, name)) as tar:
                    tar.extractall(folder, filter="data")
                (top,) = os.listdir(folder)
                top = os.path.join(folder, top)
                with open(os.path.join(top, "MANIFEST.json"), encoding="utf-8") as f:
                    manifest = json.load(f)
                wanted = {"hf": [], "hf_bf16": ["--dtype", "bfloat16"]}
                if "lora" in name:
                    wanted = {"base": [], "hf": ["--merge-lora"], "hf_bf16": ["--merge-lora", "--dtype", "bfloat16"]}
                for what, options in wanted.items():
                    out = os.path.join(folder, what)
                    dcpkit("convert", *["--verify"][what == "base" :], "--to", "huggingface", *options, os.path.join(top, manifest["input"]), out)
                    self.assertEqual(hashes(out), {key: t["xxh3_128"] for key, t in manifest[what].items()})
                    if what == "base":
                        self.assertEqual(hashes(os.path.join(out, "lora_adapter")), {key: t["xxh3_128"] for key, t in manifest["adapter"].items()})
                self.check_optimizer(os.path.join(top, manifest["input"]), manifest)

    def test_adapters(self):
        """What PEFT 0.21.2 merges, to the bit in float32; adapters of verl taken out, to the bit."""
        for name in ("peft_llama_f32", "peft_qwen3_bf16_rslora_patterns", "dcp_llama_peft_fsdp2", "verl_llama_fsdp2_lora_n2", "verl_llama_fsdp2_loraonly_n2"):
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                with tarfile.open(os.path.join(GOLDENS, name + ".tar.xz")) as tar:
                    tar.extractall(folder, filter="data")
                top, out = os.path.join(folder, name), os.path.join(folder, "out")
                with open(os.path.join(top, "MANIFEST.json"), encoding="utf-8") as f:
                    manifest = json.load(f)
                checkpoint, options = os.path.join(top, manifest["input"]), ["--to", "peft"]
                wanted = manifest.get("adapter", manifest.get("merged_with_alpha_8"))
                if manifest["kind"] == "peft":
                    wanted, options = manifest["hf"], ["--merge-lora", "--verify", "--dtype", "float32", "--base", os.path.join(top, "base")]
                elif "merged_with_alpha_8" in manifest:
                    config = os.path.join(folder, "config.json")
                    with open(config, "w", encoding="ascii") as f:
                        json.dump({"r": 4, "lora_alpha": 8}, f)
                    options = ["--merge-lora", "--adapter-config", config, "--hf-assets", os.path.join(top, "assets")]
                dcpkit("convert", *options, checkpoint, out)
                self.assertEqual(hashes(out), {key: t["xxh3_128"] for key, t in wanted.items()})

    def check_optimizer(self, checkpoint, manifest):
        """Of FSDP2, each state under the name that its number has, as it is stored."""
        found = tensors_of(checkpoint)
        if manifest["spec"].get("version") == 1:
            self.assertEqual([key for key in found if "optimizer" in key], [])
            return
        self.assertEqual(len(manifest["optimizer_names"]), len(manifest["optimizer"]))
        for number, states in manifest["optimizer"].items():
            for state, tensor in states.items():
                key = f"optimizer.state.{manifest['optimizer_names'][int(number)]}.{state}"
                self.assertEqual(found[key.replace("base_layer.", "")], tensor["xxh3_128"], key)

    def check_back(self, top, checkpoint, out):
        """From Hugging Face's folder the model's keys, and through the other naming the optimizer, too."""
        with open(os.path.join(top, "MANIFEST.json"), encoding="utf-8") as f:
            manifest = json.load(f)
        back, other, again = (out + end for end in ("_back", "_other", "_again"))
        config = ["--hf-config", os.path.join(top, "assets", "config.json")]
        want = tensors_of(checkpoint if "_twodirs_" in top else os.path.join(top, manifest["input"]))
        names = ["titan-unfused" if "unfused" in top or "_tc20_" in top else "titan"]
        if manifest["kind"] == "dcp_hf":
            prefix = manifest["model_prefix"].replace("_orig_mod.", "").replace("_fsdp_wrapped_module.", "")
            optimizer = (manifest["optimizer_prefix"] or "optim.")[:-1]
            names = [prefix, "--output-optimizer-state-prefix", optimizer]
        want = {key: t for key, t in want.items() if not key.startswith(("train_state.", "dataloader.")) and key != "step"}
        dcpkit("convert", "--verify", "--to", "dcp", "--layout", *names, out, back)
        self.assertEqual(tensors_of(back), {key: t for key, t in want.items() if ".state." not in key})
        via = "model." if manifest["kind"] == "torchtitan" else "titan"
        dcpkit("convert", "--to", "dcp", "--layout", via, *config, checkpoint, other)
        dcpkit("convert", "--to", "dcp", "--layout", *names, other, again)
        self.assertEqual(tensors_of(again), want)


if __name__ == "__main__":
    unittest.main()
