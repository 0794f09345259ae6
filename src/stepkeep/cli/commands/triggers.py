"""`stepkeep triggers` and `stepkeep emit`: what starts runs by itself; and events from outside, which fire triggers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from stepkeep.cli.arguments import By, moment_of
from stepkeep.cli.commands.users import ask, table
from stepkeep.cli.printer import answer, say
from stepkeep.cli.session import json_value
from stepkeep.cli.settings import Settings, with_settings
from stepkeep.cli.status import SUCCEEDED
from stepkeep.kernel.errors import InvalidInput

app = typer.Typer(help="What starts runs by itself: schedules, events, ends of runs.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="TRIGGER", help="The trigger's name.", show_default=False)]
Payload = Annotated[str | None, typer.Option("--payload", metavar="JSON|@FILE", help="What the event carries.")]


def list_(settings: Settings) -> int:
    """List triggers with their state and their next moment."""
    found = ask(settings, lambda engine: engine.triggers.list())
    if settings.json:
        answer(found)
        return SUCCEEDED
    rows = [
        {
            "trigger": one["trigger"],
            "workflow": one["workflow"],
            "kind": one["kind"],
            "fires": _source(one),
            "state": one["state"],
            "next": one["next_at"] or "-",
        }
        for one in found["triggers"]
    ]
    table(rows, f"there are no triggers. Add one: {settings.command('triggers', 'add', '--help')}")
    return SUCCEEDED


def show(
    settings: Settings,
    name: Name,
    firings: Annotated[int, typer.Option("--firings", min=1, max=1000, help="How many firings to show.")] = 20,
) -> int:
    """Show a trigger with its next moments, its latest firings and its backfills."""
    found = ask(settings, lambda engine: engine.triggers.show(name, firings=firings))
    if settings.json:
        answer(found)
        return SUCCEEDED
    say(f"{found['trigger']} starts {found['workflow']}: {_source(found)}; it is {found['state']}")
    say(f"overlap: {found['overlap']}")
    for one in found["next"]:
        say(f"next: {one['moment']} ({one['local']})")
    rows = [
        {"moment": one["moment"], "state": one["state"], "run or reason": one["run_id"] or one["reason"] or "-"}
        for one in found["firings"]
    ]
    table(rows, "it has not fired yet")
    for job in found["backfills"]:
        say(_progress(job))
    return SUCCEEDED


def next_(
    settings: Settings,
    name: Name,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="How many moments.")] = 10,
    after: Annotated[
        str | None, typer.Option("--after", metavar="TIME", help="Moments after this time instead of now.")
    ] = None,
) -> int:
    """Show the next moments of a schedule, in UTC and in its zone."""
    since = None if after is None else moment_of(after, "--after", is_ago=False)
    found = ask(settings, lambda engine: engine.triggers.next(name, count=count, after=since))
    if settings.json:
        answer(found)
        return SUCCEEDED
    table(found["next"], "this schedule has no moment any more")
    if found["state"] == "paused":
        say(f"it is paused: {settings.command('triggers', 'resume', name)}")
    return SUCCEEDED


def add(
    settings: Settings,
    name: Name,
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW", help="A published workflow.", show_default=False)],
    cron: Annotated[
        str | None, typer.Option("--cron", metavar="EXPRESSION", help="Five fields, or a name such as @daily.")
    ] = None,
    every: Annotated[str | None, typer.Option("--every", metavar="DURATION", help="An interval, such as 15m.")] = None,
    zone: Annotated[str | None, typer.Option("--zone", metavar="ZONE", help="Of the cron expression; UTC.")] = None,
    gap: Annotated[str | None, typer.Option("--gap", metavar="shift|skip", help="For skipped local times.")] = None,
    fold: Annotated[str | None, typer.Option("--fold", metavar="first|both", help="For repeated local times.")] = None,
    jitter: Annotated[
        str | None, typer.Option("--jitter", metavar="DURATION", help="Start up to so much later than the moment.")
    ] = None,
    event: Annotated[
        str | None, typer.Option("--event", metavar="NAME", help="Fire on events of this name; `order.*` is a pattern.")
    ] = None,
    ended: Annotated[
        str | None, typer.Option("--ended", metavar="WORKFLOW", help="Fire when runs of this workflow end.")
    ] = None,
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="With --ended: only in this state; repeated.")
    ] = None,
    condition: Annotated[
        str | None, typer.Option("--if", metavar="EXPRESSION", help="Fire only if it holds: riskScore >= 0.7.")
    ] = None,
    overlap: Annotated[
        str | None, typer.Option("--overlap", metavar="POLICY", help="skip, queue, cancel or allow.")
    ] = None,
    catch_up: Annotated[
        str | None, typer.Option("--catch-up", metavar="POLICY", help="Missed moments: none, last or all.")
    ] = None,
    with_: Annotated[
        str | None, typer.Option("--with", metavar="JSON|@FILE", help="The input, with ${{ payload.field }}.")
    ] = None,
    by: By = None,
) -> int:
    """Add a trigger for the newest version of a workflow, or change one that was added so."""
    if state and ended is None:
        raise InvalidInput("--state goes with --ended.")
    ending = {"workflow": ended, **({"states": state} if state else {})} if ended is not None else None
    given = {
        "schedule": cron,
        "every": every,
        "zone": zone,
        "gap": gap,
        "fold": fold,
        "jitter": jitter,
        "event": event,
        "ended": ending,
        "condition": condition,
        "overlap": overlap,
        "catch_up": catch_up,
        "with_": None if with_ is None else json_value(with_, "--with"),
    }
    chosen = {key: value for key, value in given.items() if value is not None}
    found = ask(settings, lambda engine: engine.triggers.add(name, workflow, by=by, **chosen))
    if settings.json:
        answer(found)
        return SUCCEEDED
    coming = f"; next at {found['next_at']}" if found["next_at"] else ""
    say(f"trigger {name} starts {workflow}: {_source(found)}{coming}")
    say(f"workers fire it: {settings.command('worker')}")
    return SUCCEEDED


def remove(settings: Settings, name: Name, by: By = None) -> int:
    """Remove a trigger that was added by hand. Its firings stay on record."""
    return _told(settings, ask(settings, lambda engine: engine.triggers.remove(name, by=by)), "removed")


def pause(settings: Settings, name: Name, by: By = None) -> int:
    """Let a trigger fire nothing by itself until it is resumed."""
    status = _told(settings, ask(settings, lambda engine: engine.triggers.pause(name, by=by)), "paused")
    if not settings.json:
        say(f"to go on: {settings.command('triggers', 'resume', name)}")
    return status


def resume(settings: Settings, name: Name, by: By = None) -> int:
    """Let a paused trigger fire again. Moments of the pause are not caught up."""
    found = ask(settings, lambda engine: engine.triggers.resume(name, by=by))
    coming = f"; next at {found['next_at']}" if found["next_at"] else ""
    return _told(settings, found, f"active again{coming}")


def fire(
    settings: Settings,
    name: Name,
    payload: Payload = None,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="The same key fires once.")] = None,
    by: By = None,
) -> int:
    """Fire a trigger now, whatever its overlap policy says and also while it is paused."""
    value = json_value(payload, "--payload")
    found = ask(settings, lambda engine: engine.triggers.fire(name, payload=value, key=key, by=by))
    if settings.json:
        answer(found)
    else:
        _fired(settings, found)
    return SUCCEEDED


def backfill(
    settings: Settings,
    name: Name,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="The first moment.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="The end, exclusive; now.")] = None,
    at_once: Annotated[int, typer.Option("--at-once", min=1, max=100, help="How many of its runs live at a time.")] = 5,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the moments and start nothing.")] = False,
    stop: Annotated[
        str | None, typer.Option("--stop", metavar="ID", help="End this backfill instead; its runs go on.")
    ] = None,
    by: By = None,
) -> int:
    """Fire the moments of a range that have no run. Workers do it in small batches."""
    if stop is not None:
        found = ask(settings, lambda engine: engine.triggers.stop_backfill(name, stop, by=by))
    elif since is None:
        raise InvalidInput("a backfill has a range: give --since, and --until if it does not end now.")
    else:
        begin = moment_of(since, "--since")
        end = moment_of(until if until is not None else "1s", "--until")
        found = ask(
            settings,
            lambda engine: engine.triggers.backfill(
                name, since=begin, until=end, at_once=at_once, dry_run=dry_run, by=by
            ),
        )
    if settings.json:
        answer(found)
    elif dry_run:
        say(f"{found['moments']} moments, first {', '.join(found['first'][:3]) or 'none'}; nothing was started")
    else:
        say(_progress(found))
        say(f"its progress: {settings.command('triggers', 'show', name)}")
    return SUCCEEDED


def emit(
    settings: Settings,
    event: Annotated[str, typer.Argument(metavar="NAME", help="The event's name.", show_default=False)],
    payload: Payload = None,
    event_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The sender's id: the same one again fires nothing.")
    ] = None,
    correlation: Annotated[
        str | None, typer.Option("--correlation", metavar="ID", help="The correlation id of the runs it starts.")
    ] = None,
    by: By = None,
) -> int:
    """Hand in an event from outside. Every trigger that it concerns fires."""
    value = json_value(payload, "--payload")
    found = ask(
        settings,
        lambda engine: engine.triggers.emit(event, value, id=event_id, correlation_id=correlation, by=by),
    )
    if settings.json:
        answer(found)
        return SUCCEEDED
    if not found["firings"]:
        say(f"no trigger is about {event}, or no condition holds: {settings.command('triggers', 'list')}")
    for one in found["firings"]:
        _fired(settings, one)
    return SUCCEEDED


def _fired(settings: Settings, one: Mapping[str, Any]) -> None:
    if one["run_id"]:
        say(f"{one['trigger']} started run {one['run_id']}: {settings.command('show', one['run_id'])}")
    else:
        said = f": {one['reason']}" if one["reason"] else ""
        say(f"{one['trigger']} is {one['state']}{said}")


def _told(settings: Settings, found: Mapping[str, Any], said: str) -> int:
    if settings.json:
        answer(found)
    else:
        say(f"trigger {found['trigger']} is {said}")
    return SUCCEEDED


def _source(one: Mapping[str, Any]) -> str:
    """What fires a trigger, in a few words."""
    if "schedule" in one:
        found = one["schedule"]
        return f"every {found['every']}" if "every" in found else f"{found['cron']} ({found['zone']})"
    if "ended" in one:
        return f"a run of {one['ended']['workflow']} ends"
    return f"event {one['event']}" + (f" if {one['condition']}" if "condition" in one else "")


def _progress(job: Mapping[str, Any]) -> str:
    done = f"{job['started']} started, {job['fired_before']} had fired before, {job['refused']} refused"
    of = f" of {job['moments']} moments" if "moments" in job else ""
    return f"backfill {job['backfill']} from {job['since']} to {job['until']} is {job['state']}: {done}{of}"


app.command("list")(with_settings(list_))
app.command("show")(with_settings(show))
app.command("next")(with_settings(next_))
app.command("add")(with_settings(add))
app.command("pause")(with_settings(pause))
app.command("resume")(with_settings(resume))
app.command("fire")(with_settings(fire))
app.command("backfill")(with_settings(backfill))
app.command("remove")(with_settings(remove))
