"""Writes a decision inside an open transaction: one statement for the rows of nearly every change, others as needed.

Values only become columns here. A row that is not as the basis says raises, and the caller rolls back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from stepkeep.kernel.errors import Conflict, Contended, InvariantBroken
from stepkeep.kernel.machine.rows import Notice as ChildNotice
from stepkeep.kernel.machine.rows import Recall
from stepkeep.kernel.machine.states import RUN_TERMINAL
from stepkeep.store.change import NOT_REQUESTED, Loaded, NewRun, Write
from stepkeep.store.columns import people_values
from stepkeep.store.limits import limit_writes
from stepkeep.store.postgres import parameters
from stepkeep.store.postgres.arrays import Bytes, RowEncoder, ids, names, numbers
from stepkeep.store.postgres.connections import Connection, execute, fetch
from stepkeep.store.postgres.failures import translated
from stepkeep.store.postgres.load import drive, lock_order
from stepkeep.store.statements import load_statements

SQL = load_statements("stepkeep.store.postgres")

Notice: TypeAlias = tuple[str, str | None]
"""What to send with a commit: a channel and a payload. Without a payload nothing is sent."""

SILENT: Notice = ("", None)


async def write(connection: Connection, what: Write, clock_offset: int) -> None:
    """Write everything, in an order that respects foreign keys."""
    if what.released_keys:
        await _release_keys(connection, what)
    if what.released_undo:
        tenants, run_ids = zip(*what.released_undo, strict=True)
        await execute(connection, SQL.release_adoptions, names(tenants), ids(run_ids))
    if what.begun:
        await _begin_children(connection, what)
    if what.new_runs:
        await _insert_runs(connection, what.new_runs, clock_offset=clock_offset)
    if what.has_hot_rows:
        await _write_hot(connection, what, clock_offset=clock_offset)
    await _write_rest(connection, what, clock_offset)


async def record(connection: Connection, what: Write, known: Loaded, clock_offset: int, notice: Notice) -> int:
    """Write a decision whose rows are not locked; returns the clock. A tenant's runs are locked first, in id order."""
    now = known.now
    if what.has_hot_rows:
        what.runs.sort(key=lambda change: lock_order((change.run.tenant, change.run.id)))
        now = await _write_hot(connection, what, is_sure=False, clock_offset=clock_offset, notice=notice)
    if what.released_keys:
        await _release_keys(connection, what)
    if what.new_runs:
        now = await _insert_runs(connection, what.new_runs, known.now, clock_offset, notice)
    await _write_rest(connection, what, clock_offset)
    return now


async def _write_rest(connection: Connection, what: Write, clock_offset: int) -> None:
    """The rows that few changes write."""
    if messages := [*(one for new in what.new_runs for one in new.messages), *what.messages]:
        await _insert(connection, SQL.insert_messages, messages)
    if what.consumed:
        await _consume(connection, what)
    if what.mailbox:
        await _save_mailbox(connection, what)
    if outbox := [*(one for new in what.new_runs for one in new.outbox), *what.outbox]:
        await _insert(connection, SQL.insert_outbox, outbox)
        emitted = [(one.tenant, one.run_id, one.seq, one.name) for one in outbox]
        tenants, run_ids, seqs, types = zip(*emitted, strict=True)
        given = (names(tenants), ids(run_ids), numbers(seqs), list(types), clock_offset)
        await execute(connection, SQL.emit_deliveries, *given)
    if gates := [*(one for new in what.new_runs for one in new.gates), *what.gates]:
        await _insert(connection, SQL.insert_gates, gates)
    if adopted := [one for new in what.new_runs for one in new.adoptions]:
        await execute(connection, SQL.insert_adoptions, *parameters.arrays_of(adopted, Bytes()))
    if cursors := [one for new in what.new_runs for one in new.deliveries]:
        await _insert(connection, SQL.insert_deliveries, cursors)
    if what.gate_changes:
        await execute(connection, SQL.update_gates, *parameters.arrays_of(what.gate_changes, Bytes()))
    if what.votes:
        await _insert(connection, SQL.insert_decisions, what.votes)
    if what.has_children:
        await _write_children(connection, what)
    if what.has_triggers:
        await _write_triggers(connection, what)
    for slot in [new.slot for new in what.new_runs if new.slot is not None]:
        await execute(connection, SQL.insert_slots, *people_values(slot))
    for grant in what.granted:
        if len(await fetch(connection, SQL.grant_slot, *grant)) != 1:
            raise Contended("another transaction granted a slot: run the whole transaction again")
    for asked in what.requesters:
        await execute(connection, SQL.save_requesters, *asked)
    for tenant in sorted({hold.tenant for hold in what.holds}):
        await execute(connection, SQL.forget_resource_holds, tenant)
    for hold in what.holds:
        await execute(connection, SQL.insert_resource_hold, *people_values(hold))
    if what.limits:
        await drive(connection, limit_writes(what.limits))
    for payload in what.payloads:
        owner = (payload.tenant, payload.run_id, payload.digest)
        for number, chunk in payload.chunks():
            await execute(connection, SQL.insert_payload_chunks, *owner, number, chunk)


