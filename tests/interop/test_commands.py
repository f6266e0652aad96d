# SPDX-License-Identifier: Apache-2.0
# test_commands.py - compare-two-checkpoint, print-tensor, modify-state-dict and inspect --stats against numpy and torch.
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
import warnings

import numpy as np
import torch
import torch.distributed.checkpoint as dcp

from tool import DCPKIT, dcpkit, iteration, sample

SHAPES = {"scalar": (), "empty": (0, 3), "row": (7,), "long": (1500,), "table": (5, 9), "many": (8, 30, 11), "four": (2, 7, 3, 8)}
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
INTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def random_tensor(shape, dtype, seed):
    g = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=g).bool()
    if dtype in INTS:
        return torch.randint(-100 if dtype.is_signed else 0, 100, shape, generator=g).to(dtype)
    t = torch.randn(shape, generator=g, dtype=torch.float64) * 10.0 ** torch.randint(-6, 3, shape, generator=g)
    flat = t.reshape(-1)
    if flat.numel() >= 7:
        flat[1], flat[2], flat[3], flat[4] = float("nan"), float("inf"), 0.0, -0.0
    return t.to(dtype) if dtype.is_floating_point else torch.complex(t, t.flip(0) if t.dim() else t).to(dtype)


def state_dict(seed=0):
    dtypes = FLOATS + INTS + (torch.bool, torch.complex64, torch.complex128)
    return {
        f"{shape}.{str(dtype)[6:]}": random_tensor(SHAPES[shape], dtype, seed + i)
        for i, (shape, dtype) in enumerate((s, d) for s in SHAPES for d in dtypes)
    }


def save(folder, state):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(dict(state), checkpoint_id=folder, no_dist=True)
    return folder


def wide(t):
    """The tensor as numpy's float64, or its own integers."""
    if t.dtype.is_floating_point:
        return t.to(torch.float64).numpy()
    return t.numpy()


def shortest(v, dtype):
    """The shortest decimal that torch reads as v in dtype, laid out as Python's repr."""
    if not np.isfinite(v) or v == 0 or dtype == torch.float64:
        return repr(float(v))
    for n in range(1, 18):
        mantissa, exponent = f"{abs(v):.{n - 1}e}".split("e")
        k, e = int(mantissa.replace(".", "")), int(exponent) - (n - 1)
        fits = [
            (abs(abs(v) - float(f"{i}e{e}")), f"{i}e{e}")
            for i in (k, k + 1)
            if torch.tensor(float(f"{i}e{e}"), dtype=torch.float64).to(dtype).to(torch.float64).item() == abs(v)
        ]
        if fits:
            return ("-" if v < 0 else "") + repr(float(min(fits)[1]))
    raise AssertionError(v)


