"""A choice: one of several cases is added to the running plan, and the others leave nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.kernel.driver import World, work

from stepkeep.kernel.definition import Case, StepDefinition, Switch
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.states import Category, OnFailure, Rollback, RunState
from stepkeep.kernel.plan import queue_specs

SMALL, LARGE = "input.amount < 10", "input.amount > 1000"


def choosing(amount: int, *, default: bool = True, **settings: Any) -> World:
    """A run that pays small, large or by default, and has a step behind that."""
    cases = [
        Case(name="small", when=SMALL, step=work("pay", undo=True, retry=settings.pop("retry", work("x").retry))),
        Case(name="large", when=LARGE, step=work("pay", undo=True)),
    ]
    if default:
        cases.append(Case(name="card", step=work("pay")))
    pay = StepDefinition(name="pay", order=0, growth=Switch(max=len(cases), cases=tuple(cases)), **settings)
    return World(pay, work("after", "pay"), given=json.dumps({"amount": amount}).encode())


def grown(world: World) -> Any:
    causes = [cause for body in world.bodies for cause in open_entry(body).causes]
    return next(cause.detail["plan_grown"] for cause in causes if "plan_grown" in (cause.detail or {}))


@pytest.mark.parametrize(("amount", "case"), [(5, 0), (5_000, 1), (500, 2)])
def test_the_first_case_whose_condition_holds_is_the_only_step_that_is_added(amount: int, case: int) -> None:
    world = choosing(amount)
    assert world.ready() == [f"pay[{case}]"]
    assert set(world.states()) == {"pay", "after", f"pay[{case}]"}
    assert grown(world) == {"pay": {"count": 1, "case": case}}


def test_the_output_of_the_case_is_that_of_the_step_and_what_follows_opens() -> None:
    world = choosing(5)
    world.finish("pay[0]", output=b'{"paid": 5}')
    assert world.row("pay").note is not None
    assert json.loads(world.row("pay").note.output or "") == {"paid": 5}  # type: ignore[union-attr]
    assert world.trail("pay") == ["planned", "children_started", "children_succeeded", "rules_passed"]
    world.finish("after")
    assert world.run.state is RunState.SUCCEEDED
    assert "skipped" not in world.states().values()


def test_without_a_case_the_step_fails_and_no_step_is_added() -> None:
    world = choosing(500, default=False)
    assert world.states() == {"pay": "failed", "after": "cancelled"}
    assert world.row("pay").error == "no condition of its cases holds, and it has no default"
    assert world.row("pay").category is Category.VALIDATION


def test_a_condition_that_cannot_be_evaluated_fails_the_step() -> None:
    broken = Case(name="x", when="input.nothing > 3", step=work("pay"))
    pay = StepDefinition(name="pay", order=0, growth=Switch(max=1, cases=(broken,)))
    world = World(pay, given=b"{}")
    assert "cannot be determined" in (world.row("pay").error or "")
    assert world.run.state is RunState.FAILED


def test_a_tolerated_choice_lets_the_run_go_on_where_its_case_failed() -> None:
    world = choosing(500, on_failure=OnFailure.SKIP)
    world.fail("pay[2]")
    assert world.states() == {"pay": "skipped", "after": "skipped", "pay[2]": "skipped"}
    assert world.run.state is RunState.SUCCEEDED


def test_a_rollback_undoes_the_case_that_was_taken() -> None:
    world = choosing(5_000)
    world.finish("pay[1]")
    world.cancel(compensate=True)
    assert world.ready() == ["undo:pay[1]"]
    world.finish("undo:pay[1]")
    assert (world.run.state, world.run.rollback) == (RunState.ROLLED_BACK, Rollback.COMPLETE)


def test_each_case_has_a_queue_of_its_own_and_so_has_its_undo() -> None:
    world = choosing(5)
    specs, plan = queue_specs(world.plan.definition), world.plan
    assert [plan.name_of(no) for no in range(5, 11)] == [
        "pay[0]", "pay[1]", "pay[2]", "undo:pay[0]", "undo:pay[1]", None,
    ]  # fmt: skip
    assert [plan.written_no(no) for no in range(5, 11)] == [5, 7, 9, 6, 8, 10]
    assert len(specs) == 11
    assert (specs[0], specs[10]) == (None, None)
    assert plan.undo_of(7) is None
    assert plan.undo_of(6) is not None
