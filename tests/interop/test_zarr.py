# SPDX-License-Identifier: Apache-2.0
# test_zarr.py - zarr folders both ways: zarr and TensorStore read ours, we read what zarr writes.
import glob
import json
import os
import re
import shutil
import tarfile
import tempfile
import unittest

import numpy as np
import torch

from dcp_folder import STUB_PICKLE, Folder
from tool import dcpkit, dcpkit_fails, iteration, sample

try:
    import ml_dtypes  # registers bfloat16 with numpy
    import numcodecs
    import zarr
except ImportError:
    zarr = None
try:
    import tensorstore
except ImportError:
    tensorstore = None

METADATA = {"sharded_backend": "zarr", "sharded_backend_version": 1, "common_backend": "torch",
            "common_backend_version": 1}


def arrays(folder):
    """The keys of a folder: its folders that hold an array, without the locks."""
    return sorted(k for k in os.listdir(folder)
                  if not k.endswith(".sync") and os.path.exists(os.path.join(folder, k, ".zarray")))


def bits(array):
    """An array's elements as unsigned integers of the same size."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def tensor_bits(tensor):
    size = tensor.element_size()
    return tensor.contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]) \
        .numpy().view(f"u{size}")


def read(path):
    with open(path, "rb") as f:
        return f.read()


class Work(unittest.TestCase):
    def setUp(self):
        if zarr is None:
            self.skipTest("zarr 2 or ml_dtypes is missing")
        self.work = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.work)

    def convert(self, source, *options):
        out = os.path.join(self.work, os.path.basename(source) + "".join(options))
        dcpkit("convert", "--to", "zarr", *options, source, out)
        return iteration(out)


class Written(Work):
    def check_arrays(self, source, folder):
        """Every array has the bits of the torch_dist tensor of its name, for zarr and for TensorStore."""
        tensors = Folder(iteration(source)).load()
        keys = arrays(folder)
        self.assertEqual(set(keys), set(tensors))
        for key in keys:
            path = os.path.join(folder, key)
            want = tensor_bits(tensors[key])
            array = zarr.open(path, mode="r")
            self.assertEqual(array.shape, tuple(tensors[key].shape), key)
            np.testing.assert_array_equal(bits(array[...]), want, key)
            if tensorstore is not None:
                spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": path}}
                got = tensorstore.open(spec, open=True, read=True).result().read().result()
                np.testing.assert_array_equal(bits(got), want, key)

    def test_arrays(self):
        for name in ("torch_dist_b_dense_tp2pp2", "torch_dist_c_dense_tp2pp2"):
            for options in ((), ("--target-mesh", "tp=2")):
                with self.subTest(source=name, options=options):
                    self.check_arrays(sample(name), self.convert(sample(name), *options))

    def test_moe(self):
        """The names of a local model, which the sample is, and of Transformer Engine's."""
        name = "torch_dist_c_moe_ep2pp2"
        self.check_arrays(sample(name), self.convert(sample(name), "--target-impl", "local"))

    def test_like_the_golden(self):
        """Under its own mesh the golden's chunks come out as Megatron and zarr wrote them, byte for byte."""
        source = sample("zarr_dense_tp2dp2")
        torch_dist = os.path.join(self.work, "torch_dist")
        dcpkit("convert", "--to", "torch_dist", source, torch_dist)
        ours, theirs = self.convert(torch_dist, "--target-mesh", "tp=2"), iteration(source)
        keys = arrays(theirs)
        self.assertEqual([k.replace(".fp32_param.", ".param.") for k in keys], arrays(ours))
        for key in keys:
            mine = os.path.join(ours, key.replace(".fp32_param.", ".param."))
            names = sorted(os.listdir(os.path.join(theirs, key)))
            self.assertEqual(sorted(os.listdir(mine)), names, key)
            for name in names:
                self.assertEqual(read(os.path.join(mine, name)), read(os.path.join(theirs, key, name)),
                                 f"{key}/{name}")

    def test_objects(self):
        """Bare values, in archives that are named after their files, as torch.save does."""
        folder = self.convert(sample("torch_dist_b_dense_tp2pp2"))
        files = glob.glob(os.path.join(folder, "*", "*.pt"))
        self.assertTrue(files)
        for path in files:
            value = torch.load(path, weights_only=False, pickle_module=STUB_PICKLE)
            key = os.path.basename(os.path.dirname(path))
            self.assertIsInstance(value, list if key == "rng_state" else type(None), path)
            with open(path, "rb") as f:
                self.assertIn(os.path.basename(path)[:-3].encode() + b"/data.pkl", f.read(200))
        common = torch.load(os.path.join(folder, "common.pt"), weights_only=False, pickle_module=STUB_PICKLE)
        self.assertEqual(common["iteration"], 4)
        self.assertEqual(common["content_metadata"]["distrib_optim_sharding_type"], "fully_reshardable")
        with open(os.path.join(folder, "metadata.json"), encoding="ascii") as f:
            self.assertEqual(json.load(f), METADATA)


