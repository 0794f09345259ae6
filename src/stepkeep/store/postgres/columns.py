"""Rows to columns and back: values as the kernel has them, arrays as `unnest` wants them.

Only this module knows in which order a table's columns stand in the statements. It looks at no value; `load` and
`write` call it for every row, so it is written out rather than clever.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from stepkeep.store.postgres.arrays import Bytes, ids, json_text, names, numbers, texts, words
from stepkeep.store.protocol import RunRecord, StoredDefinition

RUN_STATES = {state.value: state for state in RunState}
STEP_STATES = {state.value: state for state in StepState}
ATTEMPT_STATES = {state.value: state for state in AttemptState}
CATEGORIES: dict[str | None, Category | None] = {None: None, **{one.value: one for one in Category}}
CAUSES: dict[str | None, StopCause | None] = {None: None, **{one.value: one for one in StopCause}}
POLICIES: dict[str | None, OnFailure | None] = {None: None, **{one.value: one for one in OnFailure}}
ROLLBACKS = {one.value: one for one in Rollback}

_note = msgspec.json.Decoder(Note).decode
_names = msgspec.json.Decoder(tuple[str, ...]).decode
_numbers = msgspec.json.Decoder(tuple[int, ...]).decode

Columns = list[Any]


# -- rows to columns -------------------------------------------------------------------------------------------


def run_columns(runs: Sequence[Run], blob: Bytes) -> Columns:
    """A run, in the order of `write_hot` and `insert_runs`."""
    return [
        names([run.tenant for run in runs]),
        ids([run.id for run in runs]),
        words([run.state for run in runs]),
        numbers([run.priority for run in runs]),
        numbers([run.seq for run in runs]),
        *blob.place([run.head for run in runs]),
        numbers([run.open for run in runs]),
        numbers([run.moving for run in runs]),
        numbers([run.leased for run in runs]),
        numbers([run.failed for run in runs]),
        numbers([run.undoing for run in runs]),
        numbers([run.inbox for run in runs]),
        words([run.cause for run in runs]),
        words([run.policy for run in runs]),
        words([run.category for run in runs]),
        texts([run.error for run in runs]),
        words([run.rollback for run in runs]),
        numbers([run.due_at for run in runs]),
        numbers([run.started_at for run in runs]),
        numbers([run.ended_at for run in runs]),
        texts([run.business_key for run in runs]),
        numbers([run.moved_at for run in runs]),
    ]


def details_columns(details: Sequence[Details], blob: Bytes) -> Columns:
    return [
        [one.workflow for one in details],
        numbers([one.version for one in details]),
        [one.dialect for one in details],
        *blob.place([one.input for one in details]),
        [one.correlation_id for one in details],
        numbers([one.created_at for one in details]),
        [one.created_by for one in details],
        texts([one.business_key for one in details]),
        ids([one.rerun_of for one in details]),
        *blob.place([one.labels for one in details]),
    ]


def step_columns(steps: Sequence[Step]) -> Columns:
    return [
        names([step.tenant for step in steps]),
        ids([step.run_id for step in steps]),
        numbers([step.no for step in steps]),
        numbers([step.queue for step in steps]),
        numbers([step.priority for step in steps]),
        words([step.state for step in steps]),
        numbers([step.ready_at for step in steps]),
        numbers([step.due_at for step in steps]),
        numbers([step.fence for step in steps]),
        numbers([step.worker for step in steps]),
        numbers([step.claimed_at for step in steps]),
        numbers([step.attempts for step in steps]),
        numbers([step.losses for step in steps]),
        numbers([step.unmet for step in steps]),
        numbers([step.settled for step in steps]),
        words([step.category for step in steps]),
        texts([step.error for step in steps]),
        texts([None if step.note is None else json_text(step.note) for step in steps]),
    ]


def attempt_columns(attempts: Sequence[Attempt], blob: Bytes) -> Columns:
    return [
        names([attempt.tenant for attempt in attempts]),
        ids([attempt.run_id for attempt in attempts]),
        numbers([attempt.no for attempt in attempts]),
        numbers([attempt.fence for attempt in attempts]),
        numbers([attempt.number for attempt in attempts]),
        words([attempt.state for attempt in attempts]),
        numbers([attempt.worker for attempt in attempts]),
        numbers([attempt.started_at for attempt in attempts]),
        numbers([attempt.ended_at for attempt in attempts]),
        words([attempt.category for attempt in attempts]),
        texts([attempt.error for attempt in attempts]),
        *blob.place([attempt.output for attempt in attempts]),
        *blob.place([attempt.cost for attempt in attempts]),
    ]


def entry_columns(entries: Sequence[SealedEntry], blob: Bytes) -> Columns:
    return [
        names([entry.tenant for entry in entries]),
        ids([entry.run_id for entry in entries]),
        numbers([entry.seq for entry in entries]),
        numbers([entry.at for entry in entries]),
        *blob.place([entry.body for entry in entries]),
        *blob.place([entry.hash for entry in entries]),
    ]


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
        tenant=tenant,
        id=run_id,
        definition_id=definition_id,
        state=RUN_STATES[state],
        priority=priority,
        seq=seq,
        head=head,
        open=open_,
        moving=moving,
        leased=leased,
        failed=failed,
        undoing=undoing,
        inbox=inbox,
        cause=CAUSES[cause],
        policy=POLICIES[policy],
        category=CATEGORIES[category],
        error=error,
        rollback=ROLLBACKS[rollback],
        due_at=due_at,
        started_at=started_at,
        ended_at=ended_at,
        business_key=business_key,
        moved_at=moved_at,
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
        tenant=tenant,
        run_id=run_id,
        no=no,
        queue=queue,
        priority=priority,
        state=STEP_STATES[state],
        ready_at=ready_at,
        due_at=due_at,
        fence=fence,
        worker=worker,
        claimed_at=claimed_at,
        attempts=attempts,
        losses=losses,
        unmet=unmet,
        settled=settled,
        category=CATEGORIES[category],
        error=error,
        note=None if note is None else _note(note),
    )


def output_from(note: str | None, output: bytes | None) -> bytes | None:
    """A step's output: what its note holds where no attempt produced it, else what the attempt produced."""
    if note is not None and (held := _note(note).output) is not None:
        return held.encode()
    return output


def details_from(tenant: str, run_id: str, columns: Sequence[Any]) -> Details:
    names = Details.__struct_fields__[2:]
    return Details(tenant=tenant, run_id=run_id, **dict(zip(names, columns, strict=True)))


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
    values = dict(zip(StoredDefinition.__struct_fields__, columns, strict=True))
    values["queues"] = _numbers(values["queues"])
    return StoredDefinition(**values)


def worker_from(columns: Sequence[Any]) -> Worker:
    values = dict(zip(Worker.__struct_fields__, columns, strict=True))
    values["state"] = WorkerState(values["state"])
    values["capabilities"] = _names(values["capabilities"])
    values["queues"] = _numbers(values["queues"])
    return Worker(**values)
