"""`stepkeep outbox`: what was not delivered yet, what is dead, and what to do about it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from stepkeep.cli.arguments import By
from stepkeep.cli.commands.users import table
from stepkeep.cli.printer import answer, say
from stepkeep.cli.session import find_run, open_engine
from stepkeep.cli.settings import Settings, with_settings
from stepkeep.cli.status import FAILED, SUCCEEDED

app = typer.Typer(help="Events on their way to sinks.", no_args_is_help=True)

Run = Annotated[str, typer.Argument(metavar="RUN", help="The run, or the beginning of its id.")]
SinkOption = Annotated[str | None, typer.Option("--sink", metavar="NAME", help="This sink alone.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it stays on record.")]


def listed(
    settings: Settings,
    state: Annotated[str | None, typer.Option("--state", metavar="STATE", help="ready, sending or dead.")] = None,
    sink: SinkOption = None,
    run: Annotated[str | None, typer.Option("--run", metavar="RUN", help="This run alone, sent or not.")] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="SINK/RUN", help="Go on after this one: `next` of the page before.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many at most.")] = 100,
) -> int:
    """List runs with events that are not delivered, by sink."""

    async def ask(engine: Any) -> dict[str, Any]:
        run_id = None if run is None else await find_run(engine, run)
        found: dict[str, Any] = await engine.outbox.list(
            state=state, sink=sink, run_id=run_id, after=after, limit=limit
        )
        return found

    found = _ask(settings, ask)
    if settings.json:
        answer(found)
        return SUCCEEDED
    rows = [
        {
            "sink": one["sink"],
            "run": one["run"],
            "state": one["state"],
            "attempts": one["attempts"],
            "due": one["ready_at"] or one["dead_at"] or "",
            "error": one["error"] or "",
        }
        for one in found["deliveries"]
    ]
    table(rows, "nothing waits to be delivered")
    if found["next"] is not None:
        say(f"more with: {settings.command('outbox', 'list', '--after', found['next'])}")
    return SUCCEEDED


def show(settings: Settings, run: Run, sink: Annotated[str, typer.Argument(metavar="SINK", help="The sink.")]) -> int:
    """Show what a run has for a sink: events that are not delivered, and what people did."""

    async def ask(engine: Any) -> dict[str, Any]:
        found: dict[str, Any] = await engine.outbox.show(await find_run(engine, run), sink)
        return found

    found = _ask(settings, ask)
    if settings.json:
        answer(found)
        return SUCCEEDED
    one = found["delivery"]
    said = f": {one['error']}" if one["error"] else ""
    say(f"run {one['run']} to {one['sink']}: {one['state']}, {one['attempts']} failed attempts{said}")
    for event in found["events"]:
        say(f"  {event['id']}  {event['type']}  {event['state']}")
    for action in found["actions"]:
        say(f"  {action['action']} by {action['actor']} at {action['at']}: {action['reason']}")
    if one["state"] == "dead":
        again = settings.command("outbox", "redrive", "--run", one["run"], "--sink", one["sink"])
        say(f"send it again: {again} --reason …")
    return SUCCEEDED


def redrive(
    settings: Settings,
    run: Annotated[str | None, typer.Option("--run", metavar="RUN", help="Of this run.")] = None,
    sink: SinkOption = None,
    reason: Reason = "",
    by: By = None,
) -> int:
    """Send dead events again: of a run, of a sink, or of both. They keep their order."""

    async def ask(engine: Any) -> dict[str, Any]:
        run_id = None if run is None else await find_run(engine, run)
        found: dict[str, Any] = await engine.outbox.redrive(run_id=run_id, sink=sink, reason=reason, by=by)
        return found

    found = _ask(settings, ask)
    if settings.json:
        answer(found)
    else:
        for one in found["redriven"]:
            say(f"run {one['run']} is sent to {one['sink']} again")
        say(f"see what becomes of it: {settings.command('outbox', 'status')}")
    return SUCCEEDED


def drop(
    settings: Settings,
    run: Run,
    sink: Annotated[str, typer.Argument(metavar="SINK", help="The sink.")],
    event: Annotated[str, typer.Argument(metavar="EVENT", help="The id of the dead event, as `outbox show` has it.")],
    reason: Reason = "",
    by: By = None,
) -> int:
    """Give up a dead event for good; the events after it are sent."""

    async def ask(engine: Any) -> dict[str, Any]:
        run_id = await find_run(engine, run)
        found: dict[str, Any] = await engine.outbox.drop(run_id, sink, event, reason=reason, by=by)
        return found

    found = _ask(settings, ask)
    if settings.json:
        answer(found)
    else:
        say(f"event {found['dropped']} is not sent to {found['sink']} any more; the events after it are")
    return SUCCEEDED


def status(settings: Settings) -> int:
    """Show how far each sink is behind. Exit status 1 if an event is dead."""
    found = _ask(settings, lambda engine: engine.outbox.status())
    has_dead = any(one["dead"] for one in found["sinks"])
    if settings.json:
        answer(found)
    else:
        table(found["sinks"], "there is no sink: add one with stepkeep sinks add")
        if has_dead:
            say(f"dead events hold up their runs: {settings.command('outbox', 'list', '--state', 'dead')}")
    return FAILED if has_dead else SUCCEEDED


def history(
    settings: Settings, limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many at most.")] = 100
) -> int:
    """Show what people did to sinks and events, newest first."""
    found = _ask(settings, lambda engine: engine.outbox.history(limit=limit))
    if settings.json:
        answer(found)
        return SUCCEEDED
    for one in found["actions"]:
        about = f" {one['event'] or one['run']}" if one["run"] else ""
        why = f": {one['reason']}" if one["reason"] else ""
        say(f"{one['at']}  {one['actor']} {one['action']} {one['sink']}{about}{why}")
    if not found["actions"]:
        say("nothing was done yet")
    return SUCCEEDED


def _ask(settings: Settings, ask: Callable[[Any], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    async def go() -> dict[str, Any]:
        async with open_engine(settings) as engine:
            return await ask(engine)

    return asyncio.run(go())


app.command("list")(with_settings(listed))
app.command("show")(with_settings(show))
app.command("redrive")(with_settings(redrive))
app.command("drop")(with_settings(drop))
app.command("status")(with_settings(status))
app.command("history")(with_settings(history))
