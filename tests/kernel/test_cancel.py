"""Cancelling: from every state a run can be in, with and without undoing what was done."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.kernel.driver import LEASE, World, gate, sequence, work

from stepkeep.kernel.decide.stopping import LEASE_EXPIRED, is_in_doubt
from stepkeep.kernel.definition import SECOND, CompensateWhen, Effect, Retry, Rule
from stepkeep.kernel.errors import Conflict, Fenced
from stepkeep.kernel.machine.events import CancelRequested
from stepkeep.kernel.machine.outcomes import Completed, Stopped
from stepkeep.kernel.machine.states import RUN_TERMINAL, OnFailure, Rollback, RunState, StepState, StopCause

S = StepState


def idle() -> World:
    return World(work("a"), start=False)


def queued() -> World:
    return World(work("a"))


def running() -> World:
    world = World(*sequence(work("a", undo=True), work("b"), work("c")))
    world.finish("a")
    world.claim("b")
    return world


def blocked() -> World:
    world = World(*sequence(work("a", undo=True), gate("g"), work("c")))
    world.finish("a")
    return world


def paused() -> World:
    world = World(*sequence(work("a", undo=True), work("b")))
    world.finish("a")
    world.pause()
    return world


def validating() -> World:
    world = World(work("a", undo=True), rules=(Rule(expression="true"),))
    world.finish("a")
    return world


def stopping() -> World:
    world = World(work("a", on_failure=OnFailure.COMPENSATE), work("b", undo=True), work("c", undo=True))
    world.finish("c")
    world.claim("a", "b")
    world.fail("a", error="broken")
    return world


def compensating() -> World:
    world = stopping()
    world.report("b", Completed())
    return world


LIVE: dict[RunState, Callable[[], World]] = {
    RunState.IDLE: idle,
    RunState.QUEUED: queued,
    RunState.RUNNING: running,
    RunState.BLOCKED: blocked,
    RunState.PAUSED: paused,
    RunState.VALIDATING: validating,
}
UNDOABLE = [RunState.RUNNING, RunState.BLOCKED, RunState.PAUSED, RunState.VALIDATING]


def test_the_states_set_up_here_are_all_that_a_live_run_can_be_in() -> None:
    ending: dict[RunState, Callable[[], World]] = {RunState.STOPPING: stopping, RunState.COMPENSATING: compensating}
    set_up = LIVE | ending
    assert set(set_up) == set(RunState) - RUN_TERMINAL
    assert all(make().run.state is state for state, make in set_up.items())


@pytest.mark.parametrize("state", LIVE)
def test_a_live_run_is_cancelled_at_once_with_everything_in_it(state: RunState) -> None:
    """001 PENDING / RUNNING / WAITING_APPROVAL → CANCELED; 004 planned, ready, executing → cancelled."""
    world = LIVE[state]()
    settled = {name for name, said in world.states().items() if said == "succeeded"}
    world.cancel(by="cyd", reason="changed my mind")
    assert (world.run.state, world.run.cause) == (RunState.CANCELLED, StopCause.CANCEL)
    assert world.run.error == "cancelled by cyd: changed my mind"
    assert {said for name, said in world.states().items() if name not in settled} == {"cancelled"}
    assert world.trail()[-1] == "cancelled"


@pytest.mark.parametrize("state", UNDOABLE)
def test_a_cancel_with_compensation_undoes_what_was_done(state: RunState) -> None:
    """Design §3: "cancel with compensation"."""
    world = LIVE[state]()
    world.cancel(compensate=True)
    if state is RunState.RUNNING:
        assert world.run.state is RunState.STOPPING
        world.report("b", Completed())
    assert world.run.state is RunState.COMPENSATING
    assert "undo_requested" in world.trail()
    world.finish("undo:a")
    assert (world.run.state, world.run.cause) == (RunState.ROLLED_BACK, StopCause.CANCEL)


@pytest.mark.parametrize("make", [idle, queued], ids=["idle", "queued"])
def test_a_cancel_with_compensation_just_cancels_where_nothing_was_done(make: Callable[[], World]) -> None:
    world = make()
    world.cancel(compensate=True)
    assert world.run.state is RunState.CANCELLED


def test_a_cancel_with_compensation_that_finds_nothing_to_undo_ends_cancelled() -> None:
    """Design §3: stopping → cancelled, "if a cancel was the cause"."""
    world = World(*sequence(work("a"), work("b")))
    world.finish("a")
    world.cancel(compensate=True)
    assert world.trail()[-2:] == ["undo_requested", "stopped_cancelled"]


def test_a_cancelled_action_run_is_not_compensated_unless_asked() -> None:
    world = World(*sequence(work("a", undo=True), work("b")), compensate_always=True)
    world.finish("a")
    world.cancel()
    assert world.run.state is RunState.CANCELLED


def test_a_report_after_a_cancel_is_fenced_and_does_not_revive_the_run() -> None:
    """001/002: a completion that does not look at its run would revive a cancelled one."""
    world = running()
    fence = world.row("b").fence
    world.cancel()
    with pytest.raises(Fenced):
        world.report("b", Completed(), fence=fence, worker=1)
    assert world.run.state is RunState.CANCELLED
    assert world.attempts_of("b") == ["cancelled"]


def test_an_attempt_that_is_cancelled_in_flight_is_in_doubt_and_the_journal_says_so() -> None:
    """003 §1.3: no side effect disappears without a trace."""
    world = running()
    world.cancel()
    assert is_in_doubt(world.row("b").error)
    assert [is_in_doubt(hop.error) for hop in world.hops if hop.no >= 0 and hop.target == S.CANCELLED] == [True, False]
    assert [is_in_doubt(attempt.error) for attempt in world.attempts.values() if attempt.no == world.no("b")] == [True]


def test_an_attempt_whose_worker_says_that_it_has_stopped_is_not_in_doubt() -> None:
    world = stopping()
    world.report("b", Stopped())
    assert (world.state("b"), world.row("b").error) == (S.CANCELLED, None)


def test_an_attempt_that_the_grace_period_fences_off_is_in_doubt_and_undone_where_an_attempt_counts() -> None:
    failing = work("a", on_failure=OnFailure.COMPENSATE)
    world = World(failing, work("b", undo=True, compensate_when=CompensateWhen.ATTEMPTED))
    world.claim("a", "b")
    world.fail("a")
    world.pass_time(world.plan.definition.grace)
    world.tick()
    assert is_in_doubt(world.row("b").error)
    assert world.run.state is RunState.COMPENSATING
    world.finish("undo:b")
    assert world.run.state is RunState.ROLLED_BACK


@pytest.mark.parametrize(("effect", "undo"), [(Effect.WRITE, False), (Effect.READ, True), (Effect.UNKNOWN, True)])
def test_a_rollback_beside_an_effect_in_doubt_is_partial(effect: Effect, undo: bool) -> None:
    """ "Rolled back" is said only where it is true: the step in doubt is not undone, and may have had its effect."""
    failing = work("a", "c", on_failure=OnFailure.COMPENSATE)
    world = World(work("c", undo=True), failing, work("b", "c", undo=undo, effect=effect))
    world.finish("c")
    world.claim("a", "b")
    world.fail("a")
    world.pass_time(world.plan.definition.grace)
    world.tick()
    world.finish("undo:c")
    assert (world.run.state, world.run.rollback) == (RunState.FAILED, Rollback.PARTIAL)
    assert world.trail()[-1] == "undo_failed"


@pytest.mark.parametrize(("effect", "undo"), [(Effect.WRITE, False), (Effect.READ, True), (Effect.UNKNOWN, True)])
def test_a_rollback_after_a_lease_lost_while_stopping_is_partial(effect: Effect, undo: bool) -> None:
    failing = work("a", "c", on_failure=OnFailure.COMPENSATE)
    world = World(work("c", undo=True), failing, work("b", "c", undo=undo, effect=effect), grace=10 * LEASE)
    world.finish("c")
    world.claim("a", "b")
    world.fail("a")
    world.lose("b")
    assert (world.row("b").state, world.row("b").error) == (S.CANCELLED, LEASE_EXPIRED)
    world.finish("undo:c")
    assert (world.run.state, world.run.rollback) == (RunState.FAILED, Rollback.PARTIAL)


@pytest.mark.parametrize("compensate_when", CompensateWhen)
def test_a_rollback_after_a_lease_lost_before_the_stop_is_partial_unless_attempts_are_undone(
    compensate_when: CompensateWhen,
) -> None:
    """The step is ready again when the run stops: no worker holds it, and its lost attempt may have had its effect."""
    failing = work("a", "c", on_failure=OnFailure.COMPENSATE)
    world = World(work("c", undo=True), failing, work("b", "c", undo=True, compensate_when=compensate_when))
    world.finish("c")
    world.claim("b")
    world.lose("b")
    world.claim("a")
    world.fail("a")
    if compensate_when is CompensateWhen.ATTEMPTED:
        world.finish("undo:b")
    world.finish("undo:c")
    whole = compensate_when is CompensateWhen.ATTEMPTED
    assert world.run.rollback is (Rollback.COMPLETE if whole else Rollback.PARTIAL)


def test_a_failure_reported_after_a_lost_lease_leaves_the_rollback_complete() -> None:
    """The later attempt repeats the same work under the same key, so its report counts."""
    failing = work("a", "c", on_failure=OnFailure.COMPENSATE, effect=Effect.WRITE)
    world = World(work("c", undo=True), failing)
    world.finish("c")
    world.claim("a")
    world.lose("a")
    world.claim("a")
    world.fail("a")
    world.finish("undo:c")
    assert (world.run.state, world.run.rollback) == (RunState.ROLLED_BACK, Rollback.COMPLETE)


def test_a_rollback_after_the_last_lost_lease_of_a_step_is_partial() -> None:
    failing = work("a", "c", on_failure=OnFailure.COMPENSATE, effect=Effect.WRITE, retry=Retry(max_attempts=1))
    world = World(work("c", undo=True), failing)
    world.finish("c")
    world.lose("a")
    assert (world.row("a").state, world.row("a").error) == (S.FAILED, LEASE_EXPIRED)
    world.finish("undo:c")
    assert (world.run.state, world.run.rollback) == (RunState.FAILED, Rollback.PARTIAL)


def test_a_read_that_lost_its_lease_leaves_the_rollback_complete() -> None:
    failing = work("a", "c", on_failure=OnFailure.COMPENSATE)
    world = World(work("c", undo=True), failing, work("b", "c"), grace=10 * LEASE)
    world.finish("c")
    world.claim("a", "b")
    world.fail("a")
    world.lose("b")
    world.finish("undo:c")
    assert (world.run.state, world.run.rollback) == (RunState.ROLLED_BACK, Rollback.COMPLETE)


def test_a_read_in_doubt_leaves_the_rollback_complete() -> None:
    world = World(work("c", undo=True), work("a", "c", on_failure=OnFailure.COMPENSATE), work("b", "c"))
    world.finish("c")
    world.claim("a", "b")
    world.fail("a")
    world.pass_time(world.plan.definition.grace)
    world.tick()
    world.finish("undo:c")
    assert (world.run.state, world.run.rollback) == (RunState.ROLLED_BACK, Rollback.COMPLETE)


def test_rules_have_no_effect_that_could_be_in_doubt() -> None:
    world = World(work("b", rules=(Rule(expression="true"),)))
    world.claim("b")
    world.report("b", Completed())
    assert world.state("b") is S.VALIDATING
    world.cancel()
    assert (world.state("b"), world.row("b").error) == (S.CANCELLED, None)


def test_a_cancel_in_a_stopping_run_only_ends_the_grace_period() -> None:
    """Design §3: "In stopping and compensating a cancel only ends the grace period"."""
    world = stopping()
    world.cancel()
    assert world.state("b") is S.CANCELLED
    assert (world.run.state, world.run.cause, world.run.error) == (
        RunState.COMPENSATING,
        StopCause.FAILURE,
        "broken",
    )
    world.finish("undo:c")
    assert (world.run.state, world.run.rollback) == (RunState.FAILED, Rollback.PARTIAL)


def test_a_cancel_in_a_compensating_run_changes_nothing() -> None:
    """Design §3: "an undo that began is finished"."""
    world = compensating()
    before = world.run
    assert world.cancel(compensate=True).repeated
    assert world.run == before


def test_cancelling_twice_is_no_error() -> None:
    world = queued()
    world.cancel()
    assert world.cancel().repeated


@pytest.mark.parametrize("how", ["succeeded", "failed", "rolled_back"])
def test_a_run_that_ended_otherwise_cannot_be_cancelled(how: str) -> None:
    """001: terminal; the refusal tells the winner."""
    world = World(*sequence(work("a", undo=True), work("b", on_failure=OnFailure.COMPENSATE)))
    world.finish("a")
    if how == "succeeded":
        world.finish("b")
    else:
        world.fail("b")
        (world.finish if how == "rolled_back" else world.fail)("undo:a")
    assert world.run.state == how
    with pytest.raises(Conflict, match="cannot be cancelled") as refused:
        world.cancel()
    assert refused.value.winner == {"state": how, "ended_at": world.run.ended_at}


def test_a_cancelled_gate_remembers_who_cancelled_it() -> None:
    world = blocked()
    world.cancel(by="cyd")
    with pytest.raises(Conflict, match="cancelled by cyd"):
        world.approve("g")


def test_a_cancel_and_a_completion_in_one_transaction_have_one_winner() -> None:
    cancel = CancelRequested(tenant="t", run_id="r", actor="cyd")
    for first in (True, False):
        world = World(work("a"))
        world.claim("a")
        done = world.reporting("a", Completed())
        replies = world.send(*((cancel, done) if first else (done, cancel)))
        assert isinstance(replies[1], Fenced if first else Conflict)
        assert world.run.state is (RunState.CANCELLED if first else RunState.SUCCEEDED)


def test_timers_of_a_cancelled_run_are_gone() -> None:
    world = World(work("a"), timeout=10 * SECOND)
    world.claim("a")
    world.cancel()
    assert world.later(LEASE + 1, "a").repeated
    assert world.tick().repeated
