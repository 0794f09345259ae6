"""The judge re-enacts retries by error class (seed 003, 3.1): in every dialect, from the detail of the report."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.tellings import found_in, log_in
from tests.kernel.driver import World, work

from stepkeep.dialects import registry
from stepkeep.kernel.definition import SECOND, Retry
from stepkeep.kernel.machine.outcomes import Failed
from stepkeep.kernel.machine.states import Category, ErrorClass
from stepkeep_lab.forgeries.material import CANONICAL

EVERY = pytest.mark.parametrize("words", [CANONICAL, *registry.names()])
ONLY_RATE_LIMITS = Retry(max_attempts=3, initial=SECOND, classes=(ErrorClass.RATE_LIMIT,))


def told(error_class: ErrorClass, retry: Retry = ONLY_RATE_LIMITS) -> World:
    world = World(work("a", retry=retry))
    world.claim("a")
    world.report("a", Failed(category=Category.TRANSIENT, error="no", error_class=error_class))
    return world


def report_in(lines: list[dict[str, Any]]) -> dict[str, Any] | None:
    return next((line for line in lines if "error_class" in line["metadata"].get("detail", {})), None)


@EVERY
@pytest.mark.parametrize("error_class", ErrorClass)
def test_a_true_log_is_accepted(words: str, error_class: ErrorClass) -> None:
    world = told(error_class)
    assert world.states()["a"] == ("retrying" if error_class is ErrorClass.RATE_LIMIT else "failed")
    assert found_in(words, log_in(words, world)) == ()


@EVERY
@pytest.mark.parametrize(
    ("happened", "claimed"), [("rate_limit", "5xx"), ("rate_limit", "slow"), ("5xx", "rate_limit"), ("5xx", 7)]
)
def test_a_class_that_does_not_lead_to_this_decision_is_found(words: str, happened: str, claimed: object) -> None:
    lines = log_in(words, told(ErrorClass(happened)))
    line = report_in(lines)
    if line is None:
        assert words in ("ioa", "action"), "only these two do not show a retry"
        return
    line["metadata"]["detail"]["error_class"] = claimed
    assert found_in(words, lines) != ()


@EVERY
def test_a_class_where_the_definition_names_none_is_found(words: str) -> None:
    world = told(ErrorClass.RATE_LIMIT, Retry(max_attempts=3, initial=SECOND))
    lines = log_in(words, world)
    assert report_in(lines) is None, "no decision rests on it"
    assert found_in(words, lines) == ()
    line = next((one for one in lines if one["metadata"].get("event") == "step_reported"), None)
    if line is not None:
        line["metadata"]["detail"] = {"error_class": "rate_limit"}
        assert found_in(words, lines) != ()
