"""Cron expressions: what is read, and what is refused with which position."""

from __future__ import annotations

import pytest

from stepkeep.kernel.triggers import Fold, Gap, Schedule
from stepkeep.schedules.cron import NAMES, InvalidSchedule, follows_the_clock, read_cron
from stepkeep.schedules.moments import MICROS, checked

WRONG = {
    "61 * * * *": (1, "no minute"),
    "* 24 * * *": (3, "no hour"),
    "* 5-2 * * *": (3, "no hour"),
    "0 0 32 * *": (5, "no day of the month"),
    "0 0 * 13 *": (7, "no month"),
    "0 0 * * 8": (9, "no day of the week"),
    "* * * * MON#9": (9, "no day of the week"),
    "*/0 * * * *": (1, "no minute"),
    "1/ * * * *": (1, "no minute"),
    "a b c d e": (1, "no minute"),
    "0 0 30 2 *": (5, "has a day `30`"),
    "0 0 31 2,4,6 *": (5, "has a day `31`"),
    "* * * *": (1, "has 4"),
    "* * * * * *": (11, "seconds are not supported"),
    "@reboot": (1, "no name of a schedule"),
    "": (None, "is text"),
    "０ 0 * * *": (None, "plain characters"),
    "0," * 200 + "0 * * * *": (None, "at most 200"),
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:20])
def test_a_wrong_expression_is_refused_with_the_field_and_its_column(text: str) -> None:
    column, said = WRONG[text]
    with pytest.raises(InvalidSchedule, match=said) as refused:
        read_cron(text)
    assert refused.value.column == column


def test_names_stand_for_expressions() -> None:
    assert {name: read_cron(name.upper()) for name in NAMES} == NAMES


@pytest.mark.parametrize("text", ["0 0 L * *", "0 9 LW * *", "0 0 * * MON#2", "0 0 * 2 MON#5", "5,10-20/2 0 1 JAN SUN"])
def test_last_days_weekdays_and_lists_are_read(text: str) -> None:
    assert read_cron(f"  {text} ") == text


def test_an_expression_with_a_star_for_minute_or_hour_counts_elapsed_time() -> None:
    assert [follows_the_clock(text) for text in ("30 2 * * *", "0 9-17 * * 1-5", "*/5 2 * * *", "0 */2 * * *")] == [
        True,
        True,
        False,
        False,
    ]
    assert (checked(Schedule(cron="30 2 * * *")).gap, checked(Schedule(cron="0 * * * *")).gap) == (Gap.SHIFT, Gap.SKIP)
    assert checked(Schedule(cron="0 * * * *", fold=Fold.FIRST)).fold is Fold.FIRST


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (Schedule(), "and not both"),
        (Schedule(cron="@daily", every=MICROS), "and not both"),
        (Schedule(cron="@daily", zone="Europe/Nowhere"), "no time zone `Europe/Nowhere`"),
        (Schedule(cron="@daily", zone="../../etc/passwd"), "no time zone"),
        (Schedule(cron="@daily", zone="/etc/localtime"), "no time zone"),
        (Schedule(every=999_999), "shortest interval is 1s"),
        (Schedule(every=MICROS, zone="Europe/Zurich"), "counts elapsed time"),
        (Schedule(every=MICROS, gap=Gap.SKIP), "counts elapsed time"),
    ],
)
def test_a_schedule_that_cannot_fire_as_written_is_refused(schedule: Schedule, said: str) -> None:
    with pytest.raises(InvalidSchedule, match=said):
        checked(schedule)
