"""The rows of a run, its steps and its attempts, as values.

A store converts these to columns and back; `decide` reads them and returns new ones. Times are microseconds of the
database clock. Payloads are encoded JSON, which the kernel never decodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from stepkeep.kernel.definition import Approval, Wait
from stepkeep.kernel.machine.bounds import (
    Count,
    Id,
    Moment,
    Natural,
    Place,
    Positive,
    Priority,
    Seq,
    StepCount,
    StepNo,
    Version,
)
from stepkeep.kernel.machine.states import (
    AttemptState,
    Category,
    OnFailure,
    Rollback,
    RunState,
    StepState,
    StopCause,
    WorkerState,
)

R = TypeVar("R", bound=msgspec.Struct)


class Rows(dict[type[msgspec.Struct], list[Any]]):
    """Rows by their type, each list in order. A type without rows is absent: an empty value writes nothing.

    A new type of row needs no place here, nor in what carries rows from a decision to a store.
    """

    __slots__ = ()

    def add(self, row: msgspec.Struct) -> None:
        kind = type(row)
        if kind in self:
            self[kind].append(row)
        else:
            self[kind] = [row]

    def of(self, kind: type[R]) -> Sequence[R]:
        """The rows of one type."""
        return self.get(kind, ())

    def put(self, kind: type[R], rows: Iterable[R]) -> None:
        """Replace the rows of one type."""
        if found := list(rows):
            self[kind] = found
        else:
            self.pop(kind, None)

    def take(self, others: Rows) -> None:
        """Add all rows of these."""
        for kind, rows in others.items():
            if kind in self:
                self[kind] += rows
            else:
                self[kind] = rows.copy()


def rows_of(rows: Iterable[msgspec.Struct]) -> Rows:
    """These rows, by their types."""
    made = Rows()
    for row in rows:
        made.add(row)
    return made


class Run(msgspec.Struct, frozen=True, gc=False):
    """The hot row of a run: its state, its counters and the head of its journal. Locking it locks the run.

    With the counters, the cost of finishing a step depends on its dependents, not on the size of the run. `open`: main
    steps that are not terminal. `moving`: runnable steps of any phase. `leased`: steps held by a worker. `failed`: main
    steps that failed under `continue`. `undoing`: undo steps that are not terminal. `inbox`: unconsumed messages.
    `moved_at` is the time of the latest journal entry; the next entry is never earlier, whatever the clock says.
    """

    tenant: str
    id: str
    definition_id: Id
    state: RunState = RunState.IDLE
    priority: Priority = 0
    seq: Seq = 0
    head: bytes = b""
    open: StepCount = 0
    moving: StepCount = 0
    leased: StepCount = 0
    failed: StepCount = 0
    undoing: StepCount = 0
    inbox: Count = 0
    cause: StopCause | None = None
    policy: OnFailure | None = None
    category: Category | None = None
    error: str | None = None
    rollback: Rollback = Rollback.NONE
    due_at: Moment | None = None
    started_at: Moment | None = None
    ended_at: Moment | None = None
    business_key: str | None = None
    moved_at: Moment = 0


class Details(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The immutable data of a run: written once, kept out of the hot row.

    `asked_before` (JSON) names everyone else who caused the run: who asked for the runs that it repeats, or whose end,
    event or child it is, who emitted its event or added its trigger, and who started it if it was idle; only that adds
    to it later. It is kept here, because those runs may be deleted before this one has ended.
    """

    tenant: str
    run_id: str
    workflow: str
    version: Version
    dialect: str
    input: bytes
    correlation_id: str
    created_at: Moment
    created_by: str
    business_key: str | None = None
    rerun_of: str | None = None
    labels: bytes | None = None
    asked_before: bytes | None = None
    policy_revision: Id | None = None


