"""Attempts: retries and their pauses, timeouts, lost leases, released claims, and who is believed."""

from __future__ import annotations

import pytest
from tests.kernel.driver import LEASE, World, sequence, work

from stepkeep.kernel.decide.retry import LONGEST_DELAY, delay_after
from stepkeep.kernel.definition import SECOND, Backoff, Retry
from stepkeep.kernel.errors import Conflict, Fenced
from stepkeep.kernel.machine.outcomes import (
    Completed,
    Emitted,
    Failed,
    Released,
    RulesPassed,
    Stopped,
    TimedOut,
)
from stepkeep.kernel.machine.states import NEVER_RETRIED, RETRIED_BY_DEFAULT, Category, OnFailure, RunState, StepState

S = StepState
TRANSIENT = Category.TRANSIENT


def pauses(retry: Retry, failures: int) -> list[float]:
    """The pauses between attempts that keep failing, in seconds, as a run shows them."""
    world = World(work("a", retry=retry))
    found = []
    for _ in range(failures):
        world.fail("a", TRANSIENT)
        due = world.row("a").due_at
        found.append(0.0 if due is None else (due - world.now) / SECOND)
        if due is not None:
            world.later(due - world.now, "a")
    return found


# -- retries ----------------------------------------------------------------------------------------------------------
def test_a_retryable_failure_waits_and_then_runs_again() -> None:
    """001 RUNNING → PENDING (retry with backoff); 002 C) Retry; 004 running → retrying → queued."""
    world = World(work("a"))
    world.fail("a", TRANSIENT, "busy")
    assert (world.state("a"), world.row("a").due_at) == (S.RETRYING, world.now + SECOND)
    assert world.run.state is RunState.RUNNING
    world.later(SECOND, "a")
    assert world.state("a") is S.READY
    world.finish("a")
    assert world.run.state is RunState.SUCCEEDED
    assert world.attempts_of("a") == ["failed", "succeeded"]
    assert (world.row("a").category, world.row("a").error) == (None, None)


def test_a_retry_is_not_ready_before_it_is_due() -> None:
    world = World(work("a"))
    world.fail("a", TRANSIENT)
    assert world.later(SECOND - 1, "a").record == {"due": False}
    assert world.state("a") is S.RETRYING
    with pytest.raises(Conflict):
        world.claim("a")


@pytest.mark.parametrize("max_attempts", [1, 2, 3, 10])
def test_max_attempts_counts_all_executions(max_attempts: int) -> None:
    """003 §3.1: "total attempts including the first execution"."""
    world = World(work("a", retry=Retry(max_attempts=max_attempts, initial=0)))
    for _ in range(max_attempts):
        world.fail("a", TRANSIENT)
    assert world.state("a") is S.FAILED
    assert world.attempts_of("a") == ["failed"] * max_attempts
    assert world.row("a").attempts == max_attempts


@pytest.mark.parametrize(
    ("retry", "expected"),
    [
        (Retry(max_attempts=5, backoff=Backoff.CONSTANT, initial=5 * SECOND), [5, 5, 5]),
        (Retry(max_attempts=5, backoff=Backoff.LINEAR, initial=5 * SECOND), [5, 10, 15]),
        (Retry(max_attempts=6), [1, 2, 4, 8]),
        (Retry(max_attempts=9), [1, 2, 4, 8, 16, 30, 30]),
        (Retry(max_attempts=5, factor=3.0, max=None), [1, 3, 9]),
        (Retry(max_attempts=5, backoff=Backoff.LINEAR, initial=20 * SECOND), [20, 30, 30]),
    ],
    ids=["constant", "linear", "exponential", "capped", "factor", "linear capped"],
)
def test_backoff_follows_its_pattern(retry: Retry, expected: list[float]) -> None:
    """000 §3.2 "Backoff strategies" with its own numbers; 003 §3.1 defaults."""
    assert pauses(retry, len(expected)) == expected


