"""Every statement that workers, people and operators cause, watched by the database itself beside a long history.

The real operations run on a database that is full of finished runs; the server reports the plan of each statement as it
was executed, SQLite its steps. None may look at more rows than the work at hand has. A statement that no operation here
causes fails the test: a new file needs a place in `ordinary_life`. The history has three thousand finished runs with
`make test` and a hundred thousand with `make proof`.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest
from tests.store.history import TABLES, PostgresHistory, SqliteHistory
from tests.store.ordinary_life import live, make_originals, opened
from tests.suites import in_proof

from stepkeep.store.statements import load_statements
from stepkeep_lab.postgres import PostgresServer

SIZES = pytest.mark.parametrize("runs", [3_000, in_proof(100_000)])
FAILED = 200
MOST_ROWS = 1_500
MOST_PAGES = 5_000
MOST_STEPS = 20_000
"""More than the work at hand needs, and far less than a walk over the history would take."""

WATCHED = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_buffers": "on",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_format": "json",
}
WATCH = "call a new statement in tests/store/ordinary_life.py, or give a reason in NOT_WATCHED"
NOT_WATCHED = {
    "read_tail": "a BRIN index reads whole ranges of pages; one follower per process and tenant asks it",
    "tail_position": "reads no table on PostgreSQL, and the last row on SQLite",
    "insert_migration": "once per migration, into a table of its own",
    "list_workers": "lists all workers there ever were, for whoever asks for all",
    "count_runs": "counts all runs of a tenant by its nature: campaigns and benchmarks ask it, nobody else",
    "find_runs_by_words": "reads a range of runs by its nature: people search for a text",
    "delete_sink_deliveries": "goes through all cursors of a sink by its nature: people remove a sink, rarely",
}
ASKED_ACROSS = {"find_tenant_of_key", "find_tenant_of_session", "list_tenant_names"}


def names_of(store: str) -> dict[str, str]:
    """Statements of a store by their text."""
    return {text: name for name, text in vars(load_statements(f"stepkeep.store.{store}")).items()}


# -- PostgreSQL ------------------------------------------------------------------------------------------------------
PLAN = re.compile(r"plan:\n((?:\t.*\n)+)")


def plans_in(log: str) -> Iterator[dict[str, Any]]:
    for found in PLAN.finditer(log):
        yield json.loads(re.sub(r"(?m)^\t", "", found[1]))


def is_big(relation: str) -> bool:
    return relation in (*TABLES, "workers") or relation.startswith("journal")


def rows_of(node: dict[str, Any]) -> float:
    """How many rows of large tables a plan looked at, whether it kept them or not."""
    seen = 0.0
    if is_big(node.get("Relation Name", "")) and "Scan" in node["Node Type"]:
        passed_over = ("Rows Removed by Filter", "Rows Removed by Index Recheck")
        seen = (node["Actual Rows"] + sum(node.get(name, 0) for name in passed_over)) * node["Actual Loops"]
    return seen + sum(rows_of(child) for child in node.get("Plans", ()))


def pages_of(node: dict[str, Any]) -> int:
    return int(node.get("Shared Hit Blocks", 0) + node.get("Shared Read Blocks", 0))


@pytest.mark.postgres
@SIZES
async def test_no_statement_on_postgresql_looks_at_more_than_the_work_at_hand(
    postgres_server: PostgresServer, unused_postgres_dsn: str, tmp_path: Path, runs: int
) -> None:
    if postgres_server.is_external:
        pytest.skip("the server's log is somebody else's")

    async def whole() -> str:
        async with opened(unused_postgres_dsn) as bench:
            good, bad = await make_originals(bench)
        connection = await asyncpg.connect(unused_postgres_dsn)
        history = PostgresHistory(connection)
        await history.copy(good, runs)
        await history.copy(bad, FAILED)
        await history.copy_workers(runs // 10)
        await history.settle()
        before = len(postgres_server.log)
        async with opened(
            "&".join([unused_postgres_dsn, *(f"{name}={value}" for name, value in WATCHED.items())])
        ) as bench:
            await live(bench, tmp_path, at_noon=history.analyze)
        await connection.close()
        return postgres_server.log[before:]

    names = names_of("postgres")
    seen: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for report in plans_in(await whole()):
        name = names.get(report["Query Text"], "inside a function")
        seen[name].append((rows_of(report["Plan"]), pages_of(report["Plan"])))
    worst = {name: (max(rows for rows, _ in looks), max(pages for _, pages in looks)) for name, looks in seen.items()}
    for name in NOT_WATCHED:
        worst.pop(name, None)
    assert {name: most for name, most in worst.items() if most[0] > MOST_ROWS or most[1] > MOST_PAGES} == {}
    # The server explains no statement that makes a table. Tables are looked for only where there are none. What a role
    # under row-level security asks across tenants is one row by its key, or the names of tenants.
    unseen = {"create_migrations", "extend_journal", "find_installations", *ASKED_ACROSS, *NOT_WATCHED}
    assert set(names.values()) - set(worst) == unseen, WATCH


# -- SQLite ----------------------------------------------------------------------------------------------------------
@SIZES
async def test_no_statement_on_sqlite_takes_more_steps_than_the_work_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    url, names = f"sqlite:///{tmp_path}/a.db", names_of("sqlite")
    steps: dict[str, int] = defaultdict(int)

    def note(event: dict[str, Any]) -> None:
        if (name := names.get(event["sql"])) is not None:
            steps[name] = max(steps[name], event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])

    def watch(connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, note)

    async with opened(url) as bench:
        good, bad = await make_originals(bench)
    history = SqliteHistory(tmp_path / "a.db")
    history.copy(good, runs)
    history.copy(bad, FAILED)
    history.copy_workers(runs // 10)
    history.settle()
    monkeypatch.setattr(apsw, "connection_hooks", [*apsw.connection_hooks, watch])
    async with opened(url) as bench:
        await live(bench, tmp_path)
    for name in NOT_WATCHED:
        steps.pop(name, None)
    assert {name: most for name, most in steps.items() if most > MOST_STEPS} == {}
    assert set(names.values()) - set(steps) == set(NOT_WATCHED), WATCH
