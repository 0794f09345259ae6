"""Two operations on one PostgreSQL server, statement by statement, in an order that a schedule dictates.

Each side has a store of its own whose connections stop before every statement until the scheduler lets one of the two
go on. A side that waits for the other's lock is recognised by asking the server. Run again and again with schedules
that differ in the last choice that can differ, this walks every order of statements that the locks allow. Many of these
differ only in which of two statements came first that cannot notice each other; of such orders one will do.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import StrEnum
from random import Random
from typing import Any

import asyncpg

from stepkeep.store.postgres.store import PostgresStore

Work = Callable[[], Awaitable[Any]]
BLOCKED = "select cardinality(pg_blocking_pids($1)) > 0"
AT_GATE, MOVING, LOCKED, DONE = "at a gate", "moving", "waiting for a lock", "done"


class Kind(StrEnum):
    """What a statement can notice of another transaction, or let it notice."""

    OPENS = "begins a transaction: touches nothing yet"
    READS = "sees what was committed before it"
    WRITES = "takes locks, and sees what was committed before it"
    COMMITS = "shows what was written, and gives locks back"
    UNDOES = "gives locks back"


NOTICED = frozenset(
    frozenset(pair)
    for pair in (
        (Kind.READS, Kind.COMMITS),
        (Kind.WRITES, Kind.WRITES),
        (Kind.WRITES, Kind.COMMITS),
        (Kind.WRITES, Kind.UNDOES),
        (Kind.COMMITS, Kind.COMMITS),
    )
)
"""Which kinds notice each other when transactions see only what is committed, statement by statement."""


def kind_of(statement: str) -> Kind:
    """Judged by its words, and on the safe side: whatever speaks of a change is taken for one."""
    words = re.findall("[a-z]+", statement.lower())
    first = {"begin": Kind.OPENS, "commit": Kind.COMMITS, "rollback": Kind.UNDOES}.get(words[0])
    if first is not None:
        return first
    return Kind.WRITES if {"insert", "update", "delete", "share", "lock"} & set(words) else Kind.READS


def commute(one: str, other: str) -> bool:
    """Whether two statements of different transactions may change places without anybody noticing."""
    return frozenset((kind_of(one), kind_of(other))) not in NOTICED


class Side:
    """One of the two: the store it works through and where it stands."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.armed = False
        self.state = DONE
        self.pid = 0
        self.statement = ""
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

    async def gate(self, pid: int, statement: str) -> None:
        """Stop before a statement until it is this side's turn."""
        if not self.armed:
            return
        self.pid, self.statement = pid, statement
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

    async def fetch(self, statement: str, *given: Any, **more: Any) -> Any:
        await self._side.gate(self._connection.get_server_pid(), statement)
        return await self._connection.fetch(statement, *given, **more)

    async def execute(self, statement: str, *given: Any, **more: Any) -> Any:
        await self._side.gate(self._connection.get_server_pid(), statement)
        return await self._connection.execute(statement, *given, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class Played:
    """What one schedule led to: at each turn, which of how many sides that could go on was let go.

    `again` says that the order turned out to be the same as an earlier one for all that anybody can notice.
    """

    def __init__(self, turns: Sequence[tuple[int, int]], sides: Sequence[Side], *, again: bool) -> None:
        self.turns = tuple(turns)
        self.again = again
        self.answers = tuple(side.answer for side in sides)
        self.statements = tuple(side.statements for side in sides)
        self.waited = sum(side.waited for side in sides)

    @property
    def choices(self) -> tuple[int, ...]:
        return tuple(choice for choice, _ in self.turns)


Choose = Callable[[int, int], int]
"""Given the turn and how many sides can go on, which one does."""


async def play(
    monitor: asyncpg.Connection[asyncpg.Record],
    sides: Sequence[Side],
    works: Sequence[Work],
    choose: Choose,
    *,
    distinct: bool = False,
) -> Played:
    """Let both work, one statement at a time.

    With `distinct`, the first side goes first wherever that makes no difference: once it was passed over, it sleeps
    until the other has made a statement that it can notice. Of the orders that are the same, one is left (these are
    sleep sets, for two).
    """
    turns: list[tuple[int, int]] = []
    asleep = again = False
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
            awake = [side for side in ready if not (asleep and side is sides[0])]
            # Nobody is left to wake it: whatever comes now came before.
            again = again or not awake
            open_to = ready[:1] if again else awake
            choice = choose(len(turns), len(open_to)) if len(open_to) > 1 else 0
            turns.append((choice, len(open_to)))
            going = open_to[choice]
            passed_over = distinct and going is not sides[0] and sides[0].state == AT_GATE
            asleep = passed_over and commute(sides[0].statement, going.statement)
            going.go()
        await asyncio.gather(*tasks)
    return Played(turns, sides, again=again)


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
