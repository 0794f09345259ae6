"""`engine.statistics`: throughput, durations, failures, backlog and slow steps of the newest runs, on both stores."""

from __future__ import annotations

import json

import pytest

import stepkeep as sk
from stepkeep.definition.native.reader import load_text
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.errors import InvalidInput
from stepkeep.operations.runs import statistics
from stepkeep.operations.runs.causes import SECOND
from stepkeep.operations.runs.counting import Sample
from stepkeep.store.records import RecentRun

STEPS = [{"name": "one", "uses": "statistics.one", "effect": "read", "retry": {"max_attempts": 1}}]


@sk.step("statistics.one")
def one(fails: bool = False) -> str:
    if fails:
        raise ConnectionError("no answer")
    return "done"


def workflow(name: str, fails: bool = False) -> Definition:
    step = {**STEPS[0], "with": {"fails": fails}}
    text = json.dumps({"workflow": name, "version": 1, "timeout": "1h", "steps": [step]})
    return load_text(text, "statistics.yaml")


def a_run(at: int, state: str = "succeeded", **given: int) -> RecentRun:
    stamp = f"{at // 1000:012x}"
    return RecentRun(f"{stamp[:8]}-{stamp[8:]}-7000-8000-000000000000", 1, state, None, at, given.get("ended_at"))


def test_the_newest_runs_are_told_in_numbers(database_url: str) -> None:
    with sk.open(database_url) as engine:
        engine.run(workflow("good"))
        engine.run(workflow("bad", fails=True))
        waiting = engine.start(workflow("good")).run_id
        told = engine.statistics(window="1h")["statistics"]
    exact = {"total": 3, "is_complete": True, "is_estimate": False, "looked_at": 3}
    assert told["runs"] == {**exact, "by_state": told["runs"]["by_state"]}
    assert told["runs"]["by_state"] == {"succeeded": 1, "failed": 1, "queued": 1}
    assert sum(one["succeeded"] for one in told["throughput"]) == 1
    assert sum(one["failed"] for one in told["throughput"]) == 1
    assert sum(one["other"] for one in told["throughput"]) == 1
    assert told["failures"] == {"total": 1, "is_estimate": False, "by_category": {"transient": 1}}
    assert told["durations"]["runs"] == 2
    assert 0 < told["durations"]["p50_seconds"] <= told["durations"]["max_seconds"]
    assert {(one["workflow"], one["step"], one["attempts"]) for one in told["slowest_steps"]} == {
        ("good", "one", 1),
        ("bad", "one", 1),
    }
    assert [(one["workflow"], one["runs"], one["succeeded"], one["failed"]) for one in told["workflows"]] == [
        ("good", 2, 1, 0),
        ("bad", 1, 0, 1),
    ]
    for one in told["workflows"]:
        assert (sum(one["started"]), sum(one["failed_in"])) == (one["runs"], one["failed"])
        assert 0 < one["p50_seconds"] <= one["p95_seconds"]
    assert [one["ready"] for one in told["backlog"]] == [1]
    assert told["backlog"][0]["oldest_seconds"] >= 0
    assert {one["workflow"] for one in told["newest_ends"]} == {"good", "bad"}
    assert waiting not in [one["run_id"] for one in told["newest_ends"]]


def test_a_system_without_runs_has_statistics_too(database_url: str) -> None:
    with sk.open(database_url) as engine:
        told = engine.statistics()["statistics"]
        with pytest.raises(InvalidInput, match="window"):
            engine.statistics(window="soon")
    assert told["runs"]["total"] == 0
    assert told["durations"] == {
        "runs": 0,
        "p50_seconds": None,
        "p90_seconds": None,
        "p99_seconds": None,
        "max_seconds": None,
    }
    assert told["slowest_steps"] == told["backlog"] == told["newest_ends"] == []


def test_slow_steps_come_from_all_of_the_window() -> None:
    ids = [str(number) for number in range(2_500)]
    chosen = statistics.spread_out(ids, 1_000)
    assert (chosen[0], chosen[1], chosen[-1], len(chosen)) == ("0", "3", "2499", 834)
    assert statistics.spread_out(ids[:7], 1_000) == ids[:7]


def test_a_run_belongs_to_the_span_in_which_it_was_created() -> None:
    first, last = 1_700_000_000 * SECOND, 1_700_000_300 * SECOND
    runs = [a_run(first), a_run(first + 10 * SECOND, "failed"), a_run(last, "running")]
    spans = statistics.throughput(Sample(runs=runs, total=len(runs)), first, last)
    assert len(spans) == statistics.BUCKETS
    assert [spans[0]["succeeded"], spans[1]["failed"], spans[-1]["other"]] == [1, 1, 1]


def test_durations_are_those_that_so_many_runs_ended_within() -> None:
    told = statistics.durations(second * SECOND for second in range(1, 101))
    assert (told["p50_seconds"], told["p90_seconds"], told["p99_seconds"], told["max_seconds"]) == (51, 91, 100, 100)
