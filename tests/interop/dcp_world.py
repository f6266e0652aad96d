# SPDX-License-Identifier: Apache-2.0
# dcp_world.py - several ranks load a DCP folder, each its part: together they have what one rank loads.
"""Usage: torchrun --nproc-per-node N dcp_world.py FOLDER      prints "N ranks: K tensors equal" on rank 0."""
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

folder = sys.argv[1]
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
metadata = FileSystemReader(folder).read_metadata().state_dict_metadata
shapes = {key: m for key, m in metadata.items() if hasattr(m, "size")}
whole = {key: torch.empty(m.size, dtype=m.properties.dtype) for key, m in shapes.items()}
dcp.load(whole, checkpoint_id=folder, no_dist=True)
# The first axis is dealt out where there is one.
parts = {key: distribute_tensor(torch.zeros(m.size, dtype=m.properties.dtype), mesh, [Shard(0)])
         for key, m in shapes.items() if len(m.size) > 0}
dcp.load(parts, checkpoint_id=folder)
wrong = [key for key, part in parts.items() if not torch.equal(part.full_tensor(), whole[key])]
assert not wrong and parts, wrong
if dist.get_rank() == 0:
    print(f"{dist.get_world_size()} ranks: {len(parts)} tensors equal", flush=True)
dist.barrier()
# Torch 2.11 with gloo ends one process in ten or so by "terminate called without an active exception" as it takes its groups down.
os._exit(0)
