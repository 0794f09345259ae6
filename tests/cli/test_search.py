"""Finding runs and definitions: filters, totals, pages; drafts; and commands that look but make nothing."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from stepkeep.cli.commands import runs
from stepkeep.operations.runs import search
from tests.cli.conftest import FLOW, HANDLERS, Cli

LABELLED = FLOW.replace("workflow: flow", "workflow: labelled\nlabels: {team: billing, region: eu}")


def ids(cli: Cli, *words: str) -> list[str]:
    return [run["id"] for run in cli("runs", *words, "--json").json["runs"]]


def test_runs_are_found_by_label_key_time_error_and_any_text(cli: Cli, home: Path, database_url: str) -> None:
    db = ("--db", database_url)
    (home / "labelled.yaml").write_text(LABELLED)
    start = ("start", "labelled.yaml", "--handlers-elsewhere")
    one = cli(*start, "--input", '{"mail": "Ada@example.com"}', "--correlation-id", "c-7", *db, "--json").json["run"]
    two = cli(*start, "--label", "region=us", "--label", "tier=gold", *db, "--json").json["run"]
    bad = cli("run", "failing.yaml", "--app", HANDLERS, *db, "--json").json["run"]
    assert one["labels"] == {"team": "billing", "region": "eu"}
    assert two["labels"] == {"team": "billing", "region": "us", "tier": "gold"}
    assert ids(cli, "--label", "team=billing", *db) == [two["id"], one["id"]]
    assert ids(cli, "--label", "team=billing", "--label", "region=us", *db) == [two["id"]]
    assert ids(cli, "--correlation-id", "c-7", *db) == [one["id"]]
    assert ids(cli, "--error", "CANNOT be done", *db) == [bad["id"]]
    assert ids(cli, "ada@example", *db) == [one["id"]]
    assert ids(cli, "gold", *db) == [two["id"]]
    assert ids(cli, "--since", "1h", "--until", "2h", *db) == []
    assert len(ids(cli, "--since", "1h", *db)) == 3
    assert ids(cli, "--until", "2020-01-01", *db) == []
    found = cli("runs", "--label", "team=billing", "--limit", "1", *db, "--json").json
    assert (len(found["runs"]), found["total"], found["is_complete"]) == (1, 2, True)
    assert "3 in all" in cli("runs", *db).out
    assert cli("runs", "--label", "team", *db).status == 2
    assert cli("runs", "--since", "yesterday", *db).status == 2
    assert cli("runs", "--label", "a=b", "--as", "run", *db).status == 2


def test_the_hint_for_the_next_page_keeps_the_filters(cli: Cli, home: Path) -> None:
    for _ in range(3):
        cli("start", "waiting.yaml")
    first = cli("runs", "--state", "blocked", "--workflow", "waiting", "--limit", "2")
    [hint] = re.findall(r"older ones: stepkeep (.*)", first.out)
    assert "--state blocked --workflow waiting --limit 2" in hint
    assert len(ids(cli, *shlex.split(hint)[1:])) == 1


def test_a_search_that_ended_early_never_says_that_there_is_no_such_run(
    cli: Cli, home: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = ("--db", database_url)
    monkeypatch.setattr(search, "MOST_IN_ORDER", 1)
    monkeypatch.setattr(runs, "MOST_PARTS", 2)
    cli("start", "waiting.yaml", "--label", "team=a", *db)
    for _ in range(3):
        cli("start", "waiting.yaml", *db)
    said = cli("runs", "--label", "team=a", *db).out
    assert "no such runs" not in said
    assert "no such run was found so far" in said
    assert "looked at the newest 2 of 4 runs, back to 20" in said
    [hint] = re.findall(r"look further: stepkeep (.*)", said)
    whole = cli(*shlex.split(hint)).out
    assert "1 in all" in whole
    assert "looked at" not in whole
    assert cli("runs", "--label", "team=a", "--all", *db, "--json").json["total"] == 1
    assert "no such runs" in cli("runs", "--label", "team=b", "--all", *db).out


@pytest.mark.parametrize("command", [["runs"], ["show", "abcd"], ["workers"], ["status"], ["db", "status"]])
def test_a_command_that_looks_makes_no_database(cli: Cli, home: Path, command: list[str]) -> None:
    said = cli(*command, "--db", f"sqlite:///{home}/no/such.db")
    assert said.status == 1
    assert "there is no database" in said.err
    assert not (home / "no").exists()


def test_definitions_are_published_and_listed_with_their_versions(cli: Cli, home: Path) -> None:
    assert "flow version 1 is published" in cli("publish", "flow.yaml").out
    (home / "flow.yaml").write_text(FLOW.replace("workflow: flow", "workflow: flow\nversion: 2"))
    assert cli("publish", "flow.yaml", "--json").json["definition"]["version"] == 2
    cli("publish", "gated.yaml")
    listed = cli("definitions", "flow", "--json").json["definitions"]
    assert [(one["workflow"], one["version"]) for one in listed] == [("flow", 1), ("flow", 2)]
    assert "gated" in cli("definitions").out
    assert cli("runs", "--json").json["runs"] == []


def test_a_changed_file_is_refused_with_what_differs_and_runs_as_a_draft(
    cli: Cli, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert cli("run", "flow.yaml", "--app", HANDLERS).status == 0
    (home / "flow.yaml").write_text(
        FLOW.replace("name: second, uses: cli.work, timeout: 5s", "name: second, uses: cli.work, timeout: 6s")
    )
    refused = cli("run", "flow.yaml", "--app", HANDLERS)
    assert refused.status == 1
    assert "steps.second.timeout: 5s → 6s" in refused.err
    assert "stepkeep run --dev" in refused.err
    draft = cli("run", "flow.yaml", "--app", HANDLERS, "--dev", "--json")
    assert (draft.status, draft.json["run"]["version"]) == (0, 2)
    assert "it runs as version 2 of flow" in caplog.text
    again = cli("run", "flow.yaml", "--app", HANDLERS, "--dev", "--json")
    assert again.json["run"]["version"] == 2


def test_the_hint_to_go_on_names_the_file_that_has_the_handlers(cli: Cli, home: Path) -> None:
    (home / "orders.py").write_text(
        "import stepkeep as sk\nflow = sk.Workflow('orders', version=1)\nflow.approval('sign', deadline='1h')\n"
    )
    said = cli("run", "orders.py")
    assert said.status == 4
    assert "--app orders.py" in said.err


def test_a_second_completion_says_that_it_was_not_kept(cli: Cli, home: Path) -> None:
    view = cli("run", "manual.yaml", "--app", HANDLERS, "--json").json["run"]
    token = view["waiting_for"][0]["token"]
    words = ("complete", view["id"], "by-hand", "--token", token)
    assert "not kept" not in cli(*words, "--output", "1").out
    assert "what was given now was not kept" in cli(*words, "--output", "2").out


def test_a_follower_sees_the_run_end(cli: Cli, home: Path) -> None:
    run = cli("run", "flow.yaml", "--app", HANDLERS, "--json").json["run"]["id"]
    said = cli("show", run, "--follow")
    assert said.status == 0
    assert "flow v1 succeeded" in said.out
    assert cli("show", run, "--follow", "--json").status == 2


def test_the_module_is_the_program() -> None:
    ran = subprocess.run([sys.executable, "-m", "stepkeep", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("stepkeep ")


@pytest.mark.parametrize(("shell", "mark"), [("bash", "complete"), ("zsh", "compdef"), ("fish", "complete")])
def test_a_completion_script_is_printed_for_usual_shells(cli: Cli, shell: str, mark: str) -> None:
    said = cli("completion", shell)
    assert said.status == 0
    assert mark in said.out
    assert "_STEPKEEP_COMPLETE" in said.out
    assert cli("completion", "tcsh").status == 2


def test_the_completion_script_of_bash_completes_commands() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "stepkeep"],
        env={"_STEPKEEP_COMPLETE": "complete_bash", "COMP_WORDS": "stepkeep expl", "COMP_CWORD": "1", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.split() == ["explain"]
