"""`stepkeep rollback-preview` says what `cancel --compensate` would undo, and what comes next."""

from __future__ import annotations

from pathlib import Path

import stepkeep as sk
from tests.cli.conftest import Cli
from tests.operations.test_rollback_preview import blocked
from tests.suites import first_on


@first_on("sqlite")
def test_the_command_says_the_same_and_what_comes_next(database_url: str, tmp_path: Path, cli: Cli) -> None:
    with sk.open(database_url) as engine:
        run = blocked(engine, tmp_path)
        told = cli("rollback-preview", run[-8:], "--db", database_url)
        assert told.status == 1
        assert told.out.index("1. pay is undone by") < told.out.index("2. book is undone by")
        assert "tell stays: it succeeded, and its definition has no undo" in told.out
        assert f"stepkeep cancel {run} --compensate" in told.out
        found = cli("rollback-preview", run, "--db", database_url, "--json")
        assert found.json["rollback"] == engine.rollback_preview(run)
