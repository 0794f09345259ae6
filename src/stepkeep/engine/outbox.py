"""Events that are not delivered yet: `engine.outbox`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from stepkeep.edges.safe_text import inert_line, type_name
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.engine.sinks import SinkName
from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.operations import validate
from stepkeep.operations.access import OPERATE, READ, WORKS
from stepkeep.operations.answers import says
from stepkeep.operations.delivery import outbox, sinks
from stepkeep.operations.delivery.declared_hooks import Selection
from stepkeep.operations.delivery.outbox import (
    DeliveryDetails,
    DeliveryList,
    DroppedEvent,
    OutboxStatus,
    Redriven,
    SinkActions,
    Undelivered,
)
from stepkeep.operations.delivery.outgoing import pending
from stepkeep.operations.operation import RUN_ID, Actor, Cursor, Limit, Name, RunId, group, operation
from stepkeep.operations.typed import InPython
from stepkeep.sinks.event import OutgoingEvent
from stepkeep.sinks.interface import MAX_REASON
from stepkeep.sinks.registry import kind_of
from stepkeep.store.deliveries import Report
from stepkeep.worker.chores.relay import MAX_ATTEMPTS, backoff_us

MOST_TAKEN = 1000
LONGEST_LEASE = 3600

Runs = Annotated[int, Meta(ge=1, le=MOST_TAKEN)]
Seconds = Annotated[float, Meta(ge=1, le=LONGEST_LEASE)]
Reason = Annotated[str, InPython(Annotated[str, Meta(min_length=1, max_length=4000)])]
TakenEvent = Annotated[OutgoingEvent | None, InPython(Any)]


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """Events of one run that a host program has taken, in order, and until when it holds them.

    Nobody else gets them while the lease lasts. Acknowledge them, or they are given out again.
    """

    run_id: str
    sink: str
    events: tuple[OutgoingEvent, ...]
    fence: int
    attempts: int
    from_: tuple[int, int]
    upto: tuple[int, int]


WhatWasTaken = Annotated[Taken, InPython(Any)]


@group("outbox", "Outbox")
class AsyncOutbox(AsyncGroup):
    """What was not delivered yet: to look at, to send again, to give up; and to take, for a host that relays itself.

    >>> engine.outbox.status().sinks
    []
    """

    @operation(
        READ,
        "GET /outbox",
        "list_outbox",
        "List runs with events that are not delivered",
        names={"after": "cursor"},
        pages="deliveries",
        agents="reads",
    )
    async def list(
        self,
        *,
        state: Undelivered | None = None,
        sink: Annotated[Name | None, says("Of one sink.")] = None,
        run_id: Annotated[Name | None, says("Every sink of one run.")] = None,
        after: Cursor = None,
        limit: Limit = 100,
    ) -> DeliveryList:
        """Runs with events that are not delivered, by sink and run. `state` is `ready`, `sending` or `dead`.

        >>> engine.outbox.list(state="dead").deliveries
        []
        """
        return await outbox.list_deliveries(
            self._transactor, tenant=self._tenant, state=state, sink=sink, run_id=run_id, after=after, limit=limit
        )

    @operation(
        READ,
        "GET /runs/{run_id}/outbox/{name}",
        "get_delivery",
        "Show what a run has for a sink",
        names={"sink": "name"},
        agents="reads",
    )
    async def show(self, run_id: RunId, sink: SinkName) -> DeliveryDetails:
        """What one run has for one sink: the events that are not delivered, and what people did.

        >>> _ = engine.sinks.add("ends", "host", events=["endings"])
        >>> ended = engine.run(hello, {"name": "Ada"})
        >>> engine.outbox.show(ended.run_id, "ends").events[0].type
        'run.succeeded'
        """
        return await outbox.show_delivery(self._transactor, run_id, sink, tenant=self._tenant)

    @operation(
        OPERATE,
        "POST /outbox/redrive",
        "redrive_outbox",
        "Send dead events again",
        example={"sink": "orders", "reason": "the receiver is back"},
    )
    async def redrive(
        self,
        *,
        run_id: Annotated[Name | None, says("Those of one run.")] = None,
        sink: Annotated[Name | None, says("Those of one sink.")] = None,
        reason: Reason,
        by: Actor = None,
    ) -> Redriven:
        """Send dead events again: of one run, of one sink, or of both. They keep their order.

        >>> try:
        ...     engine.outbox.redrive(sink="orders", reason="the receiver is back")
        ... except sk.NotFound as problem:
        ...     print(str(problem).partition(".")[0])
        no delivery of these is dead
        """
        return await outbox.redrive(self._transactor, caller=self._caller(by), reason=reason, run_id=run_id, sink=sink)

    @operation(
        OPERATE,
        "POST /runs/{run_id}/outbox/{name}/drop",
        "drop_event",
        "Give up a dead event",
        names={"sink": "name"},
        example={"event": f"{RUN_ID}/3/0", "reason": "known to them"},
    )
    async def drop(
        self,
        run_id: RunId,
        sink: SinkName,
        event: Annotated[Name, says("The id of the event.")],
        *,
        reason: Reason,
        by: Actor = None,
    ) -> DroppedEvent:
        """Give up the dead event of a run and sink for good; the ones after it are sent.

        >>> _ = engine.sinks.add("ends", "host", events=["endings"])
        >>> ended = engine.run(hello, {"name": "Ada"})
        >>> try:
        ...     engine.outbox.drop(ended.run_id, "ends", f"{ended.run_id}/9/0", reason="not needed")
        ... except sk.Conflict as problem:
        ...     print(str(problem).rpartition("; ")[2])
        only a dead event can be dropped.
        """
        return await outbox.drop(self._transactor, run_id, sink, event, caller=self._caller(by), reason=reason)

    @operation(READ, "GET /outbox/status", "get_outbox_status", "How far is each sink behind?", agents="reads")
    async def status(self) -> OutboxStatus:
        """How far each sink is behind.

        >>> _ = engine.sinks.add("ends", "host", events=["endings"])
        >>> engine.outbox.status().sinks
        [SinkLag(sink='ends', waiting=0, dead=0, lag_seconds=0.0)]
        """
        return await outbox.status(self._transactor, tenant=self._tenant)

    @operation(READ, "GET /outbox/history", "get_outbox_history", "What people did to sinks and events")
    async def history(self, *, limit: Limit = 100) -> SinkActions:
        """What people did to sinks and deliveries, newest first.

        >>> _ = engine.sinks.add("ends", "host")
        >>> engine.outbox.history().actions[0].action
        'sink_added'
        """
        return await outbox.history(self._transactor, tenant=self._tenant, limit=limit)

    @operation(WORKS)
    async def take(self, sink: Name, *, limit: Runs = 100, lease: Seconds = 60.0) -> tuple[Taken, ...]:
        """Take due events of a sink of kind `host`, of up to `limit` runs, for `lease` seconds.

        Nobody else gets them meanwhile. What is not acknowledged by then is given out again, in the same order.
        `engine.outbox("ends")` does the same.

        >>> _ = engine.sinks.add("ends", "host", events=["endings"])
        >>> _ = engine.run(hello, {"name": "Ada"})
        >>> [taken] = engine.outbox.take("ends")
        >>> taken.events[0].type, engine.outbox.ack(taken)
        ('run.succeeded', True)
        """
        lease_us = int(lease * 1_000_000)
        store, name = self._transactor.store.deliveries, sinks.sink_name(sink)
        row = next((one for one in await store.list_sinks(self._tenant) if one.name == name), None)
        if row is None:
            raise NotFound(f"there is no sink {name}. Add it: engine.sinks.add({name!r}, 'host')")
        if kind_of(row.kind).is_relayed:
            raise InvalidInput(f"the sink {name} is relayed by workers; only one of kind host is taken from.")
        taken = []
        for cursor in await store.claim(self._tenant, [(name, limit)], self.access.actor, lease_us):
            found = await pending(self._transactor, cursor, Selection(row.patterns))
            one = Taken(
                run_id=cursor.run_id,
                sink=name,
                events=tuple(found.events),
                fence=cursor.fence,
                attempts=cursor.attempts,
                from_=(cursor.sent, cursor.sent_number),
                upto=found.upto,
            )
            if one.events:
                taken.append(one)
            else:
                await store.report([_report(self._tenant, one, found.upto)])
        return tuple(taken)

    @operation(WORKS)
    async def ack(self, taken: WhatWasTaken, event: TakenEvent = None) -> bool:
        """Acknowledge all events that were taken, or those up to `event`; the rest is due again.

        Returns False if the lease ended and another program has taken them: they may be delivered twice.

        >>> _ = engine.sinks.add("ends", "host", events=["endings"])
        >>> _ = engine.run(hello, {"name": "Ada"})
        >>> [taken] = engine.outbox("ends")
        >>> engine.outbox.ack(taken, taken.events[0])
        True
        """
        place = _checked(taken).upto if event is None else _place_in(taken, event)
        [accepted] = await self._transactor.store.deliveries.report([_report(self._tenant, taken, place)])
        return accepted

    @operation(WORKS)
    async def fail(self, taken: WhatWasTaken, error: str, event: TakenEvent = None) -> bool:
        """Say that an event could not be delivered: the first one, or `event`; those before it are acknowledged.

        It is due again after a pause that doubles, and dead after ten attempts.

        >>> _ = engine.sinks.add("ends", "host", events=["endings"])
        >>> ended = engine.run(hello, {"name": "Ada"})
        >>> [taken] = engine.outbox("ends")
        >>> engine.outbox.fail(taken, "the receiver is down")
        True
        >>> engine.outbox.show(ended.run_id, "ends").delivery.attempts
        1
        """
        failed = _checked(taken).events[0] if event is None else _event(event)
        at = next((place for place, one in enumerate(taken.events) if one.id == failed.id), None)
        if at is None:
            raise InvalidInput("fail: the event is not one of those that were taken.")
        before = taken.from_ if at == 0 else (taken.events[at - 1].seq, taken.events[at - 1].number)
        attempts = (taken.attempts if at == 0 else 0) + 1
        report = msgspec.structs.replace(
            _report(self._tenant, taken, before),
            attempts=attempts,
            retry_us=backoff_us(attempts),
            is_dead=attempts >= MAX_ATTEMPTS,
            error=inert_line(validate.words("fail: error", error))[:MAX_REASON],
        )
        [accepted] = await self._transactor.store.deliveries.report([report])
        return accepted

    async def __call__(self, sink: str, *, limit: int = 100, lease: float = 60.0) -> tuple[Taken, ...]:
        """The same as `take`."""
        return await self.take(sink, limit=limit, lease=lease)


class Outbox(Blocking[AsyncOutbox]):
    list, show, redrive = blocking(AsyncOutbox.list), blocking(AsyncOutbox.show), blocking(AsyncOutbox.redrive)
    drop, status, history = blocking(AsyncOutbox.drop), blocking(AsyncOutbox.status), blocking(AsyncOutbox.history)
    take, ack, fail = blocking(AsyncOutbox.take), blocking(AsyncOutbox.ack), blocking(AsyncOutbox.fail)
    __call__ = blocking(AsyncOutbox.__call__)


def _checked(taken: object) -> Taken:
    if not isinstance(taken, Taken):
        raise InvalidInput("ack and fail take what `take` returned.")
    return taken


def _event(event: object) -> OutgoingEvent:
    if not isinstance(event, OutgoingEvent):
        raise InvalidInput(f"ack and fail take an event of what was taken, and not {type_name(event)}.")
    return event


def _place_in(taken: Taken, event: OutgoingEvent) -> tuple[int, int]:
    if _event(event).id not in [one.id for one in _checked(taken).events]:
        raise InvalidInput("ack: the event is not one of those that were taken.")
    is_last = event.id == taken.events[-1].id
    return taken.upto if is_last else (event.seq, event.number)


def _report(tenant: str, taken: Taken, place: tuple[int, int]) -> Report:
    return Report(
        tenant=tenant, run_id=taken.run_id, sink=taken.sink, fence=taken.fence, sent=place[0], sent_number=place[1]
    )