async def _begin_children(connection: Connection, what: Write) -> None:
    """Before their runs are written: one that is not requested any more has a run, or must not have one."""
    for begun in what.begun:
        key = (begun.tenant, begun.run_id, begun.no, begun.activation)
        if len(await fetch(connection, SQL.begin_child, *key, begun.started_at)) != 1:
            raise Conflict(NOT_REQUESTED)


async def _write_children(connection: Connection, what: Write) -> None:
    for asked in what.children:
        await execute(connection, SQL.insert_child, *people_values(asked))
    # A parent and its child may write the same row at once, each in a batch with others: all batches lock in one order.
    told: list[Recall | ChildNotice] = [*what.recalls, *what.notices]
    for one in sorted(told, key=lambda one: (one.tenant, one.child_id)):
        if isinstance(one, Recall):
            await execute(connection, SQL.recall_child, *people_values(one))
        else:
            given = (one.tenant, one.child_id, one.outcome, one.ended_at, one.category, one.error)
            await execute(connection, SQL.end_child, *given)


async def _write_triggers(connection: Connection, what: Write) -> None:
    for change in what.triggers:
        values = people_values(change.row)
        statement, given = (SQL.update_trigger, (*values, change.was)) if change.was else (SQL.insert_trigger, values)
        if len(await fetch(connection, statement, *given)) != 1:
            raise Contended("another transaction changed a trigger: run the whole transaction again")
    for firing in what.firings:
        await execute(connection, SQL.save_firing, *people_values(firing))
    for backfill in what.backfills:
        await execute(connection, SQL.save_backfill, *people_values(backfill))


async def _insert(connection: Connection, statement: str, rows: Sequence[msgspec.Struct]) -> None:
    """Insert rows by one array for each column; the first parameter holds the bytes of all."""
    blob = Bytes()
    given = parameters.arrays_of(rows, blob)
    await execute(connection, statement, blob.joined(), *given)


async def _write_hot(
    connection: Connection, what: Write, *, is_sure: bool = True, clock_offset: int = 0, notice: Notice = SILENT
) -> int:
    runs = steps = now = 0
    statement = SQL.write_hot_columns if what.only_hot else SQL.write_hot
    run_rows, step_rows, attempt_rows = parameters.HOT_COLUMNS if what.only_hot else parameters.WHOLE_ROWS
    for tenant, mine in _by_tenant(what):
        encoder = RowEncoder()
        with translated():
            rows = (
                run_rows([(change.was, change.run) for change in mine.runs], encoder),
                step_rows(mine.steps, encoder),
                attempt_rows(mine.attempts, encoder),
                parameters.entry_numbers(mine.entries, encoder),
            )
            new = () if what.only_hot else (parameters.step_numbers(mine.new_steps, encoder),)
        asked = (not is_sure, clock_offset, len(mine.runs), len(mine.steps), *notice, *new)
        [(changed_runs, changed_steps, now, *_)] = await fetch(
            connection, statement, *_given(tenant, encoder), *rows, *asked
        )
        runs, steps = runs + changed_runs, steps + changed_steps
    if runs != len(what.runs):
        raise Contended("another transaction changed a run: run the whole transaction again")
    if steps != len(what.steps):
        raise InvariantBroken("a step was to be changed that does not exist; nothing was written")
    return now


