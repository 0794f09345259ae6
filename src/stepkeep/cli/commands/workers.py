"""`stepkeep workers`: which worker processes there are and when they were last heard. Reads only."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from stepkeep.cli.printer import answer, console, say
from stepkeep.cli.session import open_engine
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import SUCCEEDED


def workers(
    settings: Settings,
    all_: Annotated[bool, typer.Option("--all", help="Also those that were shut down.")] = False,
) -> int:
    """List workers."""
    found = asyncio.run(_list(settings, live_only=not all_))
    if settings.json:
        answer({"workers": found})
    elif not found:
        say("no workers")
    else:
        from stepkeep.cli.render.tables import workers_table

        console().print(workers_table(found))
    return SUCCEEDED


async def _list(settings: Settings, *, live_only: bool) -> list[dict[str, Any]]:
    from stepkeep.operations.instants import instant

    async with open_engine(settings) as engine:
        rows = await engine.store.list_workers(engine.tenant, live_only)
    return [
        {
            "id": row.id,
            "state": row.state,
            "incarnation": row.incarnation,
            "capacity": row.capacity,
            "capabilities": list(row.capabilities),
            "started_at": instant(row.started_at),
            "heard_at": instant(row.heard_at),
        }
        for row in rows
    ]
