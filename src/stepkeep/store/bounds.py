"""The check that refuses a row with a number beyond its bounds, before it is written.

The bounds are the types of the fields (`kernel/machine/bounds.py`), and the same for all stores. Every store calls
`check_write`, `check_worker`, `check_people`, `check_audit`, `check_version` or `check_revision` first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, get_args

import msgspec

from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.bounds import Bounds, Count, Id, Moment, Place, Seq, StepNo
from stepkeep.kernel.machine.journal import SealedEntry
from stepkeep.kernel.machine.rows import Attempt, Details, Run, Step, Worker
from stepkeep.store.change import Write
from stepkeep.store.columns import TABLES, columns_of, generate
from stepkeep.store.principals import PeopleChange
from stepkeep.store.rows import AuditRow, TriggerChange


def _table(**columns: Any) -> dict[str, Bounds]:
    return {name: get_args(kind)[1] for name, kind in columns.items()}


INTEGERS: dict[str, Mapping[str, Bounds]] = {
    **{name: {one.name: one.bounds for one in columns_of(row) if one.bounds} for name, row in TABLES.items()},
    "migrations": _table(version=Annotated[int, Bounds(1, 9999, 9999)], applied_at=Moment),
    "queues": _table(id=Id),
    "worker_journal": _table(seq=Seq, at=Moment),
    "worker_reports": _table(worker=Id, reported_at=Moment),
    "attempt_evidence": _table(no=StepNo, fence=Count),
    "payload_chunks": _table(no=Count),
    "limit_lines": _table(queue=Id, due_at=Moment),
    "quota_runs": _table(taken_at=Moment),
    "delivery_actions": _table(id=Place, at=Moment, seq=Seq, number=Count),
    "quarantine": _table(id=Place, quarantined_at=Moment, released_at=Moment),
}
"""Every integer column of both schemas. Tables without a row type of their own are listed by hand."""
INTEGERS = {table: columns for table, columns in INTEGERS.items() if columns}

NAMES: Mapping[type[msgspec.Struct], str] = {row: name for name, row in TABLES.items()} | {AuditRow: "audit"}


def _checker(row: type[msgspec.Struct]) -> Callable[[Iterable[Any]], None]:
    """A function that refuses rows of this type that are beyond the bounds.

    Nearly every row is far within, and that is cheap to see: values with the same bound are combined with bitwise or,
    and only a bit beyond the bound leads to the exact check. What is no number raises TypeError there.
    """
    by_bits: dict[int, list[str]] = {}
    beyond = []
    for column in columns_of(row):
        if (bounds := column.bounds) is None:
            continue
        value = f"row.{column.name}"
        given = f"({value} or 0)" if column.is_nullable else value
        bits = (bounds.high + 1).bit_length() - 1
        if bounds.low in (0, -bounds.high) and bits > 30:
            by_bits.setdefault(bits, []).append(given)
        else:
            by_bits.setdefault(31, []).append(f"{given} & 0")
            missing = f"{value} is not None and " if column.is_nullable else ""
            beyond.append(f"({missing}not {bounds.low} <= {value} <= {bounds.high})")
    tests = [f"({' | '.join(values)}) >> {bits}" for bits, values in by_bits.items()] + beyond
    source = ("def made(rows):", "    for row in rows:", f"        if {' or '.join(tests)}:", "            exact(row)")
    made: Callable[[Iterable[Any]], None] = generate(source, {"exact": _check_row})
    return made


def check_write(what: Write) -> None:
    """Refuse a write with a number that does not fit every store."""
    try:
        _check_rows(what)
    except TypeError:
        _name_what_is_no_number(what)
        raise


def _check_rows(what: Write) -> None:
    if what.runs:
        CHECKS[Run](change.run for change in what.runs)
    if what.steps or what.new_steps:
        CHECKS[Step](what.steps + what.new_steps)
    CHECKS[Attempt](what.attempts)
    CHECKS[SealedEntry](what.entries)
    for new in what.new_runs:
        if type(new.run.priority) is not int:  # it comes from callers, and True is a number, too
            _check_row(new.run)
        CHECKS[Run]((new.run,))
        CHECKS[Details]((new.details,))
        CHECKS[Step](new.steps)
        CHECKS[SealedEntry](new.entries)
    for kind, rows in what.every_row().items():
        if kind is TriggerChange:
            rows = [change.row for change in rows]
        elif kind not in NAMES:
            continue
        for row in rows:
            _check_row(row)


def _name_what_is_no_number(what: Write) -> None:
    for change in what.runs:
        _check_row(change.run)
    for new in what.new_runs:
        for row in (new.run, new.details, *new.steps, *new.entries):
            _check_row(row)
    for row in (*what.steps, *what.new_steps, *what.attempts, *what.entries):
        _check_row(row)


def check_worker(worker: Worker, entry: SealedEntry | None) -> None:
    """The same for a worker and an entry of its journal."""
    _check_row(worker)
    if entry is not None:
        _check_row(entry, "worker_journal")


def check_audit(rows: Iterable[AuditRow]) -> None:
    """The same for entries of the audit log."""
    for row in rows:
        _check_row(row)


def check_people(change: PeopleChange) -> None:
    """The same for a change of people."""
    for row in (change.entry, *change.rows()):
        _check_row(row)


def check_version(version: int) -> None:
    """The same for the version of a definition."""
    _check("definitions", "version", version, INTEGERS["definitions"]["version"])


def check_revision(revision: int) -> None:
    """The same for the revision of a policy or a setting."""
    _check("policies", "revision", revision, INTEGERS["policies"]["revision"])


def _check_row(row: msgspec.Struct, table: str | None = None) -> None:
    table = table or NAMES[type(row)]
    for column, bounds in INTEGERS.get(table, {}).items():
        _check(table, column, getattr(row, column, None), bounds)


def _check(table: str, column: str, value: Any, bounds: Bounds) -> None:
    if value is None:
        return
    if type(value) is not int:
        raise InvalidInput(f"{table}.{column} is a whole number, not {type(value).__name__}; nothing was written")
    if not bounds.low <= value <= bounds.high:
        raise InvalidInput(
            f"{table}.{column} would be {value}; it is from {bounds.low} to {bounds.high}. Nothing was written."
        )


CHECKS = {row: _checker(row) for row in (Run, Details, Step, Attempt, SealedEntry)}