class Foreign(Work):
    """Arrays that zarr writes in ways that Megatron never did; `plain` is the same without them."""

    def put(self, key, data, **options):
        path = os.path.join(self.work, "in", key)
        array = zarr.open_array(path, mode="w", shape=data.shape, dtype=data.dtype, **options)
        array[...] = data

    def hashes(self):
        with open(os.path.join(self.work, "in", "metadata.json"), "w", encoding="ascii") as f:
            json.dump(METADATA, f)
        lines = dcpkit("hash", os.path.join(self.work, "in")).splitlines()
        return {key: digest for digest, key in (line.split(maxsplit=1) for line in lines) if len(digest) == 32}

    def check(self, data, cases):
        self.put("plain", data, chunks=data.shape, compressor=None)
        for key, options in cases.items():
            self.put(key, data, **options)
        hashes = self.hashes()
        self.assertEqual(set(hashes), {"plain", *cases})
        for key, digest in hashes.items():
            self.assertEqual(digest, hashes["plain"], key)

    def test_codecs(self):
        """Every codec, with edge chunks along both axes."""
        rng = np.random.default_rng(1)
        data = rng.integers(0, 50, (37, 53)).astype("<f4")
        codecs = {"none": None, "zlib": numcodecs.Zlib(1), "gzip": numcodecs.GZip(9), "zstd": numcodecs.Zstd(3),
                  "lz4": numcodecs.Blosc("lz4", 5, 1), "blosclz": numcodecs.Blosc("blosclz", 9, 0),
                  "bzstd": numcodecs.Blosc("zstd", 1, 2), "default": "default"}
        self.check(data, {key: {"chunks": (10, 16), "compressor": codec} for key, codec in codecs.items()})

    def test_grids(self):
        data = np.arange(7 * 5 * 3, dtype="<i8").reshape(7, 5, 3)
        self.check(data, {f"c{a}{b}{c}": {"chunks": (a, b, c), "compressor": None}
                          for a in (1, 3, 7, 9) for b in (2, 5) for c in (1, 2, 3)})

    def test_separator(self):
        data = np.arange(35, dtype="<u2").reshape(7, 5)
        self.check(data, {"slash": {"chunks": (2, 2), "dimension_separator": "/"}})

    def test_left_out(self):
        """Chunks of zeros that the writer left out."""
        data = np.zeros((6, 8), dtype="<f8")
        data[4:, :3] = 1.5
        self.check(data, {"sparse": {"chunks": (2, 2), "fill_value": 0, "write_empty_chunks": False}})
        self.assertFalse(os.path.exists(os.path.join(self.work, "in", "sparse", "0.0")))

    def test_dtypes(self):
        for dtype in ("<f2", "<f4", "<f8", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "|b1", "<c8",
                      "<c16"):
            with self.subTest(dtype=dtype):
                data = (np.arange(24) % 5).astype(dtype).reshape(4, 6)
                self.check(data, {"cut": {"chunks": (3, 2)}})
                shutil.rmtree(os.path.join(self.work, "in"))

    def test_bfloat16(self):
        """What Megatron does: zarr's "<V2" patched to TensorStore's name; and what is left when it could not."""
        data = np.arange(24, dtype="<f4").astype(ml_dtypes.bfloat16).reshape(4, 6)
        self.put("plain", data.view("<u2"), chunks=(4, 6), compressor=None)
        path = os.path.join(self.work, "in", "cut")
        zarr.create(data.shape, chunks=(2, 4), dtype=data.dtype, compressor=None, fill_value=None, store=path)
        json_path = os.path.join(path, ".zarray")
        text = read(json_path)
        self.assertIn(b'"<V2"', text)
        for name in (b"bfloat16", b"<V2"):
            with open(json_path, "wb") as f:
                f.write(text.replace(b"<V2", name))
            if name == b"bfloat16":
                zarr.open(path, mode="r+")[...] = data
            hashes = self.hashes()
            self.assertEqual(hashes["cut"], hashes["plain"], name)