class Origin(msgspec.Struct, frozen=True, gc=False):
    """The part of a run's details that policies read: the person that asked for it, its labels (JSON), and the revision
    of the live policy that it is pinned to."""

    created_by: str
    labels: bytes | None = None
    policy_revision: int | None = None


class Ballot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A decision that an open gate has counted. `on_behalf_of` is the delegator, if the person acted for one."""

    person: str
    approve: bool
    at: int
    on_behalf_of: str | None = None

    @property
    def names(self) -> frozenset[str]:
        """The people whose one decision this is."""
        return frozenset((self.person, self.on_behalf_of or self.person))


class Changes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The last request for changes at an open gate, and how many there were since it opened first."""

    person: str
    at: int
    comment: str
    count: int = 1
    on_behalf_of: str | None = None


class Opening(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An open gate: since when, at which level, until when, and what was decided so far.

    `activation` is the sequence of the journal entry that opened it, or that opened it anew after a request for
    changes. `at` is when it opened first. `shown` is the digest of what people are shown. `earlier` are the people
    whose decision about this step counted before it opened first. `named` are approvers whom an operator added.
    """

    activation: int
    at: int
    level: int = 0
    deadline: int | None = None
    shown: str | None = None
    ballots: tuple[Ballot, ...] = ()
    changes: Changes | None = None
    earlier: tuple[str, ...] = ()
    named: tuple[str, ...] = ()


class Persons(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The persons of a step and of everything below it: elements, calls, added steps and child runs at any depth.

    Each name is there once, delegators too. `lent` has the decisions for another: the person who acted, and the
    delegator. `shown` are the digests of what gates showed. `many`: the record has no room for all of them, or does
    not know them; any person may be among them.
    """

    executed: tuple[str, ...] = ()
    completed: tuple[str, ...] = ()
    decided: tuple[str, ...] = ()
    lent: tuple[tuple[str, str], ...] = ()
    shown: tuple[str, ...] = ()
    many: bool = False


class Adopted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Where the result of an adopted step comes from: the run that executed it, the step there, the fence of the
    attempt that succeeded (0: no attempt), and the digest of its output.

    `place` orders the adopted steps of a run as they were completed. `skipped`: the earlier run skipped it. `owned`:
    this run undoes it in a rollback; at most one run owns the undo of a step. `executors` are the owners of the workers
    that executed it, in records from before `persons` of a note had them. `remains`: why its effect
    cannot be undone, in the rollback of a finished child, or of its elements, in a run that is responsible for them.
    """

    run: str
    step: str
    place: int
    fence: int = 0
    digest: str | None = None
    skipped: bool = False
    owned: bool = False
    executors: tuple[str, ...] = ()
    remains: str | None = None


class KeptKey(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call of an earlier run that runs again: its place, what it is, and the run whose idempotency key it has.

    The same call at this place, by the digest of its arguments, keeps that key.
    """

    place: int
    kind: str
    name: str
    digest: str
    run: str


class Grown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The elements of a step that owns some: how many a map has or a loop has begun, and how many failed.

    `deadline` is the moment by which all must have ended. `category` and `error` are those of the last failure. Once it
    `stops`, no further element begins, and the owner fails when the elements that workers hold have settled. `case` is
    the place of the case that a choice took. `code` is a digest of the code of the flow that made the last calls, and
    `seen` is how many ends of calls it had been given: its events and costs up to there are on record. A flow that
    `continues` as new does so by the last of its calls.

    A flow that an earlier run began has the calls up to `count`, but for the places in `free`: its next calls take
    these first. `kept` are keys of calls that it makes again. `blames` are the numbers of the calls for whose failure
    it failed; None where that is unknown.
    """

    count: int
    failed: int = 0
    deadline: int | None = None
    category: Category | None = None
    error: str | None = None
    stops: bool = False
    case: int | None = None
    code: str | None = None
    seen: int | None = None
    continues: bool = False
    free: tuple[int, ...] = ()
    kept: tuple[KeptKey, ...] = ()
    blames: tuple[int, ...] | None = None


class Edge(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A dependency between added steps: the place of the other one, and the ends of the first that satisfy it."""

    place: int
    allow: tuple[StepState, ...] = (StepState.SUCCEEDED,)


class Read(msgspec.Struct, frozen=True, gc=False):
    """The name of an added step in expressions, and its place."""

    name: str
    place: int


class Called(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A call of a flow, as its row has it: what was called, with what, and the template of its step.

    `kind` is the method of the context, `name` what it was called for. `digest` is that of the arguments, by which a
    replay recognises the call. `key` is the run whose idempotency key it keeps, if that is an earlier one. `arguments`
    is their JSON, or a reference to it. `step` is the JSON of the fields of a step definition that differ from their
    defaults. `queue` and `undo_queue` are those of the step and of its undo.

    A step that a handler added has the kind `then`, and its own name. `needs` is how many steps it waits for,
    `followers` are those that wait for it, and `reads` those whose outputs its inputs read; all by their places.
    """

    kind: str
    name: str
    digest: str
    arguments: str
    step: str
    queue: int = 0
    undo_queue: int = 0
    needs: int = 0
    followers: tuple[Edge, ...] = ()
    reads: tuple[Read, ...] = ()
    key: str | None = None


class Limited(msgspec.Struct, frozen=True, gc=False):
    """What a step asks of one of its limits: the key and the units of its rate."""

    key: str
    units: int = 1


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Data that few steps need, kept as one JSON column so that the hot row stays narrow. Payloads are JSON.

    `event`: what a waiting step waits for. `woken_by`: what ended the wait (for the handler of the next attempt).
    `token`: the SHA-256 of an open (or used) completion token. `output`: a result that no attempt produced (a gate's
    decision, a message, a manual completion). `record`: who settled it and how. `checked`: the fence under which the
    handler completed before its rules ran; it stays. `next`: the undo step that follows this one in a rollback.
    `exhausted`: no attempt is left, or no code fits, and the step holds until a person decides. `tried`: digests of the
    code of a flow that did not fit; other code ends the hold, too. `spent`: the attempts before the last
    retry by a person; the retry policy counts from there. `began_at`: when the first failed attempt since then began,
    where the policy limits the time. `opening`: the open gate of a step that waits for approval. `deciders`: every
    person whose decision about this step counted, and each delegator; `lent`: the decisions among them for another, as
    person and delegator. `shown`: the digest of what its gate showed. `persons`: those of the child run that it waited
    for, or of everything below an adopted step. `terms`: the gate of a step that a policy holds. `permit`: the rule
    that holds it, or that people have approved for it. `gathered`: the payloads that a wait for several messages has
    taken so far. `takes`: which messages a waiting handler takes, if not any of its event. `adopted`: an earlier run
    finished this step, and this run takes the result; the undo step of it has the same. `grown`: the elements of a
    step that owns some. `call`: the template of a step that a flow or a handler added, and of its undo. `activation`:
    the sequence of the journal entry that asked for its child, `child`: the id of that run; an adopted step keeps it.
    `undoes`: the child that this undo step rolls back. `violations`: the refusals of this step that are on record, as
    person and rule. `limited`: of each limit of the step, the key and the units, as they came out when it opened.
    `paid`: the attempt for which the rates were last charged.
    """

    event: str | None = None
    takes_timeouts: bool = False
    held: bool = False
    woken_by: str | None = None
    token: str | None = None
    output: str | None = None
    record: str | None = None
    checked: int | None = None
    next: int | None = None
    exhausted: bool = False
    tried: tuple[str, ...] = ()
    spent: int = 0
    began_at: int | None = None
    opening: Opening | None = None
    deciders: tuple[str, ...] = ()
    lent: tuple[tuple[str, str], ...] = ()
    shown: str | None = None
    persons: Persons | None = None
    terms: Approval | None = None
    permit: str | None = None
    gathered: tuple[str, ...] = ()
    takes: Wait | None = None
    adopted: Adopted | None = None
    grown: Grown | None = None
    call: Called | None = None
    activation: int | None = None
    child: str | None = None
    undoes: str | None = None
    violations: tuple[tuple[str, str], ...] = ()
    limited: tuple[Limited, ...] = ()
    paid: int | None = None


class Step(msgspec.Struct, frozen=True, gc=False):
    """The row of one step. `no` is its number in the plan; undo steps and the final check follow the main steps.

    `ready_at` is set exactly while a worker may claim it. `due_at` is its timer: the end of its lease, backoff or wait.
    `fence` grows with every claim and is never reused. `unmet` counts dependencies that have not settled. `settled`
    orders completions: journal sequence, then hop.
    """

    tenant: str
    run_id: str
    no: StepNo
    queue: Id
    priority: Priority = 0
    state: StepState = StepState.PENDING
    ready_at: Moment | None = None
    due_at: Moment | None = None
    fence: Count = 0
    worker: Id | None = None
    claimed_at: Moment | None = None
    attempts: Count = 0
    losses: Count = 0
    unmet: StepCount = 0
    settled: Place | None = None
    category: Category | None = None
    error: str | None = None
    note: Note | None = None


def is_exhausted(step: Step) -> bool:
    """Whether the step holds because no attempt is left, until a person decides."""
    return step.state is StepState.AWAITING_APPROVAL and step.note is not None and step.note.exhausted


def is_unfit(step: Step) -> bool:
    """Whether the step is a flow that holds because the code that was tried does not fit what is recorded."""
    return is_exhausted(step) and step.note is not None and bool(step.note.tried)


def is_completed(step: Step) -> bool:
    """Whether the handler of a step with rules has completed, or a person completed it: only its rules may be left."""
    return step.note is not None and step.note.checked is not None


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """One execution under one lease, written once when it ends. While it is open, its data is on the step's row."""

    tenant: str
    run_id: str
    no: StepNo
    fence: Count
    number: Count
    state: AttemptState
    worker: Id
    started_at: Moment
    ended_at: Moment
    category: Category | None = None
    error: str | None = None
    output: bytes | None = None
    cost: bytes | None = None


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the handler of step `no` recorded while it ran, by `ctx.once`: JSON, or a reference to it.

    `fence` is the claim that recorded it, `seq` the journal entry. It is never changed; later attempts are given it.
    """

    tenant: str
    run_id: str
    no: StepNo
    name: str
    fence: Count
    seq: Seq
    at: Moment
    value: bytes


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An external event in a run's inbox. `id` is the sender's and deduplicates; `number` orders within the run."""

    tenant: str
    run_id: str
    id: str
    number: Place
    name: str
    payload: bytes
    sender: str
    arrived_at: Moment
    consumed_by: StepNo | None = None


class Consumed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message of the inbox that a step takes. A write must find it unconsumed."""

    tenant: str
    run_id: str
    id: str
    consumed_by: int


class Requesters(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`asked_before` of a run's details from now on: an idle run was started by another person."""

    tenant: str
    run_id: str
    asked_before: bytes


class OutboxEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An outbound event, written in the transaction that accepts its cause."""

    tenant: str
    run_id: str
    seq: Seq
    number: Count
    name: str
    payload: bytes
    created_at: Moment


class StreamPart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Chunks of one batch that an attempt writes to a stream of its run.

    `start` is the place of the first among those of the attempt. `body` is their JSON array, or sealed. The first part
    of an attempt that goes on has the fence and the place of the chunk `after` which it does; without it, the attempt
    replaces what earlier ones have written.
    """

    tenant: str
    run_id: str
    no: StepNo
    name: str
    fence: Count
    start: Natural
    count: Positive
    at: Moment
    body: bytes
    after: tuple[int, int] | None = None


class Gate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One opening of a gate, as it is listed and kept: what was shown, and how it ended.

    `shown` is canonical JSON, `shown_digest` its SHA-256. `outcome` is the trigger that closed the gate.
    """

    tenant: str
    run_id: str
    no: StepNo
    activation: Seq
    opened_at: Moment
    level: Count
    due_at: Moment | None
    shown: bytes
    shown_digest: str
    closed_at: Moment | None = None
    outcome: str | None = None


class GateChange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What changes of an opening: its level and its deadline, or that it closed."""

    tenant: str
    run_id: str
    no: int
    activation: int
    level: int
    due_at: int | None = None
    closed_at: int | None = None
    outcome: str | None = None


class Vote(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The decision of one person about one opening of a gate. It never changes.

    `evidence` is a JSON list of references. `held_roles` are the roles and groups by which the person might decide.
    """

    tenant: str
    run_id: str
    no: StepNo
    activation: Seq
    person: str
    on_behalf_of: str | None
    level: Count
    decision: str
    at: Moment
    comment: str
    evidence: bytes | None = None
    key_id: str | None = None
    delegation_id: str | None = None
    held_roles: tuple[str, ...] = ()
    vouched_by: str | None = None
    shown_digest: str | None = None


class ChildMode(StrEnum):
    """Whether a step waits for its child."""

    AWAITED = "awaited"
    DETACHED = "detached"


class ChildState(StrEnum):
    """How far a child is. A `withdrawn` one was called back, and a `refused` one could not start: neither exists."""

    REQUESTED = "requested"
    STARTED = "started"
    WITHDRAWN = "withdrawn"
    REFUSED = "refused"
    ENDED = "ended"


class ChildTodo(StrEnum):
    """What is left to do about a child: start it, cancel it, or tell its parent how it ended."""

    START = "start"
    CANCEL = "cancel"
    TELL = "tell"


class Child(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The link between a step and its child run: what was asked for, how far it is, and what is left to do about it.

    `activation` is the sequence of the parent's journal entry that asked for it. `outcome` is the state in which the
    child ended. `undoes`: it is the rollback of this earlier child. The parent never reads the row; it hears by events.
    """

    tenant: str
    run_id: str
    no: StepNo
    activation: Seq
    child_id: str
    workflow: str
    version: Version
    mode: ChildMode
    state: ChildState
    requested_at: Moment
    started_at: Moment | None = None
    recall: str | None = None
    recalled_at: Moment | None = None
    ended_at: Moment | None = None
    outcome: RunState | None = None
    category: Category | None = None
    error: str | None = None
    todo: ChildTodo | None = None
    todo_at: Moment | None = None
    undoes: str | None = None


class Recall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A parent calls its child back: `cancel`, or `undo` if what the child did is to be undone."""

    tenant: str
    run_id: str
    no: int
    activation: int
    recall: str
    recalled_at: int
    child_id: str


class Notice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A child has ended. It is written in the transaction that ends it, so that no crash loses it."""

    tenant: str
    child_id: str
    outcome: RunState
    ended_at: int
    category: Category | None = None
    error: str | None = None


class Worker(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A worker as the database knows it. `no` is its number in step rows; `incarnation` grows on every return.
    `owner` is the owner of the key that it was opened with."""

    tenant: str
    id: str
    no: Id
    state: WorkerState
    incarnation: Count
    capacity: Count
    capabilities: tuple[str, ...]
    queues: tuple[int, ...]
    heard_at: Moment
    started_at: Moment
    seq: Seq = 0
    head: bytes = b""
    owner: str | None = None


HOT_OF_RUN = frozenset({"state", "seq", "head", "open", "moving", "leased", "due_at", "ended_at", "moved_at"})
HOT_OF_STEP = frozenset({"state", "ready_at", "due_at", "fence", "worker", "claimed_at", "unmet", "settled"})
"""The columns that change in the common case. Most decisions change no others."""
