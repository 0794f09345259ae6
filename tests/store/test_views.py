"""The views for people: they say what the engine says, with names, timestamps and JSON, at both databases alike."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import msgspec
import pytest
from tests.store.raw import Raw

from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.definition import Definition, Dependency, Handler, Retry, StepDefinition, Undo
from stepkeep.kernel.machine.states import OnFailure

PAGE = Path(__file__).parents[2] / "docs" / "databases.md"
VIEWS = ("run_view", "step_view", "attempt_view", "journal_view", "worker_view")

FLOW = Definition(
    name="order",
    version=3,
    on_failure=OnFailure.COMPENSATE,
    steps=(
        # Listed against the order in which they are numbered.
        StepDefinition(
            name="b-fail",
            order=2,
            executor=Handler(name="fail"),
            retry=Retry(max_attempts=1),
            on_failure=OnFailure.COMPENSATE,
            depends_on=(Dependency(step="pay"), Dependency(step="a-note")),
        ),
        StepDefinition(name="pay", order=1, executor=Handler(name="pay"), undo=Undo(executor=Handler(name="refund"))),
        StepDefinition(name="a-note", order=1, executor=Handler(name="note")),
    ),
)


def broken() -> None:
    raise ValueError("no stock")


def registry() -> Registry:
    made = Registry()
    functions = {"pay": lambda: {"paid": 12}, "refund": lambda: 0, "note": lambda: "noted", "fail": broken}
    for name, function in functions.items():
        made.register(HandlerSpec(name=name, function=function))
    return made


async def worked(url: str) -> dict[str, Any]:
    """One run to its end, as the engine shows it."""
    async with AsyncEngine(url, actor="ann", registry=registry()) as engine:
        result = await engine.run(FLOW, {"email": "ada@example.com"}, business_key="order-1", labels={"team": "blue"})
        assert result.state == "rolled_back", result.view
        return result.view


def moment(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def decoded(value: Any) -> Any:
    """A JSON column: both drivers hand it over as text."""
    return None if value is None else msgspec.json.decode(value)


async def test_a_run_is_shown_as_the_engine_shows_it(url: str, raw: Raw) -> None:
    shown = (await worked(url))["run"]
    [row] = await raw.execute(
        "select run_id, workflow, version, state, cause, rollback, business_key, created_by, is_quarantined,"
        " created_at, ended_at, input, labels, open_steps from run_view"
    )
    assert str(row[0]) == shown["id"]
    assert row[1:9] == ("order", 3, "rolled_back", "failure", "complete", "order-1", "ann", False)
    assert moment(shown["ended_at"]).replace(microsecond=0) == moment(row[10]).replace(microsecond=0)
    assert moment(row[9]) <= moment(row[10])
    assert decoded(row[11]) == {"email": "ada@example.com"}
    assert decoded(row[12]) == {"team": "blue"}
    assert row[13] == 0


async def test_steps_attempts_and_the_journal_are_named(url: str, raw: Raw) -> None:
    shown = await worked(url)
    steps = await raw.execute("select name, state from step_view order by no")
    assert {(step["name"], step["state"]) for step in shown["steps"]} <= set(steps)
    assert [name for name, _ in steps] == ["a-note", "pay", "b-fail", "undo:pay"]
    attempts = await raw.execute("select name, state, worker, seconds, output, error from attempt_view")
    assert {name for name, *_ in attempts} == {"a-note", "pay", "b-fail", "undo:pay"}
    by_name = {name: rest for name, *rest in attempts}
    assert decoded(by_name["pay"][3]) == {"paid": 12}
    assert "no stock" in by_name["b-fail"][4]
    assert by_name["b-fail"][3] is None
    assert all(worker.startswith("stepkeep:") and seconds >= 0 for _, _, worker, seconds, _, _ in attempts)
    told = await raw.execute("select step, from_state, to_state, event, actor from journal_view order by seq, place")
    assert told[0] == (None, None, "idle", "run_created", "ann")
    assert told[-1][:3] == (None, "compensating", "rolled_back")
    assert [(source, target) for step, source, target, *_ in told if step == "undo:pay"][-1][1] == "succeeded"
    assert len(await raw.execute("select 1 from worker_view where state = 'shutdown'")) == 1


@pytest.mark.postgres
@pytest.mark.parametrize("stored", [b'"a\\u0000b"', b'"\\ud800"', b"\xff", b"not JSON", b"", b"[" * 100_000], ids=len)
async def test_what_jsonb_cannot_hold_is_shown_and_spoils_no_query(postgres_dsn: str, stored: bytes) -> None:
    connection = await asyncpg.connect(postgres_dsn)
    try:
        shown = await connection.fetchval("select stepkeep_json($1)", stored)
        assert isinstance(msgspec.json.decode(shown), str)
        assert await connection.fetchval("select stepkeep_step_names($1)", stored) in (None, ["check:run"])
    finally:
        await connection.close()


async def test_both_databases_have_the_same_views_with_the_same_columns(tmp_path: Path, postgres_dsn: str) -> None:
    async with AsyncEngine(f"sqlite:///{tmp_path}/s.db", actor="a"):
        pass
    file, server = apsw.Connection(f"{tmp_path}/s.db"), await asyncpg.connect(postgres_dsn)
    try:
        for view in VIEWS:
            here = [name for (name,) in file.execute(f"select name from pragma_table_info('{view}')")]
            listed = "select attname from pg_attribute where attrelid = to_regclass($1) and attnum > 0 order by attnum"
            assert [name for (name,) in await server.fetch(listed, view)] == here, view
            assert here
    finally:
        file.close()
        await server.close()


def examples() -> list[str]:
    section = PAGE.read_text().split("## Looking with SQL")[1].split("\n## ")[0]
    blocks = re.findall(r"```sql\n(.*?)```", section, re.DOTALL)
    return [part.strip() for block in blocks for part in block.split(";") if part.strip()]


async def test_every_example_of_the_page_runs_and_finds_something(url: str, raw: Raw) -> None:
    run_id = (await worked(url))["run"]["id"]
    async with AsyncEngine(url, actor="ann", registry=registry()) as engine:
        await engine.start(FLOW, {})
    for statement in examples():
        found = await raw.execute(re.sub("'RUN_ID'", f"'{run_id}'", statement))
        assert found or "state = 'running'" in statement, statement
    assert len(examples()) >= 5


@pytest.mark.postgres
async def test_every_table_and_column_has_a_comment(postgres_dsn: str) -> None:
    silent = """
        select relname, attname
        from pg_class
        left join pg_attribute on attrelid = pg_class.oid and attnum > 0 and not attisdropped and relkind <> 'v'
        where relnamespace = (select relnamespace from pg_class where oid = to_regclass('runs'))
            and relkind in ('r', 'p', 'v') and not relispartition
            and (obj_description(pg_class.oid) is null
                or (attname is not null and col_description(pg_class.oid, attnum) is null))
    """
    connection = await asyncpg.connect(postgres_dsn)
    try:
        assert [tuple(row) for row in await connection.fetch(silent)] == []
    finally:
        await connection.close()


@pytest.mark.postgres
async def test_maintenance_that_is_called_by_hand_has_a_lock_timeout_too(postgres_dsn: str) -> None:
    connection, rival = await asyncpg.connect(postgres_dsn), await asyncpg.connect(postgres_dsn)
    try:
        await rival.execute("begin; lock table journal_default in access share mode")
        with pytest.raises(asyncpg.LockNotAvailableError):
            await connection.execute("select stepkeep_extend_journal(9)")
        settings = "select proconfig from pg_proc where proname = 'stepkeep_drop_empty_weeks'"
        assert await connection.fetchval(settings) == ["lock_timeout=200ms"]
    finally:
        await rival.close()
        await connection.close()
