"""Rules: what must hold before a result counts, for a step and for a whole run."""

from __future__ import annotations

import pytest
from tests.kernel.driver import LEASE, World, sequence, work

from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.definition import Retry, Rule
from stepkeep.kernel.errors import Conflict
from stepkeep.kernel.machine.outcomes import (
    Completed,
    Failed,
    Released,
    RulesFailed,
    RulesPassed,
    Stopped,
    TimedOut,
    Waiting,
)
from stepkeep.kernel.machine.states import Category, OnFailure, RunState, StepState

S = StepState
RULES = (Rule(expression="output.n > 0", message="n must be positive"),)


def validating(**settings: object) -> World:
    """A run of `a`, whose handler is done and whose rules are about to run, and `b` after it."""
    world = World(*sequence(work("a", rules=RULES, **settings), work("b")))  # type: ignore[arg-type]
    world.claim("a")
    world.report("a", Completed(output=b'{"n":1}'))
    return world


# -- a step's rules ---------------------------------------------------------------------------------------------------
def test_rules_run_under_the_lease_of_the_handler() -> None:
    """004 running → validating: "Run post_execution validation rules"."""
    world = validating()
    row = world.row("a")
    assert (row.state, row.worker, row.fence) == (S.VALIDATING, 1, 1)
    assert world.state("b") is S.PENDING


def test_rules_that_pass_let_the_result_count() -> None:
    """004 validating → completed: "Unblock dependent tasks"."""
    world = validating()
    world.report("a", RulesPassed())
    assert (world.state("a"), world.state("b")) == (S.SUCCEEDED, S.READY)
    assert world.attempts_of("a") == ["succeeded"]


def test_rules_that_fail_fail_the_step_for_good() -> None:
    """004 validating → failed; 000 §3.1 Validation: never retried."""
    world = validating(retry=Retry(max_attempts=9))
    world.report("a", RulesFailed(error="n must be positive"))
    assert (world.state("a"), world.row("a").category) == (S.FAILED, Category.VALIDATION)
    assert (world.run.state, world.run.error) == (RunState.FAILED, "n must be positive")


def test_rules_that_fail_are_tolerated_where_failures_are() -> None:
    world = validating(on_failure=OnFailure.SKIP)
    world.report("a", RulesFailed(error="no"))
    assert (world.state("a"), world.state("b")) == (S.SKIPPED, S.READY)


