"""The columns of every table that holds rows of a run or a worker, for both stores.

The row types are the description: the fields of a type, in their order, are the columns of its table in all statements.
From it come the functions that make rows from columns, here, and those that make parameters from rows, in each store.
They are generated as source, because they run for every row of every transaction. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec

from stepkeep.kernel.errors import Unreadable
from stepkeep.kernel.machine.bounds import Bounds
from stepkeep.kernel.machine.journal import SealedEntry
from stepkeep.kernel.machine.rows import (
    Attempt,
    Checkpoint,
    Child,
    Details,
    Gate,
    Message,
    Note,
    OutboxEntry,
    Run,
    Step,
    Vote,
    Worker,
)
from stepkeep.kernel.machine.states import RunState
from stepkeep.store.change import IdempotencyKey, RunKey, StoredDefinition, StoredPolicy, StoredSchema, StoredSetting
from stepkeep.store.principals import (
    ApiKey,
    DelegationRow,
    MembershipRow,
    Principal,
    SealedPeopleEntry,
    SessionRow,
    TenantRow,
)
from stepkeep.store.reading import read_definition, read_person, read_row, unreadable_worker
from stepkeep.store.records import RunRecord, RunStatus, SignedHead, UnfitStep
from stepkeep.store.rows import (
    AdoptionRow,
    AuditHead,
    Backfill,
    ChainedRow,
    Conversation,
    ConversationItem,
    Delivery,
    Firing,
    HoldRow,
    Job,
    JobRun,
    LimitHold,
    LimitKeyRow,
    LimitWait,
    MailboxMessage,
    SinkRow,
    SlotRow,
    StreamRow,
    TriggerRow,
)

R = TypeVar("R", bound=msgspec.Struct)

TABLES: Mapping[str, type[msgspec.Struct]] = {
    "runs": Run,
    "run_details": Details,
    "steps": Step,
    "attempts": Attempt,
    "checkpoints": Checkpoint,
    "journal": SealedEntry,
    "messages": Message,
    "mailbox": MailboxMessage,
    "outbox": OutboxEntry,
    "gates": Gate,
    "decisions": Vote,
    "adoptions": AdoptionRow,
    "children": Child,
    "slots": SlotRow,
    "resource_holds": HoldRow,
    "limit_keys": LimitKeyRow,
    "limit_holds": LimitHold,
    "limit_waits": LimitWait,
    "stream_rows": StreamRow,
    "signed_heads": SignedHead,
    "workers": Worker,
    "definitions": StoredDefinition,
    "schemas": StoredSchema,
    "idempotency_keys": IdempotencyKey,
    "policies": StoredPolicy,
    "settings": StoredSetting,
    "tenants": TenantRow,
    "principals": Principal,
    "memberships": MembershipRow,
    "delegations": DelegationRow,
    "api_keys": ApiKey,
    "sessions": SessionRow,
    "audit": ChainedRow,
    "audit_heads": AuditHead,
    "people_journal": SealedPeopleEntry,
    "triggers": TriggerRow,
    "firings": Firing,
    "backfills": Backfill,
    "jobs": Job,
    "job_runs": JobRun,
    "conversations": Conversation,
    "conversation_items": ConversationItem,
    "sinks": SinkRow,
    "deliveries": Delivery,
}


class Kind(Enum):
    """How a store holds a value. A list is JSON text, and so is the note of a step."""

    TENANT = auto()
    RUN = auto()
    NUMBER = auto()
    TEXT = auto()
    BYTES = auto()
    WORD = auto()
    NOTE = auto()
    LIST = auto()


class Column(msgspec.Struct, frozen=True):
    """One column: its name, how it is held, the type of its value, whether that may be missing, and its bounds."""

    name: str
    kind: Kind
    type: Any
    is_nullable: bool
    bounds: Bounds | None = None


KINDS = {int: Kind.NUMBER, str: Kind.TEXT, bytes: Kind.BYTES, Note: Kind.NOTE, tuple: Kind.LIST}
NAMED = {
    "tenant": Kind.TENANT,
    "run_id": Kind.RUN,
    "rerun_of": Kind.RUN,
    "source_run": Kind.RUN,
    "child_id": Kind.RUN,
    "undoes": Kind.RUN,
}


@cache
def columns_of(row: type[msgspec.Struct]) -> tuple[Column, ...]:
    """The columns of a row's table, in the order of the statements."""
    found = []
    for field in msgspec.structs.fields(row):
        types = get_args(field.type) if get_origin(field.type) in (Union, UnionType) else (field.type,)
        [kept] = [one for one in types if one is not NoneType]
        bounds = None
        if get_origin(kept) is Annotated:
            kept, bounds = get_args(kept)
        kind = NAMED.get(field.name) or KINDS.get(get_origin(kept) or kept, Kind.WORD)
        kind = Kind.RUN if row is Run and field.name == "id" else kind
        found.append(Column(field.name, kind, kept, len(types) > 1, bounds))
    return tuple(found)


def generate(source: Iterable[str], names: Mapping[str, Any]) -> Any:
    """The function `made` of a source that is built from the names of columns alone."""
    scope = dict(names)
    exec("\n".join(source), scope)  # noqa: S102 - nothing in it comes from outside this program
    return scope["made"]


