"""Durations: what people may write, what is refused for being ambiguous, and that nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stepkeep.definition.durations import MAX_DURATION_US, InvalidDuration, format_duration, parse_duration
from stepkeep.kernel.errors import StepkeepError

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("0s", 0),
        ("1us", 1),
        ("1µs", 1),
        ("500ms", 500_000),
        ("90s", 90 * SECOND),
        ("1.5s", 1_500_000),
        ("0.000001s", 1),
        ("1h30m", 5400 * SECOND),
        ("1h 30m", 5400 * SECOND),
        (" 2d ", 172_800 * SECOND),
        ("1w", 604_800 * SECOND),
        ("1d2h3m4s5ms6us", 93_784_005_006),
        ("3650d", MAX_DURATION_US),
        ("PT5M", 300 * SECOND),
        ("PT0.5S", 500_000),
        ("PT0,5S", 500_000),
        ("P1DT2H", 93_600 * SECOND),
        ("P2W", 1_209_600 * SECOND),
    ],
)
def test_a_duration_means_what_it_says(text: str, microseconds: int) -> None:
    assert parse_duration(text) == microseconds


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (30, "Write 30s or 30ms"),
        ("30", "Write 30s or 30ms"),
        ("1.5", "Write 1.5s or 1.5ms"),
        (1.5, "Write 1.5s or 1.5ms"),
        (10**400, "has no unit"),
        (-5, "has no unit"),
        (float("nan"), "no unit"),
        (True, "not bool"),
        (None, "not NoneType"),
        (["1s"], "not list"),
        ("", "is not a duration"),
        ("soon", "is not a duration"),
        ("1x", "is not a duration"),
        ("1H", "is not a duration"),
        ("h", "is not a duration"),
        ("1h-30m", "is not a duration"),
        ("-1s", "never negative"),
        ("+1s", "never negative"),
        ("30m1h", "the largest first"),
        ("1s1s", "each unit once"),
        ("1.5h30m", "fraction before its last unit"),
        ("0.5us", "finer than a microsecond"),
        ("3651d", "more than ten years"),
        ("3650d1us", "more than ten years"),
        ("P1Y", "no fixed length"),
        ("P1M", "no fixed length"),
        ("P5H", "lacks the T"),
        ("PT", "ends after the T"),
        ("P", "is not a duration"),
        ("PT5X", "does not allow"),
        ("PT1H1D", "does not allow"),
        ("PTM", "not an ISO 8601 duration"),
        ("٣s", "is not a duration"),
        ("9" * 65 + "s", "longer than 64 characters"),
        ("9" * 60 + "s", "more than ten years"),
    ],
)
def test_what_is_ambiguous_or_out_of_bounds_is_refused_with_advice(text: object, advice: str) -> None:
    with pytest.raises(InvalidDuration, match=advice):
        parse_duration(text)


def test_the_refusal_is_ours_and_also_a_value_error() -> None:
    with pytest.raises(StepkeepError) as caught:
        parse_duration("soon")
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [(0, "0s"), (1, "1us"), (5400 * SECOND, "1h30m"), (1_500_000, "1s500ms"), (MAX_DURATION_US, "3650d")],
)
def test_a_duration_is_written_in_whole_units(microseconds: int, text: str) -> None:
    assert format_duration(microseconds) == text


@pytest.mark.parametrize("microseconds", [-1, MAX_DURATION_US + 1])
def test_a_duration_out_of_bounds_is_not_written(microseconds: int) -> None:
    with pytest.raises(InvalidDuration, match="out of bounds"):
        format_duration(microseconds)


@given(st.integers(0, MAX_DURATION_US))
@example(0)
@example(MAX_DURATION_US)
def test_what_is_written_reads_back_as_the_same_duration(microseconds: int) -> None:
    assert parse_duration(format_duration(microseconds)) == microseconds


@given(st.text(max_size=80) | st.text("0123456789.,PTWDHMSmshdu ", max_size=20))
def test_any_text_is_a_duration_within_bounds_or_a_typed_refusal(text: str) -> None:
    try:
        microseconds = parse_duration(text)
    except InvalidDuration:
        return
    assert 0 <= microseconds <= MAX_DURATION_US
    assert parse_duration(format_duration(microseconds)) == microseconds
