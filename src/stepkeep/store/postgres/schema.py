"""The tables of one installation: which migrations it has, applying missing ones, and the weekly partitions of the
journal.

An up-to-date database is only read, so that a program needs no right to change the schema. A migration takes an
advisory lock for its one transaction: of many processes that start at once, one migrates and the others find it done.
It waits only briefly for tables in use and tries again, because every later transaction would queue behind it.
"""

from __future__ import annotations

import asyncio

import asyncpg

from stepkeep.kernel.errors import PermissionDenied, SchemaMismatch, StoreUnavailable
from stepkeep.store.migrations import Applied, as_pairs, migrations_for, outstanding
from stepkeep.store.postgres.connections import Connection, commit, execute, fetch
from stepkeep.store.postgres.failures import translated
from stepkeep.store.postgres.load import SQL
from stepkeep.store.postgres.namespace import OLD, Namespace
from stepkeep.store.records import Maintenance, SchemaStatus

PACKAGE = "stepkeep.store.postgres"
LOCK_WAIT = "2s"
TRIES = 30
PAUSE_SECONDS = 0.2

WEEKS_AHEAD = 2
"""How many weeks of the journal are created in advance; entries without a week go into the default partition."""

BRIEFLY = "set local lock_timeout = '200ms'; set local statement_timeout = '5s'"


async def locate(connection: Connection, default: Namespace, url: str) -> Namespace:
    """The schema to use where the URL names none and the default one holds no tables."""
    found = [name for (name,) in await fetch(connection, SQL.find_installations)]
    if OLD in found:
        return Namespace(OLD)
    if found and default.name not in found:
        raise SchemaMismatch(
            f"{url} has Stepkeep's tables in the schema {', '.join(found)}, and the URL names no schema. Add "
            f"schema={found[0]} to its parameters; or schema={default.name}, for tables of its own"
        )
    return default


async def migrate(connection: Connection, namespace: Namespace, found: SchemaStatus) -> None:
    """Apply missing migrations; refuse a database that a newer or different Stepkeep has created."""
    url = found.url
    for _ in range(TRIES):
        with translated():
            try:
                await _migrate(connection, namespace, url)
            except asyncpg.LockNotAvailableError:
                await connection.execute("rollback")
            except asyncpg.InsufficientPrivilegeError as denied:
                wanted = ", ".join(f"{version:04d}_{name}" for version, name in found.pending)
                raise PermissionDenied(
                    f"{url} lacks the migrations {wanted}, and this role may not apply them ({denied}). Run "
                    f"`stepkeep db migrate` as the owner of the tables, which owns the schema {namespace.name} or may "
                    "create it in this database"
                ) from denied
            else:
                return
        await asyncio.sleep(PAUSE_SECONDS)
    raise StoreUnavailable(
        f"{url} could not be migrated: its tables, or another migration, were in use all the time. "
        "Try again when fewer transactions are open."
    )


async def _migrate(connection: Connection, namespace: Namespace, url: str) -> None:
    wait = f"set local lock_timeout = '{LOCK_WAIT}'; set local synchronous_commit = on"
    await connection.execute(f"{_begin(namespace)}; {wait}")
    await connection.execute("select pg_advisory_xact_lock($1)", namespace.lock)
    if await connection.fetchval("select to_regnamespace($1)", namespace.name) is None:
        await connection.execute(f'create schema "{namespace.name}"')
    await connection.execute(SQL.create_migrations)
    applied = [Applied(*row) for row in await connection.fetch(SQL.list_migrations)]
    for migration in outstanding(migrations_for(PACKAGE, applied), applied, url):
        await connection.execute(migration.script)
        await connection.execute(SQL.insert_migration, migration.version, migration.name, migration.checksum)
    await commit(connection)


def _begin(namespace: Namespace) -> str:
    """Opens a transaction that finds the tables behind a pooler, too."""
    return f"begin; select set_config('search_path', '{namespace.search_path}', true)"


async def maintain(connection: Connection, namespace: Namespace) -> Maintenance:
    """Create weeks of the journal in advance and drop those that retention has emptied.

    A lock that is not free within 200 ms is left to the next call, because every later transaction would queue behind
    it. Entries without a week go into the default partition.
    """
    await execute(connection, _begin(namespace))
    [(missing, may_change)] = await fetch(connection, SQL.read_weeks, WEEKS_AHEAD)
    await commit(connection)
    if not may_change:
        return Maintenance(weeks_denied=missing)
    made, not_made = await _briefly(connection, namespace, SQL.extend_journal, WEEKS_AHEAD) if missing else (0, "")
    dropped, not_dropped = await _briefly(connection, namespace, SQL.drop_empty_weeks)
    put_off = {"making weeks of the journal": not_made, "dropping empty weeks of the journal": not_dropped}
    return Maintenance(
        weeks_made=made,
        weeks_dropped=dropped,
        put_off=tuple(f"{what}: {why}" for what, why in put_off.items() if why),
    )


async def _briefly(connection: Connection, namespace: Namespace, statement: str, *arguments: int) -> tuple[int, str]:
    """Run a statement that changes the schema, with timeouts. Returns its count, and the reason if it was put off."""
    with translated():
        try:
            await connection.execute(f"{_begin(namespace)}; {BRIEFLY}")
            runs_alone = await connection.fetchval("select pg_try_advisory_xact_lock($1)", namespace.lock)
            count = await connection.fetchval(statement, *arguments) if runs_alone else 0
            await commit(connection)
        except (
            asyncpg.LockNotAvailableError,
            asyncpg.QueryCanceledError,
            asyncpg.InsufficientPrivilegeError,
        ) as problem:
            await connection.execute("rollback")
            return 0, str(problem)
    return count, "" if runs_alone else "another process migrates or maintains this database"


async def status(connection: Connection, namespace: Namespace, url: str) -> SchemaStatus:
    """The applied and the missing migrations; refuses like `migrate`."""
    [(is_there, size, may_use)] = await fetch(connection, SQL.read_status, namespace.name)
    if may_use is False:
        raise PermissionDenied(f"USAGE on the schema {namespace.name} is missing")
    applied = [Applied(*row) for row in await fetch(connection, SQL.list_migrations)] if is_there else []
    return SchemaStatus(
        url=url,
        schema=namespace.name,
        applied=as_pairs(applied),
        pending=as_pairs(outstanding(migrations_for(PACKAGE, applied), applied, url)),
        size_bytes=size,
    )
