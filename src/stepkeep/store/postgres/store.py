"""The store on PostgreSQL: the protocol for any number of processes on any number of machines.

Changes use connections with pinned plans, reads others with the planner's choice, user code a third kind. It decides
nothing: the statements are in `sql/`, loading is in `load.py`, writing in `write.py`. Operations and workers use it
through the protocol.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self, TypeVar

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.decide.decision import Involved
from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.errors import ConnectionLost, StoreUnavailable, Unreadable
from stepkeep.kernel.machine.journal import SealedEntry
from stepkeep.kernel.machine.rows import Details, Step, Worker
from stepkeep.kernel.people.authority import Authority, Caller
from stepkeep.kernel.plan import NO_QUEUE
from stepkeep.store import columns
from stepkeep.store.bounds import check_revision, check_version, check_worker, check_write
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
from stepkeep.store.deliveries import worker_cursor, worker_target
from stepkeep.store.listing import TAKES, arguments, finder, is_read_in_order
from stepkeep.store.notifications import TopicRecorder, notification_of, notify_after_commit
from stepkeep.store.part import Rows, Statement
from stepkeep.store.people import PeopleStore
from stepkeep.store.positions import read_position
from stepkeep.store.postgres import retention, schema
from stepkeep.store.postgres.arrays import ids, names, numbers
from stepkeep.store.postgres.change import StartAgain, change
from stepkeep.store.postgres.confined import PeopleOfRole, Shared, is_confined, set_tenant
from stepkeep.store.postgres.connections import (
    ENGINE,
    SEARCH_PATH,
    Connection,
    Pool,
    commit,
    execute,
    fetch,
    read_options,
)
from stepkeep.store.postgres.load import ALWAYS, SQL, claimable_from, involved_from, is_run_id, load_outputs, lock_order
from stepkeep.store.postgres.namespace import DEFAULT, Namespace
from stepkeep.store.postgres.notifications import PostgresNotifier
from stepkeep.store.postgres.people import load_authorities, write_people
from stepkeep.store.postgres.transaction import open_transaction
from stepkeep.store.postgres.write import record
from stepkeep.store.principals import MakeChange
from stepkeep.store.protocol import NO_RESULTS, Store, Transaction, added_policy, added_setting, wanted_outputs
from stepkeep.store.reading import Convert, first, only, read_row, tally_from
from stepkeep.store.records import (
    Evidence,
    Maintenance,
    Quarantine,
    RunCounts,
    RunFilter,
    RunRecord,
    RunStatus,
    SchemaStatus,
    Searched,
    SignedHead,
    TailEntry,
    WholeRun,
    Words,
    WorkerChange,
)

T = TypeVar("T")

READERS = 4

CLAIM_LOCK_TIMEOUT = "5ms"
"""The lock timeout of optimistic claims."""

_encode_spec = msgspec.json.Encoder(order="sorted").encode


class PostgresStore(Store):
    """Runs in a PostgreSQL database. `open` it, `migrate` it once, `close` it.

    Its pools find tables in one schema alone. Connections of user code keep the search path of their role. A role under
    row-level security acts for `tenant` alone; `for_tenant` gives views of the same pools for other tenants.
    """

    notifier: PostgresNotifier
    sql = SQL
    parallel_commits = 3
    divides_batches = True
    prefers_optimistic_claims = True
    is_embedded = False

    def __init__(self, dsn: str) -> None:
        options = read_options(dsn)
        self.url = options.shown
        self._shared = Shared()
        self.tenant: str | None = None
        self._enter = ""
        self.namespace = options.namespace or Namespace(DEFAULT)
        self._searches = options.namespace is None
        found_in = {SEARCH_PATH: self.namespace.search_path}
        self._engine = Pool(options, options.pool_size, ENGINE | found_in)
        self._claim_pool = Pool(options, 1, ENGINE | found_in | {"lock_timeout": CLAIM_LOCK_TIMEOUT})
        self._readers = Pool(options, READERS, found_in)
        self._users = Pool(options, options.pool_size, {}, for_users=True)
        self._keeps_statements = options.statement_cache_size > 0
        self.notifier = PostgresNotifier(self._readers, self.url, self.namespace.channel)
        self._make_parts()

    def _make_people(self, *part: Any, **more: Any) -> PeopleStore:
        return PeopleOfRole(self._shared, lambda tenant: self.for_tenant(tenant)._find, *part, **more)

    @property
    def clock_offset(self) -> int:
        return self._shared.clock_offset

    @clock_offset.setter
    def clock_offset(self, microseconds: int) -> None:
        self._shared.clock_offset = microseconds

    # -- tenants of a confined role --------------------------------------------------------------------------
    @property
    def is_confined(self) -> bool:
        return self._shared.is_confined

    def confine_to(self, tenant: str) -> None:
        if self._shared.is_confined:
            self.tenant, self._enter = tenant, set_tenant(tenant)

    def for_tenant(self, tenant: str) -> Self:
        if not self._shared.is_confined or tenant == self.tenant:
            return self
        view: Self = self._shared.view(tenant, lambda: self._view(tenant))
        return view

    def _view(self, tenant: str) -> Self:
        view = copy.copy(self)
        view.confine_to(tenant)
        view._make_parts()
        return view

    @property
    def entering(self) -> str:
        """The statement by which a confined role names its tenant; empty for other roles."""
        return self._enter

    def _opening(self, begin: str) -> str:
        """The statement that begins a transaction; a confined role names its tenant in the same round trip."""
        return f"{begin}; {self._enter}" if self._enter else begin

    # -- life ------------------------------------------------------------------------------------------------
    async def open(self) -> None:
        """Connect to the server once; refuses a database that a newer Stepkeep has migrated."""
        if not self._shared.is_open:
            self._shared.is_open = True
            try:
                if not (await self.status()).applied and self._searches:
                    await self._locate()
                async with self._looking() as connection:
                    self._shared.is_confined = await is_confined(connection)
            except BaseException:
                await self.close()
                raise

    async def _locate(self) -> None:
        """Use the tables of an older version, if there are any, where that made them."""
        async with self._looking() as connection:
            found = await schema.locate(connection, self.namespace, self.url)
        if found != self.namespace:
            self.namespace, self.notifier.channel = found, found.channel
            for pool in (self._engine, self._claim_pool, self._readers):
                await pool.search_in(found)
            await self.status()

    async def close(self) -> None:
        await self.notifier.close()
        self._shared.is_open = False
        for pool in (self._engine, self._claim_pool, self._readers, self._users):
            await pool.close()

    async def migrate(self) -> SchemaStatus:
        found = await self.status()
        async with self._live(self._readers).connection() as connection:
            if found.pending:
                await schema.migrate(connection, self.namespace, found)
            await schema.maintain(connection, self.namespace)
        return await self.status()

    async def maintain(self) -> Maintenance:
        async with self._live(self._readers).connection() as connection:
            return await schema.maintain(connection, self.namespace)

    async def status(self) -> SchemaStatus:
        async with self._looking() as connection:
            return await schema.status(connection, self.namespace, self.url)

    async def now(self) -> int:
        [now] = await self._read(lambda row: int(row[0]), SQL.read_clock, self.clock_offset)
        return now

    # -- change ----------------------------------------------------------------------------------------------
    async def change(self, wants: Sequence[Want], decide: Decide, propose: Propose | None = None) -> None:
        recorder = TopicRecorder(decide)
        while True:
            try:
                async with self._transaction() as connection:
                    await change(connection, self.clock_offset, wants, recorder, propose)
            except StartAgain as again:
                wants = again.wants
            else:
                self.notifier.publish(recorder.notification)
                return

    async def write_if_unchanged(self, what: Write, known: Loaded, basis: Basis) -> int:
        check_write(what)
        notification = notification_of(what)
        sent = self.notifier.take_due(notification)
        # One statement for one tenant is a transaction by itself; anything else needs an explicit one.
        tenants = {change.run.tenant for change in what.runs} | {new.run.tenant for new in what.new_runs}
        in_one_statement = len(tenants) == 1 and what.is_plain
        pool = self._claim_pool if basis is Basis.READ else self._engine
        async with self._looking(pool) if in_one_statement else self._transaction(pool) as connection:
            now = await record(connection, what, known, self.clock_offset, self.notifier.notice(sent))
        self.notifier.publish(notification, sent)
        return now

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        opened = open_transaction(self._live(self._users), lambda: self.clock_offset, self.namespace, self._enter)
        return notify_after_commit(opened, self.notifier)

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        ordered = sorted(
            (lease for lease in leases if is_run_id(lease.run_id)),
            key=lambda lease: lock_order((lease.tenant, lease.run_id)),
        )
        if not ordered:
            return []
        async with self._transaction() as connection:
            found = await fetch(
                connection,
                SQL.renew_leases,
                names([lease.tenant for lease in ordered]),
                ids([lease.run_id for lease in ordered]),
                numbers([lease.no for lease in ordered]),
                numbers([lease.fence for lease in ordered]),
                numbers([lease.lease for lease in ordered]),
                self.clock_offset,
            )
        states = columns.RUN_STATES
        return [
            # The lease of a run whose state cannot be read counts as not renewed.
            Renewed(run_id, no, fence, states[state])
            for run_id, no, fence, state in found
            if state in states
        ]

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
        texts = [None if spec is None else _encode_spec(spec).decode() for spec in specs]
        there = await self.read_definition(tenant, name, version)
        if there is not None:
            return there
        async with self._transaction() as connection:
            asked = [text for text in dict.fromkeys(texts) if text is not None]
            await execute(connection, SQL.insert_queues, tenant, asked)
            numbered = {text: number for number, text in await fetch(connection, SQL.list_queues, tenant)}
            queues = columns.json_text([NO_QUEUE if text is None else numbered[text] for text in texts])
            given = (tenant, name, version, dialect, digest, document, queues, self.clock_offset, actor)
            await execute(connection, SQL.insert_definition, *given)
            [row] = await fetch(connection, SQL.read_definition, tenant, name, version)
            return columns.definition_from(row)

    async def publish_schema(self, tenant: str, ref: str, digest: str, document: bytes, actor: str) -> StoredSchema:
        async with self._transaction() as connection:
            await execute(connection, SQL.insert_schema, tenant, ref, digest, document, self.clock_offset, actor)
            [row] = await fetch(connection, SQL.read_schema, tenant, ref)
            return columns.schema_from(row)

    async def publish_policy(
        self, tenant: str, revision: int, name: str, digest: str, document: bytes, actor: str
    ) -> StoredPolicy:
        check_revision(revision)
        async with self._transaction() as connection:
            given = (tenant, revision, name, digest, document, self.clock_offset, actor)
            return added_policy(await fetch(connection, SQL.insert_policy, *given))

    async def save_setting(
        self, tenant: str, kind: str, name: str, revision: int, document: bytes, actor: str
    ) -> StoredSetting:
        check_revision(revision)
        async with self._transaction() as connection:
            given = (tenant, kind, name, revision, document, self.clock_offset, actor)
            return added_setting(await fetch(connection, SQL.insert_setting, *given))

    async def add_queue(self, tenant: str, spec: QueueSpec) -> None:
        async with self._transaction() as connection:
            await execute(connection, SQL.insert_queues, tenant, [_encode_spec(spec).decode()])

    # -- find work -------------------------------------------------------------------------------------------
    async def find_claimable(self, propose: Propose) -> Loaded:
        since = ALWAYS if propose.after is None else propose.after
        asked = (numbers(tuple(dict.fromkeys(propose.queues))), propose.limit, since, self.clock_offset)
        return claimable_from(await self._find(tuple, SQL.find_claimable, *asked))

    # -- read ------------------------------------------------------------------------------------------------
    async def read_states(
        self, keys: Sequence[RunKey], results: Mapping[RunKey, Sequence[int]] = NO_RESULTS
    ) -> dict[RunKey, RunStatus]:
        asked = [one for one in wanted_outputs(keys, results) if is_run_id(one[1])]
        tenants, run_ids, nos = [one[0] for one in asked], ids([one[1] for one in asked]), [one[2] for one in asked]
        return columns.states_from(await self._read(tuple, SQL.read_states, tenants, run_ids, numbers(nos)))

    async def read_tail(self, tenant: str, after: str, limit: int = 1000) -> list[TailEntry]:
        xact, run_id, seq = read_position(after)

        def entry(row: Sequence[Any]) -> TailEntry:
            sealed, number, overtakes = columns.entry_from(row[:6]), row[6], row[7]
            position = f"{number}.{sealed.run_id}.{sealed.seq}"
            return TailEntry(position=position, entry=sealed, overtakes=overtakes)

        return await self._read(entry, SQL.read_tail, tenant, xact, run_id, seq, limit)

    async def tail_position(self) -> str:
        [position] = await self._read(lambda row: str(row[0]), SQL.tail_position)
        return position

    async def read_steps(self, tenant: str, run_id: str) -> list[Step]:
        def step(row: Sequence[Any]) -> Step:
            return read_row("steps", columns.step_from, (tenant, run_id, *row), (tenant, run_id))

        return await self._read(step, SQL.read_steps, tenant, run_id) if is_run_id(run_id) else []

    async def read_outputs(self, wants: Sequence[tuple[str, str, int]]) -> dict[tuple[str, str, int], bytes | None]:
        outputs: dict[tuple[str, str, int], bytes | None] = dict.fromkeys(wants)
        if asked := [want for want in outputs if is_run_id(want[1])]:
            async with self._looking() as connection:
                for place, note, output in await load_outputs(connection, asked):
                    tenant, run_id, no = asked[place - 1]
                    row = (tenant, run_id, no, note, output)
                    outputs[asked[place - 1]] = read_row(
                        "steps", lambda row: columns.output_from(row[3], row[4]), row, (tenant, run_id)
                    )
        return outputs

    async def read_details(self, keys: Sequence[RunKey]) -> dict[RunKey, Details]:
        asked = [key for key in dict.fromkeys(keys) if is_run_id(key[1])]
        tenants, run_ids = [key[0] for key in asked], ids([key[1] for key in asked])
        found = await self._read(
            lambda row: read_row("run_details", columns.details_from, row, (row[0], row[1])),
            SQL.read_details,
            tenants,
            run_ids,
        )
        return {(details.tenant, details.run_id): details for details in found}

    async def read_involved(self, keys: Sequence[RunKey]) -> dict[RunKey, Involved]:
        asked = [key for key in dict.fromkeys(keys) if is_run_id(key[1])]
        which = names([key[0] for key in asked]), ids([key[1] for key in asked])
        requesters = await self._read(tuple, SQL.load_requesters, *which)
        return involved_from(asked, requesters, await self._read(tuple, SQL.load_executors, *which))

    async def list_runs(self, which: RunFilter, unreadable: list[Unreadable] | None = None) -> list[RunRecord]:
        found = await self._find_ids(which)
        read = await self._read(tuple, SQL.read_runs, which.tenant, ids(found)) if found else []
        return retention.records_from(read, unreadable)

    async def _find_ids(self, which: RunFilter) -> list[str]:
        if which.before is not None and not is_run_id(which.before):
            return []
        name = finder(which)
        own_run = which.correlation_id if which.correlation_id and is_run_id(which.correlation_id) else None
        return await self._find(only, getattr(SQL, name), *arguments(which, own_run)[: TAKES[name]])

    # -- diagnosis -------------------------------------------------------------------------------------------
    async def tally(self, tenant: str, *, after: str, late_by: int, limit: int) -> RunCounts:
        live = await self._find(tuple, SQL.count_live, tenant, limit)
        recent = await self._find(tuple, SQL.count_recent, tenant, after, limit)
        troubled = await self._find(tuple, SQL.count_troubled, tenant, after, limit)
        late = await self._find(tuple, SQL.count_late, tenant, late_by, limit)
        return tally_from(live, recent, troubled, late)

    async def search_runs(
        self, which: RunFilter, words: Words, most: int, unreadable: list[Unreadable] | None = None
    ) -> Searched:
        wanted, part = (words.error, words.text, [label.decode() for label in words.labels]), replace(which, limit=most)
        if is_read_in_order(which, words):
            [(looked_at, last)] = await self._find(tuple, SQL.find_last_of, *arguments(part, None)[:4])
            down_to = arguments(replace(part, oldest=last), None)[:4]
            found = await self._find(only, SQL.find_runs_by_words, *down_to, *wanted[1:]) if looked_at else []
        else:
            found = listed = await self._find_ids(part)
            looked_at, last = len(listed), listed[-1] if listed else None
            if listed and words != Words():
                found = await self._find(only, SQL.find_worded, which.tenant, ids(listed), *wanted, words.roots)
        shown = found[: which.limit]
        read = await self._read(tuple, SQL.read_runs, which.tenant, ids(shown)) if shown else []
        records = retention.records_from(read, unreadable)
        return Searched(records=records, total=len(found), looked_at=looked_at, last=last)

    async def add_signed_heads(self, signed: Sequence[SignedHead]) -> None:
        async with self._transaction() as connection:
            for one in signed:
                await execute(connection, SQL.insert_signed_head, *msgspec.structs.astuple(one))

    async def add_evidence(self, evidence: Sequence[Evidence]) -> None:
        async with self._transaction() as connection:
            for one in evidence:
                given = (one.tenant, one.run_id, one.no, one.fence, one.body.decode())
                await execute(connection, SQL.insert_evidence, *given)

    # -- quarantine ------------------------------------------------------------------------------------------
    async def quarantine(self, tenant: str, run_id: str, actor: str, reason: str) -> Quarantine | None:
        return await self._note(SQL.insert_quarantine, tenant, run_id, actor, reason)

    async def release(self, tenant: str, run_id: str, actor: str, reason: str) -> Quarantine | None:
        return await self._note(SQL.release_quarantine, tenant, run_id, actor, reason)

    async def _note(self, statement: str, tenant: str, run_id: str, actor: str, reason: str) -> Quarantine | None:
        if not is_run_id(run_id):
            return None
        async with self._transaction() as connection:
            found = await fetch(connection, statement, tenant, run_id, self.clock_offset, actor, reason)
        return first([Quarantine(*row) for row in found])

    # -- retention -------------------------------------------------------------------------------------------
    async def read_whole(
        self,
        tenant: str,
        run_ids: Sequence[str],
        unreadable: list[Unreadable] | None = None,
        *,
        with_messages: bool = True,
    ) -> list[WholeRun]:
        asked = [run_id for run_id in dict.fromkeys(run_ids) if is_run_id(run_id)]
        if not asked:
            return []
        try:
            return await self._read_whole(tenant, asked, unreadable, with_messages)
        except ConnectionLost:
            # As in `_look`: reading again does no harm.
            return await self._read_whole(tenant, asked, unreadable, with_messages)

    async def _read_whole(
        self, tenant: str, run_ids: list[str], unreadable: list[Unreadable] | None, with_messages: bool
    ) -> list[WholeRun]:
        pool = self._live(self._readers)
        async with pool.connection() as connection:
            await execute(connection, self._opening(pool.snapshot))
            found = await retention.read_whole(connection, tenant, run_ids, unreadable, with_messages)
            await commit(connection)
            return found

    async def delete_runs(self, tenant: str, run_ids: Sequence[str]) -> list[str]:
        async with self._transaction() as connection:
            return await retention.delete_runs(connection, tenant, [one for one in run_ids if is_run_id(one)])

    async def forget_keys(self, tenant: str, before: str, limit: int) -> int:
        async with self._transaction() as connection:
            tag = await execute(connection, SQL.forget_keys, tenant, before, limit)
        return int(tag.removeprefix("DELETE "))

    # -- mailbox ---------------------------------------------------------------------------------------------
    async def drop_mailbox(self, tenant: str, key: str, message_id: str | None = None) -> list[str]:
        async with self._transaction() as connection:
            dropped = await fetch(connection, SQL.drop_mailbox, tenant, key, message_id, self.clock_offset)
        return sorted(map(only, dropped))

    async def forget_mailbox(self, limit: int) -> int:
        async with self._transaction() as connection:
            tag = await execute(connection, SQL.forget_mailbox, self.clock_offset, limit)
        return int(tag.removeprefix("DELETE "))

    # -- workers ---------------------------------------------------------------------------------------------
    async def add_worker(self, worker: Worker, entry: SealedEntry) -> Worker:
        check_worker(worker, entry)
        async with self._transaction() as connection:
            [(no,)] = await fetch(connection, SQL.insert_worker, *columns.worker_values(worker))
            await self._extend_worker(connection, entry)
        return replace(worker, no=no)

    async def change_workers(self, changes: Sequence[WorkerChange]) -> list[bool]:
        for one in changes:
            check_worker(one.worker, one.entry)
        found = dict.fromkeys(range(len(changes)), False)
        async with self._transaction() as connection:
            # In id order, so that two of these cannot deadlock.
            for place in sorted(found, key=lambda place: (changes[place].worker.tenant, changes[place].worker.id)):
                one = changes[place]
                written = columns.worker_values(one.worker)
                found[place] = await execute(connection, SQL.update_worker, *written, one.was) == "UPDATE 1"
                if found[place] and one.entry is not None:
                    await self._extend_worker(connection, one.entry)
        return list(found.values())

    async def _extend_worker(self, connection: Connection, entry: SealedEntry) -> None:
        """Continue the journal of a worker, and advance the cursors of sinks that take its transitions."""
        await execute(connection, SQL.insert_worker_journal, *_fields(entry))
        worker = entry.run_id
        about = (worker_cursor(worker), entry.seq, self.clock_offset, worker_target(worker))
        await execute(connection, SQL.emit_worker_deliveries, entry.tenant, *about)

    async def beat(self, tenant: str, worker_no: int, incarnation: int) -> Worker | None:
        arguments = (tenant, worker_no, incarnation, self.clock_offset)
        beaten = await self._read(columns.worker_from, SQL.beat_worker, *arguments)
        return first(beaten or await self._read(columns.worker_from, SQL.read_worker, tenant, worker_no))

    async def report_worker(self, tenant: str, worker_no: int, body: bytes) -> None:
        async with self._transaction() as connection:
            await execute(connection, SQL.report_worker, tenant, worker_no, self.clock_offset, body.decode())

    async def silent_workers(self, silence: int, limit: int = 100) -> list[Worker]:
        found = await self._find(columns.worker_or_none, SQL.silent_workers, self.clock_offset, silence, limit)
        return [worker for worker in found if worker is not None]

    # -- people ----------------------------------------------------------------------------------------------
    async def _write_people(self, tenant: str, make: MakeChange) -> None:
        async with self._transaction() as connection:
            await write_people(connection, tenant, make, self.clock_offset)

    async def _read_authorities(self, callers: Sequence[Caller]) -> dict[Caller, Authority]:
        pool = self._live(self._readers)
        async with pool.connection() as connection:
            await execute(connection, self._opening(pool.snapshot))
            found = await load_authorities(connection, callers)
            await commit(connection)
            return found

    async def _transact(
        self, statements: Sequence[Statement], check: Callable[[Rows], None] = lambda rows: None
    ) -> Rows:
        async with self._transaction() as connection:
            found = [await fetch(connection, statement, *given) for statement, given in statements]
            check(found)
            return found

    # -- the way in ------------------------------------------------------------------------------------------
    def _live(self, pool: Pool) -> Pool:
        if not self._shared.is_open:
            raise StoreUnavailable(f"{self.url} is not open")
        return pool

    @asynccontextmanager
    async def _transaction(self, pool: Pool | None = None) -> AsyncIterator[Connection]:
        """A transaction of the engine itself; after an exception the pool rolls it back."""
        pool = self._live(pool or self._engine)
        async with pool.connection() as connection:
            await execute(connection, self._opening(pool.opening))
            yield connection
            await commit(connection)

    @asynccontextmanager
    async def _looking(self, pool: Pool | None = None) -> AsyncIterator[Connection]:
        """A connection for reads. Without prepared statements a pooler may be in between: it sends both parts of a
        statement to the same server only inside a transaction."""
        pool = self._live(pool or self._readers)
        async with pool.connection() as connection:
            if self._keeps_statements and not pool.local and not self._enter:
                yield connection
            else:
                await execute(connection, self._opening(pool.opening))
                yield connection
                await commit(connection)

    @property
    def _time(self) -> int:
        return self.clock_offset

    def _numbers(self, some: Collection[int]) -> str:
        return numbers(list(some))

    def _keys(self, some: Sequence[RunKey]) -> tuple[object, ...]:
        return names([key[0] for key in some]), ids([key[1] for key in some])

    def _can_exist(self, run_id: str) -> bool:
        return is_run_id(run_id) is not None

    async def _read(self, convert: Convert[T], statement: str, *arguments: Any) -> list[T]:
        """Read with the planner's own choice of a plan."""
        return await self._look(self._readers, convert, statement, *arguments)

    async def _find(self, convert: Convert[T], statement: str, *arguments: Any) -> list[T]:
        """Read work or runs with the one plan that is right for any size. With a limit of unknown size, the planner
        would rather sort the whole history than read a little of it in index order."""
        return await self._look(self._engine, convert, statement, *arguments)

    async def _look(self, pool: Pool, convert: Convert[T], statement: str, *arguments: Any) -> list[T]:
        try:
            return await self._look_once(pool, convert, statement, *arguments)
        except ConnectionLost:
            # The server ended an idle connection: reading again does no harm.
            return await self._look_once(pool, convert, statement, *arguments)

    async def _look_once(self, pool: Pool, convert: Convert[T], statement: str, *arguments: Any) -> list[T]:
        async with self._looking(pool) as connection:
            return [convert(row) for row in await fetch(connection, statement, *arguments)]

    async def _read_of_run(
        self,
        table: str,
        convert: Convert[T],
        statement: str,
        tenant: str,
        run_id: str,
        *arguments: Any,
    ) -> list[T]:
        """Rows of one run, each checked against its type; the first unreadable one raises Unreadable. An invalid run
        id finds no run."""
        if not is_run_id(run_id):
            return []

        def checked(row: Sequence[Any]) -> T:
            return read_row(table, convert, row, (tenant, run_id))

        return await self._read(checked, statement, tenant, run_id, *arguments)


def _fields(entry: SealedEntry) -> tuple[Any, ...]:
    return msgspec.structs.astuple(entry)
