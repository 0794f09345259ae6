"""`stepkeep quarantine`: set a run aside, release it, and list those that are set aside."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from stepkeep.cli.arguments import By
from stepkeep.cli.printer import answer, say
from stepkeep.cli.session import find_run, open_engine
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import SUCCEEDED
from stepkeep.kernel.errors import InvalidInput


def quarantine(
    settings: Settings,
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="The run to set aside; a part of its id is enough.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why; kept with the quarantine.")
    ] = None,
    by: By = None,
    release: Annotated[
        str | None, typer.Option("--release", metavar="RUN", help="End the quarantine of this run instead.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the runs that are set aside instead.")] = False,
    history: Annotated[bool, typer.Option("--history", help="With --list: also those that were released.")] = False,
) -> int:
    """Set a run aside: nothing claims, moves, sweeps or deletes it until it is released.

    It works on a run whose rows cannot be read, too. The decision, its actor and its reason are kept permanently.
    """
    if sum((run is not None, release is not None, listed)) != 1:
        raise InvalidInput("Say what to do: name a RUN, or give --release RUN, or --list.")
    if history and not listed:
        raise InvalidInput("--history goes with --list.")
    if listed:
        return _list(settings, history)
    if reason is None:
        raise InvalidInput("Say why: --reason TEXT.")
    said = asyncio.run(_change(settings, run, release, reason, by))
    if settings.json:
        answer({"quarantine": said})
    elif release is None:
        say(f"run {said['run']} is quarantined by {said['by']}: {said['reason']}")
    else:
        say(f"run {said['run']} is released by {said['released_by']}: {said['release_reason']}")
    return SUCCEEDED


def told(one: Mapping[str, Any]) -> str:
    """One line about a quarantine."""
    line = f"run {one['run']} quarantined by {one['by']} at {one['at']}: {one['reason']}"
    if one["released_at"] is None:
        return line
    return f"{line}; released by {one['released_by']} at {one['released_at']}: {one['release_reason']}"


def _list(settings: Settings, history: bool) -> int:
    async def read() -> dict[str, Any]:
        async with open_engine(settings) as engine:
            return await engine.quarantined(history=history)

    found = asyncio.run(read())
    if settings.json:
        answer(found)
        return SUCCEEDED
    for one in found["quarantined"]:
        say(told(one))
    if not found["quarantined"]:
        say("no run is quarantined" if not history else "no run was ever quarantined")
    return SUCCEEDED


async def _change(
    settings: Settings, run: str | None, release: str | None, reason: str, by: str | None
) -> dict[str, Any]:
    async with open_engine(settings) as engine:
        if release is not None:
            return await engine.release(await find_run(engine, release), reason=reason, by=by)
        return await engine.quarantine(await find_run(engine, run or ""), reason=reason, by=by)
