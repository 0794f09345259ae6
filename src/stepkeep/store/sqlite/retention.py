"""Reads finished runs completely in bulk, and deletes them in one short transaction.

It chooses no runs; `operations/logs/retention.py` does. Triggers of the schema refuse to delete an unfinished run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar

import apsw

from stepkeep.kernel.errors import Unreadable
from stepkeep.store import columns
from stepkeep.store.columns import json_text
from stepkeep.store.reading import apart, named, unreadable
from stepkeep.store.records import RunRecord, WholeRun
from stepkeep.store.row_statements import DELETED
from stepkeep.store.sqlite.change import SQL
from stepkeep.store.sqlite.rows import Row

T = TypeVar("T")


def read_records(
    connection: apsw.Connection, tenant: str, run_ids: Sequence[str], unreadable: list[Unreadable] | None
) -> list[RunRecord]:
    """Runs with their details, in this order."""

    def read(some: Sequence[str]) -> list[RunRecord]:
        with named("runs", tenant, some):
            found: list[Row] = connection.execute(SQL.read_runs, (tenant, json_text(some))).fetchall()
        return [columns.read_record(row) for row in found]

    return apart(run_ids, read, unreadable)


def read_whole(
    connection: apsw.Connection,
    tenant: str,
    run_ids: Sequence[str],
    unreadable: list[Unreadable] | None,
    with_messages: bool,
) -> list[WholeRun]:
    """Everything about these runs, in nine statements unless one of them cannot be read."""
    return apart(run_ids, lambda some: _read_whole(connection, tenant, some, with_messages), unreadable)


def _read_whole(
    connection: apsw.Connection, tenant: str, run_ids: Sequence[str], with_messages: bool
) -> list[WholeRun]:
    wanted = (tenant, json_text(run_ids))

    def by_run(
        table: str, statement: str, convert: Callable[[Row], T], asked: tuple[str, ...] = wanted
    ) -> dict[str, list[T]]:
        found: dict[str, list[T]] = defaultdict(list)
        with named(table, tenant, run_ids):
            selected: list[Row] = connection.execute(statement, asked).fetchall()
        for row in selected:
            try:
                found[row[1]].append(convert(row))
            except Exception as problem:
                raise unreadable(table, (tenant, row[1]), row, problem) from problem
        return found

    records = read_records(connection, tenant, run_ids, None)
    steps = by_run(
        "steps", SQL.load_all_steps, columns.step_from, (json_text([(tenant, run_id) for run_id in run_ids]),)
    )
    attempts = by_run("attempts", SQL.read_attempts_of, columns.attempt_from)
    entries = by_run("journal", SQL.read_journal_of, columns.entry_from)
    messages = by_run("messages", SQL.read_messages_of, columns.message_from) if with_messages else {}
    outbox = by_run("outbox", SQL.read_outbox_of, columns.outbox_from) if with_messages else {}
    gates = by_run("gates", SQL.read_gates_of, columns.gate_from) if with_messages else {}
    votes = by_run("decisions", SQL.read_decisions_of, columns.vote_from) if with_messages else {}
    checkpoints = by_run("checkpoints", SQL.read_checkpoints_of, columns.checkpoint_from) if with_messages else {}
    return [
        WholeRun(
            record=record,
            steps=tuple(sorted(steps[record.run.id], key=lambda step: step.no)),
            attempts=tuple(attempts[record.run.id]),
            entries=tuple(entries[record.run.id]),
            messages=tuple(messages.get(record.run.id, ())),
            outbox=tuple(outbox.get(record.run.id, ())),
            gates=tuple(gates.get(record.run.id, ())),
            votes=tuple(votes.get(record.run.id, ())),
            checkpoints=tuple(checkpoints.get(record.run.id, ())),
        )
        for record in records
    ]


def delete_runs(connection: apsw.Connection, tenant: str, run_ids: Sequence[str]) -> list[str]:
    """Delete those that are finished."""
    held = [run_id for (run_id,) in connection.execute(SQL.lock_finished, (tenant, json_text(run_ids)))]
    for statement in DELETED:
        connection.execute(getattr(SQL, statement), (tenant, json_text(held)))
    return held


def forget_keys(connection: apsw.Connection, tenant: str, before: str, limit: int) -> int:
    connection.execute(SQL.forget_keys, (tenant, before, limit))
    return connection.changes()
