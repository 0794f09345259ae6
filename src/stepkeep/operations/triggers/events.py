"""Fires triggers for events: those that come from outside, those that runs emit, and the ends of runs.

The id of an event is the moment of its firings, so that an event that arrives again fires nothing again. A chain of
triggers is bounded: each firing counts the triggers that led to it, run by run. The engine calls `emit`; the relay of
emitted events calls `consume`; sweeps call `endings`.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.errors import ExpressionError, InvalidInput, NotFound
from stepkeep.kernel.triggers import TriggerKind, TriggerSpec
from stepkeep.operations import validate
from stepkeep.operations.instants import instant
from stepkeep.operations.triggers import views
from stepkeep.operations.triggers.firing import MAX_REASON, Caused, Firer, spec_of
from stepkeep.operations.triggers.inputs import holds, input_of
from stepkeep.operations.triggers.manage import fire_once, record_once
from stepkeep.operations.triggers.plan import new_firing, skipped
from stepkeep.sinks.event import OutgoingEvent
from stepkeep.sinks.pattern import matches
from stepkeep.store.triggers import Firing, FiringState, TriggerRow, Watched

MAX_DEPTH = 16
"""How many triggers may lead to one another, run by run. A longer chain is probably a circle."""

LONGEST_MOMENT = 128
ENDINGS_AT_ONCE = 20
FOUND_AT_ONCE = 500
MINUTE = 60 * 1_000_000
LATE, VERY_LATE = 10 * MINUTE, 1440 * MINUTE
"""How much earlier than the last look the ids of new runs may be made: a creation may commit late, and clocks of
programs differ. The second one is used once a minute."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event that may fire triggers. `run` is the run that it comes from."""

    id: str
    name: str
    payload: Any
    at: int
    run: str | None = None
    correlation_id: str | None = None
    facts: dict[str, Any] = {}

    def shown(self) -> dict[str, Any]:
        """What expressions read."""
        plain = {"id": self.id, "name": self.name, "time": instant(self.at), "run": self.run}
        return {**plain, "correlation_id": self.correlation_id, **self.facts, "payload": self.payload}


async def emit(
    firer: Firer,
    name: str,
    payload: Any,
    *,
    tenant: str,
    event_id: str,
    correlation_id: str | None = None,
) -> dict[str, Any]:
    """Take an event from outside: fire every trigger of the tenant that it concerns. One id fires each once."""
    event = Event(
        id=validate.key("the id of the event", event_id),
        name=validate.key("the name of the event", name, 200),
        payload=payload,
        at=await firer.transactor.store.now(),
        correlation_id=None if correlation_id is None else validate.key("the correlation id", correlation_id),
    )
    fired = await fire_for(firer, event, tenant)
    return {
        "event": event.id,
        "name": event.name,
        "firings": [{"trigger": one.trigger_name, **views.firing_view(one)} for one in fired],
    }


async def consume(firer: Firer, outgoing: OutgoingEvent) -> None:
    """Take an event that a run emitted. It returns when every trigger that it concerns has fired."""
    event = Event(
        id=outgoing.id,
        name=outgoing.type,
        payload=msgspec.json.decode(firer.transactor.payloads.seal.opened(outgoing.data)),
        at=outgoing.at,
        run=outgoing.run_id,
        correlation_id=outgoing.correlation_id,
        facts={"workflow": outgoing.workflow},
    )
    await fire_for(firer, event, outgoing.tenant)


async def fire_for(firer: Firer, event: Event, tenant: str) -> list[Firing]:
    """Fire the triggers that an event concerns, one transaction each. What was fired before is returned as it was."""
    found = []
    for row in await firer.transactor.store.triggers.list_of_kind(tenant, TriggerKind.EVENT):
        if row.topic is not None and row.paused_at is None and matches((row.topic,), event.name):
            fired = await _fire(firer, row, event)
            found += [] if fired is None else [fired]
    return found


async def _fire(firer: Firer, row: TriggerRow, event: Event) -> Firing | None:
    """Fire one trigger for an event; None if its condition does not hold, or it was removed meanwhile."""
    spec, moment = spec_of(row), moment_of(event.id)
    depth = await depth_after(firer, row.tenant, event.run)
    try:
        if not holds(row, spec, moment, event.shown()):
            return None
        said = _too_deep(depth)
        given = await firer.kept(input_of(row, spec, moment, event.shown()), event.correlation_id)
    except ExpressionError as problem:
        said, given = str(problem)[:MAX_REASON], None
    try:
        if said:
            return await record_once(firer, row, moment, said, depth=depth, source=event.run)
        return await fire_once(firer, row, moment, Caused(), depth=depth, source=event.run, given=given)
    except NotFound:
        return None


