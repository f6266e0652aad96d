# SPDX-License-Identifier: Apache-2.0
# test_train.py - torch.distributed.checkpoint reads what a run saves, every number in its place: the run of
# tests/train/fake_run.h, whose numbers follow from names and places.
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.distributed.checkpoint import FileSystemReader

from dcp_folder import Folder, same
from tool import iteration

FAKE_RANKS = os.path.join(os.path.dirname(os.environ["DCPKIT"]), "tests", "fake_ranks")
PRIME = np.uint64(1099511628211)
QKV = "decoder.layers.{}.self_attention.linear_qkv.weight"
FC1 = "decoder.layers.{}.mlp.linear_fc1.weight"


def numbers(name, which, rows, columns):
    """fake_number() of a whole tensor. which: 0 parameter, 1 exp_avg, 2 exp_avg_sq."""
    with np.errstate(over="ignore"):
        h = np.uint64(1469598103934665603) + np.uint64(which)
        for byte in name.encode():
            h = (h ^ np.uint64(byte)) * PRIME
        h = (h ^ np.arange(rows, dtype=np.uint64)[:, None]) * PRIME
        h = (h ^ np.arange(columns, dtype=np.uint64)[None, :]) * PRIME
        h ^= h >> np.uint64(29)
    base = ((h >> np.uint64(40)).astype(np.float64) / (1 << 24)).astype(np.float32)
    return torch.from_numpy(base + np.float32(0.0 if which == 2 else -0.5))


def save(folder, *args):
    done = subprocess.run([FAKE_RANKS, "save", folder, *args], capture_output=True, text=True, check=False,
                          env={**os.environ, "DCPKIT_ALONE": "1"})
    if done.returncode != 0:
        raise AssertionError(f"fake_ranks save {' '.join(args)}: {done.stderr}")
    return iteration(folder)


def load(folder, wanted):
    """The tensors of these keys, as dcp.load fills them."""
    metadata = FileSystemReader(folder).read_metadata().state_dict_metadata
    state = {key: torch.empty(metadata[key].size, dtype=metadata[key].properties.dtype) for key in wanted}
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    return state


