# SPDX-License-Identifier: Apache-2.0
"""The C library, by ctypes: what lib/api/dcpkit.h declares, and its failures as exceptions."""

from __future__ import annotations

import contextlib
import ctypes
import operator
import os
import pathlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint8, c_uint64, c_void_p
from typing import Any

Progress = Callable[[str, int, int], Any]

PROGRESS = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, c_uint64, c_uint64)
ALL_GATHER = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_void_p)
UNIT_DONE = ctypes.CFUNCTYPE(None, c_void_p, c_size_t, c_size_t, c_size_t)


def _check_integer(kind: Any, value: Any, what: str) -> int:
    """An integer that C's type `kind` holds; ctypes would cut it to that."""
    number = operator.index(value)
    bits = 8 * ctypes.sizeof(kind)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind(-1).value < 0 else (0, (1 << bits) - 1)
    if not low <= number <= high:
        raise UsageError(f"{what} is {number}, outside of {low} to {high}")
    return number


def int64s(values: Iterable[Any], n: int, what: str) -> Any:
    """n integers as C's array of them."""
    numbers = [_check_integer(c_int64, value, what) for value in values]
    if len(numbers) != n:
        raise UsageError(f"{what} has {len(numbers)} numbers for {n} axes")
    return (c_int64 * n)(*numbers)


class Struct(ctypes.Structure):
    """A struct of C, whose integers are checked when they are set."""

    def __init_subclass__(cls) -> None:
        integers = (c_int, ctypes.c_uint, c_int64, c_uint64, c_size_t)
        cls._integers = {name: kind for name, kind in cls._fields_ if kind in integers}

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._integers:
            value = _check_integer(self._integers[name], value, f"'{name}'")
        super().__setattr__(name, value)


def _fields(*rows: tuple[str, Any]) -> list[tuple[str, Any]]:
    """Fields by names that are separated by blanks, and their type."""
    return [(name, kind) for names, kind in rows for name in names.split()]


class Options(Struct):
    _fields_ = _fields(
        ("size", c_size_t),
        ("n_threads", c_int),
        ("memory_bytes", c_uint64),
        ("progress", PROGRESS),
        ("context", c_void_p),
    )


class Summary(Struct):
    _fields_ = _fields(
        ("format generation", c_char_p),
        ("n_tensors n_objects n_files", c_size_t),
        ("tensor_bytes", c_uint64),
    )


class TensorInfo(Struct):
    _fields_ = _fields(
        ("key dtype", c_char_p),
        ("elem_bytes", c_size_t),
        ("rank", c_int),
        ("shape", POINTER(c_int64)),
        ("n_chunks", c_size_t),
    )


class ChunkInfo(Struct):
    _fields_ = _fields(
        ("offset extent", POINTER(c_int64)),
        ("file", c_char_p),
        ("first_byte n_bytes", c_uint64),
    )


class Mesh(Struct):
    _fields_ = _fields(("tp pp ep cp dp etp vpp", c_int64))


class ConvertOptions(Struct):
    _fields_ = _fields(
        ("size", c_size_t),
        ("from_", c_char_p),
        ("flags", ctypes.c_uint),
        ("swiglu", c_int),
        ("mesh", Mesh),
        ("hf_config hf_assets dtype", c_char_p),
    )


class World(Struct):
    _fields_ = _fields(("rank n_ranks", c_int), ("context", c_void_p), ("all_gather", ALL_GATHER))


class EngineOptions(Struct):
    _fields_ = _fields(
        ("size", c_size_t),
        ("device transport", c_char_p),
        ("staging_bytes unit_bytes", c_uint64),
        ("link_bytes_a_second", c_double),
        ("timeout_ms n_blocks check reserved", c_int),
    )


class Shard(Struct):
    _fields_ = _fields(
        ("name dtype", c_char_p),
        ("rank", c_int),
        ("shape offset extent", POINTER(c_int64)),
        ("data", c_void_p),
        ("stride_bytes", POINTER(c_int64)),
    )


class MapTotals(Struct):
    _fields_ = _fields(
        ("size", c_size_t),
        ("in_bytes out_bytes local_bytes kept_bytes all_bytes read_bytes", c_uint64),
        ("table_bytes staging_bytes", c_uint64),
        ("n_tensors n_units n_unwanted", c_size_t),
        ("n_direct_peers n_link_peers", c_int),
        ("predicted_seconds", c_double),
        ("link note", c_char_p),
    )


class MapStats(Struct):
    _fields_ = _fields(
        ("size units_done", c_size_t),
        ("seconds", c_double),
        ("n_tiles n_messages read_bytes n_blocks n_sent_blocks sent_bytes", c_uint64),
    )


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
    "trust_input": 64,
}


class Error(Exception):
    """A call of the library failed; its text says what was wrong and where."""


class UsageError(Error, ValueError):
    """Arguments do not fit together, or an output exists."""


class FormatError(Error):
    """Bytes of a file are malformed, or two things that must agree do not."""


