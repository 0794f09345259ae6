"""Times and durations as text. Pure: the current time is an argument."""

from __future__ import annotations

from datetime import datetime


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
