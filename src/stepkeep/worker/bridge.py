"""Makes a database connection of one event loop usable from the thread or loop of a handler.

Asynchronous drivers bind a connection to its loop. A coroutine awaits each call as usual; in a thread the call returns
its result. Connections of synchronous drivers pass through unchanged. A bridge ends with its attempt, because the
connection then serves another run.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from typing import Any

from stepkeep.kernel.errors import StoreUnavailable
from stepkeep.worker.forks import end_copy


def bridged(connection: Any, home: asyncio.AbstractEventLoop) -> Any:
    """The connection itself, or a proxy that makes every call on the loop it belongs to."""
    execute = getattr(connection, "execute", None)
    return Bridge(connection, home) if inspect.iscoroutinefunction(execute) else connection


class Life:
    """Whether the attempt that borrowed a connection is still running; shared by all objects that came from it."""

    is_over = False

    def check(self) -> None:
        if self.is_over:
            raise StoreUnavailable("the attempt of this connection has ended; use `ctx.connection` only while it runs")


class Bridge:
    """Proxy for an asynchronous object. Objects that its methods return are wrapped too, where needed."""

    def __init__(self, inner: Any, home: asyncio.AbstractEventLoop, life: Life | None = None) -> None:
        self._inner, self._home, self._life = inner, home, life or Life()
        self._pid = os.getpid()

    def end(self) -> None:
        """Refuse every call from now on. Called on the connection's loop."""
        self._life.is_over = True

    def __getattr__(self, name: str) -> Any:
        self._life.check()
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            result = found(*args, **kwargs)
            if inspect.isawaitable(result):
                return self._cross(result)
            return Bridge(result, self._home, self._life) if hasattr(result, "__aenter__") else result

        return call

    async def __aenter__(self) -> Any:
        entered = await self._cross(self._inner.__aenter__())
        return self if entered is self._inner else entered

    async def __aexit__(self, *raised: Any) -> Any:
        return await self._cross(self._inner.__aexit__(*raised))

    def _cross(self, awaitable: Any) -> Any:
        # In a forked copy of the worker that loop does not run: the call would never return.
        end_copy(self._pid)

        async def await_it() -> Any:
            try:
                self._life.check()
            except BaseException:
                if inspect.iscoroutine(awaitable):
                    awaitable.close()
                raise
            return await awaitable

        future = asyncio.run_coroutine_threadsafe(await_it(), self._home)
        # Not in an `except` block: the driver's error would seem to come from "no running event loop".
        return asyncio.wrap_future(future) if runs_a_loop() else future.result()


def runs_a_loop() -> bool:
    """Whether this thread runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
