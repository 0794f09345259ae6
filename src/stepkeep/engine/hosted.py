"""Workers that run inside a host program: started by an engine, stopped by their handle or with the engine.

`AsyncHostedWorker` lives on the loop of its worker. `HostedWorker` is its face for other threads and has no logic of
its own. Neither decides what a worker does. The engines create them.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext, suppress
from contextvars import Context
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias, TypedDict, TypeVar

from stepkeep.edges.safe_text import exception_text
from stepkeep.engine.loop_thread import LoopThread
from stepkeep.kernel.errors import StoreUnavailable
from stepkeep.operations.pipeline.start import StartedHere

if TYPE_CHECKING:
    from stepkeep.worker.loop import Worker
    from stepkeep.worker.pools.handler_loop import Lifespan
    from stepkeep.worker.utilisation import Vitals

log = logging.getLogger("stepkeep.worker")


class WorkerOptions(TypedDict, total=False):
    """The options of a worker in a host program; docs/workers.md describes them."""

    concurrency: int
    threads: int
    app: str
    queues: Iterable[str] | None
    capabilities: Iterable[str]
    lifespan: Lifespan | None


class AsyncHostedWorker:
    """A worker that runs as a task of its engine's loop. `beside` is entered while it serves."""

    def __init__(self, worker: Worker, beside: AbstractAsyncContextManager[None] | None = None) -> None:
        self._worker = worker
        self._beside = beside or nullcontext()
        self.task = asyncio.get_running_loop().create_task(self._serve(), name="stepkeep worker")
        self.task.add_done_callback(_tell_end)

    async def _serve(self) -> None:
        async with self._beside:
            await self._worker.serve()

    async def begin(self) -> None:
        """Wait until the worker has registered. An error that prevents it is raised here."""
        joined = asyncio.ensure_future(self._worker.joined.wait())
        try:
            await asyncio.wait({joined, self.task}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.task.cancel()
            raise
        finally:
            joined.cancel()
        if self.task.done():
            self.task.result()

    @property
    def id(self) -> str | None:
        """Its name in the database."""
        return self._worker.id

    @property
    def is_running(self) -> bool:
        """Whether it works; False once it has drained, or after an error that ended it."""
        return not self.task.done()

    async def stop(self, grace: float | None = None) -> None:
        """Claim nothing more, let handlers finish within `grace` seconds, hand back the rest, and end."""
        self._worker.stop(grace)
        await self.wait()

    async def wait(self) -> None:
        """Wait until the worker has ended; an error that ended it is raised here."""
        await asyncio.shield(self.task)

    def ask_to_stop(self, grace: float | None = None) -> None:
        """The same as `stop`, without waiting."""
        self._worker.stop(grace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(None if kind is None else 0)


def vitals_of(hosted: Iterable[AsyncHostedWorker]) -> list[Vitals]:
    """How these workers are, as far as they run. Call it on their loop."""
    return [one._worker.vitals() for one in hosted if one.is_running]


class HostedWorker:
    """A worker that runs in the thread of its engine: `stop` drains and ends it.

    >>> with engine.start_worker(concurrency=8) as worker:
    ...     run = engine.start(hello, {"name": "Ada"})
    ...     print(engine.wait(run.run_id).output)
    Hello, Ada
    >>> worker.is_running
    False
    """

    def __init__(self, hosted: AsyncHostedWorker, thread: LoopThread) -> None:
        self._hosted, self._thread = hosted, thread

    @property
    def id(self) -> str | None:
        """Its name in the database."""
        return self._hosted.id

    @property
    def is_running(self) -> bool:
        """Whether it works; False once it has drained, or after an error that ended it."""
        return self._hosted.is_running

    def stop(self, grace: float | None = None) -> None:
        """Claim nothing more, let handlers finish within `grace` seconds, hand back the rest, and end."""
        if self._hosted.is_running:
            self._thread.call(self._hosted.stop(grace))

    def wait(self) -> None:
        """Wait until the worker has ended; an error that ended it is raised here."""
        self._thread.call(self._hosted.wait())

    def ask_to_stop(self, grace: float | None = None) -> None:
        """The same as `stop`, without waiting.

        Signal handlers may call it.
        """
        self._thread.call_soon(lambda: self._hosted.ask_to_stop(grace))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(None if kind is None else 0)


def _tell_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (problem := task.exception()) is not None:
        log.error("the worker in this program has ended: %s", exception_text(problem))


class StopSignals:
    """Lets SIGTERM and SIGINT stop a worker: the first one gently, the second at once.

    A handler of a step may already run before the worker is known here. A SIGTERM of that time is kept for the worker;
    SIGINT and a second signal interrupt the start.
    """

    def __init__(self) -> None:
        self._asked = 0
        self._worker: HostedWorker | None = None

    def __enter__(self) -> StopSignals:
        self._before = {which: signal.signal(which, self._arrived) for which in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *problem: object) -> None:
        for which, handler in self._before.items():
            signal.signal(which, handler)

    def stop(self, worker: HostedWorker) -> None:
        """From now on signals stop this worker, and one that has arrived does so at once."""
        self._worker = worker
        if self._asked:
            self._ask_to_stop(worker)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        self._asked += 1
        if self._worker is not None:
            self._ask_to_stop(self._worker)
        elif number == signal.SIGINT or self._asked > 1:
            raise KeyboardInterrupt

    def _ask_to_stop(self, worker: HostedWorker) -> None:
        worker.ask_to_stop(None if self._asked == 1 else 0.0)


T = TypeVar("T")

Begin: TypeAlias = "Callable[[Worker], Awaitable[StartedHere]]"
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
