"""Resources of steps on a real database: exclusive, shared, pooled; their order, and what a lost worker frees."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from stepkeep.kernel.definition import Amount, Definition
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.outcomes import Released
from stepkeep.kernel.machine.states import RunState, StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.continuation.pausing import pause_run, resume_run
from stepkeep.operations.limits.resources import list_resources, set_pool
from stepkeep.operations.pipeline.expire import sweep_timers
from stepkeep.operations.pipeline.transact import Claim
from stepkeep.operations.runs.diagnosis import explain
from tests.workbench import TENANT, Bench, benches, on, task

CALLER = Caller(TENANT, "ann")


def needing(name: str = "build", length: int = 1, **resources: Amount) -> Definition:
    """Steps in a row, each of which needs these resources."""
    steps = [task(f"s{no}", no, [f"s{no - 1}"] if no else []) for no in range(length)]
    return Definition(name=name, version=1, steps=tuple(replace(step, resources=resources) for step in steps))


async def pool(bench: Bench, resource: str, most: int | None) -> dict[str, Any]:
    return await set_pool(bench.store, resource, most, caller=CALLER)


async def claimed(bench: Bench, limit: int = 10) -> list[Claim]:
    return await bench.claim(limit)


async def holders(bench: Bench, resource: str = "repo") -> list[str]:
    found = (await list_resources(bench.store, TENANT))["resources"]
    return [one["run_id"] for row in found if row["resource"] == resource for one in row["holders"]]


async def causes(bench: Bench, run: str) -> list[tuple[str, str]]:
    found = await explain(bench.transactor, run, None, tenant=TENANT)
    return [(cause.code.value, cause.sentence) for cause in found.causes]


async def test_an_exclusive_resource_has_one_holder(database_url: str) -> None:
    async with on(database_url) as bench:
        first, second = [await bench.start(needing(repo="exclusive")) for _ in range(2)]
        [claim] = await claimed(bench)
        assert claim.run_id == first
        assert await claimed(bench) == []
        assert await holders(bench) == [first]
        said = f"s0 waits for repo alone: it is held by step s0 of run {first}."
        assert await causes(bench, second) == [("resource", said)]
        assert await bench.store.stuck_runs(10) == []
        await bench.report(claim)
        assert await holders(bench) == []
        [claim] = await claimed(bench)
        assert claim.run_id == second
        await bench.report(claim)
        assert {await bench.state(run) for run in (first, second)} == {RunState.SUCCEEDED}


async def test_shared_holders_exclude_only_an_exclusive_one_and_it_is_not_starved(database_url: str) -> None:
    async with on(database_url) as bench:
        readers = [await bench.start(needing("read", repo="shared")) for _ in range(2)]
        reading = await claimed(bench)
        assert [claim.run_id for claim in reading] == readers
        writer = await bench.start(needing("write", repo="exclusive"))
        late = await bench.start(needing("read", repo="shared"))
        assert await claimed(bench) == [], "the reader that came later waits behind the writer"
        await bench.report_all(reading)
        [claim] = await claimed(bench)
        assert claim.run_id == writer
        assert await claimed(bench) == []
        await bench.report(claim)
        [claim] = await claimed(bench)
        assert claim.run_id == late


async def test_a_pool_gives_out_as_many_units_as_it_has(database_url: str) -> None:
    async with on(database_url) as bench:
        await pool(bench, "cpu", 3)
        runs = [await bench.start(needing(f"needs {units}", cpu=units)) for units in (2, 1, 1)]
        claims = await claimed(bench)
        assert [claim.run_id for claim in claims] == runs[:2]
        [(code, said)] = await causes(bench, runs[2])
        assert (code, said.split(": ")[1].split(" by")[0]) == ("resource", "3 of 3 are held")
        await bench.report(claims[1])
        assert [claim.run_id for claim in await claimed(bench)] == runs[2:]
        found = (await list_resources(bench.store, TENANT))["resources"]
        assert [(one["resource"], one["most"], one["held"], len(one["holders"])) for one in found] == [("cpu", 3, 3, 2)]


async def test_a_step_that_needs_more_than_a_pool_has_waits_and_holds_up_nothing(database_url: str) -> None:
    async with on(database_url) as bench:
        await pool(bench, "cpu", 1)
        large, small = await bench.start(needing("large", cpu=4)), await bench.start(needing(cpu=1))
        [claim] = await claimed(bench)
        assert claim.run_id == small
        assert await causes(bench, large) == [("resource", "s0 waits for 4 units of cpu, which has only 1.")]
        await bench.report(claim)
        await pool(bench, "cpu", None)
        [claim] = await claimed(bench)
        assert claim.run_id == large


async def test_steps_without_resources_pass_those_that_wait(database_url: str) -> None:
    async with on(database_url) as bench:
        holder, waiting = [await bench.start(needing(repo="exclusive")) for _ in range(2)]
        [held] = await claimed(bench)
        plain = await bench.start(Definition(name="plain", version=1, steps=(task("p", 0, []),)))
        [claim] = await claimed(bench)
        assert (held.run_id, claim.run_id) == (holder, plain)
        assert await bench.step_states(waiting) == [StepState.READY]


async def test_a_lost_worker_frees_what_its_step_held(database_url: str) -> None:
    async with on(database_url) as bench:
        first, second = [await bench.start(needing(repo="exclusive")) for _ in range(2)]
        [lost] = await claimed(bench)
        bench.store.clock_offset += lost.plan.definition.lease + 1
        assert await claimed(bench) == [], "the lease has ended, and nothing has fenced its holder off yet"
        await sweep_timers(bench.transactor)
        assert await holders(bench) == []
        [claim] = await claimed(bench)
        # The step that lost its worker is ready again since now, and comes behind the one that waits.
        assert (lost.run_id, claim.run_id) == (first, second)
        assert await holders(bench) == [second]
        await bench.report(claim)
        [again] = await claimed(bench)
        assert (again.run_id, again.step.fence) == (first, 2)


async def test_a_released_step_and_a_paused_run_hold_nothing(database_url: str) -> None:
    async with on(database_url) as bench:
        first, second = [await bench.start(needing(repo="exclusive")) for _ in range(2)]
        await pause_run(bench.transactor, first, caller=CALLER)
        [claim] = await claimed(bench)
        assert claim.run_id == second
        await resume_run(bench.transactor, first, caller=CALLER)
        assert await claimed(bench) == []
        await bench.report(claim, Released())
        assert await holders(bench) == []
        [claim] = await claimed(bench)
        assert claim.run_id == first


async def test_two_processes_never_give_one_resource_to_two_steps(database_url: str) -> None:
    async with benches(database_url, 2) as opened:
        one, other = opened
        runs = [await one.start(needing(repo="exclusive")) for _ in range(6)]
        other.transactor.steps_wait = True
        for _ in runs:
            found = await asyncio.gather(one.claim(6), other.claim(6))
            claims = [claim for some in found for claim in some]
            assert len(claims) == 1
            await (one if found[0] else other).report(claims[0])
        assert {await one.state(run) for run in runs} == {RunState.SUCCEEDED}


async def test_the_journal_tells_which_resources_a_claim_took(database_url: str) -> None:
    async with on(database_url) as bench:
        await pool(bench, "cpu", 8)
        run = await bench.start(needing(repo="exclusive", cpu=2))
        await claimed(bench)
        entries = [open_entry(entry.body) for entry in await bench.store.read_journal(TENANT, run)]
        assert entries[-1].causes[0].detail == {
            "resources": [
                {"name": "cpu", "amount": 2, "held": 0, "most": 8},
                {"name": "repo", "amount": "exclusive"},
            ]
        }


async def test_the_next_step_of_a_run_takes_its_resources_anew(database_url: str) -> None:
    async with on(database_url) as bench:
        run = await bench.start(needing(length=3, repo="exclusive"))
        assert await bench.work_off() == 3
        assert await bench.state(run) is RunState.SUCCEEDED