class Modified(Work):
    """modify-state-dict on zarr folders and on archives of them, as zarr and torch read the result."""

    def modify(self, source, name, *ops):
        out = os.path.join(self.work, name)
        dcpkit("modify-state-dict", *(word for op in ops for word in ("--op", op)), source, out)
        return out

    def check_renamed(self, out):
        source = iteration(sample("zarr_dense_tp2dp2"))
        names = {k: re.sub(r"\.linear_fc([12])\.", r".fc\1.", k) for k in arrays(source) if "exp_avg_sq" not in k}
        self.assertEqual(arrays(out), sorted(names.values()))
        for old, new in names.items():
            want, got = (zarr.open(os.path.join(f, k), mode="r") for f, k in ((source, old), (out, new)))
            self.assertEqual((got.shape, got.chunks, got.dtype), (want.shape, want.chunks, want.dtype), new)
            np.testing.assert_array_equal(bits(got[...]), bits(want[...]), new)
        files = glob.glob(os.path.join(source, "*", "*.pt"))
        self.assertTrue(files)
        for path in files:
            new = re.sub(r"\.linear_fc([12])\.", r".fc\1.", os.path.relpath(path, source))
            self.assertEqual(read(os.path.join(out, new)), read(path), new)
            torch.load(os.path.join(out, new), weights_only=False, pickle_module=STUB_PICKLE)
        for name in ("common.pt", "metadata.json"):
            self.assertEqual(read(os.path.join(out, name)), read(os.path.join(source, name)))

    def test_rename_and_remove(self):
        """From folder and archive, to folder and archive."""
        run, packed = sample("zarr_dense_tp2dp2"), os.path.join(self.work, "in.tar.gz")
        with tarfile.open(packed, "w:gz") as tar:
            tar.add(run, "run")
        ops = (r"rename \.linear_fc([12])\. .fc\1.", "remove exp_avg_sq")
        for i, source in enumerate((run, packed)):
            self.check_renamed(iteration(self.modify(source, f"out{i}", *ops)))
            with tarfile.open(self.modify(source, f"out{i}.tar", *ops)) as tar:
                tar.extractall(os.path.join(self.work, f"unpacked{i}"))
            self.check_renamed(iteration(os.path.join(self.work, f"unpacked{i}")))

    def test_cast(self):
        source = iteration(sample("zarr_dense_tp2dp2"))
        out = iteration(self.modify(sample("zarr_dense_tp2dp2"), "cast", "cast ^decoder.*weight float32", "cast exp_avg float16"))
        self.assertEqual(arrays(out), arrays(source))
        for key in arrays(source):
            want, got = (zarr.open(os.path.join(f, key), mode="r") for f in (source, out))
            dtype = np.float16 if "exp_avg" in key else np.float32 if key.startswith("decoder") else want.dtype
            self.assertEqual((got.shape, got.chunks, got.dtype), (want.shape, want.chunks, np.dtype(dtype)), key)
            np.testing.assert_array_equal(bits(got[...]), bits(want[...].astype(dtype)), key)

    def test_foreign(self):
        """Edge chunks, compressors and left-out chunks, renamed and cast; chunks in folders are refused."""
        source = os.path.join(self.work, "iter_0000001")
        data = np.zeros((37, 53), dtype="<f4")
        data[5:20, 7:40] = np.random.default_rng(2).normal(size=(15, 33))
        cases = {"edge": {"chunks": (10, 16), "compressor": None}, "packed": {"chunks": (10, 16), "compressor": numcodecs.Zstd(3)},
                 "sparse": {"chunks": (4, 5), "fill_value": 0, "write_empty_chunks": False, "compressor": None}}
        for key, options in cases.items():
            for name in (key, key + ".cast"):
                zarr.open_array(os.path.join(source, name), mode="w", shape=data.shape, dtype=data.dtype, **options)[...] = data
        with open(os.path.join(source, "metadata.json"), "w", encoding="ascii") as f:
            json.dump(METADATA, f)
        out = self.modify(source, "out/iter_0000001", "cast cast$ float64", "rename ^ new.")
        for key in cases:
            for name, dtype in ((key, np.float32), (key + ".cast", np.float64)):
                got = zarr.open(os.path.join(out, "new." + name), mode="r")
                self.assertEqual(got.dtype, np.dtype(dtype), name)
                np.testing.assert_array_equal(got[...], data.astype(dtype), name)
        zarr.open_array(os.path.join(source, "slash"), mode="w", shape=(4, 4), chunks=(2, 2), dimension_separator="/")[...] = 1
        code, said = dcpkit_fails("modify-state-dict", "--op", "rename ^ x.", source, os.path.join(self.work, "no/iter_0000001"))
        self.assertEqual(code, 3)
        self.assertIn("dimension_separator", said)


if __name__ == "__main__":
    unittest.main()
