"""Triggers, firings and backfills as callers see them. It reads nothing and decides nothing."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Literal

from msgspec import UNSET, UnsetType

from stepkeep.definition.durations import format_duration
from stepkeep.kernel.triggers import Keep, Schedule, TriggerSpec
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.instants import instant
from stepkeep.operations.triggers.plan import moment_text, owner_of
from stepkeep.schedules.moments import MICROS, jitter_of, moments_after
from stepkeep.schedules.zones import find_zone
from stepkeep.store.rows import Backfill, Firing, TriggerRow

State = Literal["active", "paused", "removed"]


class ScheduleView(Answer, kw_only=True):
    """A cron expression in a time zone, or an interval."""

    every: str | UnsetType = UNSET
    cron: str | UnsetType | None = UNSET
    zone: str | UnsetType = UNSET
    gap: str | UnsetType | None = UNSET
    fold: str | UnsetType | None = UNSET
    jitter: str | UnsetType = UNSET


class CatchUpView(Answer, kw_only=True):
    """What happens to missed moments."""

    keep: str
    most: int | UnsetType = UNSET
    window: str
    spread: str | UnsetType = UNSET


class EndingView(Answer, kw_only=True):
    """The ends of runs that fire a trigger."""

    workflow: str
    states: list[str]


class TriggerView(Answer, rename={"with_": "with"}, kw_only=True):
    """A trigger. Fields that mean nothing for its kind are left out."""

    trigger: str
    workflow: str
    version: int | None
    declared: Annotated[bool, says("Whether a version of the workflow declares it.")]
    kind: str
    state: State
    overlap: str
    next_at: str | None
    created_at: str
    created_by: str
    schedule: ScheduleView | UnsetType = UNSET
    catch_up: CatchUpView | UnsetType = UNSET
    event: str | UnsetType = UNSET
    ended: EndingView | UnsetType = UNSET
    condition: str | UnsetType = UNSET
    with_: Any = UNSET
    paused_at: str | UnsetType = UNSET
    paused_by: str | UnsetType | None = UNSET


class NextMoment(Answer, kw_only=True):
    """A moment in UTC and in the zone of its schedule, and when it is due with its jitter."""

    moment: str
    local: str
    due_at: str


class FiringView(Answer, kw_only=True):
    """What became of one moment or event."""

    trigger: Annotated[str | UnsetType, says("Its trigger; absent where that has the firing.")] = UNSET
    moment: str
    due_at: str
    state: str
    run_id: str | None
    reason: str | None
    recorded_at: str
    source: Annotated[str | UnsetType, says("The run that caused it.")] = UNSET
    backfill: str | UnsetType = UNSET
    depth: Annotated[int | UnsetType, says("How many triggers led to it, run by run.")] = UNSET


class BackfillView(Answer, kw_only=True):
    """A backfill, which workers carry out; or, of a dry run, what it would do."""

    backfill: str | UnsetType = UNSET
    trigger: str
    dry_run: bool | UnsetType = UNSET
    state: Literal["running", "done", "stopped"] | UnsetType = UNSET
    since: str | UnsetType = UNSET
    until: str | UnsetType = UNSET
    reached: str | UnsetType | None = UNSET
    at_once: int | UnsetType = UNSET
    started: int | UnsetType = UNSET
    fired_before: int | UnsetType = UNSET
    refused: int | UnsetType = UNSET
    created_at: str | UnsetType = UNSET
    created_by: str | UnsetType = UNSET
    ended_at: str | UnsetType | None = UNSET
    moments: Annotated[int | UnsetType, says("How many the range has.")] = UNSET
    first: Annotated[list[str] | UnsetType, says("The first of them.")] = UNSET


class TriggerDetails(TriggerView, rename={"with_": "with"}, kw_only=True):
    """A trigger with its next moments, its latest firings and its backfills."""

    next: list[NextMoment]
    firings: list[FiringView]
    backfills: list[BackfillView]


class TriggerList(Answer, kw_only=True):
    """Triggers by name."""

    triggers: list[TriggerView]
    next: str | UnsetType | None = UNSET


class NextMoments(Answer, kw_only=True):
    """The next moments of a schedule."""

    trigger: str
    state: State
    next: list[NextMoment]


class Emitted(Answer, kw_only=True):
    """What an event fired."""

    event: str
    name: str
    firings: list[FiringView]


def details_view(
    row: TriggerRow, spec: TriggerSpec, now: int, firings: list[Firing], backfills: list[Backfill]
) -> TriggerDetails:
    return trigger_view(row, spec).extended(
        TriggerDetails,
        next=coming(row, spec, now, 5) if state_of(row) == "active" else [],
        firings=[firing_view(one) for one in firings],
        backfills=[backfill_view(one) for one in backfills],
    )


def trigger_view(row: TriggerRow, spec: TriggerSpec) -> TriggerView:
    """What a trigger shows. Fields that mean nothing for its kind are left out."""
    is_paused = row.paused_at is not None
    return TriggerView(
        trigger=row.name,
        workflow=row.workflow,
        version=row.version,
        declared=row.version is not None,
        kind=row.kind.value,
        state=state_of(row),
        overlap=spec.overlap.value,
        next_at=None if is_paused else instant(row.next_at),
        created_at=instant(row.created_at),
        created_by=row.created_by,
        schedule=UNSET if spec.schedule is None else schedule_view(spec.schedule),
        catch_up=UNSET if spec.schedule is None else _catch_up(spec),
        event=UNSET if spec.event is None else spec.event,
        ended=UNSET
        if spec.ended is None
        else EndingView(workflow=spec.ended.workflow, states=[state.value for state in spec.ended.states]),
        condition=UNSET if spec.condition is None else spec.condition,
        with_=UNSET if spec.inputs is None else spec.inputs,
        paused_at=UNSET if row.paused_at is None else instant(row.paused_at),
        paused_by=row.paused_by if is_paused else UNSET,
    )


def state_of(row: TriggerRow) -> State:
    if row.removed_at is not None:
        return "removed"
    return "active" if row.paused_at is None else "paused"


def schedule_view(schedule: Schedule) -> ScheduleView:
    jitter = format_duration(schedule.jitter) if schedule.jitter else UNSET
    if schedule.every is not None:
        return ScheduleView(every=format_duration(schedule.every), jitter=jitter)
    gap, fold = schedule.gap and schedule.gap.value, schedule.fold and schedule.fold.value
    return ScheduleView(cron=schedule.cron, zone=schedule.zone, gap=gap, fold=fold, jitter=jitter)


def _catch_up(spec: TriggerSpec) -> CatchUpView:
    found = spec.catch_up
    return CatchUpView(
        keep=found.keep.value,
        most=found.most if found.keep is Keep.ALL else UNSET,
        window=format_duration(found.window),
        spread=format_duration(found.spread) if found.spread else UNSET,
    )


def coming(row: TriggerRow, spec: TriggerSpec, now: int, count: int) -> list[NextMoment]:
    """The next moments of a schedule, as UTC and as local time, and when each is due with its jitter."""
    if spec.schedule is None:
        return []
    zone = find_zone(spec.schedule.zone)
    found = []
    for moment in islice(moments_after(spec.schedule, now), count):
        local = datetime.fromtimestamp(moment / MICROS, zone).isoformat(timespec="seconds")
        due_at = moment + jitter_of(spec.schedule, owner_of(row), moment)
        found.append(NextMoment(moment=moment_text(moment), local=local, due_at=instant(due_at)))
    return found


def firing_view(firing: Firing, trigger: str | UnsetType = UNSET) -> FiringView:
    return FiringView(
        trigger=trigger,
        moment=firing.moment,
        due_at=instant(firing.due_at),
        state=firing.state.value,
        run_id=firing.run_id,
        reason=firing.reason,
        recorded_at=instant(firing.made_at),
        source=UNSET if firing.source is None else firing.source,
        backfill=UNSET if firing.backfill is None else firing.backfill,
        depth=firing.depth or UNSET,
    )


def backfill_view(job: Backfill, moments: int | UnsetType = UNSET) -> BackfillView:
    return BackfillView(
        backfill=job.id,
        trigger=job.trigger_name,
        state=job.state.value,
        since=moment_text(job.since_at),
        until=moment_text(job.until_at),
        reached=moment_text(job.cursor_at) if job.cursor_at >= job.since_at else None,
        at_once=job.at_once,
        started=job.started,
        fired_before=job.skipped,
        refused=job.refused,
        created_at=instant(job.created_at),
        created_by=job.created_by,
        ended_at=instant(job.ended_at),
        moments=moments,
    )
