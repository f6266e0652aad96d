# SPDX-License-Identifier: Apache-2.0
"""Open, read, hash and convert checkpoints of Megatron; move tensors between layouts of ranks.

    import dcpkit

    with dcpkit.open("run/iter_0000004") as ckpt:
        ckpt["decoder.final_layernorm.weight"][:8]   # a numpy array
        ckpt.json("args.num_layers")                 # state beside the tensors

Elements are read from the files when they are asked for, from all chunks that hold them. Nothing
of a pickle is executed. Failures are exceptions with the library's sentence.
"""

from __future__ import annotations

import contextlib
import ctypes
import difflib as _difflib
import itertools
import json as _json
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import _library
from ._engine import Engine, Map, Plan, Stats, World, is_torch, memory_of, torch_world
from ._library import (
    Cancelled,
    DifferenceError,
    Error,
    FormatError,
    Progress,
    SystemError,
    UnsupportedError,
    UsageError,
)
from ._library import Session as _Session
from ._meeting import meet
from ._weights import verify_weights

__all__ = [
    "Cancelled",
    "Checkpoint",
    "DifferenceError",
    "Engine",
    "Error",
    "FormatError",
    "Map",
    "Plan",
    "Stats",
    "SystemError",
    "Tensor",
    "UnsupportedError",
    "UsageError",
    "World",
    "convert",
    "formats",
    "meet",
    "open",
    "torch_world",
    "verify_weights",
    "version",
]

_lib = _library.library


def version() -> str:
    """The version of the library."""
    return _lib.dcpkit_version().decode()


__version__ = version()


def formats() -> list[str]:
    """The names of the formats that are read."""
    names = []
    while (name := _lib.dcpkit_format_name(len(names))) is not None:
        names.append(name.decode())
    return names


def _numpy_dtype(name: str) -> Any:
    """numpy's dtype of torch's name; those that numpy lacks are ml_dtypes'."""
    import numpy

    if name == "bool":
        return numpy.dtype(bool)
    try:
        return numpy.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(f"numpy has no {name}: install ml_dtypes, or use Tensor.read()") from None
    return numpy.dtype(getattr(ml_dtypes, name))


def _room(buffer: Any) -> tuple[int, int, Any]:
    """Where a writable buffer begins, its bytes, and what keeps it in its place."""
    if not is_torch(buffer) and not hasattr(buffer, "ctypes"):
        view = memoryview(buffer)
        if view.readonly or not view.c_contiguous:
            raise UsageError("a buffer must be writable and contiguous")
        kept = (ctypes.c_char * view.nbytes).from_buffer(view)
        return ctypes.addressof(kept), view.nbytes, kept
    memory = memory_of(buffer)
    is_contiguous = buffer.is_contiguous() if is_torch(buffer) else buffer.flags.c_contiguous
    if memory.device != "cpu" or not memory.is_writable or not is_contiguous:
        raise UsageError("a tensor or array must be on the CPU, writable and contiguous")
    return memory.address, buffer.nbytes, buffer


