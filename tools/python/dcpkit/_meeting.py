# SPDX-License-Identifier: Apache-2.0
"""One world of the ranks of several jobs, which meet through a store of torch."""

from __future__ import annotations

import datetime
import json
import os
import socket
import time
import urllib.parse
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from ._engine import World
from ._library import SystemError, UsageError, library

#: What a process tells of itself: job, jobs, rank, size, version, process, and a number of its own.
_Member = dict[str, Any]

_SETTLE_SECONDS = 1.0  # those who disagree have all come when nobody came for so long
_FAREWELL_SECONDS = 5.0  # the store's host stays for so long, until all have read why it goes
_LONGEST_PAUSE_SECONDS = 0.5
_MOST_KEY_BYTES = 4096  # the first number in a file of torch's FileStore is that of its first key


def _named(member: _Member) -> str:
    return f"rank {member['rank']} of job {member['job']!r} ({member['process']})"


def _disagreement(found: Sequence[_Member]) -> str:
    """Why those who came cannot be one world; "" when they can."""
    places: dict[tuple[str, int], _Member] = {}
    jobs: dict[str, _Member] = {}
    for one in found:
        for other, key, words in (
            (found[0], "version", "version of dcpkit"),
            (found[0], "jobs", "list of jobs"),
            (jobs.setdefault(one["job"], one), "size", "size of the job"),
        ):
            if one[key] != other[key]:
                return (
                    f"{_named(one)} has another {words} than {_named(other)}: "
                    f"{one[key]!r} and {other[key]!r}"
                )
        twin = places.setdefault((one["job"], one["rank"]), one)
        if twin is not one:
            return f"{_named(one)} and {_named(twin)} are the same: give each job a name of its own"
    return ""


def _missing(found: Sequence[_Member], jobs: Sequence[str]) -> str:
    """The jobs that did not come, and ranks of those that did; "" when all are there."""
    absent = []
    for job in jobs:
        ranks = {one["rank"]: one["size"] for one in found if one["job"] == job}
        if not ranks:
            absent.append(f"job {job!r}")
            continue
        size = max(ranks.values())
        gone = [rank for rank in range(size) if rank not in ranks]
        if gone:
            told = ", ".join(map(str, gone[:8])) + (", ..." if len(gone) > 8 else "")
            absent.append(f"rank {told} of {size} of job {job!r}")
    return " and ".join(absent)


def _leader(jobs: Sequence[str]) -> str:
    return f"rank 0 of job {jobs[0]!r}, which leads the meeting"


def _pauses(end: float) -> Iterator[float]:
    """The time, again and again, until it is over."""
    pause = 0.01
    while (now := time.monotonic()) < end:
        yield now
        time.sleep(min(pause, max(end - now, 0)))
        pause = min(1.5 * pause, _LONGEST_PAUSE_SECONDS)


class _Meeting:
    """Rank 0 of the first job leads: it begins a session and ends it with a verdict.

    Keys of earlier sessions stay in a store. A verdict has the numbers of those whom it is for: who is not among them
    waits for another session. A leader whose session was replaced comes to the other one, where it is a twin.
    """

    def __init__(self, store: Any, me: _Member) -> None:
        self._store = store
        self._me = me
        self._found: list[_Member] = []

    def _read(self, key: str) -> Any:
        return json.loads(self._store.get(key)) if self._store.check([key]) else None

    def _write(self, key: str, value: Any) -> None:
        self._store.set(key, json.dumps(value))

    def _come(self, session: str) -> None:
        self._write(f"{session}/member/{self._store.add(f'{session}/members', 1)}", self._me)
        self._found = []

    def _look(self, session: str) -> bool:
        """Whether somebody else has come."""
        n = len(self._found)
        while (one := self._read(f"{session}/member/{len(self._found) + 1}")) is not None:
            self._found.append(one)
        return len(self._found) > n

    def _end(self, session: str, late: str = "") -> dict[str, Any]:
        """Of all that were found."""
        verdict = {
            "numbers": [one["number"] for one in self._found],
            "sizes": {one["job"]: one["size"] for one in self._found},
            "disagreement": _disagreement(self._found),
            "late": late,
        }
        self._write(f"{session}/verdict", verdict)
        return verdict

    def _judge(self, session: str, has_news: bool, is_settled: bool) -> None:
        if _disagreement(self._found):
            if is_settled:
                self._end(session)
        elif has_news and not _missing(self._found, self._me["jobs"]):
            self._end(session)

    def _leave(self, session: str, verdict: dict[str, Any], is_leader: bool) -> None:
        """Raise what the verdict has, when all have read it: the leader's process may be the store's."""
        if not verdict["disagreement"] and not verdict["late"]:
            return
        n_left = self._store.add(f"{session}/left", 1)
        for _ in _pauses(time.monotonic() + _FAREWELL_SECONDS):
            if not is_leader or n_left >= len(verdict["numbers"]):
                break
            n_left = self._store.add(f"{session}/left", 0)
        if verdict["disagreement"]:
            raise UsageError(verdict["disagreement"])
        raise SystemError(verdict["late"])

    def hold(self, is_leader: bool, end: float, within: str) -> tuple[str, dict[str, int]]:
        """The session, and the size of each job."""
        session, own, last = None, uuid.uuid4().hex, 0.0
        if is_leader:
            self._write("session", own)
        for now in _pauses(end if is_leader else end + _SETTLE_SECONDS):  # the leader is the one to tell
            newest = self._read("session")
            if newest is None:
                continue
            if newest != session:
                session, last = newest, now
                self._come(session)
            if session == own:
                has_news = self._look(session)
                last = now if has_news else last
                self._judge(session, has_news, now - last > _SETTLE_SECONDS)
            verdict = self._read(f"{session}/verdict")
            if verdict is not None and self._me["number"] in verdict["numbers"]:
                self._leave(session, verdict, session == own)
                return session, verdict["sizes"]
        leader = _leader(self._me["jobs"])
        if session is None:
            raise SystemError(f"missing {within}: {leader}")
        if self._read(f"{session}/verdict") is not None:
            others = "an earlier meeting was of others: give each job a name of its own, and start all"
            raise SystemError(f"missing {within}: {leader} ({others})")
        self._look(session)
        late = f"missing {within}: {_missing(self._found, self._me['jobs']) or leader}"
        if session == own:
            self._leave(session, self._end(session, late), True)
        self._store.add(f"{session}/left", 1)
        raise SystemError(late)


