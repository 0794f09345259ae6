"""Failures for good: what the step's policy and the run's make of them, and how a run comes to a halt."""

from __future__ import annotations

import pytest
from tests.kernel.driver import LEASE, TOKEN, World, allowing, claimer, gate, sequence, wait, work

from stepkeep.kernel.decide.stopping import is_in_doubt
from stepkeep.kernel.definition import SECOND, Completion, Retry, Rule, StepDefinition, SubWorkflow, Wait
from stepkeep.kernel.errors import Conflict, Fenced
from stepkeep.kernel.machine.events import GateDecided, MessageArrived, TimeCame
from stepkeep.kernel.machine.outcomes import Completed, Failed, Released, RulesPassed, Stopped, Waiting
from stepkeep.kernel.machine.states import Category, OnFailure, RunState, StepState, StopCause

S = StepState
GRACE = 30 * SECOND


# -- policies ---------------------------------------------------------------------------------------------------------
def test_abort_stops_the_run_and_cancels_what_has_not_begun() -> None:
    """000 §3.3 abort; 004 executing → failed: "Cancel remaining tasks"."""
    world = World(*sequence(work("a"), work("b"), work("c")))
    world.finish("a")
    world.fail("b", error="broken")
    assert world.states() == {"a": "succeeded", "b": "failed", "c": "cancelled"}
    assert (world.run.state, world.run.cause, world.run.error) == (RunState.FAILED, StopCause.FAILURE, "broken")
    assert world.trail()[-2:] == ["step_failed", "stopped_failed"]


def test_skip_tolerates_a_failure_and_the_run_may_succeed() -> None:
    """000 §3.3 skip, §6 guideline 2."""
    world = World(*sequence(work("a", on_failure=OnFailure.SKIP), work("b")))
    world.fail("a", error="no matter")
    assert world.states() == {"a": "skipped", "b": "ready"}
    world.finish("b")
    assert world.run.state is RunState.SUCCEEDED
    assert (world.row("a").category, world.row("a").error) == (Category.VALIDATION, "no matter")


def test_continue_finishes_what_it_can_and_then_fails() -> None:
    """Design §4: "`continue` finishes what it can, then ends failed"; 004 non-critical failures."""
    world = World(work("a", on_failure=OnFailure.CONTINUE), work("after", "a"), work("free"), work("more", "free"))
    world.fail("a", error="broken")
    assert world.states() == {"a": "failed", "after": "skipped", "free": "ready", "more": "pending"}
    world.finish("free", "more")
    assert (world.run.state, world.run.error) == (RunState.FAILED, "broken")
    assert world.trail()[-2:] == ["steps_failed", "stopped_failed"]


def test_an_edge_may_allow_a_failure_that_does_not_stop_the_run() -> None:
    world = World(work("a", on_failure=OnFailure.CONTINUE), work("tidy", allowing("a", S.FAILED)))
    world.fail("a")
    assert world.ready() == ["tidy"]
    world.finish("tidy")
    assert world.run.state is RunState.FAILED


def test_the_first_failure_is_what_a_run_is_said_to_have_failed_of() -> None:
    world = World(work("a", on_failure=OnFailure.CONTINUE), work("b"))
    world.fail("a", error="first")
    world.fail("b", Category.AUTH, error="second")
    assert (world.run.error, world.run.category) == ("first", Category.VALIDATION)


def test_failures_under_continue_are_compensated_when_the_run_says_so() -> None:
    """000 §1: "failurePolicy == compensate + failure occurred"."""
    world = World(work("a", undo=True), work("b", on_failure=OnFailure.CONTINUE), on_failure=OnFailure.COMPENSATE)
    world.finish("a")
    world.fail("b")
    assert world.run.state is RunState.COMPENSATING


def test_the_steps_policy_goes_before_the_runs() -> None:
    """Design §4: "the step's on_failure, else the run's"."""
    world = World(work("a", undo=True), work("b", on_failure=OnFailure.ABORT), on_failure=OnFailure.COMPENSATE)
    world.finish("a")
    world.fail("b")
    assert world.run.state is RunState.FAILED


