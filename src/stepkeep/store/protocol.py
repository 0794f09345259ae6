"""The contract of every store: what it loads, what it writes, and when.

A store opens a transaction, locks run rows in id order, loads rows, calls back for a decision, writes it as a whole and
commits. It only converts values to columns and interprets none. Operations and workers use this protocol alone.
`tests/store/` holds the contract suite that runs against every implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, Self

import msgspec

from stepkeep.kernel.decision import Involved
from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.errors import Unreadable
from stepkeep.kernel.journal import SealedEntry
from stepkeep.kernel.plan import NO_QUEUE
from stepkeep.kernel.rows import Attempt, Details, Gate, Message, OutboxEntry, Step, Vote, Worker
from stepkeep.kernel.states import RunState
from stepkeep.store.adoption_rows import AdoptionRow
from stepkeep.store.audit import AuditStore
from stepkeep.store.change import (
    Basis,
    Decide,
    Lease,
    Loaded,
    Propose,
    Renewed,
    RunKey,
    StoredDefinition,
    StoredPolicy,
    StoredSchema,
    StoredSetting,
    Want,
    Write,
)
from stepkeep.store.children import ChildStore
from stepkeep.store.deliveries import DeliveryStore
from stepkeep.store.jobs import JobStore
from stepkeep.store.mailbox import MailboxMessage
from stepkeep.store.principals import PeopleStore
from stepkeep.store.quotas import QuotaStore
from stepkeep.store.records import (
    FIRST_GATE,
    FIRST_MESSAGE,
    Backlog,
    Due,
    Evidence,
    FinishedFilter,
    Maintenance,
    Quarantine,
    RecentAttempt,
    RecentRun,
    RunCounts,
    RunFilter,
    RunRecord,
    RunStatus,
    SchemaStatus,
    Searched,
    SignedHead,
    TailEntry,
    UnsignedHead,
    WholeRun,
    Words,
    WorkerChange,
    WorkerReport,
)
from stepkeep.store.resources import ResourceStore
from stepkeep.store.slots import SlotStore
from stepkeep.store.triggers import TriggerStore


class Transaction(Protocol):
    """A transaction with user code: `connection` is the driver's own, for the user's writes.

    `is_lost` tells that the database has ended it (a broken connection, a full disk): it cannot be committed.
    """

    @property
    def connection(self) -> Any: ...

    @property
    def is_lost(self) -> bool: ...

    async def change(self, wants: Sequence[Want], decide: Decide) -> None: ...


RUNS_SETTLED = NO_QUEUE
"""The topic of runs that settled: ended or blocked."""

RUNS_STOPPED = -1
"""The topic of runs with attempts that must end: the run is stopping or was cancelled, or a lease was lost."""


EVENTS_READY = -2
"""The topic of delivery cursors that became due: runs emitted events or began with hooks, or a dead event goes on."""


class Notification(msgspec.Struct, frozen=True):
    """What a notification is about: queues with ready steps, or one of the topics above. None means any topic.

    `runs` names the runs of a topic. A topic without an entry there is about any run: there were too many to name.
    """

    topics: frozenset[int] | None = None
    runs: Mapping[int, frozenset[str]] = {}

    def concerns(self, topics: Collection[int]) -> bool:
        return self.topics is None or not self.topics.isdisjoint(topics)

    def runs_of(self, topic: int) -> frozenset[str] | None:
        """The runs that it names for this topic; None means any run."""
        if self.topics is not None and topic not in self.topics:
            return frozenset()
        return self.runs.get(topic)


Listener = Callable[[Notification], None]


class Notifier(Protocol):
    """Notifications between processes. One may be lost, late or duplicated, so every listener also polls.

    `is_connected` tells whether notifications are known to arrive; if so, polling may be rare.
    """

    @property
    def is_connected(self) -> bool: ...

    def publish(self, notification: Notification) -> None:
        """Send this to all listeners, after the commit. It returns at once and never fails."""
        ...

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` on this event loop for every notification, until the returned function is called."""
        ...