class DifferenceError(FormatError):
    """Tensors do not hold what they should.

    differing: their names; not_in_checkpoint, not_in_model: names that one side lacks, of
    verify_weights.
    """

    def __init__(
        self,
        sentence: str,
        differing: list[str],
        not_in_checkpoint: list[str] | None = None,
        not_in_model: list[str] | None = None,
    ) -> None:
        super().__init__(sentence)
        self.differing = differing
        self.not_in_checkpoint = not_in_checkpoint or []
        self.not_in_model = not_in_model or []


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
    1073741824: "hf_config=... gives it",
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
    "dcpkit_map_names": (c_int, [c_void_p, c_char_p, c_char_p, c_char_p]),
    "dcpkit_map_checkpoint_tensor": (c_char_p, [c_void_p, c_size_t]),
    "dcpkit_map_plan": (c_int, [c_void_p, POINTER(MapTotals)]),
    "dcpkit_map_tensor": (c_char_p, [c_void_p, c_size_t]),
    "dcpkit_map_each_unit": (None, [c_void_p, UNIT_DONE, c_void_p]),
    "dcpkit_map_run": (c_int, [c_void_p, POINTER(MapStats)]),
    "dcpkit_map_run_changed": (c_int, [c_void_p, POINTER(MapStats)]),
    "dcpkit_map_fingerprint": (c_int, [c_void_p, c_int, POINTER(c_uint64), c_size_t]),
    "dcpkit_map_verify": (c_int, [c_void_p, POINTER(c_uint8), c_size_t]),
}


def _find() -> str:
    """The library beside this file, as a wheel has it, else what the system has."""
    named = os.environ.get("DCPKIT_LIBRARY")
    if named:
        return named
    beside = sorted(pathlib.Path(__file__).parent.glob("libdcpkit.so*"))
    return str(beside[0]) if beside else "libdcpkit.so.0.2"


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


def _for_c(text: bytes) -> bytes:
    if b"\0" in text:
        raise UsageError(f"{text!r} holds a NUL, where C would take its end to be")
    return text


def key_bytes(key: str) -> bytes:
    return _for_c(key.encode("utf-8", "surrogateescape"))


def path_bytes(path: Any) -> bytes:
    return _for_c(os.fsencode(path))


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
    """A session of the library, which one call uses at a time; its last handle frees it.

    What a callback raises comes out of the call that made it.
    """

    def __init__(self, threads: int = 0, memory: int = 0, progress: Progress | None = None) -> None:
        self._progress = progress
        self.raised: BaseException | None = None
        self._is_inside = False  #: the main thread runs a callback, in which a signal may raise
        self._in_use = threading.Lock()
        self._n_handles = 0
        self._unused: list[tuple[Any, c_void_p]] = []  #: handles to be freed, by which function
        self.handle = c_void_p()
        options = Options(ctypes.sizeof(Options), threads, memory)
        if progress is not None:
            self._callback = options.progress = PROGRESS(self._update)
        status = library.dcpkit_new(ctypes.byref(options), ctypes.byref(self.handle))
        if status != 0:
            raise UsageError("these options cannot be") if status == 1 else MemoryError()

    @contextlib.contextmanager
    def use(self, name: str) -> Iterator[None]:
        """Keep other threads and callbacks away from what the session opened, until this ends.

        It does not wait: a callback would wait for its own caller.
        """
        if not self._in_use.acquire(blocking=False):
            raise UsageError(
                f"the {name} is in use by another thread or by the caller of this callback "
                "(open one for each thread)"
            )
        try:
            yield
        finally:
            self._in_use.release()
            self._free_unused()

    def keep(self) -> None:
        """A handle of the session was opened."""
        self._n_handles += 1

    def free(self, function: Any, handle: c_void_p) -> None:
        """Free a handle of the session: now, or when the call that uses the session has ended."""
        self._unused.append((function, handle))
        self._free_unused()

    def _free_unused(self) -> None:
        while self._unused and self._in_use.acquire(blocking=False):
            try:
                while self._unused:
                    function, handle = self._unused.pop()
                    function(handle)
                    self._n_handles -= 1
                self.close()
            finally:
                self._in_use.release()

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
        """Free the session, unless handles of it are open: the last of them does."""
        if self._n_handles == 0:
            handle, self.handle = self.handle, c_void_p()
            library.dcpkit_free(handle)

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a session is open in this process: it is neither copied nor pickled")


class Handle:
    """Something that a session has opened. One call uses it at a time; close it, or use a `with`."""

    _name = ""  #: in sentences: "checkpoint"
    _free: Any = None  #: C's function that closes it

    def __init__(self, session: Session) -> None:
        self._session = session
        self._handle = c_void_p()

    def _open(self, function: Any, *arguments: Any) -> None:
        """Call a function of C whose last argument becomes the handle. Nothing else uses it yet."""
        try:
            self._session.call(function, *arguments, ctypes.byref(self._handle))
        finally:
            if self._handle:
                self._session.keep()
            else:
                self._session.close()

    @contextlib.contextmanager
    def _use(self) -> Iterator[c_void_p]:
        """The handle, for the calls within, and what they give out."""
        with self._session.use(self._name):
            if not self._handle:
                raise UsageError(f"the {self._name} is closed")
            yield self._handle

    def _call(self, function: Any, *arguments: Any) -> None:
        with self._use() as handle:
            self._session.call(function, handle, *arguments)

    def _take_handle(self) -> c_void_p:
        handle, self._handle = self._handle, c_void_p()
        return handle

    def close(self) -> None:
        """Give everything back; closing again does nothing. Not collective."""
        with self._session.use(self._name):
            handle = self._take_handle()
        if handle:
            self._session.free(self._free, handle)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._session.free(self._free, self._take_handle())

    def __reduce__(self) -> Any:
        raise TypeError(f"the {self._name} is open in this process: it is neither copied nor pickled")


def take_text(text: c_void_p) -> bytes:
    """Text that the library gave away, which is freed."""
    try:
        return ctypes.string_at(text)
    finally:
        library.dcpkit_text_free(text)
