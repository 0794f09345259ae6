"""`stepkeep workers`: which worker processes there are, what they serve and how much they hold. Reads only."""

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
    async with open_engine(settings) as engine:
        found: list[dict[str, Any]] = (await engine.workers(live_only=live_only))["workers"]
    return found
