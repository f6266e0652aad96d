# SPDX-License-Identifier: Apache-2.0
"""megatron_train.py - real Megatron trains on the tokens of a file, on GPUs or on a CPU, and prints what each iteration gave.

    MEGATRON_TREES=... [torchrun ...] megatron_train.py TREE TOKENS [FLAG OF pretrain_gpt.py ...]

TOKENS is what `dcpkit train --token-file` reads, in the same order. The loop, the model, loading and saving are Megatron's
(`pretrain()`, core 0.16 to main); only the data set is ours, and without Transformer Engine and Apex a stand-in for FusedAdam, without which
a torch_dist optimizer is not resumed. DCPK_LOG names a file for a line of JSON an iteration, which `dcpkit losscmp` reads. With
DCPK_MEASURE=1 what each iteration, load and save took in seconds is there, too, and at the end the peak memory of each rank.
"""
import functools
import json
import os
import sys
import time
import types

import numpy
import torch
import torch.distributed as dist
from torch.optim.adamw import adamw

IS_CPU = not torch.cuda.is_available()
MEASURES = os.environ.get("DCPK_MEASURE") == "1"


class FusedAdam(torch.optim.Optimizer):
    """As TE's and Apex's: `step` in the group, moments of parameters without gradient too. The update is that of torch's AdamW."""

    def __init__(self, params, lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-8, adam_w_mode=True, weight_decay=0.0, **_):
        super().__init__(params, dict(lr=lr, bias_correction=bias_correction, betas=betas, eps=eps, weight_decay=weight_decay))

    def local(self, tensors):
        return [t.to_local() if hasattr(t, "to_local") else t for t in tensors]

    @torch.no_grad()
    def step(self, closure=None, **_):
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            for p in group["params"]:
                for moment in ("exp_avg", "exp_avg_sq"):
                    if moment not in self.state[p]:
                        self.state[p][moment] = torch.zeros_like(p, dtype=torch.float32)
            params = [p for p in group["params"] if p.grad is not None]
            if not params:
                continue
            step = torch.tensor(float(group["step"] - 1), device="cpu" if IS_CPU else "cuda")
            adamw(self.local(params), self.local(p.grad.float() for p in params), self.local(self.state[p]["exp_avg"] for p in params),
                  self.local(self.state[p]["exp_avg_sq"] for p in params), [], [step.clone() for _ in params], fused=not IS_CPU,
                  amsgrad=False, beta1=group["betas"][0], beta2=group["betas"][1], lr=group["lr"], weight_decay=group["weight_decay"],
                  eps=group["eps"], maximize=False)


class Samples(torch.utils.data.Dataset):
    """The samples of the file: seq_length + 1 tokens each; -1 - t where what predicts t has no loss."""

    def __init__(self, path, seq_length):
        self.rows = numpy.memmap(path, dtype="<i4", mode="r").reshape(-1, seq_length + 1)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = torch.from_numpy(numpy.array(self.rows[i], dtype=numpy.int64))
        tokens = torch.where(row < 0, -1 - row, row)
        n = len(row) - 1
        return dict(tokens=tokens[:-1], labels=tokens[1:], loss_mask=(row[1:] >= 0).float(), position_ids=torch.arange(n),
                    attention_mask=torch.ones(1, n, n).tril() < 0.5)


def stand_in_for_fused_adam():
    """As if Apex were there, for the optimizer alone."""
    from megatron.core import optimizer
    from megatron.core.optimizer import distrib_optimizer

    optimizer.Adam = distrib_optimizer.Adam = FusedAdam
    optimizer.USING_PYTORCH_OPTIMIZER, distrib_optimizer.HAVE_APEX_OR_TE = False, True


def without_cuda(tree):
    """Megatron on gloo; what megatron_cpu.py replaces, and what the training loop asks for besides."""
    import torch._dynamo

    import megatron_cpu

    connections = os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    megatron_cpu.start(tree)
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = connections
    torch._dynamo.config.disable = True  # fused functions of experts are plain ones
    megatron_cpu.use_cuda_types()
    megatron_cpu.join(int(os.environ.get("WORLD_SIZE", 1)))
    torch.cuda.is_available = lambda: True
    torch.Tensor.pin_memory = lambda self, *a, **k: self
    torch.cuda.device_count = lambda: 1
    for name in ("reset_peak_memory_stats", "memory_stats", "max_memory_allocated", "max_memory_reserved", "mem_get_info", "_sleep"):
        setattr(torch.cuda, name, lambda *a, **k: {} if name == "memory_stats" else 0)
    torch.cuda.get_device_capability = lambda *a: (9, 0)
    torch.cuda.get_device_properties = lambda *a: types.SimpleNamespace(major=9, minor=0, multi_processor_count=1, name="CPU", total_memory=1 << 30)
    for name in ("IntTensor", "LongTensor", "FloatTensor", "DoubleTensor", "ByteTensor", "BFloat16Tensor", "HalfTensor"):
        setattr(torch.cuda, name, getattr(torch, name))
    exchange = dist.all_to_all_single  # sizes come as tensors where nothing is moved from a GPU
    dist.all_to_all_single = lambda out, into, *sizes, **k: exchange(
        out, into, **{name: size.tolist() if torch.is_tensor(size) else size for name, size in
                      {**dict(zip(("output_split_sizes", "input_split_sizes"), sizes)), **k}.items()})
    from megatron.core.distributed.fsdp.mcore_fsdp_adapter import FullyShardedDataParallel
    from megatron.core.tensor_parallel import random

    FullyShardedDataParallel.__init__ = functools.partialmethod(FullyShardedDataParallel.__init__, device=torch.device("cpu"))
    generator = megatron_cpu.Generator()
    torch.cuda.manual_seed, torch.cuda.get_rng_state, torch.cuda.set_rng_state = generator.seed, generator.get, generator.set
    random._set_cuda_rng_state, random._get_cuda_rng_state = generator.set, generator.get


