"""Logs each outage of the database once: when it begins, and when it is over.

Every task of the worker meets the same outage. Each backs off on its own; only the first one logs it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from stepkeep.kernel.errors import DatabaseGone
from stepkeep.worker.runtime import Runtime

log = logging.getLogger("stepkeep.worker")

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


class Outage:
    """Whether the database answers, as far as this worker knows."""

    def __init__(self, runtime: Runtime, of: str = "the database") -> None:
        self._runtime, self._of = runtime, of
        self._since: float | None = None
        self.gone: DatabaseGone | None = None
        self.give_up: Callable[[], object] = lambda: None
        """Called when the database is gone for good: no retry can help."""

    @property
    def lasts(self) -> bool:
        return self._since is not None

    def met(self, problem: Exception) -> None:
        if isinstance(problem, DatabaseGone):
            if self.gone is None:
                self.gone = problem
                log.error("the worker ends: %s", problem)
                self.give_up()
        elif self._since is None:
            self._since = self._runtime.monotonic()
            log.warning("%s does not answer; trying again until it does: %s", self._of, problem)

    def over(self) -> None:
        if self._since is not None:
            log.info("%s answers again after %.1f s", self._of, self._runtime.monotonic() - self._since)
            self._since = None

    async def pause(self, tries: int) -> None:
        """Wait longer each time, with jitter, so that workers do not retry in step."""
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(tries, 10))
        await self._runtime.sleep(longest * (0.5 + 0.5 * self._runtime.chance()))
