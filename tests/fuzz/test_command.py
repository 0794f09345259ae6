"""`stepkeep lab fuzz`: what people see, what programs get, and the report that is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.fuzz.numbers import HERE

from stepkeep.cli.main import main
from stepkeep_lab.fuzz import campaign


@pytest.fixture
def special(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(campaign.TARGETS, "numbers", f"{HERE}:Special")


def test_each_target_is_told_with_its_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "fuzz", "--only", "expressions", "--count", "20", "--seed", "5"]) == 0
    counts, verdict = capsys.readouterr().out.splitlines()
    assert counts.startswith("expressions       20 cases")
    assert verdict.startswith("seed 5: 20 cases, no promise was broken in ")


def test_findings_end_in_failure_and_stand_in_the_report(
    special: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = ["lab", "fuzz", "--only", "numbers", "--count", "60", "--seed", "3", "--json", "--report", str(tmp_path)]
    assert main(asked) == 1
    told = json.loads(capsys.readouterr().out)["fuzz"]
    assert (told["ok"], told["seed"], told["count"], told["cases"]) == (False, 3, 60, 60)
    [score] = told["scores"]
    assert score["broken"]["is below ninety"] >= 1
    assert sum(score["outcomes"].values()) == 60
    assert json.loads((tmp_path / "fuzz.json").read_bytes()) == told
    page = (tmp_path / "fuzz.md").read_text(encoding="utf-8")
    assert "| numbers | 60 |" in page
    assert "$ stepkeep lab fuzz --seed 3 --count 60" in page
    assert f"Made at commit `{told['commit']}` with" in page
    assert score["findings"][0]["case"] in page


def test_one_case_is_shown_and_played_again(special: None, capsys: pytest.CaptureFixture[str]) -> None:
    main(["lab", "fuzz", "--only", "numbers", "--count", "60", "--seed", "3", "--json"])
    finding = json.loads(capsys.readouterr().out)["fuzz"]["scores"][0]["findings"][0]
    assert main(["lab", "fuzz", "--only", "numbers", "--seed", "3", "--case", str(finding["number"])]) == 1
    out = capsys.readouterr().out
    assert f"input: {finding['case']}" in out
    assert f"FINDING in numbers, seed 3, case {finding['number']}: is below ninety" in out
    assert "\x1b" not in out


def test_a_target_that_does_not_exist_is_a_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "fuzz", "--only", "nonsense"]) == 2
    assert "there is no nonsense here" in capsys.readouterr().err


def test_a_case_without_its_target_is_a_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "fuzz", "--case", "5"]) == 2
    assert "name it with --only" in capsys.readouterr().err
