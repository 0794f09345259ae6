"""`stepkeep show RUN`: a run's graph, its timeline and what it waits for. Reads only."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from stepkeep.cli.arguments import As, RunId, moment_of, opt
from stepkeep.cli.asking import ask, find_run, of_run, open_engine, tell
from stepkeep.cli.commands.quarantine import told
from stepkeep.cli.hints import hints
from stepkeep.cli.printer import answer, console, say
from stepkeep.cli.render.outline import outline
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import SUCCEEDED, status_of_run
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.diagnosis import ExplanationView


def show(
    settings: Settings,
    run: RunId,
    as_: As = None,
    step: Annotated[
        str | None, opt("--step", "NAME", "Only this step: its attempts with traceback, inputs and log.")
    ] = None,
    at: Annotated[
        str | None,
        opt(
            "--at",
            "SEQ|TIME",
            "As it stood after this entry of its journal, or at this time: 2026-11-03T10:15Z, or 2h ago.",
        ),
    ] = None,
    follow: Annotated[bool, opt("--follow", "Go on showing what happens until the run has ended.")] = False,
) -> int:
    """Draw a run: its graph, its timeline, its attempts, who decided, what it waits for.

    With --as, the run is told in a dialect's own words and shapes. With --at, it is told from its journal alone.
    """
    if follow and (settings.json or as_ is not None or step is not None or at is not None):
        raise InvalidInput("--follow is for people: it goes with neither --json, --as, --at nor --step.")
    if at is not None:
        if as_ is not None or step is not None:
            raise InvalidInput("--at goes with neither --as nor --step.")
        return show_past(settings, run, at)
    if step is not None:
        return show_step(settings, run, step, as_)
    if follow:
        settings.require_database("show --follow")
        asyncio.run(_follow(settings, run))

    async def look(engine: AsyncEngine, run_id: str) -> tuple[dict[str, Any], ExplanationView | None]:
        if as_ is not None:
            return await engine.show(run_id, as_=as_), None
        view = (await engine.show(run_id)).as_json()
        is_asked = not settings.json and view["run"]["ended_at"] is None
        return view, await engine.explain(run_id) if is_asked else None

    view, why = ask(settings, of_run(run, look))
    if settings.json:
        answer(view)
    elif as_ is not None:
        for line in outline(view):
            say(line)
    else:
        print_report(view, settings)
        if view["run"].get("quarantined"):
            say(told(view["run"]["quarantined"]))
        if why is not None:
            say(f"why: {sentence(why)}")
    return status_of_run(view["run"]["state"]) if follow else SUCCEEDED


def show_past(settings: Settings, run: str, at: str) -> int:
    """A run as it stood, on standard output."""
    from stepkeep.cli.render.past import past_lines

    when = int(at) if at.isascii() and at.isdigit() else moment_of(at, "--at", beside="the number of an entry, ")
    work = of_run(run, lambda engine, found: engine.show(found, at=when))
    return tell(settings, work, lambda view: past_lines(view.as_json()))


def show_step(settings: Settings, run: str, step: str, as_: str | None) -> int:
    """One step on standard output."""
    from stepkeep.cli.render.step import step_lines

    if as_ is not None:
        raise InvalidInput("show: give a step or a dialect, not both.")
    work = of_run(run, lambda engine, found: engine.show(found, step=step))
    return tell(settings, work, lambda view: step_lines(view.as_json()))


async def _follow(settings: Settings, run: str) -> None:
    """Show the run's journal as it grows, until the run has ended."""
    from stepkeep.cli.screens import screen_for
    from stepkeep.cli.working import Follower
    from stepkeep.operations.plans import plan_of

    async with open_engine(settings) as engine:
        run_id = await find_run(engine, run)
        screen = screen_for(json=False)
        with screen:
            follower = Follower(engine, run_id, await plan_of(engine.transactor, engine.tenant, run_id), screen)
            await follower.begin(resumed=False)
            watching = asyncio.create_task(follower.go_on())
            try:
                await engine.wait(run_id)
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
            await follower.look()


def sentence(why: ExplanationView) -> str:
    """Why a run has not ended, in one sentence."""
    more = len(why.causes) - 1
    return why.causes[0].sentence + (f" And {more} more: `stepkeep explain` has them all." if more else "")


def print_report(view: dict[str, Any], settings: Settings, tokens: dict[str, str] | None = None) -> None:
    """The whole picture on standard output."""
    from datetime import UTC, datetime

    from stepkeep.cli.render.report import report

    screen = console()
    screen.print(
        report(view, width=screen.width, now=datetime.now(UTC), hints=hints(view, settings, tokens)), soft_wrap=False
    )
