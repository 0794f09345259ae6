"""The moments of schedules, above all when clocks change.

The expected moments come from a count of single minutes, which shares no code with the schedules but the tz database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import pytest
from tests.suites import in_proof

from stepkeep.kernel.triggers import Fold, Gap, Schedule
from stepkeep.schedules.moments import MICROS, checked, jitter_of, moments_after, next_moment
from stepkeep.schedules.zones import changes

ZONES = sorted(available_timezones() - {"localtime", "posixrules", "Factory"})
SAMPLE = ["Europe/Zurich", "Australia/Lord_Howe", "Africa/Casablanca", "America/Havana", "Antarctica/Troll"]
FIRST_YEAR, YEARS = 2026, 10
EXPRESSIONS: dict[str, Callable[[datetime], bool]] = {
    "30 2 * * *": lambda at: (at.minute, at.hour) == (30, 2),
    "15 0,1,3 * * *": lambda at: at.minute == 15 and at.hour in (0, 1, 3),
    "0 * * * *": lambda at: at.minute == 0,
    "*/15 * * * *": lambda at: at.minute % 15 == 0,
}
POLICIES = [(gap, fold) for gap in Gap for fold in Fold]


def micros(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * MICROS


def texts(found: Iterator[int], count: int) -> list[str]:
    return [datetime.fromtimestamp(one // MICROS, UTC).strftime("%m-%d %H:%M") for one in islice(found, count)]


class Minute(NamedTuple):
    """One minute of UTC: what clocks show, whether they show it again, and the local minutes skipped before it."""

    at: int
    shown: datetime
    again: bool
    skipped: tuple[datetime, ...]


def minutes_of(zone: ZoneInfo, start: datetime, count: int) -> list[Minute]:
    found = []
    before = (start - timedelta(minutes=1)).astimezone(zone).replace(tzinfo=None, fold=0)
    for passed in range(count):
        at = start + timedelta(minutes=passed)
        local = at.astimezone(zone)
        shown = local.replace(tzinfo=None, fold=0)
        gap = max(0, (shown - before) // timedelta(minutes=1) - 1)
        skipped = tuple(before + timedelta(minutes=one + 1) for one in range(gap))
        found.append(Minute(int(at.timestamp()) * MICROS, shown, local.fold == 1, skipped))
        before = shown
    return found


def expected(minutes: list[Minute], matches: Callable[[datetime], bool], gap: Gap, fold: Fold) -> list[int]:
    return [
        minute.at
        for minute in minutes
        if (matches(minute.shown) and not (minute.again and fold is Fold.FIRST))
        or (gap is Gap.SHIFT and any(map(matches, minute.skipped)))
    ]


def check_zone(name: str, years: int) -> tuple[int, int]:
    """Check every change of a zone's clock; returns how many changes and cases there were."""
    found = [change for year in range(FIRST_YEAR, FIRST_YEAR + years) for change in changes(name, year)]
    for change in found:
        start = datetime.fromtimestamp(change.at, UTC).replace(second=0) - timedelta(hours=5)
        minutes = minutes_of(ZoneInfo(name), start, 600)
        for expression, matches in EXPRESSIONS.items():
            for gap, fold in POLICIES:
                case = (name, change, expression, gap, fold)
                schedule = checked(Schedule(cron=expression, zone=name, gap=gap, fold=fold))
                wanted = expected(minutes, matches, gap, fold)
                fired = moments_after(schedule, minutes[0].at - 1)
                assert list(takewhile(lambda one: one <= minutes[-1].at, fired)) == wanted, case  # noqa: B023
                # A process that begins at the change finds the same ones.
                rest = [one for one in wanted if one >= change.at * MICROS]
                assert not rest or next_moment(schedule, change.at * MICROS - 1) == rest[0], case
    return len(found), len(found) * len(EXPRESSIONS) * len(POLICIES)


@pytest.mark.parametrize(("zones", "years"), [(SAMPLE, 2), in_proof(ZONES, YEARS, name="every zone")])
def test_every_change_of_the_clock_fires_as_its_policy_says(zones: list[str], years: int) -> None:
    checked_zones = [check_zone(name, years) for name in zones]
    seen, cases = (sum(column) for column in zip(*checked_zones, strict=True))
    print(f"{len(zones)} zones, {seen} changes of clocks, {cases} cases")
    assert seen >= 4 * years


