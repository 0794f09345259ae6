"""Finds finished runs, reads them completely in bulk, and deletes them in one short transaction.

It waits for no lock and chooses no runs; `operations/logs/retention.py` does. Triggers of the schema refuse to delete
an unfinished run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from stepkeep.kernel.errors import Unreadable
from stepkeep.kernel.machine.rows import Step
from stepkeep.store import columns
from stepkeep.store.postgres.arrays import ids, names
from stepkeep.store.postgres.connections import Connection, execute, fetch
from stepkeep.store.postgres.load import SQL
from stepkeep.store.reading import unreadable as unreadable_row
from stepkeep.store.records import RunRecord, WholeRun
from stepkeep.store.row_statements import DELETED

T = TypeVar("T")


def records_from(found: Sequence[Sequence[Any]], unreadable: list[Unreadable] | None) -> list[RunRecord]:
    """Runs with their details; unreadable ones are noted, or raise."""
    records = []
    for row in found:
        try:
            records.append(columns.read_record(row))
        except Unreadable as problem:
            if unreadable is None:
                raise
            unreadable.append(problem)
    return records


async def read_whole(
    connection: Connection,
    tenant: str,
    run_ids: Sequence[str],
    unreadable: list[Unreadable] | None,
    with_messages: bool,
) -> list[WholeRun]:
    """Everything about these runs, in nine statements."""
    wanted = ids(run_ids)
    problems: dict[str, Unreadable] = {}

    def keep(table: str, into: list[T], convert: Callable[[Sequence[Any]], T], row: Sequence[Any]) -> None:
        try:
            into.append(convert(row))
        except Exception as problem:  # noqa: BLE001 - whatever a damaged row leads to, it is the row's fault
            problems.setdefault(row[1], unreadable_row(table, (tenant, row[1]), row, problem))

    async def by_run(table: str, statement: str, convert: Callable[[Sequence[Any]], T]) -> dict[str, list[T]]:
        found: dict[str, list[T]] = defaultdict(list)
        for row in await fetch(connection, statement, tenant, wanted):
            keep(table, found[row[1]], convert, row)
        return found

    noted: list[Unreadable] = []
    records = records_from(await fetch(connection, SQL.read_runs, tenant, wanted), noted)
    steps: dict[str, list[Step]] = defaultdict(list)
    for row in await fetch(connection, SQL.load_all_steps, names([tenant] * len(run_ids)), wanted):
        run_id = run_ids[row[0] - 1]
        full = (tenant, run_id, *row[1:])
        keep("steps", steps[run_id], columns.step_from, full)
    attempts = await by_run("attempts", SQL.read_attempts_of, columns.attempt_from)
    entries = await by_run("journal", SQL.read_journal_of, columns.entry_from)
    messages = await by_run("messages", SQL.read_messages_of, columns.message_from) if with_messages else {}
    outbox = await by_run("outbox", SQL.read_outbox_of, columns.outbox_from) if with_messages else {}
    gates = await by_run("gates", SQL.read_gates_of, columns.gate_from) if with_messages else {}
    votes = await by_run("decisions", SQL.read_decisions_of, columns.vote_from) if with_messages else {}
    checkpoints = await by_run("checkpoints", SQL.read_checkpoints_of, columns.checkpoint_from) if with_messages else {}
    noted += problems.values()
    if noted and unreadable is None:
        raise noted[0]
    if unreadable is not None:
        unreadable += noted
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
        if record.run.id not in problems
    ]


async def delete_runs(connection: Connection, tenant: str, run_ids: Sequence[str]) -> list[str]:
    """Delete the runs that can be locked without waiting."""
    held = [row[0] for row in await fetch(connection, SQL.lock_finished, tenant, ids(run_ids))]
    if held:
        for statement in DELETED:
            await execute(connection, getattr(SQL, statement), tenant, ids(held))
    return held
