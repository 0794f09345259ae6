"""Two versions of a definition: meaning, settings, edges, and which runs could continue."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stepkeep.kernel.composition.versions import MEANING, Kind, changed_behind, compare, obstacles
from stepkeep.kernel.definition import (
    Case,
    Definition,
    Dependency,
    Handler,
    Loop,
    Map,
    Retry,
    Rule,
    StepDefinition,
    SubWorkflow,
    Switch,
)
from stepkeep.kernel.machine.states import StepState


def step(name: str, *after: str, order: int = 0, **fields: object) -> StepDefinition:
    edges = tuple(Dependency(step=one) for one in after)
    return StepDefinition(name=name, order=order, executor=Handler(name=name), depends_on=edges, **fields)  # type: ignore[arg-type]


def definition(*steps: StepDefinition, **fields: object) -> Definition:
    return Definition(name="order", version=1, steps=steps, **fields)  # type: ignore[arg-type]


OLD = definition(step("charge"), step("ship", "charge"), step("mail", "ship"))


def with_step(name: str, **fields: object) -> Definition:
    return replace(OLD, steps=tuple(replace(one, **fields) if one.name == name else one for one in OLD.steps))


def test_equal_definitions_have_no_difference_whatever_their_versions_are() -> None:
    assert compare(OLD, replace(OLD, version=2)).is_empty
    assert list(obstacles(OLD, replace(OLD, version=2), ["charge", "ship", "mail"])) == []


@pytest.mark.parametrize("name", MEANING)
def test_every_field_of_meaning_is_a_field_of_steps(name: str) -> None:
    assert name in StepDefinition.__struct_fields__


def test_a_setting_stops_no_run_and_a_meaning_stops_those_that_began_the_step() -> None:
    setting = with_step("ship", retry=Retry(max_attempts=9), timeout=1)
    [change] = compare(OLD, setting).steps
    assert {one.kind for one in change.differences} == {Kind.SETTING}
    assert list(obstacles(OLD, setting, ["charge", "ship"])) == []
    meaning = with_step("ship", executor=Handler(name="ship.fast"))
    assert list(obstacles(OLD, meaning, ["charge"])) == []
    assert list(obstacles(OLD, meaning, ["charge", "ship"])) == ["step ship began, and its executor differs"]


def choice(handler: str) -> Switch:
    return Switch(max=1, cases=(Case(name="only", step=step(handler)),))


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (Map(over="input.a"), Map(over="input.a", in_flight=3, tolerate=2), Kind.SETTING),
        (Map(over="input.a"), Map(over="input.b"), Kind.MEANING),
        (Loop(max=3, until="last.done"), Loop(max=5, until="last.done", pause=7), Kind.SETTING),
        (Loop(max=3, until="last.done"), Loop(max=3, until="last.ready"), Kind.MEANING),
        (Loop(max=3, until="index > 1"), Loop(max=3, as_long_as="index > 1"), Kind.MEANING),
        (choice("slow"), choice("fast"), Kind.MEANING),
        (Map(over="input.a"), choice("fast"), Kind.MEANING),
    ],
)
def test_what_elements_are_is_meaning_and_how_many_at_a_time_a_setting(
    old: Map | Loop | Switch, new: Map | Loop | Switch, kind: Kind
) -> None:
    [change] = compare(with_step("ship", growth=old), with_step("ship", growth=new)).steps
    assert [(one.field, one.kind) for one in change.differences] == [("growth", kind)]


def test_another_child_workflow_is_another_meaning_and_another_version_of_it_a_setting() -> None:
    asks, newer, other = (
        with_step("ship", child=SubWorkflow(workflow=name, version=version))
        for name, version in (("parcel", 1), ("parcel", 2), ("letter", 1))
    )
    assert list(obstacles(asks, newer, ["charge", "ship"])) == []
    assert list(obstacles(asks, other, ["charge"])) == []
    [reason] = obstacles(asks, other, ["charge", "ship"])
    assert "ship" in reason
    assert "child" in reason


def test_a_removed_step_stops_runs_that_began_it() -> None:
    new = replace(OLD, steps=OLD.steps[:2])
    assert [(one.name, one.change) for one in compare(OLD, new).steps] == [("mail", "removed")]
    assert list(obstacles(OLD, new, ["charge", "ship"])) == []
    assert "does not have it" in next(obstacles(OLD, new, ["charge", "ship", "mail"]))


def test_a_new_step_before_one_that_began_stops_the_run() -> None:
    new = definition(step("charge"), step("check", "charge"), step("ship", "charge", "check"), step("mail", "ship"))
    assert ("check", "added") in [(one.name, one.change) for one in compare(OLD, new).steps]
    assert list(obstacles(OLD, new, ["charge"])) == []
    assert "depends on check" in next(obstacles(OLD, new, ["charge", "ship"]))


def test_a_dependency_that_asks_for_another_end_stops_the_run_and_a_wider_one_does_not() -> None:
    wide = (Dependency(step="charge", allow=(StepState.SUCCEEDED, StepState.SKIPPED)),)
    old, new = with_step("ship", depends_on=wide), OLD
    assert "another end of charge" in next(obstacles(old, new, ["charge", "ship"]))
    assert list(obstacles(new, old, ["charge", "ship"])) == []


def test_fields_of_the_workflow_are_compared_too() -> None:
    [one] = compare(OLD, replace(OLD, timeout=5)).workflow
    assert (one.field, one.old, one.new) == ("timeout", None, 5)


FORKED = definition(step("calc"), step("sign"), step("pay", "sign", "calc"), step("mail", "pay"), step("note"))


def changed(name: str, **fields: object) -> Definition:
    return replace(FORKED, steps=tuple(replace(one, **fields) if one.name == name else one for one in FORKED.steps))


@pytest.mark.parametrize(
    ("new", "names"),
    [
        (FORKED, ""),
        (changed("pay", timeout=1), ""),
        (changed("note", executor=Handler(name="x")), ""),
        (changed("pay", executor=Handler(name="x")), "calc pay sign"),
        (changed("mail", inputs={"to": "x"}), "calc pay sign"),
        (changed("calc", executor=Handler(name="x")), "calc pay sign"),
        (changed("pay", depends_on=(Dependency(step="calc"),)), "calc pay sign"),
        (changed("mail", child=SubWorkflow(workflow="post", version=2)), "calc pay sign"),
        (replace(FORKED, steps=(*FORKED.steps, step("more", "mail"))), "calc mail pay sign"),
        (replace(FORKED, steps=FORKED.steps[:3]), "calc pay sign"),
        (replace(FORKED, duties=()), "calc mail note pay sign"),
        (replace(FORKED, output={"amount": 9}), "calc mail note pay sign"),
        (replace(FORKED, rules=(Rule(expression="true"),)), "calc mail note pay sign"),
        (replace(FORKED, hooks=()), "calc mail note pay sign"),
        (replace(FORKED, timeout=9), ""),
    ],
)
def test_a_change_of_what_follows_a_step_or_of_what_that_depends_on_is_behind_it(new: Definition, names: str) -> None:
    assert sorted(changed_behind(FORKED, new)) == names.split()


def test_another_version_of_a_child_is_a_change_behind_the_steps_before_it() -> None:
    child = changed("mail", child=SubWorkflow(workflow="post", version=1))
    other = changed("mail", child=SubWorkflow(workflow="post", version=2))
    assert sorted(changed_behind(child, other)) == ["calc", "pay", "sign"]
