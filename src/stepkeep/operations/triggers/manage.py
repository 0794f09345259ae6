"""Adds, installs, pauses, resumes, fires, backfills and removes triggers, and lists and shows them.

A change reads the trigger, plans its next row and writes it if no other process changed it meanwhile; else it reads
again. Removed triggers keep their row and their firings, so that no moment fires again under the same name. The engine
calls it, and publication calls `install`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from msgspec.structs import replace
from uuid_utils import uuid7

from stepkeep.kernel.definition import Definition
from stepkeep.kernel.errors import Conflict, Contended, InvalidInput, NotFound
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.triggers import TriggerKind, TriggerSpec
from stepkeep.operations import validate
from stepkeep.operations.definitions.publish import find_plan
from stepkeep.operations.delivery.sinks import add_sink
from stepkeep.operations.pipeline.group_commit import MAX_CONFLICT_RETRIES
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.triggers import views
from stepkeep.operations.triggers.endings import leave_out_pause, note_living
from stepkeep.operations.triggers.firing import Caused, Firer, encode_spec, spec_of
from stepkeep.operations.triggers.plan import (
    MOST_COUNTED,
    Planned,
    first_times,
    moment_text,
    new_firing,
    plan_firing,
    skipped,
)
from stepkeep.operations.triggers.views import (
    BackfillView,
    FiringView,
    NextMoments,
    TriggerDetails,
    TriggerList,
    TriggerView,
)
from stepkeep.schedules.moments import moments_after
from stepkeep.sinks.event import MAX_PATTERNS
from stepkeep.sinks.inside import NAME as SINK
from stepkeep.store.rows import (
    Backfill,
    BackfillState,
    Firing,
    FiringState,
    TriggerRow,
)

LONGEST_NAME = 100
MOST_AT_ONCE = 100
MOST_SHOWN = 1000
COUNTED_IN_A_TURN = 500
"""Moments that a backfill counts before other tasks have their turn."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")

Plan = Callable[[TriggerRow | None, int], Planned | None]
"""The next row of a trigger from the present one and the time; None where nothing is to change."""


def trigger_name(value: object) -> str:
    plain = validate.key("the name of a trigger", value, LONGEST_NAME)
    if not _NAME.fullmatch(plain):
        raise InvalidInput(f"the name of a trigger has letters, digits and . _ - /, and begins with one: {plain!a}")
    return plain


# -- read --------------------------------------------------------------------------------------------------------------
async def list_triggers(transactor: Transactor, *, tenant: str) -> TriggerList:
    """The triggers of the tenant, by name."""
    found = await transactor.store.triggers.list_all(tenant, limit=MOST_SHOWN)
    return TriggerList(triggers=[views.trigger_view(row, spec_of(row)) for row in found])


async def show_trigger(transactor: Transactor, name: str, *, tenant: str, firings: int = 20) -> TriggerDetails:
    """One trigger with its next moments, its latest firings and its backfills."""
    row, triggers = await _row(transactor, name, tenant), transactor.store.triggers
    now = await transactor.store.now()
    latest = await triggers.list_firings(tenant, row.name, limit=firings)
    jobs = await triggers.list_backfills(tenant, row.name, limit=20)
    return views.details_view(row, spec_of(row), now, latest, jobs)


async def next_moments(
    transactor: Transactor, name: str, *, tenant: str, count: int = 10, after: int | None = None
) -> NextMoments:
    """The next moments of a schedule, also of one that is paused."""
    row = await _row(transactor, name, tenant)
    spec = spec_of(row)
    if spec.schedule is None:
        raise InvalidInput(f"the trigger {row.name} has no schedule: it is of the kind {row.kind}.")
    since = await transactor.store.now() if after is None else after
    return NextMoments(trigger=row.name, state=views.state_of(row), next=views.coming(row, spec, since, count))


async def _row(transactor: Transactor, name: str, tenant: str) -> TriggerRow:
    row = await transactor.store.triggers.read(tenant, trigger_name(name))
    if row is None or row.removed_at is not None:
        raise NotFound(f"there is no trigger {name}. `stepkeep triggers list` lists what there is.")
    return row


# -- change ------------------------------------------------------------------------------------------------------------
async def add_trigger(firer: Firer, spec: TriggerSpec, workflow: str, *, caller: Caller) -> TriggerView:
    """Add a trigger by hand, or change one that was added by hand. It starts the newest version of the workflow."""
    name = trigger_name(spec.name)
    await find_plan(firer.transactor, workflow, None, tenant=caller.tenant)

    def plan(row: TriggerRow | None, now: int) -> Planned | None:
        is_there = row is not None and row.removed_at is None
        if row is not None and is_there and row.version is not None:
            raise Conflict(f"the trigger {name} belongs to version {row.version} of {row.workflow}: change it there.")
        if row is not None and is_there and (row.workflow, row.spec) == (workflow, encode_spec(spec)):
            return None
        return Planned(row=_renewed(row, spec, workflow, None, caller, now))

    done = await _change(firer, caller.tenant, name, plan)
    if spec.event is not None:
        await listen(firer, caller)
    if spec.ended is not None:
        await note_living(firer, (caller.tenant, name))
    return views.trigger_view(done, spec)


