# SPDX-License-Identifier: Apache-2.0
"""The C library, by ctypes: what lib/api/dcpkit.h declares, and its failures as exceptions."""

from __future__ import annotations

import ctypes
import os
import pathlib
import signal
import threading
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any

Progress = Callable[[str, int, int], Any]

PROGRESS = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, c_uint64, c_uint64)
ALL_GATHER = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_void_p)
UNIT_DONE = ctypes.CFUNCTYPE(None, c_void_p, c_size_t, c_size_t, c_size_t)


class Options(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("n_threads", c_int),
        ("memory_bytes", c_uint64),
        ("progress", PROGRESS),
        ("context", c_void_p),
    ]


class Summary(ctypes.Structure):
    _fields_ = [
        ("format", c_char_p),
        ("generation", c_char_p),
        ("n_tensors", c_size_t),
        ("n_objects", c_size_t),
        ("n_files", c_size_t),
        ("tensor_bytes", c_uint64),
    ]


class TensorInfo(ctypes.Structure):
    _fields_ = [
        ("key", c_char_p),
        ("dtype", c_char_p),
        ("elem_bytes", c_size_t),
        ("rank", c_int),
        ("shape", POINTER(c_int64)),
        ("n_chunks", c_size_t),
    ]


class ChunkInfo(ctypes.Structure):
    _fields_ = [
        ("offset", POINTER(c_int64)),
        ("extent", POINTER(c_int64)),
        ("file", c_char_p),
        ("first_byte", c_uint64),
        ("n_bytes", c_uint64),
    ]


class Mesh(ctypes.Structure):
    _fields_ = [(name, c_int64) for name in ("tp", "pp", "ep", "cp", "dp", "etp", "vpp")]


class ConvertOptions(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("from_", c_char_p),
        ("flags", ctypes.c_uint),
        ("swiglu", c_int),
        ("mesh", Mesh),
    ]


class World(ctypes.Structure):
    _fields_ = [
        ("rank", c_int),
        ("n_ranks", c_int),
        ("context", c_void_p),
        ("all_gather", ALL_GATHER),
    ]


class EngineOptions(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("device", c_char_p),
        ("transport", c_char_p),
        ("staging_bytes", c_uint64),
        ("unit_bytes", c_uint64),
        ("link_bytes_a_second", c_double),
        ("timeout_ms", c_int),
        ("n_blocks", c_int),
        ("check", c_int),
        ("reserved", c_int),
    ]


class Shard(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("rank", c_int),
        ("shape", POINTER(c_int64)),
        ("offset", POINTER(c_int64)),
        ("extent", POINTER(c_int64)),
        ("data", c_void_p),
        ("stride_bytes", POINTER(c_int64)),
    ]


class MapTotals(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("in_bytes", c_uint64),
        ("out_bytes", c_uint64),
        ("local_bytes", c_uint64),
        ("kept_bytes", c_uint64),
        ("all_bytes", c_uint64),
        ("read_bytes", c_uint64),
        ("table_bytes", c_uint64),
        ("staging_bytes", c_uint64),
        ("n_tensors", c_size_t),
        ("n_units", c_size_t),
        ("n_unwanted", c_size_t),
        ("n_direct_peers", c_int),
        ("n_link_peers", c_int),
        ("predicted_seconds", c_double),
        ("link", c_char_p),
        ("note", c_char_p),
    ]


class MapStats(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("units_done", c_size_t),
        ("seconds", c_double),
        ("n_tiles", c_uint64),
        ("n_messages", c_uint64),
        ("read_bytes", c_uint64),
    ]


#: enum dcpkit_side
SIDES = {"sources": 0, "targets": 1}

#: enum dcpkit_convert_flags
CONVERT_FLAGS = {
    "replace": 1,
    "resume": 2,
    "weights_only": 4,
    "check_input": 8,
    "prove": 16,
    "integrity": 32,
}


class Error(Exception):
    """A call of the library failed; its text says what was wrong and where."""


class UsageError(Error, ValueError):
    """Arguments do not fit together, or an output exists."""


class FormatError(Error):
    """Bytes of a file are malformed, or two things that must agree do not."""


class UnsupportedError(Error):
    """Well formed, but neither read nor written."""


