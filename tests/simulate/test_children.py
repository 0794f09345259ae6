"""The failure paths of children: how a child may end is a fate of its step, and its own paths are walked once."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

import stepkeep as sk
from stepkeep.cli.main import main
from stepkeep.definition.native.reader import load_text
from stepkeep.kernel.definition import Definition, SubWorkflow
from stepkeep.simulate import children
from stepkeep.simulate.findings import Kind
from stepkeep.simulate.report import Report, simulate


def parsed(text: str) -> Definition:
    return load_text(dedent(text), "w.yaml")


PARENT = """
    workflow: parent
    timeout: 1h
    on_failure: compensate
    steps:
      - {name: ship, workflow: {name: leaf, deadline: 10m}}
      - {name: pay, uses: x.pay, timeout: 5s, effect: read}
"""
LEAF = """
    workflow: leaf
    timeout: 5m
    on_failure: compensate
    steps:
      - {name: book, uses: x.book, timeout: 5s, undo: {uses: x.unbook}}
      - {name: tell, uses: x.tell, timeout: 5s, effect: read}
"""


def walked(*texts: str) -> Report:
    """The report of the first, which may start the others."""
    known = {one.name: one for one in map(parsed, texts)}
    return simulate(next(iter(known.values())), find=lambda child: known.get(child.workflow))


def paths(report: Report) -> dict[str, str]:
    return {ending.path: f"{ending.state} {ending.rollback}" for ending in report.endings}


def test_the_ends_of_a_child_are_those_that_its_own_paths_have() -> None:
    report = walked(PARENT, LEAF)
    [leaf] = report.children
    assert leaf.started_by == ("parent.ship",)
    assert "book fails for good" in paths(leaf.report)
    found = paths(report)
    for end in ("fails", "is rolled back", "is cancelled"):
        assert found[f"the child of ship {end}"] == "failed none"
    assert found["the child of ship does not end in time"] == "failed partial", "it may have had its effect"
    assert found["pay fails for good"] == "rolled_back complete"
    assert found["pay fails for good, then the rollback of a child fails in undo:ship"] == "failed partial"
    assert not any("leaves something" in path for path in found), "every step of the child has an undo"
    assert [one.kind for one in report.findings if one.kind is Kind.NOT_WALKED] == []


def test_a_child_that_cannot_fail_is_not_walked_as_one_that_does() -> None:
    calm = "workflow: leaf\ntimeout: 5m\nsteps:\n  - {name: nap, sleep: 1m}\n"
    found = paths(walked(PARENT, calm))
    assert "the child of ship is rolled back" not in found
    assert "the child of ship is cancelled" in found


def test_a_child_that_may_never_end_leaves_its_parent_waiting() -> None:
    parent = "workflow: parent\nsteps:\n  - {name: ship, workflow: leaf}\n"
    leaf = "workflow: leaf\nsteps:\n  - {name: ask, approval: {}}\n"
    report = walked(parent, leaf)
    assert [(one.kind, one.step) for one in report.serious] == [(Kind.STUCK, "ship")]
    assert [(one.kind, one.step) for one in report.children[0].report.serious] == [(Kind.STUCK, "ask")]


def test_what_a_child_cannot_undo_is_left_by_a_rollback_of_its_parent() -> None:
    leaf = LEAF.replace("undo: {uses: x.unbook}", "effect: write")
    report = walked(PARENT, leaf)
    failed, finding = [one for one in report.serious if one.kind is Kind.UNCOMPENSATED]
    assert (finding.step, "leaves what book did there" in finding.message) == ("ship", True)
    assert failed.message.startswith("What ship did stays when the child of ship fails;")
    assert failed.hint.startswith("Let leaf undo itself")
    assert paths(report)["the child of ship fails"] == "failed partial"
    assert paths(report)["pay fails for good, then the rollback of a child leaves something in undo:ship"] == (
        "failed partial"
    )


def test_what_a_child_did_is_left_behind_where_its_parent_does_not_roll_back() -> None:
    report = walked(PARENT.replace("compensate", "abort"), LEAF)
    assert {one.step for one in report.serious if one.kind is Kind.UNCOMPENSATED} == {"ship"}


@pytest.mark.parametrize("growth", ["map: '${{ input.all }}'", "repeat: {until: 'last.done', max: 5}"])
def test_maps_and_loops_of_children_are_walked_with_two_elements(growth: str) -> None:
    parent = PARENT.replace("deadline: 10m}}", "deadline: 10m}, " + growth + "}")
    report = walked(parent, LEAF)
    found = paths(report)
    assert report.bounded == ("ship",)
    for index in (0, 1):
        assert found[f"the child of ship[{index}] fails"] in ("failed none", "rolled_back complete")
    assert found["pay fails for good"] == "rolled_back complete"
    assert found["pay fails for good, then the rollback of a child fails in undo:ship[0]"] == "failed partial"


CHOICE = """
    workflow: parent
    timeout: 1h
    on_failure: compensate
    steps:
      - name: ship
        switch:
          - {name: far, if: "${{ input.far }}", workflow: {name: leaf, deadline: 10m}}
          - {name: near, workflow: {name: calm, deadline: 10m}}
      - {name: pay, uses: x.pay, timeout: 5s, effect: read}
