"""Follows streams that grow: one reader per tenant and process reads new rows for all who follow, in one statement.

The last rows of each followed run are kept, and every follower takes them at its own pace. One that falls behind what
is kept reads the database while it begins, and is cut off later. It only reads. Each engine has one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from stepkeep.kernel.errors import StoreError
from stepkeep.kernel.machine.states import RUN_TERMINAL
from stepkeep.operations.pipeline.readable_states import readable_states
from stepkeep.operations.streams.reading import StreamPiece, StreamReader
from stepkeep.store.change import RunKey
from stepkeep.store.notifications import within
from stepkeep.store.protocol import Notification, Store
from stepkeep.store.rows import StreamRow

MOST_KEPT_ROWS = 1_000
"""Rows of a run that are kept for followers. One that has not taken them when they go is cut off."""
PAGE = 500
PAUSE_SECONDS = 0.1
ENDS_SECONDS = 1.0
"""How often it is read whether followed runs have ended, where nothing tells."""

log = logging.getLogger(__name__)


class Followed:
    """One run whose streams are followed: its last rows, and an event for the next ones."""

    def __init__(self, seq: int) -> None:
        self.rows: deque[StreamRow] = deque(maxlen=MOST_KEPT_ROWS)
        self.seq, self.is_over, self.followers = seq, False, 0
        self._changed = asyncio.Event()

    def add(self, row: StreamRow) -> None:
        self.rows.append(row)
        self.seq = row.seq

    def wake(self) -> None:
        """Each follower waits on the same event; it is set for all of them."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def beyond(self, seq: int, seconds: float) -> bool:
        """Wait until there is a row after this one, or the run has ended; whether that came within this time."""
        if self.seq <= seq and not self.is_over:
            await within(seconds, self._changed)
        return self.seq > seq or self.is_over

    def after(self, seq: int) -> list[StreamRow] | None:
        """The rows after this one; None if some of them are kept no more."""
        if self.seq <= seq:
            return []
        if not self.rows or self.rows[0].seq > seq + 1:
            return None
        return [row for row in self.rows if row.seq > seq]


class StreamTail:
    """The runs whose streams are followed in this process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._followed: dict[RunKey, Followed] = {}
        self._polling: asyncio.Task[None] | None = None
        self._hint = asyncio.Event()
        self._unsubscribe: Callable[[], None] | None = None
        self.polls = 0
        """How many statements have read rows, for all followers."""

    @contextmanager
    def following(self, key: RunKey, seq: int) -> Iterator[Followed]:
        """Follow the streams of a run from a row on, inside the block."""
        one = self._followed.setdefault(key, Followed(seq))
        one.followers += 1
        self._hint.set()
        if self._polling is None or self._polling.done():
            self._unsubscribe = self._unsubscribe or self._store.notifier.listen(self._notified)
            self._polling = asyncio.get_running_loop().create_task(self._poll_while_followed())
        try:
            yield one
        finally:
            one.followers -= 1
            if not one.followers:
                self._followed.pop(key, None)

    @property
    def followers(self) -> int:
        """How many follow now."""
        return sum(one.followers for one in self._followed.values())

    async def close(self) -> None:
        """Stop reading."""
        unsubscribe, self._unsubscribe = self._unsubscribe, None
        if unsubscribe is not None:
            unsubscribe()
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)

    def _notified(self, notification: Notification) -> None:
        self._hint.set()

    async def _poll_while_followed(self) -> None:
        clock = asyncio.get_running_loop().time
        looked_at = 0.0
        while self._followed:
            is_told = self._hint.is_set()
            self._hint.clear()
            try:
                looks = is_told or clock() - looked_at >= ENDS_SECONDS
                # The ends are read first: a run that has ended has all its rows by then.
                ended = await self._ended() if looks else set[RunKey]()
                looked_at = clock() if looks else looked_at
                is_full = await self._poll()
            except StoreError as problem:
                log.debug("streams cannot be read at the moment: %s", problem)
                is_full, ended = False, set()
            for key in ended if not is_full else ():
                if (one := self._followed.get(key)) is not None:
                    one.is_over = True
                    one.wake()
            if not is_full:
                await within(PAUSE_SECONDS, self._hint)

    def _by_tenant(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = defaultdict(dict)
        for (tenant, run_id), one in self._followed.items():
            if not one.is_over:
                found[tenant][run_id] = one.seq
        return found

    async def _poll(self) -> bool:
        """Read new rows of all followed runs, in one statement for each tenant; whether there may be more."""
        counts: dict[RunKey, int] = defaultdict(int)
        for tenant, after in self._by_tenant().items():
            self.polls += 1
            for row in await self._store.for_tenant(tenant).streams.read_new(tenant, after, PAGE):
                counts[tenant, row.run_id] += 1
                if (one := self._followed.get((tenant, row.run_id))) is not None and row.seq == one.seq + 1:
                    one.add(row)
        for key in counts:
            if (one := self._followed.get(key)) is not None:
                one.wake()
        return PAGE in counts.values()

    async def _ended(self) -> set[RunKey]:
        found = set[RunKey]()
        for tenant, after in self._by_tenant().items():
            keys = [(tenant, run_id) for run_id in after]
            states, _ = await readable_states(self._store.for_tenant(tenant), keys)
            found |= {key for key in keys if key not in states or states[key].state in RUN_TERMINAL}
        return found


class CutOff(Exception):
    """A follower did not keep up: rows that it has not taken are kept no more. It may come back after `number`."""

    def __init__(self, number: int) -> None:
        super().__init__(f"this reader did not keep up, and is cut off after piece {number}: come back with it")
        self.number = number


async def follow(reader: StreamReader, tail: StreamTail, beat_seconds: float) -> AsyncIterator[list[StreamPiece]]:
    """The pieces of a reader until its run has ended; an empty list now and then, where nothing comes. Raises
    CutOff."""
    if not reader.has_begun:
        await reader.begin()
    while pieces := await reader.read():
        yield pieces
    while reader.has_more:
        yield await reader.read()
    with tail.following((reader.tenant, reader.run_id), reader.after) as followed:
        while reader.after < followed.seq and followed.after(reader.after) is None:
            # It began while others followed, and what was written meanwhile is read for it alone, once.
            yield await reader.read()
        while True:
            rows = followed.after(reader.after)
            if rows is None:
                raise CutOff(reader.after)
            if rows:
                yield reader.take(rows)
            elif followed.is_over:
                return
            elif not await followed.beyond(reader.after, beat_seconds):
                yield []
