# SPDX-License-Identifier: Apache-2.0
# test_default.py - `convert --to fsdp_dtensor` against what torch computes from the source.
import functools
import io
import json
import math
import os
import shutil
import subprocess
import tempfile
import unittest

import torch

from dcp_folder import Folder, is_plain, same, same_tensor
from expected import Expected
from tool import MAKE_CHECKPOINT, dcpkit, dcpkit_fails, iteration, sample

SOURCES = ["torch_dist_a_dense_tp2pp2", "torch_dist_b_dense_tp2pp2", "torch_dist_c_dense_tp2pp2",
           "torch_dist_c_moe_ep2pp2", "torch_dist_c_fp32_dp1"]

# args of a run without pipeline stages (megatron/training/arguments.py@core_v0.19.0, validate_args).
ONE_STAGE = {
    "pipeline_model_parallel_size": 1, "transformer_pipeline_model_parallel_size": 1,
    "account_for_embedding_in_pipeline_split": False, "account_for_loss_in_pipeline_split": False,
    "decoder_first_pipeline_num_layers": None, "decoder_last_pipeline_num_layers": None,
    "num_layers_per_virtual_pipeline_stage": None, "num_virtual_stages_per_pipeline_rank": None,
    "pipeline_model_parallel_layout": None, "virtual_pipeline_model_parallel_size": None,
}


def few(items):
    items = sorted(items)
    return f"{len(items)}: {items[:8]}"


def open_bytes(path):
    with open(path, "rb") as f:
        return f.read()


def group_map(source):
    """Megatron's own map of parameters to groups, where there is one beside the run folder `source`."""
    path = os.path.join(source + "_p2g", "param_to_param_group_map.json")
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def per_source(test):
    """Run a test for every case; one that fails does not hide the others."""
    @functools.wraps(test)
    def run(self):
        for case in self.cases:
            with self.subTest(source=case[0]):
                test(self, *case)
    return run


