"""Converts rows to values and back, column by column, in the order of the SQL files.

Conversions of hot rows are written out by hand, because they run for every row of every transaction. Nothing here
decides anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

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
from stepkeep.store.protocol import (
    IdempotencyKey,
    RunKey,
    RunRecord,
    RunStatus,
    StoredDefinition,
)
from stepkeep.store.reading import read_definition, read_row, unreadable_worker

Row = tuple[Any, ...]

# A lookup in a dict takes a fifth of the time of calling the enum.
RUN_STATES: Final = {state.value: state for state in RunState}
_STEP_STATE: Final = {state.value: state for state in StepState}
_CATEGORY: Final[dict[str | None, Category | None]] = {None: None, **{each.value: each for each in Category}}
_CAUSE: Final[dict[str | None, StopCause | None]] = {None: None, **{each.value: each for each in StopCause}}
_POLICY: Final[dict[str | None, OnFailure | None]] = {None: None, **{each.value: each for each in OnFailure}}
_ROLLBACK: Final = {rollback.value: rollback for rollback in Rollback}

encode_json: Final[Callable[[Any], bytes]] = msgspec.json.Encoder().encode
_decode_note: Final = msgspec.json.Decoder(Note).decode
_decode_numbers: Final = msgspec.json.Decoder(tuple[int, ...]).decode
_decode_names: Final = msgspec.json.Decoder(tuple[str, ...]).decode


def json_text(value: Any) -> str:
    """A value as the JSON text in which statements take lists."""
    return encode_json(value).decode()


def run_row(run: Run) -> Row:
    return (
        run.tenant,
        run.id,
        run.definition_id,
        run.state,
        run.priority,
        run.seq,
        run.head,
        run.open,
        run.moving,
        run.leased,
        run.failed,
        run.undoing,
        run.inbox,
        run.cause,
        run.policy,
        run.category,
        run.error,
        run.rollback,
        run.due_at,
        run.started_at,
        run.ended_at,
        run.business_key,
        run.moved_at,
    )


def to_run(row: Row) -> Run:
    return Run(
        tenant=row[0],
        id=row[1],
        definition_id=row[2],
        state=RUN_STATES[row[3]],
        priority=row[4],
        seq=row[5],
        head=row[6],
        open=row[7],
        moving=row[8],
        leased=row[9],
        failed=row[10],
        undoing=row[11],
        inbox=row[12],
        cause=_CAUSE[row[13]],
        policy=_POLICY[row[14]],
        category=_CATEGORY[row[15]],
        error=row[16],
        rollback=_ROLLBACK[row[17]],
        due_at=row[18],
        started_at=row[19],
        ended_at=row[20],
        business_key=row[21],
        moved_at=row[22],
    )


def step_row(step: Step) -> Row:
    note = step.note
    return (
        step.tenant,
        step.run_id,
        step.no,
        step.queue,
        step.priority,
        step.state,
        step.ready_at,
        step.due_at,
        step.fence,
        step.worker,
        step.claimed_at,
        step.attempts,
        step.losses,
        step.unmet,
        step.settled,
        step.category,
        step.error,
        None if note is None else encode_json(note).decode(),
    )


def step_moves(step: Step) -> Row:
    """The hot columns of a step that is not claimable."""
    return (
        step.tenant,
        step.run_id,
        step.no,
        step.state,
        step.due_at,
        step.fence,
        step.worker,
        step.claimed_at,
        step.unmet,
        step.settled,
    )


def to_step(row: Row) -> Step:
    note = row[17]
    return Step(
        tenant=row[0],
        run_id=row[1],
        no=row[2],
        queue=row[3],
        priority=row[4],
        state=_STEP_STATE[row[5]],
        ready_at=row[6],
        due_at=row[7],
        fence=row[8],
        worker=row[9],
        claimed_at=row[10],
        attempts=row[11],
        losses=row[12],
        unmet=row[13],
        settled=row[14],
        category=_CATEGORY[row[15]],
        error=row[16],
        note=None if note is None else _decode_note(note),
    )


def to_output(note: str | None, output: bytes | None) -> bytes | None:
    """A step's output: from its note if that has one, else from its attempt."""
    if note is not None and (held := _decode_note(note).output) is not None:
        return held.encode()
    return output


