"""Tells readers of journals when a run has new entries: one poll per tenant for all readers of a process.

A poll reads the number of the last entry of every watched run in one statement. Notifications make it come earlier;
nothing depends on them. It reads no journal itself. The HTTP service has one per process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stepkeep.kernel.errors import StoreError
from stepkeep.operations.pipeline.readable_states import readable_states
from stepkeep.store.change import RunKey
from stepkeep.store.notifications import within
from stepkeep.store.protocol import Notification, Store

PAUSE_SECONDS = 0.25
"""Between two polls; a notification ends the pause."""
SHORTEST_SECONDS = 0.02
"""After a notification, so that many of them are one poll."""

log = logging.getLogger(__name__)


class Watched:
    """One run that is watched: the number of its last known entry, and an event for the next one."""

    def __init__(self) -> None:
        self.seq, self.is_gone, self.readers = 0, False, 0
        self._changed = asyncio.Event()

    async def beyond(self, seq: int, seconds: float) -> bool:
        """Wait until the run has an entry after this one, or is gone; whether that came within this time."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        while not self.is_gone and self.seq <= seq:
            if not await within(ends - loop.time(), self._changed):
                return False
        return True

    def report_last(self, seq: int | None) -> None:
        """Note the last entry of the run; None if there is no such run any more."""
        if seq is None:
            self.is_gone = True
        elif seq <= self.seq:
            return
        else:
            self.seq = seq
        # Each reader waits on the same event; it is set for all of them.
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class JournalWatch:
    """All watched runs of a process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watched: dict[RunKey, Watched] = {}
        self._polling: asyncio.Task[None] | None = None
        self._hint = asyncio.Event()
        self._unsubscribe: Callable[[], None] | None = None

    @contextmanager
    def watching(self, tenant: str, run_id: str) -> Iterator[Watched]:
        """Watch a run inside the block."""
        key = (tenant, run_id)
        one = self._watched.setdefault(key, Watched())
        one.readers += 1
        self._hint.set()
        if self._polling is None or self._polling.done():
            self._unsubscribe = self._unsubscribe or self._store.notifier.listen(self._notified)
            self._polling = asyncio.get_running_loop().create_task(self._poll_while_watched())
        try:
            yield one
        finally:
            one.readers -= 1
            if not one.readers:
                self._watched.pop(key, None)

    @property
    def readers(self) -> int:
        """How many readers watch now."""
        return sum(one.readers for one in self._watched.values())

    async def close(self) -> None:
        """Stop polling."""
        unsubscribe, self._unsubscribe = self._unsubscribe, None
        if unsubscribe is not None:
            unsubscribe()
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)

    def _notified(self, notification: Notification) -> None:
        self._hint.set()

    async def _poll_while_watched(self) -> None:
        while self._watched:
            self._hint.clear()
            try:
                await self._poll()
            except StoreError as problem:
                log.debug("cannot poll at the moment: %s", problem)
            await asyncio.sleep(SHORTEST_SECONDS)
            await within(PAUSE_SECONDS, self._hint)

    async def _poll(self) -> None:
        by_tenant: dict[str, list[RunKey]] = defaultdict(list)
        for key in self._watched:
            by_tenant[key[0]].append(key)
        for tenant, keys in by_tenant.items():
            found, unreadable = await readable_states(self._store.for_tenant(tenant), keys)
            damaged = {(problem.tenant, problem.run_id) for problem in unreadable}
            for key in keys:
                if key not in damaged and (one := self._watched.get(key)) is not None:
                    one.report_last(found[key].seq if key in found else None)
