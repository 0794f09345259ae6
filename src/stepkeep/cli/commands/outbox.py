"""`stepkeep outbox`: what was not delivered yet, what is dead, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepkeep.cli.arguments import By, arg, opt
from stepkeep.cli.asking import find_run, of_run, table, tell
from stepkeep.cli.settings import Settings, with_settings

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.outbox import (
        DeliveryDetails,
        DeliveryList,
        DeliveryView,
        OutboxStatus,
        Redriven,
        SinkActions,
    )

app = typer.Typer(help="Events on their way to sinks.", no_args_is_help=True)

Run = Annotated[str, arg("RUN", "The run, or the beginning of its id.")]
SinkOption = Annotated[str | None, opt("--sink", "NAME", "This sink alone.")]
Reason = Annotated[str, opt("--reason", "TEXT", "Why; it stays on record.")]


def listed(
    settings: Settings,
    state: Annotated[str | None, opt("--state", "STATE", "ready, sending or dead.")] = None,
    sink: SinkOption = None,
    run: Annotated[str | None, opt("--run", "RUN", "This run alone, sent or not.")] = None,
    after: Annotated[str | None, opt("--after", "SINK/RUN", "Go on after this one: `next` of the page before.")] = None,
    limit: Annotated[int, opt("--limit", "How many at most.", min=1, max=1000)] = 100,
) -> int:
    """List runs with events that are not delivered, by sink."""

    async def go(engine: AsyncEngine) -> DeliveryList:
        run_id = None if run is None else await find_run(engine, run)
        return await engine.outbox.list(state=state, sink=sink, run_id=run_id, after=after, limit=limit)  # type: ignore[arg-type]

    def words(found: DeliveryList) -> str | None:
        table([_row(one) for one in found.deliveries], "nothing waits to be delivered")
        more = found.next and settings.command("outbox", "list", "--after", found.next)
        return f"more with: {more}" if more else None

    return tell(settings, go, words)


def _row(one: DeliveryView) -> dict[str, Any]:
    shown = {name: one[name] for name in ("sink", "run", "state", "attempts")}
    return {**shown, "due": one.ready_at or one.dead_at or "", "error": one.error or ""}


def show(settings: Settings, run: Run, sink: Annotated[str, arg("SINK", "The sink.")]) -> int:
    """Show what a run has for a sink: events that are not delivered, and what people did."""

    def words(found: DeliveryDetails) -> Iterator[str]:
        one = found.delivery
        said = f": {one.error}" if one.error else ""
        yield f"run {one.run} to {one.sink}: {one.state}, {one.attempts} failed attempts{said}"
        for event in found.events:
            yield f"  {event.id}  {event.type}  {event.state}"
        for action in found.actions:
            yield f"  {action.action} by {action.actor} at {action.at}: {action.reason}"
        if one.state == "dead":
            again = settings.command("outbox", "redrive", "--run", one.run, "--sink", one.sink)
            yield f"send it again: {again} --reason …"

    return tell(settings, of_run(run, lambda engine, run_id: engine.outbox.show(run_id, sink)), words)


def redrive(
    settings: Settings,
    run: Annotated[str | None, opt("--run", "RUN", "Of this run.")] = None,
    sink: SinkOption = None,
    reason: Reason = "",
    by: By = None,
) -> int:
    """Send dead events again: of a run, of a sink, or of both. They keep their order."""

    async def go(engine: AsyncEngine) -> Redriven:
        run_id = None if run is None else await find_run(engine, run)
        return await engine.outbox.redrive(run_id=run_id, sink=sink, reason=reason, by=by)

    def words(found: Redriven) -> Iterator[str]:
        for one in found.redriven:
            yield f"run {one.run} is sent to {one.sink} again"
        yield f"see what becomes of it: {settings.command('outbox', 'status')}"

    return tell(settings, go, words)


def drop(
    settings: Settings,
    run: Run,
    sink: Annotated[str, arg("SINK", "The sink.")],
    event: Annotated[str, arg("EVENT", "The id of the dead event, as `outbox show` has it.")],
    reason: Reason = "",
    by: By = None,
) -> int:
    """Give up a dead event for good; the events after it are sent."""
    return tell(
        settings,
        of_run(run, lambda engine, run_id: engine.outbox.drop(run_id, sink, event, reason=reason, by=by)),
        lambda found: f"event {found.dropped} is not sent to {found.sink} any more; the events after it are",
    )


def status(settings: Settings) -> int:
    """Show how far each sink is behind. Exit status 1 if an event is dead."""

    def words(found: OutboxStatus) -> str | None:
        table(found.sinks, "there is no sink: add one with stepkeep sinks add")
        if not _has_dead(found):
            return None
        return f"dead events hold up their runs: {settings.command('outbox', 'list', '--state', 'dead')}"

    return tell(settings, lambda engine: engine.outbox.status(), words, fails=_has_dead)


def _has_dead(found: OutboxStatus) -> bool:
    return any(one.dead for one in found.sinks)


def history(
    settings: Settings, limit: Annotated[int, opt("--limit", "How many at most.", min=1, max=1000)] = 100
) -> int:
    """Show what people did to sinks and events, newest first."""

    def words(found: SinkActions) -> Iterator[str]:
        for one in found.actions:
            about = f" {one.event or one.run}" if one.run else ""
            why = f": {one.reason}" if one.reason else ""
            yield f"{one.at}  {one.actor} {one.action} {one.sink}{about}{why}"
        if not found.actions:
            yield "nothing was done yet"

    return tell(settings, lambda engine: engine.outbox.history(limit=limit), words)


app.command("list")(with_settings(listed))
app.command("show")(with_settings(show))
app.command("redrive")(with_settings(redrive))
app.command("drop")(with_settings(drop))
app.command("status")(with_settings(status))
app.command("history")(with_settings(history))
