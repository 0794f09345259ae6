"""Why a live run stays with its version: nothing that settled may change its meaning, nothing that began is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.kernel.driver import World, allowing, gate, plan_of, sequence, wait, work

from stepkeep.kernel.composition.adoption import ContinuationRequest, choose
from stepkeep.kernel.composition.continuation import ContinuationKind
from stepkeep.kernel.composition.migration import MIGRATABLE, refusals
from stepkeep.kernel.definition import (
    SECOND,
    Approval,
    Completion,
    Definition,
    Effect,
    Handler,
    OnExhausted,
    Retry,
    Rule,
    StepDefinition,
)
from stepkeep.kernel.machine.outcomes import Completed, Waiting
from stepkeep.kernel.machine.states import Category, OnFailure, RunState, StepState

PAUSED = Retry(max_attempts=3, initial=60 * SECOND)


def reasons(world: World, *steps: StepDefinition, actor: str = "ann", **options: object) -> list[str]:
    """Why the run cannot go on with these steps."""
    ordered = tuple(replace(step, order=place) for place, step in enumerate(steps))
    new = plan_of(Definition(name=world.plan.definition.name, version=2, steps=ordered, **options))  # type: ignore[arg-type]
    choices = choose(world.plan, world.rows, new, ContinuationRequest(how=ContinuationKind.MIGRATE, actor=actor))
    return list(refusals(world.run, world.plan, world.rows, new, choices))


def steps(**changes: object) -> tuple[StepDefinition, ...]:
    """Three steps, the first with these fields."""
    return sequence(work("a", undo=True, **{"effect": Effect.WRITE, **changes}), work("b"), work("c"))  # type: ignore[arg-type]


def halfway() -> World:
    world = World(*steps())
    world.finish("a")
    return world


def test_a_run_goes_on_where_only_settings_and_steps_that_have_not_begun_differ() -> None:
    world = halfway()
    assert reasons(world, *steps(retry=Retry(max_attempts=9), timeout=5 * SECOND)) == []
    a, b, c = steps()
    assert reasons(world, a, replace(b, executor=Handler(name="other")), c, work("d", "c")) == []
    assert reasons(world, a, replace(c, depends_on=b.depends_on)) == []


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"executor": Handler(name="other")}, "executor"),
        ({"inputs": {"n": 1}}, "inputs"),
        ({"rules": (Rule(expression="output.ok"),)}, "rules"),
        ({"completion": Completion.MANUAL}, "completion"),
        ({"hold": Approval()}, "hold"),
        ({"effect": Effect.IRREVERSIBLE}, "effect"),
        ({"undo": None}, "undo"),
    ],
)
def test_a_settled_step_keeps_its_meaning(changes: dict[str, object], field: str) -> None:
    a, b, c = steps()
    assert f"step a began, and its {field} differs" in reasons(halfway(), replace(a, **changes), b, c)


def test_a_settled_step_is_neither_removed_nor_given_a_step_before_it() -> None:
    world, (a, b, c) = halfway(), steps()
    assert reasons(world, replace(b, depends_on=()), c)[0] == "step a began, and the new version does not have it"
    found = reasons(world, work("x"), replace(a, depends_on=(allowing("x", StepState.SUCCEEDED),)), b, c)
    assert "step a began, and depends on x in the new version, which did not begin" in found
    assert "step a has succeeded, and would not be taken over: a step that it depends on runs again (x)" in found


def test_a_failure_that_the_run_bears_is_not_taken_over() -> None:
    ordered = (work("a", on_failure=OnFailure.CONTINUE), work("b"))
    world = World(*ordered)
    world.fail("a", Category.AUTH)
    assert reasons(world, *ordered) == [
        "step a has failed, and would not be taken over: only what succeeded or was skipped is"
    ]


def _leased(world: World) -> None:
    world.claim("a")


def _retrying(world: World) -> None:
    world.fail("a", Category.TRANSIENT)


def _parked(world: World) -> None:
    world.claim("a")
    world.report("a", Waiting(event="paid", timeout=None))


def _completing(world: World) -> None:
    world.claim("a")
    world.report("a", Completed(token="0" * 64))


def _exhausted(world: World) -> None:
    world.fail("a", Category.AUTH)


def _voted(world: World) -> None:
    world.approve("a", by="bea")


@pytest.mark.parametrize(
    ("step", "act", "reason"),
    [
        (work("a"), _leased, "a worker holds step a"),
        (work("a", effect=Effect.WRITE, retry=PAUSED), _retrying, "step a may have had its effect"),
        (work("a", effect=Effect.WRITE), _parked, "step a may have had its effect"),
        (work("a", completion=Completion.MANUAL), _completing, "completed by a token"),
        (work("a", on_exhausted=OnExhausted.HOLD), _exhausted, "decide about it first"),
        (gate("a", approval=Approval(quorum=2)), _voted, "its gate is still open"),
    ],
)
def test_what_has_begun_is_neither_lost_nor_done_twice(
    step: StepDefinition, act: Callable[[World], None], reason: str
) -> None:
    world = World(step, work("b"))
    act(world)
    assert any(reason in said for said in reasons(world, step, work("b")))


def test_a_step_that_only_reads_begins_again() -> None:
    world = World(work("a", retry=PAUSED), work("b"))
    _retrying(world)
    assert reasons(world, work("a", retry=PAUSED), work("b")) == []
    assert reasons(world, work("b")) == ["step a began, and the new version does not have it"]


def test_a_gate_that_nobody_has_decided_and_a_wait_without_messages_open_again() -> None:
    ordered = (gate("a"), wait("b", "paid"))
    assert reasons(World(*ordered), *ordered) == []


def test_a_run_that_ends_or_has_not_begun_is_left_alone() -> None:
    idle = World(work("a"), start=False)
    assert idle.run.state is RunState.IDLE
    assert reasons(idle, work("a"))[0].startswith("the run is idle: it has not been started")
    ended = World(work("a"))
    ended.finish("a")
    assert reasons(ended, work("a")) == [
        "the run is succeeded: it has ended: retry or rerun it under the other version"
    ]
    assert RunState.COMPENSATING not in MIGRATABLE
