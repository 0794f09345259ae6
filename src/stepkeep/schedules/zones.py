"""The changes of clocks of IANA time zones: when the offset from UTC changes, and by how much.

It reads the zones of the installed tz database and nothing else. `moments` calls it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

DAY_SECONDS = 86_400

MAX_KEPT = 4_096
LONGEST_NAME = 64


class Change(NamedTuple):
    """A change of the clock: the second at which it happens (UTC), and the offsets before and after it (seconds)."""

    at: int
    before: int
    after: int


@lru_cache(maxsize=MAX_KEPT)
def find_zone(name: str) -> ZoneInfo | None:
    """The zone of this name; None if there is none."""
    if not name or len(name) > LONGEST_NAME or name.startswith(("/", ".")) or not name.isascii():
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def offset_at(zone: ZoneInfo, second: int) -> int:
    """How many seconds the clocks of a zone are ahead of UTC at this second of UTC."""
    offset = datetime.fromtimestamp(second, zone).utcoffset()
    assert offset is not None
    return round(offset / timedelta(seconds=1))


@lru_cache(maxsize=MAX_KEPT)
def changes(name: str, year: int) -> tuple[Change, ...]:
    """The changes of a zone's clock in one year of UTC, oldest first."""
    zone = find_zone(name)
    if zone is None:
        return ()
    start = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    end = int(datetime(year + 1, 1, 1, tzinfo=UTC).timestamp())
    found = []
    before = offset_at(zone, start)
    for day in range(start, end, DAY_SECONDS):
        after = offset_at(zone, min(day + DAY_SECONDS, end))
        if after != before:
            found.append(Change(_first_second(zone, day, min(day + DAY_SECONDS, end), after), before, after))
            before = after
    return tuple(found)


def _first_second(zone: ZoneInfo, low: int, high: int, offset: int) -> int:
    """The first second at which the offset is this one; it is not at `low` and is at `high`."""
    while high - low > 1:
        middle = (low + high) // 2
        if offset_at(zone, middle) == offset:
            high = middle
        else:
            low = middle
    return high
