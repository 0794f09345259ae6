"""`stepkeep simulate`: what it prints, and the exit status that CI relies on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from stepkeep.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"
STUCK = str(EXAMPLES / "simulate" / "stuck.yaml")
LEAVING = str(EXAMPLES / "simulate" / "uncompensated.yaml")
CLEAN = str(EXAMPLES / "nightly_report.yaml")


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are folded to the terminal that runs the tests, whatever its width."""
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.parametrize(("file", "status"), [(CLEAN, 0), (STUCK, 1), (LEAVING, 1)])
def test_serious_findings_fail_the_check(file: str, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", file]) == status
    assert ("no findings" in capsys.readouterr().out) == (status == 0)


def test_a_bad_definition_is_status_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.yaml").write_text("workflow: bad\nsteps: [{name: a}]\n")
    assert main(["simulate", str(tmp_path / "bad.yaml")]) == 2
    assert main(["simulate", str(tmp_path / "missing.yaml")]) == 2
    assert main(["simulate", CLEAN, "--allow", "anything"]) == 2
    assert "--allow takes stuck" in capsys.readouterr().err


def test_the_table_tells_paths_endings_times_and_findings(capsys: pytest.CaptureFixture[str]) -> None:
    main(["simulate", STUCK])
    said = capsys.readouterr().out
    row = next(line for line in said.splitlines() if line.startswith("second-look is not decided"))
    assert "blocked forever" in row
    assert "waits: second-look" in row
    assert "longest time to an end: 3d" in said
    assert "stuck: second-look may wait forever" in said


def test_the_tree_hangs_what_follows_below_what_came_first(capsys: pytest.CaptureFixture[str]) -> None:
    main(["simulate", LEAVING, "--tree"])
    lines = capsys.readouterr().out.splitlines()
    first = next(place for place, line in enumerate(lines) if "├── charge-card fails for good" in line)
    assert "│   ├── " in lines[first + 1]
    assert "undo:" in lines[first + 1]


def test_json_is_one_object_with_every_ending(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", LEAVING, "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["ok"], said["workflow"], said["dialect"], said["unwalked"]) == (False, "order", "native", 0)
    assert said["paths"] == len(said["endings"])
    ending = next(one for one in said["endings"] if one["path"] == "book-courier times out")
    assert (ending["state"], ending["left"]) == ("failed", ["reserve-goods", "charge-card"])
    assert ending["states"]["tell-customer"] == "cancelled"
    assert {one["kind"] for one in said["findings"] if one["serious"]} == {"uncompensated"}


def test_a_kind_can_be_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", LEAVING, "--allow", "uncompensated"]) == 0
    assert main(["simulate", STUCK, "--allow", "uncompensated"]) == 1
    assert "0 serious findings" in capsys.readouterr().out


def test_a_sample_is_said_aloud(capsys: pytest.CaptureFixture[str]) -> None:
    main(["simulate", LEAVING, "--max-paths", "10"])
    assert "a sample: " in capsys.readouterr().out


@pytest.mark.parametrize("dialect", ["action", "ioa", "linear", "run", "workstream"])
def test_every_dialect_is_walked(dialect: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(EXAMPLES / f"{dialect}.yaml"), "--as", dialect, "--json"]) in (0, 1)
    said = json.loads(capsys.readouterr().out)
    assert said["dialect"] == dialect
    assert said["endings"][0]["state"] == "succeeded"


def test_a_python_workflow_is_walked(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # The example imports a module of its own folder, whose name is that of a module of the tests.
    monkeypatch.delitem(sys.modules, "handlers", raising=False)
    assert main(["simulate", str(EXAMPLES / "onboarding.py"), "--json"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["endings"][0]["state"] == "succeeded"


def test_serious_shows_only_the_paths_of_serious_findings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", STUCK, "--serious"]) == 1
    said = capsys.readouterr().out
    assert "second-look is not decided" in said
    assert "all goes well" not in said
    assert " · " not in said, "remarks are left out"
    assert main(["simulate", CLEAN, "--serious"]) == 0
    assert "WHAT HAPPENS" not in capsys.readouterr().out
