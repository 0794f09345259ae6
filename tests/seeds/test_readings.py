"""Sentences of the seeds that can be read in several ways, each as it was decided (docs/dialects/index.md)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.seeds import action_stage, ioa_stage
from tests.seeds.action_stage import action, document
from tests.workbench import TENANT, on, task

from stepkeep.definition.native.validators import attempts_bound
from stepkeep.definition.python.retry import Retry
from stepkeep.kernel.definition import SECOND, Definition, Handler
from stepkeep.kernel.errors import Conflict, Fenced, InvalidInput
from stepkeep.kernel.machine.outcomes import Failed
from stepkeep.kernel.machine.states import Category, RunState

MANUAL = {"completionMode": "ManualOnly", "completionDeadlineMs": 60_000}


def test_003_an_expired_manual_completion_is_no_decision_of_the_sweep(database_url: str) -> None:
    """003 §3.3, §5: nobody signalled, so nothing names a person and nothing was approved."""
    with action_stage.stage_on(database_url) as stage:
        stage.start(action("a", 1, **MANUAL)).claim("a")
        stage.finish("a").later(61)
        [shown] = stage.view()["actions"]
        assert "approval" not in shown
        assert shown["manualCompletion"].get("actorUserId") is None
        assert shown["manualCompletion"]["outcome"] == "expired"
        [entry] = [one for one in stage.view()["evidence"] if one["payload"]["kind"] == "manualCompletion"]
        assert (entry["actor"], entry["category"]) == ({"kind": "System"}, "Action")
        with pytest.raises(Conflict, match="before its deadline"):
            stage.signal(stage.payload("a"))


async def test_004_a_claim_after_the_time_limit_finds_the_workstream_ended(database_url: str) -> None:
    """004 max_duration_seconds, review E5: no sweep runs between the limit and the claim."""
    limited = Definition(name="limited", version=1, steps=(task("a", 1), task("b", 2)), timeout=5 * SECOND)

    async with on(database_url) as bench:
        run_id = await bench.start(limited)
        [first] = await bench.claim()
        bench.store.clock_offset += 6 * SECOND
        assert await bench.claim() == []
        assert await bench.state(run_id) is RunState.FAILED
        assert isinstance(await bench.report(first), Fenced)


async def test_003_order_holds_among_actions_that_compete_for_the_same_slots(database_url: str) -> None:
    """003 §1.2: a coroutine needs no thread, so it does not wait for an action of lower order that needs one."""
    steps = (
        task("thread", 1),
        task("waits", 2, executor=Handler(name="other")),
        task("later", 3, executor=Handler(name="other")),
    )

    async with on(database_url) as bench:
        run_id = await bench.start(Definition(name="kinds", version=1, steps=steps))
        rows = {row.no: row.queue for row in await bench.store.read_steps(TENANT, run_id)}
        everything = await bench.claimer()
        coroutines = replace(everything, queues=frozenset({rows[1]}))
        claims = [
            *await bench.transactor.claim(coroutines, limit=1),
            *await bench.transactor.claim(everything, limit=1),
            *await bench.transactor.claim(everything, limit=1),
        ]
        assert [claim.step.no for claim in claims] == [1, 0, 2]


def test_003_a_run_whose_actions_were_all_cancelled_has_not_succeeded(database_url: str) -> None:
    with action_stage.stage_on(database_url) as stage:
        stage.start(action("a", 1, completionMode="ManualOnly")).claim("a")
        stage.finish("a").signal(stage.payload("a", "Cancelled"))
        assert (stage.last()["a"], stage.status) == ("Cancelled", "Cancelled")


def test_003_a_manual_wait_ends_without_a_signal_only_by_an_extension(database_url: str) -> None:
    """003 §2 rule 4 asks for a signal; a run that stops must not leave an action waiting."""
    with action_stage.stage_on(database_url) as stage:
        stage.start(action("a", 1, completionMode="ManualOnly")).claim("a")
        stage.finish("a").cancel()
        assert ("WaitingForManualCompletion", "Cancelled") in stage.extensions()


@pytest.mark.parametrize("seed", ["000", "003"])
def test_a_delay_that_is_asked_for_is_limited_by_the_longest_one(database_url: str, seed: str) -> None:
    """000 §3.2 maxDelay, 003 §3.1 maxBackoffMs."""
    later = Failed(category=Category.TRANSIENT, error="busy", delay=600 * SECOND)
    if seed == "000":
        with ioa_stage.stage_on(database_url) as stage:
            stage.start("steps: [{ name: a, agent: x, action: do, timeout: 1m }]").claim("a")
            stage.report("a", later)
            assert stage.later(61).ready() == {"a"}
    else:
        with action_stage.stage_on(database_url) as other:
            other.start(action("a", 1)).claim("a")
            assert other.report("a", later).later(31).claim("a") == ["a"]


def test_000_a_workflow_that_timed_out_tells_the_reason(database_url: str) -> None:
    """000 §3.4: no step failed, and the workflow is not healthy for that."""
    with ioa_stage.stage_on(database_url) as stage:
        stage.start("timeout: 30m\nsteps: [{ name: a, agent: x, action: do, timeout: 1m }]").later(1801)
        [condition] = stage.view()["status"]["conditions"]
        assert (condition["status"], condition["reason"]) == ("False", "WorkflowTimeout")
        assert "timeout" in condition["message"]


def test_000_a_timed_out_hook_is_tried_again(database_url: str) -> None:
    """000 §4.2 rule 3: compensations are idempotent, and one that is given up early leaves the rollback partial."""
    with ioa_stage.stage_on(database_url) as stage:
        stage.start(
            """
            failurePolicy: compensate
            steps:
              - { name: a, agent: x, action: do, timeout: 1m }
              - { name: b, agent: x, action: do, timeout: 1m, dependsOn: [a] }
            compensation: [{ step: a, agent: x, action: undo }]
            """
        ).finish("a").fail("b", "validation")
        stage.time_out("undo:a").later(2)
        stage.finish("undo:a")
        assert stage.state == "completed"


def test_an_operator_may_allow_more_attempts_in_every_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """Design §4: 1 to 10 in the seeds' formats, an operator may raise the bound. The native one has it raised."""
    spec = "steps: [{ name: a, agent: x, action: do, timeout: 1m, retryPolicy: { maxRetries: 10 } }]"
    flow = document(action("a", 1, retryPolicy={"maxAttempts": 11}))
    assert ioa_stage.check(ioa_stage.resource(spec)).definition is None
    assert action_stage.check(flow).definition is None
    assert Retry(max_attempts=11).to_kernel().max_attempts == 11
    monkeypatch.setenv("STEPKEEP_MAX_ATTEMPTS", "10000")
    assert ioa_stage.workflow(spec).steps[0].retry.max_attempts == 11
    assert action_stage.built(flow).steps[0].retry.max_attempts == 11
    assert Retry(max_attempts=10_000).to_kernel().max_attempts == 10_000
    monkeypatch.setenv("STEPKEEP_MAX_ATTEMPTS", "5")
    with pytest.raises(InvalidInput, match="from 1 to 5"):
        Retry(max_attempts=6)
    assert Retry(max_elapsed="1h").to_kernel().max_attempts == 5