def test_an_endless_doubling_stays_within_the_longest_delay() -> None:
    """001's `2^attempts * base` has no cap; a column has."""
    retry = Retry(max_attempts=10_000, max=None)
    for counted in (40, 1_000, 9_999):
        assert delay_after(retry, counted, run_id="r", no=0) == LONGEST_DELAY


def test_jitter_shortens_a_pause_by_a_fixed_amount_per_attempt() -> None:
    """Design §4: "jitter only from a hash of run, step and attempt"."""
    retry = Retry(max_attempts=9, backoff=Backoff.CONSTANT, initial=10 * SECOND, jitter=0.5)
    first = pauses(retry, 5)
    assert first == pauses(retry, 5)
    assert all(5 <= pause <= 10 for pause in first)
    assert len(set(first)) == 5


def test_a_handler_may_choose_the_pause() -> None:
    """002 C) Retry(backoff, lastError); design §4 "a delay the handler asks for"."""
    world = World(work("a"))
    world.claim("a")
    world.report("a", Failed(category=TRANSIENT, error="later", delay=90 * SECOND))
    assert world.row("a").due_at == world.now + 90 * SECOND


def test_the_longest_delay_limits_an_asked_pause_where_the_policy_says_so() -> None:
    """000 §3.2 maxDelay, 003 §3.1 maxBackoffMs; 002 C) takes the handler's backoff as it is."""
    world = World(work("a", retry=Retry(max=60 * SECOND, caps_asked=True)))
    world.claim("a")
    world.report("a", Failed(category=TRANSIENT, error="later", delay=90 * SECOND))
    assert world.row("a").due_at == world.now + 60 * SECOND


@pytest.mark.parametrize("delay", [0, -5])
def test_a_pause_of_nothing_makes_the_step_ready_at_once(delay: int) -> None:
    world = World(work("a"))
    world.claim("a")
    world.report("a", Failed(category=TRANSIENT, error="again", delay=delay))
    assert world.state("a") is S.READY
    assert world.trail("a")[-2:] == ["retry_scheduled", "retry_due"]
    assert world.hops[-2].due_at == world.now


def test_a_pause_beyond_all_measure_is_bounded() -> None:
    world = World(work("a"))
    world.claim("a")
    world.report("a", Failed(category=TRANSIENT, error="later", delay=10**30))
    assert world.row("a").due_at == world.now + LONGEST_DELAY


def test_a_chosen_pause_does_not_add_attempts() -> None:
    """002 C) "Retry must respect max_attempts"."""
    world = World(work("a", retry=Retry(max_attempts=1)))
    world.claim("a")
    world.report("a", Failed(category=TRANSIENT, error="later", delay=5))
    assert world.state("a") is S.FAILED


@pytest.mark.parametrize("category", sorted(NEVER_RETRIED))
def test_some_categories_are_never_retried_whatever_the_policy_says(category: Category) -> None:
    """000 §3.1 Validation, Governance: No; 003 §3.1 non-retryable errors."""
    world = World(work("a", retry=Retry(on=tuple(Category))))
    world.fail("a", category)
    assert world.state("a") is S.FAILED
    assert (world.run.state, world.run.category) == (RunState.FAILED, category)


@pytest.mark.parametrize("category", sorted(RETRIED_BY_DEFAULT))
def test_all_other_categories_are_retried_unless_the_policy_leaves_them_out(category: Category) -> None:
    """003 §3.1: unknown errors are retryable; 000 §3.1 External, Agent: configurable."""
    world = World(work("a"))
    world.fail("a", category)
    assert world.state("a") is S.RETRYING
    others = tuple(sorted(RETRIED_BY_DEFAULT - {category}))
    world = World(work("a", retry=Retry(on=others)))
    world.fail("a", category)
    assert world.state("a") is S.FAILED


def test_a_final_failure_is_not_retried() -> None:
    """002 D) Dead."""
    world = World(work("a"))
    world.claim("a")
    world.report("a", Failed(category=TRANSIENT, error="give up", final=True))
    assert world.state("a") is S.FAILED


