"""The clock of an embedded database is the clock of the machine it lives on, read inside the transaction.

Within one process it never runs backwards, so that a corrected system clock cannot revive a lease that has ended.
"""

from __future__ import annotations

import time
from threading import Lock


class Clock:
    """Microseconds since 1970; `offset` moves it, for tests."""

    def __init__(self) -> None:
        self.offset = 0
        self._guard = Lock()
        self._latest = 0

    def now(self) -> int:
        with self._guard:
            self._latest = max(self._latest, time.time_ns() // 1000)
            return self._latest + self.offset