class Tensor:
    """A stored tensor. Indexing reads elements: integers, slices and ... as numpy knows them."""

    def __init__(self, checkpoint: Checkpoint, index: int) -> None:
        info = _library.TensorInfo()
        with checkpoint._use() as handle:
            checkpoint._session.call(_lib.dcpkit_tensor_at, handle, index, ctypes.byref(info))
            self.key: str = _library.key_text(info.key)
            #: torch's name of the dtype, "bfloat16"
            self.dtype: str = info.dtype.decode()
            self.shape: tuple[int, ...] = tuple(info.shape[axis] for axis in range(info.rank))
        self._checkpoint = checkpoint
        self._index = index
        self._elem_bytes = info.elem_bytes
        self._n_chunks = info.n_chunks

    def __repr__(self) -> str:
        return f"<dcpkit.Tensor {self.key!r} {self.dtype} {list(self.shape)}>"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor of rank 0 has no length")
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        n = self._elem_bytes
        for extent in self.shape:
            n *= extent
        return n

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """Where its parts are stored: offset, shape, file, first_byte, n_bytes."""
        chunks = []
        info = _library.ChunkInfo()
        axes = range(len(self.shape))
        with self._checkpoint._use() as handle:
            for i in range(self._n_chunks):
                self._checkpoint._session.call(
                    _lib.dcpkit_chunk_at, handle, self._index, i, ctypes.byref(info)
                )
                chunks.append(
                    {
                        "offset": tuple(info.offset[a] for a in axes),
                        "shape": tuple(info.extent[a] for a in axes),
                        "file": os.fsdecode(info.file),
                        "first_byte": info.first_byte,
                        "n_bytes": info.n_bytes,
                    }
                )
        return chunks

    def _take_box(self, offset: Any, extent: Any) -> tuple[Any, Any, int]:
        """A box as C takes it, and its bytes; all of the tensor without one."""
        if (offset is None) != (extent is None):
            raise UsageError("a box needs an offset and an extent")
        if offset is None:
            return None, None, self.nbytes
        n_axes, n_bytes = len(self.shape), self._elem_bytes
        offset = _library.int64s(offset, n_axes, f"the offset of a box of {self.key!r}")
        extent = _library.int64s(extent, n_axes, f"the extent of a box of {self.key!r}")
        for axis, (first, n, length) in enumerate(zip(offset, extent, self.shape)):
            if first < 0 or n < 0 or first + n > length:
                raise UsageError(
                    f"axis {axis} of {self.key!r} has {length} elements: {n} from {first} on are not in it"
                )
            n_bytes *= n
        return offset, extent, n_bytes

    def _read_to(self, address: int, n_bytes: int, offset: Any, extent: Any) -> None:
        self._checkpoint._call(_lib.dcpkit_read, self._index, offset, extent, address, n_bytes)

    def read_into(self, buffer: Any, offset: Any = None, extent: Any = None) -> int:
        """Read a box, row-major, to the begin of a buffer; without one all of it. Returns its bytes.

        buffer: anything writable and contiguous: bytearray, memoryview, mmap, array, a numpy array,
        a torch tensor on the CPU. Its own dtype and shape mean nothing.
        """
        address, room, kept = _room(buffer)
        offset, extent, n_bytes = self._take_box(offset, extent)
        if n_bytes > room:
            raise UsageError(f"{n_bytes} bytes of {self.key!r} do not fit a buffer of {room}")
        self._read_to(address, n_bytes, offset, extent)
        del kept  # which has held the memory until here
        return n_bytes

    def read(self, offset: Any = None, extent: Any = None) -> bytearray:
        """The bytes of a box, row-major, little-endian; without one of all elements."""
        data = bytearray(self._take_box(offset, extent)[2])
        self.read_into(data, offset, extent)
        return data

    def _box(self, index: Any) -> tuple[list[int], list[int], tuple[Any, ...]]:
        """The box around what an index picks, and the index to be used within it."""
        parts = list(index) if isinstance(index, tuple) else [index]
        if parts.count(Ellipsis) > 1:
            raise IndexError("an index has one '...' at most")
        if Ellipsis not in parts:
            parts.append(Ellipsis)
        at = parts.index(Ellipsis)
        missing = len(self.shape) - (len(parts) - 1)
        if missing < 0:
            raise IndexError(f"{self.key!r} has {len(self.shape)} axes, not {len(parts) - 1}")
        parts[at : at + 1] = [slice(None)] * missing
        offset, extent, inner = [], [], []
        for axis, (part, length) in enumerate(zip(parts, self.shape)):
            if isinstance(part, slice):
                picked = range(length)[part]
                low, high = (min(picked), max(picked) + 1) if picked else (0, 0)
                inner.append(slice(None, None, picked.step) if picked else slice(0, 0))
            else:
                if isinstance(part, bool):
                    raise TypeError("an index is integers, slices and ...: no masks")
                position = operator.index(part)
                if not -length <= position < length:
                    raise IndexError(f"axis {axis} of {self.key!r} has {length} elements: no {part}")
                low = position % length
                high = low + 1
                inner.append(0)
            offset.append(low)
            extent.append(high - low)
        return offset, extent, tuple(inner)

    def __getitem__(self, index: Any) -> Any:
        """The elements that an index picks, as a numpy array of its own."""
        import numpy

        offset, extent, inner = self._box(index)
        data = numpy.frombuffer(self.read(offset, extent), dtype=_numpy_dtype(self.dtype))
        picked = data.reshape(extent)[inner]
        return picked if picked.base is None or picked.size == data.size else picked.copy()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if copy is False:
            raise ValueError("elements are read from files: there is nothing to share")
        array = self[...]
        return array if dtype is None else array.astype(dtype)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """All elements, which are read for it. Dtypes that numpy lacks have none."""
        try:
            dtype = _numpy_dtype(self.dtype)
        except (ImportError, TypeError) as missing:
            raise AttributeError(str(missing)) from None
        if dtype.isbuiltin != 1:  # ml_dtypes', which has no name here
            raise AttributeError(f"numpy has no {self.dtype}")
        return {"version": 3, "shape": self.shape, "typestr": dtype.str, "data": self.read()}

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # kDLCPU

    def __dlpack__(self, **options: Any) -> Any:
        """All elements, which are read for it: torch.as_tensor() asks for this."""
        try:
            elements = self.torch()
        except ImportError:
            elements = self[...]
        return elements.__dlpack__(**options)

    def torch(self) -> Any:
        """All elements as a torch tensor."""
        import torch

        tensor = torch.empty(self.shape, dtype=getattr(torch, self.dtype))
        self.read_into(tensor)
        return tensor

    def hash(self) -> str:
        """XXH3-128 of the elements, as `dcpkit hash` prints it."""
        return self._checkpoint._hashes([self._index])[0]


