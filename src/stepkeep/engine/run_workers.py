"""Workers for the runs that an engine executes itself: each executes one run at a time and rests between two.

`engine.run` needs a registered worker with its pools and its watch on notifications. To open and close one costs more
than a short run, so a worker that has nothing left to do rests for the next run. One that still holds an attempt, or
cannot serve a step, is stopped instead. The engine owns these workers and stops them when it is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from contextvars import Context
from typing import Any, NamedTuple, TypeAlias, TypeVar

from stepkeep.engine.hosted import AsyncHostedWorker
from stepkeep.kernel.errors import StoreUnavailable
from stepkeep.operations.start import StartedHere
from stepkeep.worker.loop import Worker

T = TypeVar("T")

Begin: TypeAlias = Callable[[Worker], Awaitable[StartedHere]]
"""Starts or names the run that a worker is to execute."""
Expecting: TypeAlias = Callable[[StartedHere], AbstractContextManager[asyncio.Future[T]]]
"""A block in which a future is answered once the run has settled."""

MOST_RESTING = 4
"""How many workers rest at most. Concurrent runs have a worker each; only so many stay after them."""


class Ability(NamedTuple):
    """What a run asks of its worker."""

    concurrency: int
    capabilities: tuple[str, ...]


class RunWorkers:
    """The workers of one engine for its own runs. `make` makes one; `handlers` is a number that
    changes with the registered handlers, because a worker knows those of its beginning."""

    def __init__(self, make: Callable[[Ability], Worker], handlers: Callable[[], int]) -> None:
        self._make, self._handlers = make, handlers
        self.all: set[_RunWorker] = set()
        """Those that run a run, and those that rest."""
        self._resting: list[_RunWorker] = []

    async def execute(self, begin: Begin, expecting: Expecting[T], able: Ability) -> tuple[str, T]:
        """Execute the run that `begin` names until the future of `expecting` is answered; returns both."""
        mine = await self._take(able)
        try:
            begun = await begin(mine.worker)
        except Exception:
            # The run was refused before the worker was engaged.
            await self._rest(mine)
            raise
        except BaseException:
            await self._stop(mine, 0.0)
            raise
        try:
            with expecting(begun) as answer:
                await mine.worker.engage(begun)
                ends: set[asyncio.Future[Any]] = {answer, mine.task}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if not answer.done():
                    mine.task.result()
                    raise StoreUnavailable("the engine was closed during a run")
                result = answer.result()
            await self._rest(mine)
        except BaseException:
            # The caller does not wait, but the claims must not wait for their leases to expire.
            await self._stop(mine, 0.0)
            raise
        return begun.started.run_id, result

    async def close(self, grace: float | None = None) -> None:
        """Stop all of them."""
        await asyncio.gather(*(self._stop(one, grace) for one in tuple(self.all)))

    async def _take(self, able: Ability) -> _RunWorker:
        version = self._handlers()
        for one in tuple(self._resting):
            if one.version != version or not one.is_here:
                await self._stop(one, None)
        for one in self._resting:
            if one.able == able:
                self._resting.remove(one)
                return one
        # In a context of its own: it outlives the caller.
        made = asyncio.get_running_loop().create_task(self._begin(able, version), context=Context())
        try:
            return await asyncio.shield(made)
        except asyncio.CancelledError:
            made.cancel()
            raise

    async def _begin(self, able: Ability, version: int) -> _RunWorker:
        one = _RunWorker(self._make(able), able, version)
        self.all.add(one)
        try:
            await one.begin()
        except BaseException:
            self.all.discard(one)
            raise
        return one

    async def _rest(self, one: _RunWorker) -> None:
        """Keep a worker for the next run, if it can serve one and not too many rest already."""
        if await one.worker.rest() and len(self._resting) < MOST_RESTING:
            self._resting.append(one)
        else:
            await self._stop(one, None)

    async def _stop(self, one: _RunWorker, grace: float | None) -> None:
        with suppress(ValueError):
            self._resting.remove(one)
        if one.is_here:
            one.ask_to_stop(grace)
            # An error that ended it has been logged.
            await asyncio.wait({one.task})
        self.all.discard(one)


class _RunWorker(AsyncHostedWorker):
    """A worker and what it can be used for again."""

    def __init__(self, worker: Worker, able: Ability, version: int) -> None:
        super().__init__(worker)
        self.worker, self.able, self.version = worker, able, version

    @property
    def is_here(self) -> bool:
        """Whether it runs on this loop: it may have ended by itself, or with a loop that the program used before."""
        return self.is_running and self.task.get_loop() is asyncio.get_running_loop()
