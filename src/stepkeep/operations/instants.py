"""Times of the database clock as UTC text with milliseconds. Views and answers call it; what is stored has numbers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, overload


@overload
def instant(micros: int) -> str: ...
@overload
def instant(micros: int | None) -> str | None: ...
def instant(micros: int | None) -> str | None:
    """A time of the database clock as UTC text with milliseconds."""
    if micros is None:
        return None
    return datetime.fromtimestamp(micros / 1_000_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def dated(record: Mapping[str, Any]) -> dict[str, object]:
    """The record of a decision, as callers get it: `at` is text, also of the decisions that it was counted with.

    >>> dated({"by": "bea", "at": 1_500_000})
    {'by': 'bea', 'at': '1970-01-01T00:00:01.500Z'}
    """
    at, votes = record.get("at"), record.get("votes")
    found = {**record, "at": instant(at)} if isinstance(at, int) else dict(record)
    return found | {"votes": [dated(vote) for vote in votes]} if isinstance(votes, list) else found
