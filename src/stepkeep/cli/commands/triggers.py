"""`stepkeep triggers` and `stepkeep emit`: what starts runs by itself; and events from outside, which fire triggers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

from stepkeep.cli.answering import Words, print_answer, table
from stepkeep.cli.arguments import By, Text, Texts, arg, moment_of, opt
from stepkeep.cli.command import Commands, CommandValues, program
from stepkeep.cli.printer import say
from stepkeep.cli.session import json_value
from stepkeep.cli.settings import Settings
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.triggers.views import (
        BackfillView,
        Emitted,
        FiringView,
        NextMoments,
        TriggerDetails,
        TriggerList,
        TriggerView,
    )

triggers = Commands("triggers", "What starts runs by itself: schedules, events, ends of runs.")
NAME = arg("TRIGGER", "The trigger's name.")
PAYLOAD = opt("--payload", "JSON|@FILE", "What the event carries.", reads=json_value)
Name = Annotated[str, NAME]


@triggers.operation("list", "triggers.list")
def listed(found: TriggerList, asked: CommandValues) -> None:
    """List triggers with their state and their next moment."""
    nothing = f"there are no triggers. Add one: {asked.command('triggers', 'add', '--help')}"
    columns = "trigger workflow kind fires state next"
    table(found.triggers, nothing, columns, fires=_source, next=lambda one: one.next_at or "-")


@triggers.operation("show", "triggers.show", name=NAME, firings=opt("--firings", "How many firings to show."))
def show(found: TriggerDetails, _: CommandValues) -> list[str]:
    """Show a trigger with its next moments, its latest firings and its backfills."""
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


@triggers.operation(
    "next",
    "triggers.next",
    name=NAME,
    count=opt("--count", "-n", "How many moments."),
    after=opt("--after", "TIME", "Moments after this time instead of now.", reads=partial(moment_of, is_ago=False)),
)
def upcoming(found: NextMoments, asked: CommandValues) -> str | None:
    """Show the next moments of a schedule, in UTC and in its zone."""
    table(found.next, "this schedule has no moment any more")
    resume = asked.command("triggers", "resume", asked["name"])
    return f"it is paused: {resume}" if found.state == "paused" else None


@triggers.command("add")
def add(
    settings: Settings,
    name: Name,
    workflow: Annotated[str, arg("WORKFLOW", "A published workflow.")],
    cron: Annotated[Text, opt("--cron", "EXPRESSION", "Five fields, or a name such as @daily.")] = None,
    every: Annotated[Text, opt("--every", "DURATION", "An interval, such as 15m.")] = None,
    zone: Annotated[Text, opt("--zone", "ZONE", "Of the cron expression; UTC.")] = None,
    gap: Annotated[Text, opt("--gap", "shift|skip", "For skipped local times.")] = None,
    fold: Annotated[Text, opt("--fold", "first|both", "For repeated local times.")] = None,
    jitter: Annotated[Text, opt("--jitter", "DURATION", "Start up to so much later than the moment.")] = None,
    event: Annotated[Text, opt("--event", "NAME", "Fire on events of this name; `order.*` is a pattern.")] = None,
    ended: Annotated[Text, opt("--ended", "WORKFLOW", "Fire when runs of this workflow end.")] = None,
    state: Annotated[Texts, opt("--state", "STATE", "With --ended: only in this state; repeated.")] = None,
    condition: Annotated[Text, opt("--if", "EXPRESSION", "Fire only if it holds: riskScore >= 0.7.")] = None,
    overlap: Annotated[Text, opt("--overlap", "POLICY", "skip, queue, cancel or allow.")] = None,
    catch_up: Annotated[Text, opt("--catch-up", "POLICY", "Missed moments: none, last or all.")] = None,
    with_: Annotated[Text, opt("--with", "JSON|@FILE", "The input, with ${{ payload.field }}.")] = None,
    by: By = None,
) -> int:
    """Add a trigger for the newest version of a workflow, or change one that was added so."""
    if state and ended is None:
        raise InvalidInput("--state goes with --ended.")
    given = {
        "schedule": cron,
        "every": every,
        "zone": zone,
        "gap": gap,
        "fold": fold,
        "jitter": jitter,
        "event": event,
        "ended": {"workflow": ended, **({"states": state} if state else {})} if ended is not None else None,
        "condition": condition,
        "overlap": overlap,
        "catch_up": catch_up,
        "with_": json_value(with_, "--with"),
    }
    chosen = {key: value for key, value in given.items() if value is not None}
    return print_answer(
        settings,
        lambda engine: engine.triggers.add(name, workflow, by=by, **chosen),
        lambda one: (
            f"trigger {name} starts {workflow}: {_source(one)}{_coming(one)}",
            f"workers fire it: {settings.command('worker')}",
        ),
    )


@triggers.operation("pause", "triggers.pause", name=NAME)
def pause(one: TriggerView, asked: CommandValues) -> Iterator[str]:
    """Let a trigger fire nothing by itself until it is resumed."""
    yield f"trigger {one.trigger} is paused"
    yield f"to go on: {asked.command('triggers', 'resume', asked['name'])}"


@triggers.operation("resume", "triggers.resume", name=NAME)
def resume(one: TriggerView, _: CommandValues) -> str:
    """Let a paused trigger fire again. Moments of the pause are not caught up."""
    return f"trigger {one.trigger} is active again{_coming(one)}"


@triggers.operation(
    "fire", "triggers.fire", name=NAME, payload=PAYLOAD, key=opt("--idempotency-key", "KEY", "The same key fires once.")
)
def fire(one: FiringView, asked: CommandValues) -> str:
    """Fire a trigger now, whatever its overlap policy says and also while it is paused."""
    return _fired(one, asked)


@triggers.command("backfill")
def backfill(
    settings: Settings,
    name: Name,
    since: Annotated[Text, opt("--since", "TIME", "The first moment.")] = None,
    until: Annotated[Text, opt("--until", "TIME", "The end, exclusive; now.")] = None,
    at_once: Annotated[
        int, opt("--at-once", "How many of its runs live at a time.", bounds_of="triggers.backfill at_once")
    ] = 5,
    dry_run: Annotated[bool, opt("--dry-run", "Count the moments and start nothing.")] = False,
    stop: Annotated[Text, opt("--stop", "ID", "End this backfill instead; its runs go on.")] = None,
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

    return print_answer(settings, go, words)


@triggers.operation("remove", "triggers.remove", name=NAME)
def remove(one: TriggerView, _: CommandValues) -> str:
    """Remove a trigger that was added by hand. Its firings stay on record."""
    return f"trigger {one.trigger} is removed"


@program.operation(
    "emit",
    "triggers.emit",
    event=arg("NAME", "The event's name."),
    payload=PAYLOAD,
    id=opt("--id", "ID", "The sender's id: the same one again fires nothing."),
    correlation_id=opt("--correlation-id", "ID", "The correlation id of the runs it starts."),
)
def emit(found: Emitted, asked: CommandValues) -> Words:
    """Hand in an event from outside. Every trigger that it concerns fires."""
    nothing = f"no trigger is about {asked['event']}, or no condition holds: {asked.command('triggers', 'list')}"
    return [_fired(one, asked) for one in found.firings] or nothing


def _fired(one: FiringView, asked: CommandValues) -> str:
    if one.run_id:
        return f"{one.trigger} started run {one.run_id}: {asked.command('show', one.run_id)}"
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