# -- timeouts ---------------------------------------------------------------------------------------------------------
def test_a_timeout_is_retried_like_any_other_failure() -> None:
    """003 §3.2: "retry decision uses the same retry policy"."""
    world = World(work("a", retry=Retry(max_attempts=2)))
    world.claim("a")
    world.report("a", TimedOut())
    assert (world.state("a"), world.row("a").category) == (S.RETRYING, Category.TIMEOUT)
    world.later(SECOND, "a")
    world.claim("a")
    world.report("a", TimedOut())
    assert world.state("a") is S.FAILED
    assert world.attempts_of("a") == ["timed_out", "timed_out"]
    assert world.run.category is Category.TIMEOUT


def test_a_timeout_goes_straight_to_on_failure_where_the_policy_says_so() -> None:
    """000 §3.1 Timeout: "Abort step, trigger onFailure", retry: No."""
    world = World(work("a", retry=Retry(on=(TRANSIENT,)), on_failure=OnFailure.SKIP))
    world.claim("a")
    world.report("a", TimedOut())
    assert world.state("a") is S.SKIPPED
    assert world.run.state is RunState.SUCCEEDED


# -- lost leases ------------------------------------------------------------------------------------------------------
def test_a_lost_lease_makes_the_step_ready_at_once_and_counts_as_an_attempt() -> None:
    """002 lease recovery; 001 reclaim of stale RUNNING steps."""
    world = World(work("a"))
    world.lose("a")
    row = world.row("a")
    assert (row.state, row.attempts, row.losses) == (S.READY, 1, 1)
    assert (row.error or "").startswith("LEASE_EXPIRED")
    assert world.attempts_of("a") == ["lost"]
    assert world.trail("a")[-2:] == ["lease_lost", "retry_due"]


def test_a_lease_is_good_to_its_last_moment_and_not_beyond() -> None:
    """002 `locked_until >= now`: the report and the sweep never both win, and never neither."""
    world = World(work("a"))
    world.claim("a")
    world.pass_time(LEASE)
    assert world.tick("a").repeated
    world.report("a", Completed())
    assert world.state("a") is S.SUCCEEDED

    world = World(work("a"))
    world.claim("a")
    world.pass_time(LEASE + 1)
    with pytest.raises(Fenced, match="run out"):
        world.report("a", Completed())
    world.tick("a")
    assert world.state("a") is S.READY


def test_a_step_that_keeps_losing_its_worker_is_poison() -> None:
    """Design §4: "the step fails when attempts or max_losses run out"; 002 as written loops forever."""
    world = World(work("a", retry=Retry(max_attempts=10, max_losses=3)))
    for _ in range(3):
        world.lose("a")
    assert (world.state("a"), world.row("a").category) == (S.FAILED, Category.POISON)
    assert (world.run.state, world.run.category) == (RunState.FAILED, Category.POISON)
    assert world.attempts_of("a") == ["lost"] * 3


def test_a_lost_last_attempt_is_poison_too() -> None:
    """Design §4: "category poison if the last one was lost"."""
    world = World(work("a", retry=Retry(max_attempts=2, initial=0)))
    world.fail("a", TRANSIENT)
    world.lose("a")
    assert (world.state("a"), world.row("a").category) == (S.FAILED, Category.POISON)


def test_poison_is_tolerated_where_failures_are() -> None:
    world = World(*sequence(work("a", retry=Retry(max_losses=1), on_failure=OnFailure.SKIP), work("b")))
    world.lose("a")
    assert world.states() == {"a": "skipped", "b": "ready"}


# -- who is believed --------------------------------------------------------------------------------------------------
def test_a_zombie_is_not_believed_after_another_claim() -> None:
    """Promise 3; seed 002's `locked_by` alone would let the same worker's older claim through."""
    world = World(work("a"))
    stale = world.claim("a", worker=1)
    world.lose("a")
    fresh = world.claim("a", worker=1)
    assert fresh == stale + 1
    with pytest.raises(Fenced):
        world.report("a", Completed(output=b'"old"'), fence=stale)
    world.report("a", Completed(output=b'"new"'))
    assert world.output_of(0) == b'"new"'


