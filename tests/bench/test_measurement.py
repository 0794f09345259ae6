"""Statistics are the plain ones: medians that a stray round does not move, percentiles that were really seen."""

from __future__ import annotations

import pytest

from stepkeep_lab.bench.measurement import Measurement, percentile, spread


def measured(*values: float) -> Measurement:
    rounds = tuple({"steps_per_second": value} for value in values)
    return Measurement(subject="stepkeep", work="3-step runs", store="sqlite", rounds=rounds)


def test_one_stray_round_does_not_move_the_median() -> None:
    assert measured(100.0, 101.0, 5.0).median("steps_per_second") == 100.0


def test_what_was_not_measured_has_no_median() -> None:
    assert measured().median("steps_per_second") is None
    assert measured(1.0).median("p50_ms") is None


def test_a_round_that_lacks_a_figure_is_left_out_of_it() -> None:
    rounds = ({"p50_ms": 1.0}, {"p50_ms": 3.0, "p99_ms": 9.0})
    both = Measurement(subject="stepkeep", work="w", store="sqlite", rounds=rounds)
    assert both.samples("p99_ms") == [9.0]
    assert both.figures == ["p50_ms", "p99_ms"]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [([10.0], 0.0), ([9.0, 10.0, 12.0], 0.2), ([0.0, 0.0], 0.0)],
)
def test_the_spread_is_the_farthest_sample_as_a_share_of_the_median(samples: list[float], expected: float) -> None:
    assert spread(samples) == pytest.approx(expected)


def test_a_percentile_is_a_sample_and_not_a_mixture() -> None:
    samples = [float(value) for value in range(1, 101)]
    assert percentile(samples, 0.5) == 50.0
    assert percentile(samples, 0.99) == 99.0
    assert percentile([7.0], 0.99) == 7.0
    assert percentile([1.0, 1000.0], 0.99) == 1000.0
