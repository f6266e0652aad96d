# SPDX-License-Identifier: Apache-2.0
# fsdp_layout.py - our flat-buffer layout against Megatron-FSDP's own functions, on random models.
"""Usage: fsdp_layout.py PRINT_LAYOUT MEGATRON_TREE [N [SEED]]

PRINT_LAYOUT: the program of print_layout.c. MEGATRON_TREE: a checkout with megatron/core/distributed/fsdp/src.
N random models (default 1000), on CPU, no process group. Every parameter's bucket, factor, offset and buffer
size must be equal. Exit 1 when one differs; the seed makes the models again."""
import random
import subprocess
import sys
import warnings

warnings.filterwarnings("ignore")
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[2] + "/megatron/core/distributed/fsdp/src")
import torch
from torch import nn
import megatron_fsdp.param_and_grad_buffer as buffers


class Config:
    data_parallel_sharding_strategy = "optim_grads_params"


class Layer(nn.Module):
    """An FSDP unit."""


def random_shape(rng):
    if rng.random() < 0.3:
        return (rng.choice([1, 16, 32, 48, 64, 96, 128, 200]),)
    shape = (rng.choice([1, 2, 3, 4, 8, 48, 63, 64, 96, 192, 255]), rng.choice([16, 24, 32, 48, 64, 80, 96]))
    return shape + (rng.choice([1, 4]),) if rng.random() < 0.1 else shape


def fill(rng, module, most):
    for i in range(rng.randint(1, most)):
        module.register_parameter(f"p{i}", nn.Parameter(torch.empty(random_shape(rng), device="meta")))
    return module


def random_model(rng):
    model = fill(rng, nn.Module(), 4)
    model.layers = nn.ModuleList()
    for _ in range(rng.randint(0, 3)):
        layer = Layer()
        layer.attention = fill(rng, nn.Module(), 8)
        if rng.random() < 0.5:
            layer.experts = nn.Module()
            layer.experts.local = nn.ModuleList(fill(rng, nn.Module(), 3) for _ in range(rng.randint(1, 3)))
        model.layers.append(layer)
    model.head = fill(rng, nn.Module(), 4)
    for name, p in model.named_parameters():
        p.allreduce = ".experts." not in name  # how releases before 0.16 tell experts
    return model


def layout_of(model, bucket, shards):
    """name -> (bucket, factor, size, first), by Megatron."""
    policy = buffers.BucketingPolicy(suggested_bucket_size=bucket or None, fsdp_unit_modules=[Layer],
                                     data_parallel_sharding_strategy=Config.data_parallel_sharding_strategy)
    names = {p: name for name, p in model.named_parameters()}
    result = {}
    for number, group in enumerate(buffers._get_parameter_groups(model, policy, {})[0]):
        index, whole, _ = buffers.build_data_parallel_buffer_index(
            [p.shape for p in group.params], 0, shards[group.is_expert_param], True, Config, 0,
            group.chunk_size_factor)
        for i, p in enumerate(group.params):
            result[names[p]] = (number, group.chunk_size_factor, whole.size, index[i].global_data_index)
    return result


def describe(model, bucket, shards):
    """The model as print_layout reads it."""
    lines = [f"model {len(list(model.parameters()))} {bucket} {shards[0]} {shards[1]}"]
    for name, p in model.named_parameters():
        unit = int(name.split(".")[1]) if name.startswith("layers.") else -1
        lines.append(f"{unit} {int('.experts.' in name)} {p.dim()} {' '.join(map(str, p.shape))}")
    return "\n".join(lines) + "\n"


def differences(model, wanted, rows):
    """Names whose layout differs. Numbers of buckets may, but not which parameters share one."""
    names = [name for name, _ in model.named_parameters()]
    ours = {name: row for name, row in zip(names, rows)}
    pairs = {(wanted[name][0], ours[name][0]) for name in names}
    if len(pairs) != len({a for a, _ in pairs}) or len(pairs) != len({b for _, b in pairs}):
        return ["(buckets)"]
    return [name for name in names if wanted[name][1:] != ours[name][1:]]


def main():
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
    rng = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    models, text = [], ""
    for _ in range(n):
        model, bucket = random_model(rng), rng.choice([0, 0, 1000, 16000])
        shards = (rng.choice([1, 2, 3, 4, 8]), rng.choice([1, 2, 4]))
        models.append((model, layout_of(model, bucket, shards)))
        text += describe(model, bucket, shards)
    run = subprocess.run([sys.argv[1]], input=text, capture_output=True, text=True, check=True)
    rows = [tuple(map(int, line.split())) for line in run.stdout.splitlines()]
    bad = params = 0
    for i, (model, wanted) in enumerate(models):
        wrong = differences(model, wanted, rows[params:params + len(wanted)])
        params += len(wanted)
        if wrong:
            print(f"model {i}: {wrong[:3]} differ")
        bad += bool(wrong)
    print(f"{n} models, {params} parameters, {bad} models differ")
    return 1 if bad or params != len(rows) else 0


sys.exit(main())
