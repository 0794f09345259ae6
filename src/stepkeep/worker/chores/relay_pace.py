"""Decides when a relay looks for due cursors: soon after a notification or a change of its own worker, else rarely.

A look that finds nothing makes the next one that is asked for come later. A worker without sinks so looks about once a
second at most, however busy it is. The worker loop calls it; it looks for nothing itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from stepkeep.worker.runtime import Runtime

SHORTEST = 0.02
"""Seconds between two looks while each of them finds something."""
RARELY = 5
"""While notifications arrive, looks that nothing asks for are rarer by this factor."""


class RelayPace:
    """The pause between two looks. `seconds` is the pause without notifications."""

    def __init__(self, seconds: float, runtime: Runtime, are_notified: Callable[[], bool] = lambda: False) -> None:
        self._seconds, self._runtime, self._are_notified = seconds, runtime, are_notified
        self._gap = min(SHORTEST, seconds)
        self._asked = asyncio.Event()

    def wake(self) -> None:
        """Something may be due now."""
        self._asked.set()

    def due_in(self, seconds: float) -> None:
        """A cursor of this relay will be due then."""
        asyncio.get_running_loop().call_later(seconds, self._asked.set)

    def looked(self, found: int) -> None:
        """A look found so many cursors."""
        shortest = min(SHORTEST, self._seconds)
        self._gap = shortest if found else min(self._seconds, max(self._gap, shortest) * 2)

    async def wait(self) -> None:
        """Wait until the next look: a short pause in any case, then until something asks for it."""
        longest = self._runtime.spread(self._seconds * (RARELY if self._are_notified() else 1))
        await self._runtime.sleep(min(self._gap, longest))
        await self._runtime.wait(self._asked, max(0.0, longest - self._gap))
        self._asked.clear()