def _listening(host: str, port: int, end: float) -> str:
    """Wait until somebody listens, as torch would, but hear of Ctrl-C. Why nobody does; "" when one does."""
    refused = ""
    for _ in _pauses(end):
        try:
            socket.create_connection((host, port), timeout=max(end - time.monotonic(), 0.1)).close()
            return ""
        except OSError as raised:
            refused = str(raised)
    return refused or "no time was left"


def _store_at(address: str, is_leader: bool, jobs: Sequence[str], end: float, within: str) -> Any:
    import torch.distributed as dist

    try:
        parts = urllib.parse.urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urllib.parse.urlsplit(""), None, None
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        with open(parts.path, "a+b") as file:  # torch would try for minutes what cannot be
            file.seek(0)
            if int.from_bytes(file.read(4), "little") > _MOST_KEY_BYTES:
                raise UsageError("the file is there already, and is not that of a meeting: give another path")
        return dist.FileStore(parts.path)
    if parts.scheme != "tcp" or not host or not port or parts.path:
        raise UsageError("an address is tcp://HOST:PORT or file:///PATH")
    refused = "" if is_leader else _listening(host, port, end)
    if refused:
        raise SystemError(f"missing {within}: {_leader(jobs)}: {refused}")
    patience = datetime.timedelta(seconds=max(end - time.monotonic(), 1))
    return dist.TCPStore(host, port, None, is_leader, patience, wait_for_workers=False, multi_tenant=True)


def _own_place() -> tuple[int, int]:
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        raise UsageError("place=(rank, size) is needed where torch.distributed is not initialized")
    return dist.get_rank(), dist.get_world_size()


def _gloo_world(store: Any, rank: int, size: int, within: datetime.timedelta, timeout: datetime.timedelta) -> World:
    """Over a group of its own, which knows no other group of the process."""
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import AllgatherOptions

    groups = [dist.ProcessGroupGloo(store, rank, size, within)]
    options = AllgatherOptions()
    options.timeout = timeout

    def all_gather(mine: memoryview, everything: memoryview) -> None:
        if not groups:
            raise SystemError("this world has lost a rank: all jobs meet again")
        try:
            groups[0]._allgather_base(
                torch.frombuffer(everything, dtype=torch.uint8), torch.frombuffer(mine, dtype=torch.uint8), options
            ).wait()
        except RuntimeError as raised:
            groups.clear()  # its connections close: who waits for this rank hears of it
            raise SystemError(f"a rank is gone, or took longer than {timeout}: {raised}") from raised

    return World(rank, size, all_gather)


def meet(
    address: str,
    job: str,
    jobs: Sequence[str],
    *,
    place: tuple[int, int] | None = None,
    wait: datetime.timedelta = datetime.timedelta(minutes=5),
    timeout: datetime.timedelta = datetime.timedelta(minutes=30),
) -> World:
    """The world of the ranks of several jobs, each with process groups of its own, or none. Collective over all.

    address: tcp://HOST:PORT, where rank 0 of the first job listens, on its own machine HOST; or file:///PATH, a file that
    all share, and that is made. job: the name of this one. jobs: the names of all, the same list everywhere: the ranks of
    the first come first in the world. place: rank and size of this process in its job; None: those of torch.distributed.
    wait: for all to come. timeout: of each exchange after.
    One address serves for any number of meetings, one after the other, whatever an earlier one left there.
    Raises, on all who came, UsageError when they disagree about jobs, sizes or the version of dcpkit, or two processes
    have one place; SystemError with those who are missing. A rank that is lost later ends the calls of all others.
    """
    jobs = list(jobs)
    rank, size = _own_place() if place is None else place
    if job not in jobs or len(set(jobs)) < len(jobs):
        raise UsageError(f"jobs are the names of all, once each, {job!r} too, not {jobs}")
    if not 0 <= rank < size:
        raise UsageError(f"a job has ranks from 0 on, not rank {rank} of {size}")
    end, within = time.monotonic() + wait.total_seconds(), f"after {wait.total_seconds():g} s"
    is_leader = job == jobs[0] and rank == 0
    me = {"job": job, "jobs": jobs, "rank": rank, "size": size, "version": library.dcpkit_version().decode()}
    me |= {"process": f"process {os.getpid()} on {socket.gethostname()}", "number": uuid.uuid4().hex}
    try:
        import torch.distributed as dist

        store = dist.PrefixStore("dcpkit", _store_at(address, is_leader, jobs, end, within))
        session, sizes = _Meeting(store, me).hold(is_leader, end, within)
        first = sum(sizes[other] for other in jobs[: jobs.index(job)])
        world = _gloo_world(dist.PrefixStore(session, store), first + rank, sum(sizes.values()), wait, timeout)
    except (RuntimeError, OSError, UsageError) as raised:
        kind = UsageError if isinstance(raised, UsageError) else SystemError
        raise kind(f"meeting at {address!r}: {str(raised).splitlines()[0]}") from None
    world._store = store  # those who meet next may know its server already
    return world
