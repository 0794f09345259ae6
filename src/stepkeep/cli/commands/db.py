"""`stepkeep db`: bring a database's schema up to date, maintain it, copy it, and say how it stands."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import parse_qs, unquote, urlsplit

from stepkeep.cli.answering import print_value, require_database
from stepkeep.cli.arguments import arg, opt
from stepkeep.cli.command import Commands
from stepkeep.cli.settings import CommandNeeds, Settings
from stepkeep.edges.safe_text import inert_line
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.store.change import RunKey
    from stepkeep.store.records import Maintenance, SchemaStatus

Answered = tuple["SchemaStatus", "list[RunKey]", list[list[str]], list[str]]
"""The schema, runs that are stuck, names that look alike, and where the record of people is not whole."""

db = Commands("db", "Look after the database.")


@db.command("migrate", CommandNeeds.DATABASE)
def migrate(settings: Settings) -> int:
    """Bring the database's schema up to date; what is there already is left alone."""
    return _print_counts(settings, asyncio.run(_ask(settings, migrating=True)))


@db.command("status", CommandNeeds.DATABASE)
def status(settings: Settings) -> int:
    """Say which migrations the database has, whether any run is stuck, and whether the record of people holds.

    Exit status 1 when something is amiss.
    """
    return _print_counts(settings, asyncio.run(_ask(settings, migrating=False)))


@db.command("maintain", CommandNeeds.DATABASE)
def maintain(settings: Settings) -> int:
    """Make the coming weeks of the journal and drop those that retention has emptied. Exit status 1 when put off.

    Workers do it once an hour where their role may. It waits 200 ms for a lock, then tries again for some seconds.
    """
    done = asyncio.run(_maintain(settings))
    view = {name: getattr(done, name) for name in ("weeks_made", "weeks_dropped", "weeks_denied", "put_off")}

    def words() -> Iterator[str]:
        yield f"weeks of the journal: {done.weeks_made} made, {done.weeks_dropped} dropped"
        for what in done.put_off:
            yield f"  put off: {inert_line(what)}"
        if done.weeks_denied:
            yield f"  {done.weeks_denied} are missing, and this role may not make them: run this as the owner"

    return print_value(settings, {"maintenance": view}, words(), failed=done.put_off or done.weeks_denied)


@db.command("backup", CommandNeeds.DATABASE)
def backup(
    settings: Settings,
    file: Annotated[str, arg("FILE", "The new file. An existing one is never overwritten.")],
) -> int:
    """Copy an SQLite database that may be in use to a file of its own, and check the copy.

    At PostgreSQL use pg_dump. docs/upgrades.md says how to restore.
    """
    from stepkeep.store.connect import connect
    from stepkeep.store.sqlite.backup import backup as copy
    from stepkeep.store.sqlite.store import SqliteStore

    store = connect(settings.db)
    if not isinstance(store, SqliteStore):
        raise InvalidInput("this command copies SQLite files. For PostgreSQL: pg_dump --format=custom.")
    require_database(settings)
    size = copy(store.path, Path(file))
    said = f"{inert_line(file)}: {size:,} bytes, checked"
    return print_value(settings, {"backup": {"file": file, "size_bytes": size}}, said)


@db.command("grants", CommandNeeds.DATABASE)
def grants(
    settings: Settings,
    role: Annotated[str, arg("ROLE", "A role of the PostgreSQL server.")],
    part: Annotated[str, opt("--as", "PART", "What it is for: worker, client or api.")],
) -> int:
    """Print the statements that give a role at PostgreSQL what a worker, a client or the API needs, and nothing more.

    Nothing is run: the owner of the tables runs them, once and again after each migration.
    """
    from stepkeep.store.postgres.grants import Part
    from stepkeep.store.postgres.grants import grants as statements
    from stepkeep.store.postgres.namespace import DEFAULT, read_namespace

    where = urlsplit(settings.db)
    if not where.scheme.startswith("postgres"):
        raise InvalidInput("grants are for PostgreSQL: name its database with --db. An SQLite file has its mode.")
    if part not in list(Part):
        raise InvalidInput(f"--as takes worker, client or api, not {inert_line(part)}.")
    database = unquote(where.path.strip("/"))
    if not database:
        raise InvalidInput("the database URL names no database.")
    namespace = read_namespace(parse_qs(where.query, keep_blank_values=True).get("schema", [DEFAULT])[-1])
    said = statements(role, Part(part), database=database, schema=namespace.name)
    note = "-- CONNECT needs the owner of the database: to another role psql says that no privileges were granted."
    return print_value(settings, {"grants": said}, (note, *said))


async def _maintain(settings: Settings) -> Maintenance:
    from stepkeep.operations.pipeline.maintenance import maintain_with_patience
    from stepkeep.store.connect import connect
    from stepkeep.store.migrations import require_migrated

    store = connect(settings.db)
    await store.open()
    try:
        require_migrated(await store.status(), is_embedded=store.is_embedded)
        return await maintain_with_patience(store)
    finally:
        await store.close()


async def _ask(settings: Settings, *, migrating: bool) -> Answered:
    from stepkeep.evidence.people import differences
    from stepkeep.operations.people.principals import look_alikes
    from stepkeep.store.connect import connect

    store = connect(settings.db)
    if not migrating:
        require_database(settings)
    await store.open()
    try:
        found = await (store.migrate() if migrating else store.status())
        store.confine_to(settings.tenant)
        # Promise 6 as a query: what it lists has nothing that could ever move it.
        if found.pending:
            return found, [], [], []
        record = [] if migrating else await differences(store, settings.tenant)
        return found, await store.stuck_runs(), await look_alikes(store, settings.tenant), record
    finally:
        await store.close()


def _print_counts(settings: Settings, answered: Answered) -> int:
    found, stuck, alike, record = answered
    view = {
        "url": found.url,
        "schema": found.schema,
        "size_bytes": found.size_bytes,
        "applied": [{"version": version, "name": name} for version, name in found.applied],
        "pending": [{"version": version, "name": name} for version, name in found.pending],
        "stuck_runs": [run_id for _, run_id in stuck],
        "look_alikes": alike,
        "record": record,
    }
    return print_value(
        settings, {"database": view}, _words(settings, answered), failed=found.pending or stuck or record
    )


def _words(settings: Settings, answered: Answered) -> Iterator[str]:
    found, stuck, alike, record = answered
    where = "" if found.schema is None else f" in the schema {found.schema},"
    yield f"{found.url},{where} {found.size_bytes:,} bytes"
    for version, name in found.applied:
        yield f"  {version:04d}_{name}  applied"
    for version, name in found.pending:
        yield f"  {version:04d}_{name}  pending: {settings.command('db', 'migrate')}"
    for _, run_id in stuck:
        yield f"  run {run_id} is unfinished but has no cause to move: this is a defect, please report it"
    for names in alike:
        yield f"  {inert_line(' and '.join(names))} look the same and count as one person: disable all but one"
    for said in record:
        yield f"  the record was changed by hand: {inert_line(said)}"
    if not found.pending and not stuck:
        yield "  every unfinished run has a cause to move"
