"""Provides fresh databases of one kind, with a clock that stands still unless it is set.

SQLite files are new each time. On PostgreSQL one database is created per hunt, because a bug may be in a migration, and
emptied between seeds. The model store has the same clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol

from stepkeep.kernel.definition import SECOND
from stepkeep.store.protocol import Store
from stepkeep.store.sqlite.clock import Clock
from stepkeep.store.sqlite.store import SqliteStore
from stepkeep_lab.postgres import PostgresServer
from stepkeep_lab.simulation.database import Database
from stepkeep_lab.simulation.store import ModelStore

BASE = 1_800_000_000 * SECOND
"""What every clock says, apart from the offset of each store and from what a hunter adds."""

TABLES = """
select string_agg(format('%I.%I', n.nspname, c.relname), ', ')
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'stepkeep' and c.relkind in ('r', 'p') and not c.relispartition and c.relname <> 'migrations'
"""
"""Every table of the schema but that of its migrations: a new one is emptied without a word about it here."""

REAL_CLOCK = "real_stepkeep_now"
CLOCK = f"""
create sequence lab_clock;
alter function stepkeep.stepkeep_now() rename to {REAL_CLOCK};
create function stepkeep.stepkeep_now() returns bigint language sql volatile
    return pg_sequence_last_value('lab_clock'::regclass)
"""
"""A sequence is not transactional: every read gives the current time, also after a lock wait."""

SET_CLOCK = "select setval('lab_clock', $1)"
QUICK_DEADLOCKS = "alter database {name} set deadlock_timeout = '50ms'"


class Databases(Protocol):
    """Gives out empty databases of one kind, one after the other."""

    def fresh(self) -> AbstractAsyncContextManager[Store]: ...


class StillClock(Clock):
    """Time that passes only by `offset`."""

    def now(self) -> int:
        return BASE + self.offset


class StillSqliteStore(SqliteStore):
    """The embedded store with a clock that stands still."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._clock = StillClock()


def model_store() -> ModelStore:
    """The oracle, with the same clock."""
    return ModelStore(Database(lambda: BASE))


class SqliteDatabases:
    """Files in a folder of the caller's."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._numbers = folder, count()

    @asynccontextmanager
    async def fresh(self) -> AsyncIterator[Store]:
        path = self._folder / f"{next(self._numbers)}.db"
        async with opened(StillSqliteStore(path)) as store:
            await store.migrate()
            yield store
        for file in self._folder.glob(f"{path.name}*"):
            file.unlink()


class PostgresDatabases:
    """One database of a running server; `dsn` leads to it."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    @asynccontextmanager
    async def fresh(self) -> AsyncIterator[Store]:
        from stepkeep.store.postgres.store import PostgresStore

        await self.empty()
        async with opened(PostgresStore(self.dsn)) as store:
            yield store

    async def prepare(self) -> None:
        """Make the schema, and take its clock in hand."""
        import asyncpg

        from stepkeep.store.postgres.store import PostgresStore

        async with opened(PostgresStore(self.dsn)) as store:
            await store.migrate()
        server = await asyncpg.connect(self.dsn)
        try:
            await server.execute(CLOCK)
            name = await server.fetchval("select current_database()")
            await server.execute(QUICK_DEADLOCKS.format(name=name))
        finally:
            await server.close()

    async def empty(self) -> None:
        """Nothing in it, and the clock as it was at first."""
        import asyncpg

        server = await asyncpg.connect(self.dsn)
        try:
            await server.execute(f"truncate {await server.fetchval(TABLES)} restart identity")
            await server.execute(SET_CLOCK, BASE)
        finally:
            await server.close()


@contextmanager
def postgres_databases(server: PostgresServer) -> Iterator[PostgresDatabases]:
    """A database of its own on this server, migrated now."""
    with server.fresh_database(empty=True) as dsn:
        databases = PostgresDatabases(dsn)
        asyncio.run(databases.prepare())
        yield databases


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[Store]:
    await store.open()
    try:
        yield store
    finally:
        await store.close()
