# SPDX-License-Identifier: Apache-2.0
"""A model in memory against a checkpoint: the same weights under the same names, or not."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from ._engine import Engine, World, memory_of, torch_world
from ._library import DifferenceError, Error, UsageError


def _weights(model: Any) -> dict[str, Any]:
    """Parameters, tied ones once, and the buffers that a state_dict has; or what was listed."""
    if not hasattr(model, "named_parameters"):
        return dict(model)
    found = dict(model.named_parameters())
    for prefix, module in model.named_modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                found[f"{prefix}.{name}" if prefix else name] = buffer
    return found


def _device(tensors: dict[str, Any]) -> str:
    for tensor in tensors.values():
        return memory_of(getattr(tensor, "_local_tensor", tensor)).device
    return "cpu"


def _world() -> World | None:
    """That of torch.distributed, where a job uses it."""
    try:
        import torch.distributed as dist
    except ImportError:
        return None
    return torch_world() if dist.is_available() and dist.is_initialized() else None


def _gather(world: World | None, mine: Any) -> list[Any]:
    """What every rank has, as JSON."""
    if world is None:
        return [mine]
    text = json.dumps(mine).encode()
    sizes = bytearray(8 * world.size)
    world.all_gather(memoryview(bytearray(len(text).to_bytes(8, "little"))), memoryview(sizes))
    lengths = [int.from_bytes(sizes[8 * r : 8 * r + 8], "little") for r in range(world.size)]
    most = max(lengths)
    texts = bytearray(most * world.size)
    world.all_gather(memoryview(bytearray(text.ljust(most))), memoryview(texts))
    return [json.loads(texts[most * r : most * r + n]) for r, n in enumerate(lengths)]


def _is_ignored(name: str, ignore: Sequence[str]) -> bool:
    return any(name == part or (part.endswith(".") and name.startswith(part)) for part in ignore)


def _sentence(found: Sequence[tuple[list[str], str]], path: Any) -> str:
    parts = [f"{len(names)} {words}, the first is {names[0]!r}" for names, words in found if names]
    return f"the model is not that of {os.fspath(path)!r}: " + "; ".join(parts)


def verify_weights(
    model: Any,
    checkpoint: str | os.PathLike[str],
    as_: str | None = None,
    *,
    world: World | None = None,
    device: Any = None,
    ignore: Sequence[str] = (),
) -> int:
    """Prove that a model in memory has the weights of a checkpoint. Collective.

    model: a torch module (its parameters, tied ones once, and persistent buffers), or tensors by
    name, each a DTensor or a whole tensor. checkpoint, as_: as of Map.checkpoint. Weights of
    another floating dtype are compared with the cast of those stored. world: None: that of
    torch.distributed where it is initialized, else this process alone. device: where the tensors
    lie; None: where the first does. ignore: names that one side may lack; those that end in "."
    are beginnings of names.
    Returns the number of tensors compared. Raises DifferenceError, on all ranks, with the names of
    tensors that differ and of those that the model or the checkpoint lacks.
    """
    if isinstance(ignore, str):
        raise UsageError("ignore is a list of names")
    world = _world() if world is None else world
    tensors = _weights(model)
    with Engine(world, _device(tensors) if device is None else device) as engine, engine.map() as m:
        try:
            m.checkpoint(checkpoint, as_)
            failed = False
        except Error:  # the plan raises it on all ranks
            failed = True
        stored = m._checkpoint_names()
        known = set(stored)
        ranks = _gather(world, [failed, list(tensors)])
        if any(rank_failed for rank_failed, _ in ranks):
            m.plan()
        wanted = {name for _, names in ranks for name in names}
        no_file = sorted(n for n in wanted - known if not _is_ignored(n, ignore))
        no_model = [n for n in stored if n not in wanted and not _is_ignored(n, ignore)]
        m.targets((name, tensor) for name, tensor in tensors.items() if name in known)
        m.plan()
        differing: list[str] = []
        try:
            n = m.verify()
        except DifferenceError as raised:
            differing = raised.differing
    if differing or no_file or no_model:
        found = (
            (differing, "tensors differ"),
            (no_file, "are not in the checkpoint"),
            (no_model, "are not in the model"),
        )
        raise DifferenceError(_sentence(found, checkpoint), differing, no_file, no_model)
    return n
