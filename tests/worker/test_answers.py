"""What handlers may say besides a value (design, section 7)."""

from __future__ import annotations

import pickle
from datetime import timedelta

import pytest

from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.outcomes import Completed, Emitted, Failed, Stopped, Waiting
from stepkeep.kernel.machine.states import Category
from stepkeep.worker.answers import StepError, fail, retry_in, wait_for
from stepkeep.worker.attempts.results import FailedWithTraceback, outcome_of_exception, outcome_of_return
from stepkeep.worker.cancellation import Cancellation, HandlerCancelled, Why
from stepkeep.worker.context import Context


def a_context() -> Context:
    return Context(run_id="r1", workflow="orders", version=1, step="charge")


def test_a_wait_becomes_an_outcome_with_its_deadline_and_events() -> None:
    answer = wait_for("paid", timeout="2d", emit=["asked", ("told", {"a": 1}), {"name": "said", "payload": 2}])
    assert outcome_of_return(answer, None) == Waiting(
        event="paid",
        timeout=2 * 86_400_000_000,
        emit=(Emitted("asked", b"null"), Emitted("told", b'{"a":1}'), Emitted("said", b"2")),
    )


def test_a_wait_says_which_messages_it_takes() -> None:
    assert outcome_of_return(wait_for("vote", where="message.n > 1", count=3), None) == Waiting(
        event="vote", accepts="message.n > 1", count=3
    )
    assert outcome_of_return(wait_for("vote", until="size(messages) > 1"), None) == Waiting(
        event="vote", enough="size(messages) > 1"
    )


def test_a_wait_may_fail_at_its_deadline_instead_of_running_the_handler() -> None:
    assert outcome_of_return(wait_for("paid", timeout=timedelta(hours=1), on_timeout="fail"), None) == Waiting(
        event="paid", timeout=3_600_000_000, takes_timeouts=False
    )


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: wait_for(""),
        lambda: wait_for("x", timeout=30),
        lambda: wait_for("x", on_timeout="explode"),
        lambda: wait_for("x", emit=[{"nome": "x"}]),
        lambda: wait_for("x", count=0),
        lambda: wait_for("x", count=101),
        lambda: wait_for("x", count=2, until="true"),
        lambda: wait_for("x", where="message.("),
        lambda: wait_for("x", where="messages == []"),
        lambda: wait_for("x", until="size(message) > 1"),
        lambda: wait_for("x", where=5),  # type: ignore[arg-type]
        lambda: retry_in(5),
        lambda: retry_in("-5s"),
        lambda: fail("x", category="sadness"),
    ],
)
def test_what_cannot_be_meant_is_refused_where_it_is_written(wrong) -> None:
    with pytest.raises(InvalidInput):
        wrong()


def test_retry_in_asks_for_a_pause_and_fail_rules_another_attempt_out() -> None:
    assert outcome_of_return(retry_in("30s", "not yet"), None) == Failed(
        category=Category.TRANSIENT, error="not yet", delay=30_000_000
    )
    assert outcome_of_return(fail("no such customer"), None) == Failed(
        category=Category.VALIDATION, error="no such customer", final=True
    )


def test_returned_or_raised_is_the_same() -> None:
    said = fail("declined", category="conflict")
    assert outcome_of_return(said, None) == outcome_of_exception(said, None, Cancellation())


def test_an_error_keeps_its_category_on_the_way_out_of_a_process() -> None:
    copy = pickle.loads(pickle.dumps(StepError("x", category="auth", delay=5, final=True)))
    assert (str(copy), copy.category, copy.delay, copy.final) == ("x", Category.AUTH, 5, True)


def test_events_go_with_a_result_and_costs_are_kept_even_without_one() -> None:
    context = a_context()
    context.cost(usd=0.5, tokens=10)
    context.cost(tokens=5, gpu_seconds=2)
    context.emit("charged", {"n": 1})
    cost = b'{"usd":0.5,"tokens":15,"gpu_seconds":2}'
    assert outcome_of_return({"ok": True}, context) == Completed(
        output=b'{"ok":true}', cost=cost, emit=(Emitted("charged", b'{"n":1}'),)
    )
    raised = outcome_of_exception(ValueError("x"), context, Cancellation())
    assert isinstance(raised, FailedWithTraceback)
    assert raised.without_traceback() == Failed(category=Category.UNKNOWN, error="ValueError: x", cost=cost)


def test_a_result_that_cannot_be_stored_is_a_failure_that_can() -> None:
    outcome = outcome_of_return({"x": float("nan")}, None)
    assert isinstance(outcome, Failed)
    assert outcome.category is Category.VALIDATION
    assert outcome.final
    assert "cannot be stored" in outcome.error


def test_a_handler_that_ends_because_its_run_is_stopping_was_stopped() -> None:
    cancelled = Cancellation()
    cancelled.set(Why.RUN_STOPPING)
    assert outcome_of_exception(HandlerCancelled("x"), None, cancelled) == Stopped()


def test_a_handler_that_cancels_itself_has_failed() -> None:
    outcome = outcome_of_exception(HandlerCancelled("x"), None, Cancellation())
    assert isinstance(outcome, Failed)
