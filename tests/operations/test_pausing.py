"""Pausing a run on a real database: nothing of it is claimed, what is in flight settles, and the record says who."""

from __future__ import annotations

import pytest

from stepkeep.evidence.collect import collect
from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.decide.draft import HELD_BACK
from stepkeep.kernel.definition import Approval, Definition, Handler, StepDefinition, Undo
from stepkeep.kernel.errors import Conflict
from stepkeep.kernel.machine.outcomes import Failed
from stepkeep.kernel.machine.states import Category, OnFailure, RunState, StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.continuation.pausing import pause_run, resume_run
from stepkeep.operations.limits.pauses import pause_claims
from stepkeep.operations.runs.diagnosis import explain, view
from stepkeep.operations.runs.views import describe_run
from tests.workbench import TENANT, Bench, chain, on, task

GATED = Definition(
    name="gated",
    version=1,
    steps=(task("first"), StepDefinition(name="sign", order=1, approval=Approval()), task("last", 2, ["first"])),
)


async def pause(bench: Bench, run_id: str, reason: str = "") -> Accepted:
    return await pause_run(bench.transactor, run_id, caller=Caller(TENANT, "ann"), reason=reason)


async def resume(bench: Bench, run_id: str) -> Accepted:
    return await resume_run(bench.transactor, run_id, caller=Caller(TENANT, "bea"))


async def test_a_paused_run_is_not_claimed_and_another_one_is(database_url: str) -> None:
    async with on(database_url) as bench:
        paused, other = await bench.start(chain("three", 3)), await bench.start(chain("three", 3))
        assert (await pause(bench, paused)).record["state"] is RunState.PAUSED
        [claim] = await bench.claim()
        assert claim.step.run_id == other
        await bench.report(claim)
        assert await bench.work_off() == 2
        assert await bench.state(paused) is RunState.PAUSED
        assert (await resume(bench, paused)).record["state"] is RunState.QUEUED
        assert await bench.work_off() == 3
        assert await bench.state(paused) is RunState.SUCCEEDED


async def test_what_is_in_flight_settles_and_what_follows_waits(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(chain("three", 3))
        [claim] = await bench.claim()
        await pause(bench, run_id)
        assert isinstance(await bench.report(claim), Accepted)
        steps = await bench.store.read_steps(TENANT, run_id)
        assert [step.state for step in steps] == [StepState.SUCCEEDED, StepState.READY, StepState.PENDING]
        assert steps[1].ready_at == HELD_BACK
        assert await bench.claim() == []
        assert await bench.store.stuck_runs(10) == []
        await resume(bench, run_id)
        assert await bench.work_off() == 2


async def test_explain_says_who_paused_and_how_to_go_on(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(chain("three", 3))
        await pause(bench, run_id, "the shop is closed")
        found = await explain(bench.transactor, run_id, None, tenant=TENANT)
        assert {cause.code for cause in found.causes} == {"paused"}
        whole = next(cause for cause in found.causes if cause.subject == f"run {run_id}")
        assert "is paused by ann since" in whole.sentence
        assert "the shop is closed" in whole.sentence
        assert whole.command == ("resume", run_id)


@pytest.mark.parametrize(
    ("queue", "also_run", "pause_view", "command"),
    [
        ("printers", False, {"scope": "queue", "queue": "printers"}, "stepkeep resume --queue printers"),
        (None, False, {"scope": "tenant", "queue": None}, "stepkeep resume --all"),
        (None, True, {"scope": "run", "queue": None}, "stepkeep resume {run}"),
    ],
)
async def test_explain_names_the_pause_that_has_to_end_first(
    database_url: str, queue: str | None, also_run: bool, pause_view: dict[str, str | None], command: str
) -> None:
    """A run that is paused itself is resumed first: no queue of it is claimed from while it is."""

    async with on(database_url) as bench:
        run_id = await bench.start(Definition(name="print", version=1, steps=(task("print", queue="printers"),)))
        caller = Caller(TENANT, "ann")
        await pause_claims(bench.store, queue, "out of paper", caller=caller)
        if also_run:
            await pause(bench, run_id)
        told = view(await explain(bench.transactor, run_id, None, tenant=TENANT))
        first = told["causes"][0]
        assert (first["code"], first["pause"]) == ("paused", pause_view)
        assert first["command"] == command.format(run=run_id)


async def test_a_gate_is_approved_or_rejected_and_a_ready_step_is_skipped_or_failed_unless_its_run_is_paused(
    database_url: str,
) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(GATED)

        async def choices() -> dict[str, list[str]]:
            steps = (await describe_run(bench.transactor, run_id, tenant=TENANT))["steps"]
            return {step["name"]: step["choices"] for step in steps}

        assert await choices() == {"first": ["skip", "fail"], "sign": ["approve", "reject"], "last": []}
        await pause(bench, run_id)
        assert await choices() == {"first": [], "sign": ["approve", "reject"], "last": []}


async def test_a_pause_is_found_behind_many_later_entries(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(chain("one", 1))
        await pause(bench, run_id, "long ago")
        for number in range(205):
            await bench.send(run_id, "news", message_id=str(number))
        found = await explain(bench.transactor, run_id, None, tenant=TENANT)
        assert any("long ago" in cause.sentence for cause in found.causes)


async def test_a_finished_run_is_not_paused(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(chain("one", 1))
        await bench.work_off()
        with pytest.raises(Conflict, match="a finished run cannot be paused"):
            await pause(bench, run_id)


async def test_a_run_that_was_paused_at_every_place_is_certified_in_every_dialect(database_url: str) -> None:
    """Queued, running with work in flight, blocked, and with nothing left to do."""

    async with on(database_url) as bench:
        run_id = await bench.start(GATED)
        await pause(bench, run_id)
        await resume(bench, run_id)
        for claim in await bench.claim():
            await pause(bench, run_id, "in flight")
            await bench.report(claim)
            await resume(bench, run_id)
        await bench.work_off()
        assert await bench.state(run_id) is RunState.BLOCKED
        await pause(bench, run_id)
        await bench.approve(run_id, "sign")
        assert await bench.state(run_id) is RunState.PAUSED
        await resume(bench, run_id)
        assert await bench.state(run_id) is RunState.SUCCEEDED
        certificate = await (await collect(bench.transactor, run_id, tenant=TENANT)).certificate()
        assert certificate.ok, certificate


async def test_a_failure_in_a_pause_rolls_back_and_is_certified_in_every_dialect(database_url: str) -> None:
    async with on(database_url) as bench:
        undo = Undo(executor=Handler(name="noop"))
        steps = (task("book", undo=undo), task("pay", 1, ["book"], on_failure=OnFailure.COMPENSATE))
        run_id = await bench.start(Definition(name="undone", version=1, steps=steps))
        [booked] = await bench.claim()
        await bench.report(booked)
        [paid] = await bench.claim()
        await pause(bench, run_id)
        await bench.report(paid, Failed(category=Category.AUTH, error="no"))
        assert await bench.state(run_id) is RunState.COMPENSATING
        await bench.work_off()
        assert await bench.state(run_id) is RunState.ROLLED_BACK
        certificate = await (await collect(bench.transactor, run_id, tenant=TENANT)).certificate()
        assert certificate.ok, certificate
