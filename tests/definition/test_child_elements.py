"""`workflow` beside `map` and `repeat`: what is built, what is refused, and what a workflow in Python makes of it."""

from __future__ import annotations

import pytest

import stepkeep as sk
from stepkeep.definition.native.reader import check_text
from stepkeep.kernel.definition import Loop, Map, UndoChild

TEXT = """
workflow: orders
timeout: 1h
on_failure: compensate
steps:
  - name: ship
    workflow: {name: shipping, deadline: 5m}
    map: {over: "${{ input.orders }}", in_flight: 3}
    with: {order: "${{ item }}", place: "${{ index }}"}
  - name: poll
    workflow: polling
    repeat: {until: "${{ last.done }}", max: 9, deadline: 1h}
    with: {before: "${{ last }}"}
"""


def test_a_map_and_a_loop_of_children_are_built_like_those_of_steps() -> None:
    report = check_text(TEXT, "w.yaml")
    assert report.problems == ()
    assert report.warnings == (), "a deadline of the child or of its owner bounds the wait"
    assert report.definition is not None
    ship, poll = report.definition.steps
    assert isinstance(ship.growth, Map)
    assert isinstance(poll.growth, Loop)
    assert (ship.growth.max, ship.growth.in_flight, ship.child.workflow) == (100, 3, "shipping")
    assert ship.undo is not None
    assert isinstance(ship.undo.executor, UndoChild)

    flow = sk.Workflow("orders", timeout="1h", on_failure="compensate")
    flow.workflow(
        "ship",
        "shipping",
        deadline="5m",
        inputs={"order": flow.item, "place": flow.index},
        map={"over": flow.input.orders, "in_flight": 3},
    )
    repeat = {"until": flow.last.done, "max": 9, "deadline": "1h"}
    flow.workflow("poll", "polling", inputs={"before": flow.last}, repeat=repeat)
    built = flow.definition()
    assert [(step.child, step.undo) for step in built.steps] == [(ship.child, ship.undo), (poll.child, poll.undo)]
    assert built.steps[0].growth == ship.growth


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ("workflow: {name: x, detached: true}\n    map: '${{ input }}'", "`detached` would start all of them at once"),
        ("workflow: x\n    map: '${{ input }}'\n    retry: {max_attempts: 2}", "`retry` means nothing for `workflow`"),
        ("workflow: x\n    map: '${{ input }}'\n    repeat: {until: 'true', max: 2}", "both `map` and `repeat`"),
        ("workflow: x\n    map: {over: '${{ input }}', max: 0}", "`max` must be at least 1"),
    ],
)
def test_what_an_element_with_a_child_cannot_do_is_refused(step: str, says: str) -> None:
    report = check_text(f"workflow: w\nsteps:\n  - name: a\n    {step}\n", "w.yaml")
    assert any(says in str(problem) for problem in report.problems), report.problems


def test_a_map_of_children_that_no_deadline_bounds_is_advised_against() -> None:
    report = check_text("workflow: w\ntimeout: 1h\nsteps:\n  - {name: a, workflow: x, map: '${{ input }}'}\n", "w.yaml")
    assert any("has no `deadline`" in str(warning) for warning in report.warnings)
