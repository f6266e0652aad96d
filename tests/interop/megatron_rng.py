# SPDX-License-Identifier: Apache-2.0
"""megatron_rng.py - Megatron asks a folder for its RNG states, by the keys of a release, and gets those of the source.

    export MEGATRON_TREES=/where/the/releases/are OMP_NUM_THREADS=1
    torchrun --standalone --nproc-per-node 4 megatron_rng.py TREE FOLDER SOURCE [tp=1] [pp=2] [ep=2] [axes=3] [format=fsdp_dtensor]

get_rng_state of that release makes the request, its dist_checkpointing loads it with the default strictness. SOURCE: the torch_dist
folder that FOLDER was made from, read by torch alone; "seed=N": what this release's _set_random_seed(N) gives. axes=3: the keys of main since 2026-08-25 (Megatron-LM #6858), in any tree.
Prints "KEY <key>" and "CHECKED bad 0" a rank.
"""
import contextlib
import logging
import os
import sys
import types
import typing
import warnings

import numpy
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.utils.cpp_extension
import typing_extensions

from dcp_folder import Folder, same
from megatron_cpu import Generator

TREE, FOLDER, SOURCE = sys.argv[1:4]
SIZES = dict(tp="1", pp="1", ep="1", axes="", format="torch_dist")
SIZES.update(setting.split("=") for setting in sys.argv[4:])

logging.disable(logging.WARNING)
warnings.simplefilter("ignore")
typing.override = typing_extensions.override
numpy.product = numpy.prod
torch.utils.cpp_extension.load_inline = lambda *a, **k: types.SimpleNamespace(__file__="x")
for name in ("synchronize", "empty_cache", "set_rng_state", "set_device", "manual_seed"):
    setattr(torch.cuda, name, lambda *a, **k: None)
GENERATOR = Generator()
torch.cuda.get_rng_state, torch.cuda.manual_seed, torch.cuda.device_count = GENERATOR.get, GENERATOR.seed, lambda: 1
torch.cuda.current_device = lambda: "cpu"
torch.cuda.stream = lambda *a: contextlib.nullcontext()
sys.path.insert(0, os.path.join(os.environ["MEGATRON_TREES"], TREE))

dist.init_process_group("gloo")
from megatron.core import dist_checkpointing, mpu, tensor_parallel  # noqa: E402
from megatron.core.dist_checkpointing.mapping import ShardedObject  # noqa: E402
from megatron.core.tensor_parallel import random as megatron_random  # noqa: E402
from megatron.training import checkpointing, initialize  # noqa: E402

mpu.initialize_model_parallel(tensor_model_parallel_size=int(SIZES["tp"]), pipeline_model_parallel_size=int(SIZES["pp"]),
                              expert_model_parallel_size=int(SIZES["ep"]), expert_tensor_parallel_size=1)
checkpointing.get_args = lambda: types.SimpleNamespace(data_parallel_random_init=False)
megatron_random._set_cuda_rng_state = GENERATOR.set
if not SOURCE.startswith("seed="):
    tensor_parallel.get_cuda_rng_tracker = lambda *a: types.SimpleNamespace(get_states=dict)
pp, tp = mpu.get_pipeline_model_parallel_rank(), mpu.get_tensor_model_parallel_rank()
dp, n_dp = mpu.get_data_parallel_rank(with_context_parallel=True), mpu.get_data_parallel_world_size(with_context_parallel=True)
groups = (mpu.get_tensor_model_parallel_group(), mpu.get_pipeline_model_parallel_group())


def rng_state():
    try:
        return checkpointing.get_rng_state(SIZES["format"], *groups)
    except TypeError:
        return checkpointing.get_rng_state(SIZES["format"])


def leave(what, bad):
    print(dist.get_rank(), "CHECKED", what, "bad", int(bad), flush=True)
    dist.barrier()
    os._exit(int(bad))


wanted = None
if SOURCE.startswith("seed="):
    initialize._set_random_seed(int(SOURCE[5:]))
    wanted = rng_state()
    initialize._set_random_seed(int(SOURCE[5:]) + 1)
request = rng_state()
if SIZES["format"] == "fsdp_dtensor":
    dcp.load({"rng_state": request}, checkpoint_id=FOLDER)
    leave(list(wanted), not same(request, wanted))
if SIZES["axes"] == "3":
    request = ShardedObject("rng_state", request.data, (int(SIZES["pp"]), int(SIZES["tp"]), n_dp), (pp, tp, dp), replica_id=0)
print(dist.get_rank(), "KEY", request.unique_key, flush=True)
loaded = dist_checkpointing.load({"rng_state": request}, FOLDER)["rng_state"]
if wanted is not None:
    leave(wanted.unique_key, not same(loaded, wanted.data))

source = Folder(SOURCE)
keys = [key for key in source.objects if key.startswith("rng_state/shard_")]
if len(request.global_shape) == 2:
    dp = 0  # the release has one for all, that of the first
wanted = [key for key in keys if key.split("_")[2].split(".") in ([str(pp), str(tp)], [str(pp), str(tp), str(dp)])]
leave(wanted, len(wanted) != 1 or not same(loaded, source.object(wanted[0])[0]))
