"""How much the service takes on: a bound on the requests under way, and what it knows of a database that cannot write.

A request beyond the bound is refused at once with 503 and `Retry-After`, before its key is read, so that the others
end in time. Streams and health checks are not counted. `envelope` asks it for each request, `health` for readiness.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from stepkeep.api.measures import HttpMeasures
from stepkeep.api.problems import OVERLOADED, ApiError

MOST_REQUESTS: Final = 1_000
"""Requests under way in one process. Each holds at most one body of 4 MB."""
MOST_STREAMS: Final = 5_000
TROUBLE_SECONDS: Final = 10.0
"""For how long a process is not ready after a write that the database refused, unless a later one succeeds."""

ALWAYS: Final = frozenset({"/healthz", "/readyz", "/metrics", "/version"})
WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Load:
    """The load of one process."""

    def __init__(self, streams: Callable[[], int], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._streams, self._monotonic = streams, monotonic
        self.most_requests, self.most_streams = MOST_REQUESTS, MOST_STREAMS
        self._refused_at: float | None = None

    def check(self, path: str, measures: HttpMeasures) -> None:
        """Refuse a request beyond the bounds."""
        if path in ALWAYS:
            return
        reason = None
        if measures.in_flight > self.most_requests:
            reason = "requests"
        elif path.endswith(("/stream", "/events")) and self._streams() >= self.most_streams:
            reason = "streams"
        if reason is not None:
            measures.refused[reason] += 1
            raise ApiError(OVERLOADED, f"This process has as many {reason} under way as it takes.")

    def answered(self, method: str, status: int) -> None:
        """A request was answered: remember whether the database could write."""
        if method in WRITES and status == 503:
            self._refused_at = self._monotonic()
        elif method in WRITES and 200 <= status < 300:
            self._refused_at = None

    @property
    def is_troubled(self) -> bool:
        """Whether the last write failed a short time ago, as it does on a database that is full or read-only."""
        return self._refused_at is not None and self._monotonic() - self._refused_at < TROUBLE_SECONDS
