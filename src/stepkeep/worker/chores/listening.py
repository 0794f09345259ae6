"""Calls the functions that were registered with `@on`, where handlers run: never on the worker's own loop.

An async function runs on the handlers' event loop, any other in a thread. The sink `handler` calls it for each event.
"""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol

from stepkeep.definition.python.registry import Listener, Registry
from stepkeep.kernel.errors import Conflict
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.delivery.sinks import add_sink
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.sinks.event import OutgoingEvent
from stepkeep.sinks.interface import SinkFailed
from stepkeep.worker.pools.handler_loop import HandlerLoop

THREADS = 16
PREFIX = "on:"


def sink_of(listener: Listener) -> str:
    """The name of the sink of a function with `@on`."""
    return f"{PREFIX}{listener.name}"


async def add_sinks(transactor: Transactor, registry: Registry, caller: Caller) -> int:
    """Add a sink for each function with `@on` that has none, or whose patterns changed. Returns how many."""
    listeners = [one for one in registry.listeners.values() if one.patterns]
    if not listeners:
        return 0
    known = {one.name: one for one in await transactor.store.deliveries.list_sinks(caller.tenant)}
    added = 0
    for listener in listeners:
        row = known.get(sink_of(listener))
        if row is not None and row.patterns == tuple(sorted(set(listener.patterns))):
            continue
        with suppress(Conflict):  # another worker has just added it
            await add_sink(
                transactor,
                sink_of(listener),
                "handler",
                on=listener.patterns,
                options={"handler": listener.name},
                events=listener.sources,
                replace=row is not None,
                caller=caller,
            )
            added += 1
    return added


class Calls(Protocol):
    """What the worker needs to call functions with `@on`; the simulator has another implementation."""

    def has(self, name: str) -> bool: ...
    async def call(self, name: str, event: OutgoingEvent) -> None: ...
    def close(self) -> None: ...


class ListenerCalls:
    """The functions of one worker."""

    def __init__(self, registry: Registry, home: HandlerLoop) -> None:
        self._registry, self._home = registry, home
        self._threads: ThreadPoolExecutor | None = None

    def has(self, name: str) -> bool:
        return name in self._registry.listeners

    async def call(self, name: str, event: OutgoingEvent) -> None:
        """Call a function; what it raises passes through."""
        listener = self._registry.listeners.get(name)
        if listener is None:
            raise SinkFailed(f"this worker has no function {name}")
        if inspect.iscoroutinefunction(inspect.unwrap(listener.function)):
            await self._on_the_loop(listener, event)
            return
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="stepkeep-listeners")
        await asyncio.get_running_loop().run_in_executor(self._threads, listener.function, event)

    def close(self) -> None:
        """Wait for no function: one that hangs must not hold up the end of the worker."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _on_the_loop(self, listener: Listener, event: OutgoingEvent) -> None:
        done: Future[None] = Future()
        begun: list[asyncio.Task[Any]] = []

        def begin() -> None:
            task = asyncio.get_running_loop().create_task(listener.function(event))
            begun.append(task)
            task.add_done_callback(lambda ended: _transfer(ended, done))

        self._home.call(begin)
        try:
            await asyncio.wrap_future(done)
        except asyncio.CancelledError:
            self._home.call(lambda: [task.cancel() for task in begun])
            raise


def _transfer(ended: asyncio.Task[Any], done: Future[None]) -> None:
    if not done.set_running_or_notify_cancel():
        return
    if ended.cancelled():
        done.set_exception(SinkFailed("the function was cancelled"))
    elif (problem := ended.exception()) is not None:
        done.set_exception(problem if isinstance(problem, Exception) else SinkFailed(f"it raised {problem!r}"))
    else:
        done.set_result(None)
