"""Execution slots on a real database: limits of workflows and tenants, the order of grants, and each run once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from stepkeep.kernel.definition import Definition
from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.outcomes import Failed
from stepkeep.kernel.machine.states import Category, RunState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.continuation.pausing import pause_run, resume_run
from stepkeep.operations.limits.slots import SlotSweep, list_slots, set_limit
from stepkeep.operations.runs.diagnosis import explain
from stepkeep.operations.runs.views import describe_run
from stepkeep.store.rows import SlotRow
from tests.workbench import TENANT, Bench, benches, chain, on

CALLER = Caller(TENANT, "ann")


def limited(slots: int = 2, name: str = "order", length: int = 1, **options: Any) -> Definition:
    return chain(name, length, slots=slots, **options)


async def running(bench: Bench, runs: list[str]) -> list[int]:
    """The places of the runs that are past their slot and have not ended."""
    found = [await bench.store.read_run(TENANT, run) for run in runs]
    return [
        place
        for place, one in enumerate(found)
        if one is not None and one.run.ended_at is None and (one.run.moving or one.run.state is not RunState.QUEUED)
    ]


async def sweep(bench: Bench) -> int:
    slots = SlotSweep(bench.transactor)
    try:
        return await slots.sweep()
    finally:
        slots.close()


async def limit(bench: Bench, most: int | None, workflow: str | None = None) -> dict[str, Any]:
    found = await set_limit(bench.store, workflow, most, caller=CALLER)
    bench.starter.limits.forget(TENANT)
    return found


async def test_as_many_runs_run_as_the_definition_says_in_the_order_of_their_arrival(database_url: str) -> None:
    async with on(database_url) as bench:
        runs = [await bench.start(limited(2)) for _ in range(5)]
        assert await running(bench, runs) == [0, 1]
        assert await sweep(bench) == 0
        assert await bench.store.stuck_runs(10) == []
        for first in (0, 1, 2):
            [claim] = [one for one in await bench.claim(1) if one.run_id == runs[first]]
            await bench.report(claim)
            assert await sweep(bench) == 1
            assert await running(bench, runs) == [first + 1, first + 2]
        assert await bench.work_off() == 2
        assert await sweep(bench) == 0
        assert {await bench.state(run) for run in runs} == {RunState.SUCCEEDED}


async def test_a_high_priority_comes_first(database_url: str) -> None:
    async with on(database_url) as bench:
        runs = [await bench.start(limited(1), priority=priority) for priority in (0, 0, 9)]
        assert await running(bench, runs) == [0]
        await bench.work_off()
        assert await sweep(bench) == 1
        assert await running(bench, runs) == [2]


async def test_a_slot_is_held_while_its_run_is_paused_and_free_when_it_ended_in_any_way(database_url: str) -> None:
    async with on(database_url) as bench:
        runs = [await bench.start(limited(1)) for _ in range(4)]
        await pause_run(bench.transactor, runs[0], caller=Caller(TENANT, "ann"))
        assert await sweep(bench) == 0
        await bench.cancel(runs[0])
        assert await sweep(bench) == 1
        [claim] = await bench.claim()
        assert claim.run_id == runs[1]
        await bench.report(claim, Failed(category=Category.VALIDATION, error="no"))
        assert await bench.state(runs[1]) is RunState.FAILED
        assert await sweep(bench) == 1
        assert await running(bench, runs) == [2]


async def test_a_run_that_is_paused_while_it_waits_keeps_its_place_and_lets_others_pass(database_url: str) -> None:
    async with on(database_url) as bench:
        runs = [await bench.start(limited(1)) for _ in range(4)]
        await pause_run(bench.transactor, runs[1], caller=Caller(TENANT, "ann"))
        await bench.cancel(runs[0])
        assert await sweep(bench) == 1
        assert await running(bench, runs) == [1, 2]
        assert await bench.state(runs[1]) is RunState.PAUSED
        accepted = await resume_run(bench.transactor, runs[1], caller=Caller(TENANT, "ann"))
        assert accepted.record["state"] is RunState.QUEUED
        await bench.cancel(runs[2])
        assert await sweep(bench) == 1
        assert await running(bench, runs) == [1]


async def test_runs_that_are_cancelled_while_they_wait_leave_no_row_behind(database_url: str) -> None:
    async with on(database_url) as bench:
        runs = [await bench.start(limited(1)) for _ in range(3)]
        for run in runs[1:]:
            await bench.cancel(run)
        await sweep(bench)
        assert [await bench.store.slots.read(TENANT, run) is None for run in runs] == [False, True, True]
        await bench.work_off()
        assert await bench.store.slots.find_workflows() == []


async def test_a_limit_of_the_tenant_counts_over_workflows_and_blocks_no_other(database_url: str) -> None:
    async with on(database_url) as bench:
        await limit(bench, 2)
        narrow, wide = limited(1, "narrow"), chain("wide", 1)
        runs = [await bench.start(one) for one in (narrow, narrow, narrow, wide, wide)]
        assert await running(bench, runs) == [0, 3]
        view = {one["workflow"]: one for one in (await list_slots(bench.store, TENANT))["slots"]}
        assert view[None] == {"scope": "tenant", "workflow": None, "most": 2, "held": 2, "waiting": 3}
        assert (view["narrow"]["most"], view["wide"]["most"], view["narrow"]["waiting"]) == (1, None, 2)
        await limit(bench, None)
        assert await sweep(bench) == 1
        assert await running(bench, runs) == [0, 3, 4]


async def test_a_setting_counts_before_the_definition(database_url: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(limited(1))
        runs = [await bench.start(plan) for _ in range(4)]
        await limit(bench, 3, "order")
        assert await sweep(bench) == 2
        assert await running(bench, runs) == [0, 1, 2]
        await limit(bench, None, "order")
        assert await sweep(bench) == 0


@pytest.mark.parametrize("most", [0, -1, True, 1.5, "3", 10**9])
async def test_a_limit_is_a_whole_number_from_1_on(database_url: str, most: Any) -> None:
    async with on(database_url) as bench:
        with pytest.raises(InvalidInput, match="whole number"):
            await limit(bench, most)
        with pytest.raises(NotFound, match="no workflow"):
            await limit(bench, 3, "nothing")


async def test_an_idle_run_takes_its_slot_when_it_is_started(database_url: str) -> None:
    async with on(database_url) as bench:
        from stepkeep.operations.pipeline.start import start_idle

        idle = await bench.start(limited(1), start_now=False)
        later = await bench.start(limited(1))
        assert await running(bench, [later]) == [0]
        await start_idle(bench.transactor, idle, caller=Caller(TENANT, "ann"))
        assert await sweep(bench) == 0
        assert await bench.state(idle) is RunState.QUEUED
        await bench.work_off()
        assert await sweep(bench) == 1
        assert await bench.work_off() == 1


async def test_several_processes_grant_each_slot_once(database_url: str) -> None:
    async with benches(database_url, 3) as opened:
        first = opened[0]
        plan = await first.publish(limited(3))
        runs = [(await one.begin(plan, input=b"{}")).run_id for _ in range(4) for one in opened]
        most = 0
        for _ in range(len(runs) + 1):
            await asyncio.gather(*(sweep(one) for one in opened))
            held = await running(first, runs)
            most = max(most, len(held))
            assert len(held) <= 3
            for claim in await first.claim(1):
                await first.report(claim)
        assert most == 3
        assert {await first.state(run) for run in runs} == {RunState.SUCCEEDED}
        grants = [
            cause.detail["scopes"]
            for run in runs
            for entry in await first.store.read_journal(TENANT, run, after=0, limit=10)
            for cause in open_entry(entry.body).causes
            if cause.event == "slot_granted" and cause.detail is not None
        ]
        assert len(grants) == len(runs)
        assert all(one["held"] < one["most"] == 3 for scopes in grants for one in scopes)


async def test_explain_and_show_say_what_a_run_waits_for(database_url: str) -> None:
    async with on(database_url) as bench:
        first, second = [await bench.start(limited(1)) for _ in range(2)]
        said = await explain(bench.transactor, second, None, tenant=TENANT)
        assert [(cause.code, cause.sentence) for cause in said.causes] == [
            ("slot", f"run {second} waits for a slot of workflow order: 1 of 1 run.")
        ]
        view = await describe_run(bench.transactor, second, tenant=TENANT)
        assert view["run"]["waits_for_slot"] == "a slot of workflow order: 1 of 1 run"
        assert (await describe_run(bench.transactor, first, tenant=TENANT))["run"]["waits_for_slot"] is None
        await bench.cancel(first)
        view = await describe_run(bench.transactor, second, tenant=TENANT)
        assert view["run"]["waits_for_slot"] == "a slot, which is free: a worker grants it"


async def test_a_run_under_no_limit_has_no_slot_and_costs_no_statement_more(database_url: str) -> None:
    async with on(database_url) as bench:
        run = await bench.start(chain("free", 1))
        assert await bench.store.slots.read(TENANT, run) is None
        assert await sweep(bench) == 0
        assert not bench.transactor.runs_wait


async def test_the_sweep_is_called_by_starts_and_by_ends_only_while_runs_wait(database_url: str) -> None:
    async with on(database_url) as bench:
        slots = SlotSweep(bench.transactor)
        await bench.start(chain("free", 1))
        await bench.work_off()
        assert not slots.changed.is_set()
        for _ in range(2):
            await bench.start(limited(1))
        assert slots.changed.is_set()
        await slots.sweep()
        assert not slots.changed.is_set()
        await bench.work_off()
        assert slots.changed.is_set()
        slots.close()


async def test_the_row_of_a_slot_keeps_the_limit_of_its_own_version(database_url: str) -> None:
    async with on(database_url) as bench:
        one = await bench.start(limited(1))
        two = await bench.start(replace(limited(4), version=2))
        rows = [await bench.store.slots.read(TENANT, run) for run in (one, two)]
        assert [row.most for row in rows if isinstance(row, SlotRow)] == [1, 4]
        assert await running(bench, [one, two]) == [0, 1]
