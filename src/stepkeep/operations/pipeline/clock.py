"""Extrapolates the database clock between two readings, because a decision on remembered rows needs a time."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

FRESH = 2.0
"""How long (seconds) a reading of the database clock may be extrapolated."""

RENEWED = 1.0
"""How long (seconds) the best reading is kept, although later readings took longer to arrive."""

SET_BACK = 250_000
"""A reading that is earlier than expected by more than this (microseconds) means that the clock was set back."""


class Clock:
    """The database clock as this process knows it. The database checks every time that derives from it."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lead, self._read_at = 0, -inf

    def read(self, now: int) -> None:
        """Record a reading of the database clock. Of several readings, the one with the shortest round trip is the
        best."""
        own = self._monotonic()
        lead = now - int(own * 1_000_000)
        if lead > self._lead or own - self._read_at > RENEWED or lead < self._lead - SET_BACK:
            self._lead, self._read_at = lead, own

    def now(self) -> int | None:
        """The extrapolated database clock, behind by one round trip at most; None without a recent reading."""
        own = self._monotonic()
        return self._lead + int(own * 1_000_000) if own - self._read_at < FRESH else None
