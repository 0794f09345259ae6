"""Turns rows that cannot be read into an error that names the run, the table and the row.

A row may be damaged, or written by a newer program. Only operations on its run are refused. The stores convert single
rows inside `read_row`, and catch conversion errors where a batch is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from stepkeep.edges.safe_text import inert_line
from stepkeep.kernel.errors import Quarantined, Unreadable
from stepkeep.kernel.machine.fitting import misfit_of_json, misfit_of_row
from stepkeep.kernel.machine.journal import SealedEntry, open_entry
from stepkeep.kernel.machine.rows import Attempt, Details, Message, OutboxEntry, Step
from stepkeep.kernel.machine.states import Category, RunState
from stepkeep.store.change import RunKey
from stepkeep.store.records import RunCounts, RunRecord, WholeRun

log = logging.getLogger(__name__)

T = TypeVar("T")
Convert = Callable[[Sequence[Any]], T]

ROW_KEYS: dict[str, dict[str, int]] = {
    "runs": {},
    "run_details": {},
    "steps": {"no": 2},
    "attempts": {"no": 2, "fence": 3},
    "journal": {"seq": 2},
    "messages": {"id": 2},
    "outbox": {"seq": 2, "number": 3},
    "gates": {"no": 2, "activation": 3},
    "decisions": {"no": 2, "activation": 3, "person": 4},
}
"""The columns that identify a row within a run, as indexes after tenant and run id."""

LONGEST_REASON = 300


def unreadable(table: str, key: RunKey, row: Sequence[Any], problem: object) -> Unreadable:
    """The error for a row of a run; `row` begins with tenant and run id, and may be truncated."""
    places = ROW_KEYS.get(table, {})
    named = ", ".join(f"{name} {row[place]!a:.40}" for name, place in places.items() if place < len(row))
    return Unreadable(table, named, reason(problem), tenant=key[0], run_id=key[1])


def reason(problem: object) -> str:
    """Why a row cannot be read, short enough for one line."""
    said = problem if isinstance(problem, str) else f"{type(problem).__name__}: {problem}"
    return inert_line(said, limit=LONGEST_REASON)


def quarantined(run_id: str) -> Quarantined:
    """The refusal of a change to a quarantined run."""
    return Quarantined(
        f"run {run_id} is quarantined: an operator has set it aside, and nothing moves it. "
        f"`stepkeep quarantine --list` says why; stepkeep quarantine --release {run_id} --reason TEXT ends it."
    )


def read_row(table: str, convert: Callable[[Any], T], row: Sequence[Any], key: RunKey, given: Any = None) -> T:
    """A row as its value, or Unreadable. `given` is the argument of `convert` if that is not the row itself."""
    try:
        value = convert(row if given is None else given)
        said = misfit(value)
    except Exception as problem:
        raise unreadable(table, key, row, problem) from problem
    if said is not None:
        raise unreadable(table, key, row, said)
    return value


def apart(
    run_ids: Sequence[str], read: Callable[[Sequence[str]], list[T]], unreadable: list[Unreadable] | None
) -> list[T]:
    """Read runs together. If one cannot be read, split until it is alone; then note it, or raise."""
    try:
        return read(run_ids)
    except Unreadable as problem:
        if unreadable is None:
            raise
        if len(run_ids) == 1:
            unreadable.append(problem)
            return []
    middle = len(run_ids) // 2
    return [*apart(run_ids[:middle], read, unreadable), *apart(run_ids[middle:], read, unreadable)]


@contextmanager
def named(table: str, tenant: str, run_ids: Sequence[str]) -> Iterator[None]:
    """A statement whose text may not be Unicode: the driver does not tell which row it is."""
    try:
        yield
    except UnicodeDecodeError as problem:
        raise unreadable(table, (tenant, run_ids[0]), (), problem) from problem


def unreadable_worker(row: Sequence[Any], problem: object) -> Unreadable:
    """The error for the row of a worker, which begins with its tenant and its id."""
    return Unreadable("workers", f"id {row[1]!a:.80}", reason(problem), tenant=None)


def read_person(table: str, convert: Callable[[Any], T], row: Sequence[Any]) -> T:
    """A row of people, or Unreadable. Its first two columns name it."""
    where = f"{row[0]!a:.40}, {row[1]!a:.40}"
    try:
        value = convert(row)
        said = misfit(value)
    except Exception as problem:
        raise Unreadable(table, where, reason(problem)) from problem
    if said is not None:
        raise Unreadable(table, where, said)
    return value


def read_definition(convert: Callable[[Any], T], row: Sequence[Any]) -> T:
    """A published definition, or Unreadable. The row begins with tenant and id."""
    where = f"id {row[1]!a:.40}"
    try:
        value = convert(row)
        said = misfit(value)
    except Exception as problem:
        raise Unreadable("definitions", where, reason(problem)) from problem
    if said is not None:
        raise Unreadable("definitions", where, said)
    return value


def read_definitions(convert: Callable[[Any], T], rows: Iterable[Sequence[Any]]) -> list[T]:
    """Definitions for a batch of decisions, without those that cannot be read: their runs alone are refused."""
    found = []
    for row in rows:
        try:
            found.append(read_definition(convert, row))
        except Unreadable as problem:
            log.error("%s", problem)  # noqa: TRY400 - the message names the row; the traceback is that of a decoder
    return found


def read_queues(decode: Callable[[Any], T], rows: Iterable[Sequence[Any]]) -> list[tuple[int, T]]:
    """Queues with what they ask of a worker, without those that cannot be read: no worker serves them."""
    found = []
    for number, text in rows:
        try:
            found.append((number, decode(text)))
        except msgspec.MsgspecError as problem:
            log.error("%s", Unreadable("queues", f"number {number!a:.40}", reason(problem)))  # noqa: TRY400 - as above
    return found


def tally_from(live: Sequence[Any], recent: Sequence[Any], troubled: Sequence[Any], late: Sequence[Any]) -> RunCounts:
    """The counts of four statements as one value. A state that this program does not know is left out."""
    states, categories = set(RunState), set(Category)
    [(overdue, since)] = late
    return RunCounts(
        live={RunState(state): count for state, count in live if state in states},
        recent={RunState(state): count for state, count in recent if state in states},
        troubled={
            (RunState(state), Category(category) if category in categories else None): count
            for state, category, count in troubled
            if state in states
        },
        late=overdue,
        late_since=since,
    )


def damage_of(whole: WholeRun) -> Unreadable | None:
    """The first row of a run whose values do not match their types."""
    run = whole.record.run
    tables = {
        "runs": (whole.record,),
        "steps": whole.steps,
        "attempts": whole.attempts,
        "journal": whole.entries,
        "messages": whole.messages,
        "outbox": whole.outbox,
        "gates": whole.gates,
        "decisions": whole.votes,
    }
    for table, rows in tables.items():
        for row in rows:
            try:
                read_row(table, lambda value: value, msgspec.structs.astuple(row), (run.tenant, run.id), row)
            except Unreadable as problem:
                return problem
    return None


def misfit(value: object) -> str | None:
    """What in a row does not match its type and meaning; None if all of it does."""
    if isinstance(value, RunRecord):
        return misfit(value.run) or misfit(value.details)
    if not isinstance(value, msgspec.Struct):
        return None
    return misfit_of_row(value) or _misfit_of_payloads(value)


def _misfit_of_payloads(value: msgspec.Struct) -> str | None:
    if isinstance(value, Attempt):
        return misfit_of_json({"output": value.output, "cost": value.cost})
    if isinstance(value, Details):
        return misfit_of_json({"input": value.input, "labels": value.labels})
    if isinstance(value, Message | OutboxEntry):
        return misfit_of_json({"payload": value.payload})
    if isinstance(value, Step) and value.note is not None:
        note = value.note
        return misfit_of_json(
            {
                f"note {name}": None if text is None else text.encode()
                for name, text in (("output", note.output), ("record", note.record))
            }
        )
    if isinstance(value, SealedEntry):
        open_entry(value.body)
    return None


def only(row: Sequence[Any]) -> str:
    """The one column of a row."""
    return str(row[0])


def first(found: Sequence[T]) -> T | None:
    """The first row, if there is one."""
    return found[0] if found else None
