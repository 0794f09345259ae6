"""The database by its own driver: to try what no store would do, and to see what is really there."""

import asyncio
import re
import time
from pathlib import Path
from typing import Any, Protocol

import apsw
import asyncpg


class RefusedBySchema(Exception):
    """The database itself said no."""


class Raw(Protocol):
    async def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run one statement in a transaction of its own; RefusedBySchema when a check or trigger stops it."""
        ...

    async def words(self, table: str, constraint: str) -> set[str]:
        """The closed list of words that a constraint of the live schema allows."""
        ...


class SqliteRaw:
    def __init__(self, url: str) -> None:
        self._path = Path(url.removeprefix("sqlite:///"))

    async def execute(self, statement: str) -> list[tuple[Any, ...]]:
        connection = apsw.Connection(str(self._path))
        connection.set_busy_timeout(5000)
        try:
            return connection.execute(statement).fetchall()
        except apsw.ConstraintError as error:
            raise RefusedBySchema(str(error)) from error
        finally:
            connection.close()

    async def words(self, table: str, constraint: str) -> set[str]:
        [(sql,)] = await self.execute(f"select sql from sqlite_schema where name = '{table}'")
        text = re.split(r"\n\s+constraint ", sql.split(f"constraint {constraint} check")[1])[0]
        return set(re.findall(r"when '(\w+)'" if "case" in text else r"'(\w+)'", text))


class PostgresRaw:
    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    async def execute(self, statement: str) -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(self._dsn)
        try:
            return [tuple(row) for row in await connection.fetch(statement)]
        except (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError) as error:
            raise RefusedBySchema(str(error)) from error
        finally:
            await connection.close()

    async def words(self, table: str, constraint: str) -> set[str]:
        kept = await self.execute(f"select pg_get_constraintdef(oid) from pg_constraint where conname = '{constraint}'")
        if not kept:
            [(rules,)] = await self.execute(
                f"select prosrc from pg_proc where proname = 'stepkeep_{table.removesuffix('s')}_is_sound'"
            )
            kept = [tuple(re.findall(rf"not in \(([^)]*)\)\s+then '{constraint}'", rules))]
        [(text,)] = kept
        return set(re.findall(r"'(\w+)'", text))


def raw_of(url: str) -> Raw:
    """The database of this URL."""
    return SqliteRaw(url) if url.startswith("sqlite") else PostgresRaw(url)


def expire_leases(url: str) -> None:
    """Let every lease end now, as if its time were over: for workers that are gone, in place of a wait."""
    now = time.time_ns() // 1000
    asyncio.run(raw_of(url).execute(f"update steps set due_at = {now} where worker is not null"))
