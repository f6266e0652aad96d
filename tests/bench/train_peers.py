# SPDX-License-Identifier: Apache-2.0
"""`dcpkit train` beside torch FSDP2 and Megatron-FSDP: the same GPT, batch, tokens and precision, one after the other.

    MEGATRON_TREES=... python3 tests/bench/train_peers.py DCPKIT --model 125m,1b --gpus 1,2 [--of torch,megatron,dcpkit]

Each trains --iters iterations and saves behind the last, in a second process resumes and trains two more. Prints a line of JSON a run:
tokens a second (median of the iterations behind the third), the largest memory in use on a GPU by the driver's count, seconds to save
until all is on disk (dcpkit-async: that training stands still), seconds to load, bytes saved, first and last loss. torch's model stands
in this file: the same layers with its scaled_dot_product_attention, eager; Megatron's is pretrain_gpt.py with the local layer spec
(tests/interop/megatron_train.py), core 0.19.0 without Transformer Engine. Without a GPU: --model tiny, to try the script.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = "core_v0.19.0"
MODELS = {  # layers, hidden, ffn, heads, micro batch, global batch, seq, padded vocabulary
    "tiny": (2, 64, 96, 4, 1, 2, 32, 256),
    "125m": (12, 768, 2048, 12, 8, 16, 1024, 32000),
    "1b": (24, 1792, 4864, 14, 4, 8, 1024, 32000),
}
WARM = 3  # iterations that are not counted


class Shape:
    def __init__(self, name):
        self.layers, self.hidden, self.ffn, self.heads, self.micro, self.batch, self.seq, self.vocab = MODELS[name]

    def flags(self, iters):
        """As Megatron spells them; `dcpkit train` takes the same."""
        flags = f"""--num-layers {self.layers} --hidden-size {self.hidden} --ffn-hidden-size {self.ffn} --num-attention-heads {self.heads}
            --micro-batch-size {self.micro} --global-batch-size {self.batch} --seq-length {self.seq} --max-position-embeddings {self.seq}
            --vocab-size {self.vocab - 1} --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear
            --untie-embeddings-and-output-weights --transformer-impl local --attention-dropout 0 --hidden-dropout 0 --bf16 --lr 1e-4
            --min-lr 1e-4 --lr-decay-style constant --weight-decay 0.01 --clip-grad 1.0 --adam-beta2 0.999 --train-iters {iters}
            --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --use-distributed-optimizer
            --no-gradient-accumulation-fusion --ckpt-format fsdp_dtensor"""
        return flags.split()


# ---- torch FSDP2 ----


def torch_worker(options):
    """One rank. Imports torch here: the process that starts the runs does without."""
    # pylint: disable=import-outside-toplevel
    import numpy
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    import torch.nn.functional as F
    from torch import nn
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    shape = Shape(options.model)
    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpu else torch.device("cpu")
    if has_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if has_gpu else "gloo")
    rank, n_ranks = dist.get_rank(), dist.get_world_size()
    head = shape.hidden // shape.heads

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.input_norm, self.mlp_norm = nn.RMSNorm(shape.hidden, eps=1e-5), nn.RMSNorm(shape.hidden, eps=1e-5)
            self.qkv = nn.Linear(shape.hidden, 3 * shape.hidden, bias=False)
            self.proj = nn.Linear(shape.hidden, shape.hidden, bias=False)
            self.fc1 = nn.Linear(shape.hidden, 2 * shape.ffn, bias=False)
            self.fc2 = nn.Linear(shape.ffn, shape.hidden, bias=False)

        def forward(self, x, cos, sin):
            q, k, v = self.qkv(self.input_norm(x)).view(*x.shape[:2], 3, shape.heads, head).permute(2, 0, 3, 1, 4)

            def turned(t):
                a, b = t.chunk(2, -1)
                return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

            out = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
            x = x + self.proj(out.transpose(1, 2).reshape(x.shape))
            gate, up = self.fc1(self.mlp_norm(x)).chunk(2, -1)
            return x + self.fc2(F.silu(gate) * up)

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(shape.vocab, shape.hidden)
            self.layers = nn.ModuleList(Block() for _ in range(shape.layers))
            self.norm = nn.RMSNorm(shape.hidden, eps=1e-5)
            self.output = nn.Linear(shape.hidden, shape.vocab, bias=False)

        def forward(self, tokens, cos, sin):
            x = self.embedding(tokens)
            for layer in self.layers:
                x = layer(x, cos, sin)
            return self.output(self.norm(x))

    torch.manual_seed(1234)
    with torch.device(device):
        model = Gpt()
    for param in model.parameters():
        if param.dim() > 1:
            nn.init.normal_(param, std=0.02)
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mp_policy=precision)
    fully_shard(model, mp_policy=precision)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.999), fused=has_gpu)
    angles = torch.outer(torch.arange(shape.seq), 10000.0 ** (-torch.arange(0, head, 2) / head)).to(device)
    cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
    rows = numpy.memmap(options.tokens, dtype="<i4", mode="r").reshape(-1, shape.seq + 1)
    n_micro = shape.batch // (shape.micro * n_ranks)

    def synchronize():
        if has_gpu:
            torch.cuda.synchronize()

    def timed(what, work):
        synchronize()
        dist.barrier()
        begun = time.perf_counter()
        work()
        synchronize()
        dist.barrier()
        log(what=what, seconds=time.perf_counter() - begun)

    def log(**fields):
        if rank == 0:
            print(json.dumps(fields), flush=True)

    def state():
        of_model, of_adam = get_state_dict(model, adam)
        return {"model": of_model, "optimizer": of_adam}

    def load():
        for param in model.parameters():  # moments to load into
            param.grad = torch.zeros_like(param)
        adam.step()
        adam.zero_grad()
        stored = state()
        dcp.load(stored, checkpoint_id=options.load)
        set_state_dict(model, adam, model_state_dict=stored["model"], optim_state_dict=stored["optimizer"])

    def iteration(i):
        total = torch.zeros((), device=device)
        for k in range(n_micro):
            first = i * shape.batch + (k * n_ranks + rank) * shape.micro
            samples = torch.from_numpy(numpy.array(rows[first : first + shape.micro], dtype=numpy.int64)).to(device)
            model.set_requires_gradient_sync(k == n_micro - 1)
            logits = model(samples[:, :-1], cos, sin)
            loss = F.cross_entropy(logits.float().flatten(0, 1), samples[:, 1:].flatten())
            (loss / n_micro).backward()
            total += loss.detach() / n_micro
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad()
        dist.all_reduce(total)
        return float(total) / n_ranks

    if options.load:
        timed("load", load)
    for i in range(options.first, options.last):
        synchronize()
        begun = time.perf_counter()
        loss = iteration(i)
        synchronize()
        log(iteration=i + 1, loss=loss, seconds=time.perf_counter() - begun)
    if options.save:
        timed("save", lambda: dcp.save(state(), checkpoint_id=options.save))
    if has_gpu:
        log(what="memory", peak_bytes=torch.cuda.max_memory_allocated())
    dist.destroy_process_group()


# ---- the process that starts the runs ----


class Memory(threading.Thread):
    """The largest memory in use on any GPU, by the driver; 0 where there is none."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak_bytes, self.is_over = 0, False
        try:
            import pynvml

            pynvml.nvmlInit()
            self.nvml = pynvml
            seen = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(pynvml.nvmlDeviceGetCount())))
            self.gpus = [pynvml.nvmlDeviceGetHandleByIndex(int(i)) for i in seen.split(",")]
        except Exception:  # pylint: disable=broad-exception-caught
            self.nvml, self.gpus = None, []
        self.idle = [self.used(gpu) for gpu in self.gpus]

    def used(self, gpu):
        return self.nvml.nvmlDeviceGetMemoryInfo(gpu).used

    def run(self):
        while not self.is_over:
            for gpu, idle in zip(self.gpus, self.idle):
                self.peak_bytes = max(self.peak_bytes, self.used(gpu) - idle)
            time.sleep(0.02)


