"""Two operations on one PostgreSQL server, statement by statement, in an order that a schedule dictates.

Each side has a store of its own whose connections stop before every statement until the scheduler lets one of the two
go on. A side that waits for the other's lock is recognised by asking the server. Run again and again with schedules
that differ in the last choice that can differ, this walks every order of statements that the locks allow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from random import Random
from typing import Any

import asyncpg

from stepkeep.store.postgres.store import PostgresStore

Work = Callable[[], Awaitable[Any]]
BLOCKED = "select cardinality(pg_blocking_pids($1)) > 0"
AT_GATE, MOVING, LOCKED, DONE = "at a gate", "moving", "waiting for a lock", "done"


class Side:
    """One of the two: the store it works through and where it stands."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.armed = False
        self.state = DONE
        self.pid = 0
        self.statements = 0
        self.waited = 0
        self.answer: Any = None
        self._go = asyncio.Event()
        self.changed = asyncio.Event()
        pools: tuple[Any, ...] = (store._engine, store._readers)
        for pool in pools:
            pool._connect = self._gated(pool._connect)

    def _gated(self, connect: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
        async def connected() -> Any:
            return GatedConnection(await connect(), self)

        return connected

    async def gate(self, pid: int) -> None:
        """Stop before a statement until it is this side's turn."""
        if not self.armed:
            return
        self.pid = pid
        self._go.clear()
        self._say(AT_GATE)
        await self._go.wait()
        self.statements += 1

    def go(self) -> None:
        self.state = MOVING
        self._go.set()

    def _say(self, state: str) -> None:
        self.state = state
        self.changed.set()

    async def run(self, work: Work) -> None:
        self.armed, self.state = True, MOVING
        try:
            self.answer = await work()
        except Exception as problem:  # noqa: BLE001 - what became of it is what the test looks at
            self.answer = problem
        self.armed = False
        self._say(DONE)


class GatedConnection:
    """A driver's connection that asks before every statement."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record], side: Side) -> None:
        self._connection, self._side = connection, side

    async def fetch(self, *given: Any, **more: Any) -> Any:
        await self._side.gate(self._connection.get_server_pid())
        return await self._connection.fetch(*given, **more)

    async def execute(self, *given: Any, **more: Any) -> Any:
        await self._side.gate(self._connection.get_server_pid())
        return await self._connection.execute(*given, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class Played:
    """What one schedule led to: at each turn, which of how many sides that could go on was let go."""

    def __init__(self, turns: Sequence[tuple[int, int]], sides: Sequence[Side]) -> None:
        self.turns = tuple(turns)
        self.answers = tuple(side.answer for side in sides)
        self.statements = tuple(side.statements for side in sides)
        self.waited = sum(side.waited for side in sides)

    @property
    def choices(self) -> tuple[int, ...]:
        return tuple(choice for choice, _ in self.turns)


Choose = Callable[[int, int], int]
"""Given the turn and how many sides can go on, which one does."""


async def play(
    monitor: asyncpg.Connection[asyncpg.Record], sides: Sequence[Side], works: Sequence[Work], choose: Choose
) -> Played:
    """Let both work, one statement at a time."""
    turns: list[tuple[int, int]] = []
    for side in sides:
        side.statements = side.waited = 0
    tasks = [asyncio.create_task(side.run(work)) for side, work in zip(sides, works, strict=True)]
    for side in sides:
        side.state = MOVING
    async with asyncio.timeout(30):
        while True:
            await _settle(monitor, sides)
            ready = [side for side in sides if side.state == AT_GATE]
            if not ready:
                break
            choice = choose(len(turns), len(ready)) if len(ready) > 1 else 0
            turns.append((choice, len(ready)))
            ready[choice].go()
        await asyncio.gather(*tasks)
    return Played(turns, sides)


async def _settle(monitor: asyncpg.Connection[asyncpg.Record], sides: Sequence[Side]) -> None:
    """Come back when every side stands at a gate, is done, or waits for a lock that the other holds."""
    while True:
        for side in sides:
            if side.state == LOCKED and not await monitor.fetchval(BLOCKED, side.pid) and side.state == LOCKED:
                side.state = MOVING
        moving = [side for side in sides if side.state == MOVING]
        if not moving and (any(side.state == AT_GATE for side in sides) or all(side.state == DONE for side in sides)):
            return
        if not moving:
            await asyncio.sleep(0.002)
            continue
        side = moving[0]
        side.changed.clear()
        try:
            async with asyncio.timeout(0.004):
                await side.changed.wait()
        except TimeoutError:
            if side.pid and await monitor.fetchval(BLOCKED, side.pid) and side.state == MOVING:
                side.waited += 1
                side.state = LOCKED


class Schedules:
    """Every schedule there is, or some of them by lot."""

    def __init__(self, sample: int | None, seed: int) -> None:
        self._sample, self._random = sample, Random(seed)
        self._last: tuple[tuple[int, int], ...] | None = None

    def __iter__(self) -> Iterator[Choose]:
        if self._sample is not None:
            for _ in range(self._sample):
                yield lambda turn, options: self._random.randrange(options)
            return
        prefix: tuple[int, ...] | None = ()
        while prefix is not None:
            yield _following(prefix)
            assert self._last is not None, "say what became of each schedule"
            prefix = _next(self._last)

    def became(self, played: Played) -> None:
        self._last = played.turns


def _following(prefix: tuple[int, ...]) -> Choose:
    return lambda turn, options: prefix[turn] if turn < len(prefix) else 0


def _next(turns: tuple[tuple[int, int], ...]) -> tuple[int, ...] | None:
    """The first schedule after this one, in the order of choices; None after the last."""
    for turn in range(len(turns) - 1, -1, -1):
        choice, options = turns[turn]
        if choice + 1 < options:
            return (*(chosen for chosen, _ in turns[:turn]), choice + 1)
    return None
