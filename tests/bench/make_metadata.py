# SPDX-License-Identifier: Apache-2.0
"""Writes a DCP folder of many items through torch's own classes: .metadata, and empty files of the right length.

python make_metadata.py OUT (chunks | rows | tensors | objects) N     (needs torch)
chunks: N chunks in tensors of 1000; rows: N chunks of one tensor; tensors: N of one chunk; objects: N.
"""
import os, pickle, sys
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta, TensorProperties, TensorStorageMetadata)

N_FILES, ITEM_BYTES, ROWS, COLUMNS = 8, 2048, 4, 16
out, kind, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
files = [f"__{i}_0.distcp" for i in range(N_FILES)]
entries, places = {}, {}


def put(index):
    at = len(places)
    places[index] = _StorageInfo(files[at % N_FILES], at // N_FILES * ITEM_BYTES, ITEM_BYTES)


def put_tensor(key, n_chunks):
    chunks = [ChunkStorageMetadata(torch.Size((ROWS * i, 0)), torch.Size((ROWS, COLUMNS))) for i in range(n_chunks)]
    entries[key] = TensorStorageMetadata(TensorProperties(torch.float32), torch.Size((ROWS * n_chunks, COLUMNS)), chunks)
    for i, chunk in enumerate(chunks):
        put(MetadataIndex(key, chunk.offsets, i))


if kind == "objects":
    for i in range(n):
        key = f"optimizer.param_groups.module.decoder.layers.{i}.weight.lr"
        entries[key] = BytesStorageMetadata()
        put(MetadataIndex(key))
else:
    per_tensor = {"chunks": 1000, "rows": n, "tensors": 1}[kind]
    for i in range(n // per_tensor):
        put_tensor(f"optimizer.state.exp_avg.decoder.layers.{i}.self_attention.linear_qkv.weight", per_tensor)
os.makedirs(out)
metadata = Metadata(entries, {key: (key,) for key in entries}, places, StorageMeta(checkpoint_id=out))
with open(f"{out}/.metadata", "wb") as f:
    pickle.dump(metadata, f)  # as FileSystemWriter.finish does
for name in files:
    with open(f"{out}/{name}", "wb") as f:
        f.truncate((n // N_FILES + 1) * ITEM_BYTES)
