# SPDX-License-Identifier: Apache-2.0
# dcp_folder.py - a DCP folder seen through torch alone: keys, tensors, objects, places of their bytes.
"""Needs torch and numpy. Classes that are not installed (Megatron's, in `args`) become stubs."""
import argparse
import io
import os
import pickle
import types
import warnings

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

warnings.filterwarnings("ignore")

FOREIGN = ("megatron", "transformer_engine", "nemo", "apex", "modelopt")


class StubMeta(type):
    """Lets a pickle reach an enum member as an attribute of its stubbed class."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return make_stub(cls.__module__, f"{cls.__qualname__}.{name}")


class Stub(metaclass=StubMeta):
    """An instance of a class that is not installed: keeps what the pickle gave it."""

    def __new__(cls, *args, **kwargs):
        self = object.__new__(cls)
        self.given = [args, kwargs]
        return self

    def __init__(self, *args, **kwargs):
        pass

    def __setstate__(self, state):
        self.given.append(state)

    def __eq__(self, other):
        return type(self) is type(other) and same(self.given, other.given)

    def __hash__(self):
        return hash((type(self).__module__, type(self).__qualname__))


STUBS = {}


def make_stub(module, name):
    key = (module, name)
    if key not in STUBS:
        attributes = {"__module__": module, "__qualname__": name}
        STUBS[key] = StubMeta(name.rsplit(".", maxsplit=1)[-1], (Stub,), attributes)
    return STUBS[key]


class StubUnpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if module.split(".")[0] in FOREIGN:
            return make_stub(module, name)
        return super().find_class(module, name)


# torch.load takes a module in place of `pickle`.
STUB_PICKLE = types.ModuleType("stub_pickle")
STUB_PICKLE.__dict__.update({k: v for k, v in vars(pickle).items() if not k.startswith("__")})
STUB_PICKLE.Unpickler = StubUnpickler
STUB_PICKLE.load = lambda file, **options: StubUnpickler(file, **options).load()


def is_plain(value):
    """Is it made of primitives, containers, Namespaces and torch dtypes alone? Any Megatron has these."""
    if isinstance(value, dict):
        return type(value) is dict and all(is_plain(x) for pair in value.items() for x in pair)
    if type(value) in (list, tuple, set, frozenset):
        return all(map(is_plain, value))
    if type(value) is argparse.Namespace:
        return is_plain(vars(value))
    return value is None or type(value) in (bool, int, float, str, bytes, torch.dtype)


def same_tensor(a, b):
    """Same dtype, shape and every bit."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    a, b = (x.detach().contiguous().reshape(-1).view(torch.uint8) for x in (a, b))
    return torch.equal(a, b)


def same(a, b):
    """Same content, types included; tensors and arrays bit for bit; a NaN is itself."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return same_tensor(a, b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return a == b or (a != a and b != b)
    if isinstance(a, io.BytesIO):
        return a.getvalue() == b.getvalue()
    if isinstance(a, argparse.Namespace):
        return same(vars(a), vars(b))
    return a == b


class Folder:
    """The iteration folder `path`. Reading .metadata takes plain pickle, as torch itself does it."""

    def __init__(self, path):
        self.path = path
        self.metadata = dcp.FileSystemReader(path).read_metadata()
        items = self.metadata.state_dict_metadata
        self.tensors = {k: v for k, v in items.items() if isinstance(v, TensorStorageMetadata)}
        self.objects = [k for k in items if k not in self.tensors]
        self.places = {}  # key -> {offsets or None: (file, offset, length)}
        for index, info in self.metadata.storage_data.items():
            place = (info.relative_path, info.offset, info.length)
            offsets = None if index.offset is None else tuple(index.offset)
            self.places.setdefault(index.fqn, {})[offsets] = place

    def load(self, keys=None):
        """Whole tensors by key, through dcp.load."""
        keys = self.tensors if keys is None else keys
        state = {}
        for key in keys:
            tensor = self.tensors[key]
            state[key] = torch.empty(tensor.size, dtype=tensor.properties.dtype)
        if state:
            dcp.load(state, storage_reader=dcp.FileSystemReader(self.path), no_dist=True)
        return state

    def bytes_at(self, place):
        file, offset, length = place
        with open(os.path.join(self.path, file), "rb") as f:
            f.seek(offset)
            data = f.read(length)
        if len(data) != length:
            raise ValueError(f"{self.path}/{file}: item at {offset} passes the end of the file")
        return data

    def raw(self, key):
        """The bytes of an object item."""
        return self.bytes_at(self.places[key][None])

    def object(self, key, stubs=True):
        """An object's value. stubs=False: as torch.load without any other package gives it."""
        module = STUB_PICKLE if stubs else pickle
        return torch.load(io.BytesIO(self.raw(key)), weights_only=False, pickle_module=module)

    def common(self):
        """The common state of a torch_dist folder: common.pt, else common_state/shard_0_1."""
        path = os.path.join(self.path, "common.pt")
        if os.path.exists(path):
            return torch.load(path, weights_only=False, pickle_module=STUB_PICKLE)
        return self.object("common_state/shard_0_1")[0]

    def cover_fault(self, key):
        """What is wrong with a tensor's chunks, or None: they must tile it and each must be stored."""
        tensor = self.tensors[key]
        seen = torch.zeros(tensor.size, dtype=torch.int32)
        for chunk in tensor.chunks:
            box = tuple(slice(o, o + n) for o, n in zip(chunk.offsets, chunk.sizes))
            if any(o + n > s for o, n, s in zip(chunk.offsets, chunk.sizes, tensor.size)):
                return f"chunk {chunk} lies outside {tuple(tensor.size)}"
            seen[box] += 1
            if tuple(chunk.offsets) not in self.places.get(key, {}):
                return f"chunk at {tuple(chunk.offsets)} has no stored bytes"
        n_gaps, n_twice = int((seen == 0).sum()), int((seen > 1).sum())
        return f"{n_gaps} elements lack a chunk, {n_twice} have several" if n_gaps + n_twice else None

    def chunks(self, key):
        """The chunks of a tensor with the places of their bytes."""
        return sorted((tuple(c.offsets), tuple(c.sizes), self.places[key][tuple(c.offsets)])
                      for c in self.tensors[key].chunks)
