"""`stepkeep runs`: which runs there are, newest first. Reads only."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from stepkeep.cli.arguments import As
from stepkeep.cli.commands.quarantine import told
from stepkeep.cli.printer import answer, console, say
from stepkeep.cli.session import find_run, open_engine
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import FAILED, SUCCEEDED
from stepkeep.redaction import database_url


def runs(
    settings: Settings,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only runs in this state; may be repeated."),
    ] = None,
    workflow: Annotated[str | None, typer.Option("--workflow", metavar="NAME", help="Only runs of this one.")] = None,
    business_key: Annotated[
        str | None, typer.Option("--business-key", metavar="KEY", help="Only runs with this business key.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most this many.")] = 20,
    before: Annotated[
        str | None, typer.Option("--before", metavar="RUN", help="Only runs older than this one: the next page.")
    ] = None,
    as_: As = None,
) -> int:
    """List runs, newest first."""
    found = asyncio.run(_list(settings, state or [], workflow, business_key, limit, before, as_))
    unreadable = found.get("unreadable", [])
    if settings.json:
        answer(found)
        return FAILED if unreadable else SUCCEEDED
    if not found["runs"] and unreadable:
        say(f"no readable runs in {database_url(settings.db)}")
    elif not found["runs"]:
        which = "such runs" if state or workflow or business_key or before else "runs"
        say(f"no {which} in {database_url(settings.db)}")
    elif as_ is not None:
        from stepkeep.cli.render.tables import plain_table

        console().print(plain_table(found["runs"]))
    else:
        from stepkeep.cli.render.tables import runs_table

        screen = console()
        screen.print(runs_table(found["runs"], screen.width))
        if len(found["runs"]) == limit:
            say(f"older ones: {settings.command('runs', '--before', found['runs'][-1]['id'])}")
    for run in found["runs"]:
        if run.get("quarantined"):
            say(told(run["quarantined"]))
    for run in unreadable:
        say(run["message"])
    return FAILED if unreadable else SUCCEEDED


async def _list(
    settings: Settings,
    states: list[str],
    workflow: str | None,
    business_key: str | None,
    limit: int,
    before: str | None,
    as_: str | None,
) -> dict[str, Any]:
    from stepkeep.errors import InvalidInput
    from stepkeep.kernel.states import RunState

    if unknown := [state for state in states if state not in list(RunState)]:
        raise InvalidInput(f"{unknown[0]!r} is no state of a run. Choose from {', '.join(RunState)}.")
    async with open_engine(settings) as engine:
        return await engine.runs(
            states=[RunState(state) for state in states],
            workflow=workflow,
            business_key=business_key,
            limit=limit,
            before=None if before is None else await find_run(engine, before),
            as_=as_,
        )
