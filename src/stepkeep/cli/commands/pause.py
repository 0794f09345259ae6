"""`stepkeep pause` and `resume`: of a run, of a queue, or of a whole tenant."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from stepkeep.cli.arguments import By
from stepkeep.cli.commands.decide import Reason, decided
from stepkeep.cli.commands.users import ask
from stepkeep.cli.printer import answer, say
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import SUCCEEDED
from stepkeep.errors import InvalidInput
from stepkeep.operations.causes import queue_words

Run = Annotated[
    str | None,
    typer.Argument(metavar="RUN", help="The run's id, or enough of its beginning or end.", show_default=False),
]
Queue = Annotated[
    str | None,
    typer.Option("--queue", metavar="NAME", help='A queue, not a run; the default one is "".', show_default=False),
]
All = Annotated[bool, typer.Option("--all", help="The whole tenant in place of a run.")]


def pause(
    settings: Settings, run: Run = None, queue: Queue = None, all_: All = False, reason: Reason = "", by: By = None
) -> int:
    """Claim nothing more of a run, a queue or the whole tenant until it is resumed. What is in flight settles."""
    _check_one(run, queue, all_)
    if run is not None:
        return decided(settings, run, lambda engine, found: engine.pause(found, reason=reason, by=by))
    if queue is not None:
        found = ask(settings, lambda engine: engine.pauses.pause_queue(queue, reason=reason, by=by))
        return _told(settings, found, f"{queue_words(queue)} is paused", "--queue", queue)
    found = ask(settings, lambda engine: engine.pauses.pause_tenant(reason=reason, by=by))
    return _told(settings, found, f"tenant {settings.tenant} is paused", "--all")


def resume(
    settings: Settings, run: Run = None, queue: Queue = None, all_: All = False, reason: Reason = "", by: By = None
) -> int:
    """Go on with a paused run, queue or tenant."""
    _check_one(run, queue, all_)
    if run is not None:
        return decided(settings, run, lambda engine, found: engine.resume(found, reason=reason, by=by))
    if reason:
        raise InvalidInput("--reason is kept with the resumption of a run only.")
    if queue is not None:
        found = ask(settings, lambda engine: engine.pauses.resume_queue(queue, by=by))
        return _told(settings, found, f"{queue_words(queue)} is claimed from again")
    found = ask(settings, lambda engine: engine.pauses.resume_tenant(by=by))
    return _told(settings, found, f"tenant {settings.tenant} is claimed from again")


def _check_one(run: str | None, queue: str | None, all_: bool) -> None:
    """Refuse a line that names nothing, or two things."""
    if (run is not None) + (queue is not None) + all_ != 1:
        raise InvalidInput("name one thing: a run, or --queue NAME, or --all for the whole tenant.")


def _told(settings: Settings, found: dict[str, Any], said: str, *undo: str) -> int:
    if settings.json:
        answer(found)
        return SUCCEEDED
    say(said)
    if undo:
        say("workers notice it within a second; what they hold goes on")
        say(f"Go on: {settings.command('resume', *undo)}")
    return SUCCEEDED
