# SPDX-License-Identifier: Apache-2.0
"""The engine beside what torch has: the same tensors, results compared bit by bit before timing.

    DCPKIT_LIBRARY=build/libdcpkit.so PYTHONPATH=tools/python \\
        torchrun --nproc-per-node 2 tests/bench/remap/peers.py --device cuda [--megatron MEGATRON-LM]

Prints a line of JSON for each row of tests/bench/README.md that the number of ranks allows:
times in ms (best and median, each the maximum over ranks between barriers, after a warm-up), bytes
that arrive on a rank, and memory that a run takes besides its tensors. Plans are timed apart.
"""

import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

import dcpkit

POISON = 99


class Bench:
    def __init__(self, device, n_runs):
        self.rank = dist.get_rank()
        self.n = dist.get_world_size()
        self.device = device
        self.n_runs = n_runs
        self.megatron = None
        self.mesh = init_device_mesh(device.type, (self.n,))
        self.engine = dcpkit.Engine(dcpkit.torch_world(), device)

    def synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def once(self, work):
        """Seconds of the slowest rank."""
        self.synchronize()
        dist.barrier()
        begun = time.perf_counter()
        work()
        self.synchronize()
        took = torch.tensor([time.perf_counter() - begun], dtype=torch.float64)
        every = [torch.zeros_like(took) for _ in range(self.n)]
        dist.all_gather(every, took)  # the tensor is the CPU's: gloo carries it
        return max(float(t) for t in every)

    def peak_bytes(self, work):
        """What the work allocates at most, by torch's count."""
        if self.device.type != "cuda":
            return work() and 0
        self.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        self.synchronize()
        return torch.cuda.max_memory_allocated() - before

    def time(self, work):
        extra = self.peak_bytes(work)  # the warm-up
        times = sorted(1e3 * self.once(work) for _ in range(self.n_runs))
        return {
            "ms_best": round(times[0], 3),
            "ms_median": round(statistics.median(times), 3),
            "extra_bytes": extra or 0,
        }

    def plan(self, sources, targets):
        """A map of lists of (name, tensor), and how long planning took."""
        m = self.engine.map()
        begun = time.perf_counter()
        m.sources(sources)
        m.targets(targets)
        listed = time.perf_counter()
        plan = m.plan()
        return m, plan, {
            "list_ms": round(1e3 * (listed - begun), 1),
            "plan_ms": round(1e3 * (time.perf_counter() - listed), 1),
            "note": plan.note,
        }

    def ours(self, m, plan):
        figures = self.time(m.run)
        moved = plan.in_bytes + plan.local_bytes
        figures["extra_bytes"] += plan.table_bytes + plan.staging_bytes
        figures["gb_a_second"] = round(moved / figures["ms_best"] / 1e6, 1)
        return figures

    def report(self, row, what, moved_bytes, planned, figures):
        if self.rank == 0:
            line = {"row": row, "what": what, "ranks": self.n, "device": self.device.type}
            line.update({"moved_bytes": moved_bytes, **planned, **figures})
            print(json.dumps(line), flush=True)


def block(tensor, axis, i, n):
    """Slices that cut out the i-th of n equal parts of an axis."""
    cut = [slice(None)] * tensor.dim()
    length = tensor.shape[axis] // n
    cut[axis] = slice(i * length, (i + 1) * length)
    return tuple(cut)


class Megatron:
    """Megatron-LM's own reshard over its NCCLCopyService. We cut the slices: its planner needs its modules."""

    def __init__(self, folder):
        sys.path.insert(0, folder)
        from megatron.core.resharding import execution, utils
        from megatron.core.resharding.copy_services.nccl_copy_service import NCCLCopyService

        self.execution, self.utils = execution, utils
        self.group = dist.new_group(backend="nccl")
        self.service = NCCLCopyService(group=self.group)

    def plan(self, sources, targets, axis):
        """From shards of one axis to those of the other."""
        me, n = dist.get_rank(), dist.get_world_size()
        sends, receives = [], []
        for i, (name, source) in enumerate(sources.items()):
            target = targets[name]
            for peer in range(n):
                parts = block(source, 1 - axis, peer, n), block(target, axis, me, n)
                task = (i * n + me) * n + peer
                sends.append(self.utils.TransferOp(name, peer, True, *parts, task_id=task))
                parts = block(target, axis, peer, n), block(source, 1 - axis, me, n)
                task = (i * n + peer) * n + me
                receives.append(self.utils.TransferOp(name, peer, False, *parts, task_id=task))
        return self.utils.ReshardPlan(sends, receives)

    def mover(self, sources, targets, axis):
        """A function that moves them all."""
        modules = []
        for tensors in (sources, targets):
            module = torch.nn.Module()
            for name, tensor in tensors.items():
                module.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))
            modules.append(module)
        plan = self.plan(sources, targets, axis)
        return lambda: self.execution.execute_reshard_plan(plan, *modules, self.service, group=self.group)


