"""Converts rows to statement parameters and back.

Only this module knows the order of columns in the statements. `load` and `write` call it for every row, so it is
written out for speed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from stepkeep.kernel.journal import SealedEntry
from stepkeep.kernel.rows import Attempt, Details, Message, Note, OutboxEntry, Run, Step, Worker
from stepkeep.kernel.states import (
    AttemptState,
    Category,
    OnFailure,
    Rollback,
    RunState,
    StepState,
    StopCause,
    WorkerState,
)
from stepkeep.store.postgres.arrays import Bytes, Parcel, ids, json_text, names, numbers, packed, words
from stepkeep.store.protocol import (
    Loaded,
    RunKey,
    RunRecord,
    RunStatus,
    StoredDefinition,
)
from stepkeep.store.reading import read_definition, read_row, unreadable, unreadable_worker

RUN_STATES = {state.value: state for state in RunState}
STEP_STATES = {state.value: state for state in StepState}
ATTEMPT_STATES = {state.value: state for state in AttemptState}
CATEGORIES: dict[str | None, Category | None] = {None: None, **{one.value: one for one in Category}}
CAUSES: dict[str | None, StopCause | None] = {None: None, **{one.value: one for one in StopCause}}
POLICIES: dict[str | None, OnFailure | None] = {None: None, **{one.value: one for one in OnFailure}}
ROLLBACKS = {one.value: one for one in Rollback}

_encode = msgspec.json.Encoder().encode
_note = msgspec.json.Decoder(Note).decode
_names = msgspec.json.Decoder(tuple[str, ...]).decode
_numbers = msgspec.json.Decoder(tuple[int, ...]).decode

Columns = list[Any]
Numbers = list[int | None]

COMMONEST = (StepState.RUNNING, StepState.SUCCEEDED, Rollback.NONE, StepState.PENDING, StepState.READY)
VOCABULARIES = (StepState, RunState, AttemptState, Category, StopCause, OnFailure, Rollback)
VOCABULARY = tuple(dict.fromkeys((*COMMONEST, *(word for words in VOCABULARIES for word in words))))
"""Every word that a hot row may hold, the most frequent first, because the server searches from the beginning."""

CODES: dict[str | None, int] = {None: 0, **{word: place for place, word in enumerate(VOCABULARY, 1)}}
WORDS = words(VOCABULARY)


# -- rows to columns -------------------------------------------------------------------------------------------


def run_numbers(runs: Iterable[tuple[int, Run]], parcel: Parcel) -> str:
    """Runs as `write_hot` and `insert_runs` take them, each beside the one number in which those differ."""
    place, put, text, rows = parcel.runs, parcel.put, parcel.put_text, Numbers()
    for number, run in runs:
        rows += (
            place[run.id],
            number,
            CODES[run.state],
            run.priority,
            run.seq,
            put(run.head),
            run.open,
            run.moving,
            run.leased,
            run.failed,
            run.undoing,
            run.inbox,
            CODES[run.cause],
            CODES[run.policy],
            CODES[run.category],
            None if run.error is None else text(run.error),
            CODES[run.rollback],
            run.due_at,
            run.started_at,
            run.ended_at,
            None if run.business_key is None else text(run.business_key),
            run.moved_at,
        )
    return packed(rows)


def details_numbers(details: Iterable[tuple[str, Details]], parcel: Parcel) -> str:
    """Details beside the id of their run."""
    place, put, text, rows = parcel.runs, parcel.put, parcel.put_text, Numbers()
    for run_id, one in details:
        rows += (
            place[run_id],
            text(one.workflow),
            one.version,
            text(one.dialect),
            put(one.input),
            text(one.correlation_id),
            one.created_at,
            text(one.created_by),
            None if one.business_key is None else text(one.business_key),
            None if one.rerun_of is None else place[one.rerun_of],
            None if one.labels is None else put(one.labels),
        )
    return packed(rows)


def step_numbers(steps: Iterable[Step], parcel: Parcel) -> str:
    place, put, text, rows = parcel.runs, parcel.put, parcel.put_text, Numbers()
    for step in steps:
        rows += (
            place[step.run_id],
            step.no,
            step.queue,
            step.priority,
            CODES[step.state],
            step.ready_at,
            step.due_at,
            step.fence,
            step.worker,
            step.claimed_at,
            step.attempts,
            step.losses,
            step.unmet,
            step.settled,
            CODES[step.category],
            None if step.error is None else text(step.error),
            None if step.note is None else put(_encode(step.note)),
        )
    return packed(rows)


def attempt_numbers(attempts: Iterable[Attempt], parcel: Parcel) -> str:
    place, put, text, rows = parcel.runs, parcel.put, parcel.put_text, Numbers()
    for attempt in attempts:
        rows += (
            place[attempt.run_id],
            attempt.no,
            attempt.fence,
            attempt.number,
            CODES[attempt.state],
            attempt.worker,
            attempt.started_at,
            attempt.ended_at,
            CODES[attempt.category],
            None if attempt.error is None else text(attempt.error),
            None if attempt.output is None else put(attempt.output),
            None if attempt.cost is None else put(attempt.cost),
        )
    return packed(rows)


def run_moves(runs: Iterable[tuple[int, Run]], parcel: Parcel) -> str:
    """The hot columns of runs, beside the journal sequence of their basis."""
    place, put, rows = parcel.runs, parcel.put, Numbers()
    for number, run in runs:
        rows += (
            place[run.id],
            number,
            CODES[run.state],
            run.seq,
            put(run.head),
            run.open,
            run.moving,
            run.leased,
            run.due_at,
            run.ended_at,
            run.moved_at,
        )
    return packed(rows)


def step_moves(steps: Iterable[Step], parcel: Parcel) -> str:
    place, rows = parcel.runs, Numbers()
    for step in steps:
        rows += (
            place[step.run_id],
            step.no,
            CODES[step.state],
            step.ready_at,
            step.due_at,
            step.fence,
            step.worker,
            step.claimed_at,
            step.unmet,
            step.settled,
        )
    return packed(rows)


def attempt_moves(attempts: Iterable[Attempt], parcel: Parcel) -> str:
    """Attempts without a category and an error."""
    place, put, rows = parcel.runs, parcel.put, Numbers()
    for attempt in attempts:
        rows += (
            place[attempt.run_id],
            attempt.no,
            attempt.fence,
            attempt.number,
            CODES[attempt.state],
            attempt.worker,
            attempt.started_at,
            attempt.ended_at,
            None if attempt.output is None else put(attempt.output),
            None if attempt.cost is None else put(attempt.cost),
        )
    return packed(rows)


WHOLE_ROWS = (run_numbers, step_numbers, attempt_numbers)
MOVES = (run_moves, step_moves, attempt_moves)
"""Runs, steps and attempts as `write_hot` and as `write_moves` take them."""


def entry_numbers(entries: Iterable[SealedEntry], parcel: Parcel) -> str:
    place, put, rows = parcel.runs, parcel.put, Numbers()
    for entry in entries:
        rows += (place[entry.run_id], entry.seq, entry.at, put(entry.body), put(entry.hash))
    return packed(rows)


def message_columns(messages: Sequence[Message], blob: Bytes) -> Columns:
    return [
        names([message.tenant for message in messages]),
        ids([message.run_id for message in messages]),
        [message.id for message in messages],
        numbers([message.number for message in messages]),
        [message.name for message in messages],
        *blob.place([message.payload for message in messages]),
        [message.sender for message in messages],
        numbers([message.arrived_at for message in messages]),
        numbers([message.consumed_by for message in messages]),
    ]


def outbox_columns(entries: Sequence[OutboxEntry], blob: Bytes) -> Columns:
    return [
        names([entry.tenant for entry in entries]),
        ids([entry.run_id for entry in entries]),
        numbers([entry.seq for entry in entries]),
        numbers([entry.number for entry in entries]),
        [entry.name for entry in entries],
        *blob.place([entry.payload for entry in entries]),
        numbers([entry.created_at for entry in entries]),
    ]


def worker_columns(worker: Worker) -> Columns:
    return [
        worker.tenant,
        worker.id,
        worker.state,
        worker.incarnation,
        worker.capacity,
        json_text(worker.capabilities),
        json_text(worker.queues),
        worker.heard_at,
        worker.started_at,
        worker.seq,
        worker.head,
    ]


# -- columns to rows ---------------------------------------------------------------------------------------------------


def run_from(tenant: str, run_id: str, columns: Sequence[Any]) -> Run:
    """Fields are accessed by index: by name they would cost fifteen times as much."""
    (
        definition_id,
        state,
        priority,
        seq,
        head,
        open_,
        moving,
        leased,
        failed,
        undoing,
        inbox,
        cause,
        policy,
        category,
        error,
        rollback,
        due_at,
        started_at,
        ended_at,
        business_key,
        moved_at,
    ) = columns
    return Run(
        tenant,
        run_id,
        definition_id,
        RUN_STATES[state],
        priority,
        seq,
        head,
        open_,
        moving,
        leased,
        failed,
        undoing,
        inbox,
        CAUSES[cause],
        POLICIES[policy],
        CATEGORIES[category],
        error,
        ROLLBACKS[rollback],
        due_at,
        started_at,
        ended_at,
        business_key,
        moved_at,
    )


def step_from(tenant: str, run_id: str, no: int, columns: Sequence[Any]) -> Step:
    (
        queue,
        priority,
        state,
        ready_at,
        due_at,
        fence,
        worker,
        claimed_at,
        attempts,
        losses,
        unmet,
        settled,
        category,
        error,
        note,
    ) = columns
    return Step(
        tenant,
        run_id,
        no,
        queue,
        priority,
        STEP_STATES[state],
        ready_at,
        due_at,
        fence,
        worker,
        claimed_at,
        attempts,
        losses,
        unmet,
        settled,
        CATEGORIES[category],
        error,
        None if note is None else _note(note),
    )


def claimable_from(found: Iterable[Sequence[Any]]) -> Loaded:
    """Steps and their runs, as `find_claimable` selects them."""
    loaded = Loaded(now=0)
    for row in found:
        loaded.now, tenant, run_id, no = row[:4]
        key = (tenant, run_id)
        table = "runs"
        try:
            if key not in loaded.runs:
                loaded.runs[key], loaded.steps[key] = run_from(tenant, run_id, row[19:]), {}
            table = "steps"
            loaded.steps[key][no] = step_from(tenant, run_id, no, row[4:19])
        except Exception as problem:  # noqa: BLE001 - it is this run's alone
            loaded.barred.setdefault(key, unreadable(table, key, (*key, no), problem))
        loaded.proposed.append((tenant, run_id, no))
    if loaded.barred:
        readable = [one for one in loaded.proposed if (one[0], one[1]) not in loaded.barred]
        loaded.passed_over = len(loaded.proposed) - len(readable)
        loaded.proposed = readable
    return loaded


def output_from(note: str | None, output: bytes | None) -> bytes | None:
    """A step's output: from its note if no attempt produced it, else from the attempt."""
    if note is not None and (held := _note(note).output) is not None:
        return held.encode()
    return output