# -- coming to a halt -------------------------------------------------------------------------------------------------
def test_what_is_in_flight_settles_before_the_run_ends() -> None:
    """003 §1.3: "running actions may finish", "no new actions are scheduled"."""
    world = World(work("a"), work("b"), work("c", "b"))
    world.claim("a", "b")
    world.fail("a")
    assert world.run.state is RunState.STOPPING
    assert world.states() == {"a": "failed", "b": "running", "c": "cancelled"}
    assert world.run.due_at == world.now + GRACE
    world.report("b", Completed())
    assert world.states() == {"a": "failed", "b": "succeeded", "c": "cancelled"}
    assert world.run.state is RunState.FAILED


def test_nothing_is_claimed_in_a_stopping_run() -> None:
    world = World(work("a"), work("b"), work("c"))
    world.claim("a", "b")
    world.fail("a")
    with pytest.raises(Conflict):
        world.claim("c")


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Stopped(), S.CANCELLED),
        (Released(), S.CANCELLED),
        (Waiting(event="paid"), S.CANCELLED),
        (Failed(category=Category.TRANSIENT, error="x"), S.CANCELLED),
        (Failed(category=Category.AUTH, error="x"), S.FAILED),
        (Completed(), S.SUCCEEDED),
    ],
    ids=["stopped", "released", "wait", "retry", "failed", "completed"],
)
def test_in_a_stopping_run_every_report_settles_its_step(outcome: object, state: StepState) -> None:
    """Design §3: "a retry, a wait or a manual completion asked for in a stopping run ends cancelled"."""
    world = World(work("a"), work("b"))
    world.claim("a", "b")
    world.fail("a")
    world.report("b", outcome)  # type: ignore[arg-type]
    assert world.state("b") is state
    assert world.run.state is RunState.FAILED


def test_a_manual_completion_asked_for_in_a_stopping_run_ends_cancelled() -> None:
    world = World(work("a"), work("b", completion=Completion.MANUAL))
    world.claim("a", "b")
    world.fail("a")
    world.report("b", Completed(token=TOKEN))
    assert world.state("b") is S.CANCELLED
    with pytest.raises(Conflict):
        world.complete("b")


def test_rules_still_run_for_what_completes_while_the_run_stops() -> None:
    world = World(work("a"), work("b", rules=(Rule(expression="true"),)))
    world.claim("a", "b")
    world.fail("a")
    world.report("b", Completed())
    assert (world.state("b"), world.run.state) == (S.VALIDATING, RunState.STOPPING)
    world.report("b", RulesPassed())
    assert (world.state("b"), world.run.state) == (S.SUCCEEDED, RunState.FAILED)


def test_a_lease_lost_in_a_stopping_run_cancels_its_step() -> None:
    world = World(work("a"), work("b"), grace=10 * LEASE)
    world.claim("a", "b")
    world.fail("a")
    world.lose("b")
    assert (world.state("b"), world.run.state) == (S.CANCELLED, RunState.FAILED)
    assert world.attempts_of("b") == ["lost"]


def test_the_grace_period_ends_with_a_fence() -> None:
    """Design §3: "fenced off after a grace period"; 003 §1.3 "cancelled according to adapter capability"."""
    world = World(work("a"), work("b"))
    world.claim("a")
    fence = world.claim("b", lease=100 * GRACE)
    world.fail("a")
    world.later(GRACE - 1)
    assert world.run.state is RunState.STOPPING
    world.later(1)
    assert (world.state("b"), world.run.state) == (S.CANCELLED, RunState.FAILED)
    with pytest.raises(Fenced):
        world.report("b", Completed(), fence=fence, worker=1)
    assert world.attempts_of("b") == ["cancelled"]


def test_of_two_failures_the_first_is_the_cause_and_the_stronger_policy_counts() -> None:
    """000 §3.3 compensate: the second step asks for the rollback, although the run stops already."""
    world = World(work("a"), work("b", on_failure=OnFailure.COMPENSATE), work("c", undo=True))
    world.finish("c")
    world.claim("a", "b")
    world.fail("a", error="first")
    world.fail("b", Category.AUTH, error="second")
    assert (world.run.state, world.run.error) == (RunState.COMPENSATING, "first")
    world.finish("undo:c")
    assert world.run.state is RunState.ROLLED_BACK


def test_a_second_failure_that_only_aborts_starts_no_rollback() -> None:
    world = World(work("a"), work("b"), work("c", undo=True))
    world.finish("c")
    world.claim("a", "b")
    world.fail("a")
    world.fail("b")
    assert (world.run.state, world.run.policy) == (RunState.FAILED, OnFailure.ABORT)