def random_tensor(shape, device, seed):
    """Any bits: NaNs as well."""
    generator = torch.Generator(device).manual_seed(seed)
    bits = torch.randint(-(2**15), 2**15, shape, generator=generator, device=device, dtype=torch.int16)
    return bits.view(torch.bfloat16)


def must_be_equal(got, want, what):
    for name, tensor in got:
        if not torch.equal(tensor.view(torch.int16), want[name].view(torch.int16)):
            raise AssertionError(f"{what}: {name} differs")


def scattered(bench, n_pieces, piece_elems):
    """G2: pieces that lie anywhere, from one buffer to another."""
    memory = random_tensor((n_pieces, piece_elems), bench.device, 1)
    there = torch.full_like(memory, POISON)
    order = torch.Generator().manual_seed(2)
    origins = torch.randperm(n_pieces, generator=order).tolist()
    places = torch.randperm(n_pieces, generator=order).tolist()
    sources = [memory[i] for i in origins]
    targets = [there[i] for i in places]
    own = f"{bench.rank}."
    m, plan, planned = bench.plan(
        ((f"{own}{i}", t) for i, t in enumerate(sources)),
        ((f"{own}{i}", t) for i, t in enumerate(targets)),
    )
    m.run()
    ours = there.clone()
    there.fill_(POISON)
    # as integers: floats take the way through float32 there, which changes the codes of NaNs
    codes = [[t.view(torch.int16) for t in side] for side in (targets, sources)]
    torch._foreach_copy_(*codes)
    must_be_equal([("all", ours)], {"all": there}, "G2")
    figures = {
        "ours": bench.ours(m, plan),
        "torch._foreach_copy_": bench.time(lambda: torch._foreach_copy_(*codes)),
    }
    m.close()
    bench.report("G2", f"{n_pieces} pieces of {2 * piece_elems} B, local", plan.local_bytes, planned, figures)


def scattered_to_peer(bench, n_pieces, piece_elems):
    """G2 between ranks: all pieces of the rank before come to this one."""
    n, before = bench.n, (bench.rank - 1) % bench.n
    memory = random_tensor((n_pieces, piece_elems), bench.device, 10 + bench.rank)
    there = torch.full_like(memory, POISON)
    origins = torch.randperm(n_pieces, generator=torch.Generator().manual_seed(3)).tolist()
    m, plan, planned = bench.plan(
        ((f"{bench.rank}.{i}", memory[k]) for i, k in enumerate(origins)),
        ((f"{before}.{i}", there[i]) for i in range(n_pieces)),
    )
    m.run()
    want = random_tensor((n_pieces, piece_elems), bench.device, 10 + before)[origins]
    must_be_equal([("all", there)], {"all": want}, "G2")
    figures = {"ours": bench.ours(m, plan)}
    m.close()
    what = f"{n_pieces} pieces of {2 * piece_elems} B, from each rank to the next"
    bench.report("G2", what, plan.in_bytes, planned, figures)


def sharded(bench, shapes, axis):
    """Tensors that are cut along an axis, with random elements, and their placements."""
    tensors = {}
    for i, (name, shape) in enumerate(shapes):
        local = list(shape)
        local[axis] //= bench.n
        elements = random_tensor(local, bench.device, 1000 * bench.rank + i)
        tensors[name] = DTensor.from_local(elements, bench.mesh, [Shard(axis)], run_check=False)
    return tensors


