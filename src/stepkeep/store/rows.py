"""The rows of a store that the kernel does not know: adoptions, slots, resources, deliveries, triggers, jobs, messages
by business key, the audit log. Those of people are in `principals.py`.

A store converts them to columns and interprets none. At most one run owns the undo of a step. A slot is held by a
granted row whose run has not ended, a resource by a row whose step is held under the same fence. The row of a trigger
is the lock of its firings and backfills: every change of them has a new sequence number of that row. Only the
transaction that ends a run adds an awaiting firing without it, for each trigger about its workflow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from stepkeep.kernel.machine.bounds import (
    Changed,
    Count,
    Flag,
    Moment,
    Natural,
    Place,
    Positive,
    Priority,
    Quota,
    Seq,
    StepNo,
    Taking,
    Version,
)
from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.triggers import TriggerKind


class StreamRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Chunks of one batch that an attempt wrote to a stream. `seq` orders the rows of a run, `total` is their bytes up
    to this one. `start` is the place of its first chunk among those of the attempt. The first row of an attempt that
    goes on names the chunk after which it does. `body` is the JSON array of the chunks, or sealed."""

    tenant: str
    run_id: str
    seq: Place
    no: StepNo
    name: str
    fence: Count
    start: Natural
    count: Positive
    total: Place
    at: Moment
    after_fence: Count | None
    after_place: Natural | None
    body: str


class AdoptionRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Step `no` of a run has the result of `source_step` of `source_run`. `owned` is 1 if the run undoes it."""

    tenant: str
    run_id: str
    no: StepNo
    source_run: str
    source_step: str
    owned: Flag = 0


class ReleasedUndo(msgspec.Struct, frozen=True, gc=False):
    """A run that no longer owns the undo of what it adopted: a new run of the same write takes it."""

    tenant: str
    run_id: str


class ReleasedKey(msgspec.Struct, frozen=True, gc=False):
    """A business key whose run has ended."""

    tenant: str
    key: str


class BegunChild(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A child whose run a write creates. It must still be requested, or the write fails as a whole (Conflict)."""

    tenant: str
    run_id: str
    no: int
    activation: int
    started_at: int


CHUNK_BYTES = 1024 * 1024
"""The size of the chunks in which a large payload is kept."""


class Payload(msgspec.Struct, frozen=True, gc=False):
    """A payload that is kept outside the row that refers to it, under its SHA-256."""

    tenant: str
    run_id: str
    digest: str
    body: bytes

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """Its parts, with their numbers."""
        for number, start in enumerate(range(0, len(self.body), CHUNK_BYTES)):
            yield number, self.body[start : start + CHUNK_BYTES]


SLOTS_LOCK = "slots"
"""The scope of `quota_scopes` whose row is locked while slots of a tenant are granted."""

Held = Mapping[str, int]
"""How many runs of each workflow of a tenant hold a slot."""


class SlotRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A run under a limit on running runs. `most` is the limit of its definition; `granted_at` is None while it
    waits."""

    tenant: str
    run_id: str
    workflow: str
    most: Quota | None
    priority: Priority
    asked_at: Moment
    granted_at: Moment | None = None


class SlotGrant(msgspec.Struct, frozen=True, gc=False):
    """A slot that a write grants to a run. One that waits for none is a conflict."""

    tenant: str
    run_id: str
    granted_at: int


RESOURCES_LOCK = "resources"
"""The scope of `quota_scopes` whose row is locked while steps of a tenant take resources."""


class HoldRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A resource that a step holds. `mode` is `exclusive`, `shared` or `units`; `units` is 0 but for a pool. `step` is
    its name."""

    tenant: str
    run_id: str
    no: StepNo
    fence: Count
    resource: str
    step: str
    mode: str
    units: Place
    held_at: Moment


LimitKey = tuple[str, str, str]
"""(tenant, name, key) of a limit."""


class LimitKeyRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A key of a limit, and the lock of its places. `seq` is the number of its last grant, `held` what the holds weigh
    together, `tat` when the bucket of its rate is empty again. `freed` has the numbers of grants that ended since.
    `used_at`: when a claim asked for it last."""

    tenant: str
    name: str
    key: str
    seq: Place
    held: Place
    tat: Moment
    freed: tuple[int, ...] = ()
    used_at: Moment = 0

    @property
    def limit_key(self) -> LimitKey:
        return self.tenant, self.name, self.key


class LimitHold(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A place that a claim has, from the grant `seq` of its key on. The transaction that ends the claim deletes it."""

    tenant: str
    run_id: str
    no: StepNo
    fence: Count
    name: str
    key: str
    seq: Place
    weight: Count
    step: str
    held_at: Moment


