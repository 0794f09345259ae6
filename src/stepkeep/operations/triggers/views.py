"""Triggers, firings and backfills as callers see them: plain JSON. It reads nothing and decides nothing."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Any

from stepkeep.definition.durations import format_duration
from stepkeep.kernel.triggers import Schedule, TriggerSpec
from stepkeep.operations.instants import instant
from stepkeep.operations.triggers.plan import moment_text, owner_of
from stepkeep.schedules.moments import MICROS, jitter_of, moments_after
from stepkeep.schedules.zones import find_zone
from stepkeep.store.triggers import Backfill, Firing, TriggerRow


def trigger_view(row: TriggerRow, spec: TriggerSpec) -> dict[str, Any]:
    """A trigger. Keys that mean nothing for its kind are left out."""
    view: dict[str, Any] = {
        "trigger": row.name,
        "workflow": row.workflow,
        "version": row.version,
        "declared": row.version is not None,
        "kind": row.kind.value,
        "state": state_of(row),
        "overlap": spec.overlap.value,
        "next_at": None if row.paused_at is not None else instant(row.next_at),
        "created_at": instant(row.created_at),
        "created_by": row.created_by,
    }
    if spec.schedule is not None:
        view |= {"schedule": schedule_view(spec.schedule), "catch_up": _catch_up(spec)}
    if spec.event is not None:
        view["event"] = spec.event
    if spec.ended is not None:
        view["ended"] = {"workflow": spec.ended.workflow, "states": [state.value for state in spec.ended.states]}
    if spec.condition is not None:
        view["condition"] = spec.condition
    if spec.inputs is not None:
        view["with"] = spec.inputs
    if row.paused_at is not None:
        view |= {"paused_at": instant(row.paused_at), "paused_by": row.paused_by}
    return view


def state_of(row: TriggerRow) -> str:
    if row.removed_at is not None:
        return "removed"
    return "active" if row.paused_at is None else "paused"


def schedule_view(schedule: Schedule) -> dict[str, Any]:
    jitter = {"jitter": format_duration(schedule.jitter)} if schedule.jitter else {}
    if schedule.every is not None:
        return {"every": format_duration(schedule.every), **jitter}
    gap, fold = schedule.gap, schedule.fold
    policies = {"gap": gap and gap.value, "fold": fold and fold.value}
    return {"cron": schedule.cron, "zone": schedule.zone, **policies, **jitter}


def _catch_up(spec: TriggerSpec) -> dict[str, Any]:
    found = spec.catch_up
    window = {"window": format_duration(found.window)}
    spread = {"spread": format_duration(found.spread)} if found.spread else {}
    most = {"most": found.most} if found.keep == "all" else {}
    return {"keep": found.keep.value, **most, **window, **spread}


def coming(row: TriggerRow, spec: TriggerSpec, now: int, count: int) -> list[dict[str, Any]]:
    """The next moments of a schedule, as UTC and as local time, and when each is due with its jitter."""
    if spec.schedule is None:
        return []
    zone = find_zone(spec.schedule.zone)
    found = []
    for moment in islice(moments_after(spec.schedule, now), count):
        local = datetime.fromtimestamp(moment / MICROS, zone).isoformat(timespec="seconds")
        due_at = moment + jitter_of(spec.schedule, owner_of(row), moment)
        found.append({"moment": moment_text(moment), "local": local, "due_at": instant(due_at)})
    return found


def firing_view(firing: Firing) -> dict[str, Any]:
    view = {
        "moment": firing.moment,
        "due_at": instant(firing.due_at),
        "state": firing.state.value,
        "run_id": firing.run_id,
        "reason": firing.reason,
        "recorded_at": instant(firing.made_at),
    }
    extras = {"source": firing.source, "backfill": firing.backfill, "depth": firing.depth or None}
    return view | {name: value for name, value in extras.items() if value is not None}


def backfill_view(job: Backfill) -> dict[str, Any]:
    return {
        "backfill": job.id,
        "trigger": job.trigger_name,
        "state": job.state.value,
        "since": moment_text(job.since_at),
        "until": moment_text(job.until_at),
        "reached": moment_text(job.cursor_at) if job.cursor_at >= job.since_at else None,
        "at_once": job.at_once,
        "started": job.started,
        "fired_before": job.skipped,
        "refused": job.refused,
        "created_at": instant(job.created_at),
        "created_by": job.created_by,
        "ended_at": instant(job.ended_at),
    }
