"""The embedded store: the protocol on one SQLite file, for any number of processes on one machine.

Writes go to the one writer thread, reads to the readers. It decides nothing: the statements are in `sql/`, loading and
writing of a change in `change.py`. Operations and workers use it through the protocol.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec
from msgspec.structs import replace

from stepkeep.kernel.decide.decision import Involved
from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.errors import StoreUnavailable, Unreadable
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
from stepkeep.store.columns import json_text
from stepkeep.store.listing import TAKES, arguments, finder, is_read_in_order
from stepkeep.store.notifications import TopicRecorder, notification_of, notify_after_commit
from stepkeep.store.part import Rows, Statement
from stepkeep.store.positions import position_number
from stepkeep.store.principals import MakeChange
from stepkeep.store.protocol import NO_RESULTS, Store, Transaction, added_policy, added_setting, wanted_outputs
from stepkeep.store.reading import Convert, first, only, read_row, tally_from
from stepkeep.store.reading import unreadable as unreadable_row
from stepkeep.store.records import (
    Evidence,
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
from stepkeep.store.sqlite import deliveries, forks, retention, schema
from stepkeep.store.sqlite.change import SQL, change, load_involved, load_proposals, record
from stepkeep.store.sqlite.clock import Clock, machine_time_us
from stepkeep.store.sqlite.file import DatabaseFile
from stepkeep.store.sqlite.notifications import SqliteNotifier
from stepkeep.store.sqlite.people import load_authorities, write_people
from stepkeep.store.sqlite.readers import Readers
from stepkeep.store.sqlite.rows import Row
from stepkeep.store.sqlite.transaction import open_transaction
from stepkeep.store.sqlite.turns import Turns
from stepkeep.store.sqlite.writer import Work, Writer

T = TypeVar("T")

_encode_spec = msgspec.json.Encoder(order="sorted").encode


class SqliteStore(Store):
    """Runs in one SQLite file. `open` it, `migrate` it once, `close` it.

    `read_us` is the source of its time, in microseconds since 1970; tests set another one.
    """

    notifier: SqliteNotifier
    sql = SQL
    parallel_commits = 2
    prefers_optimistic_claims = False
    is_embedded = True

    def __init__(self, path: str | os.PathLike[str], *, read_us: Callable[[], int] = machine_time_us) -> None:
        self._file = DatabaseFile(path)
        self._path = self._file.path
        self.url = f"sqlite:///{Path(path)}"
        self._clock = Clock(read_us)
        self._turns = Turns()
        self.notifier = SqliteNotifier(self._path)
        self._make_parts()
        self._writer: Writer | None = None
        self._readers: Readers | None = None
        self._pid = 0

    @property
    def clock_offset(self) -> int:
        return self._clock.offset

    @clock_offset.setter
    def clock_offset(self, offset: int) -> None:
        self._clock.offset = offset

    # -- life ------------------------------------------------------------------------------------------------
    async def open(self) -> None:
        """Open the file (created if missing); refuses one that a newer Stepkeep has migrated."""
        if self._writer is not None:
            self._live()
            return
        forks.note_open(self._path)
        try:
            self._pid, self._turns = os.getpid(), Turns()
            self._writer = await Writer.start(self._file, self._turns)
            self._readers = Readers(self._file)
            await self.status()
        except BaseException:
            await self._end()
            raise

    async def close(self) -> None:
        if self._writer is not None and self._pid == os.getpid():
            await self._end()

    async def _end(self) -> None:
        await self.notifier.close()
        writer, readers, self._writer, self._readers = self._writer, self._readers, None, None
        if readers is not None:
            await readers.close()
        if writer is not None:
            await writer.close()
        forks.note_closed(self._path)

    async def migrate(self) -> SchemaStatus:
        await self._write(lambda c: schema.migrate(c, self._path, self._clock.now))
        return await self.status()

    async def status(self) -> SchemaStatus:
        return await self._look(lambda c: schema.status(c, self._path, self.url))

    async def now(self) -> int:
        return self._clock.now()

    # -- change ----------------------------------------------------------------------------------------------
    async def change(self, wants: Sequence[Want], decide: Decide, propose: Propose | None = None) -> None:
        recorder = TopicRecorder(decide)
        await self._write(lambda c: change(c, self._clock.now, wants, recorder, propose))
        self.notifier.publish(recorder.notification)

    async def write_if_unchanged(self, what: Write, known: Loaded, basis: Basis) -> int:
        check_write(what)

        def work(c: apsw.Connection) -> int:
            now = self._clock.now()
            record(c, now, what, known)
            return now

        now = await self._write(work)
        self.notifier.publish(notification_of(what))
        return now

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        self._live()
        return notify_after_commit(open_transaction(self._file, self._turns, self._clock.now), self.notifier)

    @property
    def path(self) -> Path:
        """The database file."""
        return self._path

    def now_us(self) -> int:
        """The time of this store, in microseconds."""
        return self._clock.now()

    async def renew(self, leases: Sequence[Lease]) -> list[Renewed]:
        def work(c: apsw.Connection) -> list[Renewed]:
            now = self._clock.now()
            claims = [(one.tenant, one.run_id, one.no, one.fence, now, one.lease) for one in leases]
            found: list[Row] = c.executemany(SQL.renew_leases, claims).fetchall()
            states = columns.RUN_STATES
            return [
                # The lease of a run whose state cannot be read counts as not renewed.
                Renewed(run_id, no, fence, states[state])
                for run_id, no, fence, state in found
                if state in states
            ]

        return await self._write(work) if leases else []

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

        def work(c: apsw.Connection) -> StoredDefinition:
            there = c.execute(SQL.read_definition, (tenant, name, version)).fetchone()
            if there is not None:
                return columns.definition_from(there)
            c.executemany(SQL.insert_queues, [(tenant, text) for text in dict.fromkeys(texts) if text is not None])
            numbers = {text: number for number, text in c.execute(SQL.list_queues, (tenant,))}
            queues = json_text([NO_QUEUE if text is None else numbers[text] for text in texts])
            given = (tenant, name, version, dialect, digest, document, queues, self._clock.now(), actor)
            c.execute(SQL.insert_definition, given)
            return columns.definition_from(c.execute(SQL.read_definition, (tenant, name, version)).fetchall()[0])

        return await self._write(work)

    async def publish_schema(self, tenant: str, ref: str, digest: str, document: bytes, actor: str) -> StoredSchema:
        def work(c: apsw.Connection) -> StoredSchema:
            c.execute(SQL.insert_schema, (tenant, ref, digest, document, self._clock.now(), actor))
            return columns.schema_from(c.execute(SQL.read_schema, (tenant, ref)).fetchall()[0])

        return await self._write(work)

    async def publish_policy(
        self, tenant: str, revision: int, name: str, digest: str, document: bytes, actor: str
    ) -> StoredPolicy:
        check_revision(revision)

        def work(c: apsw.Connection) -> StoredPolicy:
            given = (tenant, revision, name, digest, document, self._clock.now(), actor)
            return added_policy(c.execute(SQL.insert_policy, given).fetchall())

        return await self._write(work)

    async def save_setting(
        self, tenant: str, kind: str, name: str, revision: int, document: bytes, actor: str
    ) -> StoredSetting:
        check_revision(revision)

        def work(c: apsw.Connection) -> StoredSetting:
            given = (tenant, kind, name, revision, document, self._clock.now(), actor)
            return added_setting(c.execute(SQL.insert_setting, given).fetchall())

        return await self._write(work)

    async def add_queue(self, tenant: str, spec: QueueSpec) -> None:
        def work(c: apsw.Connection) -> None:
            c.execute(SQL.insert_queues, (tenant, _encode_spec(spec).decode()))

        await self._write(work)

    # -- find work -------------------------------------------------------------------------------------------
    async def find_claimable(self, propose: Propose) -> Loaded:
        def look(c: apsw.Connection) -> Loaded:
            loaded = Loaded(now=self._clock.now())
            with c:
                load_proposals(c, propose, loaded)
            return loaded

        return await self._look(look)

    # -- read ------------------------------------------------------------------------------------------------
    async def read_states(
        self, keys: Sequence[RunKey], results: Mapping[RunKey, Sequence[int]] = NO_RESULTS
    ) -> dict[RunKey, RunStatus]:
        asked = json_text(wanted_outputs(keys, results))
        return columns.states_from(await self._read(tuple, SQL.read_states, asked))

    async def read_tail(self, tenant: str, after: str, limit: int = 1000) -> list[TailEntry]:
        def entry(row: Sequence[Any]) -> TailEntry:
            return TailEntry(position=str(row[6]), entry=columns.entry_from(row[:6]))

        return await self._read(entry, SQL.read_tail, tenant, position_number(after), limit)

    async def tail_position(self) -> str:
        [position] = await self._read(lambda row: str(row[0]), SQL.tail_position)
        return position

    async def read_steps(self, tenant: str, run_id: str) -> list[Step]:
        return await self._read_of_run("steps", columns.step_from, SQL.read_steps, tenant, run_id)

    async def read_outputs(self, wants: Sequence[tuple[str, str, int]]) -> dict[tuple[str, str, int], bytes | None]:
        found = await self._read(tuple, SQL.load_outputs, json_text(wants))
        outputs: dict[tuple[str, str, int], bytes | None] = dict.fromkeys(wants)
        for row in found:
            key = (row[0], row[1])
            outputs[(*key, row[2])] = read_row("steps", lambda row: columns.output_from(row[3], row[4]), row, key)
        return outputs

    async def read_details(self, keys: Sequence[RunKey]) -> dict[RunKey, Details]:
        found = await self._read(
            lambda row: read_row("run_details", columns.details_from, row, (row[0], row[1])),
            SQL.read_details,
            json_text(keys),
        )
        return {(details.tenant, details.run_id): details for details in found}

    async def read_involved(self, keys: Sequence[RunKey]) -> dict[RunKey, Involved]:
        return await self._look(lambda c: load_involved(c, keys))

    async def list_runs(self, which: RunFilter, unreadable: list[Unreadable] | None = None) -> list[RunRecord]:
        return await self._look(lambda c: retention.read_records(c, which.tenant, _find(c, which), unreadable))

    # -- diagnosis -------------------------------------------------------------------------------------------
    async def tally(self, tenant: str, *, after: str, late_by: int, limit: int) -> RunCounts:
        def look(c: apsw.Connection) -> RunCounts:
            with c:
                live = c.execute(SQL.count_live, (tenant, limit)).fetchall()
                recent = c.execute(SQL.count_recent, (tenant, after, limit)).fetchall()
                troubled = c.execute(SQL.count_troubled, (tenant, after, limit)).fetchall()
                late = c.execute(SQL.count_late, (tenant, late_by, limit)).fetchall()
            return tally_from(live, recent, troubled, late)

        return await self._look(look)

    async def search_runs(
        self, which: RunFilter, words: Words, most: int, unreadable: list[Unreadable] | None = None
    ) -> Searched:
        wanted = (words.error, words.text, json_text([one.decode() for one in words.labels]))
        part = replace(which, limit=most)

        def look(c: apsw.Connection) -> Searched:
            if is_read_in_order(which, words):
                counted: list[Any] = c.execute(SQL.find_last_of, arguments(part, None)[:4]).fetchall()
                looked_at, last = counted[0]
                down_to = arguments(replace(part, oldest=last), None)[:4]
                worded = c.execute(SQL.find_runs_by_words, (*down_to, *wanted[1:])) if looked_at else ()
                found = [str(one) for (one,) in worded]
            else:
                found = listed = _find(c, part)
                looked_at, last = len(listed), listed[-1] if listed else None
                if listed and words != Words():
                    asked = (which.tenant, json_text(listed), *wanted, words.roots)
                    found = [one for (one,) in c.execute(SQL.find_worded, asked)]
            records = retention.read_records(c, which.tenant, found[: which.limit], unreadable)
            return Searched(records=records, total=len(found), looked_at=looked_at, last=last)

        return await self._look(look)

    async def add_signed_heads(self, signed: Sequence[SignedHead]) -> None:
        given = [msgspec.structs.astuple(one) for one in signed]
        await self._write(lambda c: c.executemany(SQL.insert_signed_head, given).fetchall())

    async def add_evidence(self, evidence: Sequence[Evidence]) -> None:
        given = [(one.tenant, one.run_id, one.no, one.fence, one.body.decode()) for one in evidence]
        await self._write(lambda c: c.executemany(SQL.insert_evidence, given).fetchall())

    # -- quarantine ------------------------------------------------------------------------------------------
    async def quarantine(self, tenant: str, run_id: str, actor: str, reason: str) -> Quarantine | None:
        return await self._note(SQL.insert_quarantine, tenant, run_id, actor, reason)

    async def release(self, tenant: str, run_id: str, actor: str, reason: str) -> Quarantine | None:
        return await self._note(SQL.release_quarantine, tenant, run_id, actor, reason)

    async def _note(self, statement: str, tenant: str, run_id: str, actor: str, reason: str) -> Quarantine | None:
        def work(c: apsw.Connection) -> Quarantine | None:
            found: list[Row] = c.execute(statement, (tenant, run_id, self._clock.now(), actor, reason)).fetchall()
            return first([Quarantine(*row) for row in found])

        return await self._write(work)

    # -- retention -------------------------------------------------------------------------------------------
    async def read_whole(
        self,
        tenant: str,
        run_ids: Sequence[str],
        unreadable: list[Unreadable] | None = None,
        *,
        with_messages: bool = True,
    ) -> list[WholeRun]:
        asked = list(dict.fromkeys(run_ids))

        def look(c: apsw.Connection) -> list[WholeRun]:
            found: list[WholeRun] = []
            with c:  # one read transaction, so that all statements see the same snapshot
                found += retention.read_whole(c, tenant, asked, unreadable, with_messages)
            return found

        return await self._look(look)

    async def delete_runs(self, tenant: str, run_ids: Sequence[str]) -> list[str]:
        return await self._write(lambda c: retention.delete_runs(c, tenant, run_ids))

    async def forget_keys(self, tenant: str, before: str, limit: int) -> int:
        return await self._write(lambda c: retention.forget_keys(c, tenant, before, limit))

    # -- mailbox ---------------------------------------------------------------------------------------------
    async def drop_mailbox(self, tenant: str, key: str, message_id: str | None = None) -> list[str]:
        def work(c: apsw.Connection) -> list[str]:
            found: list[Row] = c.execute(SQL.drop_mailbox, (tenant, key, message_id, self._clock.now())).fetchall()
            return sorted(map(only, found))

        return await self._write(work)

    async def forget_mailbox(self, limit: int) -> int:
        def work(c: apsw.Connection) -> int:
            c.execute(SQL.forget_mailbox, (self._clock.now(), limit))
            return c.changes()

        return await self._write(work)

    # -- workers ---------------------------------------------------------------------------------------------
    async def add_worker(self, worker: Worker, entry: SealedEntry) -> Worker:
        check_worker(worker, entry)

        def work(c: apsw.Connection) -> Worker:
            no = c.execute(SQL.insert_worker, columns.worker_values(worker)).get
            deliveries.extend_worker(c, entry, self._clock.now())
            return replace(worker, no=no)

        return await self._write(work)

    async def change_workers(self, changes: Sequence[WorkerChange]) -> list[bool]:
        for one in changes:
            check_worker(one.worker, one.entry)

        def work(c: apsw.Connection) -> list[bool]:
            found = []
            for one in changes:
                c.execute(SQL.update_worker, (*columns.worker_values(one.worker), one.was))
                found.append(c.changes() == 1)
                if found[-1] and one.entry is not None:
                    deliveries.extend_worker(c, one.entry, self._clock.now())
            return found

        return await self._write(work)

    async def beat(self, tenant: str, worker_no: int, incarnation: int) -> Worker | None:
        def work(c: apsw.Connection) -> Worker | None:
            beaten = c.execute(SQL.beat_worker, (tenant, worker_no, incarnation, self._clock.now())).fetchall()
            found = beaten or c.execute(SQL.read_worker, (tenant, worker_no)).fetchall()
            return first([columns.worker_from(row) for row in found])

        return await self._write(work)

    async def report_worker(self, tenant: str, worker_no: int, body: bytes) -> None:
        given = (tenant, worker_no, self._clock.now(), body.decode())
        await self._write(lambda c: c.execute(SQL.report_worker, given).fetchall())

    async def silent_workers(self, silence: int, limit: int = 100) -> list[Worker]:
        found = await self._read(columns.worker_or_none, SQL.silent_workers, self._clock.now() - silence, limit)
        return [worker for worker in found if worker is not None]

    # -- people ----------------------------------------------------------------------------------------------
    async def _write_people(self, tenant: str, make: MakeChange) -> None:
        await self._write(lambda c: write_people(c, self._clock.now, make))

    async def _read_authorities(self, callers: Sequence[Caller]) -> dict[Caller, Authority]:
        def look(c: apsw.Connection) -> dict[Caller, Authority]:
            found: dict[Caller, Authority] = {}
            with c:  # one read transaction, so that all statements see the same snapshot
                found |= load_authorities(c, callers)
            return found

        return await self._look(look)

    async def _transact(
        self, statements: Sequence[Statement], check: Callable[[Rows], None] = lambda rows: None
    ) -> Rows:
        def work(c: apsw.Connection) -> Rows:
            found: Rows = [c.execute(statement, given).fetchall() for statement, given in statements]
            check(found)
            return found

        return await self._write(work)

    # -- the way in ------------------------------------------------------------------------------------------
    def _live(self) -> tuple[Writer, Readers]:
        if self._writer is None or self._readers is None:
            raise StoreUnavailable(f"{self.url} is not open")
        if self._pid != os.getpid():
            raise StoreUnavailable(
                f"{self.url} was opened in another process, before a fork. Open a store in the process that uses it."
            )
        return self._writer, self._readers

    async def _write(self, work: Work[T]) -> T:
        return await self._live()[0].run(work)

    async def _look(self, look: Callable[[apsw.Connection], T]) -> T:
        return await self._live()[1].run(look)

    @property
    def _time(self) -> int:
        return self._clock.now()

    def _numbers(self, some: Collection[int]) -> str:
        return json_text(list(some))

    def _keys(self, some: Sequence[RunKey]) -> tuple[object, ...]:
        return (columns.json_text(list(some)),)

    async def _read(self, convert: Convert[T], statement: str, *arguments: Any) -> list[T]:
        # Fetch all rows before converting any: a half-read statement after an error keeps its snapshot open.
        return await self._look(lambda c: [convert(row) for row in c.execute(statement, arguments).fetchall()])

    async def _read_of_run(
        self, table: str, convert: Convert[T], statement: str, tenant: str, run_id: str, *arguments: Any
    ) -> list[T]:
        key = (tenant, run_id)

        def look(c: apsw.Connection) -> list[T]:
            try:
                found = c.execute(statement, (tenant, run_id, *arguments)).fetchall()
            except UnicodeDecodeError as problem:
                raise unreadable_row(table, key, (), problem) from problem
            return [read_row(table, convert, row, key) for row in found]

        return await self._look(look)


def _find(connection: apsw.Connection, which: RunFilter) -> list[str]:
    """The ids of the runs that a filter selects."""
    name = finder(which)
    tenant, before, limit, oldest, states, *rest = arguments(which, which.correlation_id)[: TAKES[name]]
    asked = (tenant, before, limit, oldest, None if states is None else json_text(states), *rest)
    return [run_id for (run_id,) in connection.execute(getattr(SQL, name), asked)]