async def listen(firer: Firer, caller: Caller) -> None:
    """Have the relay hand in the events that triggers are about, and no others: runs that emit none of them cost
    nothing more. Looks again after each change, because another process may have added a trigger meanwhile."""
    while True:
        rows = await firer.transactor.store.triggers.list_of_kind(caller.tenant, TriggerKind.EVENT)
        topics = sorted({row.topic for row in rows if row.topic is not None})
        wanted = topics if len(topics) <= MAX_PATTERNS else ["*"]
        known = {one.name: one for one in await firer.transactor.store.deliveries.list_sinks(caller.tenant)}
        if not wanted or (SINK in known and sorted(known[SINK].patterns) == wanted):
            return
        chosen: dict[str, Any] = {"on": wanted, "options": {}, "replace": True}
        await add_sink(firer.transactor, SINK, SINK, **chosen, caller=caller)


async def install(firer: Firer, definition: Definition, *, caller: Caller) -> None:
    """Let the triggers of a workflow be those that its newest published version declares. An older version, published
    or started again, changes nothing. A pause stays."""
    declared = {f"{definition.name}/{spec.name}": spec for spec in definition.declared_triggers}
    triggers = firer.transactor.store.triggers
    there = {
        row.name: row
        for row in await triggers.list_of_workflow(caller.tenant, definition.name)
        if row.version is not None
    }
    if not declared and not there:
        return
    if any(row.version is not None and row.version > definition.version for row in there.values()):
        return
    for name in there.keys() - declared.keys():
        await _change(firer, caller.tenant, name, lambda row, now: _removed(row, now, definition.version))
    for name, spec in declared.items():
        row = there.get(name)
        if row is not None and (row.version, row.spec) == (definition.version, encode_spec(spec)):
            continue

        def plan(row: TriggerRow | None, now: int, spec: TriggerSpec = spec, name: str = name) -> Planned:
            if row is not None and row.version is not None and row.version > definition.version:
                return Planned(row=replace(row, seq=row.seq + 1))
            version = definition.version
            return Planned(row=_renewed(row, spec, definition.name, version, caller, now, name=name))

        await _change(firer, caller.tenant, name, plan)
        if spec.ended is not None:
            await note_living(firer, (caller.tenant, name))
    if any(spec.event is not None for spec in declared.values()):
        await listen(firer, caller)


def _renewed(
    row: TriggerRow | None,
    spec: TriggerSpec,
    workflow: str,
    version: int | None,
    caller: Caller,
    now: int,
    name: str | None = None,
) -> TriggerRow:
    """The row of a trigger as it is declared now. The same schedule keeps its next moment: nothing is missed."""
    topic = spec.event if spec.ended is None else spec.ended.workflow
    encoded = encode_spec(spec)
    if row is None:
        fresh = TriggerRow(
            tenant=caller.tenant,
            name=name or spec.name,
            seq=1,
            workflow=workflow,
            version=version,
            kind=spec.kind,
            topic=topic,
            spec=encoded,
            next_at=None,
            due_at=None,
            cursor_at=now if spec.ended is not None else None,
            paused_at=None,
            paused_by=None,
            created_at=now,
            created_by=caller.actor,
            removed_at=None,
        )
        return first_times(fresh, spec, now)
    was_removed, old = row.removed_at is not None, spec_of(row)
    same = old.schedule == spec.schedule and (row.kind, row.topic) == (spec.kind, topic) and not was_removed
    changed = replace(
        row,
        seq=row.seq + 1,
        workflow=workflow,
        version=version,
        kind=spec.kind,
        topic=topic,
        spec=encoded,
        removed_at=None,
        created_at=now if was_removed else row.created_at,
        created_by=caller.actor,
        cursor_at=None if spec.ended is None else row.cursor_at if same else now,
        paused_at=None if was_removed else row.paused_at,
        paused_by=None if was_removed else row.paused_by,
    )
    return changed if same else first_times(changed, spec, now)


def _removed(row: TriggerRow | None, now: int, newer: int | None = None) -> Planned:
    assert row is not None
    if newer is not None and row.version is not None and row.version > newer:
        return Planned(row=replace(row, seq=row.seq + 1))
    return Planned(row=replace(row, seq=row.seq + 1, removed_at=now, next_at=None, due_at=None))