class SystemError(Error, OSError):  # noqa: A001 - dcpkit.SystemError
    """The system refused: a missing file, permission, no space, a read error."""


class Cancelled(Error):
    """The progress callback asked to stop."""


#: enum dcpkit_fix, as arguments of this package's functions
_FIXES = {
    1: "replace=True replaces it",
    2: "resume=True continues it",
    4: "memory=... allows more",
    8: "weights_only=True leaves the optimizer state out",
    16: "swiglu=... says which",
    1024: "mesh=None cuts it for no mesh",
    4096: "prove=False does not read it back",
    8192: "integrity=False writes no list of files",
}

_EXCEPTIONS = {
    1: UsageError,
    2: FormatError,
    3: UnsupportedError,
    4: FormatError,
    5: FormatError,
    6: MemoryError,
    7: SystemError,
    8: Cancelled,
}

_SIGNATURES = {
    "dcpkit_version": (c_char_p, []),
    "dcpkit_new": (c_int, [POINTER(Options), POINTER(c_void_p)]),
    "dcpkit_free": (None, [c_void_p]),
    "dcpkit_error": (c_char_p, [c_void_p]),
    "dcpkit_fixes": (ctypes.c_uint, [c_void_p]),
    "dcpkit_format_name": (c_char_p, [c_size_t]),
    "dcpkit_open": (c_int, [c_void_p, c_char_p, c_char_p, POINTER(c_void_p)]),
    "dcpkit_close": (None, [c_void_p]),
    "dcpkit_summary": (None, [c_void_p, POINTER(Summary)]),
    "dcpkit_tensor_at": (c_int, [c_void_p, c_size_t, POINTER(TensorInfo)]),
    "dcpkit_tensor_find": (c_int, [c_void_p, c_char_p, POINTER(c_size_t)]),
    "dcpkit_chunk_at": (c_int, [c_void_p, c_size_t, c_size_t, POINTER(ChunkInfo)]),
    "dcpkit_read": (
        c_int,
        [c_void_p, c_size_t, POINTER(c_int64), POINTER(c_int64), c_void_p, c_size_t],
    ),
    "dcpkit_object_key": (c_char_p, [c_void_p, c_size_t]),
    "dcpkit_json": (c_int, [c_void_p, c_char_p, POINTER(c_void_p)]),
    "dcpkit_text_free": (None, [c_void_p]),
    "dcpkit_hash": (c_int, [c_void_p, POINTER(c_size_t), c_size_t, c_void_p]),
    "dcpkit_verify": (c_int, [c_void_p, c_void_p]),
    "dcpkit_compare": (c_int, [c_void_p, c_void_p, POINTER(c_uint64), POINTER(c_void_p)]),
    "dcpkit_convert": (
        c_int,
        [c_void_p, c_char_p, c_char_p, c_char_p, POINTER(ConvertOptions), POINTER(c_void_p)],
    ),
    "dcpkit_engine_open": (
        c_int,
        [c_void_p, POINTER(World), POINTER(EngineOptions), POINTER(c_void_p)],
    ),
    "dcpkit_engine_close": (None, [c_void_p]),
    "dcpkit_map_new": (c_int, [c_void_p, POINTER(c_void_p)]),
    "dcpkit_map_free": (None, [c_void_p]),
    "dcpkit_map_source": (c_int, [c_void_p, POINTER(Shard), c_size_t]),
    "dcpkit_map_target": (c_int, [c_void_p, POINTER(Shard), c_size_t]),
    "dcpkit_map_fail": (None, [c_void_p, c_char_p]),
    "dcpkit_map_source_checkpoint": (c_int, [c_void_p, c_char_p, c_char_p]),
    "dcpkit_map_plan": (c_int, [c_void_p, POINTER(MapTotals)]),
    "dcpkit_map_tensor": (c_char_p, [c_void_p, c_size_t]),
    "dcpkit_map_each_unit": (None, [c_void_p, UNIT_DONE, c_void_p]),
    "dcpkit_map_run": (c_int, [c_void_p, POINTER(MapStats)]),
    "dcpkit_map_fingerprint": (c_int, [c_void_p, c_int, POINTER(c_uint64), c_size_t]),
}


