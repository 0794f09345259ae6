"""Finished runs on their way out: found, read whole in bulk, deleted in one short transaction.

Nothing here waits for a lock or chooses what goes; `operations/retention.py` does the choosing. The schema's triggers
refuse to delete what is not finished, whoever asks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from stepkeep.kernel.journal import SealedEntry
from stepkeep.kernel.rows import Step
from stepkeep.store.postgres import columns
from stepkeep.store.postgres.arrays import ids, names
from stepkeep.store.postgres.connections import Connection, execute, fetch
from stepkeep.store.postgres.load import SQL
from stepkeep.store.protocol import WholeRun

T = TypeVar("T")

PARTS = (
    "delete_steps",
    "delete_attempts",
    "delete_journal",
    "delete_messages",
    "delete_outbox",
    "delete_run_details",
    "delete_runs",
)
"""Statements, in an order in which nothing is left without what it belongs to."""


async def read_whole(connection: Connection, tenant: str, run_ids: Sequence[str]) -> list[WholeRun]:
    """Everything about these runs; six statements, however many they are."""
    wanted = ids(run_ids)

    async def by_run(statement: str, convert: Callable[[Sequence[Any]], T]) -> dict[str, list[T]]:
        found: dict[str, list[T]] = defaultdict(list)
        for row in await fetch(connection, statement, tenant, wanted):
            found[row[1]].append(convert(row))
        return found

    records = [columns.record_from(row) for row in await fetch(connection, SQL.read_runs, tenant, wanted)]
    steps: dict[str, list[Step]] = defaultdict(list)
    for row in await fetch(connection, SQL.load_all_steps, names([tenant] * len(run_ids)), wanted):
        run_id = run_ids[row[0] - 1]
        steps[run_id].append(columns.step_from(tenant, run_id, row[1], row[2:]))
    attempts = await by_run(SQL.read_attempts_of, columns.attempt_from)
    entries = await by_run(SQL.read_journal_of, lambda row: SealedEntry(*row))
    messages = await by_run(SQL.read_messages_of, columns.message_from)
    outbox = await by_run(SQL.read_outbox_of, columns.outbox_from)
    return [
        WholeRun(
            record=record,
            steps=tuple(sorted(steps[record.run.id], key=lambda step: step.no)),
            attempts=tuple(attempts[record.run.id]),
            entries=tuple(entries[record.run.id]),
            messages=tuple(messages[record.run.id]),
            outbox=tuple(outbox[record.run.id]),
        )
        for record in records
    ]


async def delete_runs(connection: Connection, tenant: str, run_ids: Sequence[str]) -> list[str]:
    """Delete what can be had without waiting."""
    held = [row[0] for row in await fetch(connection, SQL.lock_finished, tenant, ids(run_ids))]
    if held:
        for part in PARTS:
            await execute(connection, getattr(SQL, part), tenant, ids(held))
    return held
