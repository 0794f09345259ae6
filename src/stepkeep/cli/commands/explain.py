"""`stepkeep explain`: why a run, a step, a queue or a worker does not move, and what moves it. Reads only."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

from msgspec.structs import replace

from stepkeep.cli.arguments import arg
from stepkeep.cli.asking import ask, find_run
from stepkeep.cli.printer import answer, say
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import FAILED, SUCCEEDED
from stepkeep.kernel.errors import InvalidInput, NotFound, StoreUnavailable

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.diagnosis import ExplanationView


def explain(
    settings: Settings,
    what: Annotated[str, arg("WHAT", "The id of a run (or a part of it), a queue, or a worker.")],
    step: Annotated[str | None, arg("STEP", "Only this step of the run.")] = None,
) -> int:
    """Say why it does not move, and the command that moves it. Exit status 1 when something is wrong."""
    from stepkeep.operations.causes import FAULTS, unreachable
    from stepkeep.operations.diagnosis import view

    async def find(engine: AsyncEngine) -> ExplanationView:
        return await engine.explain(await _resolve(engine, what), step)

    try:
        explained = ask(settings, find)
    except StoreUnavailable as problem:
        if settings.server is not None:
            raise
        explained = view(unreachable(what, str(problem)))
    explained = with_commands(explained, settings)
    if settings.json:
        answer({"explanation": explained})
    else:
        for line in lines(explained):
            say(line)
    return FAILED if any(cause.code in FAULTS for cause in explained.causes) else SUCCEEDED


async def _resolve(engine: AsyncEngine, what: str) -> str:
    """A run by a part of its id; anything else as it was written."""
    try:
        return await find_run(engine, what)
    except (NotFound, InvalidInput):
        workers = [one.id for one in (await engine.workers(live_only=True)).workers]
        found = [worker for worker in workers if worker.startswith(what) or worker.endswith(what)]
        return found[0] if len(found) == 1 else what


def lines(explained: ExplanationView) -> list[str]:
    """What the run continues, and one line per cause, with the command below it."""
    from stepkeep.operations.continued import course_lines

    said = [f"{explained.subject}: {explained.state.replace('_', ' ')}"]
    said += [f"  {line}" for line in course_lines(explained.as_json())]
    for cause in explained.causes:
        said.append(f"  {cause.sentence}")
        if cause.command:
            said.append(f"    {cause.command}")
    return said


def with_commands(explained: ExplanationView, settings: Settings) -> ExplanationView:
    """The same with the place and the tenant of this command in each command."""
    causes = [
        one if one.command is None else replace(one, command=settings.command(*shlex.split(one.command)[1:]))
        for one in explained.causes
    ]
    return replace(explained, causes=causes)
