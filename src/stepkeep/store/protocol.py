"""The base of every store: what it loads, what it writes and when; and the reads that are one statement with the same
parameters in every database.

A store opens a transaction, locks run rows in id order, loads rows, calls back for a decision, writes it as a whole and
commits. It only converts values to columns and interprets none. Operations and workers use this class alone.
`tests/store/` holds the contract suite that runs against every implementation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import SimpleNamespace
from typing import Any, Protocol, Self, TypeVar

import msgspec

from stepkeep.kernel.decide.decision import Involved
from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.errors import Contended, Unreadable
from stepkeep.kernel.machine.journal import SealedEntry
from stepkeep.kernel.machine.rows import Attempt, Checkpoint, Details, Gate, Message, OutboxEntry, Step, Vote, Worker
from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.people.authority import Authority, Caller
from stepkeep.kernel.plan import NO_QUEUE
from stepkeep.store import columns
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
from stepkeep.store.conversations import ConversationStore
from stepkeep.store.deliveries import DeliveryStore
from stepkeep.store.jobs import JobStore
from stepkeep.store.limits import LimitStore
from stepkeep.store.part import Rows, Statement
from stepkeep.store.people import PeopleStore
from stepkeep.store.principals import MakeChange
from stepkeep.store.quotas import QuotaStore
from stepkeep.store.reading import Convert, first, only, read_queues
from stepkeep.store.records import (
    FIRST_CHECKPOINT,
    FIRST_GATE,
    FIRST_MESSAGE,
    LAST_ID,
    Backlog,
    Due,
    Evidence,
    FinishedFilter,
    Maintenance,
    Quarantine,
    RecentAttempt,
    RecentFailure,
    RecentRun,
    RunCounts,
    RunFilter,
    RunRecord,
    RunStatus,
    SchemaStatus,
    Searched,
    SignedHead,
    TailEntry,
    UnfitStep,
    UnsignedHead,
    WholeRun,
    Words,
    WorkerChange,
    WorkerReport,
)
from stepkeep.store.resources import ResourceStore
from stepkeep.store.rows import AdoptionRow, MailboxMessage
from stepkeep.store.slots import SlotStore
from stepkeep.store.streams import StreamStore
from stepkeep.store.triggers import TriggerStore

T = TypeVar("T")

_decode_spec = msgspec.json.Decoder(QueueSpec).decode


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


NO_RESULTS: Mapping[RunKey, Sequence[int]] = {}


def wanted_outputs(keys: Sequence[RunKey], results: Mapping[RunKey, Sequence[int]]) -> list[tuple[str, str, int]]:
    """What `read_states` asks for: each run with the steps whose outputs are its result, or with a number of none."""
    return [(*key, no) for key in dict.fromkeys(keys) for no in results.get(key) or (-1,)]


class Store(ABC):
    """A database that stores runs. All methods are safe to call concurrently from one event loop.

    `clock_offset` (microseconds) is added to every reading of the database clock, for tests. The store sends
    notifications through `notifier` after each commit that concerns other processes. `parallel_commits` is how many
    groups it commits in parallel; more would only be smaller. `divides_batches` tells that a large group is better
    committed as two, because one is written while the other is decided. `prefers_optimistic_claims` tells that reading
    without locks and writing if unchanged costs less than one transaction with locks. `is_embedded` tells that
    it is a file of this machine: opening an engine also migrates it, and its workers run commands by default.
    """

    parallel_commits: int
    divides_batches = False
    prefers_optimistic_claims: bool
    is_embedded: bool
    clock_offset: int
    url: str
    sql: SimpleNamespace
    notifier: Notifier
    people: PeopleStore
    audit: AuditStore
    quotas: QuotaStore
    triggers: TriggerStore
    deliveries: DeliveryStore
    children: ChildStore
    slots: SlotStore
    resources: ResourceStore
    limits: LimitStore
    streams: StreamStore
    jobs: JobStore
    conversations: ConversationStore

    @property
    def is_confined(self) -> bool:
        """Whether the database keeps its role to one tenant at a time."""
        return False

    def confine_to(self, tenant: str) -> None:  # noqa: B027
        """Act for this tenant from now on, where the database keeps its role to one tenant at a time."""

    def for_tenant(self, tenant: str) -> Self:
        """The same database for another tenant, where its role is kept to one at a time; else this store."""
        return self

    # -- life ------------------------------------------------------------------------------------------------
    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def migrate(self) -> SchemaStatus: ...

    @abstractmethod
    async def status(self) -> SchemaStatus: ...

    @abstractmethod
    async def now(self) -> int: ...

    async def maintain(self) -> Maintenance:
        """Create and drop partitions, apart from all other transactions. It waits only briefly for locks, and leaves
        to the next call what it cannot do now."""
        return Maintenance()

    # -- change ----------------------------------------------------------------------------------------------
    @abstractmethod
    async def change(self, wants: Sequence[Want], decide: Decide, propose: Propose | None = None) -> None:
        """Lock, load, decide (again if it needs more), write, commit. Wanted runs are locked in id order, before
        proposed ones. Raises Contended if the whole must be repeated, StoreUnavailable if it cannot be,
        InvariantBroken if the schema refuses a row; exceptions of `decide` pass through. After any exception,
        nothing was written."""

    @abstractmethod
    async def write_if_unchanged(self, what: Write, known: Loaded, basis: Basis) -> int:
        """Write a decision whose rows are not locked; returns the clock. Every run must be at the journal sequence
        of `known`, every overwritten lease must be valid by the database clock, and a created run must be new and
        not start (`known.now`) in the future. Otherwise nothing is written and Contended is raised: load again, with
        locks. On the basis READ, a run that another transaction holds is a conflict at once."""

    @abstractmethod
    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """A transaction on its own connection, in which user code writes beside the decision (promise 4). Leaving it
        normally commits; an exception rolls back."""

    @abstractmethod
    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        """Renew leases that are still valid (same fence, not expired by the database clock); returns only those."""

    @abstractmethod
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

    @abstractmethod
    async def publish_schema(self, tenant: str, ref: str, digest: str, document: bytes, actor: str) -> StoredSchema:
        """Store a JSON Schema under a reference; for an existing reference returns the stored one."""

    @abstractmethod
    async def publish_policy(
        self, tenant: str, revision: int, name: str, digest: str, document: bytes, actor: str
    ) -> StoredPolicy:
        """Store a revision of a tenant's policy. Raises Contended if it exists: read the newest one again."""

    @abstractmethod
    async def save_setting(
        self, tenant: str, kind: str, name: str, revision: int, document: bytes, actor: str
    ) -> StoredSetting:
        """Store a revision of a setting. Raises Contended if it exists: read the newest one again."""

    # -- find work -------------------------------------------------------------------------------------------
    async def find_due(self, limit: int) -> list[Due]:
        return await self._find(lambda row: Due(*row), self.sql.find_due, self._time, limit)

    async def has_ready(self, queues: Collection[int]) -> bool:
        """Whether any of these queues has a claimable step, read without locks."""
        [found] = await self._find(lambda row: bool(row[0]), self.sql.has_ready, self._numbers(queues), self._time)
        return found

    @abstractmethod
    async def find_claimable(self, propose: Propose) -> Loaded:
        """Claimable steps with their runs, read in one statement without locks. If nothing is found, `now` is
        meaningless."""

    async def list_queues(self, tenant: str) -> list[tuple[int, QueueSpec]]:
        return read_queues(_decode_spec, await self._read(tuple, self.sql.list_queues, tenant))

    @abstractmethod
    async def add_queue(self, tenant: str, spec: QueueSpec) -> None:
        """Make sure that there is this queue."""

    # -- read ------------------------------------------------------------------------------------------------
    async def read_definition(self, tenant: str, name: str, version: int | None) -> StoredDefinition | None:
        return first(await self._read(columns.definition_from, self.sql.read_definition, tenant, name, version))

    async def read_definitions(self, ids: Sequence[int]) -> dict[int, StoredDefinition]:
        found = await self._read(columns.definition_from, self.sql.load_definitions, self._numbers(ids))
        return {definition.id: definition for definition in found}

    async def read_schema(self, tenant: str, ref: str) -> StoredSchema | None:
        return first(await self._read(columns.schema_from, self.sql.read_schema, tenant, ref))

    async def list_schemas(self, tenant: str, after: str = "", limit: int = 1000) -> list[StoredSchema]:
        return await self._read(columns.schema_from, self.sql.list_schemas, tenant, after, limit)

    async def list_definitions(self, tenant: str) -> list[StoredDefinition]:
        return await self._read(columns.definition_from, self.sql.list_definitions, tenant)

    async def has_other_tenants(self, tenant: str) -> bool:
        """Whether another tenant has published a definition. A confined role sees none."""
        [found] = await self._read(lambda row: bool(row[0]), self.sql.has_other_tenants, tenant)
        return found

    async def read_policy(self, tenant: str, revision: int | None = None) -> StoredPolicy | None:
        return first(await self._read(columns.policy_from, self.sql.read_policy, tenant, revision))

    async def list_policies(self, tenant: str, limit: int = 1000) -> list[StoredPolicy]:
        """The revisions of a tenant's policy, newest first."""
        return await self._read(columns.policy_from, self.sql.list_policies, tenant, limit)

    async def read_setting(
        self, tenant: str, kind: str, name: str, revision: int | None = None
    ) -> StoredSetting | None:
        return first(await self._read(columns.setting_from, self.sql.read_setting, tenant, kind, name, revision))

    @abstractmethod
    async def add_signed_heads(self, signed: Sequence[SignedHead]) -> None:
        """Keep signatures over the heads of finished runs; one that is there already stays as it is."""

    async def find_unsigned(self, tenant: str, key_id: str, after: str, limit: int) -> list[UnsignedHead]:
        """Finished runs after an id that a key has not signed, by id."""
        found = await self._read(lambda row: UnsignedHead(*row), self.sql.find_unsigned, tenant, key_id, after, limit)
        return [one._replace(head=bytes(one.head)) for one in found]

    async def find_oldest_live(self, tenant: str) -> str | None:
        """The id of the oldest unfinished run, also of a quarantined one: every run before it has ended."""
        return first(await self._read(lambda row: str(row[0]), self.sql.find_oldest_live, tenant))

    async def find_unfit(self, tenant: str, after: str, limit: int) -> list[UnfitStep]:
        """Flows that hold until other code is there, of runs behind an id, by run and number."""
        return await self._find(columns.unfit_from, self.sql.find_unfit, tenant, after, limit)

    async def read_signed_heads(self, tenant: str, run_id: str) -> list[SignedHead]:
        statement = self.sql.read_signed_heads
        return await self._read_of_run("signed_heads", columns.signed_head_from, statement, tenant, run_id)

    async def list_settings(self, tenant: str, kind: str, after: str = "", limit: int = 1000) -> list[StoredSetting]:
        """The newest revision of each setting of a kind, removed ones too, by name."""
        return await self._read(columns.setting_from, self.sql.list_settings, tenant, kind, after, limit)

    async def read_run(self, tenant: str, run_id: str) -> RunRecord | None:
        return first(await self._read_of_run("runs", columns.record_from, self.sql.read_run, tenant, run_id))

    @abstractmethod
    async def read_states(
        self, keys: Sequence[RunKey], results: Mapping[RunKey, Sequence[int]] = NO_RESULTS
    ) -> dict[RunKey, RunStatus]:
        """How runs stand. Of those that have succeeded, with the outputs of the steps that `results` names."""
        ...

    @abstractmethod
    async def read_steps(self, tenant: str, run_id: str) -> list[Step]: ...

    async def read_attempts(self, tenant: str, run_id: str) -> list[Attempt]:
        return await self._read_of_run("attempts", columns.attempt_from, self.sql.read_attempts, tenant, run_id)

    async def read_messages(self, tenant: str, run_id: str) -> list[Message]:
        return await self._read_of_run("messages", columns.message_from, self.sql.read_messages, tenant, run_id)

    async def read_journal(self, tenant: str, run_id: str, after: int = 0, limit: int = 1000) -> list[SealedEntry]:
        asked = (self.sql.read_journal, tenant, run_id, after, limit)
        return await self._read_of_run("journal", columns.entry_from, *asked)

    @abstractmethod
    async def read_tail(self, tenant: str, after: str, limit: int = 1000) -> list[TailEntry]:
        """Entries of all runs of a tenant after a position, in the order of positions. No entry that is committed
        later has a position before one that was read."""

    @abstractmethod
    async def tail_position(self) -> str:
        """The position behind all entries that `read_tail` can read now."""

    async def read_outbox(self, tenant: str, run_id: str) -> list[OutboxEntry]:
        return await self._read_of_run("outbox", columns.outbox_from, self.sql.read_outbox, tenant, run_id)

    async def read_adoptions(self, tenant: str, run_ids: Sequence[str]) -> list[AdoptionRow]:
        """What was adopted from these runs: by which runs, and which of them owns the undo."""
        known = [(tenant, run_id) for run_id in run_ids if self._can_exist(run_id)]
        return await self._read(columns.adoption_from, self.sql.load_adoptions, *self._keys(known)) if known else []

    async def find_reruns(self, tenant: str, run_id: str, limit: int = 100) -> list[str]:
        """Runs that repeat or continue a run, newest first."""
        if not self._can_exist(run_id):
            return []
        return await self._find(lambda row: str(row[0]), self.sql.find_reruns, tenant, run_id, limit)

    async def read_gates(self, tenant: str, run_id: str) -> list[Gate]:
        """Every opening of a gate of a run."""
        return await self._read_of_run("gates", columns.gate_from, self.sql.read_gates, tenant, run_id)

    async def read_votes(self, tenant: str, run_id: str) -> list[Vote]:
        """Every decision of a person about a gate of a run."""
        return await self._read_of_run("decisions", columns.vote_from, self.sql.read_decisions, tenant, run_id)

    async def read_checkpoints(
        self, tenant: str, run_id: str, no: int, after: tuple[int, str] = FIRST_CHECKPOINT, limit: int = 100
    ) -> list[Checkpoint]:
        """What the handler of a step recorded, in the order of journal entry and name, after such a place."""
        asked = (self.sql.read_checkpoints, tenant, run_id, no, *after, limit)
        return await self._read_of_run("checkpoints", columns.checkpoint_from, *asked)

    async def newest_checkpoints(self, tenant: str, run_id: str, limit: int = 100) -> list[Checkpoint]:
        """The newest ones of each step of a run, in the order of step, journal entry and name."""
        asked = (self.sql.newest_checkpoints, tenant, run_id, limit)
        return await self._read_of_run("checkpoints", columns.checkpoint_from, *asked)

    async def list_open_gates(self, tenant: str, after: tuple[str, int] = FIRST_GATE, limit: int = 100) -> list[Gate]:
        """Open gates in the order of run and step, after the given run and step."""
        return await self._read(columns.gate_from, self.sql.list_open_gates, tenant, *after, limit)

    @abstractmethod
    async def read_outputs(self, wants: Sequence[tuple[str, str, int]]) -> dict[tuple[str, str, int], bytes | None]: ...

    @abstractmethod
    async def read_details(self, keys: Sequence[RunKey]) -> dict[RunKey, Details]: ...

    @abstractmethod
    async def read_involved(self, keys: Sequence[RunKey]) -> dict[RunKey, Involved]:
        """The people behind runs: those who asked for them, and the owners of the workers that execute their steps."""

    @abstractmethod
    async def list_runs(self, which: RunFilter, unreadable: list[Unreadable] | None = None) -> list[RunRecord]:
        """One page of runs. Unreadable ones are added to `unreadable`; without such a list, the first one raises."""

    async def count_runs(self, tenant: str) -> Mapping[RunState, int]:
        return dict(await self._read(lambda row: (RunState(row[0]), row[1]), self.sql.count_runs, tenant))

    async def measure_use(self, tenant: str, kind: str, most: int) -> tuple[int, int]:
        """How many rows of a kind (`messages`, `triggers`, `definitions`, `settings`, `people`) a tenant has, and their
        bytes, counted up to `most` rows."""
        [(count, size_bytes)] = await self._read(tuple, self.sql.measure_use, tenant, kind, most)
        return count, size_bytes

    async def stuck_runs(self, limit: int = 100) -> list[RunKey]:
        """Unfinished runs without a cause to progress: no claimable step, no lease, no timer, no declared wait, not
        idle. A run's own timeout does not count, because it would hide a defect; its grace period does. Must return
        nothing."""
        return await self._read(lambda row: (row[0], row[1]), self.sql.stuck_runs, limit)

    # -- diagnosis -------------------------------------------------------------------------------------------
    @abstractmethod
    async def tally(self, tenant: str, *, after: str, late_by: int, limit: int) -> RunCounts:
        """Count runs without reading the history: `recent` and `troubled` begin after a run id; timers are late that
        were due by `late_by`."""

    async def count_unfinished(self, tenant: str, most: int) -> int:
        """How many runs of a tenant have not ended, counted up to `most`."""
        [count] = await self._find(lambda row: int(row[0]), self.sql.count_unfinished, tenant, most)
        return count

    async def count_newest(self, tenant: str, oldest: str, most: int) -> int:
        """How many runs of a tenant there are from an id on, counted up to `most`."""
        [count] = await self._find(lambda row: int(row[0]), self.sql.find_last_of, tenant, LAST_ID, most, oldest)
        return count

    async def sample_live(self, tenant: str, *, share: int, limit: int) -> list[RecentRun]:
        """Those of the newest `limit` unfinished runs whose ids end in a byte below `share`; 256 is all."""
        return await self._find(lambda row: RecentRun(*row), self.sql.sample_live, tenant, share, limit)

    async def sample_recent(self, tenant: str, *, after: str, share: int, limit: int) -> list[RecentRun]:
        """The same of all runs after an id."""
        given = (tenant, share, limit, after)
        return await self._find(lambda row: RecentRun(*row), self.sql.sample_recent, *given)

    async def read_backlog(self, queues: Collection[int], limit: int) -> list[Backlog]:
        """The claimable steps of these queues; a queue without any is left out."""
        return await self._find(lambda row: Backlog(*row), self.sql.read_backlog, self._numbers(queues), limit)

    async def read_recent_runs(self, tenant: str, *, after: str, limit: int) -> list[RecentRun]:
        """How the newest runs went, also quarantined ones: those after an id, newest first."""
        return await self._find(lambda row: RecentRun(*row), self.sql.read_recent_runs, tenant, after, limit)

    async def read_recent_attempts(self, tenant: str, runs: Sequence[str], *, limit: int) -> list[RecentAttempt]:
        """How the ended attempts of these runs went; at most `limit`, by run (newest first), step and fence."""
        asked = (self.sql.read_recent_attempts, tenant, columns.json_text(list(runs)), limit)
        return await self._find(lambda row: RecentAttempt(*row), *asked)

    async def read_failures(self, tenant: str, *, after: str, limit: int) -> list[RecentFailure]:
        """Why the newest stopped runs after an id were stopped, newest first, also quarantined ones. A run that was
        cancelled is left out."""
        return await self._find(lambda row: RecentFailure(*row), self.sql.read_failures, tenant, after, limit)

    @abstractmethod
    async def search_runs(
        self, which: RunFilter, words: Words, most: int, unreadable: list[Unreadable] | None = None
    ) -> Searched:
        """Look for words in the newest `most` runs of a filter: how many have them, and the first `limit` of those.
        For unreadable runs, see `list_runs`."""

    async def read_payload(self, tenant: str, run_id: str, digest: str) -> bytes | None:
        """A payload that is kept outside its row, put together from its chunks; None if there is none."""
        if not self._can_exist(run_id):
            return None
        chunks = await self._read(lambda row: bytes(row[0]), self.sql.read_payload_chunks, tenant, run_id, digest)
        return b"".join(chunks) if chunks else None

    @abstractmethod
    async def add_evidence(self, evidence: Sequence[Evidence]) -> None:
        """Keep the evidence of ended attempts; a second one of the same attempt is ignored."""

    async def read_evidence(self, tenant: str, run_id: str) -> list[Evidence]:
        if not self._can_exist(run_id):
            return []
        found = await self._read(tuple, self.sql.read_evidence, tenant, run_id)
        return [Evidence(tenant, run_id, no, fence, body.encode()) for no, fence, body in found]

    # -- quarantine ------------------------------------------------------------------------------------------
    @abstractmethod
    async def quarantine(self, tenant: str, run_id: str, actor: str, reason: str) -> Quarantine | None:
        """Quarantine a run, without reading its rows. After the commit it is never claimed, swept, renewed, written
        or deleted. Returns None if there is no such run, or it is quarantined already."""

    @abstractmethod
    async def release(self, tenant: str, run_id: str, actor: str, reason: str) -> Quarantine | None:
        """End a quarantine, recorded. Returns None if the run is not quarantined."""

    async def list_quarantined(self, tenant: str) -> list[Quarantine]:
        """The quarantined runs, newest first."""
        return await self._find(lambda row: Quarantine(*row), self.sql.list_quarantined, tenant)

    async def read_quarantines(self, tenant: str, limit: int = 1000) -> list[Quarantine]:
        """Every quarantine, ended ones included, newest first."""
        return await self._find(lambda row: Quarantine(*row), self.sql.read_quarantines, tenant, limit)

    # -- retention -------------------------------------------------------------------------------------------
    async def find_finished(self, which: FinishedFilter) -> list[str]:
        """Finished runs that have nothing left to deliver."""
        asked = (which.tenant, which.after, which.before, which.ended_by, which.limit)
        if which.workflow is None:
            return await self._find(only, self.sql.find_finished, *asked)
        return await self._find(only, self.sql.find_finished_of, *asked, which.workflow)

    async def find_newest_finished(self, tenant: str, after_it: int, workflow: str | None = None) -> str | None:
        """The finished run (of a workflow) that has this many finished ones after it; None if there are fewer."""
        if workflow is None:
            return first(await self._find(only, self.sql.find_newest_finished, tenant, after_it))
        return first(await self._find(only, self.sql.find_newest_finished_of, tenant, after_it, workflow))

    @abstractmethod
    async def read_whole(
        self,
        tenant: str,
        run_ids: Sequence[str],
        unreadable: list[Unreadable] | None = None,
        *,
        with_messages: bool = True,
    ) -> list[WholeRun]:
        """Everything about these runs, in this order, from one snapshot of the database; missing runs are left out.
        Inbox, outbox, gates, decisions and checkpoints are read only `with_messages`. For unreadable runs, see
        `list_runs`."""

    @abstractmethod
    async def delete_runs(self, tenant: str, run_ids: Sequence[str]) -> list[str]:
        """Delete runs with all their rows, and return which: runs that are unfinished, missing or locked are
        skipped, and so are those with something left to deliver. Idempotency keys stay."""

    @abstractmethod
    async def forget_keys(self, tenant: str, before: str, limit: int) -> int:
        """Delete idempotency keys of runs with ids before this one, if those runs are deleted."""

    # -- mailbox ---------------------------------------------------------------------------------------------
    async def list_mailbox(
        self,
        tenant: str,
        key: str | None = None,
        after: tuple[str, int, str] = FIRST_MESSAGE,
        limit: int = 100,
    ) -> list[MailboxMessage]:
        """Messages that are kept (for one business key), in the order of key, number and id, after the given one."""
        if key is None:
            return await self._find(columns.mailbox_from, self.sql.list_mailbox, tenant, *after, limit)
        return await self._find(columns.mailbox_from, self.sql.list_mailbox_of, tenant, key, *after[1:], limit)

    @abstractmethod
    async def drop_mailbox(self, tenant: str, key: str, message_id: str | None = None) -> list[str]:
        """Drop what is kept for a business key, or one message of it; returns the ids. They stay until they are
        forgotten, so that a duplicate is not kept again."""

    @abstractmethod
    async def forget_mailbox(self, limit: int) -> int:
        """Delete rows of messages by key whose time has come, of every tenant; returns how many."""

    # -- workers ---------------------------------------------------------------------------------------------
    @abstractmethod
    async def add_worker(self, worker: Worker, entry: SealedEntry) -> Worker:
        """Insert a worker row; the store assigns its `no`. Raises Contended if its id exists."""

    @abstractmethod
    async def change_workers(self, changes: Sequence[WorkerChange]) -> list[bool]:
        """Write worker rows with their journal entries; False for a row that is no longer at `was`."""

    @abstractmethod
    async def beat(self, tenant: str, worker_no: int, incarnation: int) -> Worker | None:
        """Record a heartbeat of this incarnation and return the worker's row (None: unknown). It never changes the
        state, which the kernel decides."""

    @abstractmethod
    async def report_worker(self, tenant: str, worker_no: int, body: bytes) -> None:
        """Replace what a worker says about itself."""

    async def list_worker_reports(self, tenant: str, newest: int = 100) -> list[WorkerReport]:
        """The reports of all workers that are not shut down, and of the newest ones, by number."""
        found = await self._find(tuple, self.sql.list_worker_reports, tenant, newest)
        return sorted(map(_report, found), key=lambda report: report.worker)

    async def read_worker_reports(self, tenant: str, numbers: Collection[int]) -> list[WorkerReport]:
        """The reports of workers by their numbers; workers without one are left out."""
        return await self._find(_report, self.sql.read_worker_reports, tenant, self._numbers(numbers))

    async def list_workers(self, tenant: str, live_only: bool = False) -> list[Worker]:
        statement = self.sql.list_living_workers if live_only else self.sql.list_workers
        return await self._find(columns.worker_from, statement, tenant)

    async def name_workers(self, tenant: str, numbers: Collection[int]) -> dict[int, str]:
        """The ids of workers by their numbers; unknown numbers are left out."""
        return dict(await self._find(tuple, self.sql.name_workers, tenant, self._numbers(numbers)))

    async def find_worker(self, tenant: str, worker_id: str) -> Worker | None:
        return first(await self._read(columns.worker_from, self.sql.find_worker, tenant, worker_id))

    @abstractmethod
    async def silent_workers(self, silence: int, limit: int = 100) -> list[Worker]:
        """Workers not shut down whose last heartbeat is more than `silence` microseconds ago."""

    async def read_worker_journal(self, tenant: str, worker_id: str) -> list[SealedEntry]:
        return await self._read(columns.entry_from, self.sql.read_worker_journal, tenant, worker_id)

    # -- how a store with SQL reads --------------------------------------------------------------------------
    # A store without SQL overrides the reads instead, all of them.
    @property
    def _time(self) -> int:
        """The parameter from which a statement has its time."""
        raise NotImplementedError

    def _numbers(self, some: Collection[int]) -> object:
        """A parameter that holds several numbers."""
        raise NotImplementedError

    def _keys(self, some: Sequence[RunKey]) -> tuple[object, ...]:
        """The parameters that hold the keys of several runs."""
        raise NotImplementedError

    def _can_exist(self, run_id: str) -> bool:
        """Whether the database accepts this as the id of a run."""
        return True

    async def _read(self, convert: Convert[T], statement: str, *arguments: Any) -> list[T]:
        """Read with the planner's own choice of a plan."""
        raise NotImplementedError

    async def _find(self, convert: Convert[T], statement: str, *arguments: Any) -> list[T]:
        """Read work or runs with the one plan that is right for any size."""
        return await self._read(convert, statement, *arguments)

    async def _transact(
        self, statements: Sequence[Statement], check: Callable[[Rows], None] = lambda rows: None
    ) -> Rows:
        """Run statements in one transaction, as `Transact` says."""
        raise NotImplementedError

    async def _write_people(self, tenant: str, make: MakeChange) -> None:
        """Lock, read the clock and write, as `PeopleStore.write` says."""
        raise NotImplementedError

    async def _read_authorities(self, callers: Sequence[Caller]) -> dict[Caller, Authority]:
        raise NotImplementedError

    def _make_people(self, *part: Any, **more: Any) -> PeopleStore:
        return PeopleStore(*part, **more)

    def _make_parts(self) -> None:
        """Make the parts of the store, which send their statements through it."""
        part = (self.sql, self._find, self._transact, lambda: self._time, self._can_exist)
        self.people = self._make_people(*part, write=self._write_people, read_authorities=self._read_authorities)
        self.audit, self.quotas, self.triggers = AuditStore(*part), QuotaStore(*part), TriggerStore(*part)
        self.deliveries, self.children, self.jobs = DeliveryStore(*part), ChildStore(*part), JobStore(*part)
        self.conversations = ConversationStore(*part)
        self.slots, self.resources, self.limits = SlotStore(*part), ResourceStore(*part), LimitStore(*part)
        self.streams = StreamStore(*part)

    async def _read_of_run(
        self, table: str, convert: Convert[T], statement: str, tenant: str, run_id: str, *arguments: Any
    ) -> list[T]:
        """Rows of one run, each checked against its type; the first unreadable one raises Unreadable."""
        raise NotImplementedError


def _report(row: Sequence[Any]) -> WorkerReport:
    no, at, body = row
    return WorkerReport(no, at, body.encode())


def added_policy(rows: Sequence[Sequence[Any]]) -> StoredPolicy:
    """The revision that an insert answered with; nothing was added where another program took its number."""
    if not rows:
        raise Contended("another program has published a policy: read the newest revision again")
    return columns.policy_from(rows[0])


def added_setting(rows: Sequence[Sequence[Any]]) -> StoredSetting:
    """The same for a setting."""
    if not rows:
        raise Contended("another program has saved this setting: read the newest revision again")
    return columns.setting_from(rows[0])
