"""When to look for work, and from where: often under load, rarely when idle, and not over the same ground each time.

An empty answer never means that there is no work (rows may have been locked), so it only makes the next look later.
The loop asks it and acts.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable

from stepkeep.worker.seams import Seams
from stepkeep.worker.settings import Settings

MARGIN = 5_000_000
"""How far a mark stays behind (microseconds): rows stamped earlier may be committed later."""


CALM = 8
"""How many times longer the pause is where hints seem to come as soon as there is something to hint at."""

GRAIN = 0.02
"""How finely own timers ring (seconds)."""


class Pace:
    """The pause before the next look: it doubles while nothing is found and starts over when something is.

    Where hints are heard, looking is only for those that got lost, and may be rare.
    """

    def __init__(self, settings: Settings, seams: Seams, are_hints_heard: Callable[[], bool] = lambda: False) -> None:
        self._settings, self._seams, self._are_hints_heard = settings, seams, are_hints_heard
        self._pause = settings.busy_poll

    def found(self, count: int, asked: int, *, was_called: bool = False) -> None:
        """A look found so much of what it asked for. If a hint had called for it, the next will do so too; what was
        found without one shows that hints are held back, as they are while there are many."""
        if count:
            often = self._settings.busy_poll * (CALM if was_called and self._are_hints_heard() else 1)
            self._pause = often if count < asked else 0.0
        else:
            longest = self._settings.rare_poll if self._are_hints_heard() else self._settings.idle_poll
            self._pause = min(longest, max(self._pause, self._settings.busy_poll) * 2)

    @property
    def found_all(self) -> bool:
        """Whether the last look found as much as it asked for, so that there is probably more."""
        return self._pause == 0.0

    def woken(self) -> None:
        self._pause = self._settings.busy_poll

    @property
    def seconds(self) -> float:
        return self._seams.spread(self._pause) if self._pause else 0.0


class Lookout:
    """Who looks for one kind of work: how often, from where, and what makes it look sooner.

    `awake`: somebody speaks of work; `in_doubt`: without saying in which queue. `has_room`: a place may have come free.
    """

    def __init__(self, settings: Settings, seams: Seams, are_hints_heard: Callable[[], bool] = lambda: False) -> None:
        self.pace, self.mark = Pace(settings, seams, are_hints_heard), LowWater(settings, seams)
        self.awake, self.has_room = asyncio.Event(), asyncio.Event()
        self.in_doubt = False

    def begin(self) -> bool:
        """Start a look; says whether somebody asked for it."""
        summoned = self.awake.is_set()
        self.awake.clear()
        self.has_room.clear()
        return summoned


class Alarm:
    """Timers that this worker itself has set: a short pause should not have to wait for the next regular sweep.

    Times are rounded up to a grain, so that a thousand retries ring as often as a few.
    """

    def __init__(self, seams: Seams) -> None:
        self._seams = seams
        self._times: list[int] = []
        self._set = asyncio.Event()

    def ring_in(self, seconds: float) -> None:
        at = math.ceil((self._seams.monotonic() + seconds) / GRAIN)
        if at not in self._times[:1]:
            heapq.heappush(self._times, at)
            self._set.set()

    async def sleep(self, seconds: float) -> float:
        """Sleep so long, or until the alarm; returns how much later than that it is."""
        end = self._seams.monotonic() + seconds
        while (left := self._next(end) - self._seams.monotonic()) > 0:
            self._set.clear()
            await self._seams.wait(self._set, left)
        now = self._seams.monotonic()
        late = now - self._next(end)
        while self._times and self._times[0] * GRAIN <= now:
            heapq.heappop(self._times)
        return late

    def _next(self, end: float) -> float:
        return min(end, self._times[0] * GRAIN) if self._times else end


class LowWater:
    """A mark on `ready_at` below which everything was claimed: what lies under it is dead and slow to walk over.

    Only a look that found less than it asked for proves that nothing older is left; a full look now and then picks up
    what a lock had hidden.
    """

    def __init__(self, settings: Settings, seams: Seams) -> None:
        self._settings, self._seams = settings, seams
        self._mark: int | None = None
        self._full_at = float("-inf")

    def after(self) -> int | None:
        now = self._seams.monotonic()
        if self._mark is None or now - self._full_at >= self._settings.full_scan:
            self._full_at = now
            return None
        return self._mark

    def looked(self, count: int, asked: int, claimed_at: int | None) -> None:
        if claimed_at is not None and count < asked:
            self._mark = claimed_at - MARGIN