def numbers(values):
    """JSON has no NaN and no infinities: texts that float() reads stand for them, at any depth."""
    if isinstance(values, list):
        return [numbers(v) for v in values]
    return float(values) if isinstance(values, str) else values


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.mkdtemp(prefix="dcpkit-commands-")
        cls.state = state_dict()
        cls.folder = save(os.path.join(cls.work, "a"), cls.state)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work)

    def numpy_text(self, t, summarise=True):
        def floats(v):
            return shortest(v, t.dtype)

        return np.array2string(
            wide(t), separator=", ", threshold=1000 if summarise else 10**9, edgeitems=3, max_line_width=10**9,
            formatter={"float_kind": floats, "int_kind": str, "bool": str},
        )  # fmt: skip

    def test_print_text(self):
        for key, t in self.state.items():
            if t.dtype.is_complex:
                continue
            for options, summarise in ((["--all"], False), ([], True)):
                with self.subTest(key=key, options=options):
                    head, text = dcpkit("print-tensor", *options, self.folder, key).split("\n", 1)
                    self.assertEqual(head, f"{key}  {str(t.dtype)[6:]} {list(t.shape)}")
                    self.assertEqual(text.rstrip("\n"), self.numpy_text(t, summarise))

    def test_print_slices(self):
        t = self.state["many.float32"]
        for text in ("0, 3:5, :8", "..., -1", "::3, 1, 2:9:2", "-1", "2, 29, 10", ":, 3:3", "1:4, ...", "::2, ::7, ::5"):
            with self.subTest(slice=text):
                part = eval(f"t[{text}]")  # pylint: disable=eval-used
                got = dcpkit("print-tensor", "--all", self.folder, f"many.float32[{text}]").split("\n", 1)[1]
                self.assertEqual(got.rstrip("\n"), self.numpy_text(part, False))

    def test_print_json(self):
        for key, t in self.state.items():
            with self.subTest(key=key):
                got = json.loads(dcpkit("print-tensor", "--json", self.folder, key), parse_constant=self.fail)  # no bare NaN
                self.assertEqual((got["key"], got["dtype"], got["shape"]), (key, str(t.dtype)[6:], list(t.shape)))
                if t.dtype.is_complex:
                    want = torch.view_as_real(t).to(torch.float64)
                else:
                    want = torch.from_numpy(np.array(wide(t)))
                values = torch.tensor(numbers(got["values"]), dtype=want.dtype).reshape(want.shape)
                self.assertTrue(torch.equal(torch.nan_to_num(values, nan=12345.0), torch.nan_to_num(want, nan=12345.0)))

    def compare(self, other, *options):
        """(exit status, {key: difference}) of --json --as-stored."""
        done = subprocess.run(
            [DCPKIT, "compare-two-checkpoint", "--json", "--as-stored", *options, self.folder, other],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.assertIn(done.returncode, (0, 1), done.stderr)
        answer = json.loads(done.stdout)
        self.assertEqual(answer["equal"], done.returncode == 0)
        return answer

    def different(self, a, b):
        """What compare-two-checkpoint says of two that are not equal."""
        done = subprocess.run([DCPKIT, "compare-two-checkpoint", a, b], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        return done.stdout

    def test_large_object(self):
        """Past a GiB objects stay out of memory: told in outline, and compared as bytes."""
        tensor = torch.zeros(1 << 30, dtype=torch.uint8)
        a = save(os.path.join(self.work, "large"), {"w": torch.ones(3), "huge": (tensor, {"a": 1})})
        b = os.path.join(self.work, "large_b")
        os.mkdir(b)
        for name in os.listdir(a):
            subprocess.run(["cp", "--sparse=always", os.path.join(a, name), b], check=True)
        value = json.loads(dcpkit("print-tensor", "--json", a, "huge"))["value"]
        self.assertEqual((value[0]["shape"], value[0]["n_bytes"], value[1]), ([1 << 30], 1 << 30, {"a": 1}))
        self.assertNotIn("hex", value[0])
        self.assertIn("1 values\nverdict     equal", dcpkit("compare-two-checkpoint", a, b))
        narrow = os.path.join(self.work, "iter_0000007")
        modify = [DCPKIT, "modify-state-dict", "--threads", "1", "--op", "cast w bfloat16", a, narrow]
        subprocess.run(["prlimit", f"--as={1 << 29}", *modify], capture_output=True, check=True)  # copied in parts
        self.assertRegex(self.different(a, narrow), r"^different \(1\):\n  w: A has float32")
        with open(os.path.join(b, "__0_0.distcp"), "r+b") as f:
            f.seek(1 << 29)
            f.write(b"\1")
        answer = " ".join(self.different(a, b).split())
        self.assertRegex(answer, "huge: A has .*, not the same ones: past 1073741824 their values are not compared")
        self.assertIn("1 tensors", answer)
        shutil.rmtree(narrow)
        shutil.rmtree(a)
        shutil.rmtree(b)

    def test_compare(self):
        other = {}
        for i, (key, t) in enumerate(self.state.items()):
            u = t.clone()
            if u.dtype.is_floating_point and i % 3 and u.numel():
                g = torch.Generator().manual_seed(i)
                u = (t.to(torch.float64) * (1 + 1e-2 * torch.randn(t.shape, generator=g, dtype=torch.float64))).to(t.dtype)
            elif u.dtype in INTS and i % 2 and u.numel():
                u.reshape(-1)[-1] -= 1
            other[key] = u
        folder = save(os.path.join(self.work, "b"), other)
        for options in ((), ("--rtol", "0.02"), ("--rtol", "0.001", "--atol", "0.001")):
            with self.subTest(options=options):
                answer = self.compare(folder, *options)
                tolerance = {o[2:]: float(v) for o, v in zip(options[::2], options[1::2])}
                tolerance = {"rtol": 0.0, "atol": 0.0, **tolerance} if tolerance else None
                got = {d["name"]: d for d in answer["differences"] + answer["tolerated"]}
                differing = {d["name"] for d in answer["differences"]}
                for key, t in self.state.items():
                    self.check_measured(key, t, other[key], tolerance, got.get(key), key in differing)

    def check_measured(self, key, t, u, tolerance, got, is_different):
        raw = [x.contiguous().reshape(-1).view(torch.uint8).reshape(x.numel(), -1) if x.numel() else None for x in (t, u)]
        bits = np.array([]) if raw[0] is None else (raw[0] != raw[1]).any(dim=1).numpy()
        self.assertEqual(got is not None, bool(bits.any()), key)
        if got is None:
            return
        a, b = (np.asarray(wide(x)).reshape(-1).astype(np.float64) for x in (t, u))
        with np.errstate(all="ignore"):
            close = ~bits if tolerance is None else np.isclose(a, b, equal_nan=True, **tolerance)
            apart = np.where(a == b, 0, np.abs(a - b))[bits]
            relative = np.where(apart == 0, 0, apart / np.abs(b[bits]))
        self.assertEqual(is_different, not close.all(), key)
        self.assertEqual(got["n_different"], (~close).sum(), key)
        self.assertEqual(got["n_unequal_bits"], bits.sum(), key)
        finite = ~np.isnan(apart)
        self.assertEqual(got["max_abs_error"], apart[finite].max(), key)
        self.assertEqual(got["max_rel_error"], relative[finite].max(), key)
        if is_different:
            self.assertEqual(got["first_different"], int(np.argmin(close)), key)
        if t.dtype == torch.float32:
            i, j = (x.reshape(-1).view(torch.int32).to(torch.int64).numpy() for x in (t, u))
            i, j = (np.where(x < 0, -(x & 0x7FFFFFFF), x) for x in (i, j))
            self.assertEqual(got["max_ulp"], np.abs(i - j)[bits][finite].max(), key)

    def test_compare_keys_and_dtypes(self):
        other = dict(self.state)
        del other["row.int32"]
        other["new"] = torch.zeros(3)
        other["table.float32"] = other["table.float32"].t().contiguous()
        other["row.float32"] = other["row.float32"].to(torch.bfloat16)
        folder = save(os.path.join(self.work, "c"), other)
        answer = self.compare(folder)
        self.assertEqual(
            {d["name"]: d["kind"] for d in answer["differences"]},
            {"row.int32": "only_in_a", "new": "only_in_b", "table.float32": "shape", "row.float32": "dtype"},
        )
        answer = self.compare(folder, "--cast")
        self.assertNotIn("row.float32", {d["name"] for d in answer["differences"]})
        self.assertTrue(self.compare(self.folder)["equal"])

    def test_stats(self):
        state = dict(self.state)
        g = torch.Generator().manual_seed(5)
        state["large"] = torch.randn(300, 70001, generator=g)  # 84 MB: several segments
        state["nothing finite"] = torch.tensor([float("nan"), float("inf"), -float("inf")])
        folder = save(os.path.join(self.work, "stats"), state)
        texts = {dcpkit("inspect", "--stats", "--json", *o, folder) for o in ((), ("-j", "1"), ("-j", "7", "--memory", "16M"))}
        self.assertEqual(len(texts), 1, "the answer depends on threads or memory")
        tensors = json.loads(texts.pop())["tensors"]
        for key, t in state.items():
            got = tensors[key]["stats"]
            if t.dtype.is_complex:
                self.assertIsNone(got, key)
                continue
            v = np.asarray(wide(t)).reshape(-1).astype(np.float64)
            finite = v[np.isfinite(v)]
            counts = {"n_elems": v.size, "n_nan": np.isnan(v).sum(), "n_inf": np.isinf(v).sum(), "n_zero": (v == 0).sum()}
            self.assertEqual({k: got[k] for k in counts}, counts, key)
            if finite.size == 0:
                self.assertEqual([got[k] for k in ("min", "max", "mean", "norm")], [None] * 4, key)
                continue
            self.assertEqual((got["min"], got["max"]), (finite.min(), finite.max()), key)
            scale = np.abs(finite).mean() or 1
            self.assertAlmostEqual(got["mean"] / scale, finite.mean() / scale, 12, key)
            norm = np.linalg.norm(finite)
            self.assertAlmostEqual(got["norm"] / (norm or 1), norm / (norm or 1), 12, key)

    def test_print_objects(self):
        value = {"a": [1, -2.5, None, True, "x\n\u00e9"], "b": {"c": [], "d": 2**62}}
        folder = save(os.path.join(self.work, "objects", "iter_0000001"), {"t": torch.ones(2), "o": value})
        objects = {k: v for k, v in self.load(folder).items() if not torch.is_tensor(v)}
        self.assertTrue(objects)
        for key, want in objects.items():
            self.assertEqual(json.loads(dcpkit("print-tensor", "--json", folder, key))["value"], want, key)

    def modify(self, source, name, *ops):
        out = os.path.join(self.work, name)
        dcpkit("modify-state-dict", *(word for op in ops for word in ("--op", op)), source, out)
        return out

    def load(self, folder):
        """Every key of a DCP folder as torch reads it, objects too."""
        reader = dcp.FileSystemReader(folder)
        entries = reader.read_metadata().state_dict_metadata
        state = {
            k: torch.empty(m.size, dtype=m.properties.dtype) if hasattr(m, "size") else None for k, m in entries.items()
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.load(state, storage_reader=reader, no_dist=True)
        return state

    def check_same(self, got, want):
        self.assertEqual(sorted(got), sorted(want))
        for key, t in want.items():
            if not torch.is_tensor(t):
                self.assertEqual(got[key], t, key)
                continue
            self.assertEqual((got[key].dtype, got[key].shape), (t.dtype, t.shape), key)
            a, b = (x.contiguous().reshape(-1).view(torch.uint8) for x in (got[key], t))
            self.assertTrue(torch.equal(a, b), key)

    def test_modify_plain(self):
        state = {**self.state, "object": 7, "alias of object": "x"}
        del state["empty.complex128"]
        source = save(os.path.join(self.work, "plain", "iter_0000007"), state)
        out = self.modify(source, "m1/iter_0000007", r"rename ^([a-z]+)\.(b?float[0-9]+)$ \2/\1", "remove int")
        want = {
            re.sub(r"^([a-z]+)\.(b?float[0-9]+)$", r"\2/\1", k): t for k, t in state.items() if "int" not in k
        }
        self.check_same(self.load(out), want)
        out = self.modify(source, "m2/iter_0000007", "cast (float32|float64)$ bfloat16", "keep ^(table|many|object|scalar)")
        want = {
            k: t.to(torch.bfloat16) if re.search("(float32|float64)$", k) else t
            for k, t in state.items()
            if re.match("table|many|object|scalar", k)
        }
        got = self.load(out)
        for key in want:
            if re.search("(float32|float64)$", key):  # cast: the codes of NaN are each library's own
                self.assertTrue(torch.equal(want[key].isnan(), got[key].isnan()), key)
                want[key], got[key] = torch.nan_to_num(want[key]), torch.nan_to_num(got[key])
        self.check_same(got, want)

    def test_modify_samples(self):
        for name in ("torch_dist_c_dense_tp2pp2", "torch_dist_a_dense_tp2pp2", "fsdp_dtensor_native_dp2"):
            with self.subTest(sample=name):
                source = iteration(sample(name))
                out = self.modify(sample(name), name, r"rename linear_fc([12])\.weight fc\1.w", "remove qkv")
                before, after = (dcp.FileSystemReader(f).read_metadata() for f in (source, iteration(out)))
                names = {k: re.sub(r"linear_fc([12])\.weight", r"fc\1.w", k) for k in before.state_dict_metadata if "qkv" not in k}
                self.assertEqual(sorted(names.values()), sorted(after.state_dict_metadata))
                for old, new in names.items():
                    a, b = before.state_dict_metadata[old], after.state_dict_metadata[new]
                    self.assertEqual(getattr(a, "size", None), getattr(b, "size", None), old)
                    self.assertEqual(getattr(a, "chunks", None), getattr(b, "chunks", None), old)
                places = [
                    {(names.get(i.fqn) if m is before else i.fqn, i.offset): (p.relative_path, p.offset, p.length)
                     for i, p in m.storage_data.items() if m is after or i.fqn in names}
                    for m in (before, after)
                ]  # fmt: skip
                self.assertEqual(*places)
                shapes = [getattr(m, "mcore_data", {}) for m in (before, after)]
                self.assertEqual({names[k]: v for k, v in shapes[0].items() if v and k in names}, {k: v for k, v in shapes[1].items() if v})


if __name__ == "__main__":
    unittest.main()