def gpu_count():
    try:
        return len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=True, text=True).stdout.splitlines())
    except (OSError, subprocess.CalledProcessError):
        return 0


def torchrun(n):
    return [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n)]


def by_torch(o, n, plan):
    words = [*torchrun(n), os.path.abspath(__file__), o.dcpkit, "--worker", "--model", plan["model"], "--tokens", plan["tokens"],
             "--first", str(plan["first"]), "--last", str(plan["last"])]
    return words + (["--save", plan["save"]] if plan["save"] else []) + (["--load", plan["load"]] if plan["load"] else []), {}


def by_megatron(o, n, plan):
    quiet = """--tokenizer-type NullTokenizer --eval-iters 0 --eval-interval 1000 --no-persist-layer-norm --attention-backend unfused
        --no-masked-softmax-fusion --no-rope-fusion --no-bias-swiglu-fusion --no-bias-dropout-fusion --log-interval 1 --num-workers 0
        --no-load-rng"""
    words = [*torchrun(n), os.path.join(HERE, "..", "interop", "megatron_train.py"), TREE, plan["tokens"], *plan["flags"], *quiet.split(),
             "--exit-interval", str(plan["last"])]
    words += ["--save", plan["save"], "--save-interval", str(plan["last"])] if plan["save"] else []
    words += ["--load", plan["load"]] if plan["load"] else []
    words += [] if o.has_gpu else ["--distributed-backend", "gloo"]
    return words, {"DCPK_MEASURE": "1", "DCPK_LOG": plan["log"], "CUDA_DEVICE_MAX_CONNECTIONS": "8"}