def test_a_late_success_is_undone_too() -> None:
    """Design §3: "late successes are undone too"; 003 §1.3 leaves them behind."""
    world = World(work("a", on_failure=OnFailure.COMPENSATE), work("b", undo=True))
    world.claim("a", "b")
    world.fail("a")
    world.report("b", Completed())
    assert world.run.state is RunState.COMPENSATING
    world.finish("undo:b")
    assert world.run.state is RunState.ROLLED_BACK


def test_a_failure_cancels_open_gates_and_waits() -> None:
    world = World(work("a"), gate("g"), wait("w", "paid"), work("m", completion=Completion.MANUAL))
    world.finish("m")
    world.fail("a")
    assert world.states() == {"a": "failed", "g": "cancelled", "w": "cancelled", "m": "cancelled"}
    assert world.run.state is RunState.FAILED
    with pytest.raises(Conflict, match="cancelled"):
        world.approve("g")


def test_retries_do_not_survive_a_stop() -> None:
    world = World(work("a", retry=Retry(max_attempts=5)), work("b"))
    world.fail("a", Category.TRANSIENT)
    world.fail("b")
    assert (world.state("a"), world.run.state) == (S.CANCELLED, RunState.FAILED)
    assert world.later(60 * SECOND, "a").repeated


# -- the run's timeout ------------------------------------------------------------------------------------------------
def test_a_run_that_nobody_picks_up_times_out_in_the_queue() -> None:
    """000 §3.4: workflow timeout."""
    world = World(work("a"), timeout=10 * SECOND)
    world.later(10 * SECOND)
    assert (world.run.state, world.run.category) == (RunState.FAILED, Category.TIMEOUT)
    assert world.trail()[-2:] == ["timed_out", "stopped_failed"]


def test_a_run_ends_at_its_timeout_although_a_handler_still_runs() -> None:
    """000 §3.4: "Workflow timeout overrides any step timeout": a handler that blocks its thread does not delay it."""
    world = World(work("a"), work("b", "a"), timeout=10 * SECOND)
    world.claim("a")
    late = world.reporting("a", Completed())
    world.later(10 * SECOND - 1)
    assert world.run.state is RunState.RUNNING
    world.later(1)
    assert (world.run.state, world.state("a"), world.state("b")) == (RunState.FAILED, S.CANCELLED, S.CANCELLED)
    assert world.run.cause is StopCause.TIMEOUT
    assert is_in_doubt(world.row("a").error)
    assert isinstance(world.send(late)[0], Fenced)


def test_a_run_that_is_undone_after_its_timeout_waits_for_what_is_in_flight() -> None:
    """An undo that overtook the effect it undoes would leave that effect."""
    world = World(work("a", undo=True), timeout=10 * SECOND, on_failure=OnFailure.COMPENSATE)
    world.claim("a")
    world.later(10 * SECOND)
    assert world.run.state is RunState.STOPPING
    world.report("a", Completed())
    assert world.run.state is RunState.COMPENSATING


def test_a_claim_after_the_deadline_meets_the_deadline_first() -> None:
    """004 max_duration_seconds: no sweep is needed to end a run whose time is over."""
    world = World(work("a"), timeout=10 * SECOND)
    world.pass_time(10 * SECOND)
    (reply,) = world.send(world.claiming("a"))
    assert isinstance(reply, Conflict)
    assert (world.run.state, world.run.category) == (RunState.FAILED, Category.TIMEOUT)
    assert not world.attempts


def test_a_report_after_the_deadline_counts_but_the_run_has_timed_out() -> None:
    world = World(*sequence(work("a"), work("b")), timeout=10 * SECOND)
    world.claim("a")
    world.pass_time(11 * SECOND)
    world.report("a", Completed(), claimer=claimer())
    assert (world.state("a"), world.state("b")) == (StepState.SUCCEEDED, StepState.CANCELLED)
    assert (world.run.state, world.run.category) == (RunState.FAILED, Category.TIMEOUT)