def details_from(tenant: str, run_id: str, columns: Sequence[Any]) -> Details:
    names = Details.__struct_fields__[2:]
    return Details(tenant=tenant, run_id=run_id, **dict(zip(names, columns, strict=True)))


def state_from(columns: Sequence[Any]) -> tuple[RunKey, RunStatus]:
    """A run's key and its state."""
    key = (columns[0], columns[1])
    return key, read_row("runs", _status_from, columns, key)


def _status_from(row: Sequence[Any]) -> RunStatus:
    return RunStatus(state=RUN_STATES[row[2]], definition_id=row[3], error=row[4])


def record_from(columns: Sequence[Any]) -> RunRecord:
    """A run beside its details, as `read_run` and `list_runs` select them."""
    tenant, run_id = columns[0], columns[1]
    return RunRecord(run=run_from(tenant, run_id, columns[2:23]), details=details_from(tenant, run_id, columns[23:]))


def attempt_from(columns: Sequence[Any]) -> Attempt:
    values = dict(zip(Attempt.__struct_fields__, columns, strict=True))
    values["state"] = ATTEMPT_STATES[values["state"]]
    values["category"] = CATEGORIES[values["category"]]
    return Attempt(**values)


def message_from(columns: Sequence[Any]) -> Message:
    return Message(**dict(zip(Message.__struct_fields__, columns, strict=True)))


