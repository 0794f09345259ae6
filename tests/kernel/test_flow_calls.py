"""Flows: calls that are steps, suspensions that lose no wake-up, and ends that are told to the flow."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kernel.driver import World, work

from stepkeep.kernel.composition.child_runs import is_child
from stepkeep.kernel.decide.stopping import is_in_doubt
from stepkeep.kernel.definition import SECOND, Approval, Flow, Handler, Retry, StepDefinition, SubWorkflow, Undo, Wait
from stepkeep.kernel.errors import Conflict, InvalidInput
from stepkeep.kernel.machine.events import CodeChanged, HoldChoice
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.outcomes import Completed, Failed, NewCall, Released, Suspended
from stepkeep.kernel.machine.states import AttemptState, Category, OnFailure, RunState, StepState
from stepkeep.kernel.plan import template_of, written_template

S = StepState


def flow(*, settings: dict[str, Any] | None = None, **growth: Any) -> World:
    """A run of one flow, and a step after it."""
    return World(work("flow", growth=Flow(**{"max": 5, **growth}), **(settings or {})), work("after", "flow"))


def called(name: str = "charge", *, undo: bool = False, **template: Any) -> NewCall:
    hook = Undo(executor=Handler(name="noop")) if undo else None
    given = {"executor": Handler(name="noop"), "undo": hook, **template}
    step = written_template(StepDefinition(name="flow", order=0, **given))
    return NewCall(kind="step", name=name, digest="0", arguments=b"{}", step=step, queue=1, undo_queue=1)


def suspend(world: World, *calls: NewCall, seen: int = 0) -> None:
    """Claim the flow, and report that it makes these calls."""
    world.claim("flow")
    world.report("flow", Suspended(calls=calls, seen=seen))


def test_a_suspended_flow_gives_its_slot_back_and_counts_no_try() -> None:
    world = flow()
    suspend(world, called(), called("ship"))
    assert world.states() == {"flow": "awaiting_children", "after": "pending", "flow[0]": "ready", "flow[1]": "ready"}
    assert (world.row("flow").attempts, world.run.leased) == (0, 0)
    assert world.attempts_of("flow") == [AttemptState.WAITED]


def test_the_end_of_a_call_wakes_the_flow() -> None:
    world = flow()
    suspend(world, called(), called())
    world.finish("flow[0]")
    assert world.state("flow") is S.READY
    suspend(world, seen=1)
    assert world.state("flow") is S.AWAITING_CHILDREN
    world.finish("flow[1]")
    world.finish("flow")
    assert (world.state("flow"), world.ready()) == (S.SUCCEEDED, ["after"])
    assert world.trail("flow") == [
        "planned", "dependencies_met", "claimed", "children_started", "children_settled", "claimed",
        "children_started", "children_settled", "claimed", "completed", "rules_passed",
    ]  # fmt: skip


@pytest.mark.parametrize("choice", [HoldChoice.SKIP, HoldChoice.FAIL])
def test_nobody_ends_a_flow_while_a_call_is_open(choice: HoldChoice) -> None:
    world = flow()
    suspend(world, called(), called())
    world.finish("flow[0]")
    with pytest.raises(Conflict, match="has calls that have not settled"):
        world.decide_hold("flow", choice, reason="stuck")
    world.finish("flow[1]")
    world.decide_hold("flow", choice, reason="stuck")
    assert world.state("flow") in (S.SKIPPED, S.FAILED)


def test_a_call_that_settles_while_the_flow_runs_is_no_lost_wake_up() -> None:
    world = flow()
    suspend(world, called(), called())
    world.finish("flow[0]")
    world.claim("flow")
    world.finish("flow[1]")
    world.report("flow", Suspended(seen=1))
    assert world.state("flow") is S.READY


def test_a_call_that_fails_for_good_is_told_to_the_flow_alone() -> None:
    world = flow()
    suspend(world, called())
    world.fail("flow[0]")
    assert (world.state("flow[0]"), world.row("flow[0]").error) == (S.SKIPPED, "no good")
    assert (world.state("flow"), world.run.state) == (S.READY, RunState.RUNNING)


def test_a_flow_cannot_return_while_a_call_is_open() -> None:
    world = flow()
    suspend(world, called(), called())
    world.finish("flow[0]")
    world.finish("flow")
    assert world.run.state is RunState.FAILED
    assert world.row("flow").error == "it returned, but 1 of its calls have not settled"


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        (6, "it makes more than 5 calls, as its definition allows; end it before by ctx.continue_as_new"),
        (0, "it awaits nothing: all its calls have settled"),
    ],
)
def test_a_suspension_that_nothing_would_end_fails_the_flow(calls: int, said: str) -> None:
    world = flow()
    suspend(world, *(called() for _ in range(calls)))
    assert (world.run.state, world.row("flow").error) == (RunState.FAILED, said)


@pytest.mark.parametrize("ends", ["succeeded", "failed", "cancelled", "completed by hand"])
def test_a_flow_continues_as_new_in_the_decision_that_ends_its_run_well(ends: str) -> None:
    """What ends the run in another way before has no successor."""
    world = World(work("flow", growth=Flow(max=5)))
    again = SubWorkflow(workflow=world.plan.definition.name, version=1, detached=True)
    template = written_template(StepDefinition(name="flow", order=0, child=again))
    suspend(world, NewCall(kind="continue", name="again", digest="0", arguments=b"{}", step=template))
    assert (world.state("flow"), world.state("flow[0]"), world.children) == (S.READY, S.SUCCEEDED, {})
    if ends == "cancelled":
        world.cancel()
    elif ends == "failed":
        world.claim("flow")
        world.report("flow", Failed(category=Category.VALIDATION, error="no", final=True))
    elif ends == "completed by hand":
        world.claim("flow")
        world.report("flow", Failed(category=Category.TRANSIENT, error="no"))
        world.decide_hold("flow", HoldChoice.COMPLETE, reason="done", output=b"1")
    else:
        world.finish("flow")
    assert world.run.state == ("succeeded" if ends == "completed by hand" else ends)
    found = list(world.children.values())
    assert len(found) == (1 if ends == "succeeded" else 0)
    if found:
        [child] = found
        note = world.row("flow[0]").note
        assert note is not None
        assert (child.child_id, is_child(child.child_id)) == (note.child, False)
        assert (child.workflow, child.mode, child.todo) == (again.workflow, "detached", "start")


def test_a_deadline_cancels_the_calls_and_fails_the_flow() -> None:
    world = flow(deadline=10 * SECOND)
    suspend(world, called(), called())
    world.later(10 * SECOND, "flow")
    assert world.states() == {
        "flow": "failed", "after": "cancelled", "flow[0]": "cancelled", "flow[1]": "cancelled",
    }  # fmt: skip
    assert world.row("flow").category is Category.TIMEOUT


@pytest.mark.parametrize("policy", [OnFailure.SKIP, OnFailure.CONTINUE])
def test_a_flow_that_fails_in_a_run_that_goes_on_leaves_no_call_open(policy: OnFailure) -> None:
    world = flow(settings={"on_failure": policy})
    suspend(world, called(), called())
    world.finish("flow[0]")
    world.claim("flow")
    world.report("flow", Failed(category=Category.VALIDATION, error="no", final=True))
    assert world.state("flow[1]") is S.CANCELLED
    assert world.over


def test_a_rollback_undoes_calls_by_their_own_templates() -> None:
    world = flow(settings={"on_failure": OnFailure.COMPENSATE})
    suspend(world, called(undo=True))
    world.finish("flow[0]")
    suspend(world, called(undo=True), seen=1)
    world.finish("flow[1]")
    world.fail("flow")
    assert world.ready() == ["undo:flow[1]"]
    world.finish("undo:flow[1]", "undo:flow[0]")
    assert world.run.state is RunState.ROLLED_BACK


def test_a_cancel_ends_a_suspended_flow_and_its_calls() -> None:
    world = flow()
    suspend(world, called(), called())
    world.cancel()
    assert set(world.states().values()) == {"cancelled"}


def test_a_flow_cancels_calls_and_waits_for_the_others() -> None:
    world = flow()
    asleep = called("sleep", executor=None, wait=Wait(event="sleep", deadline=SECOND, sleeps=True))
    suspend(world, called(), asleep, called())
    world.finish("flow[0]")
    world.claim("flow")
    world.report("flow", Suspended(seen=1, cancels=(1,)))
    assert (world.state("flow[1]"), world.state("flow[2]"), world.state("flow")) == (
        S.CANCELLED,
        S.READY,
        S.AWAITING_CHILDREN,
    )
    world.finish("flow[2]")
    world.claim("flow")
    world.report("flow", Suspended(calls=(called("late"),), seen=3, cancels=(3,)))
    assert (world.trail("flow[3]"), world.state("flow")) == (["planned", "cancelled"], S.READY)
    world.finish("flow")
    assert world.state("flow") is S.SUCCEEDED


def test_a_call_that_is_cancelled_while_a_worker_holds_it_is_in_doubt() -> None:
    world = flow()
    suspend(world, called(), called())
    world.claim("flow[1]")
    world.finish("flow[0]")
    world.claim("flow")
    world.report("flow", Suspended(seen=1, cancels=(1,)))
    assert (world.state("flow[1]"), world.state("flow")) == (S.CANCELLED, S.READY)
    assert is_in_doubt(world.row("flow[1]").error)


def test_a_cancel_that_finds_its_call_settled_changes_nothing_and_the_call_is_undone() -> None:
    world = flow(settings={"on_failure": OnFailure.COMPENSATE})
    suspend(world, called(undo=True), called(undo=True))
    world.finish("flow[0]")
    world.claim("flow")
    world.finish("flow[1]")
    world.report("flow", Suspended(seen=1, cancels=(1,)))
    assert (world.state("flow[1]"), world.state("flow")) == (S.SUCCEEDED, S.READY)
    world.fail("flow")
    world.finish("undo:flow[1]", "undo:flow[0]")
    assert world.run.state is RunState.ROLLED_BACK


@pytest.mark.parametrize("place", [-1, 2])
def test_a_flow_cancels_no_call_that_it_has_not_made(place: int) -> None:
    world = flow()
    suspend(world, called())
    world.finish("flow[0]")
    world.claim("flow")
    with pytest.raises(InvalidInput, match="cancels calls that it has not made"):
        world.report("flow", Suspended(calls=(called(),), seen=1, cancels=(place,)))


def test_a_sleep_and_a_gate_are_steps_that_no_worker_runs() -> None:
    world = flow()
    asleep = called("sleep", executor=None, wait=Wait(event="sleep", deadline=SECOND, sleeps=True))
    suspend(world, asleep, called("gate", executor=None, approval=Approval(prompt="ok?")))
    assert (world.state("flow[0]"), world.state("flow[1]")) == (S.AWAITING_EVENT, S.AWAITING_APPROVAL)
    assert world.run.state is RunState.BLOCKED
    world.later(SECOND, "flow[0]")
    assert (world.state("flow[0]"), world.state("flow")) == (S.SUCCEEDED, S.READY)
    suspend(world, seen=1)
    world.reject("flow[1]")
    assert (world.state("flow[1]"), world.state("flow")) == (S.SKIPPED, S.READY)


def test_a_template_is_read_as_it_was_written() -> None:
    call = called(undo=True, timeout=7, effect="write")
    assert written_template(template_of(call.step)) == call.step


def test_the_journal_has_the_template_of_each_call() -> None:
    world = flow()
    suspend(world, called())
    told = open_entry(world.bodies[-1]).causes[-1].detail
    assert told is not None
    [call] = told["plan_grown"]["flow"]["calls"]
    assert (call["kind"], call["name"], call["step"]["executor"]["name"]) == ("step", "charge", "noop")


def test_a_step_that_is_no_flow_cannot_be_suspended() -> None:
    world = World(work("plain"))
    world.claim("plain")
    with pytest.raises(Exception, match="says nothing about that"):
        world.report("plain", Suspended(calls=(called(),)))
    world.report("plain", Completed())
    assert world.run.state is RunState.SUCCEEDED


def unfit(world: World, code: str = "one") -> None:
    """Claim the flow, and report that this code does not fit what is recorded."""
    world.claim("flow")
    world.report("flow", Released(reason="the flow makes other calls", unfit=code))


def other_code(world: World, code: str) -> None:
    world.one(CodeChanged(tenant="t", run_id="r", actor="w2", no=0, code=code))


def test_code_that_does_not_fit_holds_the_flow_and_counts_no_try() -> None:
    world = flow()
    suspend(world, called(), called())
    world.finish("flow[0]")
    unfit(world)
    row = world.row("flow")
    assert (row.state, row.attempts, row.losses, row.error) == (S.AWAITING_APPROVAL, 0, 0, "the flow makes other calls")
    assert world.attempts_of("flow") == [AttemptState.WAITED, AttemptState.RELEASED]
    # It records ends without waking.
    world.finish("flow[1]")
    assert (world.state("flow"), world.row("flow").unmet, world.run.state) == (S.AWAITING_APPROVAL, 0, RunState.BLOCKED)


def test_other_code_makes_a_flow_ready_that_holds_and_tried_code_does_not() -> None:
    world = flow()
    suspend(world, called())
    world.finish("flow[0]")
    unfit(world)
    with pytest.raises(Conflict, match="that code was tried"):
        other_code(world, "one")
    other_code(world, "two")
    assert world.state("flow") is S.READY
    with pytest.raises(Conflict, match="it is ready, and holds for no other code"):
        other_code(world, "three")
    unfit(world, "two")
    for code in ("one", "two"):
        with pytest.raises(Conflict, match="that code was tried"):
            other_code(world, code)
    other_code(world, "three")
    world.finish("flow")
    assert world.state("flow") is S.SUCCEEDED
    assert world.trail("flow")[-9:] == [
        "claimed", "held_unfit", "code_changed", "claimed", "held_unfit", "code_changed", "claimed", "completed",
        "rules_passed",
    ]  # fmt: skip


def test_a_person_gives_a_flow_that_holds_the_tried_code_once_more() -> None:
    world = flow()
    suspend(world, called())
    world.finish("flow[0]")
    unfit(world)
    world.decide_hold("flow", HoldChoice.RETRY)
    note = world.row("flow").note
    assert (world.state("flow"), note and note.tried) == (S.READY, ())
    unfit(world)
    world.decide_hold("flow", HoldChoice.FAIL)
    assert world.state("flow") is S.FAILED


def test_in_a_run_that_stops_code_that_does_not_fit_cancels_the_flow() -> None:
    world = World(work("flow", growth=Flow(max=5)), work("beside"), on_failure=OnFailure.ABORT)
    suspend(world, called())
    world.finish("flow[0]")
    world.claim("flow")
    world.cancel(compensate=True)
    world.report("flow", Released(reason="the flow makes other calls", unfit="one"))
    assert world.state("flow") is S.CANCELLED


def test_only_a_flow_is_held_for_other_code() -> None:
    world = World(work("plain"))
    world.claim("plain")
    with pytest.raises(Conflict, match="says nothing about that"):
        world.report("plain", Released(reason="no", unfit="one"))


def own_error(world: World, *, final: bool = False, code: str = "one") -> None:
    world.claim("flow")
    world.report("flow", Failed(category=Category.UNKNOWN, error="NameError: x", final=final, unfit=code))


@pytest.mark.parametrize("final", [False, True])
def test_an_error_of_the_functions_own_code_holds_the_flow_when_no_attempt_is_left(final: bool) -> None:
    world = flow(settings={"retry": Retry(max_attempts=2, initial=0)})
    suspend(world, called())
    world.finish("flow[0]")
    if not final:
        own_error(world)
        assert world.state("flow") is not S.AWAITING_APPROVAL
        if world.state("flow") is S.RETRYING:
            world.tick("flow")
    own_error(world, final=final)
    assert (world.state("flow"), world.run.state) == (S.AWAITING_APPROVAL, RunState.BLOCKED)
    with pytest.raises(Conflict, match="that code was tried"):
        other_code(world, "one")
    other_code(world, "two")
    world.finish("flow")
    assert world.state("flow") is S.SUCCEEDED


def test_a_failure_that_a_flow_means_fails_it() -> None:
    world = flow()
    suspend(world, called())
    world.finish("flow[0]")
    world.claim("flow")
    world.report("flow", Failed(category=Category.CONFLICT, error="no stock", final=True))
    assert world.state("flow") is S.FAILED


def test_in_a_run_that_stops_an_error_of_the_functions_own_code_fails_the_flow() -> None:
    world = World(work("flow", growth=Flow(max=5)), work("beside"), on_failure=OnFailure.ABORT)
    suspend(world, called())
    world.finish("flow[0]")
    world.claim("flow")
    world.cancel(compensate=True)
    world.report("flow", Failed(category=Category.UNKNOWN, error="NameError: x", final=True, unfit="one"))
    assert world.state("flow") is S.FAILED
