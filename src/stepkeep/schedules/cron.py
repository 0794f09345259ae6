"""Reads cron expressions: five fields or a name such as `@daily`. Problems name the field and its position.

cronsim parses fields and enumerates local times; no other module uses it. `moments` turns local times into instants.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache

from cronsim import CronSim, CronSimError

from stepkeep.kernel.errors import StepkeepError

NAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIELDS = ("minute", "hour", "day of the month", "month", "day of the week")
RANGES = ("0 to 59", "0 to 23", "1 to 31, L or LW", "1 to 12 or JAN to DEC", "0 to 7 or SUN to SAT")
EXAMPLE = "Write five fields (minute, hour, day, month, day of the week), as in `30 2 * * *`, or a name such as @daily."
LONGEST = 200

_SECOND = timedelta(seconds=1)
_ANY_DAY = datetime(2024, 1, 1)  # noqa: DTZ001 - a local time; it belongs to no zone


class InvalidSchedule(StepkeepError, ValueError):
    """A schedule that cannot be used as written; `column` points into the expression, from 1. A ValueError too, so that
    pydantic collects it."""

    def __init__(self, message: str, *, column: int | None = None, hint: str = "") -> None:
        self.message, self.column, self.hint = message, column, hint
        where = "" if column is None else f" (column {column})"
        super().__init__(f"{message}{where} {hint}".strip())


def read_cron(text: str) -> str:
    """The five fields of an expression, names resolved; raises InvalidSchedule.

    >>> read_cron("@daily")
    '0 0 * * *'
    """
    if not text.strip():
        raise InvalidSchedule("A cron expression is text.", hint=EXAMPLE)
    if len(text) > LONGEST or not text.isascii():
        raise InvalidSchedule(f"A cron expression has at most {LONGEST} plain characters.", hint=EXAMPLE)
    written = text.strip()
    if written.startswith("@"):
        known = NAMES.get(written.lower())
        if known is None:
            names = ", ".join(NAMES)
            raise InvalidSchedule(f"`{written}` is no name of a schedule.", column=1, hint=f"There are {names}.")
        return known
    fields = [(found.group(), found.start() + 1) for found in re.finditer(r"\S+", text)]
    if len(fields) == 6:
        said = "This expression has six fields; seconds are not supported."
        raise InvalidSchedule(said, column=fields[5][1], hint="Write `every: 10s` for less than a minute.")
    if len(fields) != 5:
        raise InvalidSchedule(f"A cron expression has five fields, this one has {len(fields)}.", column=1, hint=EXAMPLE)
    for place, (field, column) in enumerate(fields):
        alone = ["*"] * 5
        alone[place] = field
        hint = f"It takes {RANGES[place]}, lists, ranges, steps."
        _parse(" ".join(alone), f"`{field}` is no {FIELDS[place]}.", column, hint)
    plain = " ".join(field for field, _ in fields)
    _parse(plain, f"None of these months has a day `{fields[2][0]}`.", fields[2][1], "Name a day that comes.")
    try:
        next(CronSim(plain, _ANY_DAY))
    except StopIteration:
        raise InvalidSchedule("No day matches this expression.", column=fields[2][1], hint=EXAMPLE) from None
    return plain


def _parse(expression: str, refusal: str, column: int, hint: str) -> None:
    try:
        CronSim(expression, _ANY_DAY)
    except (CronSimError, AssertionError, ValueError, IndexError):
        raise InvalidSchedule(refusal, column=column, hint=hint) from None


@lru_cache(maxsize=4_096)
def follows_the_clock(expression: str) -> bool:
    """Whether an expression names times of the day. One whose minute or hour begins with `*` counts elapsed time, as in
    Debian's cron: it is not shifted over a gap, and goes on through a fold."""
    minute, hour, *_ = expression.split()
    return not (minute.startswith("*") or hour.startswith("*"))


def local_times(expression: str, start: datetime, end: datetime) -> Iterator[datetime]:
    """The local times that match, from `start` (inclusive) to `end` (exclusive); they belong to no zone."""
    try:
        for moment in CronSim(expression, start - _SECOND):
            if moment >= end:
                return
            yield moment
    except OverflowError:
        return
