# SPDX-License-Identifier: Apache-2.0
# test_gpt.py - one batch through a whole small GPT: its loss and every gradient against torch's autograd in fp64.
"""DCPK_RUN_GPT: the program of run_gpt.c; DCPK_OPS_DEVICE (default cpu): the row that it runs. It prints weights, tokens,
labels and masks, which the model below takes, and what it made of them. That model is written from the formulas of
Megatron's modules (core 0.19.0, transformer/), with no code of ours."""
import os
import subprocess
import unittest

import numpy
import torch
from torch.nn import functional

DEVICE = os.environ.get("DCPK_OPS_DEVICE", "cpu")
HEADS, GROUPS, HEAD, LAYERS, TOPK, MTP_FACTOR = 4, 2, 4, 2, 2, 0.3


def printed(dtype, words):
    """name -> fp64 tensor."""
    run = subprocess.run([os.environ["DCPK_RUN_GPT"], DEVICE, dtype, words], stdout=subprocess.PIPE, check=False)
    if run.returncode == 77:
        raise unittest.SkipTest("no device " + DEVICE)
    run.check_returncode()
    found, at = {}, 0
    while at < len(run.stdout):
        end = run.stdout.index(b"\n", at)
        name, rows, columns = run.stdout[at:end].decode().split()
        n = int(rows) * int(columns)
        numbers = numpy.frombuffer(run.stdout, dtype="<f8", count=n, offset=end + 1)
        found[name] = torch.from_numpy(numbers.copy().reshape(int(rows), int(columns)))
        at = end + 1 + 8 * n
    return found


