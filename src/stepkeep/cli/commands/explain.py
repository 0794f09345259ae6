"""`stepkeep explain`: why a run, a step, a queue or a worker does not move, and what moves it. Reads only."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepkeep.cli.printer import answer, say
from stepkeep.cli.session import find_run, open_engine
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import FAILED, SUCCEEDED
from stepkeep.kernel.errors import InvalidInput, NotFound, StoreUnavailable

if TYPE_CHECKING:
    from stepkeep.operations.causes import Explanation


def explain(
    settings: Settings,
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT", help="The id of a run (or a part of it), a queue, or a worker.", show_default=False
        ),
    ],
    step: Annotated[
        str | None, typer.Argument(metavar="STEP", help="Only this step of the run.", show_default=False)
    ] = None,
) -> int:
    """Say why it does not move, and the command that moves it. Exit status 1 when something is wrong."""
    from stepkeep.operations.causes import FAULTS

    explained = asyncio.run(_explain(settings, what, step))
    if settings.json:
        from stepkeep.operations.diagnosis import view

        answer({"explanation": with_commands(view(explained), explained, settings)})
    else:
        for line in lines(explained, settings):
            say(line)
    return FAILED if any(cause.code in FAULTS for cause in explained.causes) else SUCCEEDED


async def _explain(settings: Settings, what: str, step: str | None) -> Explanation:
    from stepkeep.operations import diagnosis
    from stepkeep.operations.causes import unreachable

    try:
        async with open_engine(settings, operation="explain") as engine:
            found = await _resolve(engine, what)
            return await diagnosis.explain(engine.transactor, found, step, tenant=engine.tenant, access=engine.access)
    except StoreUnavailable as problem:
        return unreachable(what, str(problem))


async def _resolve(engine: Any, what: str) -> str:
    """A run by a part of its id; anything else as it was written."""
    try:
        return await find_run(engine, what)
    except (NotFound, InvalidInput):
        workers = [row.id for row in await engine.store.list_workers(engine.tenant, True)]
        found = [worker for worker in workers if worker.startswith(what) or worker.endswith(what)]
        return found[0] if len(found) == 1 else what


def lines(explained: Explanation, settings: Settings) -> list[str]:
    """What the run continues, and one line per cause, with the command below it."""
    from stepkeep.operations.continued import course_lines

    said = [f"{explained.subject}: {explained.state.replace('_', ' ')}"]
    said += [f"  {line}" for line in course_lines(explained.course or {})]
    for cause in explained.causes:
        said.append(f"  {cause.sentence}")
        if cause.command:
            said.append(f"    {settings.command(*cause.command)}")
    return said


def with_commands(view: dict[str, Any], explained: Explanation, settings: Settings) -> dict[str, Any]:
    """The same with the database and the tenant of this command in each command."""
    for told, cause in zip(view["causes"], explained.causes, strict=True):
        told["command"] = settings.command(*cause.command) if cause.command else None
    return view
