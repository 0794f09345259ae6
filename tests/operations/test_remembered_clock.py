"""The database's clock is told from our own for a little while, as well as its readings allow."""

from __future__ import annotations

from stepkeep.operations.pipeline.clock import Clock


def test_of_several_readings_the_one_that_came_fastest_counts() -> None:
    own = 100.0
    clock = Clock(lambda: own)
    assert clock.now() is None
    clock.read(5_000_000)
    own += 0.1
    clock.read(5_060_000)  # 40 ms on the way
    assert clock.now() == 5_100_000
    own += 0.5
    clock.read(5_610_000)  # faster than the first
    assert clock.now() == 5_610_000
    own += 1.1
    clock.read(6_700_000)  # slower, but the first has become old
    assert clock.now() == 6_700_000
    own += 0.1
    clock.read(4_000_000)  # the clock was set back
    assert clock.now() == 4_000_000
    own += 2.0
    assert clock.now() is None
