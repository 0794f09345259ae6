"""The events of a run for a sink, in order: what its steps emitted, and what its journal says.

Everything here is derived from rows that never change, so that an event has the same id and the same content however
often it is made. It changes nothing and sends nothing. The relay and the commands of the outbox call it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from stepkeep.kernel.machine.journal import RUN_ENTITY, SealedEntry, open_entry
from stepkeep.kernel.machine.rows import Details, OutboxEntry
from stepkeep.kernel.machine.states import RUN_TERMINAL
from stepkeep.kernel.plan import Plan
from stepkeep.operations.delivery.declared_hooks import Selection
from stepkeep.operations.delivery.dialect_folds import Folds
from stepkeep.operations.delivery.run_events import event_of
from stepkeep.operations.logs.lines import severity_of
from stepkeep.operations.pipeline.plans import plan_for
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.sinks.event import EventSource, OutgoingEvent
from stepkeep.store.deliveries import WHOLE, Takes, worker_of
from stepkeep.store.records import RunRecord
from stepkeep.store.rows import Delivery

PAGE = 100
"""How many events are read for one claim of a cursor."""

FIRST_TRANSITION, ENDING = 200_000, 300_000
"""The numbers of derived events; those of dialects begin at `dialect_folds.FIRST_OF_DIALECT`. A journal entry emits at
most 1,000 events by itself, so that ids never meet."""

_encode = msgspec.json.Encoder().encode

Place = tuple[int, int]
"""(journal sequence, number)."""


class Pending(msgspec.Struct, frozen=True):
    """The next events for a sink, and up to where the cursor may go when all of them are delivered."""

    events: list[OutgoingEvent]
    upto: Place


async def pending(
    transactor: Transactor, cursor: Delivery, which: Selection, limit: int = PAGE, folds: Folds | None = None
) -> Pending:
    """What a cursor has to deliver next. Raises Unreadable or PayloadSealed where the run cannot be read here.

    `folds` keeps what the events of a dialect need of earlier entries; without it the journal is folded from its start.
    """
    after = (cursor.sent, cursor.sent_number)
    if (worker := worker_of(cursor)) is not None:
        found, upto = await _of_worker(transactor, cursor, worker, limit)
    elif cursor.takes == Takes.EMITTED:
        found, upto = await _emitted(transactor, cursor, after, limit)
    else:
        found, upto = await _derived(transactor, cursor, after, which, limit, folds or Folds())
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
            source=EventSource.WORKERS,
            at=sealed.at,
            data=_encode(data | {"severity": severity_of("worker", hop)}),
            workflow="",
            version=0,
            correlation_id="",
            worker=worker,
        )


async def _emitted(
    transactor: Transactor, cursor: Delivery, after: Place, limit: int, details: Details | None = None
) -> tuple[list[OutgoingEvent], Place]:
    key = (cursor.tenant, cursor.run_id)
    entries = await transactor.store.deliveries.read_entries(*key, after, limit)
    if details is None and entries:
        details = (await transactor.store.read_details([key])).get(key)
    found = [] if details is None else [await _sent_by_a_step(transactor, details, entry) for entry in entries]
    if len(entries) == limit:
        return found, (entries[-1].seq, entries[-1].number)
    return found, (max(cursor.last, *(entry.seq for entry in entries), 0), WHOLE)


async def _sent_by_a_step(transactor: Transactor, details: Details, entry: OutboxEntry) -> OutgoingEvent:
    data = await transactor.payloads.value(entry.tenant, entry.run_id, entry.payload)
    return event_of(details, entry.seq, entry.number, entry.name, EventSource.EMITTED, entry.created_at, data)


async def _derived(
    transactor: Transactor, cursor: Delivery, after: Place, which: Selection, limit: int, folds: Folds
) -> tuple[list[OutgoingEvent], Place]:
    """Events that are derived from the run's row and journal, with what it emitted. Each source is read from the cursor
    on, as far as one page goes; the shortest decides how far the cursor may go."""
    record = await transactor.store.read_run(cursor.tenant, cursor.run_id)
    if record is None:
        return [], (cursor.last, WHOLE)
    takes, end = cursor.takes, (max(cursor.last, record.run.seq), WHOLE)
    plan = await plan_for(transactor, record.run)
    parts: list[tuple[list[OutgoingEvent], Place]] = []
    if takes & Takes.EMITTED:
        parts.append(await _emitted(transactor, cursor, after, limit, record.details))
    if takes & Takes.DIALECT:
        parts.append(await folds.events(transactor, cursor, record, plan, which, limit))
    if takes & Takes.TRANSITIONS:
        parts.append(await _transitions(transactor, record, plan, after, limit))
    if takes & Takes.ENDINGS and not takes & Takes.TRANSITIONS:
        parts.append((list(_endings(record)), end))
    upto = min((place for _, place in parts), default=end)
    found = [event for events, _ in parts for event in events if after < _position(event) <= upto]
    return sorted(found, key=_position), upto


def _position(event: OutgoingEvent) -> Place:
    return (event.seq, event.number)


async def _transitions(
    transactor: Transactor, record: RunRecord, plan: Plan, after: Place, limit: int
) -> tuple[list[OutgoingEvent], Place]:
    run = record.run
    entries = await transactor.store.read_journal(run.tenant, run.id, _entries_after(after), limit)
    found = [event for entry in entries for event in _hops(record.details, plan, entry)]
    last = entries[-1].seq if entries else after[0]
    return found, (last if len(entries) == limit else max(run.seq, last), WHOLE)


def _entries_after(after: Place) -> int:
    """The journal entry after which to read: one that is delivered in part is read again."""
    return after[0] if after[1] == WHOLE else after[0] - 1


def _hops(details: Details, plan: Plan, sealed: SealedEntry) -> Iterator[OutgoingEvent]:
    for number, hop in enumerate(open_entry(sealed.body).hops):
        is_run = hop.no == RUN_ENTITY
        data: dict[str, Any] = {"from": hop.source, "to": hop.target, "trigger": hop.trigger}
        data |= {"attempt": hop.attempt, "category": hop.category, "error": hop.error}
        step = None if is_run else plan.at(hop.no).name
        data["step"] = step
        body = _encode({name: value for name, value in data.items() if value is not None})
        name = f"{'run' if is_run else 'step'}.{hop.target}"
        place = (sealed.seq, FIRST_TRANSITION + number)
        yield event_of(details, *place, name, EventSource.TRANSITIONS, sealed.at, body, step=step)


def _endings(record: RunRecord) -> Iterator[OutgoingEvent]:
    run = record.run
    if run.state not in RUN_TERMINAL:
        return
    data = {"state": run.state, "category": run.category, "error": run.error, "rollback": run.rollback}
    body = _encode({name: value for name, value in data.items() if value is not None})
    at = run.ended_at or run.moved_at
    yield event_of(record.details, run.seq, ENDING, f"run.{run.state}", EventSource.ENDINGS, at, body)