def details_row(details: Details) -> Row:
    return msgspec.structs.astuple(details)


def to_details(row: Row) -> Details:
    return Details(**dict(zip(Details.__struct_fields__, row, strict=True)))


def to_state(row: Row) -> tuple[RunKey, RunStatus]:
    """A run's key and its state."""
    key = (row[0], row[1])
    return key, read_row("runs", _to_status, row, key)


def _to_status(row: Row) -> RunStatus:
    return RunStatus(state=RUN_STATES[row[2]], definition_id=row[3], error=row[4])


def to_record(row: Row) -> RunRecord:
    """A run and its details, from one row that has both."""
    return RunRecord(run=to_run(row), details=to_details((*row[:2], *row[23:])))


def attempt_row(attempt: Attempt) -> Row:
    return (
        attempt.tenant,
        attempt.run_id,
        attempt.no,
        attempt.fence,
        attempt.number,
        attempt.state,
        attempt.worker,
        attempt.started_at,
        attempt.ended_at,
        attempt.category,
        attempt.error,
        attempt.output,
        attempt.cost,
    )


def to_attempt(row: Row) -> Attempt:
    named = dict(zip(Attempt.__struct_fields__, row, strict=True))
    named["state"] = AttemptState(named["state"])
    named["category"] = _CATEGORY[named["category"]]
    return Attempt(**named)


def entry_row(entry: SealedEntry) -> Row:
    return (entry.tenant, entry.run_id, entry.seq, entry.at, entry.body, entry.hash)


def to_entry(row: Row) -> SealedEntry:
    return SealedEntry(*row)


def message_row(message: Message) -> Row:
    return msgspec.structs.astuple(message)


def to_message(row: Row) -> Message:
    return Message(**dict(zip(Message.__struct_fields__, row, strict=True)))


def outbox_row(entry: OutboxEntry) -> Row:
    return msgspec.structs.astuple(entry)


def to_outbox(row: Row) -> OutboxEntry:
    return OutboxEntry(**dict(zip(OutboxEntry.__struct_fields__, row, strict=True)))


def idempotency_row(key: IdempotencyKey) -> Row:
    return msgspec.structs.astuple(key)


def to_idempotency(row: Row) -> IdempotencyKey:
    return IdempotencyKey(**dict(zip(IdempotencyKey.__struct_fields__, row, strict=True)))


def to_definition(row: Row) -> StoredDefinition:
    """A definition, or Unreadable."""
    return read_definition(definition_from, row)


def definition_from(row: Row) -> StoredDefinition:
    named = dict(zip(StoredDefinition.__struct_fields__, row, strict=True))
    named["queues"] = _decode_numbers(named["queues"])
    return StoredDefinition(**named)


def worker_row(worker: Worker) -> Row:
    """A worker's columns except its number, which the store assigns."""
    return (
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
    )


def to_worker(row: Row) -> Worker:
    """A worker, or Unreadable."""
    try:
        return _worker(row)
    except Exception as problem:
        raise unreadable_worker(row, problem) from problem


def worker_or_none(row: Row) -> Worker | None:
    """A worker for a sweep, or None if it cannot be read."""
    try:
        return _worker(row)
    except Exception:  # noqa: BLE001 - the sweep serves the others; `stepkeep workers` says what is wrong with this one
        return None


def _worker(row: Row) -> Worker:
    named = dict(zip(Worker.__struct_fields__, row, strict=True))
    named["state"] = WorkerState(named["state"])
    named["capabilities"] = _decode_names(named["capabilities"])
    named["queues"] = _decode_numbers(named["queues"])
    return Worker(**named)
