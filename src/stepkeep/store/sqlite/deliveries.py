"""Creates and advances delivery cursors, and notes ends of runs for triggers, inside the transaction of a change.
`change` calls it after the rows of runs, and the store for the journals of workers.

A run without a sink or such a trigger costs one look at an empty index for each batch, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from stepkeep.kernel.machine.journal import SealedEntry
from stepkeep.kernel.machine.rows import Run
from stepkeep.store.change import NewRun, RunChange
from stepkeep.store.deliveries import worker_cursor, worker_target
from stepkeep.store.sqlite import rows
from stepkeep.store.statements import load_statements

SQL = load_statements("stepkeep.store.sqlite")


def advance(connection: apsw.Connection, changes: Sequence[RunChange], now: int) -> None:
    """Advance the cursors of sinks that take more than what these runs emit."""
    if changes and connection.execute(SQL.has_course_deliveries).get:
        runs = (change.run for change in changes)
        given = [(run.tenant, run.id, run.seq, now, run.ended_at is not None) for run in runs]
        connection.executemany(SQL.advance_deliveries, given)


def begin(connection: apsw.Connection, new: Sequence[NewRun], now: int) -> None:
    """Create the cursors of new runs for such sinks."""
    runs = (one.run for one in new)
    given = [(run.tenant, run.id, run.seq, now, run.ended_at is not None) for run in runs]
    connection.executemany(SQL.start_deliveries, given)


def note_endings(connection: apsw.Connection, runs: Sequence[Run], now: int) -> None:
    """Note runs that end for the triggers that are about their workflow."""
    ended = [(run.tenant, run.id, now) for run in runs if run.ended_at is not None]
    if ended and connection.execute(SQL.has_ended_triggers).get:
        connection.executemany(SQL.note_endings, ended)


def extend_worker(connection: apsw.Connection, entry: SealedEntry, now: int) -> None:
    """Continue the journal of a worker, and advance the cursors of sinks that take its transitions."""
    connection.execute(SQL.insert_worker_journal, rows.row_of(entry))
    worker = entry.run_id
    about = (worker_cursor(worker), entry.seq, now, worker_target(worker))
    connection.execute(SQL.emit_worker_deliveries, (entry.tenant, *about))