@pytest.mark.parametrize(
    "outcome",
    [
        Failed(category=Category.UNKNOWN, error="x"),
        TimedOut(),
        Waiting(event="paid"),
        Stopped(),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
def test_only_rules_are_reported_on_a_step_that_is_validating(outcome: object) -> None:
    world = validating()
    with pytest.raises(Conflict, match="says nothing about that"):
        world.report("a", outcome)  # type: ignore[arg-type]
    assert world.state("a") is S.VALIDATING


def test_completing_again_what_is_being_checked_is_recognised_and_changes_nothing() -> None:
    """A worker that never heard the answer to its report sends it again (rule: an unknown commit outcome is normal)."""
    world = validating()
    before = world.row("a")
    reply = world.report("a", Completed(output=b'{"n":1}'))
    assert isinstance(reply, Accepted)
    assert reply.repeated
    assert reply.record["state"] is S.VALIDATING
    assert world.row("a") == before


def test_a_lease_lost_while_validating_runs_the_rules_alone_again() -> None:
    """Design §3: "if it is lost they alone run again": the handler is done and must not run twice."""
    world = validating()
    world.later(LEASE + 1, "a")
    row = world.row("a")
    assert (row.state, row.losses, row.attempts) == (S.VALIDATING, 1, 0)
    assert world.ready() == ["a"]
    world.claim("a", worker=2)
    assert (world.state("a"), world.row("a").fence) == (S.VALIDATING, 2)
    world.report("a", RulesPassed())
    assert world.state("a") is S.SUCCEEDED
    assert world.output_of(0) == b'{"n":1}'
    assert "running" not in [hop.target for hop in world.hops if hop.no == 0][3:]


def test_rules_run_again_even_where_the_handler_may_run_only_once() -> None:
    world = validating(retry=Retry(max_attempts=1))
    world.later(LEASE + 1, "a")
    assert world.ready() == ["a"]
    world.finish("a")
    assert world.state("a") is S.SUCCEEDED


@pytest.mark.parametrize(
    ("policy", "state"), [(OnFailure.ABORT, S.FAILED), (OnFailure.SKIP, S.SKIPPED)], ids=["abort", "skip"]
)
def test_rules_that_keep_losing_their_worker_are_poison(policy: OnFailure, state: StepState) -> None:
    world = validating(retry=Retry(max_attempts=1, max_losses=2), on_failure=policy)
    world.later(LEASE + 1, "a")
    world.lose("a")
    assert (world.state("a"), world.row("a").category) == (state, Category.POISON)


def test_rules_released_by_a_draining_worker_are_run_by_another() -> None:
    world = validating()
    world.report("a", Released())
    assert (world.state("a"), world.ready(), world.row("a").losses) == (S.VALIDATING, ["a"], 0)
    world.finish("a")
    assert world.state("a") is S.SUCCEEDED


def test_a_zombie_cannot_pass_the_rules_of_another_claim() -> None:
    world = validating()
    world.later(LEASE + 1, "a")
    world.claim("a", worker=2)
    (reply,) = world.send(world.reporting("a", RulesFailed(error="late"), fence=1, worker=1))
    assert isinstance(reply, Exception)
    assert world.state("a") is S.VALIDATING


# -- the run's rules --------------------------------------------------------------------------------------------------
def checked(**settings: object) -> World:
    """A run with final rules whose only step is done."""
    world = World(work("a", undo=True), rules=RULES, **settings)  # type: ignore[arg-type]
    world.finish("a")
    return world


def test_the_runs_rules_are_a_step_of_their_own_after_all_others() -> None:
    """004 workstream executing → validating: "Run final workstream validation"."""
    world = checked()
    assert world.run.state is RunState.VALIDATING
    assert world.states() == {"a": "succeeded", "check:run": "ready"}


def test_a_run_succeeds_when_its_rules_pass() -> None:
    """004 validating → completed."""
    world = checked()
    world.claim("check:run")
    world.report("check:run", RulesPassed())
    assert (world.run.state, world.state("check:run")) == (RunState.SUCCEEDED, S.SUCCEEDED)


@pytest.mark.parametrize(
    ("policy", "state"), [(OnFailure.ABORT, RunState.FAILED), (OnFailure.COMPENSATE, RunState.COMPENSATING)]
)
def test_a_run_whose_rules_fail_stops_under_its_policy(policy: OnFailure, state: RunState) -> None:
    """004 workstream validating → failed."""
    world = checked(on_failure=policy)
    world.claim("check:run")
    world.report("check:run", RulesFailed(error="no"))
    assert (world.run.state, world.run.category, world.run.error) == (state, Category.VALIDATION, "no")
    assert "rules_failed" in world.trail()


def test_rules_that_cannot_run_fail_the_run() -> None:
    """Design §3: "a run-level rule failed or could not run"."""
    world = checked()
    world.lose("check:run")
    assert world.ready() == ["check:run"]
    world.lose("check:run")
    assert (world.run.state, world.run.category) == (RunState.FAILED, Category.POISON)


def test_the_final_check_neither_waits_nor_parks_the_run() -> None:
    world = checked()
    world.claim("check:run")
    world.report("check:run", Waiting(event="paid"))
    assert (world.state("check:run"), world.run.state) == (S.FAILED, RunState.FAILED)


def test_a_final_check_that_breaks_is_tried_again() -> None:
    world = checked()
    world.fail("check:run", Category.TRANSIENT)
    assert (world.state("check:run"), world.run.state) == (S.RETRYING, RunState.VALIDATING)
    world.later(10**6, "check:run")
    world.claim("check:run")
    world.report("check:run", RulesPassed())
    assert world.run.state is RunState.SUCCEEDED


def test_a_run_that_failed_under_continue_is_not_validated() -> None:
    """004: "All tasks in completed state, no failures"."""
    world = World(work("a", on_failure=OnFailure.CONTINUE), rules=RULES)
    world.fail("a")
    assert world.run.state is RunState.FAILED
    assert "check:run" not in world.states()
