"""The style of each state: mark, colour and text; times and durations as text. One table, so that pictures agree.

Pure: the current time is an argument. The other files of this folder draw.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple


def moment(text: str | None) -> datetime | None:
    """An instant of a view as a value."""
    return None if text is None else datetime.fromisoformat(text)


def seconds_between(start: str | None, end: str | None) -> float | None:
    begun, ended = moment(start), moment(end)
    return None if begun is None or ended is None else max(0.0, (ended - begun).total_seconds())


def span(seconds: float | None) -> str:
    """A length of time in two figures at most.

    >>> span(0.0421), span(2.34), span(83), span(7325), span(200_000)
    ('42ms', '2.3s', '1m 23s', '2h 2m', '2d 7h')
    """
    if seconds is None:
        return ""
    if seconds < 0.9995:
        return f"{round(seconds * 1000)}ms"
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    for large, small, size in (("m", "s", 60), ("h", "m", 3_600), ("d", "h", 86_400)):
        below = {60: 1, 3_600: 60, 86_400: 3_600}[size]
        if whole < {60: 3_600, 3_600: 86_400, 86_400: float("inf")}[size]:
            return f"{whole // size}{large} {whole % size // below}{small}".removesuffix(f" 0{small}")
    raise AssertionError("unreachable")


def clock(text: str | None) -> str:
    """An instant without its date's separator and fractions: `2026-11-03 10:15:00Z`."""
    return "" if text is None else f"{text[:10]} {text[11:19]}Z"


class Look(NamedTuple):
    """One state as it is shown."""

    mark: str
    style: str
    words: str


LOOKS = {
    # steps
    "pending": Look("○", "dim", "pending"),
    "ready": Look("◌", "cyan", "ready"),
    "running": Look("▶", "bold cyan", "running"),
    "validating": Look("▷", "cyan", "validating"),
    "retrying": Look("↻", "yellow", "retrying"),
    "awaiting_approval": Look("◇", "magenta", "awaiting approval"),
    "awaiting_event": Look("◇", "magenta", "awaiting event"),
    "awaiting_completion": Look("◇", "magenta", "awaiting completion"),
    "awaiting_children": Look("◈", "cyan", "awaiting children"),
    "succeeded": Look("●", "green", "succeeded"),
    "failed": Look("✗", "bold red", "failed"),
    "skipped": Look("⊘", "yellow", "skipped"),
    "cancelled": Look("■", "dim", "cancelled"),
    # runs, where they have words of their own
    "idle": Look("○", "dim", "idle"),
    "queued": Look("◌", "cyan", "queued"),
    "blocked": Look("◇", "magenta", "blocked"),
    "paused": Look("‖", "magenta", "paused"),
    "stopping": Look("▽", "yellow", "stopping"),
    "compensating": Look("↩", "yellow", "compensating"),
    "rolled_back": Look("↩", "yellow", "rolled back"),
    # workers
    "initializing": Look("◌", "dim", "initializing"),
    "busy": Look("▶", "cyan", "busy"),
    "unresponsive": Look("✗", "red", "unresponsive"),
    "draining": Look("▽", "yellow", "draining"),
    "shutdown": Look("■", "dim", "shut down"),
    # links to child runs, where they have words of their own
    "requested": Look("◌", "cyan", "requested"),
    "started": Look("▶", "cyan", "started"),
    "withdrawn": Look("■", "dim", "withdrawn"),
    "refused": Look("✗", "red", "refused"),
    # attempts, where they have words of their own
    "timed_out": Look("✗", "red", "timed out"),
    "lost": Look("✗", "red", "lost"),
    "waited": Look("◇", "magenta", "waited"),
    "released": Look("○", "dim", "released"),
}

QUIET = frozenset({"pending", "succeeded", "skipped", "cancelled"})
"""Step states that need no attention: the first to be folded."""


def look(state: str) -> Look:
    """The style of a state; an unknown one is shown by its name."""
    return LOOKS.get(state) or Look("?", "", state.replace("_", " "))


def words(state: str) -> str:
    return look(state).words


def style(state: str) -> str:
    return look(state).style
