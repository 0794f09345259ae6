"""`stepkeep lab stores`: what people see, what programs get, and the report that is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepkeep.cli.main import main
from stepkeep_lab.storecheck import hunt
from stepkeep_lab.storecheck.mutants import MUTANTS
from stepkeep_lab.storecheck.planting import SqlMutant

CAUGHT = "sqlite-counter-not-written"
HARMLESS = SqlMutant("sqlite-harmless", "sqlite", "count_runs", "nothing at all", "group by", "group  by")


def test_every_bug_is_told_with_who_caught_it_and_when(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "stores", "--only", CAUGHT, "--most", "1"]) == 0
    clean, caught, verdict = capsys.readouterr().out.splitlines()
    assert clean.startswith("sqlite with nothing planted: 1 life, ")
    assert clean.endswith("no difference")
    assert caught.startswith(f"{CAUGHT} ")
    assert "lives, after 1 life, " in caught
    assert verdict == "1 of 1 planted bug were caught"


@pytest.mark.proof
def test_a_bug_that_is_missed_ends_in_failure_and_stands_in_the_report(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hunt, "MUTANTS", (*MUTANTS, HARMLESS))
    late = HARMLESS.name
    asked = ["lab", "stores", "--only", CAUGHT, "--only", late, "--most", "1", "--json", "--report", str(tmp_path)]
    assert main(asked) == 1
    told = json.loads(capsys.readouterr().out)["planted_sql"]
    assert (told["ok"], told["caught"], told["of"], told["first_seed"], told["most_lives"]) == (False, 1, 2, 0, 1)
    assert told["clean"]["sqlite"]["hunter"] is None
    assert {score["name"]: score["hunter"] for score in told["scores"]} == {CAUGHT: "lives", late: None}
    assert json.loads((tmp_path / "planted-sql.json").read_bytes()) == told
    page = (tmp_path / "planted-sql.md").read_text(encoding="utf-8")
    assert f"| {late} | `sqlite/sql/count_runs.sql` | nothing at all | **nobody** |" in page
    assert f"at commit `{told['commit']}`" in page


def test_a_bug_that_does_not_exist_is_a_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "stores", "--only", "nonsense"]) == 2
    assert "there is no nonsense here" in capsys.readouterr().err