class LimitWait(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A ready step that is parked under a key that was full, in the line of its queue. It stays in place when its step
    moves on otherwise: the claim that finds it so deletes it."""

    tenant: str
    run_id: str
    no: StepNo
    name: str
    key: str
    queue: Place
    priority: Priority
    asked_at: Moment


class LimitLine(NamedTuple):
    """The parked steps of one queue under one key. A claim looks at it from `due_at` on; None: a claim under the key
    must end first."""

    tenant: str
    name: str
    key: str
    queue: int
    due_at: int | None = None

    @property
    def limit_key(self) -> LimitKey:
        return self.tenant, self.name, self.key


class ResourceWaiter(NamedTuple):
    """A ready step that is set aside, and the definition of its run. `line` is the one that it is parked in."""

    tenant: str
    run_id: str
    no: int
    definition_id: int
    line: LimitLine | None = None


class SinkRow(msgspec.Struct, frozen=True, kw_only=True):
    """A destination of events. `takes` has the bits of `Takes`; `prefix` is the text that every matching type begins
    with; `options` is JSON, with the names of secrets and never their values."""

    tenant: str
    name: str
    kind: str
    takes: Taking
    prefix: str
    patterns: tuple[str, ...]
    options: bytes
    created_at: Moment
    created_by: str


class Delivery(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The cursor of one run and sink.

    `last` is the sequence of the last journal entry that may have something for the sink. Everything up to entry
    (`sent`, `sent_number`) is delivered. `ready_at` is the time from which a relay may claim it: None if nothing is
    left or its first entry is dead. While a relay holds it, both `ready_at` and `lease_until` are the end of the lease.
    `fence` grows with every claim. `attempts` counts failures of the first entry that is left. `target` is JSON where
    the run itself has named the destination.
    """

    tenant: str
    run_id: str
    sink: str
    takes: Taking
    last: Seq
    sent: Seq
    sent_number: Count
    attempts: Count = 0
    fence: Count = 0
    ready_at: Moment | None = None
    lease_until: Moment | None = None
    holder: str | None = None
    dead_at: Moment | None = None
    error: str | None = None
    target: bytes | None = None


TriggerKey = tuple[str, str]
"""(tenant, name)."""


class FiringState(StrEnum):
    AWAITING = "awaiting"
    """The run whose end it is about has not ended, or its end is noted and no sweep has decided about it."""
    WAITING = "waiting"
    """It starts its run when earlier runs of the trigger have ended."""
    STARTED = "started"
    SKIPPED = "skipped"
    REFUSED = "refused"
    """Its run could not be started; the reason says why."""


class BackfillState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"


class TriggerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger. `version` is that of the definition that declares it; None: it starts the newest one. `topic` is the
    name of its event, or of the workflow whose endings it is about. `next_at` is its next scheduled moment, `due_at`
    the time of its next sweep. `cursor_at` is the time since which the unfinished runs of its topic are to be noted;
    None: they were."""

    tenant: str
    name: str
    seq: Changed
    workflow: str
    version: Version | None
    kind: TriggerKind
    topic: str | None
    spec: bytes
    next_at: Moment | None
    due_at: Moment | None
    cursor_at: Moment | None
    paused_at: Moment | None
    paused_by: str | None
    created_at: Moment
    created_by: str
    removed_at: Moment | None


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """One firing: the moment, event or ending that it stands for, and what came of it. `watched` is 1 while a sweep
    must read it again. `depth` counts the triggers in the chain that led to it; `source` is the run whose event or
    end it is."""

    tenant: str
    trigger_name: str
    moment: str
    due_at: Moment
    state: FiringState
    watched: Flag
    made_at: Moment
    depth: Natural
    run_id: str | None = None
    source: str | None = None
    backfill: str | None = None
    reason: str | None = None
    given: bytes | None = None
    """The input of the run, of a firing that waits."""


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """A job that fires the moments of a range, from `since_at` (inclusive) to `until_at` (exclusive). `cursor_at` is
    the last moment that it has handled."""

    tenant: str
    id: str
    trigger_name: str
    state: BackfillState
    since_at: Moment
    until_at: Moment
    cursor_at: Moment
    at_once: Positive
    started: Natural
    skipped: Natural
    refused: Natural
    created_at: Moment
    created_by: str
    ended_at: Moment | None = None


class TriggerChange(msgspec.Struct, frozen=True, kw_only=True):
    """The new value of a trigger's row. The write must find it at sequence `was` (0: no row), or fail as a whole."""

    was: int
    row: TriggerRow


class Watched(NamedTuple):
    """A firing that a sweep must read again, and the state of the run that it started or awaits (None: it is gone)."""

    firing: Firing
    run_state: RunState | None


FIRST_FIRING = 2**62
"""Lists of firings are newest first, and begin here."""


class JobAction(StrEnum):
    CANCEL = "cancel"
    RERUN = "rerun"
    PAUSE = "pause"
    RESUME = "resume"
    MIGRATE = "migrate"


class JobState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"


class RunOutcome(StrEnum):
    WAITING = "waiting"
    """The job has not come to it yet."""
    DONE = "done"
    UNCHANGED = "unchanged"
    """It was as asked for before."""
    REFUSED = "refused"
    """The detail says why."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job. `options` is JSON: what was asked for. `digest` is that of the request, for its idempotency key. `seq`
    grows with every claim, and `lease_until` is the time from which another worker may claim it."""

    tenant: str
    id: str
    action: JobAction
    state: JobState
    options: bytes
    created_at: Moment
    created_by: str
    vouched_by: str | None
    api_key: str | None
    idempotency_key: str | None
    digest: bytes
    seq: Seq
    lease_until: Moment
    holder: str | None = None
    ended_at: Moment | None = None
    scope: str = ""
    """Whose idempotency key it is."""


class JobRun(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one run of a job. `new_run_id` is the run that a rerun has made."""

    tenant: str
    job_id: str
    run_id: str
    state: RunOutcome
    detail: str | None = None
    new_run_id: str | None = None


class Conversation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A conversation of agents: how many items it has, and how large they are together."""

    tenant: str
    name: str
    items: Place
    size_bytes: Place
    changed_at: Moment


class ConversationItem(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An item of a conversation, at a place among those of its key."""

    tenant: str
    conversation: str
    key: str
    ordinal: Place
    at: Moment
    value: bytes


BusinessKey = tuple[str, str]
"""(tenant, business key)."""

NO_RUN = ""
"""The run id of a want that names no run: it loads what does not belong to one."""


class MailboxMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message that was sent by business key.

    It is kept while it has a payload: for the next run with this key, until `expires_at`. A delivered one names its
    run. Its row stays until `forget_at`, so that the same id is recognised. `number` orders the kept ones of a key.
    `key_id` is the API key of the sender.
    """

    tenant: str
    key: str
    id: str
    number: Place
    name: str
    payload: bytes | None
    sender: str
    vouched_by: str | None
    key_id: str | None
    arrived_at: Moment
    expires_at: Moment
    forget_at: Moment
    run_id: str | None = None

    def is_kept(self, now: int) -> bool:
        """Whether it may still be delivered."""
        return self.payload is not None and self.expires_at > now


class KeyWant(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One business key to lock, and what to read under the lock: the messages with these ids, and, if `kept`, every
    message that is kept for it."""

    tenant: str
    key: str
    ids: tuple[str, ...] = ()
    kept: bool = False

    @property
    def business_key(self) -> BusinessKey:
        return (self.tenant, self.key)


class Mailbox(msgspec.Struct, kw_only=True):
    """What is known about a locked business key. `holder` is the live run that has it. `known` are the messages asked
    for by id. `kept` are those kept for it, in order, if they were asked for; `count`, `size_bytes` and `last_number`
    describe all that have a payload, expired ones too."""

    holder: str | None = None
    known: dict[str, MailboxMessage] = {}
    kept: tuple[MailboxMessage, ...] = ()
    count: int = 0
    size_bytes: int = 0
    last_number: int = 0


LAST_TIME = (1 << 62) - 1
LAST_ENTRY = "~"
"""Higher than any id."""


class Outcome(StrEnum):
    """What became of an operation that was asked for: done, not allowed, or not possible."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """One operation that was asked for. `target` is the run, user, key or other thing that it is about. `code` is the
    rule or the class of error of what was not done."""

    tenant: str
    id: str
    at: Moment
    actor: str
    key: str | None
    vouched_by: str | None
    operation: str
    target: str
    outcome: Outcome
    code: str | None
    request_id: str | None
    address: str | None


class ChainedRow(AuditRow, frozen=True, kw_only=True):
    """An entry in the chain of its tenant. `hash` covers the entry before it and its own content. Entries of earlier
    versions have neither."""

    seq: Seq | None = None
    hash: str | None = None


class AuditHead(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the chain of a tenant. Retention has deleted the entries up to `forgotten`, whose hash is `anchor`."""

    tenant: str
    seq: Seq = 0
    hash: str = ""
    forgotten: Seq = 0
    anchor: str = ""


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries: those that match everything that is set, before the entry (`before`, `before_id`)."""

    tenant: str
    actor: str | None = None
    target: str | None = None
    operation: str | None = None
    outcome: str | None = None
    key: str | None = None
    since: int = 0
    before: int = LAST_TIME
    before_id: str = LAST_ENTRY
    limit: int = 100
