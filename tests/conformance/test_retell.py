"""The judge re-enacts a dialect's log from the definition: hidden hops are inferred, impossible lines are found."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from tests.conformance.logs import cancel, failure, retry, success
from tests.conformance.tellings import Line, dialects, encoded, resealed, stories, told, walks
from tests.conformance.test_reenact import contract_of
from tests.kernel.driver import World

from stepkeep.conformance.report import Code, Report
from stepkeep.conformance.schema import timestamp_of
from stepkeep.conformance.words.replay import replay_lines
from stepkeep.dialects.dialect import JudgedDialect
from stepkeep.dialects.registry import judged as by_name

EVERY = pytest.mark.parametrize("judged", dialects(), ids=lambda judged: judged.name)


def replay(world: World, lines: list[Line], judged: JudgedDialect) -> Report:
    return replay_lines(encoded(lines), judged, contract=contract_of(world))


@EVERY
def test_every_run_is_reenacted_from_its_log_in_a_dialect(judged: JudgedDialect) -> None:
    for world in [*stories(), *walks(60, seed=9)]:
        report = replay(world, told(world, judged), judged)
        assert report.ok, report.findings[:3]


Tamper = Callable[[list[Line]], None]


def last(lines: list[Line], step: str, **wanted: Any) -> Line:
    return [
        line
        for line in lines
        if line["metadata"].get("step") == step
        and all(line["metadata"].get(name) == value for name, value in wanted.items())
    ][-1]


def says(step: str, because: str, **changes: Any) -> Tamper:
    return lambda lines: last(lines, step, because=because)["metadata"].update(changes)


def no_step(step: str) -> Tamper:
    def change(lines: list[Line]) -> None:
        lines[:] = [line for line in lines if line["metadata"].get("step") != step]

    return change


LIES: dict[str, tuple[Callable[[], World], tuple[str, ...], Tamper, Code]] = {
    "an attempt that the definition does not allow": (
        retry,
        ("ioa", "run", "linear", "action", "workstream"),
        says("a", "rules_passed", attempt=99, retry_count=98),
        Code.DISCONTINUOUS,
    ),
    "a step cut out": (
        failure,
        ("ioa", "run", "linear", "action", "workstream"),
        no_step("c"),
        Code.DEFINITION,
    ),
    "a false backoff": (retry, ("run", "linear", "workstream"), says("a", "retry_scheduled", due_at=1), Code.TIMER),
    "a foreign fence": (success, ("run", "linear", "workstream"), says("pack", "claimed", fence=2), Code.DISCONTINUOUS),
    "a false duration": (
        success,
        ("ioa", "run", "linear", "action", "workstream"),
        says("pack", "rules_passed", duration_seconds=9_999.0),
        Code.OUTCOME,
    ),
    "a failure that must be retried": (
        failure,
        ("ioa", "run", "linear", "action", "workstream"),
        says("a", "failed", category="transient"),
        Code.ATTEMPT,
    ),
    "a limit that is not the definition's": (
        success,
        ("ioa", "run", "linear", "action", "workstream"),
        says("pack", "planned", max_attempts=9),
        Code.CONTRADICTION,
    ),
    "a rollback that the policy rules out": (
        failure,
        ("ioa", "run", "linear", "action", "workstream"),
        lambda lines: lines[-2]["metadata"].update(because="undo_failed"),
        Code.POLICY,
    ),
}


@pytest.mark.parametrize(
    ("lie", "dialect"), [(lie, dialect) for lie, (_, told_in, _, _) in LIES.items() for dialect in told_in]
)
def test_a_line_that_the_definition_rules_out_is_found(lie: str, dialect: str) -> None:
    story, _, tamper, code = LIES[lie]
    world, judged = story(), by_name(dialect)
    lines = deepcopy(told(world, judged))
    tamper(lines)
    found = replay(world, resealed(lines), judged).findings
    assert code in {finding.code for finding in found}, found


def test_a_retry_before_it_is_due_is_found() -> None:
    world, judged = retry(), by_name("workstream")
    lines = deepcopy(told(world, judged))
    first = next(line for line in lines if line["metadata"]["because"] == "retry_due")
    for line in lines:
        if line["metadata"]["seq"] == first["metadata"]["seq"]:
            line["metadata"]["at"] -= 1
            line["timestamp"] = timestamp_of(line["metadata"]["at"])
    found = replay(world, resealed(lines), judged).findings
    assert Code.TIMER in {finding.code for finding in found}, found


def test_a_cancel_that_leaves_a_step_open_is_found() -> None:
    world, judged = cancel(), by_name("linear")
    lines = [line for line in told(world, judged) if line["metadata"].get("step") != "c" or line["from_state"] is None]
    found = replay(world, resealed(lines), judged).findings
    assert Code.ENDING in {finding.code for finding in found}, found
