"""`stepkeep pause` and `resume`: of a run, of a queue, of the new runs of a workflow, or of a whole tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stepkeep.cli.arguments import By
from stepkeep.cli.commands.decide import Reason, decided
from stepkeep.cli.commands.users import ask
from stepkeep.cli.printer import answer, say
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import SUCCEEDED
from stepkeep.kernel.errors import InvalidInput
from stepkeep.operations.causes import queue_words

if TYPE_CHECKING:
    from stepkeep.operations.pauses import PauseList

Run = Annotated[
    str | None,
    typer.Argument(metavar="RUN", help="The run's id, or enough of its beginning or end.", show_default=False),
]
Queue = Annotated[
    str | None,
    typer.Option("--queue", metavar="NAME", help='A queue, not a run; the default one is "".', show_default=False),
]
Workflow = Annotated[
    str | None,
    typer.Option("--workflow", metavar="NAME", help="The new runs of a workflow, not a run.", show_default=False),
]
All = Annotated[bool, typer.Option("--all", help="The whole tenant in place of a run.")]


def pause(
    settings: Settings,
    run: Run = None,
    queue: Queue = None,
    workflow: Workflow = None,
    all_: All = False,
    reason: Reason = "",
    by: By = None,
) -> int:
    """Claim nothing more of a run, a queue, new runs of a workflow or the whole tenant. What is in flight settles."""
    _check_one(run, queue, workflow, all_)
    if run is not None:
        return decided(settings, run, lambda engine, found: engine.pause(found, reason=reason, by=by))
    if queue is not None:
        found = ask(settings, lambda engine: engine.pauses.pause_queue(queue, reason=reason, by=by))
        return _told(settings, found, f"{queue_words(queue)} is paused", "--queue", queue)
    if workflow is not None:
        found = ask(settings, lambda engine: engine.pauses.pause_workflow(workflow, reason=reason, by=by))
        return _told_workflow(settings, found, workflow, is_paused=True)
    found = ask(settings, lambda engine: engine.pauses.pause_tenant(reason=reason, by=by))
    return _told(settings, found, f"tenant {settings.tenant} is paused", "--all")


def resume(
    settings: Settings,
    run: Run = None,
    queue: Queue = None,
    workflow: Workflow = None,
    all_: All = False,
    reason: Reason = "",
    by: By = None,
) -> int:
    """Go on with a paused run, queue or tenant, or let new runs of a workflow start as usual."""
    _check_one(run, queue, workflow, all_)
    if run is not None:
        return decided(settings, run, lambda engine, found: engine.resume(found, reason=reason, by=by))
    if reason:
        raise InvalidInput("--reason is kept with the resumption of a run only.")
    if queue is not None:
        found = ask(settings, lambda engine: engine.pauses.resume_queue(queue, by=by))
        return _told_claims(settings, found, queue_words(queue))
    if workflow is not None:
        found = ask(settings, lambda engine: engine.pauses.resume_workflow(workflow, by=by))
        return _told_workflow(settings, found, workflow, is_paused=False)
    found = ask(settings, lambda engine: engine.pauses.resume_tenant(by=by))
    return _told_claims(settings, found, f"tenant {settings.tenant}")


def _check_one(run: str | None, queue: str | None, workflow: str | None, all_: bool) -> None:
    """Refuse a line that names nothing, or two things."""
    if sum(one is not None for one in (run, queue, workflow)) + all_ != 1:
        raise InvalidInput("name one thing: a run, --queue NAME, --workflow NAME, or --all for the whole tenant.")


def _told(settings: Settings, found: PauseList, said: str, *undo: str) -> int:
    if settings.json:
        answer(found)
        return SUCCEEDED
    say(said)
    if undo:
        say("workers notice it within a second; what they hold goes on")
        say(f"Go on: {settings.command('resume', *undo)}")
    return SUCCEEDED


def _told_claims(settings: Settings, found: PauseList, resumed: str) -> int:
    """What is claimed from again, and the pauses that still keep steps from workers."""
    status = _told(settings, found, f"{resumed} is not paused")
    if not settings.json:
        for one in found.pauses:
            if one.scope == "tenant":
                say(f"tenant {settings.tenant} is still paused: {settings.command('resume', '--all')}")
            elif one.queue is not None:
                again = settings.command("resume", "--queue", one.queue)
                say(f"{queue_words(one.queue)} is still paused: {again}")
    return status


def _told_workflow(settings: Settings, found: PauseList, workflow: str, *, is_paused: bool) -> int:
    if settings.json:
        answer(found)
        return SUCCEEDED
    if is_paused:
        say(f"runs of {workflow} start paused from now on; other processes notice it within a second")
        say(f"Pause its live runs: {settings.command('jobs', 'start', 'pause', '--workflow', workflow)}")
        say(f"Go on: {settings.command('resume', '--workflow', workflow)}")
        return SUCCEEDED
    say(f"runs of {workflow} start as usual; those that are paused stay so")
    say(f"Resume them: {settings.command('jobs', 'start', 'resume', '--workflow', workflow)}")
    return SUCCEEDED
