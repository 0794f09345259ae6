"""Conversations of an engine or a client, for code that runs on any event loop or on none.

It lays nothing out in them: savers and sessions of the adapters do. It knows no framework.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from stepkeep.kernel.errors import InvalidInput
from stepkeep.operations.conversations import Item

T = TypeVar("T")


class Conversing:
    """The conversations of `engine`: a `stepkeep.Engine`, an `AsyncEngine`, or a client of either form.

    One with an event loop is used on the loop that runs where this is made.
    """

    def __init__(self, engine: Any) -> None:
        self._group = engine.conversations
        self._home = asyncio.get_running_loop() if inspect.iscoroutinefunction(self._group.read) else None

    async def ask(self, method: str, *args: Any, **options: Any) -> Any:
        """Call an operation. Without an event loop of its own the call blocks: `run` and `wait` see to that."""
        answer = getattr(self._group, method)(*args, **options)
        return answer if self._home is None else await answer

    async def items(self, conversation: str, **options: Any) -> AsyncIterator[Item]:
        """All items that `read` finds, page by page."""
        while True:
            page = await self.ask("read", conversation, **options)
            for one in page.contents:
                yield one
            if not page.more:
                return
            options["past"] = {"key": page.contents[-1].key, "ordinal": page.contents[-1].ordinal}

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this work for a caller that has an event loop."""
        if self._home is None:
            return await asyncio.to_thread(_finish, work)
        if asyncio.get_running_loop() is self._home:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._home))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this work for a caller that has none."""
        if self._home is None:
            return _finish(work)
        try:
            is_here = asyncio.get_running_loop() is self._home
        except RuntimeError:
            is_here = False
        if is_here:
            work.close()
            raise InvalidInput("this blocks the event loop of the engine: await the method whose name begins with `a`.")
        return asyncio.run_coroutine_threadsafe(work, self._home).result()


def _finish(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    raise AssertionError("a blocking call has waited")