class Store(Protocol):
    """A database that stores runs. All methods are safe to call concurrently from one event loop.

    `clock_offset` (microseconds) is added to every reading of the database clock, for tests. The store sends
    notifications through `notifier` after each commit that concerns other processes. `parallel_commits` is how many
    groups it commits in parallel; more would only be smaller. `prefers_optimistic_claims` tells that reading
    without locks and writing if unchanged costs less than one transaction with locks. `is_embedded` tells that
    it is a file of this machine: opening an engine also migrates it, and its workers run commands by default.
    """

    parallel_commits: int
    prefers_optimistic_claims: bool
    is_embedded: bool
    clock_offset: int
    url: str

    @property
    def notifier(self) -> Notifier: ...

    @property
    def is_confined(self) -> bool:
        """Whether the database keeps its role to one tenant at a time."""
        ...

    def confine_to(self, tenant: str) -> None:
        """Act for this tenant from now on, where the database keeps its role to one tenant at a time."""

    def for_tenant(self, tenant: str) -> Self:
        """The same database for another tenant, where its role is kept to one at a time; else this store."""
        ...

    @property
    def people(self) -> PeopleStore: ...

    @property
    def audit(self) -> AuditStore: ...

    @property
    def quotas(self) -> QuotaStore: ...

    @property
    def triggers(self) -> TriggerStore: ...

    @property
    def deliveries(self) -> DeliveryStore: ...
    @property
    def children(self) -> ChildStore: ...
    @property
    def slots(self) -> SlotStore: ...
    @property
    def resources(self) -> ResourceStore: ...
    @property
    def jobs(self) -> JobStore: ...

    # -- life ------------------------------------------------------------------------------------------------
    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def migrate(self) -> SchemaStatus: ...
    async def status(self) -> SchemaStatus: ...
    async def now(self) -> int: ...
    async def maintain(self) -> Maintenance:
        """Create and drop partitions, apart from all other transactions. It waits only briefly for locks, and leaves
        to the next call what it cannot do now."""
        ...

    # -- change ----------------------------------------------------------------------------------------------
    async def change(self, wants: Sequence[Want], decide: Decide, propose: Propose | None = None) -> None:
        """Lock, load, decide (again if it needs more), write, commit. Wanted runs are locked in id order, before
        proposed ones. Raises Contended if the whole must be repeated, StoreUnavailable if it cannot be,
        InvariantBroken if the schema refuses a row; exceptions of `decide` pass through. After any exception,
        nothing was written."""
        ...

    async def write_if_unchanged(self, what: Write, known: Loaded, basis: Basis) -> int:
        """Write a decision whose rows are not locked; returns the clock. Every run must be at the journal sequence
        of `known`, every overwritten lease must be valid by the database clock, and a created run must be new and
        not start (`known.now`) in the future. Otherwise nothing is written and Contended is raised: load again, with
        locks. On the basis READ, a run that another transaction holds is a conflict at once."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """A transaction on its own connection, in which user code writes beside the decision (promise 4). Leaving it
        normally commits; an exception rolls back."""
        ...

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        """Renew leases that are still valid (same fence, not expired by the database clock); returns only those."""
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
        """Store a definition with its queues; for an existing (name, version) returns the stored one."""
        ...

    async def publish_schema(self, tenant: str, ref: str, digest: str, document: bytes, actor: str) -> StoredSchema:
        """Store a JSON Schema under a reference; for an existing reference returns the stored one."""
        ...

    async def publish_policy(
        self, tenant: str, revision: int, name: str, digest: str, document: bytes, actor: str
    ) -> StoredPolicy:
        """Store a revision of a tenant's policy. Raises Contended if it exists: read the newest one again."""
        ...

    async def save_setting(
        self, tenant: str, kind: str, name: str, revision: int, document: bytes, actor: str
    ) -> StoredSetting:
        """Store a revision of a setting. Raises Contended if it exists: read the newest one again."""
        ...

    # -- find work -------------------------------------------------------------------------------------------
    async def find_due(self, limit: int) -> list[Due]: ...
    async def has_ready(self, queues: Collection[int]) -> bool:
        """Whether any of these queues has a claimable step, read without locks."""
        ...

    async def find_claimable(self, propose: Propose) -> Loaded:
        """Claimable steps with their runs, read in one statement without locks. If nothing is found, `now` is
        meaningless."""
        ...

    async def list_queues(self, tenant: str) -> list[tuple[int, QueueSpec]]: ...
    async def add_queue(self, tenant: str, spec: QueueSpec) -> None:
        """Make sure that there is this queue."""
        ...

    # -- read ------------------------------------------------------------------------------------------------
    async def read_definition(self, tenant: str, name: str, version: int | None) -> StoredDefinition | None: ...
    async def read_definitions(self, ids: Sequence[int]) -> dict[int, StoredDefinition]: ...
    async def read_schema(self, tenant: str, ref: str) -> StoredSchema | None: ...
    async def list_schemas(self, tenant: str, after: str = "", limit: int = 1000) -> list[StoredSchema]: ...
    async def list_definitions(self, tenant: str) -> list[StoredDefinition]: ...
    async def has_other_tenants(self, tenant: str) -> bool:
        """Whether another tenant has published a definition. A confined role sees none."""
        ...

    async def read_policy(self, tenant: str, revision: int | None = None) -> StoredPolicy | None: ...
    async def list_policies(self, tenant: str, limit: int = 1000) -> list[StoredPolicy]:
        """The revisions of a tenant's policy, newest first."""
        ...

    async def read_setting(
        self, tenant: str, kind: str, name: str, revision: int | None = None
    ) -> StoredSetting | None: ...
    async def add_signed_heads(self, signed: Sequence[SignedHead]) -> None:
        """Keep signatures over the heads of finished runs; one that is there already stays as it is."""
        ...

    async def find_unsigned(self, tenant: str, key_id: str, after: str, limit: int) -> list[UnsignedHead]:
        """Finished runs after an id that a key has not signed, by id."""
        ...

    async def find_oldest_live(self, tenant: str) -> str | None:
        """The id of the oldest unfinished run, also of a quarantined one: every run before it has ended."""
        ...

    async def read_signed_heads(self, tenant: str, run_id: str) -> list[SignedHead]: ...
    async def list_settings(self, tenant: str, kind: str, after: str = "", limit: int = 1000) -> list[StoredSetting]:
        """The newest revision of each setting of a kind, removed ones too, by name."""
        ...

    async def read_run(self, tenant: str, run_id: str) -> RunRecord | None: ...
    async def read_states(self, keys: Sequence[RunKey]) -> dict[RunKey, RunStatus]: ...
    async def read_steps(self, tenant: str, run_id: str) -> list[Step]: ...
    async def read_attempts(self, tenant: str, run_id: str) -> list[Attempt]: ...
    async def read_messages(self, tenant: str, run_id: str) -> list[Message]: ...
    async def read_journal(self, tenant: str, run_id: str, after: int = 0, limit: int = 1000) -> list[SealedEntry]: ...
    async def read_tail(self, tenant: str, after: str, limit: int = 1000) -> list[TailEntry]:
        """Entries of all runs of a tenant after a position, in the order of positions. No entry that is committed
        later has a position before one that was read."""
        ...

    async def tail_position(self) -> str:
        """The position behind all entries that `read_tail` can read now."""
        ...

    async def read_outbox(self, tenant: str, run_id: str) -> list[OutboxEntry]: ...
    async def read_adoptions(self, tenant: str, run_ids: Sequence[str]) -> list[AdoptionRow]:
        """What was adopted from these runs: by which runs, and which of them owns the undo."""
        ...

    async def find_reruns(self, tenant: str, run_id: str, limit: int = 100) -> list[str]:
        """Runs that repeat or continue a run, newest first."""
        ...

    async def read_gates(self, tenant: str, run_id: str) -> list[Gate]:
        """Every opening of a gate of a run."""
        ...

    async def read_votes(self, tenant: str, run_id: str) -> list[Vote]:
        """Every decision of a person about a gate of a run."""
        ...

    async def list_open_gates(self, tenant: str, after: tuple[str, int] = FIRST_GATE, limit: int = 100) -> list[Gate]:
        """Open gates in the order of run and step, after the given run and step."""
        ...

    async def read_outputs(self, wants: Sequence[tuple[str, str, int]]) -> dict[tuple[str, str, int], bytes | None]: ...
    async def read_details(self, keys: Sequence[RunKey]) -> dict[RunKey, Details]: ...
    async def read_involved(self, keys: Sequence[RunKey]) -> dict[RunKey, Involved]:
        """The people behind runs: those who asked for them, and the owners of the workers that execute their steps."""
        ...

    async def list_runs(self, which: RunFilter, unreadable: list[Unreadable] | None = None) -> list[RunRecord]:
        """One page of runs. Unreadable ones are added to `unreadable`; without such a list, the first one raises."""
        ...

    async def count_runs(self, tenant: str) -> Mapping[RunState, int]: ...
    async def measure_use(self, tenant: str, kind: str, most: int) -> tuple[int, int]:
        """How many rows of a kind (`messages`, `triggers`, `definitions`, `settings`, `people`) a tenant has, and their
        bytes, counted up to `most` rows."""
        ...

    async def stuck_runs(self, limit: int = 100) -> list[RunKey]:
        """Unfinished runs without a cause to progress: no claimable step, no lease, no timer, no declared wait, not
        idle. A run's own timeout does not count, because it would hide a defect; its grace period does. Must return
        nothing."""
        ...

    # -- diagnosis -------------------------------------------------------------------------------------------
    async def tally(self, tenant: str, *, after: str, late_by: int, limit: int) -> RunCounts:
        """Count runs without reading the history: `recent` and `troubled` begin after a run id; timers are late that
        were due by `late_by`."""
        ...

    async def count_unfinished(self, tenant: str, most: int) -> int:
        """How many runs of a tenant have not ended, counted up to `most`."""
        ...

    async def count_newest(self, tenant: str, oldest: str, most: int) -> int:
        """How many runs of a tenant there are from an id on, counted up to `most`."""
        ...

    async def sample_live(self, tenant: str, *, share: int, limit: int) -> list[RecentRun]:
        """Those of the newest `limit` unfinished runs whose ids end in a byte below `share`; 256 is all."""
        ...

    async def sample_recent(self, tenant: str, *, after: str, share: int, limit: int) -> list[RecentRun]:
        """The same of all runs after an id."""
        ...

    async def read_backlog(self, queues: Collection[int], limit: int) -> list[Backlog]:
        """The claimable steps of these queues; a queue without any is left out."""
        ...

    async def read_recent_runs(self, tenant: str, *, after: str, limit: int) -> list[RecentRun]:
        """How the newest runs went, also quarantined ones: those after an id, newest first."""
        ...

    async def read_recent_attempts(
        self, tenant: str, *, after: str, looked_at: int, runs: int, limit: int
    ) -> list[RecentAttempt]:
        """How long attempts took in the newest `runs` ended runs, of the newest `looked_at` runs after an id; at most
        `limit`, by run (newest first), step and fence."""
        ...

    async def search_runs(
        self, which: RunFilter, words: Words, most: int, unreadable: list[Unreadable] | None = None
    ) -> Searched:
        """Look for words in the newest `most` runs of a filter: how many have them, and the first `limit` of those.
        For unreadable runs, see `list_runs`."""
        ...

    async def read_payload(self, tenant: str, run_id: str, digest: str) -> bytes | None:
        """A payload that is kept outside its row, put together from its chunks; None if there is none."""
        ...

    async def add_evidence(self, evidence: Sequence[Evidence]) -> None:
        """Keep the evidence of ended attempts; a second one of the same attempt is ignored."""
        ...

    async def read_evidence(self, tenant: str, run_id: str) -> list[Evidence]: ...

    # -- quarantine ------------------------------------------------------------------------------------------
    async def quarantine(self, tenant: str, run_id: str, actor: str, reason: str) -> Quarantine | None:
        """Quarantine a run, without reading its rows. After the commit it is never claimed, swept, renewed, written
        or deleted. Returns None if there is no such run, or it is quarantined already."""
        ...

    async def release(self, tenant: str, run_id: str, actor: str, reason: str) -> Quarantine | None:
        """End a quarantine, recorded. Returns None if the run is not quarantined."""
        ...

    async def list_quarantined(self, tenant: str) -> list[Quarantine]:
        """The quarantined runs, newest first."""
        ...

    async def read_quarantines(self, tenant: str, limit: int = 1000) -> list[Quarantine]:
        """Every quarantine, ended ones included, newest first."""
        ...

    # -- retention -------------------------------------------------------------------------------------------
    async def find_finished(self, which: FinishedFilter) -> list[str]:
        """Finished runs that have nothing left to deliver."""
        ...

    async def find_newest_finished(self, tenant: str, after_it: int, workflow: str | None = None) -> str | None:
        """The finished run (of a workflow) that has this many finished ones after it; None if there are fewer."""
        ...

    async def read_whole(
        self,
        tenant: str,
        run_ids: Sequence[str],
        unreadable: list[Unreadable] | None = None,
        *,
        with_messages: bool = True,
    ) -> list[WholeRun]:
        """Everything about these runs, in this order, from one snapshot of the database; missing runs are left out.
        Inbox and outbox are read only `with_messages`. For unreadable runs, see `list_runs`."""
        ...

    async def delete_runs(self, tenant: str, run_ids: Sequence[str]) -> list[str]:
        """Delete runs with all their rows, and return which: runs that are unfinished, missing or locked are
        skipped, and so are those with something left to deliver. Idempotency keys stay."""
        ...

    async def forget_keys(self, tenant: str, before: str, limit: int) -> int:
        """Delete idempotency keys of runs with ids before this one, if those runs are deleted."""
        ...

    # -- mailbox ---------------------------------------------------------------------------------------------
    async def list_mailbox(
        self,
        tenant: str,
        key: str | None = None,
        after: tuple[str, int, str] = FIRST_MESSAGE,
        limit: int = 100,
    ) -> list[MailboxMessage]:
        """Messages that are kept (for one business key), in the order of key, number and id, after the given one."""
        ...

    async def drop_mailbox(self, tenant: str, key: str, message_id: str | None = None) -> list[str]:
        """Drop what is kept for a business key, or one message of it; returns the ids. They stay until they are
        forgotten, so that a duplicate is not kept again."""
        ...

    async def forget_mailbox(self, limit: int) -> int:
        """Delete rows of messages by key whose time has come, of every tenant; returns how many."""
        ...

    # -- workers ---------------------------------------------------------------------------------------------
    async def add_worker(self, worker: Worker, entry: SealedEntry) -> Worker:
        """Insert a worker row; the store assigns its `no`. Raises Contended if its id exists."""
        ...

    async def change_workers(self, changes: Sequence[WorkerChange]) -> list[bool]:
        """Write worker rows with their journal entries; False for a row that is no longer at `was`."""
        ...

    async def beat(self, tenant: str, worker_no: int, incarnation: int) -> Worker | None:
        """Record a heartbeat of this incarnation and return the worker's row (None: unknown). It never changes the
        state, which the kernel decides."""
        ...

    async def report_worker(self, tenant: str, worker_no: int, body: bytes) -> None:
        """Replace what a worker says about itself."""
        ...

    async def list_worker_reports(self, tenant: str, newest: int = 100) -> list[WorkerReport]:
        """The reports of all workers that are not shut down, and of the newest ones, by number."""
        ...

    async def read_worker_reports(self, tenant: str, numbers: Collection[int]) -> list[WorkerReport]:
        """The reports of workers by their numbers; workers without one are left out."""
        ...

    async def list_workers(self, tenant: str, live_only: bool = False) -> list[Worker]: ...
    async def name_workers(self, tenant: str, numbers: Collection[int]) -> dict[int, str]:
        """The ids of workers by their numbers; unknown numbers are left out."""
        ...

    async def find_worker(self, tenant: str, worker_id: str) -> Worker | None: ...
    async def silent_workers(self, silence: int, limit: int = 100) -> list[Worker]:
        """Workers not shut down whose last heartbeat is more than `silence` microseconds ago."""
        ...

    async def read_worker_journal(self, tenant: str, worker_id: str) -> list[SealedEntry]: ...
