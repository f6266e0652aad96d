# SPDX-License-Identifier: Apache-2.0
# schedules.py - our learning rates and weight decay against Megatron's own scheduler, on random schedules.
"""Usage: schedules.py PRINT_SCHEDULE MEGATRON_TREE [N [SEED]]

PRINT_SCHEDULE: the program of print_schedule.c. MEGATRON_TREE: a checkout with megatron/core/optimizer_param_scheduler.py.
N random schedules (default 300), some iterations past the end of each. Every value must be equal to the last bit. Exit 1
when one differs; the seed makes the schedules again."""
import importlib.util
import itertools
import random
import subprocess
import sys
import types

sys.dont_write_bytecode = True
# The file alone: what else its package imports, a schedule does not need.
sys.modules["megatron.core.utils"] = types.ModuleType("megatron.core.utils")
sys.modules["megatron.core.utils"].log_single_rank = lambda *args: None
spec = importlib.util.spec_from_file_location("scheduler", sys.argv[2] + "/megatron/core/optimizer_param_scheduler.py")
scheduler = importlib.util.module_from_spec(spec)
spec.loader.exec_module(scheduler)

LR = ("constant", "linear", "cosine", "inverse-square-root", "WSD")
WSD = ("linear", "cosine", "exponential", "minus_sqrt")
WD = ("constant", "linear", "cosine")


def random_schedule(rng, styles):
    decay = rng.randint(2, 60)
    start_wd = rng.choice([0.0, 0.01, 0.1])
    lr = rng.choice([1e-3, 3e-4, 0.015])
    return {
        "lr_style": styles[0], "wsd_style": styles[1], "wd_style": styles[2], "lr": lr, "min_lr": rng.choice([0.0, lr / 10]),
        "init": rng.choice([0.0, lr / 100]), "start_wd": start_wd, "end_wd": start_wd * (1 if styles[2] == "constant" else 3),
        "warmup": rng.choice([0, rng.randint(0, decay - 1)]), "fraction": rng.choice([0.0, 0.0, 0.01, 0.37]), "decay": decay,
        "wsd": rng.randint(1, decay), "train": decay + rng.randint(0, 20), "batch": rng.choice([1, 4, 24])}


def megatron_values(s, n):
    optimizer = types.SimpleNamespace(param_groups=[{}])
    steps = s["decay"] * s["batch"]
    of = scheduler.OptimizerParamScheduler(
        optimizer, init_lr=s["init"], max_lr=s["lr"], min_lr=s["min_lr"],
        lr_warmup_steps=s["fraction"] * steps if s["fraction"] else s["warmup"] * s["batch"], lr_decay_steps=steps,
        lr_decay_style=s["lr_style"], start_wd=s["start_wd"], end_wd=s["end_wd"], wd_incr_steps=s["train"] * s["batch"],
        wd_incr_style=s["wd_style"], use_checkpoint_opt_param_scheduler=False, wsd_decay_steps=s["wsd"] * s["batch"],
        lr_wsd_decay_style=s["wsd_style"])
    for _ in range(n):
        yield optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["weight_decay"]
        of.step(s["batch"])


def main():
    n_schedules = int(sys.argv[3]) if len(sys.argv) > 3 else 300
    rng = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    styles = itertools.cycle(itertools.product(LR, WSD, WD))
    schedules = [random_schedule(rng, next(styles)) for _ in range(n_schedules)]
    counts = [s["train"] + 3 for s in schedules]
    lines = "".join(" ".join(str(v) for v in s.values()) + f" {n}\n" for s, n in zip(schedules, counts))
    printed = iter(subprocess.run([sys.argv[1]], input=lines, capture_output=True, text=True, check=True).stdout.split("\n"))
    n_values = n_wrong = 0
    for s, n in zip(schedules, counts):
        for i, want in enumerate(megatron_values(s, n)):
            got = tuple(float.fromhex(v) for v in next(printed).split())
            n_values += 1
            if got != want and n_wrong < 20:
                print(f"step {i} of {s}: {got}, Megatron has {want}")
            n_wrong += got != want
    print(f"{n_schedules} schedules, {n_values} values of rate and decay, {n_wrong} differ")
    return n_wrong > 0 or n_values == 0


if __name__ == "__main__":
    sys.exit(main())
