"""`stepkeep wait`: wait for a run that workers execute; the exit status says how it ended. Reads only."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from stepkeep.cli.arguments import RunId, finite
from stepkeep.cli.printer import answer, say, warn
from stepkeep.cli.session import find_run, open_engine
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import UNFINISHED, status_of_run

if TYPE_CHECKING:
    from stepkeep.engine.result import Result

LONGEST_SECONDS = 10 * 365 * 86_400


def wait(
    settings: Settings,
    run: RunId,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            "--seconds",
            min=0,
            max=LONGEST_SECONDS,
            callback=finite,
            metavar="SECONDS",
            help="Give up after so long, with exit status 4.",
        ),
    ] = None,
    until_blocked: Annotated[
        bool, typer.Option("--until-blocked", help="Return also when only people or messages can move the run.")
    ] = False,
) -> int:
    """Wait until a run has ended. It only watches: workers execute the run."""
    found = asyncio.run(_wait(settings, run, timeout, until_blocked))
    status = status_of_run(found.state)
    if settings.json:
        answer(found.view)
        return status
    say(str(found))
    if status == UNFINISHED:
        warn(f"it has not ended; to see why: {settings.command('explain', found.id)}")
    return status


async def _wait(settings: Settings, run: str, seconds: float | None, until_blocked: bool) -> Result:
    async with open_engine(settings) as engine:
        found = await engine.wait(await find_run(engine, run), seconds=seconds, until_blocked=until_blocked)
        return await engine.result(found.run_id) if settings.json else found
