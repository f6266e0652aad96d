# SPDX-License-Identifier: Apache-2.0
"""The engine: tensors in the memory of ranks go to where another layout wants them.

    engine = dcpkit.Engine(dcpkit.torch_world(), device=f"cuda:{torch.cuda.current_device()}")
    m = engine.map()
    for name, p in trainer.named_parameters():
        m.source(name, p)          # a DTensor, or a tensor with box= and shape=
    for name, p in rollout.named_parameters():
        m.target(name, p)          # another dtype: cast on the way
    print(m.plan())                # bytes, peers, time, and who goes over a link, and why
    for step in range(n):
        train(step)
        m.run()                    # same addresses: no planning, no allocation

From files: m.checkpoint("/ckpt/run"); m.targets(model.state_dict()); m.plan(); m.run().
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import datetime
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from . import _library
from ._library import UnsupportedError, UsageError

_lib = _library.library

#: Begin and length of what a rank has of one axis of a tensor, in the order of its local tensor.
_Runs = list[tuple[int, int]]
#: ((offset, ...), (extent, ...))
Box = tuple[Sequence[int], Sequence[int]]


class World:
    """The ranks of a job, or of several (meet).

    all_gather(mine, all): collective; the bytes of every rank, as many of each, in the order of
    ranks, into `all` of every rank. Both are writable memoryviews of bytes. It raises when a rank
    is gone or takes too long.
    """

    def __init__(
        self, rank: int, size: int, all_gather: Callable[[memoryview, memoryview], Any]
    ) -> None:
        self.rank = rank
        self.size = size
        self.all_gather = all_gather


def _has_gloo(group: Any) -> bool:
    import torch

    try:
        return group._get_backend(torch.device("cpu")).name() == "gloo"
    except RuntimeError:  # it has none for the CPU
        return False


def torch_world(group: Any = None, timeout: datetime.timedelta | None = None) -> World:
    """The world of a torch process group; None: all ranks.

    Bytes go over gloo: the group's own, or that of a group of the same ranks made here, when it has
    none or a timeout is given. Collective over the group then.
    """
    import torch
    import torch.distributed as dist

    group = dist.group.WORLD if group is None else group
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise UsageError("this process is not in the group")
    if timeout is not None or not _has_gloo(group):
        ranks = dist.get_process_group_ranks(group)
        group = dist.new_group(ranks, timeout, "gloo", use_local_synchronization=True)

    def all_gather(mine: memoryview, everything: memoryview) -> None:
        dist.all_gather_into_tensor(
            torch.frombuffer(everything, dtype=torch.uint8),
            torch.frombuffer(mine, dtype=torch.uint8),
            group=group,
        )

    return World(rank, size, all_gather)


class _Gather:
    """A world's all_gather as the library calls it."""

    def __init__(self, world: World, session: _library.Session) -> None:
        self._world = world
        self._session = session

    def __call__(self, _context: Any, mine: int, n_bytes: int, everything: int) -> int:
        return self._session.inside(self._gather, mine, n_bytes, everything)

    def _gather(self, mine: int, n_bytes: int, everything: int) -> None:
        views = _bytes_at(mine, n_bytes), _bytes_at(everything, n_bytes * self._world.size)
        try:
            self._world.all_gather(*views)
        finally:
            for view in views:  # the library takes the memory back
                with contextlib.suppress(BufferError):  # a tensor of torch still lies over it
                    view.release()


