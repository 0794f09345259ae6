"""The schema of one database: which migrations it has, bringing it up to date, and tending the weeks of the journal.

A database that is up to date is only looked at, so that a program needs no right to change the schema. Migrating takes
an advisory lock for its one transaction, so that of many processes that start at once one does it and the others find
it done. It waits only briefly for tables in use and tries again, because a migration that queues for a lock makes
everybody else queue behind it.
"""

from __future__ import annotations

import asyncio
import logging

import asyncpg

from stepkeep.errors import PermissionDenied, StoreUnavailable
from stepkeep.store.migrations import Applied, as_pairs, load_migrations, outstanding
from stepkeep.store.postgres.connections import Connection, commit, fetch
from stepkeep.store.postgres.failures import translated
from stepkeep.store.postgres.load import SQL
from stepkeep.store.protocol import SchemaStatus

PACKAGE = "stepkeep.store.postgres"
LOCK = 7_310_579_626_414_137
LOCK_WAIT = "2s"
TRIES = 30
PAUSE_SECONDS = 0.2

WEEKS_AHEAD = 2
"""How many weeks of the journal are there before their time; what fits none goes into the default partition."""

BRIEFLY = "set local lock_timeout = '200ms'; set local statement_timeout = '5s'"

log = logging.getLogger(__name__)


async def migrate(connection: Connection, url: str) -> None:
    """Apply what is missing; refuse a database that a newer or another Stepkeep has made."""
    found = await status(connection, url)
    if not found.pending:
        return
    for _ in range(TRIES):
        with translated():
            try:
                await _migrate(connection, url)
            except asyncpg.LockNotAvailableError:
                await connection.execute("rollback")
            except asyncpg.InsufficientPrivilegeError as denied:
                wanted = ", ".join(f"{version:04d}_{name}" for version, name in found.pending)
                raise PermissionDenied(
                    f"{url} lacks the migrations {wanted}, and this role may not apply them ({denied}). Run "
                    "`stepkeep db migrate` as the owner of the tables"
                ) from denied
            else:
                return
        await asyncio.sleep(PAUSE_SECONDS)
    raise StoreUnavailable(
        f"{url} could not be migrated: its tables, or another migration, were in use all the time. "
        "Try again when fewer transactions are open."
    )


async def _migrate(connection: Connection, url: str) -> None:
    await connection.execute(f"begin; set local lock_timeout = '{LOCK_WAIT}'; set local synchronous_commit = on")
    await connection.execute("select pg_advisory_xact_lock($1)", LOCK)
    await connection.execute(SQL.create_migrations)
    applied = [Applied(*row) for row in await connection.fetch(SQL.list_migrations)]
    for migration in outstanding(load_migrations(PACKAGE), applied, url):
        await connection.execute(migration.script)
        await connection.execute(SQL.insert_migration, migration.version, migration.name, migration.checksum)
    await commit(connection)


async def tend(connection: Connection) -> None:
    """Add weeks of the journal ahead of time and drop those that retention has emptied; or leave it to the next one.

    Never worth waiting for: whoever queues for a lock here makes others queue behind, and rows always have a place.
    """
    [(missing, may_change)] = await fetch(connection, SQL.read_weeks, WEEKS_AHEAD)
    if not may_change:
        if missing:
            log.warning(
                "%d weeks of the journal are missing, and this role may not make them; their entries go into the "
                "default partition. Run `stepkeep db migrate` as the owner of the tables every %d weeks.",
                missing,
                WEEKS_AHEAD,
            )
        return
    tended = {"extend_journal": (WEEKS_AHEAD,)} if missing else {}
    for name, arguments in {**tended, "drop_empty_weeks": ()}.items():
        with translated():
            try:
                await connection.execute(f"begin; {BRIEFLY}")
                if await connection.fetchval("select pg_try_advisory_xact_lock($1)", LOCK):
                    await connection.execute(getattr(SQL, name), *arguments)
                await commit(connection)
            except (
                asyncpg.LockNotAvailableError,
                asyncpg.QueryCanceledError,
                asyncpg.InsufficientPrivilegeError,
            ) as problem:
                await connection.execute("rollback")
                log.info("%s is put off: %s", name.replace("_", " "), problem)


async def status(connection: Connection, url: str) -> SchemaStatus:
    """What the database has and what it lacks; refuses like `migrate`."""
    [(is_there, size, named_schema)] = await fetch(connection, SQL.read_status)
    if named_schema is None:
        raise PermissionDenied(f"{url} has no schema that this role may use: USAGE on the schema is missing")
    applied = [Applied(*row) for row in await fetch(connection, SQL.list_migrations)] if is_there else []
    return SchemaStatus(
        url=url,
        applied=as_pairs(applied),
        pending=as_pairs(outstanding(load_migrations(PACKAGE), applied, url)),
        size_bytes=size,
    )