#: keys among which a near one is looked for
_MOST_KEYS = 20000


class Checkpoint(_library.Handle, Mapping[str, Tensor]):
    """An opened checkpoint: its tensors by key. Close it, or use it in a `with`.

    One thread uses it at a time: a second one, and a callback of what is under way, get a UsageError.
    """

    _name = "checkpoint"
    _free = _lib.dcpkit_close

    def __init__(self, session: _Session, path: Any, format: str | None) -> None:
        super().__init__(session)
        self._path = os.fsdecode(path)
        name = None if format is None else _library.key_bytes(format)
        self._open(_lib.dcpkit_open, session.handle, _library.path_bytes(path), name)
        self._summary = _library.Summary()
        _lib.dcpkit_summary(self._handle, ctypes.byref(self._summary))
        self.format: str = self._summary.format.decode()
        #: "B"; "" where the format has one
        self.generation: str = self._summary.generation.decode()

    def __repr__(self) -> str:
        told = "closed"
        if self._handle:
            kind = " ".join(filter(None, (self.format, self.generation)))
            told = f"{kind}: {len(self)} tensors, {self._summary.n_objects} objects"
        return f"<dcpkit.Checkpoint {self._path!r} {told}>"

    def __len__(self) -> int:
        return self._summary.n_tensors

    def __iter__(self) -> Iterator[str]:
        for i in range(len(self)):
            yield Tensor(self, i).key

    def _find(self, key: Any) -> int | None:
        """The number of a tensor; None: there is none."""
        try:
            name = _library.key_bytes(key)
        except (AttributeError, ValueError):  # no text, or none that a file could hold
            return None
        index = ctypes.c_size_t()
        with self._use() as handle:
            status = _lib.dcpkit_tensor_find(handle, name, ctypes.byref(index))
        return index.value if status == 0 else None

    def __contains__(self, key: Any) -> bool:
        return self._find(key) is not None

    def __getitem__(self, key: str) -> Tensor:
        index = self._find(key)
        if index is None:
            raise KeyError(self._no_tensor(key))
        return Tensor(self, index)

    def get(self, key: Any, default: Any = None) -> Any:
        """The tensor of a key, or the default."""
        index = self._find(key)
        return default if index is None else Tensor(self, index)

    def _no_tensor(self, key: Any) -> str:
        """A sentence that names the nearest key, where one is near."""
        near, best = None, 0.6
        matcher = _difflib.SequenceMatcher(b=key if isinstance(key, str) else "", autojunk=False)
        for other in itertools.islice(self, _MOST_KEYS):
            matcher.set_seq1(other)
            if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
                ratio = matcher.ratio()
                near, best = (other, ratio) if ratio > best else (near, best)
        told = f"there is no tensor {key!r}"
        return told if near is None else f"{told}; did you mean {near!r}?"

    @property
    def objects(self) -> list[str]:
        """The keys of what is no tensor."""
        with self._use() as handle:
            n = self._summary.n_objects
            return [_library.key_text(_lib.dcpkit_object_key(handle, i)) for i in range(n)]

    def json(self, name: str) -> Any:
        """An object by its key, or state by its name in every format: "args.lr", "common"."""
        text = ctypes.c_void_p()
        self._call(_lib.dcpkit_json, _library.key_bytes(name), ctypes.byref(text))
        return _json.loads(_library.key_text(_library.take_text(text)))

    def _hashes(self, indices: Sequence[int]) -> list[str]:
        numbers = (ctypes.c_size_t * len(indices))(*indices)
        room = (ctypes.c_uint8 * (16 * len(indices)))()
        self._call(_lib.dcpkit_hash, numbers, len(indices), room)
        data = bytes(room)
        return [data[16 * i : 16 * i + 16].hex() for i in range(len(indices))]

    def hashes(self) -> dict[str, str]:
        """XXH3-128 of every tensor, as `dcpkit hash` prints them; reads all once, on all threads."""
        return dict(zip(self, self._hashes(range(len(self)))))

    @contextlib.contextmanager
    def _use_other(self, other: Checkpoint | None) -> Iterator[Any]:
        """The handle of a second checkpoint, which may be none, or this one, which is in use."""
        with contextlib.nullcontext() if other is None or other is self else other._use():
            yield None if other is None else other._handle

    def verify(self, source: Checkpoint | None = None) -> None:
        """Read everything and check it; with a source, that this is a faithful conversion of it.

        Raises FormatError, which names the first check that fails.
        """
        with self._use_other(source) as its:
            self._call(_lib.dcpkit_verify, its)

    def compare(self, other: Checkpoint) -> tuple[int, str | None]:
        """How many tensors and values differ from the other's, and a sentence about the first.

        Where none differs the sentence says what only one has: (0, "weights equal; B has no
        optimizer state"). A is this one, B the other; None: neither lacks any kind of state.
        """
        n, first = ctypes.c_uint64(), ctypes.c_void_p()
        with self._use_other(other) as its:
            self._call(_lib.dcpkit_compare, its, ctypes.byref(n), ctypes.byref(first))
        return n.value, _library.sentence_text(_library.take_text(first)) if first else None


