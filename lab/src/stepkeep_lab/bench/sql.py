"""Plain SQL on the measured database, for what no API offers: reading raw rows and multiplying them.

Two drivers behind one small interface. Nothing that is timed as ours uses it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from stepkeep_lab.bench.ground import Ground

HOURS = 4 * 3600.0
NODE = 24
"""Where the last twelve digits of a UUID begin; those before tell its time, and so where its rows belong."""


class Sql(Protocol):
    """A connection. Statements are our own, so they carry their values in their text."""

    async def run(self, statement: str) -> None: ...

    async def ask(self, question: str) -> list[tuple[Any, ...]]: ...

    async def tables(self) -> dict[str, list[str]]:
        """Every table that holds rows of runs, with its columns."""
        ...

    def run_id(self, like: str, number: str) -> str:
        """The expression of a run id of the same moment as another, numbered by an expression."""
        ...


@asynccontextmanager
async def open_sql(ground: Ground, settings: dict[str, str] | None = None) -> AsyncIterator[Sql]:
    """A connection of its own to the database of this ground."""
    if ground.server is None:
        import apsw

        database = apsw.Connection(str(_file(ground)))
        try:
            yield _Sqlite(database)
        finally:
            database.close()
    else:
        import asyncpg

        connection = await asyncpg.connect(ground.url, server_settings=settings or {}, command_timeout=HOURS)
        try:
            yield _Postgres(connection)
        finally:
            await connection.close()


class _Postgres:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def run(self, statement: str) -> None:
        await self._connection.execute(statement)

    async def ask(self, question: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self._connection.fetch(question)]

    async def tables(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for table, column in await self.ask(
            "select relname, attname from pg_class join pg_attribute on attrelid = pg_class.oid"
            " where relnamespace = 'stepkeep'::regnamespace and relkind in ('r', 'p') and not relispartition"
            " and attnum > 0 and not attisdropped and attidentity = '' order by relname, attnum"
        ):
            found.setdefault(table, []).append(column)
        return _of_runs(found)

    def run_id(self, like: str, number: str) -> str:
        return f"('{like[:NODE]}' || lpad(to_hex({number}), 12, '0'))::uuid"


class _Sqlite:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def run(self, statement: str) -> None:
        self._connection.execute(statement)

    async def ask(self, question: str) -> list[tuple[Any, ...]]:
        return list(self._connection.execute(question))

    async def tables(self) -> dict[str, list[str]]:
        names = [name for (name,) in await self.ask("select name from sqlite_schema where type = 'table'")]
        return _of_runs({name: await self._columns(name) for name in names})

    async def _columns(self, table: str) -> list[str]:
        """The columns but the number that the database gives to a row."""
        rows = await self.ask(f"pragma table_info({table})")
        key = [row for row in rows if row[5]]
        given = key[0][1] if len(key) == 1 and key[0][2].lower() == "integer" else None
        return [row[1] for row in rows if row[1] != given]

    def run_id(self, like: str, number: str) -> str:
        return f"printf('{like[:NODE]}%012x', {number})"


def key_column(table: str) -> str:
    """Which column names the run."""
    return "id" if table == "runs" else "run_id"


def _of_runs(tables: dict[str, list[str]]) -> dict[str, list[str]]:
    ours = {name: columns for name, columns in tables.items() if not name.startswith("bench_")}
    return {name: columns for name, columns in ours.items() if name == "runs" or "run_id" in columns}


def _file(ground: Ground) -> Path:
    return Path(ground.url.removeprefix("sqlite:///"))


async def wal_position(ground: Ground) -> int | None:
    """Bytes of write-ahead log that the server has written so far; None where there is no server."""
    if ground.server is None:
        return None
    return int(await one_value(ground.url, "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"))


async def one_value(url: str, question: str) -> Any:
    """What a PostgreSQL server answers, on a connection of its own."""
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()
