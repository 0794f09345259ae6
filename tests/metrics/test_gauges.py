"""Gauges from the database: right, bounded, read seldom, and honest while the database is away."""

from __future__ import annotations

import stepkeep as sk
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.machine.rows import Worker
from stepkeep.metrics.families import Family
from stepkeep.metrics.gauges import FRESH_SECONDS, MOST_QUEUES, OTHER, StoreGauges, queue_rows
from stepkeep.operations.runs.diagnosis import Staff
from stepkeep.store.records import Backlog
from tests.workbench import SECOND, TENANT, chain, count_calls, on

Shown = dict[tuple[str, tuple[str, ...]], float]


def values(families: list[Family]) -> Shown:
    return {(one.name, tuple(one.labels.values())): one.value for family in families for one in family.samples}


async def test_live_runs_queues_and_workers_are_what_the_database_holds(database_url: str) -> None:
    async with on(database_url) as bench:
        for number in range(3):
            await bench.start(chain(f"many{number}", 2))
        await bench.claim()
        bench.store.clock_offset += 7 * SECOND
        shown = values(await StoreGauges(bench.transactor, TENANT).families())
        assert shown["stepkeep_runs", (TENANT, "queued")] == 2
        assert shown["stepkeep_runs", (TENANT, "running")] == 1
        [depth] = [value for (name, _), value in shown.items() if name == "stepkeep_queue_depth"]
        [oldest] = [value for (name, _), value in shown.items() if name == "stepkeep_queue_oldest_seconds"]
        assert depth == 2
        assert 7 <= oldest < 60
        assert shown["stepkeep_stuck_runs", ()] == 0
        assert shown["stepkeep_store_up", ()] == 1
        assert shown["stepkeep_store_bytes", ()] > 0
        assert sum(value for (name, _), value in shown.items() if name == "stepkeep_workers") == 1


async def test_scrapes_share_one_reading_and_an_outage_leaves_the_last_values_with_their_age(database_url: str) -> None:
    async with on(database_url) as bench:
        clock = [1000.0]
        gauges = StoreGauges(bench.transactor, monotonic=lambda: clock[0])
        await bench.start(chain("kept", 1))
        readings = count_calls(bench, "stuck_runs")
        for _ in range(5):
            await gauges.families()
            clock[0] += 1
        assert len(readings) == 1
        await bench.store.close()
        clock[0] += FRESH_SECONDS
        shown = values(await gauges.families())
        assert shown["stepkeep_store_up", ()] == 0
        assert shown["stepkeep_store_age_seconds", ()] == FRESH_SECONDS + 5
        assert shown["stepkeep_runs", (TENANT, "queued")] == 1
        await bench.store.open()


def test_a_thousand_queues_are_a_bounded_number_of_labels() -> None:
    specs = {number: QueueSpec(kind="python", name=f"h{number}", group="") for number in range(1000)}
    backlog = [Backlog(queue=number, depth=number + 1, oldest_at=0) for number in specs]
    no_workers: tuple[Worker, ...] = ()
    staff = Staff(now=9 * SECOND, specs=specs, workers=no_workers, former=())  # type: ignore[arg-type]
    depth, oldest = queue_rows("acme", backlog, staff)
    assert len(depth) == MOST_QUEUES + 1
    assert sum(depth.values()) == 500_500
    assert depth["acme", OTHER] == sum(range(1, 901))
    assert set(oldest.values()) == {9.0}


async def test_the_outbox_is_behind_by_what_its_oldest_event_waits(database_url: str) -> None:
    async with AsyncEngine(database_url, actor="ann") as engine:
        await engine.sinks.add("wire", "host", events=["transitions"])
        hello = sk.Workflow("hello")
        hello.approval("sign")
        await engine.start(await engine.publish(hello))
        engine.store.clock_offset += 30 * SECOND
        shown = values(await StoreGauges(engine.transactor).families())
        assert shown["stepkeep_outbox_waiting", ("default", "wire")] == 1
        assert shown["stepkeep_outbox_dead", ("default", "wire")] == 0
        assert 30 <= shown["stepkeep_outbox_lag_seconds", ("default", "wire")] < 3600