def moment_of(event_id: str) -> str:
    """The moment of an event's firings: its id, or the digest of a long one."""
    return event_id if len(event_id) <= LONGEST_MOMENT else hashlib.sha256(event_id.encode()).hexdigest()


async def depth_after(firer: Firer, tenant: str, source: str | None) -> int:
    """How many triggers led to a firing that this run caused."""
    before = None if source is None else await firer.transactor.store.triggers.find_firing_of(tenant, source)
    return 1 if before is None else before.depth + 1


def _too_deep(depth: int) -> str:
    if depth <= MAX_DEPTH:
        return ""
    return f"chain: {MAX_DEPTH} triggers led here, one after the other. Look for a circle of workflows and events."


# -- ends of runs ------------------------------------------------------------------------------------------------------
class Endings(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep found about the runs that a trigger is about: firings to decide about, and what is only recorded."""

    arrived: tuple[Firing, ...] = ()
    noted: tuple[Firing, ...] = ()
    cursor_at: int | None = None


async def endings(firer: Firer, row: TriggerRow, spec: TriggerSpec, now: int) -> Endings:
    """Find new runs of the topic, which are awaited, and awaited runs that have ended. Runs without such a trigger cost
    nothing: nothing is written when a run ends."""
    if spec.ended is None or row.paused_at is not None or row.removed_at is not None:
        return Endings()
    triggers = firer.transactor.store.triggers
    looked_at = row.cursor_at or 0
    back = LATE if looked_at // MINUTE == now // MINUTE else VERY_LATE
    since = max(row.created_at, looked_at - back)
    unseen = await triggers.find_unseen(row.tenant, row.name, spec.ended.workflow, first_id_at(since), FOUND_AT_ONCE)
    awaited = tuple(
        replace(new_firing(row, run_id, now, now), state=FiringState.AWAITING, source=run_id) for run_id in unseen
    )
    ended = await triggers.read_endings(row.tenant, row.name, ENDINGS_AT_ONCE)
    decided = [await _ended(firer, row, spec, one, now) for one in ended]
    return Endings(
        arrived=tuple(one for one in decided if one.state is FiringState.WAITING),
        noted=(*awaited, *(one for one in decided if one.state is not FiringState.WAITING)),
        cursor_at=row.cursor_at if len(unseen) == FOUND_AT_ONCE else now,
    )


async def _ended(firer: Firer, row: TriggerRow, spec: TriggerSpec, one: Watched, now: int) -> Firing:
    """The firing for a run that has ended: to be decided about, or skipped with the reason."""
    assert spec.ended is not None
    firing = replace(one.firing, due_at=now)
    source = str(firing.source)
    record = await firer.transactor.store.read_run(row.tenant, source)
    if record is None or one.run_state is None:
        return skipped(firing, "the run was deleted before its end was seen")
    if one.run_state not in spec.ended.states:
        return skipped(firing, f"the run has {one.run_state}, which this trigger is not about")
    event = Event(
        id=source,
        name=f"run.{one.run_state}",
        payload=None,
        at=record.run.ended_at or now,
        run=source,
        correlation_id=record.details.correlation_id,
        facts={"workflow": record.details.workflow, "state": one.run_state.value, "error": record.run.error},
    )
    depth = await depth_after(firer, row.tenant, source)
    try:
        if not holds(row, spec, firing.moment, event.shown()):
            return skipped(firing, "the condition does not hold")
        given = input_of(row, spec, firing.moment, event.shown()) if spec.inputs is not None else _about(event)
    except ExpressionError as problem:
        return skipped(firing, str(problem)[:MAX_REASON])
    if said := _too_deep(depth):
        return skipped(firing, said)
    kept = await firer.kept(given, event.correlation_id)
    return replace(firing, state=FiringState.WAITING, given=kept, depth=depth)


def _about(event: Event) -> bytes:
    """The input of a run that another one's end starts, unless the trigger says otherwise."""
    facts = event.facts
    return msgspec.json.encode({"run_id": event.run, "workflow": facts["workflow"], "state": facts["state"]})


def first_id_at(at: int) -> str:
    """An id below those of all runs that were made from this time on: ids begin with their time in milliseconds.

    >>> first_id_at(1_794_900_600_000_000)
    '01a1e869-a4c0-0000-0000-000000000000'
    """
    if at < 0:
        raise InvalidInput("a time before 1970")
    digits = f"{at // 1000:012x}"
    return f"{digits[:8]}-{digits[8:]}-0000-0000-000000000000"
