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

import ctypes
import json as _json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from . import _library
from ._engine import Engine, Map, Plan, Stats, World, torch_world
from ._library import (
    Cancelled,
    Error,
    FormatError,
    Progress,
    SystemError,
    UnsupportedError,
    UsageError,
)
from ._library import Session as _Session

__all__ = [
    "Cancelled",
    "Checkpoint",
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
    "open",
    "torch_world",
    "version",
]

_lib = _library.library



def version() -> str:
    """The version of the library."""
    return _lib.dcpkit_version().decode()


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


class Tensor:
    """A stored tensor. Indexing reads elements: integers, slices and ... as numpy knows them."""

    def __init__(self, checkpoint: Checkpoint, index: int) -> None:
        info = _library.TensorInfo()
        checkpoint._session.call(
            _lib.dcpkit_tensor_at, checkpoint._opened(), index, ctypes.byref(info)
        )
        self._checkpoint = checkpoint
        self._index = index
        self._elem_bytes = info.elem_bytes
        self._n_chunks = info.n_chunks
        self.key: str = _library.key_text(info.key)
        #: torch's name of the dtype, "bfloat16"
        self.dtype: str = info.dtype.decode()
        self.shape: tuple[int, ...] = tuple(info.shape[axis] for axis in range(info.rank))

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
        for i in range(self._n_chunks):
            self._checkpoint._session.call(
                _lib.dcpkit_chunk_at, self._checkpoint._opened(), self._index, i, ctypes.byref(info)
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

    def read_into(self, address: int, n_bytes: int, offset: Any = None, extent: Any = None) -> None:
        """Read a box, row-major, to n_bytes of memory at an address; without one all of it."""
        numbers = ctypes.c_int64 * len(self.shape)
        if (offset is None) != (extent is None):
            raise UsageError("a box needs an offset and an extent")
        box = (None, None) if offset is None else (numbers(*offset), numbers(*extent))
        self._checkpoint._session.call(
            _lib.dcpkit_read, self._checkpoint._opened(), self._index, *box, address, n_bytes
        )

    def read(self, offset: Any = None, extent: Any = None) -> bytearray:
        """The bytes of a box, row-major, little-endian; without one of all elements."""
        n_bytes = self._elem_bytes
        for n in self.shape if extent is None else extent:
            n_bytes *= n
        data = bytearray(n_bytes)
        buffer = (ctypes.c_char * n_bytes).from_buffer(data)
        self.read_into(ctypes.addressof(buffer), n_bytes, offset, extent)
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
                position = part.__index__()
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

    def torch(self) -> Any:
        """All elements as a torch tensor."""
        import torch

        tensor = torch.empty(self.shape, dtype=getattr(torch, self.dtype))
        self.read_into(tensor.data_ptr(), tensor.numel() * tensor.element_size())
        return tensor

    def hash(self) -> str:
        """XXH3-128 of the elements, as `dcpkit hash` prints it."""
        return self._checkpoint._hashes([self._index])[0]


class Checkpoint(Mapping[str, Tensor]):
    """An opened checkpoint: its tensors by key. Close it, or use it in a `with`."""

    def __init__(self, session: _Session, path: Any, format: str | None) -> None:
        self._session = session
        self._handle = ctypes.c_void_p()
        try:
            session.call(
                _lib.dcpkit_open,
                session.handle,
                os.fsencode(path),
                None if format is None else format.encode(),
                ctypes.byref(self._handle),
            )
        except BaseException:
            self.close()
            raise
        self._summary = _library.Summary()
        _lib.dcpkit_summary(self._handle, ctypes.byref(self._summary))
        self.format: str = self._summary.format.decode()
        #: "B"; "" where the format has one
        self.generation: str = self._summary.generation.decode()

    def _opened(self) -> ctypes.c_void_p:
        if not self._handle:
            raise UsageError("the checkpoint is closed")
        return self._handle

    def close(self) -> None:
        """Give everything back; closing again does nothing."""
        if self._handle:
            _lib.dcpkit_close(self._handle)
            self._session.close()
            self._handle = ctypes.c_void_p()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()

    def __len__(self) -> int:
        return self._summary.n_tensors

    def __iter__(self) -> Iterator[str]:
        for i in range(len(self)):
            yield self._tensor(i).key

    def _tensor(self, index: int) -> Tensor:
        self._opened()
        return Tensor(self, index)

    def __getitem__(self, key: str) -> Tensor:
        index = ctypes.c_size_t()
        status = _lib.dcpkit_tensor_find(self._opened(), _library.key_bytes(key), ctypes.byref(index))
        if status != 0:
            raise KeyError(key)
        return self._tensor(index.value)

    @property
    def objects(self) -> list[str]:
        """The keys of what is no tensor."""
        self._opened()
        keys = (_lib.dcpkit_object_key(self._handle, i) for i in range(self._summary.n_objects))
        return [_library.key_text(key) for key in keys]

    def json(self, name: str) -> Any:
        """An object by its key, or state by its name in every format: "args.lr", "common"."""
        text = ctypes.c_void_p()
        self._session.call(
            _lib.dcpkit_json, self._opened(), _library.key_bytes(name), ctypes.byref(text)
        )
        return _json.loads(_library.key_text(_library.take_text(text)))

    def _hashes(self, indices: list[int]) -> list[str]:
        numbers = (ctypes.c_size_t * len(indices))(*indices)
        room = (ctypes.c_uint8 * (16 * len(indices)))()
        self._session.call(_lib.dcpkit_hash, self._opened(), numbers, len(indices), room)
        data = bytes(room)
        return [data[16 * i : 16 * i + 16].hex() for i in range(len(indices))]

    def hashes(self) -> dict[str, str]:
        """XXH3-128 of every tensor, as `dcpkit hash` prints them; reads all once, on all threads."""
        return dict(zip(self, self._hashes(list(range(len(self))))))

    def verify(self, source: Checkpoint | None = None) -> None:
        """Read everything and check it; with a source, that this is a faithful conversion of it.

        Raises FormatError, which names the first check that fails.
        """
        handle = None if source is None else source._opened()
        self._session.call(_lib.dcpkit_verify, self._opened(), handle)

    def compare(self, other: Checkpoint) -> tuple[int, str | None]:
        """How many tensors and values differ from the other's, and a sentence about the first."""
        n, first = ctypes.c_uint64(), ctypes.c_void_p()
        self._session.call(
            _lib.dcpkit_compare,
            self._opened(),
            other._opened(),
            ctypes.byref(n),
            ctypes.byref(first),
        )
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
    check_input: bool = False,
    prove: bool = False,
    integrity: bool = False,
    swiglu: bool | None = None,
    mesh: Mapping[str, int] | None = None,
    threads: int = 0,
    memory: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Convert a checkpoint to the format `to` at `out`; the source is never touched.

    Returns the report: how many keys became what, and what is "left_out", with reasons. replace: an output that exists; resume: one that
    was cut short; prove: read the output back and compare before it is published. swiglu: whether
    fc1 holds gate and up rows, None: as the checkpoint's args say. mesh: {"tp": 2, "pp": 2, ...} of
    the run that will load torch_dist or zarr, None: chunks that any run loads.
    """
    flags = dict(
        replace=replace,
        resume=resume,
        weights_only=weights_only,
        check_input=check_input,
        prove=prove,
        integrity=integrity,
    )
    options = _library.ConvertOptions(ctypes.sizeof(_library.ConvertOptions))
    options.from_ = None if format is None else format.encode()
    options.flags = sum(_library.CONVERT_FLAGS[name] for name, is_set in flags.items() if is_set)
    options.swiglu = 0 if swiglu is None else 1 if swiglu else -1
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
            os.fsencode(source),
            os.fsencode(out),
            to.encode(),
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
    session = _Session(threads, memory, progress)
    try:
        return Checkpoint(session, path, format)
    except BaseException:
        session.close()
        raise
