"""The events of a run for a sink, in order: what its steps emitted, and what its journal says.

Everything here is derived from rows that never change, so that an event has the same id and the same content however
often it is made. It changes nothing and sends nothing. The relay and the commands of the outbox call it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from stepkeep.dialects.registry import dialect as dialect_named
from stepkeep.dialects.registry import names as dialect_names
from stepkeep.errors import NotFound
from stepkeep.kernel.journal import RUN_ENTITY, SealedEntry, open_entry
from stepkeep.kernel.plan import Plan
from stepkeep.kernel.rows import Details, OutboxEntry
from stepkeep.kernel.states import RUN_TERMINAL
from stepkeep.operations.declared_hooks import Selection
from stepkeep.operations.lines import severity_of
from stepkeep.operations.log import lines_of
from stepkeep.operations.plans import plan_for
from stepkeep.operations.transact import Transactor
from stepkeep.operations.views import read_snapshot, view_of
from stepkeep.sinks.event import OutgoingEvent, Source
from stepkeep.store.deliveries import WHOLE, Takes, worker_of
from stepkeep.store.delivery_rows import Delivery
from stepkeep.store.records import WholeRun

PAGE = 100
"""How many events are read for one claim of a cursor."""

FIRST_OF_DIALECT, FIRST_TRANSITION, ENDING = 100_000, 200_000, 300_000
"""The numbers of derived events. A journal entry emits at most 1,000 events by itself, so that ids never meet."""

_encode = msgspec.json.Encoder().encode

Place = tuple[int, int]
"""(journal sequence, number)."""


class Pending(msgspec.Struct, frozen=True):
    """The next events for a sink, and up to where the cursor may go when all of them are delivered."""

    events: list[OutgoingEvent]
    upto: Place


async def pending(transactor: Transactor, cursor: Delivery, which: Selection, limit: int = PAGE) -> Pending:
    """What a cursor has to deliver next. Raises Unreadable or PayloadSealed where the run cannot be read here."""
    after = (cursor.sent, cursor.sent_number)
    if (worker := worker_of(cursor)) is not None:
        found, upto = await _of_worker(transactor, cursor, worker, limit)
    elif cursor.takes == Takes.EMITTED:
        found, upto = await _emitted(transactor, cursor, after, limit)
    else:
        found, upto = await _derived(transactor, cursor, after)
    wanted = [event for event in found if which.takes(event)]
    if len(wanted) > limit:
        last = wanted[limit - 1]
        return Pending(wanted[:limit], (last.seq, last.number))
    return Pending(wanted, upto)


async def _of_worker(
    transactor: Transactor, cursor: Delivery, worker: str, limit: int
) -> tuple[list[OutgoingEvent], Place]:
    """Transitions of a worker, from its journal."""
    after = cursor.sent if cursor.sent_number == WHOLE else cursor.sent - 1
    entries = await transactor.store.deliveries.read_worker_entries(cursor.tenant, worker, after, limit)
    found = [event for entry in entries for event in _worker_events(cursor, worker, entry)]
    ordered = [event for event in found if (event.seq, event.number) > (cursor.sent, cursor.sent_number)]
    last = entries[-1].seq if len(entries) == limit else max(cursor.last, *(entry.seq for entry in entries), 0)
    return ordered, (last, WHOLE)


def _worker_events(cursor: Delivery, worker: str, sealed: SealedEntry) -> Iterator[OutgoingEvent]:
    for number, hop in enumerate(open_entry(sealed.body).hops):
        data = {"worker": worker, "from": hop.source, "to": hop.target, "trigger": hop.trigger}
        yield OutgoingEvent(
            tenant=cursor.tenant,
            run_id=cursor.run_id,
            seq=sealed.seq,
            number=number,
            type=f"worker.{hop.target}",
            source=Source.WORKERS,
            at=sealed.at,
            data=_encode(data | {"severity": severity_of("worker", hop)}),
            workflow="",
            version=0,
            correlation_id="",
            worker=worker,
        )


async def _emitted(
    transactor: Transactor, cursor: Delivery, after: Place, limit: int
) -> tuple[list[OutgoingEvent], Place]:
    key = (cursor.tenant, cursor.run_id)
    entries = await transactor.store.deliveries.read_entries(*key, after, limit)
    details = (await transactor.store.read_details([key])).get(key) if entries else None
    found = [] if details is None else [await _sent_by_a_step(transactor, details, entry) for entry in entries]
    if len(entries) == limit:
        return found, (entries[-1].seq, entries[-1].number)
    return found, (max(cursor.last, *(entry.seq for entry in entries), 0), WHOLE)


async def _sent_by_a_step(transactor: Transactor, details: Details, entry: OutboxEntry) -> OutgoingEvent:
    data = await transactor.payloads.value(entry.tenant, entry.run_id, entry.payload)
    return _event(details, entry.seq, entry.number, entry.name, Source.EMITTED, entry.created_at, data)


def _event(
    details: Details,
    seq: int,
    number: int,
    name: str,
    source: Source,
    at: int,
    data: bytes,
    more: Mapping[str, str] = {},
    step: str | None = None,
) -> OutgoingEvent:
    return OutgoingEvent(
        tenant=details.tenant,
        run_id=details.run_id,
        seq=seq,
        number=number,
        type=name,
        source=source,
        at=at,
        data=data,
        workflow=details.workflow,
        version=details.version,
        correlation_id=details.correlation_id,
        extensions=more,
        step=step,
    )


async def _derived(transactor: Transactor, cursor: Delivery, after: Place) -> tuple[list[OutgoingEvent], Place]:
    try:
        whole = await read_snapshot(transactor, cursor.run_id, tenant=cursor.tenant, with_messages=True)
    except NotFound:
        return [], (cursor.last, WHOLE)
    plan, details, takes = await plan_for(transactor, whole.record.run), whole.record.details, cursor.takes
    found: list[OutgoingEvent] = []
    if takes & Takes.EMITTED:
        found += [await _sent_by_a_step(transactor, details, entry) for entry in whole.outbox]
    if takes & Takes.DIALECT:
        found += await dialect_events(transactor, whole, plan, after[0])
    if takes & Takes.TRANSITIONS:
        found += _transitions(whole, plan)
    if takes & Takes.ENDINGS and not takes & Takes.TRANSITIONS:
        found += _endings(whole)
    ordered = sorted((event for event in found if (event.seq, event.number) > after), key=_place)
    return ordered, (max(cursor.last, whole.record.run.seq), WHOLE)


def _place(event: OutgoingEvent) -> Place:
    return (event.seq, event.number)


async def dialect_events(transactor: Transactor, whole: WholeRun, plan: Plan, after: int = 0) -> list[OutgoingEvent]:
    """The events that the run's dialect names, from the entry after this one on; those of an entry that was partly
    delivered are among them."""
    name = plan.definition.dialect
    if name not in dialect_names():
        return []
    canonical = await view_of(transactor, whole, plan)
    canonical["definition"] = msgspec.to_builtins(plan.definition)
    canonical["journal"] = lines_of(whole, plan)[1:-1]
    made = dialect_named(name).words.events(canonical, lines_of(whole, plan, name)[1:-1], after)
    at = {entry.seq: entry.at for entry in whole.entries}
    counted: dict[int, int] = {}
    found = []
    for one in made:
        number = counted[one.seq] = counted.get(one.seq, -1) + 1
        data = _encode(one.data)
        place = (one.seq, FIRST_OF_DIALECT + number)
        found.append(_event(whole.record.details, *place, one.type, Source.DIALECT, at[one.seq], data, one.extensions))
    return found


def _transitions(whole: WholeRun, plan: Plan) -> Iterator[OutgoingEvent]:
    details = whole.record.details
    for sealed in whole.entries:
        for number, hop in enumerate(open_entry(sealed.body).hops):
            is_run = hop.no == RUN_ENTITY
            data: dict[str, Any] = {"from": hop.source, "to": hop.target, "trigger": hop.trigger}
            data |= {"attempt": hop.attempt, "category": hop.category, "error": hop.error}
            step = None if is_run else plan.at(hop.no).name
            data["step"] = step
            body = _encode({name: value for name, value in data.items() if value is not None})
            name = f"{'run' if is_run else 'step'}.{hop.target}"
            place = (sealed.seq, FIRST_TRANSITION + number)
            yield _event(details, *place, name, Source.TRANSITIONS, sealed.at, body, step=step)


def _endings(whole: WholeRun) -> Iterator[OutgoingEvent]:
    run = whole.record.run
    if run.state not in RUN_TERMINAL:
        return
    data = {"state": run.state, "category": run.category, "error": run.error, "rollback": run.rollback}
    body = _encode({name: value for name, value in data.items() if value is not None})
    yield _event(
        whole.record.details, run.seq, ENDING, f"run.{run.state}", Source.ENDINGS, run.ended_at or run.moved_at, body
    )
