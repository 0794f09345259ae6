"""A lost completion token is replaced from a shell and from Python, on both databases."""

from __future__ import annotations

import re

import stepkeep as sk
from tests.cli.conftest import HANDLERS, Cli


def test_token_gives_a_manual_step_a_new_token_that_completes_it(cli: Cli, database_url: str) -> None:
    db = ("--db", database_url)
    first = cli("run", "manual.yaml", "--app", HANDLERS, *db, "--json").json
    run, old = first["run"]["id"], first["run"]["waiting_for"][0]["token"]
    assert f"stepkeep token {run} by-hand --reason TEXT" in cli("show", run, *db).out
    said = cli("token", run, "by-hand", "--reason", "the mail was lost", "--by", "bea", *db)
    assert said.status == 0
    assert "by-hand of run" in said.out
    assert "by bea" in said.out
    [new] = re.findall(r"--token (\S+)", said.out)
    assert new != old
    assert cli("complete", run, "by-hand", "--token", old, *db).status == 1
    assert cli("complete", run, "by-hand", "--token", new, *db).status == 0
    [line] = [line for line in cli("log", "export", run, *db).out.splitlines() if '"token_reissued"' in line]
    assert '"actor":"bea"' in line
    assert "the mail was lost" in line
    assert cli("certify", run, *db).status == 0


def test_python_gives_the_new_token(cli: Cli, database_url: str) -> None:
    run = cli("run", "manual.yaml", "--app", HANDLERS, "--db", database_url, "--json").json["run"]["id"]
    with sk.open(database_url) as engine:
        said = engine.reissue_token(run, "by-hand", reason="lost", by="bea")
        assert (said["by"], said["reason"]) == ("bea", "lost")
        engine.complete(run, "by-hand", token=said["token"])
        assert engine.wait(run).state == "succeeded"


def test_a_new_token_needs_a_reason_and_an_open_manual_step(cli: Cli) -> None:
    run = cli("run", "gated.yaml", "--app", HANDLERS, "--json").json["run"]["id"]
    assert cli("token", run, "sign-off").status == 2
    said = cli("token", run, "sign-off", "--reason", "x")
    assert said.status == 1
    assert "only a step that waits to be completed by hand" in said.err
