# SPDX-License-Identifier: Apache-2.0
# test_objects.py - an object that cannot be understood never stops a conversion: it is named and dropped, all else is there.
import argparse
import io
import json
import os
import pickle
import random
import shutil
import tempfile
import unittest

import numpy as np
import torch
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, MetadataIndex
from torch.distributed.checkpoint.filesystem import _StorageInfo

from dcp_folder import Folder, is_plain
from tool import dcpkit, dcpkit_fails, sample


class Stranger:
    """Of a class that no reader knows."""

    def __init__(self):
        self.states = [1, 2, 3]


def saved(value):
    """The item that torch writes of a value."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def damaged(value):
    """The same with a bit of its pickle flipped: the checksum no longer fits."""
    item = bytearray(saved(value))
    item[item.index(b"\x80\x02]") + 4] ^= 1
    return bytes(item)


# What stands in the place of an object; each is a list of a list only where it says so.
ODD = {
    "a number": saved(5), "a list": saved([1]), "a dict": saved({"rng": 1}), "a stranger": saved(Stranger()),
    "no item": b"not what torch.save writes", "nothing": b"", "cut": saved([[{"a": 1}]])[:300], "damaged": damaged([[{"a": 1}]]),
}


FORMS = (["fsdp_dtensor"], ["torch_dist", "--target-generation", "B"], ["zarr"])


def rng(**fields):
    """The states of one rank, as get_rng_state of Megatron gathers them, but for these fields; None: without it."""
    state = {
        "random_rng_state": random.getstate(), "np_rng_state": np.random.get_state(), "torch_rng_state": torch.get_rng_state(),
        "cuda_rng_state": torch.zeros(16, dtype=torch.uint8), "rng_tracker_states": {"model-parallel-rng": torch.zeros(16, dtype=torch.uint8)},
    }
    return {name: value for name, value in {**state, **fields}.items() if value is not None}


# Lists of a list, which are no RNG states of a rank all the same.
ODD_RNG = {
    "of no rank": [], "a text": ["a"], "a list": [[5]], "an empty dict": [{}], "a part": [{"random_rng_state": 5}],
    "no CUDA": [rng(cuda_rng_state=None)], "one rank of two": [rng(), {}], "a name that is none": [rng() | {5: 1}],
    "a list for a tensor": [rng(torch_rng_state=[1, 2])], "floats": [rng(torch_rng_state=torch.zeros(16))],
    "rows": [rng(cuda_rng_state=torch.zeros(4, 4, dtype=torch.uint8))], "no bytes": [rng(cuda_rng_state=torch.zeros(0, dtype=torch.uint8))],
    "a tracker of lists": [rng(rng_tracker_states={"a": [1]})], "trackers in a list": [rng(rng_tracker_states=[])],
    "a dict more": [rng(mine={"a": {5: 1}})], "lists for tuples": [rng(random_rng_state=[3, [1], None])],
}


def put(folder, key, item):
    """Let an object of a DCP folder be these bytes, under a key that may be new."""
    path = os.path.join(folder, ".metadata")
    with open(path, "rb") as f:
        metadata = pickle.load(f)
    name = f"__{len(os.listdir(folder))}_9.distcp"
    with open(os.path.join(folder, name), "wb") as f:
        f.write(item)
    metadata.state_dict_metadata[key] = BytesStorageMetadata()
    metadata.storage_data[MetadataIndex(key)] = _StorageInfo(name, 0, len(item))
    with open(path, "wb") as f:
        pickle.dump(metadata, f)


class Objects(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.mkdtemp(prefix="dcpkit-objects-")
        self.addCleanup(shutil.rmtree, self.work)

    def copy(self, name):
        run = os.path.join(self.work, "in")
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(sample(name), run)
        return os.path.join(run, "iter_0000004")

    def convert(self, folder, form, *options, name="out"):
        """
        Converted, with proof: (its folder, what was dropped and why). The input's checksums are not part of the proof
        here: they stop at every damaged object, also at one that the target does not keep.
        """
        out = os.path.join(self.work, name, "iter_0000004")
        report = os.path.join(self.work, "report.json")
        dcpkit("convert", "--force", "--verify", "--no-check-input", "--to", form, "--report", report, *options, folder, out)
        with open(report, encoding="utf-8") as f:
            return out, {entry["key"]: entry["reason"] for entry in json.load(f)["dropped"]}

    def check(self, folder, key, forms):
        """Every form takes the folder, names the key, and has the weights."""
        for form, *options in forms:
            with self.subTest(key=key, form=form):
                _, dropped = self.convert(folder, form, *options)
                self.assertIn(key, dropped)
                if not options:
                    self.assertIn("verdict     ok", dcpkit("verify", "--against", folder, os.path.join(self.work, "out")))

    def test_rng_of_every_rank(self):
        forms = (["fsdp_dtensor"], ["torch_dist", "--target-generation", "B"], ["zarr"], ["fsdp_dtensor", "--weights-only"])
        key = "rng_state/shard_0.0.1_2.1.2"
        for what, item in ODD.items():
            with self.subTest(what=what):
                folder = self.copy("v016_moe_ep2pp2")
                put(folder, key, item)
                self.check(folder, key, forms)
                self.assertIn("equal", dcpkit("compare-two-checkpoint", folder, folder))

    def test_rng_of_other_fields(self):
        """One judge for all formats; --verify agrees with what is left."""
        key = "rng_state/shard_0.0_1.2"
        for what, states in ODD_RNG.items():
            folder = self.copy("torch_dist_c_dp_reshardable_tp2dp2")
            put(folder, key, saved([states]))
            with self.subTest(what=what):
                self.check(folder, key, FORMS)
        for what, states in {"a field more": [rng(mine=5)], "two ranks": [rng(), rng()], "no tracker": [rng(rng_tracker_states={})]}.items():
            folder = self.copy("torch_dist_c_dp_reshardable_tp2dp2")
            put(folder, key, saved([states]))
            for form, *options in FORMS:
                with self.subTest(what=what, form=form):
                    self.assertNotIn(key, self.convert(folder, form, *options)[1])

    def test_the_scheduler(self):
        """What is no dict of settings is dropped, an odd entry is dropped by its name."""
        whole, entry = "opt_param_scheduler", "opt_param_scheduler."
        settings = {"max_lr": 0.1, "lr_decay_style": "cosine", "num_steps": 3}
        odd = [([1], whole), (5, whole), (True, whole), ("a", whole), ({}, whole), ([{"a": 1}], whole), (torch.ones(2), whole),
               ({5: 1} | settings, entry + "?"), ({(1, 2): 1} | settings, entry + "?"), ({"": 1} | settings, entry), ({"a.b": 1} | settings, entry + "a.b"),
               ({"a": {"b": 1}} | settings, entry + "a"), ({"a": [{"b": 1}]} | settings, entry + "a"), ({"a": [torch.ones(2)]} | settings, entry + "a"),
               ({"a": torch.ones(2)} | settings, entry + "a"), ({"a": {}} | settings, entry + "a"), ({5: 1}, entry + "?")]
        folder = self.copy("torch_dist_b_dense_tp2pp2")
        path = os.path.join(folder, "common.pt")
        common = Folder(folder).common()
        common["args"] = argparse.Namespace(**{k: v for k, v in vars(common["args"]).items() if is_plain(v)})
        for value, key in odd:
            common["opt_param_scheduler"] = value
            torch.save(common, path)
            self.check(folder, key, FORMS)
            out, _ = self.convert(folder, "torch_dist", "--target-generation", "B")
            kept = Folder(out).common().get("opt_param_scheduler")
            self.assertEqual(kept, settings if isinstance(value, dict) and "max_lr" in value else None, value)
        common["opt_param_scheduler"] = settings | {"betas": (0.9, 0.95), "steps": [1, 2], "none": None}
        torch.save(common, path)
        for form, *options in FORMS:
            self.assertEqual([key for key in self.convert(folder, form, *options)[1] if key.startswith(whole)], [])

    def test_the_first_rng_of_a_rank(self):
        """Without it the rank has none: args say so, and nothing is written that a loader would trip over."""
        folder = self.copy("v016_moe_ep2pp2")
        put(folder, "rng_state/shard_0.0.0_2.1.2", ODD["a number"])
        out, _ = self.convert(folder, "torch_dist", "--target-generation", "B")
        self.assertTrue(Folder(out).common()["args"].no_save_rng)
        put(folder, "rng_state/shard_0.0_2.1", saved([[rng()]]))
        out, _ = self.convert(folder, "torch_dist", "--target-generation", "B")
        self.assertFalse(Folder(out).common()["args"].no_save_rng)

    def test_keys_of_no_known_form(self):
        forms = (["fsdp_dtensor"], ["torch_dist", "--target-generation", "B"])
        for key in ("rng_state/shard_0_2", "rng_state/shard_0.0", "rng_state/shard_2.0_2.1", "rng_state/shard_x.0_2.1", "rng_state/shard_",
                    "rng_state/shard_0.0.0_2.1", "other.rng_state/shard_0.0_2.1", "strange/shard_0_1", "strange",
                    "decoder.layers.mlp.layers.x._extra_state/shard_0_1", "decoder.x._extra_state", "optimizer.strange"):
            folder = self.copy("v016_moe_ep2pp2")
            put(folder, key, saved([[{}]]))
            self.check(folder, key, forms)

    def test_extra_state(self):
        key = "decoder.layers.0.mlp.linear_fc1._extra_state/shard_0_1"
        for what in ("a number", "no item", "nothing", "cut"):
            folder = self.copy("v016_moe_ep2pp2")
            put(folder, key, ODD[what])
            with self.subTest(what=what):
                self.convert(folder, "fsdp_dtensor")
                out, dropped = self.convert(folder, "zarr")
                self.assertIn(key, dropped)
                back, _ = self.convert(out, "torch_dist", name="back")
                self.assertEqual(Folder(back).object(key), [None])

    def test_more_axes_than_any_release_has(self):
        folder = self.copy("v016_moe_ep2pp2")
        states = Folder(folder).object("rng_state/shard_0.0.0_2.1.2")
        for a in range(2):
            for b in range(2):
                states_of_two = rng(torch_rng_state=torch.tensor([a, b], dtype=torch.uint8))
                put(folder, f"rng_state/shard_0.0.{a}.{b}_1.1.2.2", saved([[states_of_two]]))
        out, _ = self.convert(folder, "torch_dist", "--target-generation", "B")
        self.assertEqual(Folder(out).object("rng_state/shard_0.0_2.1")[0][0].keys(), states[0][0].keys())

    def test_groups_do_not_matter_to_weights(self):
        folder = self.copy("torch_dist_b_dense_tp2pp2")
        path = os.path.join(folder, "common.pt")
        common = Folder(folder).common()
        common["args"] = argparse.Namespace(**{k: v for k, v in vars(common["args"]).items() if is_plain(v)})
        for groups in (5, [5], {"a": 1}):
            common["optimizer"]["optimizer"]["param_groups"] = groups
            torch.save(common, path)
            with self.subTest(groups=groups):
                self.assertEqual(dcpkit_fails("convert", "--to", "fsdp_dtensor", folder, os.path.join(self.work, "no"))[0], 3)
                self.convert(folder, "fsdp_dtensor", "--weights-only")

    def test_fsdp_state(self):
        forms = (["torch_dist"], ["zarr"])
        for key in ("checkpoint_version", "num_floating_point_operations_so_far", "opt_param_scheduler.max_lr",
                    "rng_state.(0, 0).0.random_rng_state", "rng_state.(0, 0)", "rng_state.(0, 0, 0).0.random_rng_state", "strange"):
            folder = self.copy("fsdp_dtensor_native_dp2")
            put(folder, key, ODD["no item"])
            self.check(folder, key, forms)
        for key in ("args", "iteration"):
            folder = self.copy("fsdp_dtensor_native_dp2")
            put(folder, key, ODD["no item"])
            status, message = dcpkit_fails("convert", "--to", "torch_dist", folder, os.path.join(self.work, "no"))
            self.assertEqual(status, 3)
            self.assertIn(f"'{key}'", message)


if __name__ == "__main__":
    unittest.main()