def all_to_all(bench, n_bytes):
    """Buffers that are ready to be sent and received, for the time of the exchange alone."""
    out = torch.empty(n_bytes // 2, device=bench.device, dtype=torch.bfloat16)
    ready = torch.empty_like(out)
    return bench.time(lambda: dist.all_to_all_single(out, ready))


def by_megatron(bench, row, sources, targets, axis):
    """The same by Megatron into memory of its own: equal to what ours has moved, and timed."""
    names = {name: name.replace(".", "_") for name in sources}  # of parameters
    shards = {names[name]: source.to_local() for name, source in sources.items()}
    there = {names[name]: torch.full_like(t.to_local(), POISON) for name, t in targets.items()}
    move = bench.megatron.mover(shards, there, axis)
    move()
    want = {names[name]: target.to_local() for name, target in targets.items()}
    must_be_equal(there.items(), want, f"{row} by Megatron")
    return bench.time(move)


def redistributed(bench, row, what, shapes, axis):
    """G6 to G8: from one axis to the other."""
    sources = sharded(bench, shapes, axis)
    targets = sharded(bench, shapes, 1 - axis)
    for target in targets.values():
        target.to_local().fill_(POISON)
    m, plan, planned = bench.plan(sources, targets)
    m.run()
    for name, source in sources.items():
        want = source.redistribute(bench.mesh, [Shard(1 - axis)]).to_local().contiguous()
        must_be_equal([(name, targets[name].to_local())], {name: want}, row)

    def by_dtensor():
        return [s.redistribute(bench.mesh, [Shard(1 - axis)]) for s in sources.values()]

    figures = {"ours": bench.ours(m, plan), "DTensor.redistribute": bench.time(by_dtensor)}
    if bench.megatron is not None:
        figures["Megatron's NCCLCopyService"] = by_megatron(bench, row, sources, targets, axis)
    n_bytes = sum(s.to_local().numel() * 2 for s in sources.values())
    if row == "G6" and bench.device.type == "cuda":
        figures["all_to_all_single"] = all_to_all(bench, n_bytes)
    m.close()
    bench.report(row, f"{what}, S{axis} to S{1 - axis}", plan.in_bytes + plan.local_bytes, planned, figures)


def layers(n_layers, divisor):
    """The matrices of layers of an 8B model (hidden 4096, FFN 14336, 8 of 32 heads for K and V)."""
    hidden, ffn, kv = 4096 // divisor, 14336 // divisor, 1024 // divisor
    matrices = {
        "q": (hidden, hidden),
        "k": (kv, hidden),
        "v": (kv, hidden),
        "o": (hidden, hidden),
        "gate": (ffn, hidden),
        "up": (ffn, hidden),
        "down": (hidden, ffn),
    }
    return [(f"{i}.{name}", shape) for i in range(n_layers) for name, shape in matrices.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--rows", default="G2,G6,G7,G8", help="of them, by commas (default %(default)s)")
    parser.add_argument("--divisor", type=int, default=1, help="of lengths, for a small run")
    parser.add_argument("--runs", type=int, default=5, help="timed ones (default %(default)s)")
    parser.add_argument("--megatron", metavar="FOLDER", help="of a Megatron-LM: its copy service, too")
    args = parser.parse_args()
    if args.megatron and args.device != "cuda":
        parser.error("--megatron: its copy service needs --device cuda")

    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    device = torch.device("cpu")
    if args.device == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if args.device == "cuda" else "gloo")
    bench = Bench(device, args.runs)
    if args.megatron:
        bench.megatron = Megatron(args.megatron)
    rows, d = args.rows.split(","), args.divisor
    if "G2" in rows:
        scattered(bench, 100000 // d, 5120)
    if "G2" in rows and bench.n > 1:
        scattered_to_peer(bench, 100000 // d, 5120)
    for axis in range(2 if bench.n > 1 else 0):
        if "G6" in rows:
            redistributed(bench, "G6", "one tensor", [("w", (32768 // d, 32768 // d))], axis)
        if "G7" in rows:
            redistributed(bench, "G7", "16 layers of an 8B", layers(16, d), axis)
        if "G8" in rows:
            small = [(str(i), (256, 512)) for i in range(4000 // d)]
            redistributed(bench, "G8", f"{len(small)} tensors of 256 KiB", small, axis)
    bench.engine.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
