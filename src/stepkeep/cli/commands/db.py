"""`stepkeep db`: bring a database's schema up to date, and say how it stands."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import typer

from stepkeep.cli.printer import answer, say
from stepkeep.cli.settings import Settings, with_settings
from stepkeep.cli.status import FAILED, SUCCEEDED

if TYPE_CHECKING:
    from stepkeep.store.protocol import SchemaStatus

app = typer.Typer(help="Look after the database.", no_args_is_help=True)


def migrate(settings: Settings) -> int:
    """Bring the database's schema up to date; what is there already is left alone."""
    return _tell(settings, asyncio.run(_ask(settings, migrating=True)))


def status(settings: Settings) -> int:
    """Say which migrations the database has and which it lacks. Exit status 1 when it lacks any."""
    return _tell(settings, asyncio.run(_ask(settings, migrating=False)))


app.command("migrate")(with_settings(migrate))
app.command("status")(with_settings(status))


async def _ask(settings: Settings, *, migrating: bool) -> SchemaStatus:
    from stepkeep.store.connect import connect

    store = connect(settings.db)
    await store.open()
    try:
        return await (store.migrate() if migrating else store.status())
    finally:
        await store.close()


def _tell(settings: Settings, found: SchemaStatus) -> int:
    if settings.json:
        answer(
            {
                "database": {
                    "url": found.url,
                    "size_bytes": found.size_bytes,
                    "applied": [{"version": version, "name": name} for version, name in found.applied],
                    "pending": [{"version": version, "name": name} for version, name in found.pending],
                }
            }
        )
    else:
        say(f"{found.url}, {found.size_bytes:,} bytes")
        for version, name in found.applied:
            say(f"  {version:04d}_{name}  applied")
        for version, name in found.pending:
            say(f"  {version:04d}_{name}  pending: {settings.command('db', 'migrate')}")
    return FAILED if found.pending else SUCCEEDED