async def remove_trigger(firer: Firer, name: str, *, tenant: str) -> TriggerView:
    """Remove a trigger that was added by hand. What it started goes on; its firings stay on record."""
    row = await _row(firer.transactor, name, tenant)
    if row.version is not None:
        raise Conflict(
            f"the trigger {row.name} belongs to version {row.version} of {row.workflow}: publish a version without it, "
            "or pause it."
        )

    def plan(row: TriggerRow | None, now: int) -> Planned:
        if row is None or row.removed_at is not None:
            raise NotFound(f"the trigger {name} was removed.")
        return _removed(row, now)

    done = await _change(firer, tenant, row.name, plan)
    return views.trigger_view(done, spec_of(done))


async def pause_trigger(firer: Firer, name: str, *, caller: Caller) -> TriggerView:
    """Let a trigger fire nothing by itself until it is resumed. Moments of the pause are not caught up."""
    await _row(firer.transactor, name, caller.tenant)

    def plan(row: TriggerRow | None, now: int) -> Planned:
        assert row is not None
        if row.paused_at is not None:
            raise Conflict(f"the trigger {row.name} is paused already, by {row.paused_by}.", {"by": row.paused_by})
        # The next sweep finds out whether a backfill goes on.
        return Planned(row=replace(row, seq=row.seq + 1, paused_at=now, paused_by=caller.actor, due_at=now))

    done = await _change(firer, caller.tenant, trigger_name(name), plan)
    return views.trigger_view(done, spec_of(done))


async def resume_trigger(firer: Firer, name: str, *, tenant: str) -> TriggerView:
    """Let a paused trigger fire again, from its next moment on."""
    row = await _row(firer.transactor, name, tenant)
    await leave_out_pause(firer, (tenant, row.name))

    def plan(row: TriggerRow | None, now: int) -> Planned:
        assert row is not None
        if row.paused_at is None:
            raise Conflict(f"the trigger {row.name} is not paused.")
        resumed = replace(row, seq=row.seq + 1, paused_at=None, paused_by=None)
        timed = first_times(resumed, spec_of(row), now)
        # Firings may have waited since before the pause: look at once.
        return Planned(row=replace(timed, due_at=now))

    done = await _change(firer, tenant, trigger_name(name), plan)
    return views.trigger_view(done, spec_of(done))


async def fire_trigger(
    firer: Firer,
    name: str,
    *,
    caller: Caller,
    key: str | None = None,
    payload: Any = None,
) -> FiringView:
    """Fire a trigger by hand, whatever its overlap policy says and also while it is paused. One key fires once."""
    row = await _row(firer.transactor, name, caller.tenant)
    moment = f"hand:{validate.key('the key of the firing', key, 100) if key is not None else uuid7()}"
    event = None if payload is None else {"id": moment, "name": row.topic, "payload": payload}
    done = await fire_once(firer, row, moment, Caused(event=event, caller=caller), forced=True)
    return views.firing_view(done, row.name)


async def fire_once(
    firer: Firer,
    row: TriggerRow,
    moment: str,
    caused: Caused,
    *,
    forced: bool = False,
    depth: int = 0,
    source: str | None = None,
    given: bytes | None = None,
) -> Firing:
    """Fire a trigger for one moment, event or ending; the firing on record if it has fired before."""
    key = (row.tenant, row.name)
    triggers = firer.transactor.store.triggers
    for _ in range(MAX_CONFLICT_RETRIES):
        there = await triggers.read_firings(*key, [moment])
        if there and (there[0].state is not FiringState.AWAITING):
            return there[0]
        now = await firer.transactor.store.now()
        watched = await triggers.read_watched(*key)
        firing = replace(new_firing(row, moment, now, now, depth), source=source, given=given)
        planned = plan_firing(row, spec_of(row), now, watched, firing, forced=forced)
        if await firer.cancel(planned):
            watched = await triggers.read_watched(*key)
            planned = plan_firing(row, spec_of(row), now, watched, firing, forced=forced)
        done = await firer.carry_out(row, planned, lambda one: caused if one.moment == moment else Caused())
        if done is not None:
            return next(one for one in done.firings if one.moment == moment)
        fresh = await triggers.read(*key)
        if fresh is None or fresh.removed_at is not None:
            raise NotFound(f"the trigger {row.name} was removed.")
        row = fresh
    raise Contended(f"the trigger {row.name} is changed by many processes at once: try again")


