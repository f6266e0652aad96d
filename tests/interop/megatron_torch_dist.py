# SPDX-License-Identifier: Apache-2.0
"""megatron_torch_dist.py - Megatron loads a torch_dist folder that dcpkit wrote; every value is held against its source.

    torchrun ... megatron_torch_dist.py LAB TREE FOLDER src=FSDP_FOLDER [layers=4 groups=2 ep=2 experts=4 min_lr=...]

LAB/megatron_on_cpu/td_load.py builds the model and loads, with the default strictness; the checks here replace its own: they
know global expert numbers and every chained optimizer. Prints one line a rank: "CHECKED weights N masters N moments N bad N steps [..]".
"""
import os
import sys

lab = sys.argv[1]
script = os.path.join(lab, "megatron_on_cpu", "td_load.py")
sys.argv = [script] + sys.argv[2:]
head, mark, _ = open(script, encoding="utf-8").read().partition("# checks:")
assert mark, "td_load.py has changed: its checks are not where they were"
assert "opts.get('minlr'" in head, "td_load.py has changed: its learning rates are not where they were"
exec(compile(head.replace("opts.get('minlr'", "opts.get('min_lr'"), script, "exec"))  # noqa: S102

import re  # noqa: E402

import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402

reader = dcp.FileSystemReader(opts["src"])  # noqa: F821
stored = {k: torch.empty(v.size, dtype=v.properties.dtype)
          for k, v in reader.read_metadata().state_dict_metadata.items()
          if hasattr(v, "size") and k.startswith(("model.module.", "optimizer.state."))}
dcp.load(stored, storage_reader=reader, no_dist=True)

tp, tp_rank = TP, mpu.get_tensor_model_parallel_rank()  # noqa: F821
n_local = (moe or 0) // EP  # noqa: F821
first_expert = n_local * (mpu.get_expert_model_parallel_rank() if EP > 1 else 0)  # noqa: F821


def expected(name, prefix, end, shape):
    """What the source holds of a parameter on this rank."""
    name = re.sub(r"local_experts\.(\d+)\.", lambda m: f"local_experts.{int(m[1]) + first_expert}.", name)
    parts = [stored.get(prefix + name + end)]
    if parts[0] is None:
        parts = [stored[prefix + name + half + end] for half in ("_w", "_v")]
    local = []
    for part in parts:
        want = (shape[0] // len(parts), *shape[1:])
        axes = [a for a in range(part.ndim) if part.shape[a] != want[a]]
        local.append(part.chunk(tp, axes[0])[tp_rank] if axes else part)
    return torch.cat(local) if len(local) > 1 else local[0]


bad, counts = [], {"weights": 0, "masters": 0, "exp_avg": 0, "exp_avg_sq": 0}


def check(kind, name, got, want):
    counts[kind] += 1
    if not torch.equal(got, want):
        bad.append(f"{kind} of {name}")


names = {}
for name, param in um[0].named_parameters():  # noqa: F821
    names[param] = name
    want = expected(name, "model.module.", "", tuple(param.shape))
    check("weights", name, param.data, want.to(param.dtype))

state_prefix = "optimizer.state.module.module.module."
for chained in opt.chained_optimizers:  # noqa: F821
    for param, (group, order) in chained.model_param_group_index_map.items():
        name, shape = names[param], tuple(param.shape)
        main = chained.optimizer.param_groups[group]["params"][order]
        span = chained._get_model_param_range_map(param)["param"]
        state = chained.optimizer.state[main]
        master = expected(name, "model.module.", "", shape).flatten()[span.start:span.end]
        check("masters", name, main.data.flatten(), master)
        for moment in ("exp_avg", "exp_avg_sq"):
            want = expected(name, state_prefix, "." + moment, shape).flatten()[span.start:span.end]
            check(moment, name, state[moment].flatten(), want)

steps = sorted({float(g["step"]) for g in opt.param_groups})  # noqa: F821
for what in bad[:5]:
    print(rank, "BAD", what, flush=True)  # noqa: F821
print(rank, "CHECKED", " ".join(f"{k} {n}" for k, n in counts.items()), "bad", len(bad), "steps", steps,  # noqa: F821
      flush=True)
os._exit(1 if bad or min(counts.values()) == 0 else 0)
