"""The clock of an embedded database: the clock of its machine, read inside the transaction.

Within one process it never runs backwards, so that a corrected system clock cannot revive an expired lease. Tests give
it another source of time, or an offset.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock


def machine_time_us() -> int:
    """The machine's clock, in microseconds since 1970."""
    return time.time_ns() // 1000


class Clock:
    """Microseconds since 1970; `offset` moves it, for tests."""

    def __init__(self, read_us: Callable[[], int] = machine_time_us) -> None:
        self.offset = 0
        self._read_us = read_us
        self._guard = Lock()
        self._latest = 0

    def now(self) -> int:
        with self._guard:
            self._latest = max(self._latest, self._read_us())
            return self._latest + self.offset