def _bytes_at(address: int, n_bytes: int) -> memoryview:
    return memoryview((ctypes.c_char * n_bytes).from_address(address)).cast("B")


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a map comes to. Bytes are this rank's, but for all_bytes, and of the narrower dtype of a cast."""

    in_bytes: int  #: from other ranks
    out_bytes: int  #: to other ranks
    local_bytes: int  #: within this rank
    kept_bytes: int  #: where they are already
    all_bytes: int  #: between ranks, of all together
    read_bytes: int  #: from the files of a checkpoint
    table_bytes: int  #: what the plan takes on the device
    staging_bytes: int  #: and its messages
    n_tensors: int
    n_units: int
    n_unwanted: int  #: shards of sources of tensors without a target
    n_direct_peers: int  #: ranks whose memory is mapped
    n_link_peers: int  #: ranks that are reached by messages
    predicted_seconds: float  #: 0: the engine has no link_bytes_a_second
    link: str  #: its name; "" when none is used
    note: str  #: which ranks go over the link and why, or why ranks read the same files; "" when none do

    def __str__(self) -> str:
        peers = f"{self.n_direct_peers} peers directly"
        if self.n_link_peers:
            peers += f", {self.n_link_peers} over the link {self.link!r}"
        text = (
            f"{self.n_tensors} tensors in {self.n_units} unit(s): {_size(self.in_bytes)} in, "
            f"{_size(self.out_bytes)} out, {_size(self.local_bytes)} within the rank, "
            f"{_size(self.kept_bytes)} in place; {peers}"
        )
        if self.read_bytes:
            text += f"; {_size(self.read_bytes)} from files"
        if self.predicted_seconds:
            text += f"; predicted {self.predicted_seconds * 1e3:.3g} ms"
        return f"{text} ({self.note})" if self.note else text


@dataclasses.dataclass(frozen=True)
class Stats:
    """What a run came to."""

    units_done: int
    seconds: float  #: this rank's
    n_tiles: int  #: that this rank moved
    n_messages: int  #: that this rank sent
    read_bytes: int  #: from files, by this rank
    n_blocks: int  #: of this rank's sources, in a run with delta
    n_sent_blocks: int  #: of them, that were sent
    sent_bytes: int  #: and their bytes, in targets


def _size(n_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.4g} TB"


def _figures(kind: Any, made: Any) -> Any:
    """A struct of figures as the dataclass with the same names."""
    values = {field.name: getattr(made, field.name) for field in dataclasses.fields(kind)}
    return kind(**{k: _library.sentence_text(v) if isinstance(v, bytes) else v for k, v in values.items()})


