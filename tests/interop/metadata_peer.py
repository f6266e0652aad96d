# SPDX-License-Identifier: Apache-2.0
"""Prints tests/unit/metadata_cases.h: .metadata pickles of torch whose objects are shared or ordered as no writer does.

python tests/interop/metadata_peer.py > tests/unit/metadata_cases.h      (needs torch)
"""
import pickle, platform
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex, TensorProperties, TensorStorageMetadata)


def chunk(at):
    return ChunkStorageMetadata(torch.Size((at, 0)), torch.Size((2, 3)))


def tensor(chunks):
    return TensorStorageMetadata(TensorProperties(torch.float32), torch.Size((4, 3)), chunks)


def place(at):
    return _StorageInfo("__0_0.distcp", at * 1000, 1000)


def usual():
    """Two tensors of two chunks, two objects: the attributes of a Metadata."""
    entries = {k: tensor([chunk(0), chunk(2)]) for k in "ab"} | {k: BytesStorageMetadata() for k in "xy"}
    indexes = [MetadataIndex(k, (at, 0)) for k in "ab" for at in (0, 2)] + [MetadataIndex(k) for k in "xy"]
    return {"state_dict_metadata": entries, "storage_data": {x: place(i) for i, x in enumerate(indexes)}}


def metadata(attributes):
    m = Metadata.__new__(Metadata)
    m.__dict__.update(attributes)
    return m


def cases():
    u = usual()
    yield "the usual", u, ""
    yield "storage_data first", {k: u[k] for k in reversed(u)}, ""

    u = usual()
    chunks, nothing, where = [chunk(0), chunk(2)], BytesStorageMetadata(), place(0)
    u["state_dict_metadata"] = {"a": tensor(chunks), "b": tensor(chunks), "x": nothing, "y": nothing}
    u["storage_data"] = dict.fromkeys(u["storage_data"], where)
    yield "one list, object and place for all", u, ""

    u = usual()
    c, d = chunk(0), chunk(2)
    u["state_dict_metadata"] |= {"a": tensor([c, d]), "b": tensor([d, c])}
    yield "the same chunks in two lists", u, ""

    u = usual()
    u["planner_data"] = {"i": next(iter(u["storage_data"])), "e": u["state_dict_metadata"]}
    yield "an index and the entries in planner_data too", u, ""
    u["planner_data"] = u["state_dict_metadata"]
    yield "planner_data is state_dict_metadata", u, ""

    u = usual()
    decoy = {"storage_data": {MetadataIndex("a"): place(6)}, "state_dict_metadata": {"z": BytesStorageMetadata()}, "chunks": [chunk(1)]}
    yield "others of the same names before", {"mcore_data": {}, "version": decoy} | u, ""
    yield "others of the same names behind", u | {"version": decoy}, ""

    u = usual()
    u["state_dict_metadata"]["a"].chunks = ["no chunk"]
    yield "a chunk of another class", u, "'a': chunk 0: something that is not an object where ChunkStorageMetadata"
    u["state_dict_metadata"]["a"].chunks = [chunk(0), None, chunk(2)]
    yield "a chunk between two", u, "'a': chunk 1: something that is not an object where ChunkStorageMetadata"
    u["state_dict_metadata"]["a"].chunks = [chunk(0), chunk(0)]
    yield "a chunk twice", u, "'a': chunk 1: two chunks have the same offsets"
    u["state_dict_metadata"]["a"].chunks = [chunk(0)] * 9
    yield "more chunks than places", u, "'a': 9 chunks, storage_data has 6 places"
    u["state_dict_metadata"]["a"].chunks = []
    yield "no chunks", u, ""

    u = usual()
    yield "a list of chunks from elsewhere", {"version": [u["state_dict_metadata"]["a"].chunks]} | u, "'a': its list of chunks was not made in its place"
    yield "storage_data is planner_data", {"planner_data": u["storage_data"]} | u, "no storage_data"
    yield "state_dict_metadata is storage_data", u | {"state_dict_metadata": u["storage_data"]}, "no storage_data"
    yield "mcore_data is storage_data", u | {"mcore_data": u["storage_data"]}, "mcore_data: not a dict"

    u = usual()
    u["planner_data"] = {"m": metadata(u)}
    u["planner_data"]["m"].__dict__ = u
    yield "a Metadata inside itself", u, "changes a"
    u = usual()
    u["storage_data"][MetadataIndex("a", (2, 0), 7)] = place(0)
    u["storage_data"][MetadataIndex("q", (2, 0))] = "no place"
    yield "a place of another class", u, "storage_data: 'q': its place is not a _StorageInfo"


def main():
    print(f"/* SPDX-License-Identifier: Apache-2.0 */\n/* metadata_cases.h - made by tests/interop/metadata_peer.py; CPython {platform.python_version()}, torch {torch.__version__.split('+')[0]}. */")
    print("/* clang-format off */\nstatic const struct metadata_case {\n    const char *label, *hex;\n    dcpk_status status;\n    const char *message;\n} metadata_cases[] = {")
    for label, attributes, message in cases():
        m = metadata({})
        m.__dict__ = attributes
        text = pickle.dumps(m, 4).hex()
        status = "DCPK_OK" if not message else "DCPK_EUNSUPPORTED" if any(w in message for w in ("where", "changes", "made")) else "DCPK_EFORMAT"
        lines = "\n".join(f'     "{text[i:i + 120]}"' for i in range(0, len(text), 120))
        print(f'    {{"{label}",\n{lines},\n     {status}, "{message}"}},')
    print("};\n/* clang-format on */")


main()
