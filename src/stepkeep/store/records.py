"""The values that a store returns from reads, and the filters of its lists.

Plain values without behaviour. Operations and workers read them; both stores make them.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from stepkeep.kernel.machine.bounds import Moment, Seq
from stepkeep.kernel.machine.journal import SealedEntry
from stepkeep.kernel.machine.rows import (
    Attempt,
    Checkpoint,
    Details,
    Gate,
    Message,
    OutboxEntry,
    Run,
    Step,
    Vote,
    Worker,
)
from stepkeep.kernel.machine.states import Category, RunState
from stepkeep.store.rows import StreamRow


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a waiter needs of a run: its state, why it ended, the definition that tells which outputs are its result,
    the number of its last journal entry, and the outputs that were asked for, by step, once it has succeeded."""

    state: RunState
    definition_id: int
    error: str | None = None
    seq: int
    outputs: dict[int, bytes | None] = msgspec.field(default_factory=dict)


class TailEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the journal of a tenant, and its position among those of all runs.

    `overtakes` says that the entry before it in its own run has a later position: it is told first.
    """

    position: str
    entry: SealedEntry
    overtakes: bool = False


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it is read: the hot row and its details."""

    run: Run
    details: Details


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to list, newest first; `before` is the id of the last run of the page before, `oldest` the lowest id.
    `erred` says that only runs with an error are wanted: unless another index chooses the runs, no other is listed."""

    tenant: str
    states: tuple[RunState, ...] = ()
    workflow: str | None = None
    business_key: str | None = None
    correlation_id: str | None = None
    erred: bool = False
    before: str | None = None
    oldest: str | None = None
    limit: int = 50


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """What a search looks for in runs: a part of the error; a part of id, workflow, keys, actor, error, input or
    labels; labels; and `roots`, that no run asked for it as its child. Texts are found in any case of ASCII letters,
    and are in lower case here. A label is JSON as it is stored: `"team":"a"`."""

    error: str | None = None
    text: str | None = None
    labels: tuple[bytes, ...] = ()
    roots: bool = False


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found among the newest `looked_at` runs of its filter: `total` runs, and the first as records.
    `last` is the last run that was looked at."""

    records: list[RunRecord]
    total: int
    looked_at: int
    last: str | None


FIRST_ID = "00000000-0000-0000-0000-000000000000"
FIRST_CHECKPOINT = (0, "")
FIRST_GATE = (FIRST_ID, -1)
FIRST_MESSAGE = ("", -1, "")
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
NEVER_ENDS = 2**63 - 1


class FinishedFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which finished runs to find, oldest first: those between two ids (both exclusive) that had ended by a given
    time."""

    tenant: str
    workflow: str | None = None
    ended_by: int = NEVER_ENDS
    after: str = FIRST_ID
    before: str = LAST_ID
    limit: int = 500


class WholeRun(msgspec.Struct, frozen=True, kw_only=True):
    """Everything stored about one run, except its idempotency key. Rows of streams are read where they are wanted."""

    record: RunRecord
    steps: tuple[Step, ...]
    attempts: tuple[Attempt, ...]
    entries: tuple[SealedEntry, ...]
    messages: tuple[Message, ...]
    outbox: tuple[OutboxEntry, ...]
    gates: tuple[Gate, ...] = ()
    votes: tuple[Vote, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    streams: tuple[StreamRow, ...] = ()


class Quarantine(msgspec.Struct, frozen=True, gc=False):
    """A quarantined run: by which operator, with which reason, and whether it was released."""

    tenant: str
    run_id: str
    quarantined_at: int
    quarantined_by: str
    reason: str
    released_at: int | None = None
    released_by: str | None = None
    release_reason: str | None = None


class Due(msgspec.Struct, frozen=True, gc=False):
    """A due timer: of a step, or of a run (`no` is None)."""

    tenant: str
    run_id: str
    no: int | None


class WorkerChange(msgspec.Struct, frozen=True, kw_only=True):
    """The new value of a worker row at journal sequence `was`, with its journal entry."""

    was: int
    worker: Worker
    entry: SealedEntry | None


class WorkerReport(msgspec.Struct, frozen=True, gc=False):
    """What a worker said about itself at its latest heartbeat. `worker` is its number; `body` is JSON."""

    worker: int
    reported_at: int
    body: bytes


class SignedHead(msgspec.Struct, frozen=True, kw_only=True):
    """An Ed25519 signature over the end of a finished run's journal. Keys and signatures are in hexadecimal."""

    tenant: str
    run_id: str
    key_id: str
    entries: Seq
    head: bytes
    public_key: str
    signature: str
    signed_at: Moment


class UnsignedHead(NamedTuple):
    """The end of the journal of a finished run that a key has not signed yet."""

    run_id: str
    entries: int
    head: bytes


class UnfitStep(NamedTuple):
    """A flow that holds until other code is there than that of the digests in `tried`."""

    run_id: str
    no: int
    queue: int
    tried: tuple[str, ...]


class Evidence(msgspec.Struct, frozen=True, gc=False):
    """Why an attempt failed: JSON with its traceback, its inputs and its log lines. No part of the record."""

    tenant: str
    run_id: str
    no: int
    fence: int
    body: bytes


class Backlog(msgspec.Struct, frozen=True, gc=False):
    """The claimable steps of a queue: how many (up to the limit of the query), and since when the oldest waits."""

    queue: int
    depth: int
    oldest_at: int


class RecentRun(msgspec.Struct, frozen=True, gc=False):
    """How one of the newest runs went. It is created when its id says."""

    id: str
    definition_id: int
    state: str
    category: str | None
    started_at: int | None
    ended_at: int | None


class RecentAttempt(msgspec.Struct, frozen=True, gc=False):
    """How an ended attempt went, and how long it took, in microseconds."""

    run_id: str
    no: int
    state: str
    taken: int


class RecentFailure(msgspec.Struct, frozen=True, gc=False):
    """Why a run was stopped: the step that failed first with its error, or the error of the run itself. `call` is the
    name of a step that a flow called."""

    run_id: str
    definition_id: int
    state: str
    no: int | None
    call: str | None
    category: str | None
    error: str
    ended_at: int | None


class RunCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of runs, each up to the limit of the query: `live` by state; `recent` by state, of the newest runs;
    `troubled` by state and category, of the newest stopped runs. `late` counts overdue timers since `late_since`."""

    live: dict[RunState, int]
    recent: dict[RunState, int]
    troubled: dict[tuple[RunState, Category | None], int]
    late: int
    late_since: int | None


class SchemaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Which migrations the database has and which this program knows. `schema` is the one that holds the tables on
    PostgreSQL."""

    url: str
    schema: str | None = None
    applied: tuple[tuple[int, str], ...]
    pending: tuple[tuple[int, str], ...]
    size_bytes: int


class Maintenance(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one call of `maintain`. `put_off` names tables that were in use; `weeks_denied` counts the
    missing weeks of the journal that this role may not create."""

    weeks_made: int = 0
    weeks_dropped: int = 0
    weeks_denied: int = 0
    put_off: tuple[str, ...] = ()