"""
CALM = "workflow: calm\ntimeout: 5m\nsteps:\n  - {name: nap, sleep: 1m}\n"


def test_each_case_with_a_child_has_the_ends_of_its_own_workflow() -> None:
    report = walked(CHOICE, LEAF, CALM)
    assert {one.report.definition.name: one.started_by for one in report.children} == {
        "leaf": ("parent.ship[0]",),
        "calm": ("parent.ship[1]",),
    }
    found = paths(report)
    assert found["the child of ship[0] is rolled back"] == "failed none"
    assert found["ship takes near, then the child of ship[1] is cancelled"] == "failed none"
    assert "ship takes near, then the child of ship[1] is rolled back" not in found
    assert found["pay fails for good"] == "rolled_back complete"
    assert found["pay fails for good, then the rollback of a child fails in undo:ship[0]"] == "failed partial"
    assert report.serious == ()


def test_what_the_child_of_a_case_cannot_undo_is_told_of_its_step() -> None:
    leaf = LEAF.replace("undo: {uses: x.unbook}", "effect: write")
    _, finding = [one for one in walked(CHOICE, leaf, CALM).serious if one.kind is Kind.UNCOMPENSATED]
    assert (finding.step, "child of ship[0] leaves what book did" in finding.message) == ("ship", True)
    assert not any("ship takes near" in path for path in finding.paths)
    [said] = reasons(walked(CHOICE, LEAF))
    assert "ship[1] starts calm" in said


def test_three_generations_are_walked_each_once() -> None:
    top = """
        workflow: top
        timeout: 1h
        steps:
          - {name: a, workflow: {name: parent, deadline: 9m}}
          - {name: b, workflow: {name: leaf, deadline: 9m}}
    """
    report = walked(top, PARENT, LEAF)
    found = {one.report.definition.name: one.started_by for one in report.children}
    assert found == {"leaf": ("parent.ship", "top.b"), "parent": ("top.a",)}


def reasons(report: Report) -> list[str]:
    every = (report, *(child.report for child in report.children))
    return [one.message for each in every for one in each.findings if one.kind is Kind.NOT_WALKED]


def test_a_child_that_is_not_walked_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    [said] = reasons(walked(PARENT))
    assert "not found" in said
    circle = LEAF.replace(
        "- {name: tell", "- {name: back, workflow: {name: parent, deadline: 1m}}\n      - {name: tell"
    )
    assert any("started by itself" in said for said in reasons(walked(PARENT, circle)))
    monkeypatch.setattr("stepkeep.simulate.report.MOST_WALKED", 0)
    assert any(children.TOO_MANY in said for said in reasons(walked(PARENT, LEAF)))
    monkeypatch.setattr("stepkeep.simulate.report.MOST_WALKED", 20)
    monkeypatch.setattr("stepkeep.simulate.report.DEEPEST", 1)
    assert any(children.TOO_DEEP in said for said in reasons(walked(PARENT, LEAF)))


def test_the_paths_of_a_child_are_bounded_and_counted() -> None:
    known = {"leaf": parsed(LEAF)}
    report = simulate(parsed(PARENT), max_paths=5, find=lambda child: known.get(child.workflow))
    assert report.unwalked > 0
    assert report.children[0].report.unwalked > 0


def test_an_unknown_version_is_not_taken_for_the_known_one(tmp_path: Path) -> None:
    from stepkeep.cli.commands.simulate import ChildDefinitions
    from stepkeep.cli.settings import Settings

    (tmp_path / "leaf.yaml").write_text(dedent(LEAF))
    find = ChildDefinitions(Settings(), str(tmp_path / "parent.yaml"), [], None)
    assert find(SubWorkflow(workflow="leaf", version=0)) is not None
    assert find(SubWorkflow(workflow="leaf", version=7)) is None
    assert find(SubWorkflow(workflow="../leaf", version=0)) is None


def test_the_command_finds_children_beside_the_file_in_the_program_and_in_a_database(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "parent.yaml").write_text(dedent(PARENT))
    assert main(["simulate", str(tmp_path / "parent.yaml")]) == 0
    assert "not found beside this definition" in " ".join(capsys.readouterr().out.split())
    database = f"sqlite:///{tmp_path}/s.db"
    with sk.Engine(database) as engine:
        engine.publish(parsed(LEAF))
    assert main(["simulate", str(tmp_path / "parent.yaml"), "--db", database]) == 0
    assert "child leaf v1, started by parent.ship" in capsys.readouterr().out
    (tmp_path / "leaf.yaml").write_text(dedent(LEAF))
    assert main(["simulate", str(tmp_path / "parent.yaml"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(one["workflow"], one["started_by"]) for one in told["children"]] == [("leaf", ["parent.ship"])]
    (tmp_path / "both.py").write_text(
        "import stepkeep as sk\n"
        "leaf = sk.Workflow('leaf', timeout='5m')\n"
        "leaf.sleep('nap', '1m')\n"
        "parent = sk.Workflow('parent', timeout='1h')\n"
        "parent.workflow('ship', 'leaf', deadline='10m')\n"
    )
    assert main(["simulate", f"{tmp_path}/both.py:parent", "--tree"]) == 0
    assert "child leaf v1, started by parent.ship" in capsys.readouterr().out


def test_advice_about_a_child_in_doubt_is_what_a_definition_may_say() -> None:
    report = walked(PARENT, LEAF)
    [doubt] = [one for one in report.findings if one.kind is Kind.IN_DOUBT and one.step == "ship"]
    assert "`grace`" in doubt.hint
    assert "compensate_when" not in doubt.hint
