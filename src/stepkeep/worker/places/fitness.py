"""Whether a place can still run work: a worker claims nothing for a place that cannot, and logs why.

A place that failed is tried again after a pause, because most causes pass (no more threads, no more processes). It
knows nothing of queues; each place has one, the crew asks it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger("stepkeep.worker")

RETRY_SECONDS = 10.0


class Fitness:
    """One place's. `changed` is called, from any thread, when the answer of `is_unable` has changed."""

    def __init__(self, work: str) -> None:
        self._work = work
        self._unable_until = float("-inf")
        self.changed: Callable[[], None] = lambda: None

    @property
    def is_unable(self) -> bool:
        return time.monotonic() < self._unable_until

    def lost(self, why: str, *, seconds: float = RETRY_SECONDS) -> None:
        """It cannot run work now, and is tried again after so many seconds (infinity: once it is `regained`)."""
        was_unable, self._unable_until = self.is_unable, time.monotonic() + seconds
        if not was_unable:
            then = f"It tries again in {seconds:g} s." if seconds < float("inf") else "It goes on once this is over."
            log.error("this worker stops claiming %s: %s. %s", self._work, why, then)
            self.changed()

    def regained(self) -> None:
        """It can run work again."""
        if self.is_unable:
            self._unable_until = float("-inf")
            log.warning("this worker claims %s again", self._work)
            self.changed()
