"""Runs that cannot be read, and runs that were set aside, as the commands tell of them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.cli.conftest import HANDLERS, Cli
from tests.damage import damage

NOWHERE = "01a1e12c-57d6-75bf-abba-e99e88c4e41f"
DAMAGES = {
    "state": "update runs set rollback = 'sideways' where id = '{run}'",
    "details": "update run_details set input = x'7b' where run_id = '{run}'",
    "journal": "update journal set body = x'7b' where run_id = '{run}' and seq = 1",
    "attempt": "update attempts set output = x'7b' where run_id = '{run}'",
    "step": "update steps set note = '{{' where run_id = '{run}'",
}


def run_one(cli: Cli) -> str:
    said = cli("run", "flow.yaml", "--app", HANDLERS, "--json")
    assert said.status == 0
    return str(said.json["run"]["id"])


def break_it(home: Path, run: str, how: str) -> None:
    asyncio.run(damage(f"sqlite:///{home}/.stepkeep/stepkeep.db", DAMAGES[how].format(run=run)))


@pytest.mark.parametrize("how", DAMAGES)
def test_a_run_that_cannot_be_read_is_named_in_plain_words_with_status_1(cli: Cli, home: Path, how: str) -> None:
    bad, good = run_one(cli), run_one(cli)
    break_it(home, bad, how)
    said = cli("show", bad)
    assert said.status == 1
    assert f"run {bad} cannot be read" in said.err
    assert "should not have happened" not in said.err
    assert cli("show", bad, "--json").json["error"]["code"] == "unreadable"
    assert cli("show", good).status == 0
    if how in ("state", "details", "journal"):
        for command in (("log", "export", bad), ("certify", bad), ("log", "export", "--all")):
            said = cli(*command)
            assert (said.status, f"run {bad} cannot be read" in said.err) == (1, True), command
            assert "should not have happened" not in said.err
    if how in ("state", "details"):
        listed = cli("runs")
        assert listed.status == 1
        assert f"run {bad} cannot be read" in listed.out
        assert good[:8] in listed.out or good[-8:] in listed.out
        found = cli("runs", "--json")
        assert found.status == 1
        assert [one["id"] for one in found.json["unreadable"]] == [bad]
    pruned = cli("prune", "--keep", "0", "--archive", str(home / "archive"))
    assert pruned.status == 1
    assert f"run {bad} stays" in pruned.out
    assert "1 deleted" in pruned.out


def test_a_run_is_set_aside_shown_and_released_with_names_and_reasons(cli: Cli, home: Path) -> None:
    started = cli("start", "waiting.yaml", "--app", HANDLERS, "--json")
    run = started.json["run"]["id"]
    said = cli("quarantine", run, "--reason", "it does harm", "--by", "ann")
    assert said.status == 0
    assert said.out == f"run {run} is quarantined by ann: it does harm\n"
    for command in (("show", run), ("runs",), ("quarantine", "--list")):
        told = cli(*command)
        assert told.status == 0
        assert f"run {run} quarantined by ann at " in told.out
        assert "it does harm" in told.out
    for json_of in (cli("show", run, "--json").json["run"], cli("runs", "--json").json["runs"][0]):
        assert (json_of["quarantined"]["by"], json_of["quarantined"]["reason"]) == ("ann", "it does harm")
    for command in (("cancel", run), ("send", run, "anything")):
        refused = cli(*command, "--json")
        assert refused.status == 1
        assert refused.json["error"]["code"] == "quarantined"
    again = cli("quarantine", run, "--reason", "again", "--json")
    assert (again.status, again.json["error"]["code"]) == (1, "conflict")
    assert again.json["error"]["winner"]["by"] == "ann"
    released = cli("quarantine", "--release", run, "--reason", "seen", "--by", "bea", "--json")
    assert released.status == 0
    assert released.json["quarantine"]["released_by"] == "bea"
    assert cli("quarantine", "--list").out == "no run is quarantined\n"
    assert cli("show", run, "--json").json["run"]["quarantined"] is None
    kept = cli("quarantine", "--list", "--history", "--json").json["quarantined"]
    assert [(one["by"], one["released_by"], one["release_reason"]) for one in kept] == [("ann", "bea", "seen")]
    assert cli("cancel", run).status == 0


def test_a_run_that_cannot_be_read_can_be_set_aside_by_a_part_of_its_id(cli: Cli, home: Path) -> None:
    run = run_one(cli)
    break_it(home, run, "state")
    said = cli("quarantine", run[-12:], "--reason", "damaged", "--json")
    assert said.status == 0
    assert said.json["quarantine"]["run"] == run
    pruned = cli("prune", "--keep", "0", "--no-archive")
    assert (pruned.status, "0 deleted" in pruned.out) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ((), 2),
        (("--list", NOWHERE), 2),
        ((NOWHERE,), 2),
        ((NOWHERE, "--reason", ""), 2),
        ((NOWHERE, "--reason", "why", "--history"), 2),
        ((NOWHERE, "--reason", "why", "--by", ""), 2),
        ((NOWHERE, "--reason", "why"), 1),
        (("--release", NOWHERE, "--reason", "why"), 1),
        (("--release", NOWHERE), 2),
    ],
)
def test_what_cannot_be_meant_is_refused(cli: Cli, arguments: tuple[str, ...], status: int) -> None:
    run_one(cli)
    said = cli("quarantine", *arguments)
    assert said.status == status
    assert "should not have happened" not in said.err
    assert json.loads(cli("quarantine", *arguments, "--json").out)["error"]["message"]
