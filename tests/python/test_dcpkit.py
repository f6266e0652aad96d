# SPDX-License-Identifier: Apache-2.0
"""dcpkit from Python: what torch reads of the same folders, what numpy picks, what is refused.

    DCPKIT_LIBRARY=build/libdcpkit.so DCPKIT_SAMPLES=build/samples PYTHONPATH=tools/python \\
        python3 -m pytest tests/python        (or -m unittest discover tests/python)

Without numpy or torch the tests that need them are skipped.
"""

import copy
import gc
import json
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings

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

    def test_a_key_that_is_not_there_has_a_near_one(self):
        with dcpkit.open(ITERATION) as ckpt:
            with self.assertRaisesRegex(KeyError, f"'{FC1[1:]}'.*did you mean '{FC1}'"):
                ckpt[FC1[1:]]
            with self.assertRaisesRegex(KeyError, "'zzz'\"$"):
                ckpt["zzz"]
            for key in (FC1 + "\0", "\ud800", 5, None):
                self.assertNotIn(key, ckpt)
                self.assertIsNone(ckpt.get(key))
                with self.assertRaises(KeyError):
                    ckpt[key]

    def test_the_package_and_its_objects_say_what_they_are(self):
        self.assertEqual(dcpkit.__version__, dcpkit.version())
        self.assertTrue((pathlib.Path(dcpkit.__file__).parent / "py.typed").exists())
        ckpt = dcpkit.open(ITERATION)
        n = len(ckpt.objects)
        self.assertEqual(
            repr(ckpt),
            f"<dcpkit.Checkpoint '{ITERATION}' torch_dist C: {len(ckpt)} tensors, {n} objects>",
        )
        ckpt.close()
        self.assertEqual(repr(ckpt), f"<dcpkit.Checkpoint '{ITERATION}' closed>")

    def test_text_for_c_has_no_nul(self):
        for path in (str(ITERATION) + "\0/more", os.fsencode(ITERATION) + b"\0"):
            with self.assertRaisesRegex(dcpkit.UsageError, "NUL"):
                dcpkit.open(path)
            with self.assertRaisesRegex(dcpkit.UsageError, "NUL"):
                dcpkit.convert(path, "/nowhere/out", "zarr")
            with self.assertRaisesRegex(dcpkit.UsageError, "NUL"):
                dcpkit.convert(SAMPLE, path, "zarr")
        with self.assertRaisesRegex(dcpkit.UsageError, "NUL"):
            dcpkit.open(ITERATION, format="torch_dist\0")
        with dcpkit.open(ITERATION) as ckpt:
            with self.assertRaisesRegex(dcpkit.UsageError, "NUL"):
                ckpt.json("iteration\0")

    def test_options_fit_their_fields(self):
        for options in ({"threads": 2**32 + 1}, {"memory": 2**64 + 1}, {"memory": -1}):
            with self.subTest(options), self.assertRaises(dcpkit.UsageError):
                dcpkit.open(ITERATION, **options)
        with self.assertRaises(dcpkit.UsageError):
            dcpkit.convert(SAMPLE, "/nowhere/out", "torch_dist", mesh={"tp": 2**64 + 2})

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

    def test_a_box_has_a_number_for_each_axis(self):
        with dcpkit.open(ITERATION) as ckpt:
            tensor = ckpt[FC1]
            for offset, extent in (
                ((0,), (2,)),
                ((0, 0, 0), (2,)),
                ((), ()),
                ((0, 0, 0, 0), (1, 1, 1, 1)),
                ((2**64, 0, 0), (1, 1, 1)),
                ((0, 0, 0), (1, 1, 2**64 + 1)),
                ((0, 0, -(2**64)), (1, 1, 1)),
                ((0, 0, 0), (1, 1, -1)),
                ((0, 0, 0), (2**40, 2**40, 2**40)),
            ):
                with self.subTest(offset=offset, extent=extent):
                    with self.assertRaises(dcpkit.UsageError):
                        tensor.read(offset, extent)
                    with self.assertRaises(dcpkit.UsageError):
                        tensor.read_into(bytearray(tensor.nbytes), offset, extent)
            with self.assertRaises(TypeError):
                tensor.read((0.0, 0, 0), (1, 1, 1))
            self.assertEqual(tensor.read((0, 0, 0), (0, 1, 1)), b"")

    def test_any_writable_buffer_is_filled(self):
        with dcpkit.open(ITERATION) as ckpt:
            tensor = ckpt[FC1]
            whole = bytes(tensor.read())
            room = bytearray(tensor.nbytes + 1)
            self.assertEqual(tensor.read_into(memoryview(room)[1:]), tensor.nbytes)
            self.assertEqual(room[1:], whole)
            row = [0] * len(tensor.shape), [1] * (len(tensor.shape) - 1) + [tensor.shape[-1]]
            n = tensor.read_into(room, *row)
            self.assertEqual(room[:n], whole[:n])
            for wrong in (bytes(tensor.nbytes), bytearray(tensor.nbytes - 1), memoryview(room)[::2]):
                with self.assertRaises(dcpkit.UsageError):
                    tensor.read_into(wrong)
            for wrong in (0, None, "text"):
                with self.assertRaises(TypeError):
                    tensor.read_into(wrong)
            if numpy is not None:
                array = numpy.zeros(tensor.shape, "uint16")  # two bytes an element, as bfloat16
                tensor.read_into(array)
                self.assertEqual(array.tobytes(), whole)
                with self.assertRaises(dcpkit.UsageError):
                    tensor.read_into(array.T)
            if torch is not None:
                made = torch.zeros(tensor.shape, dtype=getattr(torch, tensor.dtype))
                tensor.read_into(made)
                self.assertEqual(made.view(torch.uint8).numpy().tobytes(), whole)
                for wrong in (made.expand(2, *made.shape), made.transpose(0, 1), made.to("meta")):
                    with self.assertRaises(dcpkit.UsageError):
                        tensor.read_into(wrong)

    @unittest.skipIf(numpy is None, "needs numpy")
    def test_arrays_are_made_in_one_read(self):
        with dcpkit.open(ITERATION) as ckpt:
            tensor = next(t for t in ckpt.values() if t.dtype == "float32" and len(t.shape) == 3)
            whole = tensor[...]
            interface = tensor.__array_interface__
            self.assertEqual((interface["shape"], interface["typestr"]), (tensor.shape, "<f4"))
            numpy.testing.assert_array_equal(numpy.asarray(tensor), whole)
            self.assertEqual(ckpt[FC1].dtype, "bfloat16")  # numpy has none
            self.assertFalse(hasattr(ckpt[FC1], "__array_interface__"))
            numpy.testing.assert_array_equal(numpy.from_dlpack(tensor), whole)
            if torch is not None:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")  # torch's, where it reads row by row
                    self.assertTrue(torch.equal(torch.as_tensor(tensor), tensor.torch()))
                    self.assertTrue(torch.equal(torch.as_tensor(ckpt[FC1]), ckpt[FC1].torch()))

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
            for index in (True, None, [0, 1], 1.0, "0"):
                with self.subTest(index=index), self.assertRaises(TypeError):
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

    def test_models_and_trainers(self):
        """A model's dtype; a trainer's checkpoint without a config.json, which a folder or a file gives."""
        with tempfile.TemporaryDirectory() as folder:
            hf, trainer, back = (os.path.join(folder, name) for name in ("hf", "trainer", "back"))
            dcpkit.convert(SAMPLE, hf, "huggingface", dtype="float16")
            with dcpkit.open(hf) as model:
                self.assertEqual({str(model[key].dtype) for key in model}, {"float16"})
            dcpkit.convert(SAMPLE, trainer, "dcp_hf")
            config = os.path.join(hf, "config.json")
            os.remove(os.path.join(trainer, "config.json"))
            with self.assertRaisesRegex(dcpkit.UnsupportedError, "there is no config.json.*hf_config=... gives it"):
                dcpkit.convert(trainer, back, "torch_dist")
            for given in ({"hf_config": config}, {"hf_assets": hf}):
                dcpkit.convert(trainer, back, "torch_dist", replace=True, **given)
            with dcpkit.open(SAMPLE) as source, dcpkit.open(back) as made:
                shared = [key for key in source if key.startswith("optimizer.state.exp_avg.decoder")]
                self.assertGreater(len(shared), 5)
                for key in shared:
                    self.assertEqual(source[key].hash(), made[key].hash(), key)
            with self.assertRaisesRegex(dcpkit.UsageError, "'float8' is not float32"):
                dcpkit.convert(SAMPLE, hf, "huggingface", dtype="float8", replace=True)
            with self.assertRaisesRegex(dcpkit.UsageError, "a dtype is for Hugging Face's models"):
                dcpkit.convert(SAMPLE, back, "zarr", dtype="float32", replace=True)

    def test_what_only_one_has_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            there = pathlib.Path(folder) / "hf"
            dcpkit.convert(SAMPLE, there, "huggingface")
            with dcpkit.open(SAMPLE) as run, dcpkit.open(there) as hf:
                equal = "weights equal; {} has no optimizer state"
                self.assertEqual(run.compare(hf), (0, equal.format("B")))
                self.assertEqual(hf.compare(run), (0, equal.format("A")))

    def test_what_differs_is_told(self):
        other = SAMPLES / "torch_dist_b_dense_tp2pp2"
        with dcpkit.open(SAMPLE) as a, dcpkit.open(other) as b:
            n, first = a.compare(b)
            self.assertGreater(n, 0)
            self.assertIsInstance(first, str)
            with self.assertRaises(dcpkit.FormatError):
                a.verify(b)

    def test_a_proof_begins_with_the_source(self):
        with tempfile.TemporaryDirectory() as folder:
            damaged = pathlib.Path(folder) / "run"
            shutil.copytree(ITERATION, damaged)
            data = bytearray((damaged / "__1_0.distcp").read_bytes())
            data[300000] ^= 1
            (damaged / "__1_0.distcp").write_bytes(data)
            out = pathlib.Path(folder) / "out"
            with self.assertRaisesRegex(dcpkit.FormatError, "the file is damaged"):
                dcpkit.convert(damaged, out, "fsdp_dtensor", prove=True)
            dcpkit.convert(damaged, out, "fsdp_dtensor", prove=True, check_input=False)

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


