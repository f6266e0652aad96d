# SPDX-License-Identifier: Apache-2.0
"""Jobs that meet: a trainer and a rollout, each with a default process group of its own, are one world.

    DCPKIT_LIBRARY=build/libdcpkit.so PYTHONPATH=tools/python python3 -m pytest tests/python/test_meeting.py

What moves tensors is processes. Who comes to a meeting and who does not is threads.
"""

import datetime
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
import traceback
import unittest
import unittest.mock

import dcpkit

try:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
except ImportError:
    torch = None

PATIENCE = 120  # seconds for each step
JOBS = ("trainer", "rollout")
SHAPE = (4096, 1024)  # 16 blocks of each trainer, and more


# --- what processes do ---


def cut(add, whole, device, axis):
    """A DTensor over the ranks of this job alone; a box on a GPU, which NCCL would refuse to two ranks of a mesh."""
    n, rank = dist.get_world_size(), dist.get_rank()
    if device == "cpu":
        tensor = distribute_tensor(whole.clone(), init_device_mesh(device, (n,)), [Shard(axis)], src_data_rank=None)
        add("w", tensor)
        return tensor.to_local()
    local = whole.chunk(n, axis)[rank].contiguous().to(device)
    offset = [0, 0]
    offset[axis] = rank * local.shape[axis]
    add("w", local, box=(offset, local.shape), shape=whole.shape)
    return local


def listed(m, job, device, rank):
    """A trainer's rows, a rollout's columns, in another dtype and the whole of a small tensor."""
    whole = torch.arange(4096.0 * 1024).reshape(SHAPE) % 251
    if job == "trainer":
        local = cut(m.source, whole, device, 0)
        small = torch.full((3,), float(rank), device=device)
        if rank == 0:
            m.source("small", small)
    else:
        local = cut(m.target, torch.zeros(SHAPE, dtype=torch.bfloat16), device, 1)
        small = torch.full((3,), 9.0, device=device)
        m.target("small", small)
    return whole, local, small


def refit(job, address, transport, meetings):
    """Everything, then what changed, proved; the address serves again."""
    for n_others in meetings:
        world = dcpkit.meet(address, job, JOBS)
        n_trainers = dist.get_world_size() if job == "trainer" else n_others
        assert world.size == dist.get_world_size() + n_others
        assert world.rank == dist.get_rank() + (0 if job == "trainer" else n_trainers)
        device = "cpu"
        if transport != "gather":
            device = f"cuda:{world.rank % torch.cuda.device_count()}"
        with dcpkit.Engine(world, device, check=True, transport=transport) as engine, engine.map() as m:
            whole, local, small = listed(m, job, device, dist.get_rank())
            assert m.plan().n_tensors == 2
            for changed in range(3):
                if changed:
                    whole[-1, -changed] += 1
                    if job == "trainer" and dist.get_rank() == dist.get_world_size() - 1:
                        local[-1, -changed] += 1
                stats = m.run(delta=True)
                if job == "trainer":
                    # in rows of the last rank, columns of the last rank: one block
                    most = stats.n_blocks if not changed else int(dist.get_rank() == dist.get_world_size() - 1)
                    assert stats.n_sent_blocks == most, (changed, stats)
                else:
                    want = whole.bfloat16().chunk(dist.get_world_size(), 1)[dist.get_rank()]
                    assert torch.equal(local.cpu(), want) and small.tolist() == [0, 0, 0]
                assert m.verify() == 2
            assert m.fingerprints()["small"] == m.fingerprints("sources")["small"]


def lose_one(job, address):
    """The last rank of the rollout is killed: all others, those that do not wait for it too, learn it at once. The trainer
    meets a new rollout."""
    world = dcpkit.meet(address, job, JOBS)
    with dcpkit.Engine(world, transport="gather") as engine, engine.map() as m:
        whole, local, _ = listed(m, job, "cpu", dist.get_rank())
        m.plan()
        m.run()
        before = local.clone()
        if world.rank == world.size - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        begun = time.monotonic()
        try:
            while True:
                m.run()
        except dcpkit.SystemError as raised:
            assert "a rank is gone" in str(raised), raised
        assert time.monotonic() - begun < 30
        assert job == "rollout" or torch.equal(local, before)
    try:
        dcpkit.Engine(world)
    except dcpkit.SystemError as raised:
        assert "has lost a rank" in str(raised), raised
    else:
        raise AssertionError("the world is whole")
    if job == "trainer":
        refit(job, address, "gather", (1,))


