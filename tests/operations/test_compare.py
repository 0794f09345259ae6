"""`stepkeep diff`: versions of a workflow with what they mean for live runs, and two runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.cli.main import main
from stepkeep.kernel.errors import InvalidInput, NotFound

OLD = {
    "workflow": "order",
    "version": 1,
    "timeout": "1h",
    "steps": [
        {"name": "sign", "approval": {"deadline": "1h"}},
        {"name": "greet", "uses": "compare.greet", "with": {"name": "${{ input.name }}"}},
    ],
}
NEW = {
    **OLD,
    "version": 2,
    "steps": [
        {"name": "sign", "approval": {"deadline": "2h"}},
        {"name": "greet", "uses": "compare.greet", "with": {"name": "${{ input.name }}"}, "timeout": "9s"},
        {"name": "extra", "uses": "compare.greet", "with": {"name": "x"}},
    ],
}


@sk.step("compare.greet")
def greet(name: str) -> str:
    return f"Hello, {name}"


def files(folder: Path) -> list[Path]:
    made = []
    for document in (OLD, NEW):
        made.append(folder / f"order-{document['version']}.json")
        made[-1].write_text(json.dumps(document))
    return made


def fields(changes: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {one["name"]: [difference["field"] for difference in one["differences"]] for one in changes}


def test_versions_are_compared_and_live_runs_examined(database_url: str, tmp_path: Path) -> None:
    with sk.open(database_url) as engine:
        old, new = files(tmp_path)
        waiting = engine.start(old, {"name": "Ada"}).run_id
        idle = engine.start(old, {"name": "Bea"}, start_now=False).run_id
        engine.publish(new)
        found = engine.compare_versions("order", 1, 2, live=True)
        assert fields(found["steps"]) == {"sign": ["approval"], "greet": ["timeout"], "extra": []}
        told = [place for step in found["steps"] for one in step["differences"] for place in one["places"]]
        assert told == [
            {"place": "approval.deadline", "old": "1h", "new": "2h"},
            {"place": "timeout", "old": "5m", "new": "9s"},
        ]
        assert any("sign means something else" in said for said in found["consequences"])
        assert (found["live"]["examined"], found["live"]["could_continue"], found["live"]["must_stay"]) == (2, 1, 1)
        reason = "step sign began, and its approval differs"
        assert found["live"]["examples"] == [{"run_id": waiting, "reasons": [reason]}]
        assert engine.show(idle)["run"]["state"] == "idle"
        with pytest.raises(NotFound, match="no version 3"):
            engine.compare_versions("order", 1, 3)
        with pytest.raises(InvalidInput):
            engine.compare_versions("order", 0, 3)


def test_runs_are_compared_step_by_step(database_url: str, tmp_path: Path) -> None:
    with sk.open(database_url) as engine:
        flow = sk.Workflow("compared", timeout="1h")
        flow.step("greet", greet, inputs={"name": flow.input.name})
        one, other = (engine.run(flow, {"name": name}).run_id for name in ("Ada", "Bea"))
        found = engine.compare_runs(one, other)
        assert [(step["name"], [one["field"] for one in step["differences"]]) for step in found["steps"]] == [
            ("greet", ["output"])
        ]
        assert engine.compare_runs(one, one)["same"]
        with pytest.raises(NotFound):
            engine.compare_runs(one, "01890000-0000-7000-8000-000000000001")


def test_the_command_says_it_in_lines_and_refuses_what_cannot_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    with sk.open(url) as engine:
        old, new = files(tmp_path)
        run = engine.start(old, {"name": "Ada"}).run_id
        engine.publish(new)
    assert main(["diff", "order@1", "order@2", "--live", "--db", url]) == 0
    said = capsys.readouterr().out
    assert "+ step extra" in said
    assert "    approval.deadline: 1h → 2h" in said
    assert "    timeout: 5m → 9s" in said
    assert "1 × step sign began, and its approval differs" in said
    assert main(["diff", run, run, "--db", url]) == 0
    assert "nothing differs" in capsys.readouterr().out
    assert main(["diff", "order", "2", "--db", url]) == 2
    assert "stepkeep diff order@1 order@2" in capsys.readouterr().err
    versions = ("order@99999999999999", run, "other@2", "order@x", "order@9")
    for wrong in (["order@1", other] for other in versions):
        assert main(["diff", *wrong, "--db", url]) in (1, 2)
        assert "error: " in capsys.readouterr().err
