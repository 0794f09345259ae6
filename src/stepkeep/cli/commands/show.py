"""`stepkeep show`, `explain`, `certify`, `rollback-preview` and `wait`: all about one run. They read only."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import replace

from stepkeep.cli.answering import ask, find_run, of_run, open_engine, print_answer, print_value
from stepkeep.cli.arguments import As, RunId, Text, arg, finite, moment_of, opt
from stepkeep.cli.command import CommandValues, program
from stepkeep.cli.commands.runs import set_aside
from stepkeep.cli.printer import SUCCEEDED, UNFINISHED, answer, console, say, status_of_run, warn
from stepkeep.cli.settings import Settings
from stepkeep.kernel.errors import InvalidInput, NotFound, StoreUnavailable

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.engine.result import Result
    from stepkeep.operations.continuation.rollback import Remaining, RollbackPreview, RunningStep, Undo
    from stepkeep.operations.runs.diagnosis import ExplanationView

LONGEST_SECONDS = 10 * 365 * 86_400


@program.command("show")
def show(
    settings: Settings,
    run: RunId,
    as_: As = None,
    step: Annotated[Text, opt("--step", "NAME", "Only this step: its attempts with traceback, inputs and log.")] = None,
    at: Annotated[
        Text,
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
    if follow and (settings.json, as_, step, at) != (False, None, None, None):
        raise InvalidInput("--follow is for people: it goes with neither --json, --as, --at nor --step.")
    if at is not None:
        if (as_, step) != (None, None):
            raise InvalidInput("--at goes with neither --as nor --step.")
        return show_past(settings, run, at)
    if step is not None:
        return show_step(settings, run, step, as_)
    if as_ is not None:
        return show_in_words(settings, run, as_)
    if follow:
        settings.require_database("show --follow")
        asyncio.run(_follow(settings, run))

    async def look(engine: AsyncEngine, run_id: str) -> tuple[Mapping[str, Any], ExplanationView | None]:
        view = (await engine.show(run_id)).as_json()
        is_asked = not settings.json and view["run"]["ended_at"] is None
        return view, await engine.explain(run_id) if is_asked else None

    view, why = ask(settings, of_run(run, look))
    if settings.json:
        answer(view)
    else:
        print_report(view, settings)
        if view["run"].get("quarantined"):
            say(set_aside(view["run"]["quarantined"]))
        if why is not None:
            say(f"why: {sentence(why)}")
    return status_of_run(view["run"]["state"]) if follow else SUCCEEDED


def show_in_words(settings: Settings, run: str, as_: str) -> int:
    """A run in the words of a dialect, on standard output."""
    from stepkeep.cli.render.explained import outline

    return print_answer(settings, of_run(run, lambda engine, found: engine.show(found, as_=as_)), outline)


def show_past(settings: Settings, run: str, at: str) -> int:
    """A run as it stood, on standard output."""
    from stepkeep.cli.render.lines import past_lines

    when = int(at) if at.isascii() and at.isdigit() else moment_of(at, "--at", beside="the number of an entry, ")
    work = of_run(run, lambda engine, found: engine.show(found, at=when))
    return print_answer(settings, work, lambda view: past_lines(view.as_json()))


def show_step(settings: Settings, run: str, step: str, as_: str | None) -> int:
    """One step on standard output."""
    from stepkeep.cli.render.lines import step_lines

    if as_ is not None:
        raise InvalidInput("show: give a step or a dialect, not both.")
    work = of_run(run, lambda engine, found: engine.show(found, step=step))
    return print_answer(settings, work, lambda view: step_lines(view.as_json()))


async def _follow(settings: Settings, run: str) -> None:
    """Show the run's journal as it grows, until the run has ended."""
    from stepkeep.cli.progress import screen_for
    from stepkeep.cli.working import Follower
    from stepkeep.operations.pipeline.plans import plan_of

    async with open_engine(settings) as engine:
        run_id = await find_run(engine, run)
        plan = await plan_of(engine.transactor, engine.tenant, run_id)
        with screen_for(json=False) as screen:
            async with Follower(engine, run_id, plan, screen).watching(resumed=False):
                await engine.wait(run_id)


def sentence(why: ExplanationView) -> str:
    """Why a run has not ended, in one sentence."""
    more = len(why.causes) - 1
    return why.causes[0].sentence + (f" And {more} more: `stepkeep explain` has them all." if more else "")


def print_report(view: Mapping[str, Any], settings: Settings, tokens: dict[str, str] | None = None) -> None:
    """The whole picture on standard output."""
    from datetime import UTC, datetime

    from stepkeep.cli.render.report import report, what_next

    screen = console()
    screen.print(
        report(view, width=screen.width, now=datetime.now(UTC), hints=what_next(view, settings, tokens)),
        soft_wrap=False,
    )


@program.command("explain")
def explain(
    settings: Settings,
    what: Annotated[str, arg("WHAT", "The id of a run (or a part of it), a queue, or a worker.")],
    step: Annotated[Text, arg("STEP", "Only this step of the run.")] = None,
) -> int:
    """Say why it does not move, and the command that moves it. Exit status 1 when something is wrong."""
    from stepkeep.operations.runs.causes import FAULTS, unreachable
    from stepkeep.operations.runs.diagnosis import view

    async def find(engine: AsyncEngine) -> ExplanationView:
        return await engine.explain(await _resolve(engine, what), step)

    try:
        explained = ask(settings, find)
    except StoreUnavailable as problem:
        if settings.server is not None:
            raise
        explained = view(unreachable(what, str(problem)))
    explained = with_commands(explained, settings)
    faults = [cause for cause in explained.causes if cause.code in FAULTS]
    return print_value(settings, {"explanation": explained}, lines(explained), failed=faults)


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
    from stepkeep.operations.continuation.continued import course_lines

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


@program.command("certify")
def certify(settings: Settings, run: RunId) -> int:
    """Judge a run: its journal, its log in the words of every dialect, and the invariants of its own.

    The page names the journal's head and speaks for that. Exit status 1 when anything was found.
    """
    certificate = ask(settings, of_run(run, lambda engine, found: engine.certify(found)))
    lines = certificate.page().rstrip().split("\n")
    return print_value(settings, certificate.as_json(), lines, failed=not certificate.ok)


@program.operation(
    "rollback-preview",
    "rollback_preview",
    under="rollback",
    fails=lambda found: not found.possible or found.cannot_undo,
)
def rollback_preview(found: RollbackPreview, asked: CommandValues) -> Iterator[str]:
    """Say what `cancel --compensate` would undo now, in which order, and what it cannot. Exit status 1 if not all."""
    if found.refusal is not None:
        yield found.refusal
        return
    if not found.undo:
        yield "nothing would be undone"
    for undo in found.undo:
        yield f"{undo.position}. {'  ' * undo.level}{undo.step} is undone by {undo.undo}{_below(undo)}"
    for left in found.cannot_undo:
        yield f"{left.step}{_below(left)} stays: {left.says}"
    for one in found.running:
        yield f"{one.step}{_below(one)} runs now: {one.says}"
    yield f"the run would be {found.ends.replace('_', ' ')}"
    yield f"Do it: {asked.command('cancel', found.run_id, '--compensate')}"


def _below(one: Undo | Remaining | RunningStep) -> str:
    """Which run a step belongs to, if it is not the one that was asked about."""
    return f" in run {one.run_id}" if one.level else ""


@program.command("wait")
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
