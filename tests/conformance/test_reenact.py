"""The judge re-enacts a journal from its definition: true runs pass, other stories do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace
from tests.conformance.lies import changed, find
from tests.conformance.logs import (
    cancel,
    entries_of,
    failure,
    held,
    log_of,
    retry,
    rollback,
    success,
    unfinished,
    written,
)
from tests.conformance.tellings import stories, walks
from tests.kernel.driver import TOKEN, World, work

from stepkeep.conformance.contract import Contract, read_contract
from stepkeep.conformance.report import Code, Finding
from stepkeep.conformance.verify import verify_lines
from stepkeep.kernel.definition import (
    SECOND,
    CompensateWhen,
    Completion,
    HookFailure,
    OnExhausted,
    Retry,
    Rule,
    StepDefinition,
    digest_of,
    encode_definition,
)
from stepkeep.kernel.machine.events import HoldChoice
from stepkeep.kernel.machine.journal import RUN_ENTITY, Cause, Entry
from stepkeep.kernel.machine.outcomes import Completed, Failed, RulesFailed, Stopped
from stepkeep.kernel.machine.states import Category, OnFailure, Rollback, RunState, StepState
from stepkeep.kernel.machine.tables import RunTrigger
from stepkeep.operations.logs.log import canonical_machines

MACHINES = canonical_machines()
Told = list[Entry]


def contract_of(world: World) -> Contract:
    found = read_contract(encode_definition(world.plan.definition))
    assert isinstance(found, Contract), found
    return found


def findings(world: World, entries: Sequence[Entry]) -> list[str]:
    report = verify_lines(written(entries, world.plan), MACHINES, contract=contract_of(world))
    return [str(finding) for finding in report.findings]


def test_every_run_that_the_kernel_makes_is_reenacted_without_a_finding() -> None:
    for world in [*stories(), reissued(), lost(), ruled_out(True), ruled_out(False), unrun(), *walks(80, seed=5)]:
        report = verify_lines(log_of(world), MACHINES, contract=contract_of(world))
        assert report.ok, report.findings[:3]


# -- stories that the machine's tables allow and the definition does not -----------------------------------------------
def with_hop(world: World, name: str, trigger: str, /, **changes: Any) -> Told:
    no = RUN_ENTITY if name == "run" else world.no(name)
    entries = entries_of(world)
    return changed(entries, *find(entries, no, trigger), **changes)


def with_cause(world: World, event: str, **changes: Any) -> Told:
    entries = entries_of(world)
    at, place = next(
        (at, place)
        for at, entry in enumerate(entries)
        for place, cause in enumerate(entry.causes)
        if cause.event == event
    )
    causes: list[Cause] = list(entries[at].causes)
    causes[place] = replace(causes[place], **changes)
    return [*entries[:at], replace(entries[at], causes=tuple(causes)), *entries[at + 1 :]]


def without_step(world: World, name: str) -> Told:
    no = world.no(name)
    kept = [replace(e, hops=tuple(hop for hop in e.hops if hop.no != no and hop.of != no)) for e in entries_of(world)]
    return [replace(entry, seq=seq) for seq, entry in enumerate((one for one in kept if one.hops), 1)]


def reissued() -> World:
    """A manual step whose token was replaced, and that was completed with the new one."""
    world = World(work("m", completion=Completion.MANUAL, completion_deadline=3_600_000_000))
    world.claim("m")
    world.report("m", Completed(token=TOKEN))
    world.reissue("m", "new")
    world.complete("m", token="new")
    return world


DENIED = {"effect": "deny", "rule": "dear", "by": "tenant", "revision": 1}


def cancelled_while_idle() -> World:
    world = World(work("a"), start=False)
    world.cancel()
    return world


def stopped() -> World:
    """A run stops for its cancel, and the worker then says that its handler has stopped."""
    world = World(work("a"), grace=SECOND)
    world.claim("a")
    world.cancel(compensate=True)
    world.report("a", Stopped())
    return world


def with_last_actor(world: World, actor: str) -> Told:
    *entries, last = entries_of(world)
    return [*entries, replace(last, causes=(replace(last.causes[0], actor=actor),))]


def with_message_again(world: World) -> Told:
    """The message that the run waited for is recorded once more, and nothing consumes it."""
    entries = entries_of(world)
    at = next(at for at, entry in enumerate(entries) if entry.causes[0].event == "message_arrived")
    again = replace(entries[at], causes=(*entries[at].causes, entries[at].causes[0]))
    return [*entries[:at], again, *entries[at + 1 :]]


def lost(**settings: Any) -> World:
    """A step lost its lease and waited for its next attempt when the run stopped; the run was rolled back in part."""
    failing = work("c", "a", on_failure=OnFailure.COMPENSATE)
    world = World(work("a", undo=True), work("b", "a", undo=True), failing, **settings)
    world.finish("a")
    world.lose("b")
    world.fail("c")
    world.finish("undo:a")
    return world


def ruled_out(failed: bool) -> World:
    """A step completed, and its rules failed or did not run; the run was rolled back in part."""
    rules = (Rule(expression="true"),)
    world = World(
        work("a", undo=True),
        work("b", "a", undo=True, rules=rules, on_failure=OnFailure.COMPENSATE),
        work("c", "a", on_failure=OnFailure.COMPENSATE),
        grace=SECOND,
    )
    world.finish("a")
    world.claim("b", "c")
    world.report("b", Completed())
    if failed:
        world.report("b", RulesFailed(error="not so"))
        world.report("c", Stopped())
    else:
        world.fail("c")
        world.later(2 * SECOND)
    world.finish("undo:a")
    return world


def unrun() -> World:
    """Rules before the handler of a step failed, so that the step is not undone although its attempts count."""
    rules = (Rule(expression="true"),)
    counts = {"compensate_when": CompensateWhen.ATTEMPTED, "on_failure": OnFailure.COMPENSATE, "pre": rules}
    world = World(work("a", undo=True), work("b", "a", undo=True, **counts))  # type: ignore[arg-type]
    world.finish("a")
    world.claim("b")
    world.report("b", Failed(category=Category.VALIDATION, error="not clean", final=True, unrun=True))
    world.finish("undo:a")
    return world


LIES: dict[str, tuple[Callable[[], World], Callable[[World], Told], Code]] = {
    "a backoff that the definition does not give": (
        retry,
        lambda world: with_hop(world, "a", "retry_scheduled", due_at=world_due(world) + 1),
        Code.TIMER,
    ),
    "a handler that ran is said not to have run": (
        failure,
        lambda world: with_hop(world, "a", "failed", category="validation", error="NOT_RUN: not clean"),
        Code.POLICY,
    ),
    "a handler that did not run is said to have run": (
        unrun,
        lambda world: with_hop(world, "b", "failed", error="not clean"),
        Code.UNDO,
    ),
    "a rule before the handler that fails as something else": (
        unrun,
        lambda world: with_hop(world, "b", "failed", category="auth"),
        Code.POLICY,
    ),
    "a step cut out": (failure, lambda world: without_step(world, "c"), Code.DEFINITION),
    "a fence that skips a number": (
        success,
        lambda world: with_hop(world, "pack", "claimed", fence=3),
        Code.FENCE,
    ),
    "a category that is retried where the step failed for good": (
        failure,
        lambda world: with_hop(world, "a", "failed", category="transient"),
        Code.ATTEMPT,
    ),
    "a report by another worker": (success, lambda world: with_cause(world, "step_reported", actor="w9"), Code.CAUSE),
    "an approval that was a rejection": (
        success,
        lambda world: with_cause(world, "gate_decided", detail={"step": "sign", "decision": "rejected"}),
        Code.CAUSE,
    ),
    "a person that vouches for itself": (
        success,
        lambda world: with_cause(
            world,
            "message_arrived",
            actor="ann",
            detail={"id": "m1", "name": "payment", "vouched_by": "ann"},
        ),
        Code.CAUSE,
    ),
    "a worker that was vouched for": (
        success,
        lambda world: with_cause(world, "step_reported", detail={"vouched_by": "portal"}),
        Code.CAUSE,
    ),
    "a new token without a reason": (
        reissued,
        lambda world: with_cause(world, "token_reissued", detail={"step": "m", "reason": ""}),
        Code.CAUSE,
    ),
    "a new token that gives more time": (
        reissued,
        lambda world: with_hop(world, "m", "token_reissued", due_at=2_000_000_000_000_000),
        Code.TIMER,
    ),
    "a message of another name": (
        success,
        lambda world: with_cause(world, "message_arrived", detail={"id": "m1", "name": "other"}),
        Code.CAUSE,
    ),
    "a retry by hand that was a skip": (
        held,
        lambda world: with_cause(world, "hold_decided", detail={"step": "a", "decision": "skipped"}),
        Code.CAUSE,
    ),
    "a step that is denied and stays where it is": (
        success,
        lambda world: with_cause(
            world, "run_started", detail={"policy": {world.plan.definition.steps[-1].name: DENIED}}
        ),
        Code.POLICY,
    ),
    "another step to blame": (failure, lambda world: with_hop(world, "run", "step_failed", of=1), Code.POLICY),
    "another error at the end": (
        failure,
        lambda world: with_hop(world, "run", "stopped_failed", error="x"),
        Code.ENDING,
    ),
    "a rollback nobody asked for": (
        rollback,
        lambda world: with_cause(world, "cancel_requested", detail={"compensate": False}),
        Code.POLICY,
    ),
    "a cancel that asked for compensation": (
        cancel,
        lambda world: with_cause(world, "cancel_requested", detail={"compensate": True}),
        Code.POLICY,
    ),
    "a rollback told as complete beside the effect of a lost lease": (
        lost,
        lambda world: with_hop(world, "run", "undo_failed", trigger=RunTrigger.UNDONE, target=RunState.ROLLED_BACK),
        Code.UNDO,
    ),
    "a rollback told as complete beside a step that failed by its rules": (
        lambda: ruled_out(True),
        lambda world: with_hop(world, "run", "undo_failed", trigger=RunTrigger.UNDONE, target=RunState.ROLLED_BACK),
        Code.UNDO,
    ),
    "a rollback told as complete beside a step whose rules did not run": (
        lambda: ruled_out(False),
        lambda world: with_hop(world, "run", "undo_failed", trigger=RunTrigger.UNDONE, target=RunState.ROLLED_BACK),
        Code.UNDO,
    ),
    "a rollback without its undo steps beside the effect of a lost lease": (
        lambda: lost(hook_failure=HookFailure.STOP),
        lambda world: without_step(world, "undo:a"),
        Code.UNDO,
    ),
    "a report in the detail of a creation": (
        success,
        lambda world: with_cause(world, "step_reported", detail={"input": "0" * 64}),
        Code.CAUSE,
    ),
    "a worker that reports the cancelled step of another": (
        stopped,
        lambda world: with_last_actor(world, "w9"),
        Code.CAUSE,
    ),
    "a message that arrives twice": (
        success,
        lambda world: with_message_again(world),
        Code.CAUSE,
    ),
    "a cancel that does not say whether to compensate": (
        cancelled_while_idle,
        lambda world: with_cause(world, "cancel_requested", detail=None),
        Code.CAUSE,
    ),
    "a gate with a deadline that it does not have": (
        unfinished,
        lambda world: with_hop(world, "b", "gate_opened", due_at=2_000_000_000_000_000),
        Code.TIMER,
    ),
}


def world_due(world: World) -> int:
    entries = entries_of(world)
    at, place = find(entries, world.no("a"), "retry_scheduled")
    return entries[at].hops[place].due_at or 0


@pytest.mark.parametrize("lie", LIES)
def test_a_story_that_the_definition_rules_out_is_found(lie: str) -> None:
    story, tell, code = LIES[lie]
    world = story()
    found = verify_lines(written(tell(world), world.plan), MACHINES, contract=contract_of(world)).findings
    assert code in {finding.code for finding in found}, found


def judged_by(world: World, steps: tuple[StepDefinition, ...]) -> tuple[Finding, ...]:
    """What the judge finds if the definition of a true run had these steps."""
    definition = replace(world.plan.definition, steps=steps)
    document = encode_definition(definition)
    plan = replace(world.plan, definition=definition, document=document, digest=digest_of(document))
    return verify_lines(written(entries_of(world), plan), MACHINES).findings


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"retry": Retry(max_attempts=2)}, Code.ATTEMPT),
        ({"on_exhausted": UNSET}, Code.POLICY),
    ],
    ids=["a retry had to come first", "the definition does not say hold"],
)
def test_a_hold_that_the_definition_does_not_give_is_found(changes: dict[str, Any], code: Code) -> None:
    world = held()
    first, *rest = world.plan.definition.steps
    found = judged_by(world, (replace(first, **changes), *rest))
    assert code in {finding.code for finding in found}, found


def test_a_failure_where_the_definition_says_hold_is_found() -> None:
    world = failure()
    steps = tuple(replace(step, on_exhausted=OnExhausted.HOLD) for step in world.plan.definition.steps)
    found = judged_by(world, steps)
    assert any("the definition says that it holds" in finding.message for finding in found), found


def test_a_held_step_whose_lease_was_lost_keeps_a_rollback_partial_when_a_person_fails_it() -> None:
    """The words of the person come after the error; the effect of the lost attempt is unknown as before."""
    retry_never = Retry(max_attempts=1, max_losses=1)
    world = World(
        work("a", undo=True),
        work("b", undo=True, on_exhausted=OnExhausted.HOLD, retry=retry_never, on_failure=OnFailure.COMPENSATE),
    )
    world.start()
    world.finish("a")
    world.claim("b")
    world.lose("b")
    assert world.state("b") is StepState.AWAITING_APPROVAL
    world.decide_hold("b", HoldChoice.FAIL, reason="no use")
    world.finish("undo:a")
    assert (world.run.state, world.run.rollback) == (RunState.FAILED, Rollback.PARTIAL)
    assert findings(world, entries_of(world)) == []


def test_a_definition_that_cannot_be_read_gives_a_reason() -> None:
    assert "cannot be read" in str(read_contract(b"{"))
    assert "cannot be read" in str(read_contract(b'{"name":"x"}'))
