# SPDX-License-Identifier: Apache-2.0
# flattened.py - the optimizer state of Megatron 0.8 to 0.15, in flattened blocks: put together, and made.
"""A tensor cut into F0 x F1 x .. equal blocks is stored as (F0, F1, .., elements of a block), data-parallel ranks
cutting a block's elements anywhere (Megatron-LM megatron/core/dist_checkpointing/strategies/resharding.py)."""
import io
import math
import os
import pickle
import re

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (ChunkStorageMetadata, Metadata, MetadataIndex, TensorProperties,
                                                   TensorStorageMetadata)

STATE = re.compile(r"(?:chained_\d+\.)?optimizer\.state\.(\w+?)\.(.+)")
RECORD = "nd_reformulated_orig_global_shape"


def unflatten(stored, shape):
    """(F0, F1, m) of blocks b0 x b1 -> (F0, F1, b0, b1) -> (F0, b0, F1, b1) -> (F0 b0, F1 b1)."""
    counts = stored.shape[:-1]
    blocks = [n // count for n, count in zip(shape, counts)]
    n = len(shape)
    array = stored.numpy().reshape(*counts, *blocks)
    return torch.from_numpy(array.transpose([a + i * n for a in range(n) for i in (0, 1)]).reshape(shape).copy())


def model_shaped(source):
    """All tensors of a torch_dist folder, flattened ones in their model's shape."""
    record = getattr(source.metadata, "mcore_data", {})
    tensors = source.load()
    for key, tensor in tensors.items():
        match = STATE.match(key)
        if match is None:
            continue
        shape = record.get(key, {}).get(RECORD)
        if shape is None and tensor.dim() == tensors[match[2]].dim() + 1:
            shape = tensors[match[2]].shape
        if shape is not None:
            tensors[key] = unflatten(tensor, tuple(shape))
    return tensors


def runs(generator, n):
    """Cut n elements among some ranks."""
    cuts = sorted({0, n, *torch.randint(0, n + 1, (2,), generator=generator).tolist()})
    return list(zip(cuts, cuts[1:]))


def flat_chunks(tensor, counts, generator):
    """The stored shape and [(offsets, values)] of a tensor in counts[0] x counts[1] x .. blocks."""
    blocks = [n // count for n, count in zip(tensor.shape, counts)]
    chunks = []
    for number in range(math.prod(counts)):
        place, rest = [], number
        for count in reversed(counts):
            place.insert(0, rest % count)
            rest //= count
        block = tensor[tuple(slice(p * b, (p + 1) * b) for p, b in zip(place, blocks))].flatten()
        for start, end in runs(generator, len(block)):
            chunks.append(((*place, start), block[start:end].reshape(*[1] * len(counts), -1)))
    return (*counts, math.prod(blocks)), chunks


def plain_chunks(tensor, generator):
    """A tensor with one axis as core 0.8 to 0.10 stored it."""
    return tuple(tensor.shape), [((a,), tensor[a:b]) for a, b in runs(generator, len(tensor))]


def save(folder, tensors, record):
    """Write {key: (shape, chunks)} as torch's FileSystemWriter does; record: mcore_data or None."""
    described, places = {}, {}
    with open(os.path.join(folder, "__0_0.distcp"), "wb") as f:
        for key, (shape, chunks) in tensors.items():
            for offsets, values in chunks:
                item = io.BytesIO()
                torch.save(values.clone(), item)
                index = MetadataIndex(key, torch.Size(offsets))
                places[index] = _StorageInfo("__0_0.distcp", f.tell(), len(item.getvalue()))
                f.write(item.getvalue())
            boxes = [ChunkStorageMetadata(torch.Size(o), v.shape) for o, v in chunks]
            properties = TensorProperties(dtype=chunks[0][1].dtype)
            described[key] = TensorStorageMetadata(properties, torch.Size(shape), boxes)
    metadata = Metadata(described, None, places)
    if record is not None:
        metadata.mcore_data = record
    with open(os.path.join(folder, ".metadata"), "wb") as f:
        pickle.dump(metadata, f)