class Using(unittest.TestCase):
    """One thread uses a checkpoint at a time; another use is an exception, never a signal."""

    def test_a_second_thread_is_refused(self):
        inside, others_are_done = threading.Event(), threading.Event()

        def wait(*_):
            inside.set()
            others_are_done.wait(60)

        raised, hashes = [], []
        with dcpkit.open(ITERATION, progress=wait) as ckpt, dcpkit.open(ITERATION) as other:
            tensor = ckpt[FC1]
            thread = threading.Thread(target=lambda: hashes.append(ckpt.hashes()))
            thread.start()
            self.assertTrue(inside.wait(60))
            uses = {
                "read": tensor.read,
                "chunks": lambda: tensor.chunks,
                "find": lambda: ckpt[FC1],
                "list": lambda: list(ckpt),
                "objects": lambda: ckpt.objects,
                "json": lambda: ckpt.json("iteration"),
                "verify": ckpt.verify,
                "compare": lambda: ckpt.compare(other),
                "compared": lambda: other.compare(ckpt),
                "close": ckpt.close,
            }
            for name, use in uses.items():
                try:
                    use()
                    raised.append(name + " worked")
                except dcpkit.UsageError as error:
                    if "in use" not in str(error):
                        raised.append(f"{name}: {error}")
            others_are_done.set()
            thread.join()
            self.assertEqual(raised, [])
            self.assertEqual(hashes, [other.hashes()])  # which nothing has disturbed
            self.assertEqual(ckpt.json("iteration"), 4)

    def test_threads_at_random_are_safe(self):
        ckpt, answers = dcpkit.open(ITERATION), []

        def work():
            for i in range(300):
                try:
                    answers.append(ckpt.json("args.num_layers") == 4)
                    ckpt.json(f"nothing.{i}")
                except dcpkit.UsageError as error:
                    answers.append("in use" in str(error) or "nothing" in str(error))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(set(answers), {True})
        ckpt.close()

    def test_a_callback_does_not_use_what_calls_it(self):
        used = [lambda c: c.close(), lambda c: c.json("iteration"), lambda c: c[FC1], list]
        for use in used:
            opened = []
            with dcpkit.open(ITERATION, progress=lambda *_: use(opened[0])) as ckpt:
                opened.append(ckpt)
                with self.assertRaisesRegex(dcpkit.UsageError, "in use"):
                    ckpt.hashes()
                self.assertEqual(ckpt.json("iteration"), 4)

    def test_no_copy_is_made(self):
        with dcpkit.open(ITERATION) as ckpt, dcpkit.Engine() as engine, engine.map() as a_map:
            for of in (ckpt, ckpt[FC1], engine, a_map):
                for make in (copy.copy, copy.deepcopy, pickle.dumps):
                    with self.subTest(of=of, make=make.__name__):
                        if isinstance(of, dcpkit.Tensor) and make is copy.copy:
                            self.assertEqual(make(of).read(), of.read())
                            continue
                        with self.assertRaisesRegex(TypeError, "open"):
                            make(of)
            gc.collect()
            self.assertEqual(ckpt.json("iteration"), 4)

    def test_cycles_are_freed_in_any_order(self):
        code = """
import dcpkit, gc, os
for _ in range(20):
    ckpt, engine = dcpkit.open(os.environ["S"]), dcpkit.Engine()
    maps = [engine.map() for _ in range(3)]
    for of in (ckpt, engine, ckpt._session, engine._session, *maps):
        of.cycle = (ckpt, engine, maps)
    del ckpt, engine, maps, of
    gc.collect()
"""
        ended = subprocess.run([sys.executable, "-c", code], env=dict(os.environ, S=str(ITERATION)))
        self.assertEqual(ended.returncode, 0)

    def test_a_thread_at_the_end_of_the_interpreter(self):
        code = """
import dcpkit, os, threading, time
ckpt = dcpkit.open(os.environ["S"])
def work():
    while True:
        ckpt.hashes()
threading.Thread(target=work, daemon=True).start()
time.sleep(0.05)
"""
        for _ in range(3):
            ended = subprocess.run([sys.executable, "-c", code], env=dict(os.environ, S=str(ITERATION)))
            self.assertEqual(ended.returncode, 0)


if __name__ == "__main__":
    unittest.main()