class Train(unittest.TestCase):
    def setUp(self):
        # pylint: disable=consider-using-with
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)

    def folder(self):
        return os.path.join(self.place.name, "run")

    def test_torch_dist(self):
        """Layers stacked; bf16 weights are the masters, rounded; moments as they were."""
        for generation in ("B", "C"):
            folder = save(self.folder() + generation, "torch_dist", "te", generation)
            for key, rows in ((QKV, 64), (FC1, 96)):
                stacked = key.replace("layers.{}", "layers")
                roles = {stacked: 0, f"optimizer.state.param.{stacked}": 0,
                         f"optimizer.state.exp_avg.{stacked}": 1, f"optimizer.state.exp_avg_sq.{stacked}": 2}
                for name, tensor in load(folder, roles).items():
                    self.assertEqual(tensor.dtype, torch.bfloat16 if name == stacked else torch.float32)
                    want = torch.stack([numbers(key.format(i), roles[name], rows, 32) for i in range(4)])
                    self.assertTrue(torch.equal(tensor, want.to(tensor.dtype)), name)

    def test_fsdp_dtensor(self):
        """fp32 masters are the model; gate and up apart."""
        folder = save(self.folder(), "fsdp_dtensor", "te,fsdp")
        optimizer = "optimizer.state.module.module.module."
        qkv, fc1 = QKV.format(3), FC1.format(2)
        for which, key in ((0, "model.module.{}"), (1, optimizer + "{}.exp_avg"), (2, optimizer + "{}.exp_avg_sq")):
            halves = [key.format(fc1 + half) for half in ("_w", "_v")]
            state = load(folder, [key.format(qkv), *halves])
            self.assertTrue(torch.equal(state[key.format(qkv)], numbers(qkv, which, 64, 32)), key)
            self.assertTrue(torch.equal(torch.cat([state[h] for h in halves]), numbers(fc1, which, 96, 32)), key)

    def test_buckets(self):
        """Optimizer state in buckets: the last parameter registered comes first, gate and up of a rank follow each other."""
        folder = save(self.folder(), "torch_dist", "tp=1,buckets", "C")
        bucket = "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_0."
        for which, state in ((0, "param"), (1, "exp_avg"), (2, "exp_avg_sq")):
            flat = load(folder, [bucket + state])[bucket + state]
            for i, name in enumerate(("output_layer.weight", "embedding.word_embeddings.weight")):
                want = numbers(name, which, 128, 32).flatten()
                self.assertTrue(torch.equal(flat[:want.numel()] if i == 0 else flat[-want.numel():], want), name)

    def test_rng_state(self):
        """Each generator is as the run's seed, 1234, leaves it."""
        kept = random.getstate(), np.random.get_state(), torch.get_rng_state()
        random.seed(1234)
        np.random.seed(1234)
        torch.manual_seed(1234)
        want = random.getstate(), np.random.get_state(), torch.get_rng_state()
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        torch.set_rng_state(kept[2])
        states = Folder(save(self.folder(), "torch_dist", "te", "C")).object("rng_state/shard_0.0_1.1")[0][0]
        for name, state in zip(("random_rng_state", "np_rng_state", "torch_rng_state"), want):
            self.assertTrue(same(states[name], state), name)
        trackers = states["rng_tracker_states"]
        for state, seed in ((states["cuda_rng_state"], 1234), (trackers["data-parallel-rng"], 1234),
                            (trackers["model-parallel-rng"], 3952), (trackers["expert-parallel-rng"], 2258)):
            self.assertEqual(bytes(state.tolist()), struct.pack("<QQ", seed, 0))

    def test_tensorboard(self):
        """TensorBoard's own reader, which checks the sums of all records, has the numbers of the log."""
        log, folder = os.path.join(self.place.name, "log"), os.path.join(self.place.name, "new", "events")
        tiny = os.path.join(os.path.dirname(__file__), "..", "..", "tools", "train_tiny.json")
        for end in "4", "6":  # a second run has a file of its own
            subprocess.run([os.environ["DCPKIT"], "train", "--quiet", "--config", tiny, "--exit-at", end, "--save-interval", "4",
                            "--save", os.path.join(self.place.name, "run"), "--log", log, "--tensorboard-dir", folder,
                            "--tensorboard-log-interval", "2", "--log-timers-to-tensorboard", "--log-throughput",
                            *(["--load", os.path.join(self.place.name, "run")] if end == "6" else [])], check=True)
        with open(log, encoding="utf-8") as lines:
            steps = [step for step in map(json.loads, lines) if step.get("iteration", 1) % 2 == 0]
        self.assertEqual([step["iteration"] for step in steps], [2, 4, 6])
        events = EventAccumulator(folder, size_guidance={"scalars": 0}).Reload()
        for tag, of in ("lm loss", "loss"), ("grad-norm", "grad_norm"), ("loss-scale", "loss_scale"):
            wanted = [np.float32(step[of]) for step in steps]
            for name, by in (tag, "iteration"), (tag + " vs samples", "consumed_samples"):
                self.assertEqual([(e.step, np.float32(e.value)) for e in events.Scalars(name)],
                                 [(step[by], value) for step, value in zip(steps, wanted)])
        for tag in "learning-rate", "batch-size", "iteration-time", "throughput":
            self.assertEqual([e.step for e in events.Scalars(tag)], [2, 4, 6])
            self.assertTrue(all(e.value > 0 for e in events.Scalars(tag)))

    def test_a13_two_ranks(self):
        """Two ranks of torch load their halves: the tensors that one loads, which the tests above hold to their numbers."""
        for form in (["torch_dist", "te", "C"], ["torch_dist", "te,buckets", "C"], ["fsdp_dtensor", "te,fsdp"]):
            folder = save(self.folder() + form[0] + form[1], *form)
            done = subprocess.run([sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone",
                                   "--nproc-per-node", "2", os.path.join(os.path.dirname(__file__), "dcp_world.py"), folder],
                                  capture_output=True, text=True, check=False, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, "2 ranks: [0-9]+ tensors equal")


if __name__ == "__main__":
    unittest.main()