def process_main(script, arguments, job, place, rendezvous, results):
    told = None
    try:
        rank, size = place
        timeout = datetime.timedelta(seconds=PATIENCE)
        dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=size, timeout=timeout)
        script(job, *arguments)
    except BaseException:  # noqa: BLE001 - it is reported
        told = traceback.format_exc()
    results.put(told)
    results.close()
    results.join_thread()
    os._exit(0)  # gloo's threads may still wait for a rank that left


class Job:
    """Processes as torchrun starts them: they know each other and nobody else."""

    def __init__(self, context, script, arguments, name, size):
        self.folder = tempfile.TemporaryDirectory()
        self.ends = [context.Queue() for _ in range(size)]
        path = os.path.join(self.folder.name, "rendezvous")
        self.processes = [
            context.Process(target=process_main, args=(script, arguments, name, (rank, size), path, end))
            for rank, end in enumerate(self.ends)
        ]
        for process in self.processes:
            process.start()

    def wait(self, n=None):
        """What the first n ranks came to."""
        told = [end.get(timeout=PATIENCE) for end in self.ends[:n]]
        return [text for text in told if text]

    def kill(self):
        for process in self.processes:
            process.kill()
            process.join()
        self.folder.cleanup()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@unittest.skipIf(torch is None, "needs torch")
