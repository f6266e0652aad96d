# SPDX-License-Identifier: Apache-2.0
# test_hash.py - hash of objects and of the whole, made again from what torch holds by the rule of lib/exec/value_hash.h.
import argparse
import collections
import copyreg
import enum
import hashlib
import io
import json
import os
import pathlib
import pickle
import shutil
import signal
import struct
import subprocess
import tempfile
import unittest
import warnings
from unittest import mock

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
import xxhash

from tool import DCPKIT, dcpkit, sample


def xxh(data):
    return xxhash.xxh3_128_digest(data)


def module_of(name):
    return "pathlib" if name == "pathlib._local" else "numpy.core" + name[11:] if name.startswith("numpy._core") else name


def named(module, name):
    return xxh(b"g" + H(module_of(module)) + H(name))


def reduced(v):
    """How pickle takes the object apart at protocol 2."""
    parts = v.__reduce_ex__(2)
    if isinstance(parts, str):
        return named(type(v).__module__, parts)
    call, args, state, items, pairs = (tuple(parts) + (None,) * 3)[:5]
    letter = b"c"
    if call is copyreg.__newobj__:
        call, args, letter = args[0], args[1:], b"o"
    return xxh(
        letter + H(module_of(call.__module__)) + H(call.__qualname__) + H(tuple(args)) + H([] if state is None else [state])
        + H(list(items or [])) + H(list(pairs or []))
    )


