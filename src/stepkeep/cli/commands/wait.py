"""`stepkeep wait`: wait for a run that workers execute; the exit status says how it ended. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from stepkeep.cli.arguments import RunId, finite, opt
from stepkeep.cli.asking import ask, of_run
from stepkeep.cli.printer import answer, say, warn
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import UNFINISHED, status_of_run

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.engine.result import Result

LONGEST_SECONDS = 10 * 365 * 86_400


def wait(
    settings: Settings,
    run: RunId,
    timeout: Annotated[
        float | None,
        opt(
            "--timeout",
            "--seconds",
            "SECONDS",
            "Give up after so long, with exit status 4.",
            min=0,
            max=LONGEST_SECONDS,
            callback=finite,
        ),
    ] = None,
    until_blocked: Annotated[
        bool, opt("--until-blocked", "Return also when only people or messages can move the run.")
    ] = False,
) -> int:
    """Wait until a run has ended. It only watches: workers execute the run."""

    async def watch(engine: AsyncEngine, run_id: str) -> Result:
        found = await engine.wait(run_id, seconds=timeout, until_blocked=until_blocked)
        return await engine.result(found.run_id) if settings.json else found

    found = ask(settings, of_run(run, watch))
    status = status_of_run(found.state)
    if settings.json:
        answer(found.view)
        return status
    say(str(found))
    if status == UNFINISHED:
        warn(f"it has not ended; to see why: {settings.command('explain', found.id)}")
    return status