def norm(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight.flatten()


def rotate(x):
    """x: (samples, tokens, heads, head): the halves of a head are the two coordinates."""
    half = HEAD // 2
    angles = torch.arange(x.shape[1])[:, None] * 10000.0 ** (-torch.arange(half) * 2.0 / HEAD)[None, :]
    cos, sin = (f(torch.cat([angles, angles], 1))[None, :, None, :] for f in (torch.cos, torch.sin))
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def swiglu(x, fc1, fc2):
    gate, up = (x @ fc1.T).chunk(2, -1)
    return (functional.silu(gate) * up) @ fc2.T


class Model:
    def __init__(self, weights, words):
        self.weights, self.words = weights, words

    def __call__(self, tokens, labels, mask):
        """(sum of losses, sum of those a token ahead, what backward starts from)."""
        w = self.weights
        embedding = w["embedding.word_embeddings.weight"]
        output = embedding if "tied" in self.words else w["output_layer.weight"]
        x = embedding[tokens]
        for layer in range(LAYERS):
            x = self.layer(x, f"decoder.layers.{layer}.")
        x = norm(x, w["decoder.final_layernorm.weight"])
        loss = self.losses(x @ output.T, labels) * mask
        if "mtp" not in self.words:
            return loss.sum(), 0.0, loss.sum()
        pre = "mtp.layers.0."
        joined = torch.cat([norm(embedding[tokens[:, 1:]], w[pre + "enorm.weight"]),
                            norm(x[:, :-1], w[pre + "hnorm.weight"])], -1)
        ahead = self.layer(joined @ w[pre + "eh_proj.weight"].T, pre + "transformer_layer.")
        ahead = self.losses(norm(ahead, w[pre + "final_layernorm.weight"]) @ output.T, labels[:, 1:]) * mask[:, 1:]
        more = mask.sum(1) / mask[:, 1:].sum(1).clamp(min=1)  # each sample is a micro batch
        return loss.sum(), ahead.sum(), loss.sum() + MTP_FACTOR * (more * ahead.sum(1)).sum()

    @staticmethod
    def losses(logits, labels):
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)

    def layer(self, x, pre):
        w = self.weights
        y = norm(x, w[pre + "self_attention.linear_qkv.layer_norm_weight"])
        x = x + self.attention(y, pre + "self_attention.")
        if pre + "mlp.router.weight" not in w:
            y = norm(x, w[pre + "mlp.linear_fc1.layer_norm_weight"])
            return x + swiglu(y, w[pre + "mlp.linear_fc1.weight"], w[pre + "mlp.linear_fc2.weight"])
        y = norm(x, w[pre + "pre_mlp_layernorm.weight"])
        z = self.experts(y, pre + "mlp.")
        if "shared" in self.words:
            z = z + swiglu(y, *(w[f"{pre}mlp.shared_experts.linear_{fc}.weight"] for fc in ("fc1", "fc2")))
        return x + z

    def attention(self, x, pre):
        w = self.weights
        samples, tokens, _ = x.shape
        mixed = (x @ w[pre + "linear_qkv.weight"].T).view(samples, tokens, GROUPS, HEADS // GROUPS + 2, HEAD)
        q = mixed[..., :-2, :].reshape(samples, tokens, HEADS, HEAD)
        k, v = mixed[..., -2, :], mixed[..., -1, :]
        if "qk" in self.words:
            q, k = norm(q, w[pre + "q_layernorm.weight"]), norm(k, w[pre + "k_layernorm.weight"])
        q, k = rotate(q), rotate(k)
        k, v = (t.repeat_interleave(HEADS // GROUPS, 2) for t in (k, v))
        scores = torch.einsum("sihd,sjhd->shij", q, k) / HEAD**0.5
        scores = scores.masked_fill(torch.ones(tokens, tokens).triu(1).bool(), float("-inf"))
        y = torch.einsum("shij,sjhd->sihd", scores.softmax(-1), v).reshape(samples, tokens, HEADS * HEAD)
        return y @ w[pre + "linear_proj.weight"].T

    def experts(self, x, pre):
        w = self.weights
        logits = x @ w[pre + "router.weight"].T
        if "sigmoid" in self.words:
            scores = logits.sigmoid()
            chosen = (scores + w[pre + "router.expert_bias"].flatten()).topk(TOPK, -1).indices
            probs = scores.gather(-1, chosen)
            probs = probs / (probs.sum(-1, keepdim=True) + 1e-20)
        elif "pre" in self.words:
            probs, chosen = logits.softmax(-1).topk(TOPK, -1)
        else:
            best, chosen = logits.topk(TOPK, -1)
            probs = best.softmax(-1)
        y = torch.zeros_like(x)
        for expert in range(logits.shape[-1]):
            share = (probs * (chosen == expert)).sum(-1, keepdim=True)
            fc1, fc2 = (w[f"{pre}experts.linear_{fc}.weight{expert}"] for fc in ("fc1", "fc2"))
            y = y + share * swiglu(x, fc1, fc2)
        return y


class Gpt(unittest.TestCase):
    def setUp(self):
        self.addCleanup(torch.set_default_dtype, torch.get_default_dtype())  # the process's: other tests follow
        torch.set_default_dtype(torch.float64)

    def compare(self, dtype, words, of_loss, of_gradients):
        """of_loss: relative; of_gradients: of the largest element of each."""
        got = printed(dtype, words)
        names = [name[len("weight:"):] for name in got if name.startswith("weight:")]
        weights = {name: got["weight:" + name].clone() for name in names}
        for name, weight in weights.items():
            if dtype != "float32" and not name.endswith("expert_bias"):
                weight.copy_(weight.to(getattr(torch, dtype)))
            weight.requires_grad_(not name.endswith("expert_bias"))
        tokens, labels = (got[name].long() for name in ("tokens", "labels"))
        loss, ahead, start = Model(weights, words)(tokens, labels, got["mask"])
        start.backward()
        self.assertAlmostEqual(got["loss"].item() / loss.item(), 1.0, delta=of_loss, msg=words)
        if "mtp" in words:
            self.assertAlmostEqual(got["mtp_loss"].item() / ahead.item(), 1.0, delta=of_loss, msg=words)
        for name, weight in weights.items():
            if weight.grad is not None:
                apart = (got["grad:" + name] - weight.grad).abs().max().item()
                self.assertLessEqual(apart, of_gradients * weight.grad.abs().max().item(),
                                     f"{dtype}, {words}: gradient of {name}")
            else:
                self.assertEqual(got["grad:" + name].abs().max().item(), 0.0, name)

    MODELS = ("dense", "tied,qk", "moe", "moe,pre,shared", "moe,sigmoid,qk", "mtp,qk", "tied,moe,sigmoid,shared,qk,mtp")

    def test_fp32(self):
        for words in self.MODELS:
            with self.subTest(words):
                self.compare("float32", words, 2e-7, 1e-5)

    def test_bf16(self):
        """Activations are rounded to 8 bits, and choices of experts may differ: models without."""
        for words in self.MODELS:
            if "moe" not in words:
                with self.subTest(words):
                    self.compare("bfloat16", words, 5e-3, 5e-2)


if __name__ == "__main__":
    unittest.main()
