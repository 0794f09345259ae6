"""The statements that write the rows of a change, in an order that respects foreign keys, as generators without I/O.

Both stores drive them. Runs, steps, attempts and journal entries are each store's own, between `before_runs` and
`after_runs`. Nothing here decides or knows SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from stepkeep.kernel.errors import Conflict, Contended, StepkeepError
from stepkeep.kernel.machine.rows import (
    Checkpoint,
    Child,
    Consumed,
    Gate,
    GateChange,
    Message,
    Notice,
    OutboxEntry,
    Recall,
    Requesters,
    Rows,
    StreamPart,
    Vote,
)
from stepkeep.kernel.machine.states import RUN_TERMINAL
from stepkeep.store.change import IdempotencyKey, NewRun
from stepkeep.store.columns import json_text, values_of
from stepkeep.store.rows import (
    AdoptionRow,
    Backfill,
    BegunChild,
    Delivery,
    Firing,
    HoldRow,
    MailboxMessage,
    Payload,
    ReleasedKey,
    ReleasedUndo,
    SlotGrant,
    SlotRow,
    TriggerChange,
)

RowType = type[msgspec.Struct]

Refusal = tuple[type[StepkeepError], str]


class Put(NamedTuple):
    """Rows for one statement, all of one type, or the parameters of each.

    With `by_arrays`, PostgreSQL takes an array for each column. With `refusal`, each row must be found, or the write
    fails as a whole. With `is_timed`, the statement takes the clock, too.
    """

    statement: str
    rows: Sequence[Any] = ()
    by_arrays: bool = False
    refusal: Refusal | None = None
    is_timed: bool = False


class Emission(msgspec.Struct, frozen=True, gc=False):
    """An event that was emitted, for the cursors that take it."""

    tenant: str
    run_id: str
    seq: int
    name: str


class TakenKey(msgspec.Struct, frozen=True, gc=False):
    """A business key that a new run takes."""

    tenant: str
    key: str
    run_id: str


def _another(did: str) -> Refusal:
    return Contended, f"another transaction {did}: run the whole transaction again"


NOT_REQUESTED = "the child was called back, or has started already; nothing was written"
"""The refusal of a write that starts a child which is not requested any more."""

BEFORE_RUNS: Mapping[RowType, Put] = {
    ReleasedKey: Put("release_business_keys", by_arrays=True),
    ReleasedUndo: Put("release_adoptions", by_arrays=True),
    # A child that is not requested any more has a run, or must not have one.
    BegunChild: Put("begin_child", refusal=(Conflict, NOT_REQUESTED)),
}

WITH_RUNS: Mapping[RowType, Put] = {
    IdempotencyKey: Put("insert_idempotency_keys", by_arrays=True),
}

AFTER_RUNS: Mapping[RowType, Put] = {
    Checkpoint: Put("insert_checkpoints", by_arrays=True),
    Message: Put("insert_messages", by_arrays=True),
    Consumed: Put("consume_messages", by_arrays=True, refusal=_another("consumed a message")),
    MailboxMessage: Put("save_mailbox", by_arrays=True, refusal=_another("delivered a message")),
    OutboxEntry: Put("insert_outbox", by_arrays=True),
    Gate: Put("insert_gates", by_arrays=True),
    AdoptionRow: Put("insert_adoptions", by_arrays=True),
    Delivery: Put("insert_deliveries", by_arrays=True),
    GateChange: Put("update_gates", by_arrays=True),
    Vote: Put("insert_decisions", by_arrays=True),
    Child: Put("insert_children"),
    Recall: Put("recall_child"),
    Notice: Put("end_child"),
    TriggerChange: Put("update_trigger", refusal=_another("changed a trigger")),
    Firing: Put("save_firing"),
    Backfill: Put("save_backfill"),
    SlotRow: Put("insert_slots"),
    SlotGrant: Put("grant_slot", refusal=_another("granted a slot")),
    Requesters: Put("save_requesters"),
    HoldRow: Put("insert_resource_holds"),
    Payload: Put("insert_payload_chunks"),
    StreamPart: Put("write_stream"),
}
"""What is written after runs and steps, in this order."""


def before_runs(rows: Rows) -> Iterator[Put]:
    """What must be written before new runs: keys and undo that they take, and the links of children."""
    return _in_order(BEFORE_RUNS, rows)


def with_runs(new: Iterable[NewRun], rows: Rows) -> Iterator[Put]:
    """The keys that new runs take."""
    yield from _in_order(WITH_RUNS, rows)
    taken = [
        TakenKey(one.run.tenant, one.run.business_key, one.run.id)
        for one in new
        if one.run.business_key is not None and one.run.state not in RUN_TERMINAL
    ]
    if taken:
        yield Put("insert_business_keys", taken, by_arrays=True)


def after_runs(rows: Rows) -> Iterator[Put]:
    """All other rows."""
    for put in _in_order(AFTER_RUNS, rows):
        made = EXPANDED.get(type(put.rows[0]))
        if made is None:
            yield put
        else:
            yield from made(put, rows)


def _in_order(table: Mapping[RowType, Put], rows: Rows) -> Iterator[Put]:
    if rows:
        for kind, put in table.items():
            if kind in rows:
                yield put._replace(rows=rows[kind])


def _emitted(put: Put, rows: Rows) -> Iterator[Put]:
    yield put
    told = [Emission(one.tenant, one.run_id, one.seq, one.name) for one in rows.of(OutboxEntry)]
    yield Put("emit_deliveries", told, by_arrays=True, is_timed=True)


def _about_children(put: Put, rows: Rows) -> Iterator[Put]:
    """A parent and its child may write the same row at once, each in a batch with others: all lock in one order."""
    if put.statement == "end_child" and Recall in rows:
        return
    told: list[Recall | Notice] = [*rows.of(Recall), *rows.of(Notice)]
    for one in sorted(told, key=lambda one: (one.tenant, one.child_id)):
        yield AFTER_RUNS[type(one)]._replace(rows=[one])


def _triggers(put: Put, rows: Rows) -> Iterator[Put]:
    for change in rows.of(TriggerChange):
        values = values_of(change.row)
        if change.was:
            yield put._replace(rows=[(*values, change.was)])
        else:
            yield put._replace(statement="insert_trigger", rows=[values])


def _holds(put: Put, rows: Rows) -> Iterator[Put]:
    """Rows that count no longer are deleted in the same transaction."""
    yield Put("forget_resource_holds", [(tenant,) for tenant in sorted({hold.tenant for hold in rows.of(HoldRow)})])
    yield put


def _chunks(put: Put, rows: Rows) -> Iterator[Put]:
    for one in rows.of(Payload):
        yield put._replace(rows=[(one.tenant, one.run_id, one.digest, *chunk) for chunk in one.chunks()])


def stream_values(parts: Iterable[StreamPart]) -> str:
    """Parts of streams of one run as JSON: the place of each among them, its columns, and the bytes up to its end."""
    made, size = list[tuple[Any, ...]](), 0
    for place, one in enumerate(parts, 1):
        size += len(one.body)
        after = (None, None) if one.after is None else one.after
        made.append((place, one.no, one.name, one.fence, one.start, one.count, size, *after, one.body.decode()))
    return json_text(made)


def _streams(put: Put, rows: Rows) -> Iterator[Put]:
    by_run: dict[tuple[str, str], list[StreamPart]] = {}
    for one in rows.of(StreamPart):
        by_run.setdefault((one.tenant, one.run_id), []).append(one)
    yield put._replace(rows=[(*key, parts[0].at, stream_values(parts)) for key, parts in sorted(by_run.items())])


EXPANDED: Mapping[RowType, Callable[[Put, Rows], Iterator[Put]]] = {
    OutboxEntry: _emitted,
    Recall: _about_children,
    Notice: _about_children,
    TriggerChange: _triggers,
    HoldRow: _holds,
    Payload: _chunks,
    StreamPart: _streams,
}
"""Row types that are more than one statement."""
