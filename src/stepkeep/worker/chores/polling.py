"""Decides when to poll for work, and from which ready time on: often under load, rarely when idle.

An empty result never proves that there is no work, because rows may have been locked. It only delays the next poll. The
worker loop calls this module and acts.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable

from stepkeep.worker.runtime import Runtime
from stepkeep.worker.settings import Settings

MARGIN = 5_000_000
"""How far a mark stays behind (microseconds): rows with an earlier time may be committed later."""


CALM = 8
"""Factor for the pause while notifications arrive as soon as there is work."""

GRAIN = 0.02
"""Resolution (seconds) of the worker's own timers."""


class Pace:
    """The pause before the next poll: it doubles while nothing is found and is reset when something is.

    While notifications arrive, polls only find work whose notification was lost, and may be rare.
    """

    def __init__(self, settings: Settings, runtime: Runtime, are_notified: Callable[[], bool] = lambda: False) -> None:
        self._settings, self._runtime, self._are_notified = settings, runtime, are_notified
        self._pause = settings.busy_poll_seconds

    def found(self, count: int, asked: int, *, was_called: bool = False) -> None:
        """A poll found `count` of the `asked` steps. If a notification had triggered it, the next one will too. Work
        found without a notification shows that notifications are being coalesced, as they are under load."""
        if count:
            often = self._settings.busy_poll_seconds * (CALM if was_called and self._are_notified() else 1)
            self._pause = often if count < asked else 0.0
        else:
            longest = self._settings.rare_poll_seconds if self._are_notified() else self._settings.idle_poll_seconds
            self._pause = min(longest, max(self._pause, self._settings.busy_poll_seconds) * 2)

    @property
    def found_all(self) -> bool:
        """Whether the last poll found as much as it asked for, so that there is probably more."""
        return self._pause == 0.0

    def woken(self) -> None:
        self._pause = self._settings.busy_poll_seconds

    def rest(self) -> None:
        """No work is expected without a notification: poll as when idle."""
        self._pause = max(self._pause, self._settings.idle_poll_seconds)

    @property
    def seconds(self) -> float:
        return self._runtime.spread(self._pause) if self._pause else 0.0


class QueuePoller:
    """Polls for one kind of work: how often, from which ready time, and what triggers it sooner.

    `awake`: a notification arrived; `in_doubt`: it named no queue. `slot_freed`: a slot may have become free.
    """

    def __init__(self, settings: Settings, runtime: Runtime, are_notified: Callable[[], bool] = lambda: False) -> None:
        self.pace, self.mark = Pace(settings, runtime, are_notified), ReadyWatermark(settings, runtime)
        self.awake, self.slot_freed = asyncio.Event(), asyncio.Event()
        self.in_doubt = False

    def begin(self) -> bool:
        """Start a poll. Returns whether a notification triggered it."""
        summoned = self.awake.is_set()
        self.awake.clear()
        self.slot_freed.clear()
        return summoned


class LocalTimers:
    """Timers that this worker itself has set, so that a short backoff does not wait for the next regular sweep.

    Times are rounded up to `GRAIN`, so that a thousand retries need as many wake-ups as a few.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._times: list[int] = []
        self._set = asyncio.Event()

    def set_in(self, seconds: float) -> None:
        at = math.ceil((self._runtime.monotonic() + seconds) / GRAIN)
        if at not in self._times[:1]:
            heapq.heappush(self._times, at)
            self._set.set()

    async def sleep(self, seconds: float) -> float:
        """Sleep this long, or until the next timer. Returns how late it is."""
        end = self._runtime.monotonic() + seconds
        while (left := self._next(end) - self._runtime.monotonic()) > 0:
            self._set.clear()
            await self._runtime.wait(self._set, left)
        now = self._runtime.monotonic()
        late = now - self._next(end)
        while self._times and self._times[0] * GRAIN <= now:
            heapq.heappop(self._times)
        return late

    def _next(self, end: float) -> float:
        return min(end, self._times[0] * GRAIN) if self._times else end


class ReadyWatermark:
    """A low-water mark on `ready_at`: everything below it was claimed, and its dead rows are slow to scan.

    Only a poll that found less than it asked for proves that nothing older is left. A full poll now and then finds rows
    that a lock had hidden.
    """

    def __init__(self, settings: Settings, runtime: Runtime) -> None:
        self._settings, self._runtime = settings, runtime
        self._mark: int | None = None
        self._full_at = float("-inf")

    def after(self) -> int | None:
        now = self._runtime.monotonic()
        if self._mark is None or now - self._full_at >= self._settings.full_scan_seconds:
            self._full_at = now
            return None
        return self._mark

    def looked(self, count: int, asked: int, claimed_at: int | None) -> None:
        if claimed_at is not None and count < asked:
            self._mark = claimed_at - MARGIN
