"""The moments of a schedule: instants at which it fires, each once, in order.

A moment depends on the schedule alone, never on when it is asked for: every worker computes the same ones. Between two
changes of a zone's clock its offset is constant, and local times map to instants one to one. At a change, the
schedule's policy decides. Triggers call it, and so do `stepkeep triggers next` and the backfill.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from stepkeep.kernel.triggers import Fold, Gap, Schedule
from stepkeep.schedules.cron import InvalidSchedule, follows_the_clock, local_times, read_cron
from stepkeep.schedules.zones import changes, find_zone, offset_at

MICROS = 1_000_000
LAST_YEAR = 9_000
SHORTEST_INTERVAL = MICROS
LONGEST_FOLD = 2 * 86_400
"""More seconds than any change of a clock repeats; the largest on record is one day."""

YEARS_AHEAD = 60
"""A schedule without a moment for so long has none. The rarest valid one, a fifth Monday in February, comes every 28
years."""

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a local time; it belongs to no zone


def checked(schedule: Schedule) -> Schedule:
    """The schedule with its expression resolved and its policies explicit; raises InvalidSchedule."""
    if (schedule.cron is None) == (schedule.every is None):
        raise InvalidSchedule("A schedule has a cron expression or an interval (`every`), and not both.")
    if find_zone(schedule.zone) is None:
        hint = "Write a name of the IANA database, as in Europe/Zurich or UTC."
        raise InvalidSchedule(f"There is no time zone `{schedule.zone[:80]}`.", hint=hint)
    if schedule.every is not None:
        if schedule.every < SHORTEST_INTERVAL:
            raise InvalidSchedule("The shortest interval is 1s.", hint="Write for example `every: 15m`.")
        if schedule.zone != "UTC" or schedule.gap is not None or schedule.fold is not None:
            said = "An interval counts elapsed time: it has no zone, `gap` or `fold`."
            raise InvalidSchedule(said, hint="Remove it, or write a cron expression.")
        return schedule
    assert schedule.cron is not None
    cron = read_cron(schedule.cron)
    by_clock = follows_the_clock(cron)
    return Schedule(
        cron=cron,
        zone=schedule.zone,
        gap=schedule.gap or (Gap.SHIFT if by_clock else Gap.SKIP),
        fold=schedule.fold or (Fold.FIRST if by_clock else Fold.BOTH),
        jitter=schedule.jitter,
    )


def moments_after(schedule: Schedule, after: int) -> Iterator[int]:
    """The moments later than this time (microseconds), in order. The schedule is a checked one."""
    if schedule.every is not None:
        moment = after - after % schedule.every + schedule.every
        while True:
            yield moment
            moment += schedule.every
    first = after // MICROS + 1
    for second in _seconds(schedule, first):
        yield second * MICROS


def next_moment(schedule: Schedule, after: int) -> int | None:
    """The first moment later than this time; None if there is none."""
    return next(moments_after(schedule, after), None)


def jitter_of(schedule: Schedule, owner: str, moment: int) -> int:
    """How much later than its moment a firing is due: the same in every process, spread evenly over the owners."""
    if not schedule.jitter:
        return 0
    drawn = hashlib.sha256(f"{owner}\n{moment}".encode()).digest()
    return int.from_bytes(drawn[:8]) % (schedule.jitter + 1)


def _seconds(schedule: Schedule, first: int) -> Iterator[int]:
    """The moments of a cron expression from this second of UTC on, one stretch of constant offset after the other."""
    assert schedule.cron is not None
    zone = find_zone(schedule.zone)
    assert zone is not None
    begin = _begin(schedule.zone, first)
    offset = offset_at(zone, begin)
    shown = begin + offset
    """The local time up to which the clock has shown every time that exists; a fold shows some of them again."""
    year = datetime.fromtimestamp(begin, UTC).year
    for current in range(year, min(year + YEARS_AHEAD, LAST_YEAR)):
        new_year = int(datetime(current + 1, 1, 1, tzinfo=UTC).timestamp())
        coming = [change for change in changes(schedule.zone, current) if change.at > begin]
        for until in (*(change.at for change in coming), new_year):
            start = max(begin + offset, shown) if schedule.fold is Fold.FIRST else begin + offset
            for local in _locals(schedule.cron, start, until + offset):
                if local - offset >= first:
                    yield local - offset
            shown = max(shown, until + offset)
            begin, before, offset = until, offset, offset_at(zone, until)
            if offset > before and schedule.gap is Gap.SHIFT and until >= first:
                yield from _shifted(schedule.cron, until, before, offset)


def _begin(zone: str, first: int) -> int:
    """Where to begin: just before a recent change of the clock, because a fold after it may show times again."""
    years = {datetime.fromtimestamp(second, UTC).year for second in (first - LONGEST_FOLD, first)}
    recent = [change.at for year in sorted(years) for change in changes(zone, year)]
    return min((at - 1 for at in recent if first - LONGEST_FOLD < at <= first), default=first)


def _shifted(cron: str, at: int, before: int, after: int) -> Iterator[int]:
    """The moment of a gap, if it skips a local time of the schedule and does not end at one, which fires by itself."""
    skips_one = next(_locals(cron, at + before, at + after), None) is not None
    ends_at_one = next(_locals(cron, at + after, at + after + 1), None) is not None
    if skips_one and not ends_at_one:
        yield at


def _locals(cron: str, start: int, end: int) -> Iterator[int]:
    """The local times that match, in seconds of a clock without a zone, from `start` to before `end`."""
    if start < end:
        for found in local_times(cron, _EPOCH + timedelta(seconds=start), _EPOCH + timedelta(seconds=end)):
            yield (found - _EPOCH) // timedelta(seconds=1)