def test_another_worker_is_not_believed_even_with_the_right_fence() -> None:
    """002: `locked_by = thisWorkerId`."""
    world = World(work("a"))
    fence = world.claim("a", worker=1)
    with pytest.raises(Fenced):
        world.report("a", Completed(), fence=fence, worker=2)
    assert world.state("a") is S.RUNNING


def test_the_same_report_is_not_believed_twice() -> None:
    """003 §2: "single-shot and terminal"."""
    world = World(*sequence(work("a"), work("b")))
    world.claim("a")
    report = world.reporting("a", Completed())
    first, second = world.send(report, report)
    assert not isinstance(first, Exception)
    assert isinstance(second, Fenced)
    assert world.attempts_of("a") == ["succeeded"]


def test_an_outcome_that_does_not_fit_is_refused() -> None:
    world = World(work("a"))
    world.claim("a")
    with pytest.raises(Conflict, match="RulesPassed says nothing"):
        world.report("a", RulesPassed())


# -- released claims --------------------------------------------------------------------------------------------------
def test_a_released_claim_counts_nothing() -> None:
    """Design §3: running → ready, "released by a draining worker: nothing counted"."""
    world = World(work("a", retry=Retry(max_attempts=1, max_losses=1)))
    for _ in range(3):
        world.claim("a")
        world.report("a", Released())
        assert (world.state("a"), world.row("a").attempts, world.row("a").losses) == (S.READY, 0, 0)
    world.finish("a")
    assert world.attempts_of("a") == ["released", "released", "released", "succeeded"]
    assert world.row("a").fence == 4


def test_a_handler_that_was_cancelled_without_cause_failed() -> None:
    world = World(work("a", retry=Retry(max_attempts=1)))
    world.claim("a")
    world.report("a", Stopped())
    assert (world.state("a"), world.row("a").category) == (S.FAILED, Category.UNKNOWN)
    assert world.attempts_of("a") == ["failed"]


# -- what attempts leave behind ---------------------------------------------------------------------------------------
def test_outbound_events_and_costs_are_kept_with_every_kind_of_outcome() -> None:
    """002 B) outbox in the same transaction; 003 §5 every attempt produces evidence."""
    world = World(work("a", retry=Retry(initial=0)))
    world.claim("a")
    told = (Emitted("tried", b"1"), Emitted("again", b"2"))
    world.report("a", Failed(category=TRANSIENT, error="x", cost=b"7", emit=told))
    world.claim("a")
    world.report("a", Completed(cost=b"8", emit=(Emitted("done", b"3"),)))
    assert [(one.name, one.number) for one in world.outbox] == [("tried", 0), ("again", 1), ("done", 0)]
    assert world.outbox[0].seq == world.outbox[1].seq < world.outbox[2].seq
    assert [attempt.cost for attempt in world.attempts.values()] == [b"7", b"8"]


def test_an_attempt_tells_who_when_and_how() -> None:
    """003 §5: runId, actionId, attempt, timing, outcome and error classification."""
    world = World(work("a"))
    world.claim("a", worker=2)
    began = world.now
    world.pass_time(5)
    world.report("a", Failed(category=TRANSIENT, error="busy"))
    (attempt,) = world.attempts.values()
    assert (attempt.worker, attempt.number, attempt.fence) == (2, 1, 1)
    assert (attempt.started_at, attempt.ended_at) == (began, began + 5)
    assert (attempt.category, attempt.error) == (TRANSIENT, "busy")
    hop = world.hops[-1]
    assert (hop.trigger, hop.attempt, hop.took, hop.category) == ("retry_scheduled", 1, 5, "transient")


def test_a_sweep_that_is_late_or_doubled_changes_nothing() -> None:
    """Seed 002's recovery as a list of ids would overwrite what happened since."""
    world = World(work("a"))
    world.lose("a")
    assert world.tick("a").repeated
    world.claim("a")
    assert world.tick("a").repeated
    world.finish("a")
    assert world.tick("a").repeated
    assert world.tick().repeated