def outbox_from(columns: Sequence[Any]) -> OutboxEntry:
    return OutboxEntry(**dict(zip(OutboxEntry.__struct_fields__, columns, strict=True)))


def definition_from(columns: Sequence[Any]) -> StoredDefinition:
    """A definition, or Unreadable."""
    return read_definition(unchecked_definition, columns)


def unchecked_definition(columns: Sequence[Any]) -> StoredDefinition:
    values = dict(zip(StoredDefinition.__struct_fields__, columns, strict=True))
    values["queues"] = _numbers(values["queues"])
    return StoredDefinition(**values)


def worker_from(columns: Sequence[Any]) -> Worker:
    """A worker, or Unreadable."""
    try:
        return _worker(columns)
    except Exception as problem:
        raise unreadable_worker(columns, problem) from problem


def worker_or_none(columns: Sequence[Any]) -> Worker | None:
    """A worker for a sweep, or None if it cannot be read."""
    try:
        return _worker(columns)
    except Exception:  # noqa: BLE001 - the sweep serves the others; `stepkeep workers` says what is wrong with this one
        return None


def _worker(columns: Sequence[Any]) -> Worker:
    values = dict(zip(Worker.__struct_fields__, columns, strict=True))
    values["state"] = WorkerState(values["state"])
    values["capabilities"] = _names(values["capabilities"])
    values["queues"] = _numbers(values["queues"])
    return Worker(**values)
