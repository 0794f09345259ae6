"""`stepkeep lab views`: reads views of runs while they go on, on both databases, and reports contradictions."""

from __future__ import annotations

import asyncio
import tempfile
import time
from typing import TYPE_CHECKING, Annotated

import typer

from stepkeep.cli.arguments import LARGEST
from stepkeep.cli.printer import FAILED, SUCCEEDED, answer, say
from stepkeep.cli.settings import Settings
from stepkeep_lab.reports import commit, opening, table, write_report

if TYPE_CHECKING:
    from stepkeep_lab.storecheck.live_views import Watched


def views(
    settings: Settings,
    count: Annotated[
        int, typer.Option("--views", min=1, max=LARGEST, help="How many views to read of each store.")
    ] = 10_000,
    store: Annotated[list[str] | None, typer.Option("--store", help="Only sqlite, or only postgres.")] = None,
    report: Annotated[
        str | None, typer.Option("--report", metavar="DIR", help="Write views.json and views.md there.")
    ] = None,
) -> int:
    """Read views of runs while they go on: none may contradict itself, and evidence may only grow.

    PostgreSQL runs on a server of its own. Exit status 1 when anything was found.
    """
    import msgspec

    from stepkeep_lab.postgres import PostgresServer
    from stepkeep_lab.storecheck.hunt import STORES
    from stepkeep_lab.storecheck.live_views import watch

    found: dict[str, Watched] = {}
    begun = time.monotonic()
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
    if report is not None:
        _write(found, report, f"stepkeep lab views --views {count}", time.monotonic() - begun)
    if settings.json:
        answer({"views": {name: msgspec.to_builtins(one) for name, one in found.items()}})
    return FAILED if any(one.findings for one in found.values()) else SUCCEEDED


def _write(found: dict[str, Watched], folder: str, command: str, seconds: float) -> None:
    import msgspec

    version = commit()
    rows = [
        (name, f"{one.views:,}", f"{one.runs:,}", f"{one.unfinished:,}", len(one.findings))
        for name, one in found.items()
    ]
    page = [
        *opening("Views of live runs", version, command, seconds),
        "A view must not contradict itself, and evidence that was shown must not change. A third each are views of",
        "`show`, views of `show --as action` with their evidence, and exported logs.",
        "",
        *table(("store", "views", "runs", "canonical views of unfinished runs", "findings"), rows),
        "",
        *(f"- {name}: {finding}" for name, one in found.items() for finding in one.findings[:20]),
    ]
    content = {
        "commit": version,
        "command": command,
        "seconds": round(seconds, 1),
        "stores": msgspec.to_builtins(found),
    }
    write_report(folder, "views", content, "\n".join(page).rstrip() + "\n")