def test_the_changes_of_a_zone_are_those_of_the_tz_database() -> None:
    zurich = [datetime.fromtimestamp(change.at, UTC).isoformat() for change in changes("Europe/Zurich", 2027)]
    assert zurich == ["2027-03-28T01:00:00+00:00", "2027-10-31T01:00:00+00:00"]
    assert changes("UTC", 2027) == ()
    [howe, _] = changes("Australia/Lord_Howe", 2027)
    assert howe.after - howe.before == -1800


def test_a_daily_time_in_the_gap_fires_once_after_it_or_not_at_all() -> None:
    start = micros("2027-03-27T00:00:00+00:00")
    shifted = checked(Schedule(cron="30 2 * * *", zone="Europe/Zurich"))
    assert texts(moments_after(shifted, start), 3) == ["03-27 01:30", "03-28 01:00", "03-29 00:30"]
    skipped = checked(Schedule(cron="30 2 * * *", zone="Europe/Zurich", gap=Gap.SKIP))
    assert texts(moments_after(skipped, start), 2) == ["03-27 01:30", "03-29 00:30"]


def test_a_daily_time_in_the_fold_fires_at_the_first_or_at_both() -> None:
    start = micros("2026-10-25T00:00:00+00:00")
    first = checked(Schedule(cron="30 2 * * *", zone="Europe/Zurich"))
    assert texts(moments_after(first, start), 2) == ["10-25 00:30", "10-26 01:30"]
    both = checked(Schedule(cron="30 2 * * *", zone="Europe/Zurich", fold=Fold.BOTH))
    assert texts(moments_after(both, start), 3) == ["10-25 00:30", "10-25 01:30", "10-26 01:30"]


def test_an_hourly_schedule_counts_elapsed_hours_through_both_changes() -> None:
    hourly = checked(Schedule(cron="30 * * * *", zone="Europe/Zurich"))
    for start in ("2026-10-24T20:00:00+00:00", "2027-03-27T20:00:00+00:00"):
        found = list(islice(moments_after(hourly, micros(start)), 12))
        assert {later - earlier for earlier, later in pairwise(found)} == {3600 * MICROS}


def test_a_day_that_a_zone_leaves_out_is_shifted_to_the_next() -> None:
    """Samoa left out 30 December 2011."""
    noon = checked(Schedule(cron="0 12 * * *", zone="Pacific/Apia"))
    assert texts(moments_after(noon, micros("2011-12-29T12:00:00+00:00")), 3) == [
        "12-29 22:00",
        "12-30 10:00",
        "12-30 22:00",
    ]


def test_an_interval_has_moments_at_its_multiples() -> None:
    every = checked(Schedule(every=900 * MICROS))
    found = list(islice(moments_after(every, micros("2026-11-17T08:15:00+00:00")), 2))
    assert found == [micros("2026-11-17T08:30:00+00:00"), micros("2026-11-17T08:45:00+00:00")]


def test_a_leap_day_and_a_fifth_monday_in_february_come() -> None:
    assert next_moment(checked(Schedule(cron="0 0 29 2 *")), micros("2025-01-01T00:00:00+00:00")) == micros(
        "2028-02-29T00:00:00+00:00"
    )
    rare = checked(Schedule(cron="0 0 * 2 MON#5"))
    assert next_moment(rare, micros("2025-01-01T00:00:00+00:00")) == micros("2044-02-29T00:00:00+00:00")


def test_jitter_is_the_same_in_every_process_and_differs_by_trigger() -> None:
    schedule = checked(Schedule(cron="@daily", jitter=300 * MICROS))
    drawn = {jitter_of(schedule, f"default/{name}", 0) for name in range(50)}
    assert len(drawn) == 50
    assert all(0 <= one <= 300 * MICROS for one in drawn)
    assert jitter_of(schedule, "default/nightly", 0) == jitter_of(schedule, "default/nightly", 0) == 68_213_176
    assert jitter_of(checked(Schedule(cron="@daily")), "default/nightly", 0) == 0