def synchronize():
    if not IS_CPU:
        torch.cuda.synchronize()


def say(**fields):
    """A line of the log; one write, since ranks share it."""
    with open(os.environ.get("DCPK_LOG", "/dev/stdout"), "a", encoding="utf-8") as log:
        log.write(json.dumps(fields) + "\n")


def is_last_rank():
    return dist.get_rank() == dist.get_world_size() - 1


def watch(training):
    """Log what an iteration gave, what loading and saving took."""
    train_step, save, load = training.train_step, training.save_checkpoint, training.load_checkpoint

    def step(*args, **kwargs):
        iteration = kwargs["iteration"] if "iteration" in kwargs else args[7]
        rates = [group["lr"] for group in args[3].param_groups]
        scale = args[3].get_loss_scale().item()
        synchronize()
        begun = time.perf_counter()
        result = train_step(*args, **kwargs)
        synchronize()
        took = {"seconds": time.perf_counter() - begun} if MEASURES else {}
        if is_last_rank() and result[0]:
            loss = float(result[0]["lm loss"])
            norm = {}  # a skipped step has none
            if result[5] is not None:
                norm = {"grad_norm": float(result[5]), "grad_norm_hex": float(result[5]).hex()}
            say(iteration=iteration + 1, loss=loss, loss_hex=loss.hex(), **norm, lr=rates[0] if rates else 0.0, loss_scale=scale,
                skipped=bool(result[1]), **took)
        return result

    def timed(what, work):
        def wrapped(*args, **kwargs):
            synchronize()
            dist.barrier()
            begun = time.perf_counter()
            result = work(*args, **kwargs)
            synchronize()
            dist.barrier()
            if MEASURES and is_last_rank():
                say(what=what, seconds=time.perf_counter() - begun)
            return result
        return wrapped

    training.train_step = step
    training.save_checkpoint, training.load_checkpoint = timed("save", save), timed("load", load)


def main():
    tree, tokens = sys.argv[1:3]
    sys.argv = ["pretrain_gpt.py", *sys.argv[3:]]
    folder = os.path.join(os.environ["MEGATRON_TREES"], tree)
    if IS_CPU:
        without_cuda(tree)
    sys.path.insert(0, folder)
    import pretrain_gpt
    stand_in_for_fused_adam()
    from megatron.core.enums import ModelType
    from megatron.training import get_args, training

    training.initialize_megatron.__globals__["_compile_dependencies"] = lambda: None
    if IS_CPU:
        training.set_jit_fusion_options = lambda *a, **k: None
    watch(training)
    begun = time.time()
    pretrain_gpt.set_startup_timestamps(program_start=begun, main_entry=begun)
    model = [] if hasattr(pretrain_gpt, "gpt_config_from_args") else [functools.partial(pretrain_gpt.model_provider, pretrain_gpt.gpt_builder)]
    defaults, config = {"args_defaults": {"tokenizer_type": "NullTokenizer"}}, []
    if hasattr(pretrain_gpt, "parse_and_validate_args"):  # core 0.18 and later parse before pretrain()
        args = pretrain_gpt.parse_and_validate_args(**defaults)
        config = [pretrain_gpt.pretrain_cfg_container_from_args(args, *([] if model else [pretrain_gpt.gpt_config_from_args(args)]))]
        defaults = {}

    def samples(_sizes, vp_stage=None):
        return Samples(tokens, get_args().seq_length), None, None

    samples.is_distributed = True
    try:
        training.pretrain(*config, samples, *model, ModelType.encoder_or_decoder, pretrain_gpt.forward_step,
                          get_embedding_ranks=pretrain_gpt.get_embedding_ranks, **defaults)
    except SystemExit as end:  # of --exit-interval
        if end.code:
            raise
    if MEASURES and not IS_CPU:
        say(what="memory", rank=dist.get_rank(), peak_bytes=torch.cuda.max_memory_allocated(), reserved_bytes=torch.cuda.max_memory_reserved())
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
