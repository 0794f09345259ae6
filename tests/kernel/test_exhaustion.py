"""No attempt is left: by number, by losses or by time. A step that says `hold` waits for a person then."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.kernel.driver import LEASE, World, sequence, work
from tests.suites import in_proof

from stepkeep.kernel.definition import (
    SECOND,
    UNDO_RETRY,
    Backoff,
    Handler,
    OnExhausted,
    Retry,
    StepDefinition,
    Undo,
)
from stepkeep.kernel.errors import Conflict
from stepkeep.kernel.machine.events import HoldChoice
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.outcomes import Failed
from stepkeep.kernel.machine.states import Category, OnFailure, RunState, StepState

S = StepState
TRANSIENT = Category.TRANSIENT
TWICE = Retry(max_attempts=2, initial=0)


def holding(name: str = "a", **settings: object) -> StepDefinition:
    return work(name, **{"retry": TWICE, "on_exhausted": OnExhausted.HOLD, **settings})  # type: ignore[arg-type]


def exhausted(**settings: object) -> World:
    """Two steps; no attempt of the first is left."""
    world = World(*sequence(holding(**settings), work("b")))
    for _ in range(2):
        world.fail("a", TRANSIENT, "no route")
    return world


# -- holding ---------------------------------------------------------------------------------------------------------
def test_a_step_holds_when_its_attempts_run_out_and_its_run_is_blocked() -> None:
    """Design, part two, section 2: held_exhausted."""
    world = exhausted()
    row = world.row("a")
    assert (row.state, row.due_at, row.attempts) == (S.AWAITING_APPROVAL, None, 2)
    assert (row.category, row.error) == (TRANSIENT, "no route")
    assert world.run.state is RunState.BLOCKED
    assert world.ready() == []


def test_without_hold_the_same_step_fails() -> None:
    world = World(work("a", retry=TWICE))
    for _ in range(2):
        world.fail("a", TRANSIENT)
    assert world.run.state is RunState.FAILED


def test_an_error_that_is_never_retried_leaves_no_attempt_and_holds() -> None:
    world = World(holding())
    world.fail("a", Category.AUTH, "key expired")
    assert (world.state("a"), world.row("a").attempts) == (S.AWAITING_APPROVAL, 1)


def test_a_failure_that_the_handler_calls_final_does_not_hold() -> None:
    world = World(holding())
    world.claim("a")
    world.report("a", Failed(category=Category.CONFLICT, error="already paid", final=True))
    assert (world.state("a"), world.run.state) == (S.FAILED, RunState.FAILED)


def test_a_step_that_loses_its_workers_too_often_holds_as_poison() -> None:
    world = World(holding(retry=Retry(max_attempts=9, max_losses=2)))
    for _ in range(2):
        world.lose("a")
    assert (world.state("a"), world.row("a").category) == (S.AWAITING_APPROVAL, Category.POISON)


def test_in_a_stopping_run_nothing_holds() -> None:
    world = World(holding("a", retry=Retry(max_attempts=1)), work("b"))
    world.claim("a")
    world.fail("b")
    assert world.run.state is RunState.STOPPING
    world.report("a", Failed(category=TRANSIENT, error="no"))
    assert (world.state("a"), world.run.state) == (S.FAILED, RunState.FAILED)


def held_undo(choice: HoldChoice | None = None) -> World:
    hook = Undo(executor=Handler(name="undo"), retry=UNDO_RETRY, on_exhausted=OnExhausted.HOLD)
    world = World(*sequence(work("a", undo=hook), work("b")))
    world.finish("a")
    world.cancel(compensate=True)
    world.fail("undo:a", Category.AUTH, "no refunds today")
    if choice is not None:
        world.decide_hold("undo:a", choice, by="ann")
    return world


def test_an_undo_that_says_hold_keeps_the_rollback_open_for_a_person() -> None:
    world = held_undo()
    assert (world.state("undo:a"), world.run.state) == (S.AWAITING_APPROVAL, RunState.COMPENSATING)
    with pytest.raises(Conflict, match="cannot be skipped"):
        world.decide_hold("undo:a", HoldChoice.SKIP, by="ann")


def test_a_held_undo_is_retried_completed_or_failed_by_a_decision() -> None:
    retried = held_undo(HoldChoice.RETRY)
    retried.finish("undo:a")
    assert (retried.run.state, retried.run.rollback) == (RunState.ROLLED_BACK, "complete")
    completed = held_undo(HoldChoice.COMPLETE)
    assert (completed.run.state, completed.run.rollback) == (RunState.ROLLED_BACK, "complete")
    failed = held_undo(HoldChoice.FAIL)
    assert (failed.run.state, failed.run.rollback) == (RunState.FAILED, "partial")


def test_an_undo_that_holds_after_lost_workers_has_all_its_attempts_and_losses_again() -> None:
    hook = Undo(executor=Handler(name="undo"), retry=replace(UNDO_RETRY, max_losses=2), on_exhausted=OnExhausted.HOLD)
    world = World(*sequence(work("a", undo=hook), work("b")))
    world.finish("a")
    world.cancel(compensate=True)
    for _ in range(2):
        world.lose("undo:a")
    assert (world.state("undo:a"), world.row("undo:a").attempts) == (S.AWAITING_APPROVAL, 0)
    world.decide_hold("undo:a", HoldChoice.RETRY)
    world.lose("undo:a")
    world.fail("undo:a", TRANSIENT)
    world.later(SECOND, "undo:a")
    world.finish("undo:a")
    assert world.run.state is RunState.ROLLED_BACK


def test_the_undo_of_a_step_that_holds_does_not() -> None:
    world = World(*sequence(holding(undo=True), work("b")), on_failure=OnFailure.COMPENSATE)
    world.finish("a")
    world.cancel(compensate=True)
    world.fail("undo:a", Category.AUTH)
    assert world.run.state is RunState.FAILED


# -- deciding --------------------------------------------------------------------------------------------------------
def test_a_retry_by_a_person_gives_all_attempts_again_and_counts_on() -> None:
    """The numbers of attempts go on: what was tried before stays visible."""
    world = exhausted()
    said = world.decide_hold("a", HoldChoice.RETRY, by="ann", reason="network is back")
    assert (said.record["decision"], said.record["by"], said.record["reason"]) == ("retried", "ann", "network is back")
    assert (world.state("a"), world.run.state) == (S.READY, RunState.RUNNING)
    world.fail("a", TRANSIENT)
    assert world.state("a") is S.READY
    world.fail("a", TRANSIENT)
    assert (world.state("a"), world.row("a").attempts) == (S.AWAITING_APPROVAL, 4)
    assert [attempt.number for attempt in world.attempts.values()] == [1, 2, 3, 4]
    world.decide_hold("a", HoldChoice.RETRY)
    world.finish("a")
    world.finish("b")
    assert (world.run.state, world.row("a").error) == (RunState.SUCCEEDED, None)


def test_a_retry_by_a_person_begins_a_new_backoff_and_new_losses() -> None:
    world = World(holding(retry=Retry(max_attempts=3, max_losses=1, backoff=Backoff.LINEAR)))
    world.lose("a")
    world.decide_hold("a", HoldChoice.RETRY)
    world.fail("a", TRANSIENT)
    assert (world.state("a"), world.row("a").due_at) == (S.RETRYING, world.now + SECOND)


def test_a_skip_by_a_person_lets_a_sequence_go_on() -> None:
    world = exhausted()
    world.decide_hold("a", HoldChoice.SKIP, by="ann", reason="not needed")
    assert world.state("a") is S.SKIPPED
    world.finish("b")
    assert world.run.state is RunState.SUCCEEDED


def test_a_required_step_is_retried_or_failed_and_never_skipped() -> None:
    world = exhausted(on_exhausted=OnExhausted.HOLD_REQUIRED)
    with pytest.raises(Conflict, match="cannot be skipped: the run needs it"):
        world.decide_hold("a", HoldChoice.SKIP)
    assert world.row("a").note is not None
    world.decide_hold("a", HoldChoice.RETRY)
    world.finish("a")
    world.finish("b")
    assert world.run.state is RunState.SUCCEEDED


def test_a_failure_by_a_person_keeps_the_category_and_names_both() -> None:
    world = exhausted()
    world.decide_hold("a", HoldChoice.FAIL, by="ann", reason="hopeless")
    assert (world.state("a"), world.run.state) == (S.FAILED, RunState.FAILED)
    assert world.row("a").error == "no route (failed by ann: hopeless)"
    assert (world.run.category, world.run.error) == (TRANSIENT, "no route (failed by ann: hopeless)")


def test_a_failure_by_a_person_follows_on_failure() -> None:
    world = exhausted(on_failure=OnFailure.SKIP)
    world.decide_hold("a", HoldChoice.FAIL)
    assert (world.state("a"), world.run.state) == (S.SKIPPED, RunState.RUNNING)


def test_the_journal_keeps_who_decided_and_why() -> None:
    world = exhausted()
    world.decide_hold("a", HoldChoice.SKIP, by="ann", reason="not needed")
    [cause] = open_entry(world.bodies[-1]).causes
    assert cause.event == "hold_decided"
    assert (cause.actor, cause.detail) == ("ann", {"step": "a", "decision": "skipped", "reason": "not needed"})


def test_the_same_decision_again_changes_nothing_and_another_is_a_conflict() -> None:
    world = exhausted()
    world.decide_hold("a", HoldChoice.SKIP, by="ann")
    assert world.decide_hold("a", HoldChoice.SKIP, by="ann").repeated
    with pytest.raises(Conflict, match="was skipped by ann first"):
        world.decide_hold("a", HoldChoice.FAIL, by="bea")


def test_a_step_that_waits_for_a_worker_is_not_retried() -> None:
    world = World(holding())
    with pytest.raises(Conflict, match="is ready; a person can only skip or fail it now"):
        world.decide_hold("a", HoldChoice.RETRY)


@pytest.mark.parametrize("name", ["a", None])
def test_a_held_step_is_no_gate(name: str | None) -> None:
    world = exhausted()
    with pytest.raises(Conflict, match="Decide to retry, skip or fail it"):
        world.approve(name)
    assert world.state("a") is S.AWAITING_APPROVAL


def test_a_cancel_ends_a_held_step() -> None:
    world = exhausted()
    world.cancel()
    assert (world.state("a"), world.run.state) == (S.CANCELLED, RunState.CANCELLED)


# -- time ------------------------------------------------------------------------------------------------------------
TIMED = Retry(max_attempts=100, backoff=Backoff.CONSTANT, initial=4 * SECOND, max=None, max_elapsed=10 * SECOND)


def test_no_retry_is_due_later_than_max_elapsed_after_the_first_attempt_began() -> None:
    world = World(work("a", retry=TIMED))
    began = world.now
    for _ in range(2):
        world.fail("a", TRANSIENT)
        world.later(4 * SECOND, "a")
    assert world.now == began + 8 * SECOND
    world.fail("a", TRANSIENT, "still no")
    assert (world.state("a"), world.row("a").attempts) == (S.FAILED, 3)


def test_a_retry_that_is_due_exactly_at_max_elapsed_is_made() -> None:
    world = World(work("a", retry=TIMED))
    world.claim("a")
    world.pass_time(6 * SECOND)
    world.report("a", Failed(category=TRANSIENT, error="no"))
    assert world.state("a") is S.RETRYING


def test_a_delay_that_the_handler_asks_for_does_not_pass_max_elapsed() -> None:
    world = World(work("a", retry=TIMED))
    world.claim("a")
    world.report("a", Failed(category=TRANSIENT, error="no", delay=11 * SECOND))
    assert world.state("a") is S.FAILED


def test_a_lost_lease_after_max_elapsed_is_not_tried_again() -> None:
    assert LEASE > 10 * SECOND
    world = World(work("a", retry=TIMED))
    world.lose("a")
    assert (world.state("a"), world.row("a").category) == (S.FAILED, Category.POISON)


def test_a_retry_by_a_person_begins_the_time_again() -> None:
    world = World(holding(retry=TIMED))
    world.claim("a")
    world.pass_time(7 * SECOND)
    world.report("a", Failed(category=TRANSIENT, error="no"))
    assert world.state("a") is S.AWAITING_APPROVAL
    world.pass_time(3600 * SECOND)
    world.decide_hold("a", HoldChoice.RETRY)
    world.fail("a", TRANSIENT)
    assert world.state("a") is S.RETRYING


@pytest.mark.parametrize("most", [1_000, in_proof(10_000)])
def test_thousands_of_attempts_are_counted_one_by_one(most: int) -> None:
    world = World(work("a", retry=Retry(max_attempts=most, initial=0)), watched=False)
    for _ in range(most - 1):
        world.fail("a", TRANSIENT)
    assert (world.state("a"), world.row("a").attempts) == (S.READY, most - 1)
    world.fail("a", TRANSIENT)
    assert world.state("a") is S.FAILED
