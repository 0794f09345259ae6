"""Torture processes as the harness sees them: launched, signalled, awaited, and ended with their block."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from stepkeep_lab.torture.forkserver import News, Order
from stepkeep_lab.torture.process import Task


class Member:
    """One process; `status` is None while it lives."""

    def __init__(self, pid: int, task: Task) -> None:
        self.pid, self.task = pid, task
        self.status: int | None = None
        self.ended = asyncio.Event()

    @property
    def memory(self) -> int:
        """Bytes that it holds in memory."""
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    @property
    def files(self) -> int:
        """Files and connections that it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))


class Fleet:
    """All processes that one nursery has made."""

    def __init__(self, nursery: asyncio.subprocess.Process) -> None:
        self._nursery = nursery
        self._members: dict[int, Member] = {}
        self._expected: deque[tuple[Task, asyncio.Future[Member]]] = deque()

    @property
    def living(self) -> list[Member]:
        return [member for member in self._members.values() if member.status is None]

    async def launch(self, task: Task) -> Member:
        born: asyncio.Future[Member] = asyncio.get_running_loop().create_future()
        self._expected.append((task, born))
        self._order(Order(launch=task))
        return await born

    def send(self, member: Member, which: signal.Signals) -> None:
        if member.status is None:
            self._order(Order(pid=member.pid, signal=which))

    async def end(self, member: Member, which: signal.Signals = signal.SIGKILL, patience: float = 60.0) -> int:
        """Signal a process and wait until it has ended; its exit status (negative: the signal that ended it)."""
        self.send(member, which)
        async with asyncio.timeout(patience):
            await member.ended.wait()
        assert member.status is not None
        return member.status

    async def end_all(self, which: signal.Signals = signal.SIGKILL) -> None:
        for member in self.living:
            if which is not signal.SIGKILL:
                self.send(member, signal.SIGCONT)
            await self.end(member, which)

    def _order(self, order: Order) -> None:
        assert self._nursery.stdin is not None
        self._nursery.stdin.write(msgspec.json.encode(order) + b"\n")

    async def listen(self) -> None:
        assert self._nursery.stdout is not None
        while line := await self._nursery.stdout.readline():
            news = msgspec.json.decode(line, type=News)
            if news.born:
                task, born = self._expected.popleft()
                member = self._members[news.born] = Member(news.born, task)
                if not born.done():
                    born.set_result(member)
            else:
                member = self._members[news.ended]
                member.status = news.status
                member.ended.set()


@asynccontextmanager
async def fleet(log: Path) -> AsyncIterator[Fleet]:
    """A nursery of one's own; whatever it made ends with the block. What processes say goes to `log`."""
    with log.open("ab") as said:
        nursery = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "stepkeep_lab.torture.forkserver",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=said,
        )
    made = Fleet(nursery)
    listening = asyncio.create_task(made.listen())
    try:
        yield made
    finally:
        assert nursery.stdin is not None
        nursery.stdin.close()
        try:
            async with asyncio.timeout(10):
                await nursery.wait()
        except TimeoutError:
            nursery.kill()
            await nursery.wait()
        await listening