def _by_tenant(what: Write) -> list[tuple[str, Write]]:
    """The hot rows, tenant by tenant. Only a sweep has several tenants."""
    tables = ([change.run for change in what.runs], what.steps, what.new_steps, what.attempts, what.entries)
    tenants = {row.tenant for table in tables for row in table}
    if len(tenants) == 1:
        return [(tenants.pop(), what)]
    return [
        (
            tenant,
            Write(
                runs=[change for change in what.runs if change.run.tenant == tenant],
                steps=[step for step in what.steps if step.tenant == tenant],
                new_steps=[step for step in what.new_steps if step.tenant == tenant],
                attempts=[attempt for attempt in what.attempts if attempt.tenant == tenant],
                entries=[entry for entry in what.entries if entry.tenant == tenant],
            ),
        )
        for tenant in sorted(tenants)
    ]


def _given(tenant: str, encoder: RowEncoder) -> tuple[bytes, str, str, str]:
    """What the numbers of the rows refer to: the first parameters of every statement that takes such rows."""
    return (encoder.joined(), tenant, encoder.run_ids(), parameters.WORDS)


async def _release_keys(connection: Connection, what: Write) -> None:
    tenants, keys = zip(*what.released_keys, strict=True)
    await execute(connection, SQL.release_business_keys, tenants, keys)


async def _insert_runs(
    connection: Connection,
    new: list[NewRun],
    not_before: int | None = None,
    clock_offset: int = 0,
    notice: Notice = SILENT,
) -> int:
    now = 0
    for tenant in sorted({one.run.tenant for one in new}):
        mine = [one for one in new if one.run.tenant == tenant]
        encoder = RowEncoder()
        with translated():
            rows = (
                parameters.run_numbers([(one.run.definition_id, one.run) for one in mine], encoder),
                parameters.details_numbers([one.details for one in mine], encoder),
                parameters.step_numbers([step for one in mine for step in one.steps], encoder),
                parameters.entry_numbers([entry for one in mine for entry in one.entries], encoder),
            )
        asked = (not_before, clock_offset, *notice)
        [(now, *_)] = await fetch(connection, SQL.insert_runs, *_given(tenant, encoder), *rows, *asked)
    if promises := [one.idempotency for one in new if one.idempotency is not None]:
        kept = [(one.tenant, one.operation, one.key, one.fingerprint) for one in promises]
        promised = ids([one.run_id for one in promises])
        scopes = [one.scope for one in promises]
        await execute(connection, SQL.insert_idempotency_keys, *zip(*kept, strict=True), promised, scopes)
    runs = [one.run for one in new]
    live = [run for run in runs if run.business_key is not None and run.state not in RUN_TERMINAL]
    if live:
        tenants, keys = [run.tenant for run in live], [run.business_key for run in live]
        await execute(connection, SQL.insert_business_keys, tenants, keys, ids([run.id for run in live]))
    return now


async def _save_mailbox(connection: Connection, what: Write) -> None:
    blob = Bytes()
    given = parameters.arrays_of(what.mailbox, blob)
    saved = await fetch(connection, SQL.save_mailbox, blob.joined(), *given)
    if len(saved) != len(what.mailbox):
        raise Contended("another transaction delivered a message: run the whole transaction again")


async def _consume(connection: Connection, what: Write) -> None:
    rows = [(one.tenant, one.run_id, one.id, one.consumed_by) for one in what.consumed]
    tenants, run_ids, messages, consumers = zip(*rows, strict=True)
    taken = await fetch(connection, SQL.consume_messages, names(tenants), ids(run_ids), messages, numbers(consumers))
    if len(taken) != len(rows):
        raise Contended("another transaction consumed a message: run the whole transaction again")
