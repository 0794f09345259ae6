"""Lets callers that ask for the same thing at the same time share one read.

It keeps nothing: what was read is answered to those who waited for it. A caller that reads alone pays nothing for it.
Checks of keys, quotas of tenants and plans of starts go through it, because a service gets many of them at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Abandoned(Exception):
    """The caller that read has given up."""


class SharedReads(Generic[K, V]):
    """Reads by key: at most one of a key is under way in one event loop."""

    def __init__(self, read: Callable[[K], Awaitable[V]]) -> None:
        self._read = read
        self._under_way: dict[K, asyncio.Future[V]] = {}

    async def current(self, key: K) -> V:
        """What the read that is under way finds, or else a new one."""
        while (shared := self._find(key)) is not None:
            try:
                return await asyncio.shield(shared)
            except _Abandoned:
                continue
        return await self._lead(key)

    async def new(self, key: K) -> V:
        """What a read finds that begins after this call: whatever was committed before it is seen."""
        if (earlier := self._find(key)) is not None:
            await asyncio.wait([earlier])
        return await self.current(key)

    def _find(self, key: K) -> asyncio.Future[V] | None:
        found = self._under_way.get(key)
        # A program may use its engine in another event loop, which knows nothing of a read that was broken off here.
        return found if found is not None and found.get_loop() is asyncio.get_running_loop() else None

    async def _lead(self, key: K) -> V:
        shared: asyncio.Future[V] = asyncio.get_running_loop().create_future()
        self._under_way[key] = shared
        try:
            value = await self._read(key)
        except BaseException as problem:
            shared.set_exception(problem if isinstance(problem, Exception) else _Abandoned())
            shared.exception()  # looked at, so that nothing is logged where nobody shares it
            raise
        else:
            shared.set_result(value)
            return value
        finally:
            if self._under_way.get(key) is shared:
                del self._under_way[key]