async def record_once(
    firer: Firer, row: TriggerRow, moment: str, reason: str, *, depth: int = 0, source: str | None = None
) -> Firing:
    """Record that a trigger starts nothing for an event; the firing on record if there is one."""
    for _ in range(MAX_CONFLICT_RETRIES):
        there = await firer.transactor.store.triggers.read_firings(row.tenant, row.name, [moment])
        if there:
            return there[0]
        now = await firer.transactor.store.now()
        firing = skipped(replace(new_firing(row, moment, now, now, depth), source=source), reason)
        if await firer.carry_out(row, Planned(row=replace(row, seq=row.seq + 1), records=(firing,))) is not None:
            return firing
        row = await _row(firer.transactor, row.name, row.tenant)
    raise Contended(f"the trigger {row.name} is changed by many processes at once: try again")


async def _change(firer: Firer, tenant: str, name: str, plan: Plan) -> TriggerRow:
    """Plan the change of a trigger and write it; plan again if another process came first."""
    for _ in range(MAX_CONFLICT_RETRIES):
        row = await firer.transactor.store.triggers.read(tenant, name)
        planned = plan(row, await firer.transactor.store.now())
        if planned is None:
            assert row is not None
            return row
        if await firer.carry_out(row, planned) is not None:
            return planned.row
    raise Contended(f"the trigger {name} is changed by many processes at once: try again")


# -- backfill ----------------------------------------------------------------------------------------------------------
async def backfill(
    firer: Firer,
    name: str,
    *,
    caller: Caller,
    since: int,
    until: int,
    at_once: int = 5,
    dry_run: bool = False,
) -> BackfillView:
    """Fire the moments of a range that have no run: a job that workers carry out in small batches.

    With `dry_run`, nothing is written: the answer says how many moments there are, and the first of them.
    """
    row = await _row(firer.transactor, name, caller.tenant)
    spec = spec_of(row)
    if spec.schedule is None:
        raise InvalidInput(f"the trigger {row.name} has no schedule to fill: it is of the kind {row.kind}.")
    if since >= until:
        raise InvalidInput("a backfill has a range: its beginning is before its end.")
    now = await firer.transactor.store.now()
    if until > now:
        raise InvalidInput("a backfill ends by now: later moments fire by themselves.")
    moments = await moments_before(until, moments_after(spec.schedule, since - 1))
    if len(moments) == MOST_COUNTED:
        raise InvalidInput(f"this range has more than {MOST_COUNTED} moments: fill a shorter one.")
    shown = [moment_text(one) for one in moments[:10]]
    if dry_run:
        return BackfillView(trigger=row.name, dry_run=True, moments=len(moments), first=shown)
    job = Backfill(
        tenant=caller.tenant,
        id=str(uuid7()),
        trigger_name=row.name,
        state=BackfillState.RUNNING,
        since_at=since,
        until_at=until,
        cursor_at=max(0, since - 1),
        at_once=at_once,
        started=0,
        skipped=0,
        refused=0,
        created_at=now,
        created_by=caller.actor,
    )

    def plan(row: TriggerRow | None, now: int) -> Planned:
        assert row is not None
        return Planned(row=replace(row, seq=row.seq + 1, due_at=now), backfill=job)

    await _change(firer, caller.tenant, row.name, plan)
    return views.backfill_view(job, len(moments))


async def moments_before(until: int, moments: Iterator[int]) -> list[int]:
    """The moments before a time, at most `MOST_COUNTED`. Other tasks of the process take turns: a year of minutes
    takes a second to count."""
    found: list[int] = []
    for moment in islice(moments, MOST_COUNTED):
        if moment >= until:
            break
        found.append(moment)
        if len(found) % COUNTED_IN_A_TURN == 0:
            await asyncio.sleep(0)
    return found


async def stop_backfill(firer: Firer, name: str, job_id: str, *, tenant: str) -> BackfillView:
    """End a backfill early. The runs that it has started go on."""
    await _row(firer.transactor, name, tenant)
    triggers = firer.transactor.store.triggers
    for _ in range(MAX_CONFLICT_RETRIES):
        row = await triggers.read(tenant, name)
        found = [one for one in await triggers.list_backfills(tenant, name) if one.id == job_id]
        if row is None or not found:
            raise NotFound(f"the trigger {name} has no backfill {job_id}.")
        [job] = found
        if job.state is not BackfillState.RUNNING:
            raise Conflict(f"the backfill {job_id} is {job.state} already.")
        now = await firer.transactor.store.now()
        stopped = replace(job, state=BackfillState.STOPPED, ended_at=now)
        if await firer.carry_out(row, Planned(row=replace(row, seq=row.seq + 1), backfill=stopped)) is not None:
            return views.backfill_view(stopped)
    raise Contended(f"the trigger {name} is changed by many processes at once: try again")
