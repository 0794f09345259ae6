"""Lets callers that ask for the same thing at the same time share one read.

`SharedReads` keeps nothing: what was read is answered to those who waited for it. `RecentReads` keeps each value for a
while. A caller that reads alone pays nothing for either. Checks of keys, quotas of tenants, plans of starts and the
settings that every start asks for go through them, because many callers want the same at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from stepkeep.store.protocol import Store

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
            shared.exception()  # looked at, so that nothing is logged where no caller shares it
            raise
        else:
            shared.set_result(value)
            return value
        finally:
            if self._under_way.get(key) is shared:
                del self._under_way[key]


class RecentReads(Generic[V]):
    """Values of tenants as this process knows them: read at most `fresh_seconds` ago, once for all callers."""

    def __init__(
        self,
        read: Callable[[Store, str], Awaitable[V]],
        fresh_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._fresh_seconds, self._monotonic = read, fresh_seconds, monotonic
        self._known: dict[str, tuple[float, V]] = {}
        self._reads = self._no_reads()

    def _no_reads(self) -> SharedReads[tuple[Store, str], V]:
        return SharedReads(self._refresh)

    def forget(self, tenant: str) -> None:
        """Read again at the next question: this process has changed something."""
        self._known.pop(tenant, None)
        # A read that is under way may not have seen the change: it is shared no more, and its value is not kept.
        self._reads = self._no_reads()

    async def read(self, store: Store, tenant: str) -> V:
        """The value of this tenant, from this store unless it is known."""
        known = self._known.get(tenant)
        if known is not None and self._monotonic() - known[0] < self._fresh_seconds:
            return known[1]
        return await self._reads.current((store, tenant))

    async def _refresh(self, key: tuple[Store, str]) -> V:
        began, reads = self._monotonic(), self._reads
        value = await self._read(*key)
        if reads is self._reads:
            self._known[key[1]] = (began, value)
        return value