@pytest.mark.parametrize("text", ["many", "0", "10001", "-1", "1.5"])
def test_a_bound_that_is_no_bound_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("STEPKEEP_MAX_ATTEMPTS", text)
    with pytest.raises(InvalidInput, match="STEPKEEP_MAX_ATTEMPTS must be a whole number from 1 to 10000"):
        attempts_bound()


# -- compensation in the words of the seeds that have it -------------------------------------------------------------
def compensations(lines: list[dict[str, object]]) -> list[tuple[object, ...]]:
    chosen = [line for line in lines if line["event_type"] == "compensation_state_transition"]
    return [(line["metadata"]["step"], line["to_state"], line["trigger"]) for line in chosen]  # type: ignore[index]


def test_000_every_compensation_has_its_lines(database_url: str) -> None:
    """000 §4.1, §4.2 rule 4: the last completed first; after a failure none runs."""
    with ioa_stage.stage_on(database_url) as stage:
        stage.start(
            """
            failurePolicy: compensate
            steps:
              - { name: a, agent: x, action: do, timeout: 1m }
              - { name: b, agent: x, action: do, timeout: 1m, dependsOn: [a] }
              - { name: c, agent: x, action: do, timeout: 1m, dependsOn: [b] }
            compensation: [{ step: a, agent: x, action: undo }, { step: b, agent: x, action: undo }]
            """
        ).finish("a", "b").fail("c", "validation").fail("undo:b", "validation")
        assert compensations(stage.log()) == [
            ("undo:b", "pending", "Compensation triggered"),
            ("undo:a", "pending", "Compensation triggered"),
            ("undo:b", "running", "Undo"),
            ("undo:b", "failed", "Compensation failure"),
            ("undo:a", "cancelled", "cancelled"),
        ]
        stage.judge()


def test_003_every_compensation_has_its_lines(database_url: str) -> None:
    """003 §4: hooks are retried without a way back, and one that fails keeps no other from running."""
    with action_stage.stage_on(database_url) as stage:
        hooks = action_stage.compensated("a", "b")
        stage.start(*action_stage.sequence("a", "b", "c"), capabilities=hooks | {"c:do": action_stage.side_effect()})
        stage.finish("a", "b").fail("c")
        stage.fail("undo:b", "transient").later(2)
        stage.fail("undo:b", "transient")
        stage.finish("undo:a")
        assert compensations(stage.log()) == [
            ("undo:b", "Pending", "triggered"),
            ("undo:a", "Pending", "triggered"),
            ("undo:b", "Running", "invoked"),
            ("undo:b", "Failed", "failed"),
            ("undo:a", "Running", "invoked"),
            ("undo:a", "Succeeded", "succeeded"),
        ]
        stage.judge()
