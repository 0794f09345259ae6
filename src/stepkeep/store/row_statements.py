"""The statements that follow from the types of rows: those that insert rows, save them, read the rows
of runs, and delete them.

The columns are the fields of the type, in their order; nothing in a statement comes from outside this program. Both
stores have the statements under the same names. PostgreSQL takes many rows at once, an array for each column;
`parameters.arrays_of` makes the arrays. `statements` calls this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stepkeep.kernel.machine.bounds import INT
from stepkeep.kernel.machine.journal import SealedEntry
from stepkeep.kernel.machine.rows import Attempt, Checkpoint, Details, Gate, Message, OutboxEntry, Run, Step, Vote
from stepkeep.store.columns import TABLES, Column, Kind, columns_of
from stepkeep.store.principals import (
    ApiKey,
    DelegationRow,
    MembershipRow,
    Principal,
    SealedPeopleEntry,
    SessionRow,
    TenantRow,
)
from stepkeep.store.rows import AuditHead, Backfill, Firing
from stepkeep.store.writing import AFTER_RUNS, RowType

HOT: Mapping[str, RowType] = {
    "insert_runs": Run,
    "insert_run_details": Details,
    "insert_steps": Step,
    "insert_attempts": Attempt,
    "insert_journal": SealedEntry,
}
"""Rows that PostgreSQL inserts by the statements for hot rows."""


SAVED: Mapping[str, tuple[RowType, str, str]] = {
    "save_tenant": (TenantRow, "name", "vouching"),
    "save_principal": (Principal, "tenant, name", "display, disabled_at, disabled_by"),
    "save_membership": (MembershipRow, "tenant, id", "revoked_at, revoked_by"),
    "save_delegation": (DelegationRow, "tenant, id", "revoked_at, revoked_by"),
    "save_key": (
        ApiKey,
        "tenant, id",
        "expires_at, revoked_at, revoked_by, max_concurrent_runs, max_requests_per_min, queues, handlers",
    ),
    "save_session": (SessionRow, "tenant, id", "ended_at"),
    "save_audit_head": (AuditHead, "tenant", "seq, hash"),
    "save_firing": (
        Firing,
        "tenant, trigger_name, moment",
        "due_at, state, watched, depth, run_id, backfill, reason, given",
    ),
    "save_backfill": (Backfill, "tenant, id", "state, cursor_at, started, skipped, refused, ended_at"),
}
"""Rows that are added or changed: by which key, and which columns may change."""

OF_RUNS: Mapping[str, tuple[RowType, str]] = {
    "attempts": (Attempt, "no, fence"),
    "checkpoints": (Checkpoint, "no, seq, name"),
    "journal": (SealedEntry, "seq"),
    "messages": (Message, "number"),
    "outbox": (OutboxEntry, "seq, number"),
    "gates": (Gate, "no, activation"),
    "decisions": (Vote, "no, activation, at, person"),
}
"""What is read of one run, and of several in the given order: the rows, and their order within a run."""

TABLE_OF = {row: table for table, row in TABLES.items()}

INSERTED = {
    f"insert_{table}": (row, put.by_arrays)
    for row, put in AFTER_RUNS.items()
    if (table := TABLE_OF.get(row)) and put.statement == f"insert_{table}"
}
"""The rows of a change that are only inserted, and whether PostgreSQL takes many at once."""

MANY: Mapping[str, RowType] = {name: row for name, (row, by_arrays) in INSERTED.items() if by_arrays}
ONE: Mapping[str, RowType] = {
    **{name: row for name, (row, by_arrays) in INSERTED.items() if not by_arrays},
    "insert_people_journal": SealedPeopleEntry,
}
# fmt: off
ORDER = (
    "steps", "attempts", "attempt_evidence", "checkpoints", "stream_rows", "payload_chunks", "journal", "messages",
    "outbox", "deliveries", "gates", "adoptions", "children", "slots", "resource_holds", "limit_holds", "limit_waits",
    "decisions", "signed_heads", "run_details", "runs",
)
# fmt: on
DELETED: Mapping[str, str] = {f"delete_{table.removeprefix('attempt_')}": table for table in ORDER}
"""The tables from which the rows of deleted runs are deleted, in an order that respects foreign keys."""


def shared_statements() -> Iterator[tuple[str, str]]:
    """Those that both stores have, in the words of PostgreSQL."""
    for table, (row, order) in OF_RUNS.items():
        if table not in ("journal", "checkpoints"):  # they are read in parts
            where = "where tenant = $1 and run_id = $2"
            yield f"read_{table}", f"select {_read(row)}\nfrom {table}\n{where}\norder by {order}"
    for name, row in ONE.items():
        yield name, insert(row)
    for name, (row, key, changing) in SAVED.items():
        changes = ", ".join(f"{column} = excluded.{column}" for column in changing.split(", "))
        yield name, f"{insert(row)}\non conflict ({key}) do update set {changes}"


def sqlite_statements() -> Iterator[tuple[str, str]]:
    """Those of SQLite alone, with the placeholders of PostgreSQL."""
    for name, row in {**MANY, **HOT}.items():
        yield name, insert(row)
    for name, table in DELETED.items():
        gone = f"tenant = $1 and {_run_of(table)} in (select value from json_each($2))"
        yield name, f"delete from {table}\nwhere {gone}"
    for table, (row, order) in OF_RUNS.items():
        columns = ", ".join(f"t.{column.name}" for column in columns_of(row))
        wanted = f"from json_each($2) w\ncross join {table} t on t.tenant = $1 and t.run_id = w.value"
        order = ", ".join(f"t.{name}" for name in order.split(", "))
        yield f"read_{table}_of", f"select {columns}\n{wanted}\norder by w.key, {order}"


def postgres_statements() -> Iterator[tuple[str, str]]:
    """Those of PostgreSQL alone."""
    for name, row in MANY.items():
        yield name, insert_many(row)
    for name, table in DELETED.items():
        gone = f"{table}.tenant = $1 and {table}.{_run_of(table)} = gone.run_id"
        yield name, f"delete from {table}\nusing unnest($2::text::uuid[]) as gone (run_id)\nwhere {gone}"
    for table, (row, order) in OF_RUNS.items():
        child = (
            f"select {_read(row)}\n    from {table}\n    where {table}.tenant = $1 and {table}.run_id = wanted.run_id"
        )
        order = ", ".join(f"child.{name}" for name in order.split(", "))
        wanted = "unnest($2::text::uuid[]) with ordinality as wanted (run_id, place)"
        each = f"cross join lateral (\n    {child}\n    offset 0\n) as child"
        yield f"read_{table}_of", f"select child.*\nfrom {wanted}\n{each}\norder by wanted.place, {order}"


def insert(row: RowType) -> str:
    """Insert one row.

    >>> from stepkeep.store.rows import SlotRow
    >>> print(insert(SlotRow))
    insert into slots (tenant, run_id, workflow, most, priority, asked_at, granted_at)
    values ($1, $2::uuid, $3, $4, $5, $6, $7)
    """
    columns = columns_of(row)
    values = [f"${place}{'::uuid' * (column.kind is Kind.RUN)}" for place, column in enumerate(columns, 1)]
    return f"insert into {TABLE_OF[row]} ({_names(row)})\nvalues ({', '.join(values)})"


def insert_many(row: RowType) -> str:
    """Insert rows by an array for each column, and two for a column of bytes: $1 holds the bytes of all rows."""
    columns, taken, arrays, made = columns_of(row), list[str](), list[str](), list[str]()
    for column in columns:
        if column.kind is Kind.BYTES:
            taken.append(f"substring($1::bytea from {column.name}_from for {column.name}_for)")
            made += (f"{column.name}_from", f"{column.name}_for")
            arrays += ("text::int[]", "text::int[]")
        else:
            taken.append(column.name)
            made.append(column.name)
            arrays.append(_array(column))
    first = 2 if any(column.kind is Kind.BYTES for column in columns) else 1
    given = ", ".join(f"${place}::{cast}" for place, cast in enumerate(arrays, first))
    return (
        f"insert into {TABLE_OF[row]} ({_names(row)})\nselect {', '.join(taken)}\n"
        f"from unnest({given}) as given (\n    {', '.join(made)})"
    )


def _array(column: Column) -> str:
    if column.kind is Kind.NUMBER:
        return "text::bigint[]" if column.bounds is None or column.bounds.high > INT else "text::int[]"
    return {Kind.TENANT: "text::text[]", Kind.RUN: "text::uuid[]"}.get(column.kind, "text[]")


def _names(row: RowType) -> str:
    return ", ".join(column.name for column in columns_of(row))


def _read(row: RowType) -> str:
    return ", ".join(f"{column.name}{'::text' * (column.kind is Kind.RUN)}" for column in columns_of(row))


def _run_of(table: str) -> str:
    return "id" if table == "runs" else "run_id"
