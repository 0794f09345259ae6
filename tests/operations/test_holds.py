"""A step that holds because no attempt is left, on both databases: people retry, skip or fail it, on record."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import stepkeep as sk
from stepkeep.conformance.verify import verify_lines
from stepkeep.kernel.definition import (
    UNDO_RETRY,
    Definition,
    Dependency,
    Effect,
    Handler,
    OnExhausted,
    Retry,
    Undo,
)
from stepkeep.kernel.errors import Conflict, InvalidInput
from stepkeep.kernel.machine.outcomes import Completed, Failed
from stepkeep.kernel.machine.states import Category, RunState, StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.logs.lines import encode_line
from stepkeep.operations.logs.log import canonical_machines, export_run
from stepkeep.operations.people import people
from stepkeep.operations.runs.diagnosis import explain
from stepkeep.operations.runs.views import describe_run
from tests.workbench import TENANT, Bench, on, task

HELD = Definition(
    name="held",
    version=1,
    steps=(
        task("call", retry=Retry(max_attempts=2, initial=0), on_exhausted=OnExhausted.HOLD),
        replace(task("ship", 1), depends_on=(Dependency(step="call", allow=(StepState.SUCCEEDED, StepState.SKIPPED)),)),
    ),
)


async def exhausted(bench: Bench) -> str:
    """A run whose first step holds."""
    run_id = await bench.start(HELD)
    for _ in range(2):
        [claim] = await bench.claim(1)
        await bench.report(claim, Failed(category=Category.TRANSIENT, error="no route"))
    return run_id


async def decide(bench: Bench, run_id: str, choice: str, by: str = "ann", reason: str = "") -> dict[str, object]:
    done = people.decide_hold(bench.transactor, run_id, "call", choice, caller=Caller(TENANT, by), reason=reason)
    return people.answer_of(people.Decided, await done)


async def test_a_step_without_attempts_holds_and_says_what_moves_it(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await exhausted(bench)
        assert await bench.state(run_id) is RunState.BLOCKED
        view = await describe_run(bench.transactor, run_id, tenant=TENANT)
        [wait] = view["run"]["waiting_for"]
        assert (wait["for"], wait["step"], wait["attempts"], wait["error"]) == ("decision", "call", 2, "no route")
        assert [step["choices"] for step in view["steps"]] == [["retry", "skip", "fail", "complete"], []]
        told = await explain(bench.transactor, run_id, None, tenant=TENANT)
        [cause] = told.causes
        assert cause.code == "decision"
        assert "no attempt is left after 2 attempts (transient: no route)" in cause.sentence
        assert cause.command == ("decide", run_id, "call", "retry")
        assert await bench.claim(5) == []


async def test_a_retry_gives_new_attempts_and_the_record_names_person_and_reason(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await exhausted(bench)
        record = await decide(bench, run_id, "retry", reason="the network is back")
        assert (record["decision"], record["by"], record["reason"]) == ("retried", "ann", "the network is back")
        assert await bench.work_off() == 2
        view = await describe_run(bench.transactor, run_id, tenant=TENANT)
        assert view["run"]["state"] == "succeeded"
        assert [attempt["number"] for attempt in view["steps"][0]["history"]] == [1, 2, 3]


async def test_of_two_people_the_first_decides_and_the_other_hears_who(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await exhausted(bench)
        await decide(bench, run_id, "skip")
        assert (await decide(bench, run_id, "skip"))["repeated"]
        with pytest.raises(Conflict, match="was skipped by ann first"):
            await decide(bench, run_id, "fail", by="bea")
        assert await bench.step_states(run_id) == [StepState.SKIPPED, StepState.READY]


async def test_what_is_no_decision_is_refused_in_words(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await exhausted(bench)
        with pytest.raises(InvalidInput, match="Use retry, skip, fail or complete"):
            await decide(bench, run_id, "again")
        with pytest.raises(Conflict, match="Decide to retry, skip or fail it instead"):
            await bench.approve(run_id, by="ann")


def test_every_dialect_tells_a_held_run_and_the_judge_agrees(tmp_path: Path) -> None:
    def call() -> None:
        raise ConnectionError("no route")

    flow = sk.Workflow("flaky", registry=sk.Registry())
    flow.step("call", call, retry=sk.Retry(max_attempts=2, initial="1ms"), on_exhausted="hold")
    with sk.open(f"sqlite:///{tmp_path}/held.db", registry=flow.registry) as engine:
        held = engine.run(flow)
        engine.decide(held.run_id, "call", "retry", by="ann")
        again = engine.work_on(held.run_id)
        assert again.waiting_for[0]["for"] == "decision"
        engine.decide(held.run_id, "call", "fail", by="bea", reason="hopeless")
        assert engine.certify(held.run_id).ok
        ended = engine.show(held.run_id)["run"]
    assert (ended["state"], ended["error"]) == ("failed", "ConnectionError: no route (failed by bea: hopeless)")


async def test_a_step_that_waits_for_its_next_attempt_is_completed_by_a_person(database_url: str) -> None:
    async with on(database_url) as bench:
        slow = replace(HELD, name="slow", steps=(task("call", retry=Retry(max_attempts=2)), *HELD.steps[1:]))
        run_id = await bench.start(slow)
        [claim] = await bench.claim(1)
        await bench.report(claim, Failed(category=Category.TRANSIENT, error="no route"))
        asked = {"caller": Caller(TENANT, "ann"), "reason": "done by phone"}
        with pytest.raises(InvalidInput, match="only a completed step has an output"):
            await people.decide_hold(bench.transactor, run_id, "call", "skip", output=b"1", **asked)
        said = people.answer_of(
            people.Decided,
            await people.decide_hold(bench.transactor, run_id, "call", "complete", output=b'{"ok":true}', **asked),
        )
        assert (said["decision"], said["by"], said["reason"]) == ("completed", "ann", "done by phone")
        view = await describe_run(bench.transactor, run_id, tenant=TENANT)
        [call, _] = view["steps"]
        assert (call["state"], call["output"]) == ("succeeded", {"ok": True})
        [claim] = await bench.claim(1)
        assert claim.planned.name == "ship"


UNDONE = Definition(
    name="undone",
    version=1,
    steps=(
        task(
            "pay",
            undo=Undo(
                executor=Handler(name="refund"),
                retry=replace(UNDO_RETRY, initial=0),
                on_exhausted=OnExhausted.HOLD,
            ),
            effect=Effect.WRITE,
        ),
        task("ship", 1),
    ),
)


@pytest.mark.parametrize(("choice", "end"), [("complete", RunState.ROLLED_BACK), ("fail", RunState.FAILED)])
async def test_an_undo_that_says_hold_keeps_its_rollback_open_for_a_person(
    database_url: str, choice: str, end: RunState
) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(UNDONE)
        [claim] = await bench.claim(1)
        await bench.report(claim, Completed(output=b"{}"))
        await people.cancel(bench.transactor, run_id, compensate=True, reason="", caller=Caller(TENANT, "ann"))
        for _ in range(2):
            [claim] = await bench.claim(1)
            await bench.report(claim, Failed(category=Category.TRANSIENT, error="no route"))
        assert await bench.state(run_id) is RunState.COMPENSATING
        [cause] = (await explain(bench.transactor, run_id, None, tenant=TENANT)).causes
        assert "undo:pay holds" in cause.sentence
        assert "retried, completed or failed by a decision" in cause.sentence
        assert cause.command == ("decide", run_id, "undo:pay", "retry")
        assert await bench.store.stuck_runs() == []
        lines = [encode_line(line) async for line in export_run(bench.transactor, run_id, tenant=TENANT)]
        assert verify_lines(lines, canonical_machines()).findings == ()
        with pytest.raises(Conflict, match="cannot be skipped"):
            await people.decide_hold(bench.transactor, run_id, "undo:pay", "skip", caller=Caller(TENANT, "ann"))
        await people.decide_hold(bench.transactor, run_id, "undo:pay", choice, caller=Caller(TENANT, "ann"))
        assert await bench.state(run_id) is end
        lines = [encode_line(line) async for line in export_run(bench.transactor, run_id, tenant=TENANT)]
        assert verify_lines(lines, canonical_machines()).findings == ()