def reader(row: type[R], *given: str) -> Callable[..., R]:
    """A function that makes a row: the `given` fields are its first arguments, the others one sequence of columns.

    >>> reader(OutboxEntry, "tenant")("acme", ("r-1", 1, 0, "paid", b"{}", 5)).payload
    b'{}'
    """
    scope: dict[str, Any] = {"Row": row}
    values = []
    for column in columns_of(row):
        name, value = column.name, f"{column.name}_"
        if column.kind is Kind.WORD:
            words: dict[str | None, Any] = {word.value: word for word in column.type}
            # A lookup in a dict takes a fifth of the time of calling the enum.
            scope[f"{name}_words"] = {None: None, **words} if column.is_nullable else words
            value = f"{name}_words[{value}]"
        elif column.kind in (Kind.NOTE, Kind.LIST):
            scope[f"{name}_decode"] = msgspec.json.Decoder(column.type).decode
            value = f"{name}_decode({value})" + (f" if {value} is not None else None" if column.is_nullable else "")
        values.append(value if name in row.__match_args__ else f"{name}={value}")
    read = [f"{column.name}_" for column in columns_of(row) if column.name not in given]
    source = (
        f"def made({''.join(f'{name}_, ' for name in given)}columns):",
        f"    {', '.join(read)}, = columns",
        f"    return Row({', '.join(values)})",
    )
    made: Callable[..., R] = generate(source, scope)
    return made


run_from = reader(Run)
details_from = reader(Details)
step_from = reader(Step)
attempt_from = reader(Attempt)
checkpoint_from = reader(Checkpoint)
entry_from = reader(SealedEntry)
message_from = reader(Message)
mailbox_from = reader(MailboxMessage)
outbox_from = reader(OutboxEntry)
gate_from = reader(Gate)
vote_from = reader(Vote)
adoption_from = reader(AdoptionRow)
child_from = reader(Child)
slot_from = reader(SlotRow)
hold_from = reader(HoldRow)
limit_key_from = reader(LimitKeyRow)
limit_hold_from = reader(LimitHold)
limit_wait_from = reader(LimitWait)
stream_from = reader(StreamRow)
signed_head_from = reader(SignedHead)
idempotency_from = reader(IdempotencyKey)
unchecked_definition = reader(StoredDefinition)
schema_from = reader(StoredSchema)
policy_from = reader(StoredPolicy)
setting_from = reader(StoredSetting)
trigger_from = reader(TriggerRow)
firing_from = reader(Firing)
backfill_from = reader(Backfill)
job_from = reader(Job)
job_run_from = reader(JobRun)
conversation_from = reader(Conversation)
conversation_item_from = reader(ConversationItem)
_worker = reader(Worker)
_note = msgspec.json.Decoder(Note).decode
_encode = msgspec.json.Encoder().encode

RUN_STATES = {state.value: state for state in RunState}
RUN_WIDTH, STEP_WIDTH = len(columns_of(Run)), len(columns_of(Step))
FIRING_WIDTH = len(columns_of(Firing))


def json_text(value: object) -> str:
    """A value as the JSON text in which a column or a parameter holds it."""
    return _encode(value).decode()


def record_from(columns: Sequence[Any]) -> RunRecord:
    """A run and its details, from one row that has both."""
    details = (*columns[:2], *columns[RUN_WIDTH:])
    return RunRecord(run=run_from(columns[:RUN_WIDTH]), details=details_from(details))


def read_record(row: Sequence[Any]) -> RunRecord:
    """The same, or Unreadable with the state as it is stored."""
    try:
        return read_row("runs", record_from, row, (row[0], row[1]))
    except Unreadable as problem:
        problem.state = str(row[3])
        raise


def states_from(rows: Iterable[Sequence[Any]]) -> dict[RunKey, RunStatus]:
    """The states of runs by their keys, each with the outputs that were read with it."""
    found: dict[RunKey, RunStatus] = {}
    for row in rows:
        key = (row[0], row[1])
        if key not in found:
            found[key] = read_row("runs", _status_from, row, key)
        if row[6] is not None:
            found[key].outputs[row[6]] = read_row("steps", lambda row: output_from(row[7], row[8]), row, key)
    return found


def _status_from(row: Sequence[Any]) -> RunStatus:
    return RunStatus(state=RUN_STATES[row[2]], definition_id=row[3], error=row[4], seq=row[5])


def unfit_from(row: Sequence[Any]) -> UnfitStep:
    """A flow that holds, from its row."""
    run_id, no, queue, note = row
    return UnfitStep(str(run_id), no, queue, _note(note).tried)


def output_from(note: str | None, output: bytes | None) -> bytes | None:
    """A step's output: from its note if no attempt produced it, else from the attempt."""
    if note is not None and (held := _note(note).output) is not None:
        return held.encode()
    return output


def definition_from(columns: Sequence[Any]) -> StoredDefinition:
    """A definition, or Unreadable."""
    return read_definition(unchecked_definition, columns)


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


def worker_values(worker: Worker) -> tuple[Any, ...]:
    """A worker's columns except its number, which the store assigns."""
    return tuple(_value(worker, column) for column in columns_of(Worker) if column.name != "no")


def values_of(row: msgspec.Struct) -> tuple[Any, ...]:
    """Every column of a row, as parameters."""
    if not _has_lists(type(row)):
        return msgspec.structs.astuple(row)
    return tuple(_value(row, column) for column in columns_of(type(row)))


@cache
def _has_lists(row: type[msgspec.Struct]) -> bool:
    return any(column.kind is Kind.LIST for column in columns_of(row))


def person_reader(row: type[R]) -> Callable[[Sequence[Any]], R]:
    """A function that makes a row of people, or raises Unreadable: a damaged row gives nobody a right."""
    [table] = [name for name, described in TABLES.items() if issubclass(described, row)]
    convert = reader(row)
    return lambda columns: read_person(table, convert, columns)


def _value(row: msgspec.Struct, column: Column) -> Any:
    value = getattr(row, column.name)
    return json_text(value) if column.kind is Kind.LIST and value is not None else value