def test_a_late_report_on_a_step_that_awaits_a_child_keeps_nothing_beyond_the_deadline() -> None:
    """No worker holds such a step: if it kept its grace, nothing would end the run."""
    child = StepDefinition(name="a", order=0, child=SubWorkflow(workflow="other", version=1))
    world = World(child, timeout=10 * SECOND)
    world.pass_time(11 * SECOND)
    (reply,) = world.send(world.reporting("a", Completed(), fence=0))
    assert isinstance(reply, Fenced)
    assert (world.run.state, world.run.category, world.state("a")) == (RunState.FAILED, Category.TIMEOUT, S.CANCELLED)


def test_a_timer_of_a_step_after_the_deadline_meets_it_first() -> None:
    """Otherwise the end of a sleep, swept first, would let the run succeed after its timeout."""
    nap = StepDefinition(name="a", order=0, wait=Wait(event="", deadline=5 * SECOND, sleeps=True))
    world = World(nap, timeout=3 * SECOND)
    world.pass_time(10 * SECOND)
    world.send(TimeCame(tenant="t", run_id="r", actor="sweep", no=0))
    assert (world.run.state, world.state("a")) == (RunState.FAILED, S.CANCELLED)


def test_a_report_at_the_last_moment_before_the_deadline_goes_on() -> None:
    world = World(*sequence(work("a"), work("b")), timeout=10 * SECOND)
    world.claim("a")
    world.pass_time(10 * SECOND - 1)
    world.report("a", Completed())
    assert (world.run.state, world.state("b")) == (RunState.RUNNING, StepState.READY)


@pytest.mark.parametrize("late", ["approval", "message"])
def test_whatever_comes_after_the_deadline_meets_it_first(late: str) -> None:
    world = World(gate("g"), timeout=10 * SECOND)
    world.pass_time(10 * SECOND)
    event = GateDecided(tenant="t", run_id="r", actor="ann", approve=True, no=0)
    message = MessageArrived(tenant="t", run_id="r", actor="ann", id="m", name="paid", payload=b"1")
    (reply,) = world.send(event if late == "approval" else message)
    assert isinstance(reply, Conflict)
    assert world.run.state is RunState.FAILED


def test_the_end_of_a_grace_period_is_no_deadline_for_a_report() -> None:
    world = World(work("a"), work("b"))
    world.claim("a", "b", lease=600 * SECOND)
    world.fail("a")
    world.pass_time(world.plan.definition.grace + SECOND)
    world.report("b", Completed())
    assert (world.state("b"), world.run.state) == (StepState.SUCCEEDED, RunState.FAILED)


def test_waiting_for_people_counts_against_the_runs_timeout() -> None:
    """000 §3.4: "Blocked state (waiting for human) counts against workflow timeout"."""
    world = World(gate("g"), timeout=10 * SECOND)
    assert world.run.state is RunState.BLOCKED
    world.later(10 * SECOND)
    assert (world.run.state, world.state("g")) == (RunState.FAILED, S.CANCELLED)


def test_a_run_times_out_while_its_final_rules_run() -> None:
    world = World(work("a"), rules=(Rule(expression="true"),), timeout=10 * SECOND)
    world.finish("a")
    world.claim("check:run")
    world.later(10 * SECOND)
    assert (world.run.state, world.state("check:run")) == (RunState.FAILED, S.CANCELLED)


def test_a_run_timeout_uses_the_runs_policy() -> None:
    """000 §3.4: "Workflow timeout triggers workflow failure → failurePolicy"."""
    world = World(*sequence(work("a", undo=True), gate("g")), timeout=SECOND, on_failure=OnFailure.COMPENSATE)
    world.finish("a")
    world.later(SECOND)
    assert world.run.state is RunState.COMPENSATING
    assert world.run.due_at is None
    world.finish("undo:a")
    assert (world.run.state, world.run.cause) == (RunState.ROLLED_BACK, StopCause.TIMEOUT)


def test_the_timeout_counts_from_the_start_not_from_the_creation() -> None:
    world = World(work("a"), timeout=10 * SECOND, start=False)
    world.later(100 * SECOND)
    assert world.run.state is RunState.IDLE
    world.start()
    assert world.run.due_at == world.now + 10 * SECOND


def test_a_run_that_ended_in_time_has_no_timer() -> None:
    world = World(work("a"), timeout=10 * SECOND)
    world.finish("a")
    assert world.later(20 * SECOND).repeated
    assert world.run.state is RunState.SUCCEEDED
