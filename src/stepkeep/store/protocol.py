"""The contract every store keeps: what it is asked to load, what it is asked to write, and when.

A store opens a transaction, locks run rows in id order, loads, calls back for a decision, writes it whole and
commits. It never looks at what it writes beyond turning values into columns. Operations and workers talk to
this protocol only; `tests/store/` holds the one contract suite that runs against every implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from stepkeep.errors import Quarantined, Unreadable
from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.journal import SealedEntry
from stepkeep.kernel.plan import NO_QUEUE
from stepkeep.kernel.rows import Attempt, Details, Message, OutboxEntry, Run, Step, Worker
from stepkeep.kernel.states import RunState

RunKey = tuple[str, str]
"""(tenant, run id)."""


class Want(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One run to lock, and which of its rows to load with it."""

    tenant: str
    run_id: str
    steps: tuple[int, ...] = ()
    whole: bool = False
    waiting: bool = False
    inbox: bool = False
    messages: tuple[str, ...] = ()
    outputs: tuple[int, ...] = ()
    input: bool = False

    @property
    def key(self) -> RunKey:
        return (self.tenant, self.run_id)


class Propose(msgspec.Struct, frozen=True, kw_only=True):
    """Ready steps to look for, in claim order: priority (high first), ready time, run id, step number.

    Runs that another transaction holds are passed over; `after` is a low-water mark on `ready_at`.
    """

    queues: tuple[int, ...]
    limit: int
    after: int | None = None


class IdempotencyKey(msgspec.Struct, frozen=True, kw_only=True):
    """The promise that one (tenant, operation, key) makes one run; `fingerprint` tells another body apart."""

    tenant: str
    operation: str
    key: str
    fingerprint: str
    run_id: str


class StoredDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A published definition. `queues` has one queue id per place of the plan (0: no worker is needed)."""

    tenant: str
    id: int
    name: str
    version: int
    dialect: str
    digest: str
    document: bytes
    queues: tuple[int, ...]
    published_at: int
    published_by: str


class More(msgspec.Struct, frozen=True, kw_only=True):
    """The callback cannot decide yet: load this too, in the same transaction, and call again."""

    wants: tuple[Want, ...] = ()
    definitions: tuple[int, ...] = ()
    idempotency: tuple[tuple[str, str, str], ...] = ()
    business_keys: tuple[tuple[str, str], ...] = ()


class Loaded(msgspec.Struct, kw_only=True):
    """Everything loaded so far in this transaction; later loads are merged into earlier ones.

    `now` is the database's clock, read after the locks were taken. `runs` has only runs that exist. `whole`,
    `waiting` and `inbox` say for which runs all steps, all waiting steps, all unconsumed messages were read.
    `outputs` maps (run, step) to the step's JSON output, None where it has none. `seen` has the ids of
    messages asked for by `Want.messages` that are in the inbox already (consumed or not). `proposed` is in claim
    order; the runs and steps it names are locked and loaded with it. `barred` has runs that exist and must be left as
    they are, with the reason: rows of theirs are Unreadable, or they are Quarantined. `passed_over` counts claimable
    steps that are not proposed because they belong to one of these.
    """

    now: int
    runs: dict[RunKey, Run] = {}
    steps: dict[RunKey, dict[int, Step]] = {}
    whole: set[RunKey] = set()
    waiting: set[RunKey] = set()
    inbox: dict[RunKey, tuple[Message, ...]] = {}
    seen: set[tuple[str, str, str]] = set()
    outputs: dict[RunKey, dict[int, bytes | None]] = {}
    inputs: dict[RunKey, bytes] = {}
    definitions: dict[int, StoredDefinition] = {}
    idempotency: dict[tuple[str, str, str], IdempotencyKey] = {}
    business_keys: dict[tuple[str, str], str] = {}
    proposed: list[tuple[str, str, int]] = []
    barred: dict[RunKey, Unreadable | Quarantined] = {}
    passed_over: int = 0


class Basis(StrEnum):
    """What a decision rests on. Whatever it is, the same kernel decides, and the write goes through only if the rows
    are still as the basis says; after a conflict the decision is made again on LOCKED."""

    LOCKED = "locked"
    """Rows that were read in the transaction that writes, under the locks of their runs."""
    READ = "read"
    """Rows that one statement read without a lock: an optimistic claim."""
    REMEMBERED = "remembered"
    """Rows that this process wrote last: a report on a run in which no other worker holds a step."""
    NEW = "new"
    """No rows at all: starts without a key that could name an existing run."""
    USER_TRANSACTION = "user_transaction"
    """Rows read and locked inside the transaction of a transactional step."""


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that comes into being, with all its steps."""

    run: Run
    details: Details
    steps: tuple[Step, ...]
    entry: SealedEntry
    messages: tuple[Message, ...] = ()
    outbox: tuple[OutboxEntry, ...] = ()
    idempotency: IdempotencyKey | None = None


