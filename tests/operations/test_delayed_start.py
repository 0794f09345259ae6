"""Delayed start, on both databases: a run is idle until its moment, and a sweep of any worker starts it then."""

from __future__ import annotations

import pytest

import stepkeep as sk
from stepkeep.kernel.definition import Approval, Definition
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.states import RunState, StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.pipeline.expire import sweep
from stepkeep.operations.pipeline.start import Starter, StartRequest, start_idle
from stepkeep.operations.runs.diagnosis import explain
from stepkeep.operations.runs.views import describe_run
from tests.workbench import SECOND, TENANT, Bench, gate, on, task

HOUR = 3_600 * SECOND
LATER = Definition(name="later", version=1, steps=(task("ship"),), timeout=60 * SECOND)
GATED = Definition(name="gated", version=1, steps=(gate("sign", approval=Approval()),))


async def delayed(bench: Bench, definition: Definition = LATER, **given: object) -> str:
    plan = await bench.publish(definition)
    request = StartRequest(plan=plan, caller=Caller(TENANT, "ann"), **{"start_delay": HOUR, **given})  # type: ignore[arg-type]
    return (await Starter(bench.transactor).start(request)).run_id


async def test_nothing_of_a_delayed_run_is_claimed_before_its_moment(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await delayed(bench)
        bench.store.clock_offset = HOUR - 10 * SECOND
        await sweep(bench.transactor)
        assert (await bench.state(run_id), await bench.claim(5)) == (RunState.IDLE, [])
        bench.store.clock_offset = HOUR + SECOND
        await sweep(bench.transactor)
        assert await bench.state(run_id) is RunState.QUEUED
        assert await bench.work_off() == 1
        assert await bench.state(run_id) is RunState.SUCCEEDED


async def test_no_gate_opens_before_the_moment(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await delayed(bench, GATED)
        assert await bench.step_states(run_id) == [StepState.PENDING]
        bench.store.clock_offset = HOUR + SECOND
        await sweep(bench.transactor)
        assert await bench.step_states(run_id) == [StepState.AWAITING_APPROVAL]


async def test_the_timeout_counts_from_the_real_start(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await delayed(bench)
        bench.store.clock_offset = HOUR + 50 * SECOND
        await sweep(bench.transactor)
        bench.store.clock_offset = HOUR + 100 * SECOND
        await sweep(bench.transactor)
        assert await bench.state(run_id) is RunState.QUEUED
        bench.store.clock_offset = HOUR + 120 * SECOND
        await sweep(bench.transactor)
        assert await bench.state(run_id) is RunState.FAILED


async def test_a_delayed_run_can_be_cancelled_and_can_be_started_early(database_url: str) -> None:
    async with on(database_url) as bench:
        cancelled, early = await delayed(bench), await delayed(bench)
        await bench.cancel(cancelled)
        await start_idle(bench.transactor, early, caller=Caller(TENANT, "bea"))
        assert await bench.state(early) is RunState.QUEUED
        bench.store.clock_offset = HOUR + SECOND
        await sweep(bench.transactor)
        assert await bench.state(cancelled) is RunState.CANCELLED


async def test_the_view_and_the_explanation_name_the_moment(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await delayed(bench)
        view = await describe_run(bench.transactor, run_id, tenant=TENANT)
        assert view["run"]["starts_at"] is not None
        [cause] = (await explain(bench.transactor, run_id, None, tenant=TENANT)).causes
        assert (cause.code, cause.command) == ("scheduled", ("start", "--run", run_id))
        assert "starts in 59m" in cause.sentence or "starts in 1h" in cause.sentence


async def test_a_moment_that_has_passed_starts_the_run_at_once(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await delayed(bench, start_delay=None, start_at=1)
        assert await bench.state(run_id) is RunState.QUEUED


async def test_a_start_with_two_moments_or_none_to_come_is_refused(database_url: str) -> None:
    async with on(database_url) as bench:
        with pytest.raises(InvalidInput, match="not both"):
            await delayed(bench, start_at=1)
        with pytest.raises(InvalidInput, match="has no moment to start at"):
            await delayed(bench, start_now=False)


def test_a_delayed_run_conforms_in_every_dialect(database_url: str) -> None:
    flow = sk.Workflow("later", timeout="1h", registry=sk.Registry())
    flow.sleep("nap", "1ms")
    with sk.open(database_url, registry=flow.registry) as engine:
        run_id = engine.start(flow, delay="1ms").run_id
        with engine.start_worker():
            assert engine.wait(run_id, seconds=60).state == "succeeded"
        certificate = engine.certify(run_id)
        assert certificate.ok, certificate
