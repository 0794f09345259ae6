"""Times of the database clock as UTC text with milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime


def instant(micros: int | None) -> str | None:
    """A time of the database clock as UTC text with milliseconds."""
    if micros is None:
        return None
    return datetime.fromtimestamp(micros / 1_000_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
