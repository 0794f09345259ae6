"""What people see and do of deliveries: list, show, redrive, drop, status. A redrive and a drop stay on record.

The state of a single event is derived from its cursor. It sends nothing. Engines and the command line call it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from stepkeep.kernel.errors import Conflict, InvalidInput, NotFound
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations import validate
from stepkeep.operations.answers import Answer
from stepkeep.operations.delivery.declared_hooks import Selection, hook_sink
from stepkeep.operations.delivery.outgoing import Place, pending
from stepkeep.operations.delivery.sinks import sources_of
from stepkeep.operations.instants import instant
from stepkeep.operations.pipeline.group_commit import again_if_contended
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.sinks.event import OutgoingEvent
from stepkeep.store.deliveries import HOOK, RUN_WEBHOOK, WHOLE, Action, DeliveryState, state_of, worker_of
from stepkeep.store.protocol import EVENTS_READY, Notification
from stepkeep.store.rows import Delivery

PAGE = 1000
Undelivered = Literal["ready", "sending", "dead"]
"""The state of a delivery that is not all sent."""


class DeliveredTo(Answer, kw_only=True):
    """An entry of a run's journal, and the event of it; null for all of them."""

    seq: int
    number: int | None


class DeliveryView(Answer, kw_only=True):
    """How far one run is with one sink. A sink of workers has `worker`."""

    run: str
    worker: str | None
    sink: str
    state: str
    events: list[str]
    delivered: DeliveredTo
    last_seq: int
    attempts: int
    ready_at: str | None
    lease_until: str | None
    held_by: str | None
    dead_at: str | None
    error: str | None


class DeliveryList(Answer, kw_only=True):
    """Runs with events that are not delivered, by sink and run."""

    deliveries: list[DeliveryView]
    next: str | None


class UndeliveredEvent(Answer, kw_only=True):
    """An event that its sink has not got."""

    id: str
    type: str
    source: str
    at: str
    state: str
    data: Any


class SinkAction(Answer, kw_only=True):
    """What a person did to a sink or an event."""

    at: str
    actor: str
    action: str
    sink: str
    run: str | None
    event: str | None
    reason: str


class DeliveryDetails(Answer, kw_only=True):
    """One run and sink: what is not delivered, and what people did."""

    delivery: DeliveryView
    events: list[UndeliveredEvent]
    actions: list[SinkAction]


class RedrivenRun(Answer, kw_only=True):
    """A run and a sink that its events are sent to again."""

    run: str
    sink: str


class Redriven(Answer, kw_only=True):
    """What is sent again."""

    redriven: list[RedrivenRun]


class DroppedEvent(Answer, kw_only=True):
    """What was given up."""

    dropped: str
    sink: str


class SinkLag(Answer, kw_only=True):
    """How far a sink is behind."""

    sink: str
    waiting: int
    dead: int
    lag_seconds: float


class OutboxStatus(Answer, kw_only=True):
    """How far each sink is behind."""

    sinks: list[SinkLag]


class SinkActions(Answer, kw_only=True):
    """What people did, newest first."""

    actions: list[SinkAction]


async def list_deliveries(
    transactor: Transactor,
    *,
    tenant: str,
    state: Undelivered | None = None,
    sink: str | None = None,
    run_id: str | None = None,
    after: str | None = None,
    limit: int = 100,
) -> DeliveryList:
    """Runs with events that are not delivered, by sink and run. With `run_id`, every sink of that run, also those that
    have it all."""
    store, now = transactor.store.deliveries, await transactor.store.now()
    name = "" if sink is None else validate.key("the sink", sink)
    if run_id is not None:
        cursors = await store.read_cursors(tenant, validate.run_id(run_id))
        found = [one for one in cursors if name in ("", one.sink)]
        page = found
    else:
        dead = state == "dead"
        page = await store.list_cursors(tenant, sink=name, dead=dead, after=_after(after), limit=limit)
        found = page
    listed = [view(one, now) for one in found if state is None or state_of(one, now) == state]
    more = None if run_id is not None or len(page) < limit else f"{page[-1].sink}/{page[-1].run_id}"
    return DeliveryList(deliveries=listed, next=more)