def by_dcpkit(o, n, plan):
    words = ["mpirun", "-n", str(n)] if n > 1 else []
    words += [o.dcpkit, "train", "--json", "--note-times", *plan["flags"], "--token-file", plan["tokens"], *o.ours.split()]
    words += ["--exit-at", str(plan["last"])]
    words += ["--save", plan["save"]] if plan["save"] else []
    words += ["--load", plan["load"]] if plan["load"] else []
    return words, {}


def by_dcpkit_async(o, n, plan):
    words, variables = by_dcpkit(o, n, plan)
    return [*words, "--async-save"], variables


def by_dcpkit_double_buffer(o, n, plan):
    words, variables = by_dcpkit(o, n, plan)
    return [*words, "--fsdp-double-buffer"], variables


PEERS = {"torch": by_torch, "megatron": by_megatron, "dcpkit": by_dcpkit, "dcpkit-async": by_dcpkit_async,
         "dcpkit-double-buffer": by_dcpkit_double_buffer}


def run(o, who, n, plan):
    """The lines that a run logged, each with when it came ("at"), and its largest memory."""
    plan["log"] = os.path.join(plan["work"], f"{who}.log")
    open(plan["log"], "w", encoding="utf-8").close()
    words, variables = PEERS[who](o, n, plan)
    environment = {**os.environ, "NCCL_NVLS_ENABLE": "0", "OMP_NUM_THREADS": "4", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none"}
    environment.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    memory = Memory()
    memory.start()
    lines = []
    said = os.path.join(plan["work"], f"{who}.txt")
    with open(said, "w", encoding="utf-8") as stderr:
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=stderr, text=True, env={**environment, **variables}) as process:
            timer = threading.Timer(o.limit, process.kill)
            timer.start()
            for line in process.stdout:
                if line.startswith("{"):
                    lines.append({"at": time.perf_counter(), **json.loads(line)})
            timer.cancel()
    memory.is_over = True
    with open(plan["log"], encoding="utf-8") as log:
        lines += [json.loads(line) for line in log]
    with open(said, encoding="utf-8") as text:
        notes = text.read()
    if process.returncode != 0:
        raise RuntimeError(f"{who} on {n}: exit {process.returncode}: {notes[-1500:]}")
    for verb, seconds in re.findall(r"iteration \d+ was (saved|loaded) in ([0-9.]+) s", notes):  # by dcpkit train
        lines.append({"what": verb[:4], "seconds": float(seconds)})
    return lines, memory.peak_bytes


def seconds_of(lines, what):
    """What a run itself measured."""
    return next(line["seconds"] for line in lines if line.get("what") == what)


