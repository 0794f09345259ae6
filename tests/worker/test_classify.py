"""Exceptions fall into the closed list of categories (design, section 4)."""

from __future__ import annotations

import errno
import pickle
import socket
from types import SimpleNamespace

import httpx2
import pytest

from stepkeep.kernel.errors import ExpressionError, InvalidInput
from stepkeep.kernel.machine.outcomes import Failed
from stepkeep.kernel.machine.states import Category, ErrorClass
from stepkeep.worker.answers import StepError
from stepkeep.worker.attempts.classify import BindingError, category_of_status, failure_of, parse_retry_after
from stepkeep.worker.attempts.results import outcome_of_return


def http_error(status: int, **headers: str) -> httpx2.HTTPStatusError:
    request = httpx2.Request("GET", "http://example.org")
    response = httpx2.Response(status, headers=headers, request=request)
    return httpx2.HTTPStatusError(f"status {status}", request=request, response=response)


class StatusOnTheErrorItself(Exception):
    status = 503

    def __init__(self) -> None:
        super().__init__()
        self.headers = {"Retry-After": "7"}


@pytest.mark.parametrize(
    ("raised", "category"),
    [
        (TimeoutError("slow"), Category.TRANSIENT),
        (TimeoutError(), Category.TRANSIENT),
        (ConnectionResetError("gone"), Category.TRANSIENT),
        (OSError(errno.ENETUNREACH, "no route"), Category.TRANSIENT),
        (socket.gaierror(-2, "unknown name"), Category.TRANSIENT),
        (httpx2.ConnectError("refused"), Category.TRANSIENT),
        (httpx2.ReadTimeout("slow"), Category.TRANSIENT),
        (http_error(503), Category.TRANSIENT),
        (http_error(429), Category.TRANSIENT),
        (http_error(401), Category.AUTH),
        (http_error(409), Category.CONFLICT),
        (http_error(422), Category.VALIDATION),
        (StatusOnTheErrorItself(), Category.TRANSIENT),
        (FileNotFoundError(errno.ENOENT, "no file"), Category.UNKNOWN),
        (ValueError("odd"), Category.UNKNOWN),
        (TypeError("odd"), Category.UNKNOWN),
        (KeyError("k"), Category.UNKNOWN),
        (SystemExit(3), Category.UNKNOWN),
        (ExpressionError("no such field"), Category.VALIDATION),
        (BindingError("email is missing"), Category.VALIDATION),
    ],
)
def test_each_exception_has_its_category(raised: BaseException, category: Category) -> None:
    assert failure_of(raised).category is category


def test_only_the_unknown_takes_the_executors_own_category() -> None:
    assert failure_of(ValueError("x"), otherwise=Category.AGENT).category is Category.AGENT
    assert failure_of(TimeoutError(), otherwise=Category.AGENT).category is Category.TRANSIENT


def test_an_agent_whose_answer_cannot_be_stored_has_made_an_agent_error() -> None:
    """000 §3.1: an agent that returned invalid output is an agent error, retried as configured; a handler's is not."""
    outcome = outcome_of_return(object(), None, otherwise=Category.AGENT)
    assert isinstance(outcome, Failed)
    assert (outcome.category, outcome.final) == (Category.AGENT, False)
    outcome = outcome_of_return(object(), None)
    assert isinstance(outcome, Failed)
    assert (outcome.category, outcome.final) == (Category.VALIDATION, True)


def test_retry_after_is_honoured_where_a_retry_makes_sense() -> None:
    assert failure_of(http_error(429, **{"Retry-After": "12"})).delay == 12_000_000
    assert failure_of(StatusOnTheErrorItself()).delay == 7_000_000
    assert failure_of(http_error(409, **{"Retry-After": "12"})).delay is None


@pytest.mark.parametrize("value", [None, "", "soon", "-1", "Wed, 21 Oct 2026 07:28:00 GMT", "²"])
def test_a_retry_after_that_is_no_number_of_seconds_is_ignored(value: str | None) -> None:
    assert parse_retry_after(value) is None


def test_a_retry_after_is_bounded() -> None:
    assert parse_retry_after("9" * 50) == 86_400_000_000


@pytest.mark.parametrize(
    ("status", "category"),
    [
        (408, "transient"), (425, "transient"), (429, "transient"), (500, "transient"), (599, "transient"),
        (401, "auth"), (403, "auth"), (409, "conflict"), (400, "validation"), (404, "validation"),
    ],
)  # fmt: skip
def test_statuses_are_classified_as_the_design_says(status: int, category: str) -> None:
    assert category_of_status(status) == category


@pytest.mark.parametrize(
    ("raised", "error_class"),
    [
        (http_error(429), "rate_limit"), (http_error(500), "5xx"), (http_error(503), "5xx"),
        (http_error(408), "transport"),
        (http_error(425), "transport"), (http_error(404), None), (httpx2.ConnectError("refused"), "transport"),
        (ConnectionResetError(), "transport"), (ValueError("x"), None),
        (StepError("x", category="transient", error_class="5xx"), "5xx"), (StepError("x", category="transient"), None),
    ],
)  # fmt: skip
def test_how_another_system_failed_is_told_apart(raised: BaseException, error_class: str | None) -> None:
    assert failure_of(raised).error_class == error_class


def test_an_error_class_survives_a_child_process_and_a_wrong_one_is_refused() -> None:
    again = pickle.loads(pickle.dumps(StepError("x", category="transient", error_class="rate_limit")))
    assert again.error_class is ErrorClass.RATE_LIMIT
    for wrong in ("slow", "", 7, b"5xx"):
        with pytest.raises(InvalidInput, match="error class"):
            StepError("x", error_class=wrong)  # type: ignore[arg-type]
    raised = StepError("x", category="transient")
    raised.error_class = "5xx"  # type: ignore[assignment]
    said = failure_of(raised)
    assert said.error_class is None
    assert "error class" in said.error


def test_an_error_without_words_is_named_by_its_type() -> None:
    assert failure_of(KeyboardInterrupt()).error == "KeyboardInterrupt"


def test_an_error_text_that_no_row_can_hold_is_cleaned() -> None:
    assert failure_of(ValueError("a\x00\ud800b")).error == "ValueError: a\ufffd?b"


def test_an_object_that_only_looks_like_a_response_error_is_unknown() -> None:
    error = ValueError("x")
    error.response = SimpleNamespace(status_code=200)  # type: ignore[attr-defined]
    assert failure_of(error).category is Category.UNKNOWN
