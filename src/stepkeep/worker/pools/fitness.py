"""Whether a pool can run handlers: a worker claims nothing for a pool that cannot, and logs why.

A pool that failed is tried again after a pause, because most causes are temporary (no more threads, no more processes).
It knows nothing of queues. Each pool has one; the runner reads it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger("stepkeep.worker")

RETRY_SECONDS = 10.0


class Fitness:
    """The state of one pool. `changed` is called, from any thread, when `is_unable` has changed."""

    def __init__(self, work: str) -> None:
        self._work = work
        self._unable_until = float("-inf")
        self.changed: Callable[[], None] = lambda: None

    @property
    def is_unable(self) -> bool:
        return time.monotonic() < self._unable_until

    def lost(self, why: str, *, seconds: float = RETRY_SECONDS) -> None:
        """The pool cannot run handlers now; it is tried again after this many seconds (infinity: when it has
        `regained`)."""
        was_unable, self._unable_until = self.is_unable, time.monotonic() + seconds
        if not was_unable:
            then = f"It tries again in {seconds:g} s." if seconds < float("inf") else "It goes on once this is over."
            log.error("this worker stops claiming %s: %s. %s", self._work, why, then)
            self.changed()

    def regained(self) -> None:
        """The pool can run handlers again."""
        if self.is_unable:
            self._unable_until = float("-inf")
            log.warning("this worker claims %s again", self._work)
            self.changed()
