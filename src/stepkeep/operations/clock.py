"""The database's clock, told from our own between two readings: what is decided on memory needs a moment too."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

FRESH = 2.0
"""How long (seconds) the database's clock can be told from our own."""

RENEWED = 1.0
"""How long (seconds) the best reading of the database's clock is kept although later ones took longer to arrive."""

SET_BACK = 250_000
"""How much later (microseconds) than the best a reading may be before it means that the clock was set back."""


class Clock:
    """What this process knows of the database's clock. Nothing that it says is believed unchecked."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lead, self._read_at = 0, -inf

    def read(self, now: int) -> None:
        """The database's clock was read, a moment ago. Of several readings the one that came fastest is the best."""
        own = self._monotonic()
        lead = now - int(own * 1_000_000)
        if lead > self._lead or own - self._read_at > RENEWED or lead < self._lead - SET_BACK:
            self._lead, self._read_at = lead, own

    def now(self) -> int | None:
        """The database's clock by our own, a little behind, as long as an answer takes; None if not read lately."""
        own = self._monotonic()
        return self._lead + int(own * 1_000_000) if own - self._read_at < FRESH else None