def _after(text: str | None) -> tuple[str, str]:
    if text is None:
        return ("", "")
    sink, slash, run_id = validate.key("`after`", text).rpartition("/")
    if not slash:
        raise InvalidInput("`after` is what the page before gave as `next`: SINK/RUN.")
    return (sink, validate.run_id(run_id))


def view(cursor: Delivery, now: int) -> DeliveryView:
    state, number = state_of(cursor, now), None if cursor.sent_number == WHOLE else cursor.sent_number
    return DeliveryView(
        run=cursor.run_id,
        worker=worker_of(cursor),
        sink=cursor.sink,
        state=state.value,
        events=sources_of(cursor.takes),
        delivered=DeliveredTo(seq=cursor.sent, number=number),
        last_seq=cursor.last,
        attempts=cursor.attempts,
        ready_at=instant(cursor.ready_at),
        lease_until=instant(cursor.lease_until),
        held_by=cursor.holder if state is DeliveryState.SENDING else None,
        dead_at=instant(cursor.dead_at),
        error=cursor.error,
    )


async def show_delivery(transactor: Transactor, run_id: str, sink: str, *, tenant: str) -> DeliveryDetails:
    """One run and sink: the cursor, the events that are not delivered with their states, and what people did."""
    cursor = await _cursor(transactor, run_id, sink, tenant)
    now = await transactor.store.now()
    events = await waiting(transactor, cursor)
    state = state_of(cursor, now)
    actions = await transactor.store.deliveries.read_actions(tenant, cursor.run_id)
    return DeliveryDetails(
        delivery=view(cursor, now),
        events=[
            UndeliveredEvent(
                id=event.id,
                type=event.type,
                source=event.source.value,
                at=instant(event.at),
                state=(state if place == 0 else DeliveryState.READY).value,
                data=msgspec.json.decode(event.data),
            )
            for place, event in enumerate(events)
        ],
        actions=[action_view(one) for one in actions if one.sink == cursor.sink],
    )


def action_view(one: Action) -> SinkAction:
    return SinkAction(
        at=instant(one.at),
        actor=one.actor,
        action=one.action,
        sink=one.sink,
        run=one.run_id,
        event=None if one.seq is None else f"{one.run_id}/{one.seq}/{one.number}",
        reason=one.reason,
    )


async def waiting(transactor: Transactor, cursor: Delivery) -> list[OutgoingEvent]:
    """The events that a cursor has not delivered, as its sink would get them."""
    which = Selection()
    if cursor.sink.startswith(HOOK):
        hook = await hook_sink(transactor, cursor.tenant, cursor.sink)
        which = which if hook is None else hook[1]
    elif cursor.sink != RUN_WEBHOOK:
        rows = await transactor.store.deliveries.list_sinks(cursor.tenant)
        which = next((Selection(one.patterns) for one in rows if one.name == cursor.sink), which)
    return (await pending(transactor, cursor, which)).events


async def redrive(
    transactor: Transactor, *, caller: Caller, reason: str, run_id: str | None = None, sink: str | None = None
) -> Redriven:
    """Send dead events again: of one run, of one sink, or of both. Order is kept, and nothing is passed over."""
    if run_id is None and sink is None:
        raise InvalidInput("say what is sent again: a run, a sink, or both")
    said = _reason(reason)
    store = transactor.store.deliveries
    redriven = []
    for cursor in await _dead(transactor, caller.tenant, run_id, sink):
        action = _action(cursor, caller.actor, "redriven", said, await _first(transactor, cursor))
        if await again_if_contended(lambda action=action: store.redrive(action)):  # type: ignore[misc]
            redriven.append(RedrivenRun(run=cursor.run_id, sink=cursor.sink))
    _wake_relays(transactor)
    if not redriven:
        raise NotFound("no delivery of these is dead. `stepkeep outbox list --state dead` shows those that are.")
    return Redriven(redriven=redriven)


