"""The `switch` of a definition: what is refused, what is advised against, and what a workflow in Python makes of it."""

from __future__ import annotations

import pytest
import yaml
from jsonschema_rs import validator_for

import stepkeep as sk
from stepkeep.definition.native.reader import check_text
from stepkeep.definition.native.written import native_schema
from stepkeep.kernel.definition import Effect, Handler, Switch, UndoChild
from stepkeep.kernel.errors import InvalidInput

TEXT = """
workflow: payout
timeout: 1h
on_failure: compensate
steps:
  - name: look
    uses: x.look
    effect: read
    timeout: 5s
  - name: pay
    switch:
      - {name: transfer, if: "${{ steps.look.output.amount > 1000 }}", uses: bank.send, undo: bank.back, timeout: 9s}
      - {name: card, uses: card.charge, with: {amount: "${{ input.amount }}"}, effect: read, timeout: 9s}
"""


def test_cases_are_built_like_steps() -> None:
    report = check_text(TEXT, "w.yaml")
    assert report.problems == ()
    assert report.warnings == ()
    assert report.definition is not None
    pay = report.definition.steps[1]
    assert isinstance(pay.growth, Switch)
    assert (pay.executor, pay.effect) == (None, Effect.READ)
    assert [(case.name, case.when is None, case.step.name) for case in pay.growth.cases] == [
        ("transfer", False, "pay"), ("card", True, "pay"),
    ]  # fmt: skip
    undo = pay.growth.cases[0].step.undo
    assert undo is not None
    assert undo.inputs == '${{ steps["pay"].output }}'


@pytest.mark.parametrize(
    ("switch", "says"),
    [
        ("[]", "must not be empty"),
        ("3", "list"),
        ("[{name: a, uses: x.y}, {name: b, uses: x.z}]", "The cases behind `a` are never taken"),
        ("[{name: a, if: 'true', uses: x.y}, {name: a, uses: x.z}]", "already named `a`"),
        ("[{name: a}]", "does not say what to do"),
        ("[{name: a, wait: paid}]", "`wait` means nothing for a case"),
        ("[{name: a, uses: x.y, depends_on: [s]}]", "`depends_on` means nothing for a case"),
        ("[{name: a, uses: x.y, flow: {max_calls: 3}}]", "`flow` means nothing for a case"),
        ("[{name: a, uses: x.y, then: {max_steps: 3}}]", "`then` means nothing for a case"),
        ("[{name: a, workflow: x, timeout: 3s}]", "`timeout` means nothing for `workflow`"),
        ("[{name: a, workflow: x, map: '${{ input }}'}]", "`map` means nothing for a case"),
        ("[{name: a, workflow: {name: x, detached: true}}]", "Case `a` waits for its child"),
        ("[{name: a, workflow: x, uses: x.y}]", "both `uses` and `workflow`"),
        ("[{name: a, workflow: {name: x, version: 0}}]", "`version` must be at least 1"),
        ("[{name: a, workflow: x, with: {n: '${{ steps.later.output }}'}}]", "later"),
        ("[{name: a, switch: [{name: b, uses: x.y}]}]", "`switch` means nothing for a case"),
        ("[{name: a, uses: x.y, command: [ls]}]", "both `uses` and `command`"),
        ("[{name: a, if: 'steps.later.output', uses: x.y}]", "later"),
        ("[{name: a, uses: x.y, with: {n: '${{ item }}'}}]", "There is no `item` here"),
        ("[{name: a, uses: x.y, color: red}]", "There is no key `color`"),
        ("[{name: a, uses: x.y}]\n    retry: {max_attempts: 3}", "`retry` means nothing for `switch`"),
        ("[{name: a, uses: x.y}]\n    uses: x.y", "both `uses` and `switch`"),
    ],
)
def test_a_wrong_switch_is_refused_with_its_place(switch: str, says: str) -> None:
    text = f"workflow: w\nsteps:\n  - name: s\n    switch: {switch}\n  - {{name: later, uses: x.y}}\n"
    report = check_text(text, "w.yaml")
    assert report.definition is None
    assert any(says in problem.message + problem.hint for problem in report.problems), report.problems