def H(v):
    if v is None:
        return xxh(b"N")
    if isinstance(v, torch.dtype):
        return named("torch", str(v)[6:])
    if isinstance(v, type):
        return named(v.__module__, v.__qualname__)
    if type(v) is bool:
        return xxh(b"T" if v else b"F")
    if type(v) is int:
        return xxh(b"i" + v.to_bytes(((v + (v < 0)).bit_length() + 8) // 8, "little", signed=True))
    if type(v) is float:
        return xxh(b"d" + (struct.pack("<Q", 0x7FF8000000000000) if v != v else struct.pack("<d", v)))
    if type(v) is str:
        return xxh(b"s" + v.encode())
    if type(v) is bytes:
        return xxh(b"b" + v)
    if type(v) is bytearray:
        return xxh(b"a" + v)
    if type(v) in (tuple, torch.Size):
        return xxh(b"t" + b"".join(H(i) for i in v))
    if type(v) is list:
        return xxh(b"l" + b"".join(H(i) for i in v))
    if type(v) in (set, frozenset):
        return xxh(b"e" + b"".join(sorted(H(i) for i in v)))
    if type(v) in (dict, collections.OrderedDict):
        return xxh(b"m" + b"".join(sorted(H(k) + H(w) for k, w in v.items())))
    if isinstance(v, torch.Tensor):
        elements = v.detach().contiguous().view(torch.uint8).numpy().tobytes() if v.dim() else v.reshape(1).view(torch.uint8).numpy().tobytes()
        return xxh(b"x" + H(str(v.dtype)[6:]) + H(tuple(v.shape)) + xxh(elements))
    return reduced(v)


class Colour(enum.Enum):
    RED = 1


OBJECTS = {
    "plain": [None, True, False, "", "tëxt\0", b"", b"\x00\xff" * 40, (), [], {}, set(), "x" * 1000],
    "ints": [0, 1, -1, 127, 128, -128, -129, 255, 2**31, -(2**31), 2**63 - 1, -(2**63), 2**63, 2**64, -(2**64), 10**40],
    "floats": [0.0, -0.0, 1.5, float("inf"), -float("inf"), float("nan"), 1e-320],
    "dict": {"b": 1, "a": [2], 3: "c", (1, 2): {"z": 1, "y": None}},
    "ordered": collections.OrderedDict([("z", 1), ("a", 2)]),
    "sets": [{"c", "b", "a"}, frozenset([1, 2, 3])],
    "args": argparse.Namespace(lr=1e-4, dtype=torch.bfloat16, path=pathlib.PurePosixPath("/a/b"), sizes=torch.Size([2, 3]), nested=argparse.Namespace(x=1)),
    "classes": [signal.Signals.SIGTERM, Colour.RED, torch.device("cpu"), torch.float32, argparse.Namespace, bytearray(b"abc")],
    "rng": [{"random_rng_state": (3, tuple(range(2**32 - 625, 2**32)), None), "np_rng_state": np.random.RandomState(1).get_state()}],
    "tensors": [torch.arange(6.0).reshape(2, 3), torch.arange(12).reshape(3, 4).t(), torch.tensor(7, dtype=torch.int8), torch.zeros(0, 3), torch.ones(3, dtype=torch.bfloat16)],
    # past a worker's buffer under --memory 16M: read as an outline
    "large": {"row-major": torch.arange(5 << 20, dtype=torch.float32), "strided": torch.arange(6, dtype=torch.float64).reshape(2, 3).t(), "n": 1},
    "long": {"only": torch.arange(6 << 20, dtype=torch.int32)},
}
SHARED = ["same"] * 3
for _ in range(8):
    SHARED = [SHARED, SHARED]
OBJECTS["shared"] = SHARED
TENSORS = {"w": torch.arange(24, dtype=torch.float32).reshape(4, 6), "scalar": torch.tensor(3)}


def shared_hash(depth=8):
    """2^8 lists that are 8."""
    made = H(["same"] * 3)
    for _ in range(depth):
        made = xxh(b"l" + made * 2)
    return made


def save(folder, protocol):
    """torch's own writer, told another protocol."""
    plain = torch.save

    def told(*args, **options):
        return plain(*args, **{**options, "pickle_protocol": protocol})

    with warnings.catch_warnings(), mock.patch("torch.save", told):
        warnings.simplefilter("ignore")
        planner = dcp.DefaultSavePlanner(flatten_state_dict=False)
        dcp.save({**OBJECTS, **TENSORS}, checkpoint_id=folder, planner=planner, no_dist=True)
    return folder


def stored(folder):
    """The objects as torch loads each from its own bytes (its planner has changed some on the way)."""
    with open(os.path.join(folder, ".metadata"), "rb") as f:
        meta = pickle.load(f)
    found = {}
    for index, info in meta.storage_data.items():
        if isinstance(meta.state_dict_metadata[index.fqn], torch.distributed.checkpoint.metadata.BytesStorageMetadata):
            with open(os.path.join(folder, info.relative_path), "rb") as f:
                f.seek(info.offset)
                found[index.fqn] = torch.load(io.BytesIO(f.read(info.length)), weights_only=False)
    return found


def fingerprint(tensor):
    """The fingerprint by lib/tensor/fingerprint.h, of torch's own bytes."""
    bits = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    words = bits.view({1: np.uint8, 2: np.dtype("<u2")}.get(tensor.element_size(), np.dtype("<u4"))).astype(np.uint64)
    k = np.arange(1, len(words) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    k = (k ^ (k >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93) | np.uint64(1)
    return f"{int((words * k).sum(dtype=np.uint64)):016x}"


def whole(doc):
    """The SHA-256 of the whole, from the rest of the document."""
    rows = [(k, "tensor", t["dtype"], ",".join(map(str, t["shape"])), t["xxh3_128"]) for k, t in doc["tensors"].items()]
    rows += [(k, "object", "", "", o["xxh3_128"] or "") for k, o in doc["objects"].items()]
    rows += [("", "common", "", "", doc["common"]["xxh3_128"])] if doc["common"] else []
    lines = ["\0".join(row) + "\n" for row in sorted(rows, key=lambda r: (r[0].encode(), ["tensor", "object", "common"].index(r[1])))]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


class Hash(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.mkdtemp()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work)

    def test_protocols(self):
        self.assertEqual(H(OBJECTS["shared"]), shared_hash())
        found = {}
        for protocol in (2, 3, 4, 5):
            folder = save(os.path.join(self.work, f"p{protocol}"), protocol)
            for memory in ("256M", "16M"):
                doc = json.loads(dcpkit("hash", "--json", "--threads", "4", "--memory", memory, folder))
                got = {key: entry["xxh3_128"] for key, entry in doc["objects"].items()}
                self.assertGreater(len(got), 10)
                for key, value in stored(folder).items():
                    if key == "rng" and protocol == 5:  # numpy spells arrays by another call there
                        continue
                    self.assertEqual(got[key], H(value).hex(), f"{key}, protocol {protocol}, {memory}")
                self.assertEqual(doc["whole"]["sha256"], whole(doc))
                found[protocol, memory] = doc["whole"]["sha256"]
        self.assertEqual(len({digest for (protocol, _), digest in found.items() if protocol < 5}), 1, found)

    def test_text_and_json_agree(self):
        folder = save(os.path.join(self.work, "text"), 2)
        doc = json.loads(dcpkit("hash", "--json", folder))
        for recorded in (json.dumps(doc), dcpkit("hash", folder)):
            path = os.path.join(self.work, "recorded")
            with open(path, "w", encoding="utf-8") as f:
                f.write(recorded)
            self.assertIn("verdict     ok", dcpkit("hash", "--check", path, folder))
        self.assertTrue(dcpkit("hash", folder).endswith(f"{whole(doc)}  the whole checkpoint\n"))

    def test_fingerprints(self):
        torch.manual_seed(1)
        tensors = {str(dtype)[6:]: (torch.randn(7, 5, 3) * 40).to(dtype) for dtype in
                   (torch.bool, torch.int8, torch.bfloat16, torch.float16, torch.float32, torch.int64, torch.complex128)}
        tensors |= {"scalar": torch.tensor(-2.5), "empty": torch.zeros(0, 3), "large": torch.randn(3 << 20)}
        folder = os.path.join(self.work, "fingerprints")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.save(tensors, checkpoint_id=folder, no_dist=True)
        want = {key: fingerprint(tensor) for key, tensor in tensors.items()}
        for memory in ("256M", "16M"):
            doc = json.loads(dcpkit("hash", "--fingerprint", "--json", "--threads", "3", "--memory", memory, folder))
            self.assertEqual({key: entry["fingerprint"] for key, entry in doc["tensors"].items()}, want)
        lines = [f"{number}  {key}\n" for key, number in sorted(want.items())]
        self.assertEqual(dcpkit("hash", "--fingerprint", folder), "".join(lines))

    def test_golden_whole(self):
        for name in ("torch_dist_b_dense_tp2pp2", "torch_dist_c_moe_ep2pp2", "fsdp_dtensor_native_dp2", "zarr_dense_tp2dp2"):
            doc = json.loads(dcpkit("hash", "--json", sample(name)))
            self.assertEqual(doc["whole"]["sha256"], whole(doc), name)

    def test_golden_common(self):
        """Megatron's own common state of primitives, as pickle loads it, by two releases in two places."""
        for name in ("torch_dist_0.17.0_torch2.5", "torch_dist_0.19.0_torch2.11", "zarr_0.6.0"):
            folder = sample(os.path.join("tiny_generations", name))
            if os.path.exists(os.path.join(folder, "common.pt")):
                value = torch.load(os.path.join(folder, "common.pt"), weights_only=False)
            else:
                value = stored(folder)["common_state/shard_0_1"][0]
            doc = json.loads(dcpkit("hash", "--json", folder))
            self.assertEqual(doc["common"]["xxh3_128"], H(value).hex(), name)

    def test_files_as_sha256sum(self):
        folder = sample("zarr_dense_tp2dp2/iter_0000004")
        text = dcpkit("hash", "--files", folder)
        names = sorted(os.path.relpath(os.path.join(at, f), folder) for at, _, files in os.walk(folder) for f in files)
        self.assertEqual([line.split("  ", 1)[1] for line in text.splitlines()], sorted(names, key=str.encode))
        done = subprocess.run(["sha256sum", "--check", "--quiet"], cwd=folder, input=text, text=True, capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


if __name__ == "__main__":
    unittest.main()