async def drop(
    transactor: Transactor, run_id: str, sink: str, event: str, *, caller: Caller, reason: str
) -> DroppedEvent:
    """Give up the one dead event of a run and sink for good; those after it are sent."""
    said = _reason(reason)
    cursor = await _cursor(transactor, run_id, sink, caller.tenant)
    place = await _first(transactor, cursor)
    if cursor.dead_at is None or place is None:
        raise Conflict(f"nothing that run {run_id} has for {sink} is dead; only a dead event can be dropped.")
    named = f"{cursor.run_id}/{place[0]}/{place[1]}"
    if validate.key("the id of the event", event) != named:
        raise Conflict(f"the dead event of run {run_id} for {sink} is {named}, and not {event}.")
    action = _action(cursor, caller.actor, "dropped", said, place)
    if not await again_if_contended(lambda: transactor.store.deliveries.drop(action)):
        raise Conflict(f"the event {named} is not dead any more: it was dropped or sent again meanwhile.")
    _wake_relays(transactor)
    return DroppedEvent(dropped=named, sink=cursor.sink)


def _wake_relays(transactor: Transactor) -> None:
    transactor.store.notifier.publish(Notification(frozenset({EVENTS_READY})))


async def status(transactor: Transactor, *, tenant: str) -> OutboxStatus:
    """How far each sink is behind: runs that wait, runs that are dead, and for how long the oldest has been due."""
    now = await transactor.store.now()
    rows = [
        SinkLag(
            sink=one.sink,
            waiting=one.waiting,
            dead=one.dead,
            lag_seconds=0.0 if one.oldest_at is None else round(max(0, now - one.oldest_at) / 1_000_000, 3),
        )
        for one in await transactor.store.deliveries.count_cursors(tenant)
    ]
    known = {row.sink for row in rows}
    rows += [
        SinkLag(sink=sink.name, waiting=0, dead=0, lag_seconds=0.0)
        for sink in await transactor.store.deliveries.list_sinks(tenant)
        if sink.name not in known
    ]
    return OutboxStatus(sinks=sorted(rows, key=lambda row: row.sink))


async def history(transactor: Transactor, *, tenant: str, limit: int = 100) -> SinkActions:
    """What people did to sinks and deliveries, newest first."""
    found = await transactor.store.deliveries.read_actions(tenant, None, limit)
    return SinkActions(actions=[action_view(one) for one in found])


async def _cursor(transactor: Transactor, run_id: str, sink: str, tenant: str) -> Delivery:
    run_id, sink = validate.run_id(run_id), validate.key("the sink", sink)
    for cursor in await transactor.store.deliveries.read_cursors(tenant, run_id):
        if cursor.sink == sink:
            return cursor
    raise NotFound(f"run {run_id} has nothing for a sink {sink}.")


async def _dead(transactor: Transactor, tenant: str, run_id: str | None, sink: str | None) -> list[Delivery]:
    store, name = transactor.store.deliveries, "" if sink is None else validate.key("the sink", sink)
    if run_id is not None:
        cursors = await store.read_cursors(tenant, validate.run_id(run_id))
        return [one for one in cursors if one.dead_at is not None and name in ("", one.sink)]
    found: list[Delivery] = []
    after = ("", "")
    while page := await store.list_cursors(tenant, sink=name, dead=True, after=after, limit=PAGE):
        found += page
        after = (page[-1].sink, page[-1].run_id)
    return found


async def _first(transactor: Transactor, cursor: Delivery) -> Place | None:
    """The place of the first event that is not delivered."""
    events = await waiting(transactor, cursor)
    return (events[0].seq, events[0].number) if events else None


def _action(cursor: Delivery, actor: str, what: str, reason: str, place: Place | None) -> Action:
    seq, number = place or (None, None)
    return Action(
        tenant=cursor.tenant,
        at=0,
        actor=validate.key("the actor", actor),
        action=what,
        sink=cursor.sink,
        run_id=cursor.run_id,
        seq=seq,
        number=number,
        reason=reason,
    )


def _reason(reason: str) -> str:
    said = validate.words("the reason", reason)
    if not said.strip():
        raise InvalidInput("a reason is needed: it stays on record. --reason TEXT")
    return said
