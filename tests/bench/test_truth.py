"""Every search and every count agrees with SQL, or says what it is. `stepkeep lab truth` does it beside a million."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from stepkeep.cli.main import main
from stepkeep.operations.runs import counting, search, statistics
from stepkeep_lab.bench.ground import Ground, fresh_ground
from stepkeep_lab.bench.truth import Line, compare
from stepkeep_lab.postgres import PostgresServer

RUNS = 300


def bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few runs are beyond every bound."""
    for module, name, most in (
        (search, "MOST_IN_ORDER", 40),
        (search, "MOST_LOOKED_UP", 5),
        (search, "MOST_COUNTED", 60),
        (counting, "EXACT", 20),
        (statistics, "MOST_RUNS", 20),
    ):
        monkeypatch.setattr(module, name, most)


def wrong(ground: Ground) -> tuple[list[Line], list[Line]]:
    lines = asyncio.run(compare(ground, RUNS))
    return lines, [line for line in lines if not line.is_true]


def test_on_sqlite_every_search_and_every_count_is_so(monkeypatch: pytest.MonkeyPatch) -> None:
    bounded(monkeypatch)
    with fresh_ground("sqlite", None) as ground:
        lines, found = wrong(ground)
    assert found == []
    assert sum(line.name.startswith("runs ") for line in lines) > 20
    assert {line.verdict for line in lines} >= {"agrees", "agrees, in parts", "says at least"}


@pytest.mark.postgres
def test_on_postgresql_every_search_and_every_count_is_so(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded(monkeypatch)
    with fresh_ground("postgres", postgres_server) as ground:
        lines, found = wrong(ground)
    assert found == []
    assert len(lines) > 40


def test_a_count_that_ends_at_its_bound_and_does_not_say_so_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: the newest runs stand for all."""
    monkeypatch.setattr(counting, "MOST", 20)
    exactly = counting.exactly
    monkeypatch.setattr(
        counting, "exactly", lambda parts: exactly({name: min(5, count) for name, count in parts.items()})
    )
    with fresh_ground("sqlite", None) as ground:
        _, found = wrong(ground)
    assert {"status: unfinished, total", "status: recent, succeeded"} <= {line.name for line in found}


def test_the_command_writes_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "truth", "--runs", "100", "--store", "sqlite", "--report", str(tmp_path)]) == 0
    assert "0 wrong" in capsys.readouterr().out
    told = json.loads((tmp_path / "truth.json").read_text(encoding="utf-8"))
    assert all(line["is_true"] for line in told["stores"]["sqlite"])
    assert "stepkeep lab truth --runs 100" in (tmp_path / "truth.md").read_text(encoding="utf-8")
