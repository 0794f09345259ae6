"""The model store: the stores' protocol on the model database, with one round trip for each statement.

It follows the PostgreSQL store statement by statement, so that the same interleavings are possible. Without faults it
passes the stores' contract suite; in a simulation each round trip may have faults.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import groupby
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.decide.decision import Involved
from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.errors import Broken, Contended, InvariantBroken, Unreadable
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
    is_unfit,
)
from stepkeep.kernel.machine.states import RunState, WorkerState
from stepkeep.kernel.plan import NO_QUEUE
from stepkeep.store.bounds import check_revision, check_version, check_worker
from stepkeep.store.change import (
    Basis,
    Decide,
    Lease,
    Loaded,
    More,
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
from stepkeep.store.notifications import TopicRecorder, notification_of, notify_after_commit
from stepkeep.store.positions import position_number
from stepkeep.store.protocol import NO_RESULTS, Store, Transaction
from stepkeep.store.reading import quarantined
from stepkeep.store.records import (
    FIRST_CHECKPOINT,
    FIRST_GATE,
    FIRST_MESSAGE,
    Backlog,
    Due,
    Evidence,
    FinishedFilter,
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
from stepkeep.store.rows import NO_RUN, AdoptionRow, MailboxMessage
from stepkeep_lab.simulation import queries
from stepkeep_lab.simulation.child_tables import ModelChildren
from stepkeep_lab.simulation.conversation_tables import ModelConversations
from stepkeep_lab.simulation.database import Database, Session, lock_order
from stepkeep_lab.simulation.delivery_tables import ModelDeliveries
from stepkeep_lab.simulation.job_tables import ModelJobs
from stepkeep_lab.simulation.limit_tables import ModelLimits
from stepkeep_lab.simulation.notifications import ModelNotifier
from stepkeep_lab.simulation.people_tables import ModelAudit, ModelPeople, ModelQuotas
from stepkeep_lab.simulation.resource_tables import ModelResources
from stepkeep_lab.simulation.slot_tables import ModelSlots
from stepkeep_lab.simulation.stream_tables import ModelStreams
from stepkeep_lab.simulation.trigger_tables import ModelTriggers

T = TypeVar("T")
Work = Callable[[], T]
Waiting = Callable[[], Coroutine[Any, Any, T]]

MAX_ROUNDS = 10_000
SCHEMA = ((1, "core"), (2, "message_numbers"), (3, "quarantine"))

_encode_spec = msgspec.json.Encoder(order="sorted").encode
_decode_spec = msgspec.json.Decoder(QueueSpec).decode


class Wire(Protocol):
    """The way to the database and back."""

    async def ask(self, statement: str, work: Work[T], session: Session | None = None) -> T:
        """Send a statement that the database answers at once."""
        ...

    async def wait(self, statement: str, work: Waiting[T], session: Session) -> T:
        """Send a statement that may have to wait for locks."""
        ...

    def abandon(self, session: Session) -> None:
        """The client is done with a session that it did not commit."""
        ...

    def notification(self) -> tuple[float, ...]:
        """How long the copies of one notification take to one listener (seconds); none where it is lost."""
        ...


class PlainWire:
    """Nothing goes wrong on it; others get their turn before and after each statement."""

    async def ask(self, statement: str, work: Work[T], session: Session | None = None) -> T:
        await asyncio.sleep(0)
        answer = work()
        await asyncio.sleep(0)
        return answer

    async def wait(self, statement: str, work: Waiting[T], session: Session) -> T:
        await asyncio.sleep(0)
        answer = await work()
        await asyncio.sleep(0)
        return answer

    def abandon(self, session: Session) -> None:
        session.abort()

    def notification(self) -> tuple[float, ...]:
        return (0.0,)


class StartAgain(Exception):
    """Runs came to be wanted that cannot be locked in order any more: roll back, and begin with all of these."""

    def __init__(self, wants: tuple[Want, ...]) -> None:
        self.wants = wants
        super().__init__("the runs wanted cannot be locked in id order in this transaction")


class _Change:
    """One change inside an open session: lock and load, decide, load more where asked, write."""

    def __init__(self, store: ModelStore, session: Session) -> None:
        self._store, self._session = store, session
        self._looked: set[RunKey] = set()
        self._last: tuple[str, str] = ("", "")
        self._holds_keys = False
        self.loaded = Loaded(now=0)

    async def run(self, wants: Sequence[Want], decide: Decide, propose: Propose | None) -> None:
        asked = tuple(wants)
        if asked or propose is None:
            await self._lock(asked, asked)
        shares = [] if propose is None else await self._lock_shares(propose)
        if asked:
            await self._ask("load", lambda: self._session.load(asked, self.loaded))
        if propose is not None and shares:
            sound = [key for key in shares if key not in self.loaded.barred]
            self.loaded.passed_over += len(shares) - len(sound)
            await self._ask("load", partial(self._session.load_claimable, propose, sound, self.loaded))
        for _ in range(MAX_ROUNDS):
            answer = decide(self.loaded)
            if isinstance(answer, Write):
                if any(getattr(answer, name) for name in Write.__struct_fields__):
                    await self._wait("write", partial(self._session.write, answer, self._store.clock_offset))
                return
            asked += answer.wants
            await self._more(answer, asked)
        raise Broken(f"a change asked for more {MAX_ROUNDS} times without coming to a decision")

    async def _ask(self, statement: str, work: Work[T]) -> T:
        return await self._store.wire.ask(statement, work, self._session)

    async def _wait(self, statement: str, work: Waiting[T]) -> T:
        return await self._store.wire.wait(statement, work, self._session)

    async def _lock(self, wants: Sequence[Want], asked: tuple[Want, ...]) -> None:
        keys = {want.key for want in wants if want.run_id != NO_RUN} - self._looked
        self._looked |= keys
        ordered = sorted(keys, key=lock_order)
        if ordered:
            if self._holds_keys or lock_order(ordered[0]) < self._last:
                raise StartAgain(asked)
            self._last = lock_order(ordered[-1])
        tenants = {one.tenant for want in wants for one in want.people if one not in self.loaded.authorities}
        runs, now = await self._wait("lock", lambda: self._session.lock_runs(ordered, tenants))
        self._keep(runs, now)

    async def _lock_shares(self, propose: Propose) -> list[RunKey]:
        offset = self._store.clock_offset
        found, runs, now = await self._wait("propose", lambda: self._session.lock_shares(propose, offset))
        new = {key: run for key, run in runs.items() if key not in self.loaded.runs}
        self._keep(new, now)
        self._looked |= new.keys()
        self._last = max([self._last, *map(lock_order, new)])
        return found

    def _keep(self, runs: Mapping[RunKey, Run], now: int) -> None:
        for key, run in runs.items():
            if self._store.database.tables.is_quarantined(key):
                self.loaded.barred[key] = quarantined(key[1])
                continue
            self.loaded.runs[key] = run
            self.loaded.steps[key] = {}
        self.loaded.now = now + self._store.clock_offset

    async def _more(self, more: More, asked: tuple[Want, ...]) -> None:
        if more.wants:
            await self._lock(more.wants, asked)
            await self._ask("load", lambda: self._session.load(more.wants, self.loaded))
        if more.definitions or more.idempotency or more.business_keys or more.policies or more.revisions or more.spend:
            await self._ask("look up", lambda: self._session.look_up(more, self.loaded))
        if more.above or more.costs:
            await self._ask("load above", lambda: self._session.load_above(more, self.loaded))
        if more.adoptions:
            await self._ask("load adoptions", lambda: self._session.load_adoptions(more.adoptions, self.loaded))
        if more.triggers:
            await self._wait("lock triggers", lambda: self._session.lock_triggers(more, self.loaded))
        if more.keys:
            if self._holds_keys:
                raise Broken("a change asked for business keys twice")
            self._holds_keys = True
            now = await self._wait("lock keys", lambda: self._session.lock_keys(more.keys))
            self.loaded.now = now + self._store.clock_offset
            await self._ask("load mailboxes", lambda: self._session.load_mailboxes(more.keys, self.loaded))
        if more.slots:
            self._holds_keys = True
            await self._wait("lock slots", lambda: self._session.lock_slots(more.slots))
            await self._ask("count slots", lambda: self._session.count_slots(more.slots, self.loaded))
        if more.resources:
            self._holds_keys = True
            await self._wait("lock resources", lambda: self._session.lock_resources(more.resources))
            await self._ask("read holds", lambda: self._session.read_holds(more.resources, self.loaded))
        if more.limits:
            self._holds_keys = True
            await self._wait("lock limits", lambda: self._session.lock_limits(more.limits))
            await self._ask("read limits", lambda: self._session.read_limits(more.limits, self.loaded))


class ModelTransaction:
    """A transaction that user code takes part in; its `connection` knows one statement, a note."""

    def __init__(self, store: ModelStore, session: Session) -> None:
        self._store, self._session = store, session

    @property
    def connection(self) -> ModelTransaction:
        return self

    @property
    def is_lost(self) -> bool:
        return not self._session.is_open

    def execute(self, text: str) -> None:
        self._session.note(text)

    async def change(self, wants: Sequence[Want], decide: Decide) -> None:
        try:
            await _Change(self._store, self._session).run(wants, decide, None)
        except StartAgain as again:
            raise Contended(f"{again}: run the whole again") from None


class ModelStore(Store):
    """One client's view of a model database, at the end of its own wire."""

    parallel_commits = 2
    prefers_optimistic_claims = True
    is_embedded = True

    def __init__(self, database: Database, wire: Wire | None = None, url: str = "model:") -> None:
        self.database, self.wire = database, wire or PlainWire()
        self.url = url
        self.clock_offset = 0
        self.notifier = ModelNotifier(database, self.wire.notification)
        self._tables = database.tables
        self.people = ModelPeople(database.tables.people, self.wire, self._write_people_now)
        self.audit = ModelAudit(database.tables.people.audit, database.tables.people.audit_heads, self.wire)
        self.quotas = ModelQuotas(database.tables.people.quotas, self.wire, self._is_live)
        tables = database.tables
        self.triggers = ModelTriggers(tables.triggers, tables.runs, tables.details, self.wire, self._clock)
        self.deliveries = ModelDeliveries(database, self.wire, self._clock)
        self.children = ModelChildren(database, self.wire, self._clock)
        self.slots = ModelSlots(database, self.wire)
        self.resources = ModelResources(database, self.wire)
        self.limits = ModelLimits(database, self.wire, self._clock)
        self.streams = ModelStreams(database, self.wire, self._clock)
        self.jobs = ModelJobs(database, self.wire, self._clock)
        self.conversations = ModelConversations(database, self.wire, self._clock)

    # -- life --------------------------------------------------------------------------------------------------------
    async def open(self) -> None:
        """There is nothing to open."""

    async def close(self) -> None:
        """There is nothing to close."""

    async def migrate(self) -> SchemaStatus:
        self.database.migrated = True
        return await self.status()

    async def status(self) -> SchemaStatus:
        applied = SCHEMA if self.database.migrated else ()
        return SchemaStatus(url=self.url, applied=applied, pending=SCHEMA[len(applied) :], size_bytes=1)

    async def now(self) -> int:
        return await self.wire.ask("now", self.database.clock) + self.clock_offset

    # -- change ------------------------------------------------------------------------------------------------------
    async def change(self, wants: Sequence[Want], decide: Decide, propose: Propose | None = None) -> None:
        recorder = TopicRecorder(decide)
        while True:
            try:
                async with self._session() as session:
                    await _Change(self, session).run(wants, recorder, propose)
            except StartAgain as again:
                wants = again.wants
            else:
                self.notifier.publish(recorder.notification)
                return

    async def write_if_unchanged(self, what: Write, known: Loaded, basis: Basis) -> int:
        session = self.database.begin()
        try:
            patient = basis is not Basis.READ
            now = await self.wire.wait(
                "record", lambda: session.record(what, self.clock_offset, known.now, patient=patient), session
            )
        finally:
            self.wire.abandon(session)
        self.notifier.publish(notification_of(what))
        return now

    async def _write_people_now(self, tenant: str, work: Callable[[int], None]) -> None:
        session = self.database.begin()
        try:
            await self.wire.wait("write people", lambda: session.write_people(tenant, work, self.clock_offset), session)
        finally:
            self.wire.abandon(session)

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Session]:
        session = self.database.begin()
        try:
            yield session
            if session.has_written:
                await self.wire.ask("commit", session.commit, session)
        finally:
            # After a commit this does nothing; after one whose answer was lost, the database knows better than we do.
            self.wire.abandon(session)

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        return notify_after_commit(self._transaction(), self.notifier)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Transaction]:
        async with self._session() as session:
            await self.wire.ask("begin", lambda: None, session)
            yield ModelTransaction(self, session)

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        if not leases:
            return []
        async with self._session() as session:
            return await self.wire.wait("renew", lambda: session.renew(leases, self.clock_offset), session)

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
        check_version(version)

        def work() -> StoredDefinition:
            there = queries.definition(self._tables, tenant, name, version)
            if there is not None:
                return there
            definition = StoredDefinition(
                tenant=tenant,
                id=len(self._tables.definitions) + 1,
                name=name,
                version=version,
                dialect=dialect,
                digest=digest,
                document=document,
                queues=tuple(self._queue(tenant, spec) for spec in specs),
                published_at=self.database.clock() + self.clock_offset,
                published_by=actor,
            )
            self._tables.definitions[definition.id] = definition
            return definition

        return await self.wire.ask("publish", work)

    def _queue(self, tenant: str, spec: QueueSpec | None) -> int:
        if spec is None:
            return NO_QUEUE
        queues = self._tables.queues
        return queues.setdefault((tenant, _encode_spec(spec).decode()), len(queues) + 1)

    async def publish_schema(self, tenant: str, ref: str, digest: str, document: bytes, actor: str) -> StoredSchema:
        new = StoredSchema(
            tenant=tenant,
            ref=ref,
            digest=digest,
            document=document,
            published_at=self._clock(),
            published_by=actor,
        )
        return await self.wire.ask("publish schema", lambda: self._tables.schemas.setdefault((tenant, ref), new))

    async def add_queue(self, tenant: str, spec: QueueSpec) -> None:
        await self.wire.ask("add queue", lambda: self._queue(tenant, spec))

    # -- find work ---------------------------------------------------------------------------------------------------
    async def find_due(self, limit: int) -> list[Due]:
        return await self._look("find due", lambda: queries.due(self._tables, self._clock(), limit))

    async def has_ready(self, queues: Collection[int]) -> bool:
        return await self._look("has ready", lambda: queries.has_ready(self._tables, self._clock(), queues))

    async def find_claimable(self, propose: Propose) -> Loaded:
        return await self._look("find claimable", lambda: queries.claimable(self._tables, self._clock(), propose))

    async def list_queues(self, tenant: str) -> list[tuple[int, QueueSpec]]:
        def work() -> list[tuple[int, QueueSpec]]:
            queues = self._tables.queues.items()
            return [(number, _decode_spec(text)) for (owner, text), number in queues if owner == tenant]

        return await self._look("list queues", work)

    # -- read --------------------------------------------------------------------------------------------------------
    async def read_definition(self, tenant: str, name: str, version: int | None) -> StoredDefinition | None:
        return await self._look("read", lambda: queries.definition(self._tables, tenant, name, version))

    async def read_definitions(self, ids: Sequence[int]) -> dict[int, StoredDefinition]:
        known = self._tables.definitions
        return await self._look("read", lambda: {one: known[one] for one in ids if one in known})

    async def read_schema(self, tenant: str, ref: str) -> StoredSchema | None:
        return await self._look("read", lambda: self._tables.schemas.get((tenant, ref)))

    async def list_schemas(self, tenant: str, after: str = "", limit: int = 1000) -> list[StoredSchema]:
        def look() -> list[StoredSchema]:
            rows = sorted(self._tables.schemas.items())
            return [row for (owner, ref), row in rows if owner == tenant and ref > after][:limit]

        return await self._look("read", look)

    async def publish_policy(
        self, tenant: str, revision: int, name: str, digest: str, document: bytes, actor: str
    ) -> StoredPolicy:
        check_revision(revision)

        def work() -> StoredPolicy:
            known = self._tables.policies.setdefault(tenant, [])
            if any(one.revision == revision for one in known):
                raise Contended("another program has published a policy: read the newest revision again")
            policy = StoredPolicy(
                tenant=tenant,
                revision=revision,
                name=name,
                digest=digest,
                document=document,
                published_at=self.database.clock() + self.clock_offset,
                published_by=actor,
            )
            known.insert(0, policy)
            return policy

        return await self.wire.ask("publish policy", work)

    async def read_policy(self, tenant: str, revision: int | None = None) -> StoredPolicy | None:
        return await self._look("read", lambda: next(iter(self._revisions(tenant, revision)), None))

    async def list_policies(self, tenant: str, limit: int = 1000) -> list[StoredPolicy]:
        return await self._look("read", lambda: self._revisions(tenant, None)[:limit])

    def _revisions(self, tenant: str, revision: int | None) -> list[StoredPolicy]:
        return [one for one in self._tables.policies.get(tenant, ()) if revision in (None, one.revision)]

    async def save_setting(
        self, tenant: str, kind: str, name: str, revision: int, document: bytes, actor: str
    ) -> StoredSetting:
        check_revision(revision)

        def work() -> StoredSetting:
            known = self._tables.settings.setdefault((tenant, kind, name), [])
            if any(one.revision == revision for one in known):
                raise Contended("another program has saved this setting: read the newest revision again")
            at = self.database.clock() + self.clock_offset
            setting = StoredSetting(
                tenant=tenant,
                kind=kind,
                name=name,
                revision=revision,
                document=document,
                saved_at=at,
                saved_by=actor,
            )
            known.append(setting)
            known.sort(key=lambda one: -one.revision)
            return setting

        return await self.wire.ask("save setting", work)

    async def read_setting(
        self, tenant: str, kind: str, name: str, revision: int | None = None
    ) -> StoredSetting | None:
        def look() -> StoredSetting | None:
            known = self._tables.settings.get((tenant, kind, name), ())
            return next((one for one in known if revision in (None, one.revision)), None)

        return await self._look("read", look)

    async def list_settings(self, tenant: str, kind: str, after: str = "", limit: int = 1000) -> list[StoredSetting]:
        def look() -> list[StoredSetting]:
            rows = sorted((key, known[0]) for key, known in self._tables.settings.items() if known)
            return [one for key, one in rows if key[:2] == (tenant, kind) and key[2] > after][:limit]

        return await self._look("read", look)

    async def list_definitions(self, tenant: str) -> list[StoredDefinition]:
        return await self._look("read", lambda: queries.definitions(self._tables, tenant))

    async def has_other_tenants(self, tenant: str) -> bool:
        rows = self._tables.definitions
        return await self._look("read", lambda: any(one.tenant != tenant for one in rows.values()))

    async def read_run(self, tenant: str, run_id: str) -> RunRecord | None:
        return await self._look("read", lambda: queries.record(self._tables, (tenant, run_id)))

    async def read_states(
        self, keys: Sequence[RunKey], results: Mapping[RunKey, Sequence[int]] = NO_RESULTS
    ) -> dict[RunKey, RunStatus]:
        rows = self._tables.runs

        def read() -> dict[RunKey, RunStatus]:
            found = {key: _status(rows[key]) for key in keys if key in rows}
            for key in found.keys() & results.keys():
                if rows[key].state is RunState.SUCCEEDED:
                    there = [no for no in results[key] if no in self._tables.steps.get(key, {})]
                    found[key].outputs.update({no: self._tables.output_of(key, no) for no in there})
            return found

        return await self._look("read", read)

    async def read_steps(self, tenant: str, run_id: str) -> list[Step]:
        rows = self._tables.steps
        return await self._look("read", lambda: [row for _, row in sorted(rows.get((tenant, run_id), {}).items())])

    async def read_attempts(self, tenant: str, run_id: str) -> list[Attempt]:
        rows = self._tables.attempts
        return await self._look("read", lambda: [row for _, row in sorted(rows.get((tenant, run_id), {}).items())])

    async def read_messages(self, tenant: str, run_id: str) -> list[Message]:
        rows = self._tables.messages
        return await self._look(
            "read", lambda: sorted(rows.get((tenant, run_id), {}).values(), key=lambda message: message.number)
        )

    async def read_journal(self, tenant: str, run_id: str, after: int = 0, limit: int = 1000) -> list[SealedEntry]:
        def work() -> list[SealedEntry]:
            entries = self._tables.journal.get((tenant, run_id), {})
            return [entries[seq] for seq in sorted(entries) if seq > after][:limit]

        return await self._look("read", work)

    async def read_tail(self, tenant: str, after: str, limit: int = 1000) -> list[TailEntry]:
        first = position_number(after)

        def work() -> list[TailEntry]:
            tables = self._tables
            ordered = sorted((place, key) for key, place in tables.positions.items() if key[0] == tenant)
            found = [(place, tables.journal.get(key[:2], {}).get(key[2])) for place, key in ordered if place > first]
            return [TailEntry(position=str(place), entry=entry) for place, entry in found if entry is not None][:limit]

        return await self._look("read", work)

    async def tail_position(self) -> str:
        return await self._look("read", lambda: str(len(self._tables.positions)))

    async def read_adoptions(self, tenant: str, run_ids: Sequence[str]) -> list[AdoptionRow]:
        wanted = [(tenant, run_id) for run_id in run_ids]
        return await self.wire.ask(
            "read adoptions", lambda: [row for key in wanted for row in self._tables.adopted_from(key)]
        )

    async def find_reruns(self, tenant: str, run_id: str, limit: int = 100) -> list[str]:
        def find() -> list[str]:
            found = [key[1] for key, one in self._tables.details.items() if key[0] == tenant and one.rerun_of == run_id]
            return sorted(found, reverse=True)[:limit]

        return await self.wire.ask("find reruns", find)

    async def read_gates(self, tenant: str, run_id: str) -> list[Gate]:
        rows = self._tables.gates
        return await self._look("read", lambda: [row for _, row in sorted(rows.get((tenant, run_id), {}).items())])

    async def read_votes(self, tenant: str, run_id: str) -> list[Vote]:
        return await self._look("read", lambda: self._tables.votes_of((tenant, run_id)))

    async def read_checkpoints(
        self, tenant: str, run_id: str, no: int, after: tuple[int, str] = FIRST_CHECKPOINT, limit: int = 100
    ) -> list[Checkpoint]:
        def look() -> list[Checkpoint]:
            mine = [one for one in self._tables.checkpoints_of((tenant, run_id)) if one.no == no]
            return [one for one in mine if (one.seq, one.name) > after][:limit]

        return await self._look("read", look)

    async def newest_checkpoints(self, tenant: str, run_id: str, limit: int = 100) -> list[Checkpoint]:
        def look() -> list[Checkpoint]:
            rows = self._tables.checkpoints_of((tenant, run_id))
            return [one for _, mine in groupby(rows, lambda one: one.no) for one in list(mine)[-limit:]]

        return await self._look("read", look)

    async def add_signed_heads(self, signed: Sequence[SignedHead]) -> None:
        def work() -> None:
            for one in signed:
                self._tables.signed_heads.setdefault((one.tenant, one.run_id), {}).setdefault(one.key_id, one)

        await self.wire.ask("sign", work)

    async def read_signed_heads(self, tenant: str, run_id: str) -> list[SignedHead]:
        rows = self._tables.signed_heads
        return await self._look("read", lambda: [one for _, one in sorted(rows.get((tenant, run_id), {}).items())])

    async def find_unsigned(self, tenant: str, key_id: str, after: str, limit: int) -> list[UnsignedHead]:
        def look() -> list[UnsignedHead]:
            signed = self._tables.signed_heads
            runs = [run for key, run in sorted(self._tables.runs.items()) if key[0] == tenant and key[1] > after]
            ended = [run for run in runs if run.ended_at is not None and key_id not in signed.get((tenant, run.id), {})]
            return [UnsignedHead(run.id, run.seq, run.head) for run in ended[:limit]]

        return await self._look("read", look)

    async def find_unfit(self, tenant: str, after: str, limit: int) -> list[UnfitStep]:
        def look() -> list[UnfitStep]:
            runs = sorted(key for key in self._tables.steps if key[0] == tenant and key[1] > after)
            rows = [row for key in runs for _, row in sorted(self._tables.steps[key].items()) if is_unfit(row)]
            return [UnfitStep(row.run_id, row.no, row.queue, row.note.tried) for row in rows[:limit] if row.note]

        return await self._look("find unfit", look)

    async def find_oldest_live(self, tenant: str) -> str | None:
        def look() -> str | None:
            runs = self._tables.runs.items()
            return min((key[1] for key, run in runs if key[0] == tenant and run.ended_at is None), default=None)

        return await self._look("read", look)

    async def list_open_gates(self, tenant: str, after: tuple[str, int] = FIRST_GATE, limit: int = 100) -> list[Gate]:
        def work() -> list[Gate]:
            rows = [gate for key, mine in self._tables.gates.items() if key[0] == tenant for gate in mine.values()]
            found = [gate for gate in rows if gate.closed_at is None and (gate.run_id, gate.no) > after]
            return sorted(found, key=lambda gate: (gate.run_id, gate.no))[:limit]

        return await self._look("read", work)

    async def read_outbox(self, tenant: str, run_id: str) -> list[OutboxEntry]:
        rows = self._tables.outbox
        return await self._look("read", lambda: [row for _, row in sorted(rows.get((tenant, run_id), {}).items())])

    async def read_outputs(self, wants: Sequence[tuple[str, str, int]]) -> dict[tuple[str, str, int], bytes | None]:
        return await self._look(
            "read",
            lambda: {(tenant, run, no): self._tables.output_of((tenant, run), no) for tenant, run, no in wants},
        )

    async def read_details(self, keys: Sequence[RunKey]) -> dict[RunKey, Details]:
        known = self._tables.details
        return await self._look("read", lambda: {key: known[key] for key in keys if key in known})

    async def read_involved(self, keys: Sequence[RunKey]) -> dict[RunKey, Involved]:
        tables = self._tables
        return await self._look(
            "read", lambda: {key: Involved(tables.requesters(key), tables.executors(key)) for key in keys}
        )

    async def list_runs(self, which: RunFilter, unreadable: list[Unreadable] | None = None) -> list[RunRecord]:
        return await self._look("read", lambda: queries.runs(self._tables, which))

    async def count_runs(self, tenant: str) -> Mapping[RunState, int]:
        return await self._look("read", lambda: queries.counts(self._tables, tenant))

    async def measure_use(self, tenant: str, kind: str, most: int) -> tuple[int, int]:
        return await self._look("read", lambda: queries.use(self._tables, tenant, kind, most))

    async def stuck_runs(self, limit: int = 100) -> list[RunKey]:
        return await self._look("read", lambda: queries.stuck(self._tables)[:limit])

    # -- diagnosis ---------------------------------------------------------------------------------------------------
    async def tally(self, tenant: str, *, after: str, late_by: int, limit: int) -> RunCounts:
        return await self._look("read", lambda: queries.tally(self._tables, tenant, after, late_by, limit))

    async def read_backlog(self, queues: Collection[int], limit: int) -> list[Backlog]:
        return await self._look("read", lambda: queries.backlog(self._tables, queues, limit))

    async def read_recent_runs(self, tenant: str, *, after: str, limit: int) -> list[RecentRun]:
        return await self._look("read", lambda: queries.recent_runs(self._tables, tenant, after, limit))

    async def read_recent_attempts(self, tenant: str, runs: Sequence[str], *, limit: int) -> list[RecentAttempt]:
        return await self._look("read", lambda: queries.recent_attempts(self._tables, tenant, runs)[:limit])

    async def read_failures(self, tenant: str, *, after: str, limit: int) -> list[RecentFailure]:
        return await self._look("read", lambda: queries.failures(self._tables, tenant, after)[:limit])

    async def search_runs(
        self, which: RunFilter, words: Words, most: int, unreadable: list[Unreadable] | None = None
    ) -> Searched:
        return await self._look("read", lambda: queries.searched(self._tables, which, words, most))

    async def count_unfinished(self, tenant: str, most: int) -> int:
        return len(await self.sample_live(tenant, share=256, limit=most))

    async def count_newest(self, tenant: str, oldest: str, most: int) -> int:
        which = RunFilter(tenant=tenant, oldest=oldest, limit=most)
        return await self._look("read", lambda: len(queries.runs(self._tables, which)))

    async def sample_live(self, tenant: str, *, share: int, limit: int) -> list[RecentRun]:
        return await self._look("read", lambda: queries.sample(self._tables, tenant, None, share, limit))

    async def sample_recent(self, tenant: str, *, after: str, share: int, limit: int) -> list[RecentRun]:
        return await self._look("read", lambda: queries.sample(self._tables, tenant, after, share, limit))

    async def read_payload(self, tenant: str, run_id: str, digest: str) -> bytes | None:
        return await self._look("read", lambda: self._tables.payloads.get((tenant, run_id), {}).get(digest))

    async def add_evidence(self, evidence: Sequence[Evidence]) -> None:
        def work() -> None:
            for one in evidence:
                self._tables.evidence.setdefault((one.tenant, one.run_id), {}).setdefault((one.no, one.fence), one)

        await self.wire.ask("add evidence", work)

    async def read_evidence(self, tenant: str, run_id: str) -> list[Evidence]:
        rows = self._tables.evidence
        return await self._look("read", lambda: [one for _, one in sorted(rows.get((tenant, run_id), {}).items())])

    # -- quarantine --------------------------------------------------------------------------------------------------
    async def quarantine(self, tenant: str, run_id: str, actor: str, reason: str) -> Quarantine | None:
        session = self.database.begin()
        try:
            return await self.wire.wait(
                "quarantine", lambda: session.quarantine(tenant, run_id, actor, reason, self.clock_offset), session
            )
        finally:
            self.wire.abandon(session)

    async def release(self, tenant: str, run_id: str, actor: str, reason: str) -> Quarantine | None:
        def work() -> Quarantine | None:
            return self._tables.release((tenant, run_id), self._clock(), actor, reason)

        return await self.wire.ask("release", work)

    async def list_quarantined(self, tenant: str) -> list[Quarantine]:
        return [one for one in await self.read_quarantines(tenant) if one.released_at is None]

    async def read_quarantines(self, tenant: str, limit: int = 1000) -> list[Quarantine]:
        def look() -> list[Quarantine]:
            return [one for one in reversed(self._tables.quarantine) if one.tenant == tenant][:limit]

        return await self._look("read", look)

    # -- retention ---------------------------------------------------------------------------------------------------
    async def find_finished(self, which: FinishedFilter) -> list[str]:
        return await self._look("find finished", lambda: queries.finished(self._tables, which))

    async def find_newest_finished(self, tenant: str, after_it: int, workflow: str | None = None) -> str | None:
        def work() -> str | None:
            every = FinishedFilter(tenant=tenant, workflow=workflow, limit=len(self._tables.runs))
            found = queries.finished(self._tables, every, also_kept=True)
            return found[-1 - after_it] if after_it < len(found) else None

        return await self._look("find finished", work)

    async def read_whole(
        self,
        tenant: str,
        run_ids: Sequence[str],
        unreadable: list[Unreadable] | None = None,
        *,
        with_messages: bool = True,
    ) -> list[WholeRun]:
        found = await self._look("read", lambda: queries.whole_runs(self._tables, tenant, run_ids))
        bare = {"messages": (), "outbox": (), "gates": (), "votes": (), "checkpoints": ()}
        return found if with_messages else [replace(whole, **bare) for whole in found]

    async def delete_runs(self, tenant: str, run_ids: Sequence[str]) -> list[str]:
        async with self._session() as session:
            return await self.wire.ask("delete runs", lambda: session.delete_runs(tenant, run_ids), session)

    async def forget_keys(self, tenant: str, before: str, limit: int) -> int:
        return await self.wire.ask("forget keys", lambda: self._tables.forget_keys(tenant, before, limit))

    # -- quotas ------------------------------------------------------------------------------------------------------
    def _is_live(self, tenant: str, run_id: str) -> bool | None:
        run = self._tables.runs.get((tenant, run_id))
        return None if run is None else run.ended_at is None

    # -- mailbox -----------------------------------------------------------------------------------------------------
    async def list_mailbox(
        self,
        tenant: str,
        key: str | None = None,
        after: tuple[str, int, str] = FIRST_MESSAGE,
        limit: int = 100,
    ) -> list[MailboxMessage]:
        return await self._look("list mailbox", lambda: queries.mailbox(self._tables, tenant, key, after)[:limit])

    async def drop_mailbox(self, tenant: str, key: str, message_id: str | None = None) -> list[str]:
        session = self.database.begin()
        try:
            return await self.wire.wait(
                "drop mailbox", lambda: session.drop_mailbox(tenant, key, message_id, self.clock_offset), session
            )
        finally:
            self.wire.abandon(session)

    async def forget_mailbox(self, limit: int) -> int:
        return await self.wire.ask("forget mailbox", lambda: self._tables.forget_mailbox(self._clock(), limit))

    # -- workers -----------------------------------------------------------------------------------------------------
    async def add_worker(self, worker: Worker, entry: SealedEntry) -> Worker:
        check_worker(worker, entry)

        def work() -> Worker:
            workers = self._tables.workers
            if any((one.tenant, one.id) == (worker.tenant, worker.id) for one in workers.values()):
                raise Contended(f"there is a worker {worker.id} already")
            added = workers[len(workers) + 1] = replace(worker, no=len(workers) + 1)
            self._tables.worker_journal[worker.tenant, worker.id] = [entry]
            self._tables.deliveries.moved_by_worker(entry, self._clock())
            return added

        return await self.wire.ask("add worker", work)

    async def change_workers(self, changes: Sequence[WorkerChange]) -> list[bool]:
        for change in changes:
            check_worker(change.worker, change.entry)
        return await self.wire.ask("change workers", lambda: [self._change_worker(change) for change in changes])

    def _change_worker(self, change: WorkerChange) -> bool:
        new = change.worker
        for no, row in self._tables.workers.items():
            if (row.tenant, row.id, row.seq) == (new.tenant, new.id, change.was):
                if row.owner != new.owner:
                    raise InvariantBroken("a worker keeps its owner: register another worker")
                self._tables.workers[no] = replace(new, no=no, heard_at=max(row.heard_at, new.heard_at))
                if change.entry is not None:
                    self._tables.worker_journal[row.tenant, row.id].append(change.entry)
                    self._tables.deliveries.moved_by_worker(change.entry, self._clock())
                return True
        return False

    async def beat(self, tenant: str, worker_no: int, incarnation: int) -> Worker | None:
        def work() -> Worker | None:
            row = self._tables.workers.get(worker_no)
            if row is None or row.tenant != tenant:
                return None
            if row.incarnation == incarnation and row.state is not WorkerState.SHUTDOWN:
                row = self._tables.workers[worker_no] = replace(row, heard_at=max(row.heard_at, self._clock()))
            return row

        return await self.wire.ask("beat", work)

    async def report_worker(self, tenant: str, worker_no: int, body: bytes) -> None:
        def work() -> None:
            self._tables.reports[tenant, worker_no] = WorkerReport(worker_no, self._clock(), body)

        await self.wire.ask("report worker", work)

    async def list_worker_reports(self, tenant: str, newest: int = 100) -> list[WorkerReport]:
        return await self._look("read", lambda: queries.reports(self._tables, tenant, newest))

    async def read_worker_reports(self, tenant: str, numbers: Collection[int]) -> list[WorkerReport]:
        reports = self._tables.reports
        return await self._look("read", lambda: [reports[tenant, no] for no in numbers if (tenant, no) in reports])

    async def list_workers(self, tenant: str, live_only: bool = False) -> list[Worker]:
        return await self._look("read", lambda: queries.workers(self._tables, tenant, live_only))

    async def name_workers(self, tenant: str, numbers: Collection[int]) -> dict[int, str]:
        rows = self._tables.workers
        return await self._look(
            "read", lambda: {no: rows[no].id for no in numbers if no in rows and rows[no].tenant == tenant}
        )

    async def find_worker(self, tenant: str, worker_id: str) -> Worker | None:
        rows = self._tables.workers
        return await self._look(
            "read", lambda: next((row for row in rows.values() if (row.tenant, row.id) == (tenant, worker_id)), None)
        )

    async def silent_workers(self, silence: int, limit: int = 100) -> list[Worker]:
        return await self._look("find silent", lambda: queries.silent(self._tables, self._clock() - silence)[:limit])

    async def read_worker_journal(self, tenant: str, worker_id: str) -> list[SealedEntry]:
        return await self._look("read", lambda: list(self._tables.worker_journal.get((tenant, worker_id), ())))

    # -- the way in --------------------------------------------------------------------------------------------------
    def _clock(self) -> int:
        return self.database.clock() + self.clock_offset

    async def _look(self, statement: str, work: Callable[[], T]) -> T:
        return await self.wire.ask(statement, work)


def _status(run: Run) -> RunStatus:
    return RunStatus(state=run.state, definition_id=run.definition_id, error=run.error, seq=run.seq)