class RunChange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A run row as it will be. The write must find it at journal sequence `was`, or fail whole."""

    was: int
    run: Run


class Write(msgspec.Struct, kw_only=True):
    """Everything one transaction writes. Empty lists cost nothing.

    `only_moves` promises that of the runs and steps which exist nothing changes but the columns of `HOT_OF_RUN` and
    `HOT_OF_STEP`, and that no attempt has a category or an error: a store need not write the rest.
    """

    new_runs: list[NewRun] = []
    runs: list[RunChange] = []
    steps: list[Step] = []
    new_steps: list[Step] = []
    attempts: list[Attempt] = []
    entries: list[SealedEntry] = []
    messages: list[Message] = []
    consumed: list[Message] = []
    outbox: list[OutboxEntry] = []
    released_keys: list[tuple[str, str]] = []
    only_moves: bool = False

    @property
    def has_hot_rows(self) -> bool:
        """Whether it has runs, steps, attempts or journal entries, as most have."""
        return bool(self.runs or self.steps or self.attempts or self.entries)

    @property
    def _has_rare_rows(self) -> bool:
        return bool(self.new_steps or self.messages or self.consumed or self.outbox or self.released_keys)

    @property
    def is_plain(self) -> bool:
        """Whether it is all runs, steps, attempts and journal, as most are."""
        return not (self.new_runs or self._has_rare_rows)

    @property
    def is_plain_birth(self) -> bool:
        """Whether it is nothing but runs that come into being, and they bring nothing with them but their steps."""
        if self.has_hot_rows or self._has_rare_rows:
            return False
        return bool(self.new_runs) and not any(
            new.messages or new.outbox or new.idempotency or new.run.business_key for new in self.new_runs
        )


Decide = Callable[[Loaded], More | Write]
"""The decision, as the store sees it: pure, called inside the transaction, perhaps more than once."""


class Lease(msgspec.Struct, frozen=True, gc=False):
    """A lease to renew: the claim it stands for and how long it shall last from now."""

    tenant: str
    run_id: str
    no: int
    fence: int
    lease: int


class Renewed(msgspec.Struct, frozen=True, gc=False):
    """A lease that still stands, and the state of its run (a stopping run wants its handlers to finish)."""

    run_id: str
    no: int
    fence: int
    run_state: RunState


class Transaction(Protocol):
    """A transaction that user code takes part in: `connection` is the driver's own, for the user's writes.

    `is_lost` tells that the database has ended it (a broken connection, a full disk): nothing of it can be committed.
    """

    @property
    def connection(self) -> Any: ...

    @property
    def is_lost(self) -> bool: ...

    async def change(self, wants: Sequence[Want], decide: Decide) -> None: ...


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it is read: the hot row beside what it was given."""

    run: Run
    details: Details


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to list, newest first; `before` is the id of the last run of the page before."""

    tenant: str
    states: tuple[RunState, ...] = ()
    workflow: str | None = None
    business_key: str | None = None
    correlation_id: str | None = None
    before: str | None = None
    limit: int = 50


FIRST_ID = "00000000-0000-0000-0000-000000000000"
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
NEVER_ENDS = 2**63 - 1


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """Which finished runs to find, oldest first: those between two ids (both left out) that had ended by a moment."""

    tenant: str
    workflow: str | None = None
    ended_by: int = NEVER_ENDS
    after: str = FIRST_ID
    before: str = LAST_ID
    limit: int = 500


class WholeRun(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is kept about one run, but for its idempotency key."""

    record: RunRecord
    steps: tuple[Step, ...]
    attempts: tuple[Attempt, ...]
    entries: tuple[SealedEntry, ...]
    messages: tuple[Message, ...]
    outbox: tuple[OutboxEntry, ...]


class Quarantine(msgspec.Struct, frozen=True, gc=False):
    """A run that was set aside: by an operator, with a reason; perhaps released since."""

    tenant: str
    run_id: str
    quarantined_at: int
    quarantined_by: str
    reason: str
    released_at: int | None = None
    released_by: str | None = None
    release_reason: str | None = None


class Due(msgspec.Struct, frozen=True, gc=False):
    """Something whose time has come: a step, or a run (`no` is None)."""

    tenant: str
    run_id: str
    no: int | None


class WorkerChange(msgspec.Struct, frozen=True, kw_only=True):
    """A worker row as it will be, found at journal sequence `was`, with the entry that tells why."""

    was: int
    worker: Worker
    entry: SealedEntry | None


class SchemaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Which migrations the database has and which this program knows."""

    url: str
    applied: tuple[tuple[int, str], ...]
    pending: tuple[tuple[int, str], ...]
    size_bytes: int


class Hint(msgspec.Struct, frozen=True):
    """What may be worth a look: queues, or RESTED for runs that came to rest. None means that it could be anything."""

    topics: frozenset[int] | None = None

    def concerns(self, topics: Collection[int]) -> bool:
        return self.topics is None or not self.topics.isdisjoint(topics)


RESTED = NO_QUEUE
"""The topic of runs that came to rest: ended, or waiting for somebody else."""

Heard = Callable[[Hint], None]


class Bell(Protocol):
    """Hints between processes. One may be lost, late or doubled: whoever listens polls all the same.

    `is_heard` tells whether hints are known to arrive at present; where they are, polling may be rare.
    """

    @property
    def is_heard(self) -> bool: ...

    def ring(self, topics: Collection[int]) -> None:
        """Say, after the commit, that these may be worth a look. It returns at once and never fails."""
        ...

    def listen(self, heard: Heard) -> Callable[[], None]:
        """Have `heard` called on this event loop for every hint, until the function returned is called."""
        ...


class Maintenance(msgspec.Struct, frozen=True, kw_only=True):
    """What one call of `maintain` did. `put_off` names what was in use, to be tried again; `weeks_denied` counts the
    weeks of the journal that are missing and that this role may not make."""

    weeks_made: int = 0
    weeks_dropped: int = 0
    weeks_denied: int = 0
    put_off: tuple[str, ...] = ()


class Store(Protocol):
    """A database that keeps runs. All methods are safe to call concurrently from one event loop.

    `clock_offset` (microseconds) is added to every reading of the database's clock, for tests that move time. The
    store rings `bell` itself, after each commit that others may be waiting for. `lanes` is how many changes it can
    really make at a time: more of them at once would only be smaller ones. `prefers_optimistic_claims` says that
    reading without locks and then writing if unchanged costs less here than one transaction with locks.
    `migrates_itself` says that opening an engine also migrates; otherwise it refuses a database that lacks a migration.
    """

    lanes: int
    prefers_optimistic_claims: bool
    migrates_itself: bool
    clock_offset: int
    url: str

    @property
    def bell(self) -> Bell: ...

    # -- life ------------------------------------------------------------------------------------------------
    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def migrate(self) -> SchemaStatus: ...
    async def status(self) -> SchemaStatus: ...
    async def now(self) -> int: ...
    async def maintain(self) -> Maintenance:
        """Make and drop parts of tables, apart from all other transactions. It takes no lock that is in use for long,
        and leaves to the next call what it cannot do now."""
        ...

    # -- change ----------------------------------------------------------------------------------------------
    async def change(self, wants: Sequence[Want], decide: Decide, propose: Propose | None = None) -> None:
        """Lock, load, decide (again where it wants more), write, commit. Runs wanted are locked in id order,
        before proposed ones. Raises Contended when the whole must be run again, StoreUnavailable when it
        cannot be, InvariantBroken when the schema refuses a row; what `decide` raises comes back as it is.
        Whichever it is, nothing was written."""
        ...

    async def write_if_unchanged(self, what: Write, known: Loaded, basis: Basis) -> int:
        """Write what was decided on rows that are not locked; returns the clock. Every run must be at the journal
        sequence of `known`, every lease that is written over must stand by the database's clock, and a run that is
        created must be new and not begin (`known.now`) in the future. Otherwise nothing is written and Contended is
        raised: load again, with locks. On the basis READ a run that another transaction holds is a conflict at once."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """A transaction on a connection of its own, in which user code writes beside the decision (promise
        4). Leaving it normally commits; leaving it by an exception rolls back."""
        ...

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        """Extend leases that still stand (same fence, not expired by the database's clock); leave out the rest."""
        ...

    async def publish(
        self,
        tenant: str,
        name: str,
        version: int,
        dialect: str,
        digest: str,
        document: bytes,
        specs: Sequence[QueueSpec | None],
        actor: str,
    ) -> StoredDefinition:
        """Keep a definition with its queues; the same (name, version) again returns what is there, whatever
        it is."""
        ...

    # -- find work -------------------------------------------------------------------------------------------
    async def find_due(self, limit: int) -> list[Due]: ...
    async def has_ready(self, queues: Collection[int]) -> bool:
        """Whether any of these queues has a step to claim, as far as one look without locks can tell."""
        ...

    async def find_claimable(self, propose: Propose) -> Loaded:
        """What could be claimed, with its runs and steps, as it stood at one moment; nothing is locked. Where nothing
        is found, `now` means nothing."""
        ...

    async def list_queues(self, tenant: str) -> list[tuple[int, QueueSpec]]: ...

    # -- read ------------------------------------------------------------------------------------------------
    async def read_definition(self, tenant: str, name: str, version: int | None) -> StoredDefinition | None: ...
    async def read_definitions(self, ids: Sequence[int]) -> dict[int, StoredDefinition]: ...
    async def list_definitions(self, tenant: str) -> list[StoredDefinition]: ...
    async def read_run(self, tenant: str, run_id: str) -> RunRecord | None: ...
    async def read_states(self, keys: Sequence[RunKey]) -> dict[RunKey, RunState]: ...
    async def read_steps(self, tenant: str, run_id: str) -> list[Step]: ...
    async def read_attempts(self, tenant: str, run_id: str) -> list[Attempt]: ...
    async def read_messages(self, tenant: str, run_id: str) -> list[Message]: ...
    async def read_journal(self, tenant: str, run_id: str, after: int = 0, limit: int = 1000) -> list[SealedEntry]: ...
    async def read_outbox(self, tenant: str, run_id: str) -> list[OutboxEntry]: ...
    async def read_outputs(self, wants: Sequence[tuple[str, str, int]]) -> dict[tuple[str, str, int], bytes | None]: ...
    async def read_details(self, keys: Sequence[RunKey]) -> dict[RunKey, Details]: ...
    async def list_runs(self, which: RunFilter, unreadable: list[Unreadable] | None = None) -> list[RunRecord]:
        """One page of runs. Those that cannot be read are added to `unreadable`; without such a list the first of them
        raises."""
        ...

    async def count_runs(self, tenant: str) -> Mapping[RunState, int]: ...
    async def stuck_runs(self, limit: int = 100) -> list[RunKey]:
        """Unfinished runs without a cause to move: no claimable step, no lease, no timer, no declared wait,
        not idle. A run's own timeout does not count, or it would hide what got lost; its grace period does.
        Must return nothing."""
        ...

    # -- quarantine ------------------------------------------------------------------------------------------
    async def quarantine(self, tenant: str, run_id: str, actor: str, reason: str) -> Quarantine | None:
        """Set a run aside. Its own rows are not read, so it may be one that cannot be. From the commit on nothing finds
        it to claim, to sweep, to renew, to write or to delete. None where there is no such run, or it is set aside."""
        ...

    async def release(self, tenant: str, run_id: str, actor: str, reason: str) -> Quarantine | None:
        """End a quarantine, on record. None where the run is not set aside."""
        ...

    async def list_quarantined(self, tenant: str) -> list[Quarantine]:
        """The runs that are set aside, newest first."""
        ...

    async def read_quarantines(self, tenant: str, limit: int = 1000) -> list[Quarantine]:
        """Every quarantine there was, also those that ended, newest first."""
        ...

    # -- retention -------------------------------------------------------------------------------------------
    async def find_finished(self, which: Finished) -> list[str]: ...
    async def find_newest_finished(self, tenant: str, after_it: int, workflow: str | None = None) -> str | None:
        """The finished run (of a workflow) with so many finished ones after it; None where there are not as many."""
        ...

    async def read_whole(
        self, tenant: str, run_ids: Sequence[str], unreadable: list[Unreadable] | None = None
    ) -> list[WholeRun]:
        """Everything about these runs, in this order; those that are not there are left out. For those that cannot be
        read, see `list_runs`."""
        ...

    async def delete_runs(self, tenant: str, run_ids: Sequence[str]) -> list[str]:
        """Delete runs with all that belongs to them, and tell which: one that is not finished, not there, or in
        somebody's hands is passed over. Idempotency keys stay."""
        ...

    async def forget_keys(self, tenant: str, before: str, limit: int) -> int:
        """Delete idempotency keys that made runs with ids before this one, where those runs are gone."""
        ...

    # -- workers ---------------------------------------------------------------------------------------------
    async def add_worker(self, worker: Worker, entry: SealedEntry) -> Worker:
        """Insert a worker row; the store gives it its `no`. Contended when its id is taken."""
        ...

    async def change_workers(self, changes: Sequence[WorkerChange]) -> list[bool]:
        """Write worker rows with their journal entries; False where the row was no longer at `was`."""
        ...

    async def beat(self, tenant: str, worker_no: int, incarnation: int) -> Worker | None:
        """Note that this incarnation of a worker is alive and return its row (None: unknown). Never revives:
        its state is for the kernel."""
        ...

    async def list_workers(self, tenant: str, live_only: bool = False) -> list[Worker]: ...
    async def find_worker(self, tenant: str, worker_id: str) -> Worker | None: ...
    async def silent_workers(self, silence: int, limit: int = 100) -> list[Worker]:
        """Workers not shut down that were not heard for `silence` microseconds."""
        ...

    async def read_worker_journal(self, tenant: str, worker_id: str) -> list[SealedEntry]: ...
