"""Measures how much of a worker is used: its load, its lag, the share of time with work, and claims.

It adds up on each change of the held attempts and keeps a few sums per window; nothing is written. The worker publishes
the result with its heartbeat. Seed 004: "update worker utilization metrics".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from stepkeep.operations.remote.services import UsageWindow
from stepkeep.worker.chores.relay import Tally

WINDOWS = (60.0, 600.0, 3600.0)
"""Seconds over which usage is told: a minute, ten minutes, an hour."""

SAMPLE_SECONDS = 5.0
"""The least time between two sums that are kept."""


class Sums(NamedTuple):
    """What was added up until a moment. `busy`: seconds with an attempt; `used`: seconds times slots."""

    at: float
    busy: float
    used: float
    claims: int
    settled: int


class Meter:
    """The sums of one worker since it began."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at = clock()
        self._held = 0
        self._busy = self._used = 0.0
        self._claims = self._settled = 0
        self._kept: deque[Sums] = deque([self._sums()])

    def took(self, count: int) -> None:
        """These many attempts were claimed."""
        self._add_up()
        self._held += count
        self._claims += count

    def left(self) -> None:
        """An attempt is no longer held."""
        self._add_up()
        self._held -= 1
        self._settled += 1

    def usage(self) -> tuple[UsageWindow, ...]:
        """Usage over each window, or since the beginning if that is shorter."""
        self._add_up()
        now = self._sums()
        if now.at - self._kept[-1].at >= SAMPLE_SECONDS:
            self._kept.append(now)
        while len(self._kept) > 1 and self._kept[1].at <= now.at - WINDOWS[-1]:
            self._kept.popleft()
        return tuple(self._over(seconds, now) for seconds in WINDOWS)

    def _over(self, seconds: float, now: Sums) -> UsageWindow:
        # The latest sums that are at least so old; the first ones otherwise.
        then = self._kept[0]
        for sums in self._kept:
            if sums.at > now.at - seconds:
                break
            then = sums
        passed = now.at - then.at
        return UsageWindow(
            seconds=int(seconds),
            measured=round(passed, 3),
            busy=round((now.busy - then.busy) / passed, 4) if passed > 0 else 0.0,
            slots=round((now.used - then.used) / passed, 3) if passed > 0 else 0.0,
            claims=now.claims - then.claims,
            settled=now.settled - then.settled,
        )

    def _add_up(self) -> None:
        now = self._clock()
        if self._held:
            self._busy += now - self._at
            self._used += self._held * (now - self._at)
        self._at = now

    def _sums(self) -> Sums:
        return Sums(self._at, self._busy, self._used, self._claims, self._settled)


class Vitals(NamedTuple):
    """One worker. `answered_seconds_ago`: since the database last answered a search for work; a worker that is full
    does not search. `claimed_seconds_ago`: since it last claimed a step."""

    app: str
    id: str | None
    places: int
    held: int
    free: int
    usage: tuple[UsageWindow, ...]
    loop_lag_seconds: float
    answered_seconds_ago: float
    claimed_seconds_ago: float
    is_store_up: bool
    is_draining: bool
    relayed: Tally
