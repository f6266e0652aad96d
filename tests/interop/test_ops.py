# SPDX-License-Identifier: Apache-2.0
# test_ops.py - the mathematics of training, forward and backward, against torch's autograd in fp64.
"""DCPK_RUN_OPS: the program of run_ops.c; DCPK_OPS_DEVICE (default cpu): the row that it runs. Inputs are what the
program printed, so they are exact; what it stored in bf16 or fp16 may differ by one rounding and no more."""
import os
import subprocess
import unittest

import numpy
import torch

DEVICE = os.environ.get("DCPK_OPS_DEVICE", "cpu")
HALF_STEP = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}  # relative, of a rounding
FP32 = 3e-6  # of sums and functions in fp32, relative to the largest number


def setUpModule():
    torch.set_default_dtype(torch.float64)


def tearDownModule():
    torch.set_default_dtype(torch.float32)  # it is the process's: other tests follow


def arrays(dtype):
    """name -> float64 tensor, of all that run_ops printed."""
    run = subprocess.run([os.environ["DCPK_RUN_OPS"], DEVICE, dtype], stdout=subprocess.PIPE)
    if run.returncode == 77:
        raise unittest.SkipTest("no device " + DEVICE)
    run.check_returncode()
    found, at = {}, 0
    while at < len(run.stdout):
        end = run.stdout.index(b"\n", at)
        name, *extents = run.stdout[at:end].decode().split()
        shape = [int(e) for e in extents]
        n = int(numpy.prod(shape))
        numbers = numpy.frombuffer(run.stdout, dtype="<f4", count=n, offset=end + 1)
        found[name] = torch.from_numpy(numbers.astype("f8").reshape(shape)).squeeze()
        at = end + 1 + 4 * n
    return found


class Operations(unittest.TestCase):
    dtype = "float32"

    @classmethod
    def setUpClass(cls):
        cls.all = arrays(cls.dtype)

    def near(self, name, want, dtype=None):
        got = self.all[name]
        self.assertEqual(got.shape, want.shape, name)
        allowed = HALF_STEP[dtype or self.dtype] * 1.001 * want.abs() + FP32 * want.abs().max()
        worst = ((got - want).abs() / allowed).max().item()
        self.assertLessEqual(worst, 1.0, f"{name}: {worst} times what is allowed")

    def check(self, op, function, inputs, grads=()):
        """function(inputs) is op.y; grads: input -> the name of its gradient, of a dtype (None: that of the run)."""
        given = {i: self.all[f"{op}.{i}"].clone().requires_grad_() for i in inputs}
        y = function(**given)
        self.near(f"{op}.y", y.detach(), None if op != "loss" and "router" not in op else "float32")
        if grads:
            y.backward(self.all[f"{op}.dy"])
        for i, (grad, dtype) in dict(grads).items():
            self.near(f"{op}.{grad}", given[i].grad, dtype)

    def test_matmul(self):
        self.check("matmul", lambda x, w: x @ w.T, "xw", {"x": ("dx", None), "w": ("dw", "float32")})

    def test_rmsnorm(self):
        self.check("rmsnorm", lambda x, w: torch.nn.functional.rms_norm(x, x.shape[-1:], w, 1e-5), "xw",
                   {"x": ("dx", None), "w": ("dw", "float32")})

    def test_rope(self):
        def rope(x):
            half = x.shape[-1] // 2
            frequency = 1.0 / 10000 ** (torch.arange(half, dtype=torch.float32) / half)
            angles = torch.outer(torch.arange(100, 100 + x.shape[0], dtype=torch.float32), frequency)
            angles = torch.cat((angles, angles), -1)[:, None, :]
            cos, sin = (f(angles).to(getattr(torch, self.dtype)).double() for f in (torch.cos, torch.sin))
            return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

        self.check("rope", rope, "x", {"x": ("dx", None)})

    def test_attention(self):
        def attention(q, k, v):
            rows, groups, heads, d = q.shape
            keys = k.shape[0]
            seen = torch.arange(keys)[None, :] <= torch.arange(keys - rows, keys)[:, None]
            q = q.permute(1, 2, 0, 3)
            k, v = (t.permute(1, 0, 2)[:, None] for t in (k, v))
            y = torch.nn.functional.scaled_dot_product_attention(
                q, k.expand(-1, heads, -1, -1), v.expand(-1, heads, -1, -1), attn_mask=seen)
            return y.permute(2, 0, 1, 3)

        self.check("attention", attention, "qkv",
                   {"q": ("dq", None), "k": ("dk", "float32"), "v": ("dv", "float32")})

    def test_swiglu(self):
        def swiglu(x):
            gate, up = x.chunk(2, -1)
            return torch.nn.functional.silu(gate) * up

        self.check("swiglu", swiglu, "x", {"x": ("dx", None)})

    def test_embedding(self):
        tokens = self.all["embedding.tokens"].long()
        self.check("embedding", lambda w: torch.nn.functional.embedding(tokens, w), "w", {"w": ("dw", "float32")})

    def router(self, number, function):
        op = f"router{number}"
        chosen = self.all[op + ".chosen"].long()
        logits = self.all[op + ".logits"]
        wanted = torch.sigmoid(logits) + self.all[op + ".bias"] if op + ".bias" in self.all else logits
        self.assertTrue(torch.equal(chosen, torch.topk(wanted, chosen.shape[1]).indices))
        self.check(op, lambda logits: function(logits, chosen), ["logits"], {"logits": ("dx", "float32")})

    def test_router_softmax_of_topk(self):
        self.router(0, lambda logits, chosen: logits.gather(1, chosen).softmax(-1))

    def test_router_topk_of_softmax(self):
        self.router(1, lambda logits, chosen: logits.softmax(-1).gather(1, chosen))

    def test_router_sigmoid(self):
        def probs(logits, chosen):
            scores = torch.sigmoid(logits).gather(1, chosen)
            return scores / (scores.sum(-1, keepdim=True) + 1e-20)

        self.router(2, probs)

    def test_combine(self):
        self.check("combine", lambda x, probs: torch.einsum("trh,rt->rh", x, probs), ["x", "probs"],
                   {"x": ("dx", None), "probs": ("d_probs", "float32")})

    def test_loss(self):
        labels = self.all["loss.labels"].long()
        self.check("loss", lambda x: torch.nn.functional.cross_entropy(x, labels, reduction="none"), "x",
                   {"x": ("dx", None)})

    def optimizer(self, name, make):
        p = self.all[name + ".p"].clone().requires_grad_()
        optimizer = make([p])
        for _ in range(3):
            p.grad = self.all[name + ".g"].clone()
            optimizer.step()
        self.near(name + ".y", p.detach(), "float32")

    def test_adam_torch(self):
        self.optimizer("adam_torch", lambda p: torch.optim.AdamW(p, 0.01, (0.9, 0.95), 1e-8, 0.1))

    def test_sgd(self):
        self.optimizer("sgd", lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.01))
        self.optimizer("sgd_momentum", lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.01))

    def test_adam_te(self):
        """TransformerEngine's form: the decay is added to the update of the old weight."""
        p, g = self.all["adam_te.p"].clone(), self.all["adam_te.g"]
        m, v = torch.zeros_like(p), torch.zeros_like(p)
        for t in range(1, 4):
            m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
            p = p - 0.01 * ((m / (1 - 0.9**t)) / ((v / (1 - 0.95**t)).sqrt() + 1e-8) + 0.1 * p)
        self.near("adam_te.y", p, "float32")


class InBfloat16(Operations):
    dtype = "bfloat16"


class InFloat16(Operations):
    dtype = "float16"


if __name__ == "__main__":
    unittest.main()
