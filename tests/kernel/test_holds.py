"""A step that people must let go first: it is held like a gate, and runs like a step once it is approved."""

from __future__ import annotations

from tests.kernel.driver import World, sequence, work

from stepkeep.kernel.definition import Approval
from stepkeep.kernel.machine.states import Category, RunState, StepState

SECOND = 1_000_000


def held(**options: object) -> World:
    """Two steps, the second held for approval."""
    second = work("b", hold=Approval(deadline=60 * SECOND), **options)
    world = World(*sequence(work("a"), second))
    world.finish("a")
    return world


def test_a_held_step_waits_for_people_and_no_worker_may_claim_it() -> None:
    """003 §2: Pending → Running only when the scheduler may; the HumanApprove tier asks a person first."""
    world = held()
    assert world.state("b") is StepState.AWAITING_APPROVAL
    assert world.run.state is RunState.BLOCKED
    assert world.ready() == []


def test_an_approved_hold_makes_the_step_ready_and_it_runs_as_ever() -> None:
    world = held()
    world.approve("b", by="bea")
    assert world.state("b") is StepState.READY
    world.finish("b", output=b'"done"')
    assert world.run.state is RunState.SUCCEEDED
    assert world.output_of(world.no("b")) == b'"done"'


def test_a_rejected_hold_fails_the_step_without_an_attempt() -> None:
    world = held()
    world.reject("b", by="bea")
    assert world.state("b") is StepState.FAILED
    assert world.attempts_of("b") == []
    assert world.run.state is RunState.FAILED


def test_a_hold_that_nobody_decides_ends_at_its_deadline() -> None:
    world = held()
    world.later(61 * SECOND, "b")
    assert (world.state("b"), world.row("b").category) == (StepState.FAILED, Category.GOVERNANCE)
