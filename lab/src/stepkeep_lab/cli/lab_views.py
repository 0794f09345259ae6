"""`stepkeep lab views`: reads views of runs while they go on, on both databases, and reports contradictions."""

from __future__ import annotations

import asyncio
import tempfile
from typing import Annotated

import typer

from stepkeep.cli.arguments import LARGEST
from stepkeep.cli.printer import answer, say
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import FAILED, SUCCEEDED


def views(
    settings: Settings,
    count: Annotated[
        int, typer.Option("--views", min=1, max=LARGEST, help="How many views to read of each store.")
    ] = 10_000,
    store: Annotated[list[str] | None, typer.Option("--store", help="Only sqlite, or only postgres.")] = None,
) -> int:
    """Read views of runs while they go on: none may contradict itself, and evidence may only grow.

    PostgreSQL runs on a server of its own. Exit status 1 when anything was found.
    """
    import msgspec

    from stepkeep_lab.postgres import PostgresServer
    from stepkeep_lab.storecheck.hunt import STORES
    from stepkeep_lab.storecheck.live_views import Watched, watch

    found: dict[str, Watched] = {}
    for name in store or STORES:
        if name == "sqlite":
            with tempfile.TemporaryDirectory() as folder:
                found[name] = asyncio.run(watch(f"sqlite:///{folder}/views.db", count))
        else:
            with PostgresServer() as server, server.fresh_database() as url:
                found[name] = asyncio.run(watch(url, count))
        watched = found[name]
        if not settings.json:
            said = f"{watched.views:,} views of {watched.runs:,} runs, {len(watched.findings)} findings"
            say("\n".join([f"{name}: {said}", *watched.findings[:20]]))
    if settings.json:
        answer({"views": {name: msgspec.to_builtins(one) for name, one in found.items()}})
    return FAILED if any(one.findings for one in found.values()) else SUCCEEDED
