"""`stepkeep show RUN`: a run's graph, its timeline and what it waits for. Reads only."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepkeep.cli.arguments import As, RunId, moment_of
from stepkeep.cli.commands.quarantine import told
from stepkeep.cli.hints import hints
from stepkeep.cli.printer import answer, console, say
from stepkeep.cli.render.outline import outline
from stepkeep.cli.session import find_run, open_engine
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import SUCCEEDED, status_of_run
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.operations.causes import Explanation


def show(
    settings: Settings,
    run: RunId,
    as_: As = None,
    step: Annotated[
        str | None,
        typer.Option("--step", metavar="NAME", help="Only this step: its attempts with traceback, inputs and log."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="SEQ|TIME",
            help="As it stood after this entry of its journal, or at this time: 2026-11-03T10:15Z, or 2h ago.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on showing what happens until the run has ended.")
    ] = False,
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
        asyncio.run(_follow(settings, run))
    view, why = asyncio.run(_view(settings, run, as_))
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
    when = int(at) if at.isascii() and at.isdigit() else moment_of(at, "--at", beside="the number of an entry, ")

    async def read() -> dict[str, Any]:
        async with open_engine(settings) as engine:
            return await engine.show(await find_run(engine, run), at=when)

    view = asyncio.run(read())
    if settings.json:
        answer(view)
    else:
        from stepkeep.cli.render.past import past_lines

        for line in past_lines(view):
            say(line)
    return SUCCEEDED


def show_step(settings: Settings, run: str, step: str, as_: str | None) -> int:
    """One step on standard output."""

    async def read() -> dict[str, Any]:
        async with open_engine(settings) as engine:
            return await engine.show(await find_run(engine, run), step=step, as_=as_)

    view = asyncio.run(read())
    if settings.json:
        answer(view)
    else:
        from stepkeep.cli.render.step import step_lines

        for line in step_lines(view):
            say(line)
    return SUCCEEDED


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


async def _view(settings: Settings, run: str, as_: str | None) -> tuple[dict[str, Any], Explanation | None]:
    from stepkeep.operations import diagnosis

    async with open_engine(settings) as engine:
        run_id = await find_run(engine, run)
        view = await engine.show(run_id, as_=as_)
        if settings.json or as_ is not None or view["run"]["ended_at"] is not None:
            return view, None
        return view, await diagnosis.explain(
            engine.transactor, run_id, None, tenant=engine.tenant, access=engine.access
        )


def sentence(why: Explanation) -> str:
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