class Converted(unittest.TestCase):
    """Each source is converted once; `cases` lists (source, Expected, Folder)."""

    options = []

    @classmethod
    def sources(cls):
        return [sample(name) for name in SOURCES]

    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.work)
        cls.cases = []
        for source in cls.sources():
            out = cls.out_of(source)
            dcpkit("convert", "--to", "fsdp_dtensor", *cls.options, source, out)
            wanted = Expected(Folder(iteration(source)), "any", group_map(source))
            cls.cases.append((source, wanted, Folder(iteration(out))))

    @classmethod
    def out_of(cls, source, suffix=""):
        return os.path.join(cls.work, os.path.basename(source) + "_out" + suffix)

    @per_source
    def test_keys(self, _source, wanted, got):
        for what, want, have in (("tensor", set(wanted.tensors), set(got.tensors)),
                                 ("object", {*wanted.objects, "args"}, set(got.objects))):
            self.assertFalse(want - have, f"missing {what} keys {few(want - have)}")
            self.assertFalse(have - want, f"unexpected {what} keys {few(have - want)}")

    @per_source
    def test_tensors(self, _source, wanted, got):
        tensors = got.load()
        for key, want in wanted.tensors.items():
            have = tensors[key]
            self.assertEqual((have.dtype, have.shape), (want.dtype, want.shape), key)
            self.assertTrue(same_tensor(have, want), f"{key}: other bits")
        for key in tensors:
            self.assertIsNone(got.cover_fault(key), key)

    @per_source
    def test_masters(self, _source, wanted, _got):
        """What is wanted is right: the stored weight is its rounded master."""
        self.assertEqual(wanted.unrounded, [])

    @per_source
    def test_objects(self, _source, wanted, got):
        for key, want in wanted.objects.items():
            have = got.object(key, stubs=False)
            self.assertTrue(same(have, want), f"{key}: {have!r:.100} is not {want!r:.100}")

    @per_source
    def test_args(self, _source, wanted, got):
        """
        Every attribute that is plain data, and no other: an older Megatron may lack its class. What the target
        determines is the target's: its format, one pipeline stage, and the ranks of such a run with the source's
        data parallelism (validate_args: world_size is tp x pp x cp x dp).
        """
        have = vars(got.object("args", stubs=False))
        want = {k: v for k, v in vars(wanted.args).items() if is_plain(v)}
        want.update({k: v for k, v in ONE_STAGE.items() if k in want})
        want.update({"ckpt_format": "fsdp_dtensor", "use_megatron_fsdp": True})
        if "world_size" in want:
            sizes = [want.get(f"{name}_parallel_size", 1) for name in ("tensor_model", "context")]
            want["world_size"] = sizes[0] * sizes[1] * want["data_parallel_size"]
        self.assertEqual(set(have), set(want))
        for key, value in want.items():
            self.assertTrue(same(have[key], value), f"args.{key}: {have[key]!r} is not {value!r}")

    @per_source
    def test_aliases(self, _source, wanted, got):
        """All names of a tensor have the same chunks at the same file, offset and length."""
        n_aliases = 0
        for keys in wanted.alias_sets:
            for key in keys[1:]:
                self.assertEqual(got.chunks(key), got.chunks(keys[0]), f"{key} and {keys[0]}")
                n_aliases += 1
        self.assertGreater(n_aliases, 0)

    @per_source
    def test_places(self, _source, _wanted, got):
        """Items lie inside their files, are the same or apart, and large ones start at a page."""
        places = {p for by_offset in got.places.values() for p in by_offset.values()}
        end = {}
        for file, offset, length in sorted(places):
            self.assertGreaterEqual(offset, end.get(file, 0), f"{file} at {offset}: items overlap")
            self.assertTrue(length < 1 << 20 or offset % 4096 == 0, f"{file}: {length} bytes at {offset}")
            end[file] = offset + length
        for file, at in end.items():
            self.assertLessEqual(at, os.path.getsize(os.path.join(got.path, file)), file)

    @per_source
    def test_tensor_items(self, _source, _wanted, got):
        """Each is a torch.save archive that the strict unpickler takes, holding just its chunk."""
        for key, tensor in got.tensors.items():
            for offsets, sizes, place in got.chunks(key):
                item = torch.load(io.BytesIO(got.bytes_at(place)), weights_only=True)
                have = (item.dtype, tuple(item.shape), item.is_contiguous())
                self.assertEqual(have, (tensor.properties.dtype, sizes, True), f"{key} at {offsets}")

    @per_source
    def test_folder(self, source, _wanted, got):
        """Nothing beside .metadata and payload files, and a tracker as Megatron writes it."""
        others = [f for f in os.listdir(got.path) if not f.endswith(".distcp")]
        self.assertEqual(others, [".metadata"])
        tracker = os.path.join(os.path.dirname(got.path), "latest_checkpointed_iteration.txt")
        with open(tracker, "rb") as f:
            self.assertEqual(f.read(), b"4", source)

    @per_source
    def test_metadata(self, _source, _wanted, got):
        self.assertFalse(hasattr(got.metadata, "mcore_data"))
        self.assertEqual(set(got.metadata.planner_data), set(got.tensors) | set(got.objects))
        for key, path in got.metadata.planner_data.items():
            self.assertEqual(path, (key,))

    @per_source
    def test_one_spelling(self, source, _wanted, _got):
        """--target-impl te and local: the names of that implementation alone, with the same bits."""
        for target in ("te", "local"):
            out = self.out_of(source, target)
            dcpkit("convert", "--to", "fsdp_dtensor", "--target-impl", target, source, out)
            wanted = Expected(Folder(iteration(source)), target)
            got = Folder(iteration(out))
            want, have = {*wanted.tensors, *wanted.objects, "args"}, {*got.tensors, *got.objects}
            self.assertFalse(want ^ have, f"{target}: {few(want - have)} and {few(have - want)}")
            tensors = got.load()
            for key in tensors:
                self.assertTrue(same_tensor(tensors[key], wanted.tensors[key]), f"{target}: {key}")

    @per_source
    def test_map(self, source, _wanted, got):
        """Megatron's map gives the groups that are derived without it; one that lacks a name is refused."""
        mapping = group_map(source)
        if mapping is None:
            return
        path = os.path.join(self.work, "map.json")
        for cut in (False, True):
            name = next(k for k in mapping if k.endswith("output_layer.weight"))
            some = {k: v for k, v in mapping.items() if not cut or k != name}
            with open(path, "w", encoding="utf-8") as f:
                json.dump(some, f)
            out = self.out_of(source, f"_map{cut}")
            args = ["convert", "--to", "fsdp_dtensor", "--param-to-param-group-map-json", path, source, out]
            if cut:
                self.assertIn("output_layer.weight", dcpkit_fails(*args)[1])
                self.assertFalse(os.path.exists(out))
            else:
                dcpkit(*args)
                mapped = Folder(iteration(out))
                for key in (k for k in got.objects if ".param_to_group_meta." in k):
                    self.assertTrue(same(mapped.object(key), got.object(key)), key)

    @per_source
    def test_python_name(self, source, _wanted, got):
        """The subcommand that is named as Megatron's writes the same bytes."""
        out = self.out_of(source, "_named")
        dcpkit("convert-torch-dist-to-fsdp-dtensor", *self.options, source, out)
        ours, named = ({name: open_bytes(os.path.join(folder, name)) for name in sorted(os.listdir(folder))}
                       for folder in (got.path, iteration(out)))
        self.assertEqual(list(ours), list(named))
        for name, data in ours.items():
            self.assertEqual(data, named[name], name)


class Large(Converted):
    """Tensors over 64 MiB, which are cut, and over --memory, which go through in slabs."""

    options = ["--threads", "3", "--memory", "16M"]
    test_one_spelling = None
    test_masters = None  # random

    @classmethod
    def sources(cls):
        source = os.path.join(cls.work, "synthetic")
        golden = iteration(sample("torch_dist_c_dense_tp2pp2"))
        subprocess.run([MAKE_CHECKPOINT, "--like", golden, "--layers", "2", "--hidden", "1024", "--ffn", "192",
                        "--vocab", "17000", source], check=True, stdout=subprocess.DEVNULL)
        return [source]

    @per_source
    def test_chunks(self, _source, _wanted, got):
        """Whole rows, at most 64 MiB, and not more chunks than that takes."""
        key = "model.module.embedding.word_embeddings.weight"
        chunks = got.tensors[key].chunks
        self.assertEqual(len(chunks), 2)
        for tensor in got.tensors.values():
            for chunk in tensor.chunks:
                self.assertEqual(chunk.sizes[1:], tensor.size[1:])
                n_bytes = math.prod(chunk.sizes) * tensor.properties.dtype.itemsize
                self.assertLessEqual(n_bytes, 64 << 20)


if __name__ == "__main__":
    unittest.main()
