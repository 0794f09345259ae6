"""`stepkeep triggers` and `stepkeep emit`: what starts runs by itself; and events from outside, which fire triggers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepkeep.cli.arguments import By, arg, moment_of, opt
from stepkeep.cli.asking import Words, table, tell
from stepkeep.cli.printer import say
from stepkeep.cli.session import json_value
from stepkeep.cli.settings import Settings, with_settings
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.triggers.views import BackfillView, FiringView, NextMoments, TriggerDetails, TriggerView

app = typer.Typer(help="What starts runs by itself: schedules, events, ends of runs.", no_args_is_help=True)

Name = Annotated[str, arg("TRIGGER", "The trigger's name.")]
Payload = Annotated[str | None, opt("--payload", "JSON|@FILE", "What the event carries.")]


def list_(settings: Settings) -> int:
    """List triggers with their state and their next moment."""
    nothing = f"there are no triggers. Add one: {settings.command('triggers', 'add', '--help')}"
    return tell(
        settings,
        lambda engine: engine.triggers.list(),
        lambda found: table([_row(one) for one in found.triggers], nothing),
    )


def _row(one: TriggerView) -> dict[str, Any]:
    shown = {name: one[name] for name in ("trigger", "workflow", "kind")}
    return {**shown, "fires": _source(one), "state": one.state, "next": one.next_at or "-"}


def show(
    settings: Settings,
    name: Name,
    firings: Annotated[int, opt("--firings", "How many firings to show.", min=1, max=1000)] = 20,
) -> int:
    """Show a trigger with its next moments, its latest firings and its backfills."""

    def words(found: TriggerDetails) -> list[str]:
        say(f"{found.trigger} starts {found.workflow}: {_source(found)}; it is {found.state}")
        say(f"overlap: {found.overlap}")
        for one in found.next:
            say(f"next: {one.moment} ({one.local})")
        rows = [
            {"moment": one.moment, "state": one.state, "run or reason": one.run_id or one.reason or "-"}
            for one in found.firings
        ]
        table(rows, "it has not fired yet")
        return [_progress(job) for job in found.backfills]

    return tell(settings, lambda engine: engine.triggers.show(name, firings=firings), words)


def next_(
    settings: Settings,
    name: Name,
    count: Annotated[int, opt("--count", "-n", "How many moments.", min=1, max=1000)] = 10,
    after: Annotated[str | None, opt("--after", "TIME", "Moments after this time instead of now.")] = None,
) -> int:
    """Show the next moments of a schedule, in UTC and in its zone."""
    since = None if after is None else moment_of(after, "--after", is_ago=False)

    def words(found: NextMoments) -> str | None:
        table(found.next, "this schedule has no moment any more")
        resume = settings.command("triggers", "resume", name)
        return f"it is paused: {resume}" if found.state == "paused" else None

    return tell(settings, lambda engine: engine.triggers.next(name, count=count, after=since), words)


def add(
    settings: Settings,
    name: Name,
    workflow: Annotated[str, arg("WORKFLOW", "A published workflow.")],
    cron: Annotated[str | None, opt("--cron", "EXPRESSION", "Five fields, or a name such as @daily.")] = None,
    every: Annotated[str | None, opt("--every", "DURATION", "An interval, such as 15m.")] = None,
    zone: Annotated[str | None, opt("--zone", "ZONE", "Of the cron expression; UTC.")] = None,
    gap: Annotated[str | None, opt("--gap", "shift|skip", "For skipped local times.")] = None,
    fold: Annotated[str | None, opt("--fold", "first|both", "For repeated local times.")] = None,
    jitter: Annotated[str | None, opt("--jitter", "DURATION", "Start up to so much later than the moment.")] = None,
    event: Annotated[str | None, opt("--event", "NAME", "Fire on events of this name; `order.*` is a pattern.")] = None,
    ended: Annotated[str | None, opt("--ended", "WORKFLOW", "Fire when runs of this workflow end.")] = None,
    state: Annotated[list[str] | None, opt("--state", "STATE", "With --ended: only in this state; repeated.")] = None,
    condition: Annotated[str | None, opt("--if", "EXPRESSION", "Fire only if it holds: riskScore >= 0.7.")] = None,
    overlap: Annotated[str | None, opt("--overlap", "POLICY", "skip, queue, cancel or allow.")] = None,
    catch_up: Annotated[str | None, opt("--catch-up", "POLICY", "Missed moments: none, last or all.")] = None,
    with_: Annotated[str | None, opt("--with", "JSON|@FILE", "The input, with ${{ payload.field }}.")] = None,
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
    return tell(
        settings,
        lambda engine: engine.triggers.add(name, workflow, by=by, **chosen),
        lambda one: (
            f"trigger {name} starts {workflow}: {_source(one)}{_coming(one)}",
            f"workers fire it: {settings.command('worker')}",
        ),
    )


def remove(settings: Settings, name: Name, by: By = None) -> int:
    """Remove a trigger that was added by hand. Its firings stay on record."""
    return tell(
        settings,
        lambda engine: engine.triggers.remove(name, by=by),
        lambda one: f"trigger {one.trigger} is removed",
    )


def pause(settings: Settings, name: Name, by: By = None) -> int:
    """Let a trigger fire nothing by itself until it is resumed."""
    undo = f"to go on: {settings.command('triggers', 'resume', name)}"
    return tell(
        settings,
        lambda engine: engine.triggers.pause(name, by=by),
        lambda one: (f"trigger {one.trigger} is paused", undo),
    )


def resume(settings: Settings, name: Name, by: By = None) -> int:
    """Let a paused trigger fire again. Moments of the pause are not caught up."""
    return tell(
        settings,
        lambda engine: engine.triggers.resume(name, by=by),
        lambda one: f"trigger {one.trigger} is active again{_coming(one)}",
    )


def fire(
    settings: Settings,
    name: Name,
    payload: Payload = None,
    key: Annotated[str | None, opt("--key", "KEY", "The same key fires once.")] = None,
    by: By = None,
) -> int:
    """Fire a trigger now, whatever its overlap policy says and also while it is paused."""
    value = json_value(payload, "--payload")
    return tell(
        settings,
        lambda engine: engine.triggers.fire(name, payload=value, key=key, by=by),
        lambda one: _fired(settings, one),
    )


def backfill(
    settings: Settings,
    name: Name,
    since: Annotated[str | None, opt("--since", "TIME", "The first moment.")] = None,
    until: Annotated[str | None, opt("--until", "TIME", "The end, exclusive; now.")] = None,
    at_once: Annotated[int, opt("--at-once", "How many of its runs live at a time.", min=1, max=100)] = 5,
    dry_run: Annotated[bool, opt("--dry-run", "Count the moments and start nothing.")] = False,
    stop: Annotated[str | None, opt("--stop", "ID", "End this backfill instead; its runs go on.")] = None,
    by: By = None,
) -> int:
    """Fire the moments of a range that have no run. Workers do it in small batches."""
    if stop is None and since is None:
        raise InvalidInput("a backfill has a range: give --since, and --until if it does not end now.")

    async def go(engine: AsyncEngine) -> BackfillView:
        if stop is not None or since is None:
            return await engine.triggers.stop_backfill(name, stop or "", by=by)
        begin, end = moment_of(since, "--since"), moment_of("1s" if until is None else until, "--until")
        return await engine.triggers.backfill(name, since=begin, until=end, at_once=at_once, dry_run=dry_run, by=by)

    def words(job: BackfillView) -> Words:
        if job.dry_run:
            return f"{job.moments} moments, first {', '.join((job.first or [])[:3]) or 'none'}; nothing was started"
        return _progress(job), f"its progress: {settings.command('triggers', 'show', name)}"

    return tell(settings, go, words)


def emit(
    settings: Settings,
    event: Annotated[str, arg("NAME", "The event's name.")],
    payload: Payload = None,
    event_id: Annotated[str | None, opt("--id", "ID", "The sender's id: the same one again fires nothing.")] = None,
    correlation: Annotated[str | None, opt("--correlation", "ID", "The correlation id of the runs it starts.")] = None,
    by: By = None,
) -> int:
    """Hand in an event from outside. Every trigger that it concerns fires."""
    value = json_value(payload, "--payload")
    nothing = f"no trigger is about {event}, or no condition holds: {settings.command('triggers', 'list')}"
    return tell(
        settings,
        lambda engine: engine.triggers.emit(event, value, id=event_id, correlation_id=correlation, by=by),
        lambda found: [_fired(settings, one) for one in found.firings] or nothing,
    )


def _fired(settings: Settings, one: FiringView) -> str:
    if one.run_id:
        return f"{one.trigger} started run {one.run_id}: {settings.command('show', one.run_id)}"
    return f"{one.trigger} is {one.state}{f': {one.reason}' if one.reason else ''}"


def _coming(one: TriggerView) -> str:
    return f"; next at {one.next_at}" if one.next_at else ""


def _source(one: TriggerView) -> str:
    """What fires a trigger, in a few words."""
    if one.schedule:
        return f"every {one.schedule.every}" if one.schedule.every else f"{one.schedule.cron} ({one.schedule.zone})"
    if one.ended:
        return f"a run of {one.ended.workflow} ends"
    return f"event {one.event}" + (f" if {one.condition}" if one.condition else "")


def _progress(job: BackfillView) -> str:
    done = f"{job.started} started, {job.fired_before} had fired before, {job.refused} refused"
    of = f" of {job.moments} moments" if job.moments else ""
    return f"backfill {job.backfill} from {job.since} to {job.until} is {job.state}: {done}{of}"


app.command("list")(with_settings(list_))
app.command("show")(with_settings(show))
app.command("next")(with_settings(next_))
app.command("add")(with_settings(add))
app.command("pause")(with_settings(pause))
app.command("resume")(with_settings(resume))
app.command("fire")(with_settings(fire))
app.command("backfill")(with_settings(backfill))
app.command("remove")(with_settings(remove))