@pytest.mark.parametrize(
    ("switch", "says"),
    [
        ("[{name: a, if: 'input.n > 1', uses: x.y}]", "has no default: where no condition holds, it fails"),
        ("[{name: a, if: 'true', uses: x.y}, {name: b, uses: x.y}]", "the condition of `a` before it always holds"),
        (
            "[{name: a, if: 'input.n > 1', uses: x.y}, {name: b, if: '${{ input.n > 1 }}', uses: x.y}]",
            "`a` before it has the same condition",
        ),
        ("[{name: a, if: 'false', uses: x.y}, {name: b, uses: x.y}]", "Case `a` is never taken"),
        ("[{name: a, uses: x.y, effect: write}]", "changes something and has no `undo`"),
        ("[{name: a, workflow: x}]", "`workflow` of step `s` has no `deadline`"),
    ],
)
def test_a_doubtful_switch_is_advised_against(switch: str, says: str) -> None:
    report = check_text(f"workflow: w\nsteps:\n  - name: s\n    switch: {switch}\n", "w.yaml")
    assert report.definition is not None, report.problems
    assert any(says in warning.message for warning in report.warnings), report.warnings


def bank_send(amount: int) -> None: ...


def test_a_workflow_in_python_makes_the_same_definition() -> None:
    flow = sk.Workflow("w")
    looked = flow.step("look", "x.look")
    flow.switch(
        "pay",
        flow.case("transfer", bank_send, if_=looked.output.amount > 1000, retry=sk.Retry(max_attempts=2)),
        flow.case("card", "card.charge", inputs={"amount": flow.input.amount}),
    )
    growth = flow.definition().steps[1].growth
    assert isinstance(growth, Switch)
    assert [case.name for case in growth.cases] == ["transfer", "card"]
    assert growth.cases[0].step.retry.max_attempts == 2
    assert growth.cases[1].step.inputs == {"amount": "${{ input.amount }}"}


CHILDREN = """
workflow: payout
timeout: 3d
on_failure: compensate
steps:
  - name: pay
    switch:
      - name: checked
        if: "${{ input.amount > 1000 }}"
        workflow: {name: checked-payout, version: 2, deadline: 2d}
        with: {amount: "${{ input.amount }}"}
      - {name: plain, workflow: {name: payout-by-card, deadline: 1h}, undo: bank.back}
"""


def test_a_case_may_be_a_child_in_yaml_and_in_python() -> None:
    report = check_text(CHILDREN, "w.yaml")
    assert report.problems == ()
    assert report.warnings == (), "each child has a deadline"
    assert report.definition is not None
    pay = report.definition.steps[0]
    assert isinstance(pay.growth, Switch)
    checked, plain = [case.step for case in pay.growth.cases]
    assert (checked.child.workflow, checked.child.version, checked.executor) == ("checked-payout", 2, None)
    assert checked.undo is not None
    assert isinstance(checked.undo.executor, UndoChild)
    assert plain.undo is not None
    assert plain.undo.executor == Handler(name="bank.back")

    flow = sk.Workflow("payout", timeout="3d", on_failure="compensate")
    flow.switch(
        "pay",
        flow.case(
            "checked",
            workflow="checked-payout",
            version=2,
            deadline="2d",
            inputs={"amount": flow.input.amount},
            if_=flow.input.amount > 1000,
        ),
        flow.case("plain", workflow="payout-by-card", deadline="1h", undo="bank.back"),
    )
    assert flow.definition().steps[0].growth == pay.growth


@pytest.mark.parametrize(
    ("handler", "options", "says"),
    [
        ((), {}, "has neither"),
        (("x.y",), {"workflow": "x"}, "has both"),
        (("x.y",), {"deadline": "1h"}, "deadline of case a means nothing without workflow="),
    ],
)
def test_a_case_in_python_is_a_handler_or_a_workflow(
    handler: tuple[str, ...], options: dict[str, str], says: str
) -> None:
    flow = sk.Workflow("w")
    with pytest.raises(InvalidInput, match=says):
        flow.case("a", *handler, **options)  # type: ignore[arg-type]


def test_the_published_schema_knows_a_step_with_a_switch() -> None:
    """An editor that follows the schema accepts what the engine accepts."""
    data = yaml.safe_load(CHILDREN)
    assert validator_for(native_schema()).is_valid(data)
    data["steps"][0]["uses"] = "x.y"
    assert not validator_for(native_schema()).is_valid(data)
