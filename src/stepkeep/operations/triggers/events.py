"""Fires triggers for events: those that come from outside, and those that runs emit.

The id of an event is the moment of its firings, so that an event that arrives again fires nothing again. A chain of
triggers is bounded: each firing counts the triggers that led to it, run by run. The engine calls `emit`; the relay of
emitted events calls `consume`.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from stepkeep.kernel.decide.decision import asked_names, requesters_of
from stepkeep.kernel.errors import ExpressionError, NotFound
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.triggers import TriggerKind
from stepkeep.operations import validate
from stepkeep.operations.triggers.chain import depth_after, too_deep
from stepkeep.operations.triggers.firing import MAX_REASON, Caused, Firer, OutsideEvent, spec_of
from stepkeep.operations.triggers.inputs import holds, input_of
from stepkeep.operations.triggers.manage import fire_once, record_once
from stepkeep.operations.triggers.views import Emitted, firing_view
from stepkeep.sinks.event import OutgoingEvent, matches
from stepkeep.store.rows import Firing, TriggerRow

LONGEST_MOMENT = 128

FORGOTTEN = "the run that emitted the event was deleted, and its requesters with it"
"""Why an event starts nothing: the people who may not approve what it starts are not known."""


async def emit(
    firer: Firer,
    name: str,
    payload: Any,
    *,
    caller: Caller,
    event_id: str,
    correlation_id: str | None = None,
) -> Emitted:
    """Take an event from outside: fire every trigger of the tenant that it concerns. One id fires each once. The person
    who hands it in asks for the runs that it starts."""
    event = OutsideEvent(
        id=validate.key("the id of the event", event_id),
        name=validate.key("the name of the event", name, 200),
        payload=payload,
        at=await firer.transactor.store.now(),
        correlation_id=None if correlation_id is None else validate.key("the correlation id", correlation_id),
        asked=(caller.actor,),
    )
    fired = [firing_view(one, one.trigger_name) for one in await fire_for(firer, event, caller.tenant)]
    return Emitted(event=event.id, name=event.name, firings=fired)


async def consume(firer: Firer, outgoing: OutgoingEvent) -> None:
    """Take an event that a run emitted. It returns when every trigger that it concerns has fired. The requesters of
    that run ask for those that it starts."""
    source = await firer.transactor.store.read_run(outgoing.tenant, outgoing.run_id)
    event = OutsideEvent(
        id=outgoing.id,
        name=outgoing.type,
        payload=msgspec.json.decode(firer.transactor.payloads.seal.opened(outgoing.data)),
        at=outgoing.at,
        run=outgoing.run_id,
        correlation_id=outgoing.correlation_id,
        facts={"workflow": outgoing.workflow},
        asked=None if source is None else asked_names(requesters_of(source.details)),
    )
    await fire_for(firer, event, outgoing.tenant)


async def fire_for(firer: Firer, event: OutsideEvent, tenant: str) -> list[Firing]:
    """Fire the triggers that an event concerns, one transaction each. What was fired before is returned as it was."""
    found = []
    for row in await firer.transactor.store.triggers.list_of_kind(tenant, TriggerKind.EVENT):
        if row.topic is not None and row.paused_at is None and matches((row.topic,), event.name):
            fired = await _fire(firer, row, event)
            found += [] if fired is None else [fired]
    return found


async def _fire(firer: Firer, row: TriggerRow, event: OutsideEvent) -> Firing | None:
    """Fire one trigger for an event; None if its condition does not hold, or it was removed meanwhile."""
    spec, moment = spec_of(row), moment_of(event.id)
    depth = await depth_after(firer, row.tenant, event.run)
    try:
        if not holds(row, spec, moment, event.shown()):
            return None
        said = too_deep(depth) or (FORGOTTEN if event.asked is None else "")
        given = await firer.kept(row, input_of(row, spec, moment, event.shown()), event)
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
