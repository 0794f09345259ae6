"""Follows the journals of whole tenants: one reader per tenant and process, and a bounded queue per listener.

Entries of a run are told in order. A listener that does not keep up is cut off; it comes back with the position of the
last event that it got. It only reads. The HTTP service has one per process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from stepkeep.kernel.errors import StoreError
from stepkeep.kernel.machine.journal import SealedEntry
from stepkeep.operations.instants import instant
from stepkeep.operations.logs.lines import PlanNames, Scribe, unfold
from stepkeep.operations.pipeline.plans import plan_for
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.notifications import within
from stepkeep.store.protocol import Notification
from stepkeep.store.records import TailEntry

PAGE = 500
MOST_QUEUED = 2_000
"""Entries that wait for one listener. One that has more is cut off."""
MOST_RUNS = 10_000
"""Runs whose last entry is remembered, so that none is told twice."""
PAUSE_SECONDS = 0.25
SHORTEST_SECONDS = 0.02
CHECKED_PAUSES = 40
"""After this many pauses without an entry, the position is compared with that of the store."""

log = logging.getLogger(__name__)

Told = dict[str, Any]


class Listener:
    """One reader of a tenant's journal."""

    def __init__(self, most_queued: int = MOST_QUEUED) -> None:
        self.queue: asyncio.Queue[Told | None] = asyncio.Queue(most_queued)
        self.is_cut = False

    def put(self, told: Told) -> None:
        """Queue an entry. A full queue is the end: None takes the place of the oldest."""
        if self.is_cut:
            return
        if self.queue.full():
            self.is_cut = True
            self.queue.get_nowait()
            self.queue.put_nowait(None)
        else:
            self.queue.put_nowait(told)


class Order:
    """The last entry of each run that was told: entries of a run are told in order and once."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, int] = OrderedDict()

    def lacks(self, found: TailEntry) -> int | None:
        """The number of the entry after which this run must be read again, because an earlier one comes later; None if
        nothing is lacking."""
        last = self._last.get(found.entry.run_id)
        if last is None:
            return found.entry.seq - 2 if found.overtakes else None
        return last if found.entry.seq > last + 1 else None

    def take(self, entry: SealedEntry) -> bool:
        """Whether this entry is new."""
        run_id = entry.run_id
        if entry.seq <= self._last.get(run_id, 0):
            return False
        self._last[run_id] = entry.seq
        self._last.move_to_end(run_id)
        while len(self._last) > MOST_RUNS:
            self._last.popitem(last=False)
        return True


class TenantTail:
    """The journal of one tenant from a position on, in order per run."""

    def __init__(self, transactor: Transactor, tenant: str, position: str) -> None:
        self._transactor, self._tenant, self.position = transactor, tenant, position
        self._order = Order()
        self._names: OrderedDict[str, Mapping[int, str]] = OrderedDict()

    async def read(self) -> list[Told]:
        """What is new; empty if nothing is."""
        told: list[Told] = []
        for found in await self._transactor.store.read_tail(self._tenant, self.position, PAGE):
            self.position = found.position
            entries: Sequence[SealedEntry] = (found.entry,)
            if (after := self._order.lacks(found)) is not None:
                # An entry before this one was written by a transaction with a later position.
                limit = found.entry.seq - after
                entries = await self._transactor.store.read_journal(self._tenant, found.entry.run_id, after, limit)
            told += [await self._line_of(found.position, entry) for entry in entries if self._order.take(entry)]
        return told

    async def check(self) -> None:
        """Go back to the end where the store has numbered its entries anew: SQLite does so when a file is vacuumed, or
        its newest entries are deleted."""
        end = await self._transactor.store.tail_position()
        if int(end.partition(".")[0]) < int(self.position.partition(".")[0]):
            self.position = end

    async def _line_of(self, position: str, entry: SealedEntry) -> Told:
        scribe = Scribe("run", entry.run_id, await self._names_of(entry.run_id))
        return {
            "position": position,
            "run_id": entry.run_id,
            "seq": entry.seq,
            "at": instant(entry.at),
            "hash": entry.hash.hex(),
            "lines": [line for move in unfold(entry) for line in scribe.lines(move)],
        }

    async def _names_of(self, run_id: str) -> Mapping[int, str]:
        known = self._names.get(run_id)
        if known is None:
            record = await self._transactor.store.read_run(self._tenant, run_id)
            known = {} if record is None else PlanNames(await plan_for(self._transactor, record.run))
            self._names[run_id] = known
            while len(self._names) > MOST_RUNS:
                self._names.popitem(last=False)
        return known


class Tailer:
    """The listeners of a process, by tenant. `of` tells with which transactor a tenant is read."""

    def __init__(self, transactor: Transactor, of: Callable[[str], Transactor] | None = None) -> None:
        self.most_queued = MOST_QUEUED
        self._of, self._store = of or (lambda tenant: transactor), transactor.store
        self._listeners: dict[str, dict[Listener, None]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._hint = asyncio.Event()
        self._unsubscribe: Callable[[], None] | None = None

    @asynccontextmanager
    async def listening(self, tenant: str) -> AsyncIterator[tuple[Listener, str]]:
        """A listener for what is committed from now on, and the position at which it begins."""
        listener = Listener(self.most_queued)
        self._listeners.setdefault(tenant, {})[listener] = None
        self._unsubscribe = self._unsubscribe or self._store.notifier.listen(self._notified)
        try:
            # The listener is there before the position is read: nothing falls between the two.
            position = await self._store.tail_position()
            if tenant not in self._tasks or self._tasks[tenant].done():
                self._tasks[tenant] = asyncio.create_task(self._follow(tenant, position))
            yield listener, position
        finally:
            mine = self._listeners[tenant]
            mine.pop(listener, None)
            if not mine and (task := self._tasks.pop(tenant, None)) is not None:
                task.cancel()

    @property
    def listeners(self) -> int:
        """How many listen now."""
        return sum(map(len, self._listeners.values()))

    async def close(self) -> None:
        """Stop reading."""
        unsubscribe, self._unsubscribe = self._unsubscribe, None
        if unsubscribe is not None:
            unsubscribe()
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _notified(self, notification: Notification) -> None:
        self._hint.set()

    async def _follow(self, tenant: str, position: str) -> None:
        tail, pauses = TenantTail(self._of(tenant), tenant, position), 0
        while True:
            self._hint.clear()
            try:
                told = await tail.read()
                pauses = 0 if told else pauses + 1
                if pauses % CHECKED_PAUSES == CHECKED_PAUSES - 1:
                    await tail.check()
            except StoreError as problem:
                log.debug("cannot read at the moment: %s", problem)
                told = []
            for one in told:
                for listener in list(self._listeners.get(tenant, ())):
                    listener.put(one)
            if len(told) < PAGE:
                await asyncio.sleep(SHORTEST_SECONDS)
                await within(PAUSE_SECONDS, self._hint)
