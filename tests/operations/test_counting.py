"""Counts of runs are exact up to a bound; beyond it their parts are estimates, and say so."""

from __future__ import annotations

import pytest

from stepkeep.metrics.gauges import StoreGauges
from stepkeep.operations.runs import counting, statistics
from stepkeep.operations.runs.counting import Sample, count_runs, exactly
from stepkeep.operations.runs.statistics import read_statistics
from stepkeep.operations.runs.status import read_status
from stepkeep.store.records import FIRST_ID, RecentRun
from tests.workbench import TENANT, Bench, chain, on


async def many(bench: Bench) -> None:
    """Four runs that have succeeded, and then eight that are queued."""
    plan = await bench.publish(chain("one", 1))
    for _ in range(4):
        await bench.start(plan)
    await bench.work_off()
    for _ in range(8):
        await bench.start(plan)


async def test_counts_within_the_bound_are_exact(database_url: str) -> None:
    async with on(database_url) as bench:
        await many(bench)
        counts = await count_runs(bench.store, TENANT, after=FIRST_ID, late_by=0)
        assert counts.live == exactly({"queued": 8})
        assert counts.recent == exactly({"queued": 8, "succeeded": 4})
        assert counts.failures == exactly({})


async def test_beyond_the_bound_the_total_stays_exact_and_the_parts_are_called_an_estimate(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The newest five are all queued: a count that ended there would say that nothing succeeded.
    monkeypatch.setattr(counting, "EXACT", 5)

    async with on(database_url) as bench:
        await many(bench)
        told = (await read_status(bench.transactor, tenant=TENANT))["status"]["runs"]
        assert told["live"] == {"total": 8, "is_complete": True, "is_estimate": True, "by_state": {"queued": 8}}
        recent = told["recent"]
        assert (recent["total"], recent["is_complete"], recent["is_estimate"]) == (12, True, True)
        assert recent["by_state"] == {"queued": 8, "succeeded": 4}, "the sample of so few has all of them"
        monkeypatch.setattr(counting, "MOST", 6)
        told = (await read_status(bench.transactor, tenant=TENANT))["status"]["runs"]
        assert (told["live"]["total"], told["live"]["is_complete"]) == (6, False)


async def test_a_gauge_beyond_the_bound_says_that_it_is_rough(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def rough(bench: Bench) -> dict[str, float]:
        families = await StoreGauges(bench.transactor, TENANT).families()
        samples = [one for family in families for one in family.samples if one.name == "stepkeep_count_is_rough"]
        return {one.labels["gauge"]: one.value for one in samples}

    async with on(database_url) as bench:
        await many(bench)
        assert set((await rough(bench)).values()) == {0.0}
        monkeypatch.setattr(counting, "EXACT", 5)
        monkeypatch.setattr(counting, "MOST", 8)
        told = await rough(bench)
        assert (told["stepkeep_runs"], told["stepkeep_queue_depth"], told["stepkeep_late_timers"]) == (1.0, 1.0, 0.0)


async def test_statistics_of_many_runs_come_from_all_of_their_window(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "MOST_RUNS", 5)

    async with on(database_url) as bench:
        await many(bench)
        told = (await read_statistics(bench.transactor, tenant=TENANT, window=3_600_000_000))["statistics"]
        assert (told["runs"]["total"], told["runs"]["is_estimate"], told["runs"]["looked_at"]) == (12, True, 12)
        assert told["runs"]["by_state"] == {"queued": 8, "succeeded": 4}
        assert sum(span["succeeded"] for span in told["throughput"]) == 4
        assert (told["durations"]["runs"], len(told["newest_ends"])) == (4, 4)
        assert told["slowest_steps"][0]["attempts"] == 4


def test_a_sample_is_scaled_to_the_whole() -> None:
    runs = [RecentRun(str(number), 1, "failed" if number < 3 else "queued", None, None, None) for number in range(10)]
    sample = Sample(runs=runs, total=1_000_000)
    assert sample.count(run.state for run in runs) == {"queued": 700_000, "failed": 300_000}
    assert Sample(runs=[], total=5).count([]) == {}
