"""`stepkeep pause` and `resume`: of a run, of a queue, of the new runs of a workflow, or of a whole tenant."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Annotated

from stepkeep.cli.arguments import By, arg, opt
from stepkeep.cli.asking import tell
from stepkeep.cli.commands.decide import Reason, decided
from stepkeep.cli.settings import Settings
from stepkeep.kernel.errors import InvalidInput
from stepkeep.operations.causes import queue_words

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.pauses import PauseList

    Work = Callable[[AsyncEngine], Awaitable[PauseList]]

Run = Annotated[str | None, arg("RUN", "The run's id, or enough of its beginning or end.")]
Queue = Annotated[str | None, opt("--queue", "NAME", 'A queue, not a run; the default one is "".', show_default=False)]
Workflow = Annotated[
    str | None, opt("--workflow", "NAME", "The new runs of a workflow, not a run.", show_default=False)
]
All = Annotated[bool, opt("--all", "The whole tenant in place of a run.")]


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
        return _paused(
            settings,
            lambda engine: engine.pauses.pause_queue(queue, reason=reason, by=by),
            queue_words(queue),
            "--queue",
            queue,
        )
    if workflow is not None:
        said = (
            f"runs of {workflow} start paused from now on; other processes notice it within a second",
            f"Pause its live runs: {settings.command('jobs', 'start', 'pause', '--workflow', workflow)}",
            f"Go on: {settings.command('resume', '--workflow', workflow)}",
        )
        return tell(
            settings, lambda engine: engine.pauses.pause_workflow(workflow, reason=reason, by=by), lambda _: said
        )
    return _paused(settings, lambda engine: engine.pauses.pause_tenant(reason=reason, by=by), settings.whose, "--all")


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
        return _resumed(settings, lambda engine: engine.pauses.resume_queue(queue, by=by), queue_words(queue))
    if workflow is not None:
        said = (
            f"runs of {workflow} start as usual; those that are paused stay so",
            f"Resume them: {settings.command('jobs', 'start', 'resume', '--workflow', workflow)}",
        )
        return tell(settings, lambda engine: engine.pauses.resume_workflow(workflow, by=by), lambda _: said)
    return _resumed(settings, lambda engine: engine.pauses.resume_tenant(by=by), settings.whose)


def _check_one(run: str | None, queue: str | None, workflow: str | None, all_: bool) -> None:
    """Refuse a line that names nothing, or two things."""
    if sum(one is not None for one in (run, queue, workflow)) + all_ != 1:
        raise InvalidInput("name one thing: a run, --queue NAME, --workflow NAME, or --all for the whole tenant.")


def _paused(settings: Settings, work: Work, paused: str, *undo: str) -> int:
    said = (
        f"{paused} is paused",
        "workers notice it within a second; what they hold goes on",
        f"Go on: {settings.command('resume', *undo)}",
    )
    return tell(settings, work, lambda _: said)


def _resumed(settings: Settings, work: Work, resumed: str) -> int:
    """What is claimed from again, and the pauses that still keep steps from workers."""

    def words(found: PauseList) -> Iterator[str]:
        yield f"{resumed} is not paused"
        for one in found.pauses:
            if one.scope == "tenant":
                yield f"{settings.whose} is still paused: {settings.command('resume', '--all')}"
            elif one.queue is not None:
                yield f"{queue_words(one.queue)} is still paused: {settings.command('resume', '--queue', one.queue)}"

    return tell(settings, work, words)
