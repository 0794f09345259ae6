"""A run that waits for an execution slot: it stays queued with pending steps until it is granted one, once."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.kernel.driver import World, gate, sequence, wait, work

from stepkeep.kernel.composition.continuation import Continuation, ContinuationKind
from stepkeep.kernel.definition import SECOND
from stepkeep.kernel.errors import Conflict, InvariantBroken
from stepkeep.kernel.machine.events import SlotGranted
from stepkeep.kernel.machine.invariants import check_decision
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.rows import Adopted, Note
from stepkeep.kernel.machine.states import OnFailure, RunState, StopCause


def causes(world: World) -> list[str]:
    return [cause.event for body in world.bodies for cause in open_entry(body).causes]


def test_a_run_under_a_limit_stays_queued_with_pending_steps_until_it_is_granted_a_slot() -> None:
    world = World(work("a"), work("b"), work("c", "a", "b"), awaits_slot=True)
    assert (world.run.state, world.run.moving) == (RunState.QUEUED, 0)
    assert {step.state for step in world.rows.values()} == {"pending"}
    with pytest.raises(Conflict):
        world.claim("a")
    assert world.grant().record == {"state": RunState.QUEUED}
    assert (world.state("a"), world.state("b"), world.state("c")) == ("ready", "ready", "pending")
    world.finish("a", "b", "c")
    assert world.run.state is RunState.SUCCEEDED
    assert causes(world)[:3] == ["run_created", "run_started", "slot_granted"]


def test_a_run_is_granted_a_slot_once() -> None:
    world = World(work("a"), awaits_slot=True)
    world.grant()
    before = len(world.bodies)
    assert world.grant().repeated
    assert len(world.bodies) == before
    world.finish("a")
    with pytest.raises(Conflict, match="has ended"):
        world.grant()


def test_a_run_under_no_limit_is_granted_nothing() -> None:
    world = World(work("a"))
    assert world.grant().repeated


def test_the_journal_says_what_the_run_waited_for() -> None:
    world = World(work("a"), awaits_slot=True)
    assert (open_entry(world.bodies[0]).causes[0].detail or {})["awaits_slot"] is True
    world.grant(held=2, most=3)
    [cause] = open_entry(world.bodies[-1]).causes
    assert cause.detail == {"scopes": [{"scope": "workflow w", "held": 2, "most": 3}]}


def test_an_idle_run_waits_for_its_slot_when_it_is_started() -> None:
    world = World(work("a"), start=False, awaits_slot=True)
    with pytest.raises(Conflict, match="is idle"):
        world.grant()
    world.start()
    assert (world.run.state, world.state("a")) == (RunState.QUEUED, "pending")
    world.grant()
    world.finish("a")
    assert world.run.state is RunState.SUCCEEDED


def test_a_paused_run_is_granted_no_slot_and_waits_on_when_it_is_resumed() -> None:
    world = World(work("a"), awaits_slot=True)
    world.pause()
    with pytest.raises(Conflict, match="is paused"):
        world.grant()
    assert world.resume().record == {"state": RunState.QUEUED}
    assert world.state("a") == "pending"
    world.grant()
    assert world.state("a") == "ready"


def test_the_timeout_of_a_run_goes_on_while_it_waits() -> None:
    world = World(work("a"), timeout=10 * SECOND, awaits_slot=True)
    world.later(20 * SECOND)
    assert (world.run.state, world.run.cause) == (RunState.FAILED, StopCause.TIMEOUT)


def test_a_grant_after_the_timeout_meets_it_first() -> None:
    world = World(work("a"), timeout=10 * SECOND, awaits_slot=True)
    world.pass_time(11 * SECOND)
    with pytest.raises(Conflict):
        world.grant()
    assert world.run.state is RunState.FAILED


@pytest.mark.parametrize("compensate", [False, True])
def test_a_waiting_run_is_cancelled(compensate: bool) -> None:
    world = World(work("a"), awaits_slot=True)
    world.cancel(compensate=compensate)
    assert (world.run.state, world.state("a")) == (RunState.CANCELLED, "cancelled")


def test_a_message_waits_in_the_inbox_of_a_run_without_a_slot() -> None:
    world = World(wait("a", "paid"), awaits_slot=True)
    world.tell("paid")
    assert (world.run.state, world.run.inbox) == (RunState.QUEUED, 1)
    world.grant()
    assert world.run.state is RunState.SUCCEEDED


def test_a_gate_opens_with_the_slot() -> None:
    world = World(gate("a"), awaits_slot=True)
    world.grant()
    assert (world.run.state, world.state("a")) == (RunState.BLOCKED, "awaiting_approval")


def test_what_follows_adopted_steps_waits_for_the_slot() -> None:
    done = Note(output="1", adopted=Adopted(run="old", step="a", place=0))
    continuation = Continuation(how=ContinuationKind.RETRY, run_id="old", notes={0: done})
    world = World(*sequence(work("a"), work("b"), work("c")), continuation=continuation, awaits_slot=True)
    assert (world.run.state, world.state("b"), world.rows[1].unmet) == (RunState.QUEUED, "pending", 2)
    world.grant()
    assert (world.state("b"), world.state("c")) == ("ready", "pending")
    world.finish("b", "c")
    assert world.run.state is RunState.SUCCEEDED


def test_a_run_that_adopted_all_its_steps_needs_no_slot() -> None:
    done = Note(output="1", adopted=Adopted(run="old", step="a", place=0))
    continuation = Continuation(how=ContinuationKind.RETRY, run_id="old", notes={0: done})
    world = World(work("a"), continuation=continuation, awaits_slot=True)
    assert world.run.state is RunState.SUCCEEDED
    assert "awaits_slot" not in (open_entry(world.bodies[0]).causes[0].detail or {})


def test_a_failure_after_the_slot_ends_the_run_as_always() -> None:
    world = World(work("a", undo=True), work("b", "a", on_failure=OnFailure.COMPENSATE), awaits_slot=True)
    world.grant()
    world.finish("a")
    world.fail("b")
    world.finish("undo:a")
    assert world.run.state is RunState.ROLLED_BACK


def test_a_queued_run_in_which_nothing_moves_and_that_waits_for_no_slot_is_refused() -> None:
    world = World(work("a"), awaits_slot=True)
    bare = replace(world.last, added=tuple(replace(step, unmet=0) for step in world.last.added))
    with pytest.raises(InvariantBroken, match="waits for no slot"):
        check_decision(world.plan, bare)


def test_a_grant_names_no_step() -> None:
    assert not hasattr(SlotGranted(tenant="t", run_id="r", actor="slots"), "no")
