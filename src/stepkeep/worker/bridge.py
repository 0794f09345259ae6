"""A database connection that lives on one event loop, usable from the thread or loop on which a handler runs.

Asynchronous drivers bind a connection to its loop. From a coroutine the handler awaits each call as usual; from a
thread the call simply returns its result. Connections of synchronous drivers need none of this and pass through.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any


def bridged(connection: Any, home: asyncio.AbstractEventLoop) -> Any:
    """The connection itself, or a stand-in that makes every call on the loop it belongs to."""
    execute = getattr(connection, "execute", None)
    return Bridge(connection, home) if inspect.iscoroutinefunction(execute) else connection


class Bridge:
    """Stands in for an asynchronous object; what its methods return is brought over too where it must be."""

    def __init__(self, inner: Any, home: asyncio.AbstractEventLoop) -> None:
        self._inner, self._home = inner, home

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            result = found(*args, **kwargs)
            if inspect.isawaitable(result):
                return self._cross(result)
            return Bridge(result, self._home) if hasattr(result, "__aenter__") else result

        return call

    async def __aenter__(self) -> Any:
        entered = await self._cross(self._inner.__aenter__())
        return self if entered is self._inner else entered

    async def __aexit__(self, *raised: Any) -> Any:
        return await self._cross(self._inner.__aexit__(*raised))

    def _cross(self, awaitable: Any) -> Any:
        async def await_it() -> Any:
            return await awaitable

        future = asyncio.run_coroutine_threadsafe(await_it(), self._home)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return future.result()
        return asyncio.wrap_future(future)
