"""Every row of a database by its own driver, as text: to see what is really there, and whose it is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import asyncpg


class Row(NamedTuple):
    """One row: its table and its columns, as text."""

    table: str
    columns: dict[str, str]

    def without(self, *columns: str) -> str:
        return "\n".join(text for name, text in self.columns.items() if name not in columns)


def every_row(url: str) -> list[Row]:
    """All rows of all tables."""
    return _sqlite_rows(url) if url.startswith("sqlite") else asyncio.run(_postgres_rows(url))


def raw_bytes(url: str) -> bytes:
    """The files of an SQLite database, its log included; nothing for a server."""
    if not url.startswith("sqlite"):
        return b""
    path = Path(url.removeprefix("sqlite:///"))
    return b"".join(each.read_bytes() for each in sorted(path.parent.glob(f"{path.name}*")))


def _sqlite_rows(url: str) -> list[Row]:
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    try:
        names = [name for (name,) in connection.execute("select name from sqlite_schema where type = 'table'")]
        found = []
        for name in names:
            cursor = connection.execute(f"select * from {name}")
            rows = cursor.fetchall()
            columns = [column for _, column, *_ in connection.execute(f"pragma table_info({name})")]
            found += [Row(name, {each: _text(value) for each, value in zip(columns, row, strict=True)}) for row in rows]
        return found
    finally:
        connection.close()


async def _postgres_rows(url: str) -> list[Row]:
    connection = await asyncpg.connect(url)
    try:
        names = await connection.fetch(
            "select c.oid::regclass::text from pg_class c join pg_namespace n on n.oid = c.relnamespace "
            "where c.relkind = 'r' and n.nspname not in ('pg_catalog', 'information_schema')"
        )
        found = []
        for (name,) in names:
            rows = await connection.fetch(f"select * from {name}")
            found += [Row(name, {column: _text(value) for column, value in row.items()}) for row in rows]
        return found
    finally:
        await connection.close()


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
