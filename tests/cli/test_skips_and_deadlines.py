"""What views say of skipped steps and of waits: the reason of each skip, the cascade, and when a wait really ends."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import stepkeep as sk
from tests.cli.conftest import HANDLERS, Cli

CASCADE = """
workflow: cascade
timeout: 1h
input: [amount]
steps:
  - {name: charge, uses: cli.work, depends_on: [], timeout: 5s}
  - {name: big-order, uses: cli.work, depends_on: [charge], timeout: 5s, if: "${{ input.amount > 1000 }}"}
  - {name: label, uses: cli.work, depends_on: [big-order], timeout: 5s}
  - {name: ship, uses: cli.work, depends_on: [label], timeout: 5s}
  - {name: mail, uses: cli.refuse, depends_on: [charge], timeout: 5s, on_failure: skip}
"""
SHORT_RUN = """
workflow: short-run
timeout: 15m
steps:
  - {name: sign, approval: {deadline: 24h}}
"""


def by_name(view: dict[str, Any]) -> dict[str, Any]:
    return {step["name"]: step for step in view["steps"]}


@pytest.fixture
def cascaded(cli: Cli, home: Path, database_url: str) -> dict[str, Any]:
    (home / "cascade.yaml").write_text(CASCADE)
    said = cli("run", "cascade.yaml", "--app", HANDLERS, "--input", '{"amount": 10}', "--db", database_url, "--json")
    view: dict[str, Any] = said.json
    assert view["run"]["state"] == "succeeded"
    return view


def test_every_skipped_step_gives_its_reason(cascaded: dict[str, Any]) -> None:
    steps = by_name(cascaded)
    assert steps["charge"]["skipped"] is None
    assert steps["big-order"]["skipped"] == {
        "reason": "condition_false",
        "text": "its condition ${{ input.amount > 1000 }} is false",
        "of": None,
        "condition": "${{ input.amount > 1000 }}",
    }
    assert (steps["label"]["skipped"]["reason"], steps["label"]["skipped"]["of"]) == ("dependency_unmet", "big-order")
    assert steps["ship"]["skipped"]["text"] == "it requires label, which is skipped"
    assert steps["mail"]["skipped"]["reason"] == "failed_tolerated"


def test_a_false_condition_that_cascaded_is_a_warning_of_the_run(cascaded: dict[str, Any]) -> None:
    cascade = "big-order: its condition ${{ input.amount > 1000 }} is false, so label, ship were skipped too"
    assert cascade in cascaded["run"]["warnings"]
    assert len(cascaded["run"]["warnings"]) == 2  # and the tolerated failure of mail


def test_show_and_python_say_the_same(cli: Cli, cascaded: dict[str, Any], database_url: str) -> None:
    run = cascaded["run"]["id"]
    text = cli("show", run, "--db", database_url).out
    assert "its condition ${{ input.amount > 1000 }} is false" in text
    assert "it requires big-order, which is skipped" in text
    assert "warning: big-order: its condition" in text
    assert "skipped because it requires label" in cli("show", run, "--step", "ship", "--db", database_url).out
    with sk.open(database_url) as engine:
        view = engine.show(run)
    assert view["run"]["warnings"] == cascaded["run"]["warnings"]
    assert by_name(view)["ship"]["skipped"] == by_name(cascaded)["ship"]["skipped"]


def test_the_lines_of_a_run_say_why_a_step_is_skipped(cli: Cli, home: Path) -> None:
    (home / "cascade.yaml").write_text(CASCADE)
    out = cli("run", "cascade.yaml", "--app", HANDLERS, "--input", '{"amount": 10}').out
    assert "big-order  skipped: its condition is false" in out
    assert "label  skipped: it requires big-order" in out


def test_a_false_condition_that_skips_only_its_own_step_is_no_warning(cli: Cli, home: Path, database_url: str) -> None:
    (home / "alone.yaml").write_text(CASCADE.replace("depends_on: [big-order]", "depends_on: [charge]"))
    said = cli("run", "alone.yaml", "--app", HANDLERS, "--input", '{"amount": 10}', "--db", database_url, "--json")
    assert [warning for warning in said.json["run"]["warnings"] if "big-order" in warning] == []


def test_a_wait_ends_at_the_earlier_of_its_deadline_and_the_runs_timeout(
    cli: Cli, home: Path, database_url: str
) -> None:
    (home / "short.yaml").write_text(SHORT_RUN)
    view = cli("run", "short.yaml", "--db", database_url, "--json").json
    run, step = view["run"], view["steps"][0]
    [wait] = run["waiting_for"]
    assert wait["until"] == step["until"]
    assert wait["until"] < step["due_at"]  # the gate's own deadline is a day away
    minute = wait["until"][:16]
    assert minute > run["started_at"][:16]
    shown = cli("show", run["id"], "--db", database_url).out
    # The day stands before the time if it is another one than that of the start.
    assert re.search(rf"until (\S+ )?{wait['until'][11:16]}", shown)
    assert f"(until {wait['until']})" in shown
    [cause] = cli("explain", run["id"], "--db", database_url, "--json").json["explanation"]["causes"]
    assert cause["until"] == wait["until"]


def test_the_live_line_of_a_wait_is_bounded_by_the_runs_timeout(cli: Cli, home: Path) -> None:
    (home / "short.yaml").write_text(SHORT_RUN)
    out = cli("run", "short.yaml").out
    assert "15m at most" in out
    assert "24h" not in out


def test_a_run_waits_for_a_capability_that_it_was_not_given(cli: Cli, home: Path, database_url: str) -> None:
    (home / "skilled.yaml").write_text(
        "workflow: skilled\ntimeout: 1h\nsteps:\n"
        "  - {name: prepare, uses: cli.work, timeout: 5s}\n"
        "  - {name: train, uses: cli.work, timeout: 5s, capabilities: [gpu]}\n"
    )
    left = cli("run", "skilled.yaml", "--app", HANDLERS, "--db", database_url)
    assert left.status == 4
    assert "train needs the capability gpu, which this program was not given: give it with --capability" in left.out
    assert "train needs the capability gpu, which this program was not given, and no live worker has it" in left.err
    command = left.err[left.err.index("stepkeep run --resume") :].strip()
    assert "--capability gpu" in command
    assert cli(*shlex.split(command)[1:]).status == 0
    again = cli("rerun", command.split()[3], "--app", HANDLERS, "--db", database_url, "--json")
    assert (again.status, again.json["run"]["state"]) == (4, "running")
    assert "train needs the capability gpu" in again.err