class Processes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.context = multiprocessing.get_context("forkserver")
        cls.context.set_forkserver_preload(["test_meeting", "torch._dynamo"])  # DTensor imports it

    def start(self, script, arguments, name, size):
        job = Job(self.context, script, arguments, name, size)
        self.addCleanup(job.kill)
        return job

    def file(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return f"file://{folder.name}/meeting"

    def check_refit(self, address, transport, n_trainers, n_rollouts):
        """A rollout of n ranks, then another one of a single rank."""
        trainer = self.start(refit, (address, transport, (n_rollouts, 1)), "trainer", n_trainers)
        for size in (n_rollouts, 1):
            rollout = self.start(refit, (address, transport, (n_trainers,)), "rollout", size)
            failed = rollout.wait()
            if failed:
                self.fail("\n".join(trainer.wait() + failed))
        self.assertEqual(trainer.wait(), [])

    def test_by_a_file(self):
        self.check_refit(self.file(), "gather", 2, 2)

    def test_by_a_store_after_a_rank_was_killed(self):
        address = f"tcp://127.0.0.1:{free_port()}"
        trainer, rollout = (self.start(lose_one, (address,), name, 2) for name in JOBS)
        self.assertEqual(rollout.wait(1), [])
        rollout = self.start(refit, (address, "gather", (2,)), "rollout", 1)
        self.assertEqual((trainer.wait(), rollout.wait()), ([], []))

    def test_on_gpus(self):
        n_gpus = torch.cuda.device_count()
        if n_gpus == 0:
            self.skipTest("needs a GPU")
        self.check_refit(self.file(), "direct", 2, 2)
        if n_gpus > 1:
            self.check_refit(f"tcp://127.0.0.1:{free_port()}", "nccl", 1, 1)


# --- who comes ---


@unittest.skipIf(torch is None, "needs torch")
class Meetings(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.tcp = f"tcp://127.0.0.1:{free_port()}"

    def file(self, name):
        return f"file://{self.folder}/{name}"

    def come(self, *meetings, seconds=20.0):
        """Of each meeting, all at a time, (address, (job, rank, size[, jobs])...), the list of what meet() came to."""
        ends = [[None] * len(members) for _, *members in meetings]

        def work(end, i, address, job, rank, size, jobs=JOBS):
            wait = datetime.timedelta(seconds=seconds)
            try:
                world = dcpkit.meet(address, job, jobs, place=(rank, size), wait=wait)
                everything = bytearray(world.size)
                world.all_gather(memoryview(bytearray([world.rank])), memoryview(everything))
                end[i] = list(everything), world.rank
            except Exception as raised:  # noqa: BLE001 - it is returned
                end[i] = raised

        threads = [
            threading.Thread(target=work, args=(end, i, address, *member))
            for (address, *members), end in zip(meetings, ends)
            for i, member in enumerate(members)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return ends

    def check_raised(self, kind, cases, **options):
        """Cases: (address, members, words that all of them hear)."""
        ends = self.come(*((address, *members) for address, members, _ in cases), **options)
        for (address, members, words), raised in zip(cases, ends):
            for end in raised:
                with self.subTest(address=address, members=members):
                    self.assertIsInstance(end, kind)
                    self.assertRegex(str(end), words)

    def test_the_order_is_that_of_jobs(self):
        for jobs in (JOBS, ("z", "rollout", "trainer")):
            members = [("rollout", 1, 2, jobs), ("trainer", 0, 1, jobs), ("rollout", 0, 2, jobs)]
            members += [("z", 0, 1, jobs)] if "z" in jobs else []
            want = [2, 0, 1] if jobs == JOBS else [2, 3, 1, 0]
            for ends in self.come((self.file("a"), *members), (self.tcp, *members)):
                self.assertEqual(ends, [(sorted(want), r) for r in want])

    def test_who_is_missing_is_named_and_the_address_serves_again(self):
        trainer, rollout = ("trainer", 0, 1), ("rollout", 0, 1)
        leader = "': missing after .* s: rank 0 of job 'trainer', which leads the meeting"
        cases = (
            (self.file("a"), [trainer], "^meeting at '.*': missing after 2 s: job 'rollout'$"),
            (self.file("b"), [trainer, ("rollout", 0, 2)], "missing after 2 s: rank 1 of 2 of job 'rollout'$"),
            (self.file("c"), [("trainer", 0, 3)], "missing after 2 s: rank 1, 2 of 3 of job 'trainer' and job 'rollout'$"),
            (self.file("d"), [rollout], leader),
            (self.tcp, [trainer], "missing after 2 s: job 'rollout'$"),
            (f"tcp://127.0.0.1:{free_port()}", [rollout], leader + ": .*refused"),
        )
        self.check_raised(dcpkit.SystemError, cases, seconds=2)
        for end in self.come(*((address, trainer, rollout) for address, _, _ in cases)):
            self.assertEqual(end, [([0, 1], 0), ([0, 1], 1)])
        late = leader + ".*an earlier meeting was of others: give each job a name of its own"
        self.check_raised(dcpkit.SystemError, [(self.file("a"), [rollout], late)], seconds=0.1)

    def test_who_disagrees_is_named(self):
        trainer, twins = ("trainer", 0, 1), "rank 0 of job .* are the same: give each job a name of its own"
        three = (*JOBS, "judge")
        cases = (
            (self.file("a"), [trainer, ("rollout", 0, 2), ("rollout", 0, 2)], twins),
            (self.file("b"), [trainer, trainer], twins),
            (self.file("c"), [trainer, ("rollout", 0, 1, three)], "another list of jobs.*'judge'"),
            (self.file("d"), [trainer, ("rollout", 0, 2), ("rollout", 1, 3)], "another size of the job.*: . and ."),
        )
        self.check_raised(dcpkit.UsageError, cases)
        versions = iter([b"0.2.0", b"0.3.0"])
        with unittest.mock.patch.object(dcpkit._meeting, "library") as library:
            library.dcpkit_version = lambda: next(versions)
            case = (self.tcp, [trainer, ("rollout", 0, 1)], "another version of dcpkit.*0.*'0.[23].0' and '0.[23].0'")
            self.check_raised(dcpkit.UsageError, [case])

    def test_what_cannot_be_is_refused(self):
        file = self.file("a")
        for address, job, jobs, place in (
            ("/tmp/meeting", "trainer", JOBS, (0, 1)),
            ("tcp://127.0.0.1", "trainer", JOBS, (0, 1)),
            ("tcp://127.0.0.1:70000", "trainer", JOBS, (0, 1)),
            ("file://host/meeting", "trainer", JOBS, (0, 1)),
            (file, "judge", JOBS, (0, 1)),
            (file, "trainer", ("trainer", "trainer"), (0, 1)),
            (file, "trainer", JOBS, (1, 1)),
            (file, "trainer", JOBS, None),
        ):
            with self.subTest((address, job, jobs, place)), self.assertRaises(dcpkit.UsageError):
                dcpkit.meet(address, job, jobs, place=place)
        with open(f"{self.folder}/text", "w") as text:
            text.write("This is text.")
        for path, kind, words in (
            (text.name, dcpkit.UsageError, "is not that of a meeting"),
            (f"{self.folder}/none/meeting", dcpkit.SystemError, "No such file"),
        ):
            with self.subTest(path), self.assertRaisesRegex(kind, words):
                dcpkit.meet(f"file://{path}", "trainer", JOBS, place=(0, 1))
        with socket.socket() as s:
            s.bind(("0.0.0.0", 0))
            s.listen()
            with self.assertRaisesRegex(dcpkit.SystemError, "EADDRINUSE"):
                dcpkit.meet(f"tcp://127.0.0.1:{s.getsockname()[1]}", "trainer", JOBS, place=(0, 1))


if __name__ == "__main__":
    unittest.main()