def _find() -> str:
    """The library beside this file, as a wheel has it, else what the system has."""
    named = os.environ.get("DCPKIT_LIBRARY")
    if named:
        return named
    beside = sorted(pathlib.Path(__file__).parent.glob("libdcpkit.so*"))
    return str(beside[0]) if beside else "libdcpkit.so.0.1"


def _load() -> ctypes.CDLL:
    path = _find()
    library = ctypes.CDLL(path)
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name, None)
        if function is None:
            version = getattr(library, "dcpkit_version", lambda: b"of no version")
            version.restype = c_char_p
            raise ImportError(
                f"{path} (dcpkit {version().decode()}) has no {name}: this package needs another one"
            )
        function.restype = result
        function.argtypes = arguments
    return library


library = _load()


def key_text(key: bytes) -> str:
    """A key, which is bytes, as text that key_bytes() makes the same bytes of."""
    return key.decode("utf-8", "surrogateescape")


def key_bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


def sentence_text(sentence: bytes) -> str:
    """A sentence to be read, which may quote any bytes."""
    return sentence.decode("utf-8", "replace")


def check(status: int, session: c_void_p) -> None:
    """Raise what a status stands for, with the session's sentence and what would mend it."""
    if status == 0:
        return
    fixes = library.dcpkit_fixes(session)
    words = ", ".join(text for bit, text in _FIXES.items() if fixes & bit)
    sentence = sentence_text(library.dcpkit_error(session))
    raise _EXCEPTIONS.get(status, Error)(f"{sentence} ({words})" if words else sentence)


def _is_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


class Session:
    """A session of the library; what a callback raises comes out of the call that made it."""

    def __init__(self, threads: int = 0, memory: int = 0, progress: Progress | None = None) -> None:
        self._progress = progress
        self.raised: BaseException | None = None
        self._is_inside = False  #: the main thread runs a callback, in which a signal may raise
        self.handle = c_void_p()
        options = Options(ctypes.sizeof(Options), threads, memory)
        if progress is not None:
            self._callback = options.progress = PROGRESS(self._update)
        status = library.dcpkit_new(ctypes.byref(options), ctypes.byref(self.handle))
        if status != 0:
            raise UsageError("these options cannot be") if status == 1 else MemoryError()

    def _update(self, _context: Any, stage: bytes, done: int, total: int) -> int:
        return self.inside(self._progress, sentence_text(stage), done, total)

    def inside(self, function: Callable[..., Any], *arguments: Any) -> int:
        """What a callback does: 0, or 1 when it answers False, or something raises or has raised."""
        if self.raised is not None:
            return 1
        is_main = _is_main_thread()
        try:
            try:
                self._is_inside = self._is_inside or is_main
                return 1 if function(*arguments) is False else 0
            finally:
                self._is_inside = self._is_inside and not is_main
        except BaseException as raised:  # noqa: BLE001 - it must not pass through C
            self.raised = raised
            return 1

    def _interrupt(self, number: int, frame: Any) -> None:
        """SIGINT while C runs: what its handler raises waits until C has returned."""
        try:
            self._interrupted(number, frame)
        except BaseException as raised:  # noqa: BLE001
            if self._is_inside:
                raise
            self.raised = raised

    def call(self, function: Any, *arguments: Any) -> None:
        """Call C and raise what failed in it. A signal that comes at the begin of a callback must
        not raise there: ctypes would answer C with bytes that nothing has set."""
        handler = signal.getsignal(signal.SIGINT) if _is_main_thread() else None
        if not callable(handler):  # none of Python's
            return self._check(function(*arguments))
        self._interrupted = handler
        signal.signal(signal.SIGINT, self._interrupt)
        try:
            status = function(*arguments)
        finally:
            signal.signal(signal.SIGINT, handler)
        self._check(status)

    def _check(self, status: int) -> None:
        raised, self.raised = self.raised, None
        if raised is not None:
            raise raised
        check(status, self.handle)

    def close(self) -> None:
        library.dcpkit_free(self.handle)
        self.handle = c_void_p()

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.close()


def take_text(text: c_void_p) -> bytes:
    """Text that the library gave away, which is freed."""
    try:
        return ctypes.string_at(text)
    finally:
        library.dcpkit_text_free(text)
