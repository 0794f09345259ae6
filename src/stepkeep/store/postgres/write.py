"""Writes a decision inside an open transaction: one statement for the rows of nearly every change, others as needed.

Values only become columns here. A row that is not as the basis says raises, and the caller rolls back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from stepkeep.kernel.errors import Contended, InvariantBroken
from stepkeep.store import writing
from stepkeep.store.change import Loaded, NewRun, Write
from stepkeep.store.columns import values_of
from stepkeep.store.limits import limit_writes
from stepkeep.store.postgres import parameters
from stepkeep.store.postgres.arrays import RowEncoder
from stepkeep.store.postgres.connections import Connection, execute, fetch
from stepkeep.store.postgres.failures import translated
from stepkeep.store.postgres.load import drive, lock_order
from stepkeep.store.statements import load_statements
from stepkeep.store.writing import Put

SQL = load_statements("stepkeep.store.postgres")

Notice: TypeAlias = tuple[str, str | None]
"""What to send with a commit: a channel and a payload. Without a payload nothing is sent."""

SILENT: Notice = ("", None)


async def write(connection: Connection, what: Write, clock_offset: int) -> None:
    """Write everything, in an order that respects foreign keys."""
    rows = what.every_row()
    await _put(connection, writing.before_runs(rows))
    if what.new_runs:
        await _insert_runs(connection, what.new_runs, clock_offset=clock_offset)
        await _put(connection, writing.with_runs(what.new_runs, rows))
    if what.has_hot_rows:
        await _write_hot(connection, what, clock_offset=clock_offset)
    await _put(connection, writing.after_runs(rows), clock_offset)
    if what.limits:
        await drive(connection, limit_writes(what.limits))


async def record(connection: Connection, what: Write, known: Loaded, clock_offset: int, notice: Notice) -> int:
    """Write a decision whose rows are not locked; returns the clock. A tenant's runs are locked first, in id order."""
    now, rows = known.now, what.every_row()
    if what.has_hot_rows:
        what.runs.sort(key=lambda change: lock_order((change.run.tenant, change.run.id)))
        now = await _write_hot(connection, what, is_sure=False, clock_offset=clock_offset, notice=notice)
    await _put(connection, writing.before_runs(rows))
    if what.new_runs:
        now = await _insert_runs(connection, what.new_runs, known.now, clock_offset, notice)
        await _put(connection, writing.with_runs(what.new_runs, rows))
    await _put(connection, writing.after_runs(rows), clock_offset)
    if what.limits:
        await drive(connection, limit_writes(what.limits))
    return now


async def _put(connection: Connection, puts: Iterable[Put], clock_offset: int = 0) -> None:
    """Send rows: all at once as arrays, where the statement takes them, else one after the other."""
    for put in puts:
        statement, send = getattr(SQL, put.statement), execute if put.refusal is None else fetch
        given = [parameters.arrays_of(put.rows)] if put.by_arrays else [_values(row) for row in put.rows]
        found = 0
        for values in given:
            found += len(await send(connection, statement, *values, *((clock_offset,) if put.is_timed else ())) or ())
        if put.refusal is not None and found != len(put.rows):
            refused, why = put.refusal
            raise refused(why)


def _values(row: msgspec.Struct | tuple[object, ...]) -> tuple[object, ...]:
    return row if isinstance(row, tuple) else values_of(row)


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
    return now