def _runs_chunk(runs: _Runs, n: int, index: int) -> _Runs:
    """Number `index` of n chunks of what the runs hold, as torch.chunk cuts it."""
    total = sum(length for _, length in runs)
    each = -(-total // n)
    low, high = min(index * each, total), min((index + 1) * each, total)
    picked, at = [], 0
    for begin, length in runs:
        first, last = max(low, at), min(high, at + length)
        if first < last:
            picked.append((begin + first - at, last - first))
        at += length
    return picked


def _runs_shard(runs: _Runs, n: int, index: int, split: int) -> _Runs:
    """Shard, and _StridedShard, which first cuts into `split` pieces and shards each of them."""
    if split == 1:
        return _runs_chunk(runs, n, index)
    pieces = (_runs_chunk(runs, split, piece) for piece in range(split))
    return [run for piece in pieces for run in _runs_chunk(piece, n, index)]


def _dtensor_cuts(spec: Any) -> list[tuple[int, int, int]]:
    """What shards a DTensor, in the order in which it does: mesh dimension, axis, split."""
    for placement in spec.placements:
        if placement.is_partial():
            raise UsageError("a DTensor with partial sums has no elements to move: redistribute it")
    order = getattr(spec, "shard_order", None)
    if order is not None:
        return [
            (dim, entry.tensor_dim, getattr(spec.placements[dim], "split_factor", 1))
            for entry in order
            for dim in entry.mesh_dims
        ]
    return [
        (dim, placement.dim, getattr(placement, "split_factor", 1))
        for dim, placement in enumerate(spec.placements)
        if not placement.is_replicate()
    ]


def _megatron_fsdp_runs(tensor: Any) -> list[_Runs]:
    """What this rank has of a parameter of Megatron-FSDP, which does not cut evenly: the rows that
    its buffer has of the block that tensor parallelism leaves here (_init_optimizer_named_parameters
    and make_fsdp_dtensor of megatron_fsdp/param_and_grad_buffer.py, core 0.14 to main)."""
    block = tensor.orig_param.shape
    runs: list[_Runs] = [[(0, length)] for length in block]
    for axis, (length, whole) in enumerate(zip(block, tensor.shape)):
        if length != whole:
            place = tensor.device_mesh.get_local_rank(tensor.megatron_fsdp_dist_index.tp_dim)
            runs[axis] = [(place * length, length)]
    row = math.prod(block[1:])
    begin, end = tensor.megatron_fsdp_slice.start // row, tensor.megatron_fsdp_slice.stop // row
    runs[0] = [(runs[0][0][0] + begin, end - begin)]
    return runs


def _dtensor_runs(tensor: Any) -> list[_Runs] | None:
    """What this rank has of each axis of a DTensor; None: it is not in the mesh."""
    spec = tensor._spec
    coordinate = spec.mesh.get_coordinate()
    if coordinate is None:
        return None
    if hasattr(tensor, "megatron_fsdp_slice"):
        return _megatron_fsdp_runs(tensor)
    # What its state dicts have in place of that: the local tensor knows its box
    # (update_uneven_dtensor_chunk_metadata of megatron_fsdp/uneven_dtensor.py@core_v0.19.0).
    chunks = getattr(tensor._local_tensor, "__create_chunk_list__", list)()
    if len(chunks) == 1:
        return [[run] for run in zip(chunks[0].offsets, chunks[0].sizes)]
    runs: list[_Runs] = [[(0, length)] for length in tensor.shape]
    for dim, axis, split in _dtensor_cuts(spec):
        runs[axis] = _runs_shard(runs[axis], spec.mesh.size(dim), coordinate[dim], split)
    return runs


@dataclasses.dataclass
class _Memory:
    """Where a local tensor lies."""

    address: int
    dtype: str
    shape: tuple[int, ...]
    stride_bytes: tuple[int, ...]
    device: str
    is_writable: bool = True


def _torch_memory(tensor: Any) -> _Memory:
    if tensor.is_conj():
        raise UsageError("a conjugate view's memory has other elements: list its resolve_conj()")
    if tensor.is_neg():
        raise UsageError("a negative view's memory has other elements: list its resolve_neg()")
    return _Memory(
        tensor.data_ptr(),
        str(tensor.dtype).removeprefix("torch."),
        tuple(tensor.shape),
        tuple(stride * tensor.element_size() for stride in tensor.stride()),
        str(tensor.device),
    )


def _numpy_memory(array: Any) -> _Memory:
    if not hasattr(array, "ctypes"):
        raise TypeError(f"a torch tensor or a numpy array is wanted, not {type(array).__name__}")
    if not array.dtype.isnative:
        raise UsageError(f"{array.dtype} has another byte order than this machine")
    return _Memory(
        array.ctypes.data,
        array.dtype.name,
        array.shape,
        array.strides,
        "cpu",
        array.flags.writeable,
    )


def is_torch(tensor: Any) -> bool:
    return hasattr(tensor, "data_ptr")


def memory_of(tensor: Any) -> _Memory:
    """Where a torch tensor or a numpy array lies."""
    return _torch_memory(tensor) if is_torch(tensor) else _numpy_memory(tensor)


def _whole_or_box(memory: _Memory, box: Box | None, shape: Sequence[int] | None) -> list[_Runs]:
    """What a tensor that is not a DTensor holds: all of it, or the box that is given."""
    if (box is None) != (shape is None):
        raise UsageError("a box is given with the shape of the whole tensor, and that with a box")
    if box is None:
        return [[(0, length)] for length in memory.shape]
    offset, extent = box
    if tuple(extent) != memory.shape or len(offset) != len(extent) or len(shape) != len(extent):
        raise UsageError(
            f"the box {tuple(offset)}, {tuple(extent)} of {tuple(shape)} is not the tensor's, "
            f"which is {memory.shape}"
        )
    return [[(o, e)] for o, e in zip(offset, extent)]


def _shards(name: str, memory: _Memory, shape: Sequence[int], runs: list[_Runs]) -> Iterator[Any]:
    """The boxes of a local tensor: every choice of one run an axis."""
    n_axes = len(shape)
    whole = _library.int64s(shape, n_axes, f"the shape of {name!r}")
    strides = _library.int64s(memory.stride_bytes, n_axes, f"the strides of {name!r}")
    places = []
    for axis in runs:
        begins = itertools.accumulate((length for _, length in axis), initial=0)
        places.append([(offset, length, at) for (offset, length), at in zip(axis, begins)])
    for box in itertools.product(*places):
        shard = _library.Shard(_library.key_bytes(name), memory.dtype.encode(), n_axes, whole)
        shard.offset = _library.int64s((o for o, _, _ in box), n_axes, f"a box of {name!r}")
        shard.extent = _library.int64s((n for _, n, _ in box), n_axes, f"a box of {name!r}")
        shard.data = memory.address + sum(
            at * stride for (_, _, at), stride in zip(box, memory.stride_bytes)
        )
        shard.stride_bytes = strides
        yield shard


class Map(_library.Handle):
    """From one layout to another: list shards, plan once, run any number of times.

    Tensors that are listed are kept alive and must stay where they are. Free the tensors of a map,
    and close it, when no rank runs it any more. A tensor that a rank cannot list makes the plan
    fail on all ranks. One thread uses an engine and its maps at a time: a second one, and a
    callback of what is under way, get a UsageError.
    """

    _name = "map"
    _free = _lib.dcpkit_map_free

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine._session)
        self._engine = engine
        self._held: list[Any] = []
        self._names: list[str] = []
        self._has_torch = False
        self._unlisted: str | None = None  #: why a tensor could not be listed
        with engine._use() as handle:
            self._open(_lib.dcpkit_map_new, handle)

    def __repr__(self) -> str:
        told = f"{len(self._names)} tensors" if self._names else f"{len(self._held)} listed"
        return f"<dcpkit.Map {told if self._handle else 'closed'}>"

    def close(self) -> None:
        """Give everything back; closing again does nothing. Not collective."""
        super().close()
        self._held = []

    @contextlib.contextmanager
    def _listing(self) -> Iterator[None]:
        """What this rank fails in, the plan raises on all of them."""
        try:
            yield
        except BaseException as raised:
            told = f"a rank could not list its part: {type(raised).__name__}: {raised}"
            self._unlisted = self._unlisted or told.replace("\0", "\\0")
            raise

    def _list(self, side: str, name: str, tensor: Any, box: Any, shape: Any) -> None:
        add = _lib.dcpkit_map_source if side == "sources" else _lib.dcpkit_map_target
        local = getattr(tensor, "_local_tensor", tensor)
        is_dtensor = local is not tensor
        if hasattr(local, "wait"):  # the result of a collective that may be under way
            local = local.wait()
        memory = memory_of(local)
        if memory.device != self._engine.device:
            raise UsageError(f"{name!r} lies on {memory.device}, the engine is of {self._engine.device}")
        if side == "targets" and not memory.is_writable:
            raise UsageError(f"{name!r} is a target that cannot be written to")
        if not is_dtensor:
            runs = _whole_or_box(memory, box, shape)
            shape = memory.shape if shape is None else shape
        elif box is not None or shape is not None:
            raise UsageError(f"{name!r} is a DTensor, which knows its box")
        else:
            runs, shape = _dtensor_runs(tensor), tuple(tensor.shape)
            if runs is None:
                return
            has = tuple(sum(length for _, length in axis) for axis in runs)
            if has != memory.shape:
                raise UnsupportedError(
                    f"{name!r}: its placements {tensor.placements} make a local tensor {has} here, it is "
                    f"{memory.shape}: list it as boxes"
                )
        shards = list(_shards(name, memory, shape, runs))
        array = (_library.Shard * len(shards))(*shards)
        self._call(add, array, len(shards))
        # A wrapper can be given other memory: what is listed is kept by itself.
        self._held.append((tensor, local.detach() if is_torch(local) else local))
        self._has_torch = self._has_torch or is_torch(local)

    def source(
        self, name: str, tensor: Any, *, box: Box | None = None, shape: Sequence[int] | None = None
    ) -> None:
        """List what this rank holds of a tensor.

        tensor: a DTensor, also an uneven one of Megatron-FSDP, whose rows are in the order of its
        tensor-parallel ranks (see `names`); a torch tensor or numpy array that is the whole, or a
        box of it: box ((offset, ...), (extent, ...)) in a tensor of that shape. Several boxes are several calls.
        """
        with self._listing():
            self._list("sources", name, tensor, box, shape)

    def target(
        self, name: str, tensor: Any, *, box: Box | None = None, shape: Sequence[int] | None = None
    ) -> None:
        """List what this rank wants of a tensor; as `source`. Another floating dtype: cast on the way."""
        with self._listing():
            self._list("targets", name, tensor, box, shape)

    def sources(self, tensors: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """List DTensors and whole tensors by name, as of module.state_dict() or named_parameters()."""
        for name, tensor in tensors.items() if isinstance(tensors, Mapping) else tensors:
            self.source(name, tensor)

    def targets(self, tensors: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """List DTensors and whole tensors by name, as of module.state_dict() or named_parameters()."""
        for name, tensor in tensors.items() if isinstance(tensors, Mapping) else tensors:
            self.target(name, tensor)

    def checkpoint(self, path: str | os.PathLike[str], as_: str | None = None) -> None:
        """Let the tensors of a checkpoint be the sources, in place of `source`; the same on all ranks.

        as_: None: by their keys, as stored; a format: those that convert() to it would write.
        """
        with self._listing():
            self._call(
                _lib.dcpkit_map_source_checkpoint,
                _library.path_bytes(path),
                None if as_ is None else _library.key_bytes(as_),
            )

    def names(
        self, like: str | os.PathLike[str], *, sources: str | None = None, targets: str | None = None
    ) -> None:
        """Let sources have names, shapes and boxes of one format or program, targets those of another one.

        like: a checkpoint that a run of the same model saved, or its Hugging Face folder (except GPT-OSS); only metadata is read. sources, targets:
        a format, whose names are those that convert() of it would write ("huggingface", "fsdp_dtensor", "torch_dist"); None: those
        that are stored; or modules in memory, listed by their named_parameters() as they are on this rank: "megatron:tp=2,pp=2",
        "megatron:fsdp=4,tp=2", "vllm:tp=4", "sglang:tp=4", "transformers". See dcpkit_map_names in dcpkit.h.
        """
        with self._listing():
            formats = (None if f is None else _library.key_bytes(f) for f in (sources, targets))
            self._call(_lib.dcpkit_map_names, _library.path_bytes(like), *formats)

    def plan(self) -> Plan:
        """Collective, once: find out who moves what to whom, and make ready all that runs need.

        Raises on all ranks FormatError for targets that sources do not cover, that overlap, and for
        shards that disagree; UnsupportedError for ranks that cannot reach each other.
        """
        totals = _library.MapTotals(ctypes.sizeof(_library.MapTotals))
        with self._use() as handle:
            if self._unlisted is not None:
                sentence = self._unlisted.encode("utf-8", "backslashreplace")
                _lib.dcpkit_map_fail(handle, sentence)
            self._session.call(_lib.dcpkit_map_plan, handle, ctypes.byref(totals))
            self._names = [
                _library.key_text(_lib.dcpkit_map_tensor(handle, i))
                for i in range(totals.n_tensors)
            ]
            return _figures(Plan, totals)

    def _synchronize(self) -> None:
        if self._has_torch and self._engine.device != "cpu":
            import torch

            torch.cuda.synchronize(self._engine.device)

    def run(
        self, done: Callable[[int, list[str]], Any] | None = None, *, delta: bool = False
    ) -> Stats:
        """Collective: move everything. Waits for the device's streams first; results are there after.

        delta: move only blocks of sources that changed since the last run with delta, for targets
        that hold what it left in them; everything the first time, after a run without it, and after
        a failure. With check=True a target that was overwritten raises SystemError. Blocks are
        compared by fingerprints: see dcpkit_map_run_changed in dcpkit.h.
        done(unit, names): called when a unit's tensors are in their targets on all ranks, and their
        sources are not read any more by this run.
        Raises on all ranks SystemError when a device, a link or a rank fails, or fingerprints differ:
        close the engine then, and open another one.
        """
        session = self._session

        def unit_done(_context: Any, unit: int, first: int, n: int) -> None:
            session.inside(done, unit, self._names[first : first + n])

        callback = _library.UNIT_DONE() if done is None else _library.UNIT_DONE(unit_done)
        stats = _library.MapStats(ctypes.sizeof(_library.MapStats))
        with self._use() as handle:
            self._synchronize()
            _lib.dcpkit_map_each_unit(handle, callback, None)
            try:
                run = _lib.dcpkit_map_run_changed if delta else _lib.dcpkit_map_run
                session.call(run, handle, ctypes.byref(stats))
            finally:
                _lib.dcpkit_map_each_unit(handle, _library.UNIT_DONE(), None)
        return _figures(Stats, stats)

    def fingerprints(self, side: str = "targets") -> dict[str, int]:
        """Collective: a number for each tensor of the plan, from its elements as they lie now on a
        side, "sources" or "targets": the same in every layout, and what `dcpkit hash --fingerprint`
        prints of a file."""
        if side not in _library.SIDES:
            raise UsageError(f"a map has sources and targets, not {side!r}")
        sums = (ctypes.c_uint64 * len(self._names))()
        self._synchronize()
        self._call(_lib.dcpkit_map_fingerprint, _library.SIDES[side], sums, len(sums))
        return dict(zip(self._names, sums))

    def verify(self) -> int:
        """Collective: prove that all targets, replicas too, hold now what a run would store in them:
        the elements of the sources, in memory or in files, cast to the target's dtype. Returns the
        number of tensors. Raises DifferenceError with the names of those that differ."""
        differs = (ctypes.c_uint8 * len(self._names))()
        self._synchronize()
        try:
            self._call(_lib.dcpkit_map_verify, differs, len(differs))
        except _library.FormatError as raised:
            names = [name for name, flag in zip(self._names, differs) if flag]
            if not names:  # the files are malformed
                raise
            raise _library.DifferenceError(str(raised), names) from None
        return len(self._names)

    def _checkpoint_names(self) -> list[str]:
        """The names of the tensors of the map's checkpoint."""
        with self._use() as handle:
            numbers = itertools.count()
            names = iter(lambda: _lib.dcpkit_map_checkpoint_tensor(handle, next(numbers)), None)
            return [_library.key_text(name) for name in names]


class Engine(_library.Handle):
    """What moves tensors between the ranks of a world. Opening is collective, closing is not.

    world: of torch_world(), of meet(), or one of your own; None: this process is alone. device: "cpu" or
    "cuda:N", where all tensors lie ("cuda": the first). transport: "auto": straight into the memory of other ranks where
    it can be mapped, else over a link; "direct", "staged", or the name of a link ("nccl", "gather").
    check: compare fingerprints of what was sent and what has landed. unit_bytes: of a
    rank's targets, done together, 0: all at once. staging_bytes: memory for messages, 0: 512 MiB.
    link_bytes_a_second: of a rank, to predict times. timeout: seconds of each wait. threads, memory,
    progress: as of open(), for what is read from files.
    Options are the same on all ranks, but for the number of the device.
    """

    _name = "engine"
    _free = _lib.dcpkit_engine_close

    def __init__(
        self,
        world: World | None = None,
        device: Any = "cpu",
        *,
        transport: str = "auto",
        check: bool = False,
        unit_bytes: int = 0,
        staging_bytes: int = 0,
        link_bytes_a_second: float = 0,
        timeout: float = 0,
        n_blocks: int = 0,
        threads: int = 0,
        memory: int = 0,
        progress: _library.Progress | None = None,
    ) -> None:
        super().__init__(_library.Session(threads, memory, progress))
        self.device: str = "cuda:0" if str(device) == "cuda" else str(device)
        options = _library.EngineOptions(ctypes.sizeof(_library.EngineOptions))
        options.device = _library.key_bytes(self.device)
        options.transport = _library.key_bytes(transport)
        options.unit_bytes = unit_bytes
        options.staging_bytes = staging_bytes
        options.link_bytes_a_second = link_bytes_a_second
        options.timeout_ms = int(timeout * 1000)
        options.n_blocks = n_blocks
        options.check = check
        ranks = None
        if world is not None:
            self._gather = _library.ALL_GATHER(_Gather(world, self._session))
            ranks = _library.World(world.rank, world.size, None, self._gather)
        self._n_ranks = 1 if world is None else ranks.n_ranks
        self._open(
            _lib.dcpkit_engine_open,
            self._session.handle,
            None if ranks is None else ctypes.byref(ranks),
            ctypes.byref(options),
        )

    def __repr__(self) -> str:
        told = f"{self._n_ranks} ranks, {self.device}" if self._handle else "closed"
        return f"<dcpkit.Engine {told}>"

    def map(self) -> Map:
        """A new map. Not collective."""
        return Map(self)
