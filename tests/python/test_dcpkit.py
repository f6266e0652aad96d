# SPDX-License-Identifier: Apache-2.0
"""dcpkit from Python: what torch reads of the same folders, what numpy picks, what is refused.

    DCPKIT_LIBRARY=build/libdcpkit.so DCPKIT_SAMPLES=build/samples PYTHONPATH=tools/python \\
        python3 -m pytest tests/python        (or -m unittest discover tests/python)

Without numpy or torch the tests that need them are skipped.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import dcpkit

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
    import torch.distributed.checkpoint as dcp
except ImportError:
    torch = None

SAMPLES = pathlib.Path(os.environ["DCPKIT_SAMPLES"])
SAMPLE = SAMPLES / "torch_dist_c_dense_tp2pp2"
ITERATION = SAMPLE / "iter_0000004"
FC1 = "decoder.layers.mlp.linear_fc1.weight"


class Opening(unittest.TestCase):
    def test_a_folder_and_its_run_are_the_same(self):
        with dcpkit.open(ITERATION) as one, dcpkit.open(SAMPLE, format="torch_dist") as other:
            self.assertEqual(one.format, "torch_dist")
            self.assertEqual(list(one), list(other))
            self.assertIn(FC1, one)
            self.assertNotIn("there.is.none", one)
            with self.assertRaises(KeyError):
                one["there.is.none"]

    def test_what_cannot_be_opened_is_told(self):
        with self.assertRaisesRegex(dcpkit.SystemError, "/nowhere/at/all"):
            dcpkit.open("/nowhere/at/all")
        with self.assertRaises(OSError):
            dcpkit.open("/nowhere/at/all")
        with self.assertRaisesRegex(dcpkit.UsageError, "no_format"):
            dcpkit.open(ITERATION, format="no_format")
        with self.assertRaises(dcpkit.UsageError):
            dcpkit.open(ITERATION, threads=-1)

    def test_names_are_bytes(self):
        with self.assertRaisesRegex(dcpkit.SystemError, "/nowhere/\ufffd"):
            dcpkit.open(b"/nowhere/\xff")
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, os.fsdecode(b"\xff"))
            shutil.copytree(SAMPLES / "zarr_dense_tp2dp2/iter_0000004", out)
            plain = "decoder.final_layernorm.weight"
            key = plain + os.fsdecode(b"\xfe")
            os.rename(os.path.join(out, plain), os.path.join(out, key))
            with dcpkit.open(out) as ckpt, dcpkit.open(SAMPLES / "zarr_dense_tp2dp2") as source:
                self.assertIn(key, list(ckpt))
                self.assertEqual(ckpt[key].hash(), source[plain].hash())
                self.assertNotIn(plain, ckpt)

    def test_another_library_is_named(self):
        code = "import ctypes.util, os\nos.environ['DCPKIT_LIBRARY'] = ctypes.util.find_library('c')\nimport dcpkit"
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertRegex(ended.stderr, r"ImportError: libc\.so\S* \(dcpkit .*\) has no dcpkit_")

    def test_a_closed_one_is_of_no_use(self):
        ckpt = dcpkit.open(ITERATION)
        ckpt.close()
        ckpt.close()
        with self.assertRaisesRegex(dcpkit.UsageError, "closed"):
            ckpt[FC1]
        tensorless = dcpkit.open(ITERATION)
        tensor = tensorless[FC1]
        tensorless.close()
        with self.assertRaisesRegex(dcpkit.UsageError, "closed"):
            tensor.read()

    def test_state_is_json(self):
        with dcpkit.open(ITERATION) as ckpt:
            self.assertEqual(ckpt.json("iteration"), 4)
            self.assertEqual(ckpt.json("args.num_layers"), 4)
            self.assertEqual(ckpt.json("common")["iteration"], 4)
            self.assertEqual(len(ckpt.objects), len(set(ckpt.objects)))
            with self.assertRaisesRegex(dcpkit.UsageError, "there.is.none"):
                ckpt.json("there.is.none")


class Reading(unittest.TestCase):
    def test_bytes_need_nothing_else(self):
        with dcpkit.open(ITERATION) as ckpt:
            tensor = ckpt[FC1]
            self.assertEqual(len(tensor.read()), tensor.nbytes)
            self.assertEqual(len(tensor), tensor.shape[0])
            row = tensor.read([0, 0, 0], [1, 1, tensor.shape[2]])
            self.assertEqual(tensor.read()[: len(row)], row)
            with self.assertRaises(dcpkit.UsageError):
                tensor.read([0, 0, 1], [1, 1, tensor.shape[2]])
            with self.assertRaises(dcpkit.UsageError):
                tensor.read([0, 0, 0], None)

    def test_chunks_cover_the_tensor(self):
        with dcpkit.open(ITERATION) as ckpt:
            for tensor in ckpt.values():
                held = 0
                for chunk in tensor.chunks:
                    n = 1
                    for extent in chunk["shape"]:
                        n *= extent
                    held += n
                    self.assertTrue((ITERATION / chunk["file"]).exists())
                self.assertEqual(held * tensor._elem_bytes, tensor.nbytes)

    @unittest.skipIf(numpy is None, "needs numpy")
    def test_indices_pick_what_numpy_picks(self):
        with dcpkit.open(ITERATION) as ckpt:
            tensor = next(t for t in ckpt.values() if t.dtype == "float32" and len(t.shape) == 3)
            whole = tensor[...]
            self.assertEqual(whole.shape, tensor.shape)
            every = slice(None)
            for index in (
                0,
                -1,
                slice(1, 3),
                slice(None, None, -1),
                (0, slice(9, 2, -3)),
                (..., 5),
                (1, ..., slice(0, 0)),
                (every, every, every),
                (0, 0, 0),
            ):
                with self.subTest(index=index):
                    numpy.testing.assert_array_equal(tensor[index], whole[index])
            for index in (10**6, (0, 0, 0, 0), (..., ...)):
                with self.assertRaises(IndexError):
                    tensor[index]

    @unittest.skipIf(torch is None, "needs torch")
    def test_every_tensor_is_what_torch_loads(self):
        with dcpkit.open(ITERATION) as ckpt:
            want = {
                key: torch.empty(t.shape, dtype=getattr(torch, t.dtype)) for key, t in ckpt.items()
            }
            dcp.load(want, checkpoint_id=str(ITERATION), no_dist=True)
            for key, tensor in want.items():
                with self.subTest(key=key):
                    got = ckpt[key].torch()
                    self.assertEqual(got.dtype, tensor.dtype)
                    self.assertTrue(torch.equal(got.view(torch.uint8), tensor.view(torch.uint8)))

    def test_hashes_are_the_manifests(self):
        with dcpkit.open(ITERATION) as ckpt:
            manifest = json.loads((SAMPLE / "MANIFEST.iter_0000004.json").read_text())
            recorded = {k: v["xxh3_128"] for k, v in manifest["tensors"].items()}
            self.assertEqual(ckpt.hashes(), recorded)
            self.assertEqual(ckpt[FC1].hash(), recorded[FC1])


class Working(unittest.TestCase):
    def test_there_and_back_again(self):
        seen = []
        with tempfile.TemporaryDirectory() as folder:
            there, back = os.path.join(folder, "there"), os.path.join(folder, "back")
            report = dcpkit.convert(
                SAMPLE, there, "fsdp_dtensor", prove=True, progress=lambda *step: seen.append(step)
            )
            self.assertGreater(report["n_renamed"], 0)
            self.assertEqual(report["n_left_out"], len(report["left_out"]))
            self.assertTrue(all(done <= total for _, done, total in seen))
            with self.assertRaisesRegex(dcpkit.UsageError, "exists .*replace=True"):
                dcpkit.convert(SAMPLE, there, "fsdp_dtensor")
            dcpkit.convert(SAMPLE, there, "fsdp_dtensor", replace=True)
            dcpkit.convert(there, back, "torch_dist", mesh={"tp": 2, "pp": 2})
            with dcpkit.open(SAMPLE) as source, dcpkit.open(there) as made, dcpkit.open(back) as b:
                made.verify(source)
                b.verify(made)
                self.assertEqual(source.compare(source), (0, None))
                n, first = source.compare(b)  # Megatron-FSDP has the RNG states of one stage
                self.assertEqual((n, first.split("[")[0]), (4, "rng_state"))
                before, after = source.hashes(), b.hashes()
                self.assertTrue(all(key.startswith("optimizer.") for key in after.keys() - before.keys()))
                for key in after.keys() & before.keys():
                    self.assertEqual(before[key], after[key], key)

    def test_what_differs_is_told(self):
        other = SAMPLES / "torch_dist_b_dense_tp2pp2"
        with dcpkit.open(SAMPLE) as a, dcpkit.open(other) as b:
            n, first = a.compare(b)
            self.assertGreater(n, 0)
            self.assertIsInstance(first, str)
            with self.assertRaises(dcpkit.FormatError):
                a.verify(b)

    def test_a_callback_can_stop_and_fail(self):
        def fail(*_):
            raise ZeroDivisionError

        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out")
            with self.assertRaises(dcpkit.Cancelled):
                dcpkit.convert(SAMPLE, out, "fsdp_dtensor", progress=lambda *_: False)
            with self.assertRaises(ZeroDivisionError):
                dcpkit.convert(SAMPLE, out, "fsdp_dtensor", progress=fail)
            self.assertFalse(os.path.exists(out))

    def test_a_signal_waits_until_c_returns(self):
        session = dcpkit._library.Session()
        answers = []

        def call_back():  # as C: the signal comes before the callback
            signal.raise_signal(signal.SIGINT)
            answers.append(session.inside(answers.append, "inside"))
            return 0

        def interrupt():
            signal.raise_signal(signal.SIGINT)
            answers.append("after the signal")

        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with self.assertRaises(KeyboardInterrupt):
                session.call(call_back)
            self.assertEqual(answers, [1])
            with self.assertRaises(KeyboardInterrupt):  # in a callback it comes at once
                session.call(lambda: answers.append(session.inside(interrupt)) or 0)
            self.assertEqual(answers, [1, 1])
            self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)
            signal.signal(signal.SIGINT, lambda *_: None)  # a handler that does not raise
            session.call(call_back)
            self.assertEqual(answers, [1, 1, "inside", 0])
        finally:
            signal.signal(signal.SIGINT, before)

    def test_a_mesh_is_of_its_dimensions(self):
        with self.assertRaisesRegex(dcpkit.UsageError, "'xp'"):
            dcpkit.convert(SAMPLE, "/nowhere/out", "torch_dist", mesh={"xp": 2})
        with self.assertRaisesRegex(dcpkit.UsageError, "fsdp_dtensor"):
            dcpkit.convert(SAMPLE, "/nowhere/out", "fsdp_dtensor", mesh={"tp": 2})


if __name__ == "__main__":
    unittest.main()