def each_step(lines):
    steps = [line for line in lines if "iteration" in line]
    if all("seconds" in step for step in steps):
        return [step["seconds"] for step in steps]
    return [None] + [b["at"] - a["at"] for a, b in zip(steps, steps[1:])]


def folder_bytes(folder):
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names)


def measure(o, name, who, n, work, tokens):
    """A run that saves, and one that resumes."""
    shape = Shape(name)
    saved = os.path.join(work, f"saved.{who}")
    shutil.rmtree(saved, ignore_errors=True)
    begun = time.perf_counter()
    plan = {"model": name, "tokens": tokens, "flags": shape.flags(o.iters + 2), "work": work, "first": 0, "last": o.iters,
            "save": saved, "load": None}
    lines, peak_bytes = run(o, who, n, plan)
    steps = [line for line in lines if "iteration" in line]
    row = {"model": name, "who": who, "gpus": n,
           "tokens_a_second": round(shape.batch * shape.seq / statistics.median(each_step(lines)[WARM:])),
           "peak_gib": round(peak_bytes / 2**30, 2), "save_s": round(seconds_of(lines, "save"), 2),
           "saved_gb": round(folder_bytes(saved) / 1e9, 2), "loss_first": round(steps[0]["loss"], 4), "loss_last": round(steps[-1]["loss"], 4)}
    row["allocated_gib"] = max((round(line["peak_bytes"] / 2**30, 2) for line in lines if line.get("what") == "memory"), default=None)
    plan.update(first=o.iters, last=o.iters + 2, save=None, load=saved)
    lines, _ = run(o, who, n, plan)
    row["load_s"] = round(seconds_of(lines, "load"), 2)
    row["loss_resumed"] = round(next(line for line in lines if "iteration" in line)["loss"], 4)
    shutil.rmtree(saved)
    row["both_runs_s"] = round(time.perf_counter() - begun, 1)
    print(json.dumps(row), flush=True)


def write_tokens(path, shape, iters):
    """Samples of an order-2 rule, as the mock data of `dcpkit train`."""
    from array import array

    rows = array("i")
    for sample in range((iters + 2) * shape.batch):
        rows.extend((sample * 97 + i * (1 + sample % 2)) % (shape.vocab - 1) for i in range(shape.seq + 1))
    with open(path, "wb") as file:
        rows.tofile(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("dcpkit")
    parser.add_argument("--model", default="125m,1b", help="of " + ", ".join(MODELS) + ", by commas (default %(default)s)")
    parser.add_argument("--gpus", default="1,2", help="ranks, by commas (default %(default)s)")
    parser.add_argument("--of", default="torch,megatron,dcpkit", help="by commas (default %(default)s)")
    parser.add_argument("--ours", default="--device cublas --reduce native --virtual-slices 1 --state-hash-interval 0",
                        help="more flags of dcpkit train (default %(default)s)")
    parser.add_argument("--iters", type=int, default=15)
    parser.add_argument("--work", help="folder for checkpoints (default: a temporary one)")
    parser.add_argument("--limit", type=float, default=120, help="seconds a run may take (default %(default)s)")
    for flag in ("--tokens", "--save", "--load"):
        parser.add_argument(flag, help=argparse.SUPPRESS)
    for flag in ("--first", "--last"):
        parser.add_argument(flag, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.worker:
        return torch_worker(o)
    o.dcpkit, o.has_gpu, failed = os.path.abspath(o.dcpkit), gpu_count() > 0, 0
    with tempfile.TemporaryDirectory(dir=o.work) as work:
        for name in o.model.split(","):
            tokens = os.path.join(work, f"{name}.i32")
            write_tokens(tokens, Shape(name), o.iters)
            for n in o.gpus.split(","):
                for who in o.of.split(","):
                    try:
                        measure(o, name, who, int(n), work, tokens)
                    except (RuntimeError, StopIteration, OSError, ValueError) as error:
                        failed += 1
                        print(json.dumps({"model": name, "who": who, "gpus": int(n), "error": str(error)}), flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
