"""A choice from a shell: checked, rehearsed, run and shown."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Cli

TEXT = """\
workflow: payout
timeout: 1h
steps:
  - name: pay
    switch:
      - {name: transfer, if: "${{ input.amount > 1000 }}", command: [echo, bank], effect: read, timeout: 5s}
      - {name: card, command: [echo, card], effect: read, timeout: 5s}
"""


def test_a_choice_is_checked_rehearsed_run_and_shown(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "payout.yaml"
    file.write_text(TEXT, encoding="utf-8")
    assert "no problems" in cli("check", str(file)).out
    walked = cli("simulate", str(file)).out
    assert "pay takes card" in walked
    assert "the child of pay" not in walked
    ran = cli("run", str(file), "--input", '{"amount": 5}', "--json")
    assert ran.status == 0
    assert [(step["name"], step.get("case")) for step in ran.json["steps"]] == [("pay", "card"), ("pay[1]", None)]
    run_id = ran.json["run"]["id"]
    assert "took card" in cli("show", run_id).out
    assert cli("certify", run_id).status == 0


CHILDREN = """\
workflow: payout
timeout: 1h
steps:
  - name: pay
    switch:
      - {name: checked, if: "${{ input.amount > 1000 }}", workflow: {name: checked-payout, deadline: 10m}}
      - {name: card, command: [echo, card], effect: read, timeout: 5s}
"""
CHECKED = """\
workflow: checked-payout
timeout: 1h
steps:
  - {name: bank, command: [echo, bank], effect: read, timeout: 5s}
"""


def test_a_case_that_is_a_child_is_checked_published_run_and_shown(cli: Cli, tmp_path: Path) -> None:
    for name, text in (("payout", CHILDREN), ("checked-payout", CHECKED)):
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    file = str(tmp_path / "payout.yaml")
    assert "no problems" in cli("check", file).out
    assert "the child of pay[0] fails" in cli("simulate", file).out
    assert "is not published" in cli("publish", file).err
    assert cli("publish", str(tmp_path / "checked-payout.yaml")).status == 0
    ran = cli("run", file, "--input", '{"amount": 5000}', "--json")
    assert ran.status == 0
    assert [(step["name"], step["kind"]) for step in ran.json["steps"]] == [("pay", "switch"), ("pay[0]", "workflow")]
    run_id = ran.json["run"]["id"]
    shown = cli("show", run_id).out
    assert "took checked" in shown
    assert "checked-payout" in shown
    assert cli("certify", run_id).status == 0


def test_a_choice_without_a_default_is_told_of(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "payout.yaml"
    file.write_text(TEXT.rpartition("      - {name: card")[0], encoding="utf-8")
    assert "has no default" in cli("check", str(file)).out
    assert "no condition of pay holds" in cli("simulate", str(file)).out
    ran = cli("run", str(file), "--input", '{"amount": 5}', "--json")
    assert (ran.status, ran.json["run"]["state"]) == (1, "failed")
    assert ran.json["run"]["error"] == "no condition of its cases holds, and it has no default"
