"""The reads that are the same on both stores: one statement of the same name, and the same conversion of its rows.

A store gives its statements and how it sends one. Reads that need several statements, locks or other parameters are in
the store itself. Operations and workers call these methods through the protocol.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import msgspec

from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.errors import Contended
from stepkeep.kernel.journal import SealedEntry
from stepkeep.kernel.rows import Attempt, Gate, Message, OutboxEntry, Vote, Worker
from stepkeep.kernel.states import RunState
from stepkeep.store import columns
from stepkeep.store.adoption_rows import AdoptionRow
from stepkeep.store.change import RunKey, StoredDefinition, StoredPolicy, StoredSchema, StoredSetting
from stepkeep.store.mailbox import MailboxMessage
from stepkeep.store.reading import read_queues
from stepkeep.store.records import (
    FIRST_GATE,
    FIRST_MESSAGE,
    LAST_ID,
    Backlog,
    Due,
    Evidence,
    FinishedFilter,
    Quarantine,
    RecentAttempt,
    RecentRun,
    RunRecord,
    SignedHead,
    UnsignedHead,
    WorkerReport,
)

T = TypeVar("T")
Convert = Callable[[Sequence[Any]], T]

_decode_spec = msgspec.json.Decoder(QueueSpec).decode


class SharedReads(ABC):
    """Reads of a store. All methods have the meaning that the protocol gives them."""

    sql: SimpleNamespace

    @property
    @abstractmethod
    def _time(self) -> int:
        """The parameter from which a statement has its time."""

    @abstractmethod
    def _numbers(self, some: Collection[int]) -> object:
        """A parameter that holds several numbers."""

    @abstractmethod
    def _keys(self, some: Sequence[RunKey]) -> tuple[object, ...]:
        """The parameters that hold the keys of several runs."""

    @abstractmethod
    def _can_exist(self, run_id: str) -> bool:
        """Whether the database accepts this as the id of a run."""

    @abstractmethod
    async def _read(self, convert: Convert[T], statement: str, *arguments: Any) -> list[T]:
        """Read with the planner's own choice of a plan."""

    @abstractmethod
    async def _find(self, convert: Convert[T], statement: str, *arguments: Any) -> list[T]:
        """Read work or runs with the one plan that is right for any size."""

    @abstractmethod
    async def _read_of_run(
        self, table: str, convert: Convert[T], statement: str, tenant: str, run_id: str, *arguments: Any
    ) -> list[T]:
        """Rows of one run, each checked against its type; the first unreadable one raises Unreadable."""

    # -- work and definitions --------------------------------------------------------------------------------
    async def find_due(self, limit: int) -> list[Due]:
        return await self._find(lambda row: Due(*row), self.sql.find_due, self._time, limit)

    async def has_ready(self, queues: Collection[int]) -> bool:
        [found] = await self._find(lambda row: bool(row[0]), self.sql.has_ready, self._numbers(queues), self._time)
        return found

    async def list_queues(self, tenant: str) -> list[tuple[int, QueueSpec]]:
        return read_queues(_decode_spec, await self._read(tuple, self.sql.list_queues, tenant))

    async def count_unfinished(self, tenant: str, most: int) -> int:
        [count] = await self._find(lambda row: int(row[0]), self.sql.count_unfinished, tenant, most)
        return count

    async def count_newest(self, tenant: str, oldest: str, most: int) -> int:
        [count] = await self._find(lambda row: int(row[0]), self.sql.find_last_of, tenant, LAST_ID, most, oldest)
        return count

    async def sample_live(self, tenant: str, *, share: int, limit: int) -> list[RecentRun]:
        return await self._find(lambda row: RecentRun(*row), self.sql.sample_live, tenant, share, limit)

    async def sample_recent(self, tenant: str, *, after: str, share: int, limit: int) -> list[RecentRun]:
        given = (tenant, share, limit, after)
        return await self._find(lambda row: RecentRun(*row), self.sql.sample_recent, *given)

    async def read_backlog(self, queues: Collection[int], limit: int) -> list[Backlog]:
        return await self._find(lambda row: Backlog(*row), self.sql.read_backlog, self._numbers(queues), limit)

    async def read_recent_runs(self, tenant: str, *, after: str, limit: int) -> list[RecentRun]:
        return await self._find(lambda row: RecentRun(*row), self.sql.read_recent_runs, tenant, after, limit)

    async def read_recent_attempts(
        self, tenant: str, *, after: str, looked_at: int, runs: int, limit: int
    ) -> list[RecentAttempt]:
        asked = (self.sql.read_recent_attempts, tenant, after, looked_at, runs, limit)
        return await self._find(lambda row: RecentAttempt(*row), *asked)

    async def read_definition(self, tenant: str, name: str, version: int | None) -> StoredDefinition | None:
        return first(await self._read(columns.definition_from, self.sql.read_definition, tenant, name, version))

    async def read_schema(self, tenant: str, ref: str) -> StoredSchema | None:
        return first(await self._read(columns.schema_from, self.sql.read_schema, tenant, ref))

    async def list_schemas(self, tenant: str, after: str = "", limit: int = 1000) -> list[StoredSchema]:
        return await self._read(columns.schema_from, self.sql.list_schemas, tenant, after, limit)

    async def read_definitions(self, ids: Sequence[int]) -> dict[int, StoredDefinition]:
        found = await self._read(columns.definition_from, self.sql.load_definitions, self._numbers(ids))
        return {definition.id: definition for definition in found}

    async def list_definitions(self, tenant: str) -> list[StoredDefinition]:
        return await self._read(columns.definition_from, self.sql.list_definitions, tenant)

    async def has_other_tenants(self, tenant: str) -> bool:
        [found] = await self._read(lambda row: bool(row[0]), self.sql.has_other_tenants, tenant)
        return found

    async def read_policy(self, tenant: str, revision: int | None = None) -> StoredPolicy | None:
        return first(await self._read(columns.policy_from, self.sql.read_policy, tenant, revision))

    async def list_policies(self, tenant: str, limit: int = 1000) -> list[StoredPolicy]:
        return await self._read(columns.policy_from, self.sql.list_policies, tenant, limit)

    async def read_setting(
        self, tenant: str, kind: str, name: str, revision: int | None = None
    ) -> StoredSetting | None:
        return first(await self._read(columns.setting_from, self.sql.read_setting, tenant, kind, name, revision))

    async def list_settings(self, tenant: str, kind: str, after: str = "", limit: int = 1000) -> list[StoredSetting]:
        return await self._read(columns.setting_from, self.sql.list_settings, tenant, kind, after, limit)

    # -- runs ------------------------------------------------------------------------------------------------
    async def read_run(self, tenant: str, run_id: str) -> RunRecord | None:
        return first(await self._read_of_run("runs", columns.record_from, self.sql.read_run, tenant, run_id))

    async def read_attempts(self, tenant: str, run_id: str) -> list[Attempt]:
        return await self._read_of_run("attempts", columns.attempt_from, self.sql.read_attempts, tenant, run_id)

    async def read_messages(self, tenant: str, run_id: str) -> list[Message]:
        return await self._read_of_run("messages", columns.message_from, self.sql.read_messages, tenant, run_id)

    async def read_journal(self, tenant: str, run_id: str, after: int = 0, limit: int = 1000) -> list[SealedEntry]:
        asked = (self.sql.read_journal, tenant, run_id, after, limit)
        return await self._read_of_run("journal", columns.entry_from, *asked)

    async def read_outbox(self, tenant: str, run_id: str) -> list[OutboxEntry]:
        return await self._read_of_run("outbox", columns.outbox_from, self.sql.read_outbox, tenant, run_id)

    async def read_adoptions(self, tenant: str, run_ids: Sequence[str]) -> list[AdoptionRow]:
        known = [(tenant, run_id) for run_id in run_ids if self._can_exist(run_id)]
        return await self._read(columns.adoption_from, self.sql.load_adoptions, *self._keys(known)) if known else []

    async def find_reruns(self, tenant: str, run_id: str, limit: int = 100) -> list[str]:
        if not self._can_exist(run_id):
            return []
        return await self._find(lambda row: str(row[0]), self.sql.find_reruns, tenant, run_id, limit)

    async def read_gates(self, tenant: str, run_id: str) -> list[Gate]:
        return await self._read_of_run("gates", columns.gate_from, self.sql.read_gates, tenant, run_id)

    async def read_votes(self, tenant: str, run_id: str) -> list[Vote]:
        return await self._read_of_run("decisions", columns.vote_from, self.sql.read_decisions, tenant, run_id)

    async def read_signed_heads(self, tenant: str, run_id: str) -> list[SignedHead]:
        statement = self.sql.read_signed_heads
        return await self._read_of_run("signed_heads", columns.signed_head_from, statement, tenant, run_id)

    async def find_unsigned(self, tenant: str, key_id: str, after: str, limit: int) -> list[UnsignedHead]:
        found = await self._read(lambda row: UnsignedHead(*row), self.sql.find_unsigned, tenant, key_id, after, limit)
        return [one._replace(head=bytes(one.head)) for one in found]

    async def find_oldest_live(self, tenant: str) -> str | None:
        return first(await self._read(lambda row: str(row[0]), self.sql.find_oldest_live, tenant))

    async def list_open_gates(self, tenant: str, after: tuple[str, int] = FIRST_GATE, limit: int = 100) -> list[Gate]:
        return await self._read(columns.gate_from, self.sql.list_open_gates, tenant, *after, limit)

    async def list_mailbox(
        self,
        tenant: str,
        key: str | None = None,
        after: tuple[str, int, str] = FIRST_MESSAGE,
        limit: int = 100,
    ) -> list[MailboxMessage]:
        if key is None:
            return await self._find(columns.mailbox_from, self.sql.list_mailbox, tenant, *after, limit)
        return await self._find(columns.mailbox_from, self.sql.list_mailbox_of, tenant, key, *after[1:], limit)

    async def read_payload(self, tenant: str, run_id: str, digest: str) -> bytes | None:
        if not self._can_exist(run_id):
            return None
        chunks = await self._read(lambda row: bytes(row[0]), self.sql.read_payload_chunks, tenant, run_id, digest)
        return b"".join(chunks) if chunks else None

    async def read_evidence(self, tenant: str, run_id: str) -> list[Evidence]:
        if not self._can_exist(run_id):
            return []
        found = await self._read(tuple, self.sql.read_evidence, tenant, run_id)
        return [Evidence(tenant, run_id, no, fence, body.encode()) for no, fence, body in found]

    async def count_runs(self, tenant: str) -> Mapping[RunState, int]:
        return dict(await self._read(lambda row: (RunState(row[0]), row[1]), self.sql.count_runs, tenant))

    async def measure_use(self, tenant: str, kind: str, most: int) -> tuple[int, int]:
        [(count, size_bytes)] = await self._read(tuple, self.sql.measure_use, tenant, kind, most)
        return count, size_bytes

    async def stuck_runs(self, limit: int = 100) -> list[RunKey]:
        return await self._read(lambda row: (row[0], row[1]), self.sql.stuck_runs, limit)

    async def list_quarantined(self, tenant: str) -> list[Quarantine]:
        return await self._find(lambda row: Quarantine(*row), self.sql.list_quarantined, tenant)

    async def read_quarantines(self, tenant: str, limit: int = 1000) -> list[Quarantine]:
        return await self._find(lambda row: Quarantine(*row), self.sql.read_quarantines, tenant, limit)

    async def find_finished(self, which: FinishedFilter) -> list[str]:
        asked = (which.tenant, which.after, which.before, which.ended_by, which.limit)
        if which.workflow is None:
            return await self._find(only, self.sql.find_finished, *asked)
        return await self._find(only, self.sql.find_finished_of, *asked, which.workflow)

    async def find_newest_finished(self, tenant: str, after_it: int, workflow: str | None = None) -> str | None:
        if workflow is None:
            return first(await self._find(only, self.sql.find_newest_finished, tenant, after_it))
        return first(await self._find(only, self.sql.find_newest_finished_of, tenant, after_it, workflow))

    # -- workers ---------------------------------------------------------------------------------------------
    async def find_worker(self, tenant: str, worker_id: str) -> Worker | None:
        return first(await self._read(columns.worker_from, self.sql.find_worker, tenant, worker_id))

    async def list_workers(self, tenant: str, live_only: bool = False) -> list[Worker]:
        statement = self.sql.list_living_workers if live_only else self.sql.list_workers
        return await self._find(columns.worker_from, statement, tenant)

    async def name_workers(self, tenant: str, numbers: Collection[int]) -> dict[int, str]:
        return dict(await self._find(tuple, self.sql.name_workers, tenant, self._numbers(numbers)))

    async def list_worker_reports(self, tenant: str, newest: int = 100) -> list[WorkerReport]:
        found = await self._find(tuple, self.sql.list_worker_reports, tenant, newest)
        return sorted(map(_report, found), key=lambda report: report.worker)

    async def read_worker_reports(self, tenant: str, numbers: Collection[int]) -> list[WorkerReport]:
        return await self._find(_report, self.sql.read_worker_reports, tenant, self._numbers(numbers))

    async def read_worker_journal(self, tenant: str, worker_id: str) -> list[SealedEntry]:
        return await self._read(columns.entry_from, self.sql.read_worker_journal, tenant, worker_id)


def _report(row: Sequence[Any]) -> WorkerReport:
    no, at, body = row
    return WorkerReport(no, at, body.encode())


def added_policy(rows: Sequence[Sequence[Any]]) -> StoredPolicy:
    """The revision that an insert answered with; nothing was added where another program took its number."""
    if not rows:
        raise Contended("another program has published a policy: read the newest revision again")
    return columns.policy_from(rows[0])


def only(row: Sequence[Any]) -> str:
    """The one column of a row."""
    return str(row[0])


def first(found: Sequence[T]) -> T | None:
    """The first row, if there is one."""
    return found[0] if found else None


def added_setting(rows: Sequence[Sequence[Any]]) -> StoredSetting:
    """The same for a setting."""
    if not rows:
        raise Contended("another program has saved this setting: read the newest revision again")
    return columns.setting_from(rows[0])