def convert(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    to: str,
    *,
    format: str | None = None,
    replace: bool = False,
    resume: bool = False,
    weights_only: bool = False,
    check_input: bool | None = None,
    prove: bool = False,
    integrity: bool = False,
    swiglu: bool | None = None,
    mesh: Mapping[str, int] | None = None,
    hf_config: str | os.PathLike[str] | None = None,
    hf_assets: str | os.PathLike[str] | None = None,
    dtype: str | None = None,
    threads: int = 0,
    memory: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Convert a checkpoint to the format `to` at `out`; the source is never touched.

    Returns the report: how many keys became what, and what is "left_out", with reasons. replace: an output that exists; resume: one that
    was cut short; check_input: check every checksum of the source first, None: where prove is set;
    prove: read the output back and compare before it is published. swiglu: whether
    fc1 holds gate and up rows, None: as the checkpoint's args say. mesh: {"tp": 2, "pp": 2, ...} of
    the run that will load torch_dist or zarr, None: chunks that any run loads. hf_config: the config.json of
    a source without one, or one that a model of Hugging Face's starts from; hf_assets: a folder with its
    tokenizer; dtype: "float32", "bfloat16" or "float16" of that model.
    """
    flags = dict(
        replace=replace,
        resume=resume,
        weights_only=weights_only,
        check_input=bool(check_input),
        prove=prove,
        integrity=integrity,
        trust_input=check_input is False,
    )
    options = _library.ConvertOptions(ctypes.sizeof(_library.ConvertOptions))
    options.from_ = None if format is None else _library.key_bytes(format)
    options.flags = sum(_library.CONVERT_FLAGS[name] for name, is_set in flags.items() if is_set)
    options.swiglu = 0 if swiglu is None else 1 if swiglu else -1
    options.hf_config = None if hf_config is None else _library.path_bytes(hf_config)
    options.hf_assets = None if hf_assets is None else _library.path_bytes(hf_assets)
    options.dtype = None if dtype is None else _library.key_bytes(dtype)
    for name, size in (mesh or {}).items():
        if name not in dict(_library.Mesh._fields_):
            raise UsageError(f"a mesh has no dimension {name!r}")
        setattr(options.mesh, name, size)
    report = ctypes.c_void_p()
    session = _Session(threads, memory, progress)
    try:
        session.call(
            _lib.dcpkit_convert,
            session.handle,
            _library.path_bytes(source),
            _library.path_bytes(out),
            _library.key_bytes(to),
            ctypes.byref(options),
            ctypes.byref(report),
        )
        return _json.loads(_library.key_text(_library.take_text(report)))
    finally:
        session.close()


def open(  # noqa: A001 - dcpkit.open
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    threads: int = 0,
    memory: int = 0,
    progress: Progress | None = None,
) -> Checkpoint:
    """Open an iteration folder, a run folder (its newest iteration) or an archive.

    format: a name of formats(), None: by looking. threads: 0: the CPUs of the process, at most 16.
    memory: bytes of all buffers, 0: 256 MiB. progress: called with stage, bytes done and in all;
    returning False stops what is under way with Cancelled.
    """
    return Checkpoint(_Session(threads, memory, progress), path, format)
