"""A paused run: nothing of it is claimed, what is in flight settles, and everything else goes on."""

from __future__ import annotations

import pytest
from tests.kernel.driver import LEASE, World, claimer, gate, sequence, wait, work

from stepkeep.kernel.composition.continuation import Continuation, ContinuationKind
from stepkeep.kernel.decide.draft import HELD_BACK
from stepkeep.kernel.definition import SECOND, Approval, Rule
from stepkeep.kernel.errors import Conflict
from stepkeep.kernel.machine.events import PauseRequested
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.outcomes import Completed, Failed, Released, RulesPassed
from stepkeep.kernel.machine.rows import Adopted, Note
from stepkeep.kernel.machine.states import Category, OnFailure, RunState, StepState, StopCause


def test_a_queued_run_is_queued_again_after_a_pause() -> None:
    world = World(*sequence(work("a"), work("b")))
    world.pause(by="ann", reason="closed")
    assert (world.run.state, world.rows[0].ready_at) == (RunState.PAUSED, HELD_BACK)
    world.pass_time(SECOND)
    assert world.resume().record == {"state": RunState.QUEUED}
    assert world.rows[0].ready_at == world.now
    world.finish("a", "b")
    assert world.run.state is RunState.SUCCEEDED


def test_a_run_that_only_adopted_is_queued_again_after_a_pause() -> None:
    done = Note(output="1", adopted=Adopted(run="old", step="a", place=0))
    continuation = Continuation(how=ContinuationKind.RETRY, run_id="old", notes={0: done})
    world = World(*sequence(work("a"), work("b")), continuation=continuation)
    assert world.run.state is RunState.QUEUED
    world.pause()
    assert world.resume().record == {"state": RunState.QUEUED}


def test_nothing_of_a_paused_run_is_claimed() -> None:
    world = World(work("a"), work("b"))
    world.claim("a")
    world.pause()
    with pytest.raises(Conflict):
        world.claim("b")
    world.report("a", Released())
    assert world.rows[0].ready_at == HELD_BACK
    with pytest.raises(Conflict):
        world.claim("a")


def test_what_is_in_flight_settles_and_opens_what_follows_held_back() -> None:
    world = World(*sequence(work("a"), work("b")))
    world.claim("a")
    world.pause()
    world.send(world.reporting("a", Completed()), claimer=claimer(3))
    assert (world.state("a"), world.state("b")) == ("succeeded", "ready")
    assert (world.rows[1].ready_at, world.rows[1].worker) == (HELD_BACK, None)
    assert world.run.state is RunState.PAUSED
    world.resume()
    assert world.run.state is RunState.RUNNING
    world.finish("b")
    assert world.run.state is RunState.SUCCEEDED


def test_a_run_whose_last_step_settles_in_a_pause_ends_when_it_is_resumed() -> None:
    world = World(work("a"))
    world.claim("a")
    world.pause()
    world.report("a", Completed())
    assert world.run.state is RunState.PAUSED
    world.resume()
    assert world.run.state is RunState.SUCCEEDED
    assert world.trail()[-3:] == ["unpaused", "steps_settled", "rules_passed"]


def test_a_blocked_run_takes_decisions_and_messages_in_a_pause() -> None:
    world = World(gate("g"), wait("w", "paid"))
    world.pause()
    world.approve("g")
    world.tell("paid")
    assert (world.state("g"), world.state("w"), world.run.state) == ("succeeded", "succeeded", RunState.PAUSED)
    world.resume()
    assert world.run.state is RunState.SUCCEEDED


def test_a_blocked_run_is_blocked_again_after_a_pause() -> None:
    world = World(gate("g"))
    world.pause()
    world.resume()
    assert (world.run.state, world.trail()[-2:]) == (RunState.BLOCKED, ["unpaused", "waiting"])


def test_a_failure_in_a_pause_stops_the_run() -> None:
    world = World(work("a", undo=True), work("b", on_failure=OnFailure.COMPENSATE))
    world.finish("a")
    world.claim("b")
    world.pause()
    world.report("b", Failed(category=Category.AUTH, error="no"))
    assert world.run.state is RunState.COMPENSATING
    world.finish("undo:a")
    assert world.run.state is RunState.ROLLED_BACK


def test_leases_retries_and_the_timeout_go_on_in_a_pause() -> None:
    world = World(work("a"), timeout=LEASE + 100 * SECOND)
    world.claim("a")
    world.pause()
    world.later(LEASE + 1, "a")
    assert (world.state("a"), world.rows[0].ready_at) == ("ready", HELD_BACK)
    world.later(100 * SECOND)
    assert (world.run.state, world.run.cause) == (RunState.FAILED, StopCause.TIMEOUT)


def test_a_resumption_after_the_timeout_meets_it_first() -> None:
    world = World(work("a"), timeout=SECOND)
    world.pause()
    world.pass_time(2 * SECOND)
    with pytest.raises(Conflict, match="has already ended"):
        world.resume()
    assert world.run.state is RunState.FAILED


def test_a_pause_and_a_resumption_twice_change_nothing() -> None:
    world = World(work("a"))
    assert not world.pause().repeated
    seq = world.run.seq
    assert world.pause().repeated
    assert not world.resume().repeated
    assert world.resume().repeated
    assert world.run.seq == seq + 1


def test_a_run_that_cannot_be_paused_says_why() -> None:
    idle, checked, done = (
        World(work("a"), start=False),
        World(work("a"), rules=(Rule(expression="true"),)),
        World(work("a")),
    )
    checked.finish("a")
    done.finish("a")
    for world, said in (
        (idle, "has not been started"),
        (checked, "only its rules are left"),
        (done, "has already ended"),
    ):
        with pytest.raises(Conflict, match=said):
            world.pause()
    with pytest.raises(Conflict, match="nothing to resume"):
        done.resume()


def test_the_record_has_who_paused_and_why() -> None:
    world = World(work("a"))
    world.pause(by="ann", reason="closed")
    assert world.last.entry is not None
    cause = open_entry(world.last.entry.body).causes[-1]
    assert (cause.event, cause.actor, cause.detail) == ("pause_requested", "ann", {"reason": "closed"})


def test_a_report_and_a_pause_together_claim_nothing_more() -> None:
    world = World(*sequence(work("a"), work("b")))
    world.claim("a")
    pause = PauseRequested(tenant="t", run_id="r", actor="ann")
    world.send(world.reporting("a", Completed()), pause, claimer=claimer(3))
    assert (world.state("b"), world.rows[1].worker, world.rows[1].ready_at) == ("ready", None, HELD_BACK)


def test_a_held_root_that_was_approved_in_a_pause_leaves_the_run_running() -> None:
    """It is ready and was never claimed, but the run had begun: it must not be queued again."""
    world = World(work("a", hold=Approval()))
    world.pause()
    world.approve("a")
    assert world.rows[0].state is StepState.READY
    world.resume()
    assert world.run.state is RunState.RUNNING


def test_rules_that_lost_their_worker_are_held_back() -> None:
    world = World(work("a", rules=(Rule(expression="true"),)))
    world.claim("a")
    world.report("a", Completed())
    world.pause()
    world.later(LEASE + 1, "a")
    assert (world.state("a"), world.rows[0].ready_at) == ("validating", HELD_BACK)
    world.resume()
    world.claim("a")
    world.report("a", RulesPassed())
    assert world.run.state is RunState.SUCCEEDED
