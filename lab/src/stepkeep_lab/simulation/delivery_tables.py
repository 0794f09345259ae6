"""Delivery cursors of the model database: how the emitting transaction moves them, and what relays ask of the store.

It follows the statements of the real stores, each in one round trip. Rows are locked one by one; a claim skips those
that another session holds.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec.structs import replace

from stepkeep.kernel.errors import InvariantBroken, StoreUnavailable
from stepkeep.kernel.machine.journal import SealedEntry
from stepkeep.kernel.machine.rows import OutboxEntry, Run
from stepkeep.store.change import RunKey, Write
from stepkeep.store.deliveries import (
    HOOK,
    RUN_WEBHOOK,
    WHOLE,
    Action,
    DeliveryStore,
    Lag,
    Report,
    Takes,
    worker_cursor,
    worker_target,
)
from stepkeep.store.rows import Delivery, SinkRow

if TYPE_CHECKING:
    from stepkeep_lab.simulation.database import Database, Session

T = TypeVar("T")

CursorKey = tuple[str, str, str]
"""(tenant, run id, sink)."""


def key_of(cursor: Delivery) -> CursorKey:
    return (cursor.tenant, cursor.run_id, cursor.sink)


class DeliveryRows:
    """Everything that is committed about deliveries."""

    def __init__(self) -> None:
        self.sinks: dict[tuple[str, str], SinkRow] = {}
        self.cursors: dict[CursorKey, Delivery] = {}
        self.actions: list[Action] = []

    def sinks_of(self, tenant: str) -> list[SinkRow]:
        return [sink for (owner, _), sink in sorted(self.sinks.items()) if owner == tenant]

    def of_run(self, key: RunKey) -> list[Delivery]:
        return [cursor for (*owner, _), cursor in sorted(self.cursors.items()) if tuple(owner) == key]

    def holds_back(self, key: RunKey) -> bool:
        """Whether something of this run is left to deliver."""
        return any(
            (cursor.ready_at is not None or cursor.dead_at is not None) and self.has_sink(cursor)
            for cursor in self.of_run(key)
        )

    def has_sink(self, cursor: Delivery) -> bool:
        """Whether there is a destination: of the run itself, of its definition, or of its tenant."""
        is_own = cursor.sink == RUN_WEBHOOK or cursor.sink.startswith(HOOK)
        return is_own or (cursor.tenant, cursor.sink) in self.sinks

    def moved_by(self, what: Write, now: int) -> list[Delivery]:
        """The cursors that this write creates or advances, as they will be."""
        moved: dict[CursorKey, Delivery] = {}

        def put(cursor: Delivery) -> None:
            moved[key_of(cursor)] = cursor

        def known(key: CursorKey) -> Delivery | None:
            return moved.get(key) or self.cursors.get(key)

        for new in what.new_runs:
            for cursor in new.rows.of(Delivery):
                put(cursor)
            for sink in self.sinks_of(new.run.tenant):
                if sink.takes & Takes.OF_RUNS > Takes.EMITTED:
                    put(_begun(new.run, sink, now))
        for change in what.runs:
            for cursor in self.of_run((change.run.tenant, change.run.id)):
                if cursor.takes & Takes.COURSE or (cursor.takes & Takes.ENDINGS and change.run.ended_at is not None):
                    put(_due(replace(cursor, last=change.run.seq), now))
        for entry in what.every_row().of(OutboxEntry):
            for sink in self.sinks_of(entry.tenant):
                if sink.takes & Takes.EMITTED and entry.name.startswith(sink.prefix):
                    there = known((entry.tenant, entry.run_id, sink.name))
                    cursor = there or _created(entry, sink)
                    put(_due(replace(cursor, last=max(cursor.last, entry.seq)), now))
        return list(moved.values())

    def moved_by_worker(self, entry: SealedEntry, now: int) -> None:
        """Create or advance the cursors of a worker whose journal has this new entry."""
        for sink in self.sinks_of(entry.tenant):
            if sink.takes & Takes.WORKERS:
                key = (entry.tenant, worker_cursor(entry.run_id), sink.name)
                there = self.cursors.get(key) or _of_worker(entry, sink)
                self.cursors[key] = _due(replace(there, last=max(there.last, entry.seq)), now)


def _of_worker(entry: SealedEntry, sink: SinkRow) -> Delivery:
    return Delivery(
        tenant=entry.tenant,
        run_id=worker_cursor(entry.run_id),
        sink=sink.name,
        takes=int(Takes.TRANSITIONS),
        last=entry.seq,
        sent=entry.seq - 1,
        sent_number=WHOLE,
        target=worker_target(entry.run_id),
    )


def _begun(run: Run, sink: SinkRow, now: int) -> Delivery:
    is_due = bool(sink.takes & Takes.COURSE) or run.ended_at is not None
    return Delivery(
        tenant=run.tenant,
        run_id=run.id,
        sink=sink.name,
        takes=sink.takes & Takes.OF_RUNS,
        last=run.seq if is_due else 0,
        sent=0,
        sent_number=WHOLE,
        ready_at=now if is_due else None,
    )


def _created(entry: OutboxEntry, sink: SinkRow) -> Delivery:
    return Delivery(
        tenant=entry.tenant,
        run_id=entry.run_id,
        sink=sink.name,
        takes=int(Takes.EMITTED),
        last=entry.seq,
        sent=entry.seq - 1,
        sent_number=WHOLE,
    )


def _due(cursor: Delivery, now: int) -> Delivery:
    if cursor.dead_at is not None:
        return cursor
    return replace(cursor, ready_at=now if cursor.ready_at is None else cursor.ready_at)


class Asking(Protocol):
    """The way to the database."""

    async def ask(self, statement: str, work: Callable[[], T], session: Session | None = None) -> T: ...
    async def wait(self, statement: str, work: Callable[[], Coroutine[Any, Any, T]], session: Session) -> T: ...
    def abandon(self, session: Session) -> None: ...


class ModelDeliveries(DeliveryStore):
    """`DeliveryStore` on the model database."""

    def __init__(self, database: Database, wire: Asking, clock: Callable[[], int]) -> None:
        self._database, self._wire, self._clock = database, wire, clock

    @property
    def _rows(self) -> DeliveryRows:
        return self._database.tables.deliveries

    async def save_sink(self, sink: SinkRow, action: Action, *, replace: bool = True) -> bool:
        def work() -> bool:
            if not replace and (sink.tenant, sink.name) in self._rows.sinks:
                return False
            self._rows.sinks[sink.tenant, sink.name] = sink
            self._note(action)
            return True

        return await self._wire.ask("save sink", work)

    def _note(self, action: Action) -> None:
        self._rows.actions.append(replace(action, at=self._clock()))

    async def remove_sink(self, action: Action, *, discard: bool) -> int | None:
        def work() -> int | None:
            rows, which = self._rows, (action.tenant, action.sink)
            if which not in rows.sinks:
                return None
            mine = [key for key in rows.cursors if (key[0], key[2]) == which]
            left = [key for key in mine if _is_open(rows.cursors[key])]
            if left and not discard:
                return len(left)
            del rows.sinks[which]
            for key in mine:
                del rows.cursors[key]
            self._note(action)
            return len(left)

        return await self._wire.ask("remove sink", work)

    async def list_sinks(self, tenant: str) -> list[SinkRow]:
        return await self._wire.ask("list sinks", lambda: self._rows.sinks_of(tenant))

    async def find_due_sinks(self, tenant: str) -> list[str]:
        def work() -> list[str]:
            return sorted({one.sink for one in self._due(tenant, self._clock()) if self._rows.has_sink(one)})

        return await self._wire.ask("find due sinks", work)

    def _due(self, tenant: str, now: int) -> list[Delivery]:
        due = [
            one
            for one in self._rows.cursors.values()
            if one.tenant == tenant and one.ready_at is not None and one.ready_at <= now
        ]
        return sorted(due, key=lambda one: (one.ready_at or 0, one.run_id, one.sink))

    async def claim(self, tenant: str, wanted: Sequence[tuple[str, int]], holder: str, lease_us: int) -> list[Delivery]:
        def work() -> list[Delivery]:
            found = []
            now, tables = self._clock(), self._database.tables
            for sink, most in sorted(wanted):
                mine = [
                    one
                    for one in self._due(tenant, now)
                    if one.sink == sink
                    and not tables.is_quarantined((one.tenant, one.run_id))
                    and not self._database.locks.is_held(("delivery", *key_of(one)))
                ]
                for one in mine[: max(most, 0)]:
                    until = now + lease_us
                    claimed = replace(one, fence=one.fence + 1, lease_until=until, ready_at=until, holder=holder)
                    self._rows.cursors[key_of(one)] = claimed
                    found.append(claimed)
            return found

        return await self._wire.ask("claim deliveries", work)

    async def report(self, reports: Sequence[Report]) -> list[bool]:
        return [
            await self._alone("report delivery", (one.tenant, one.run_id, one.sink), self._reported(one))
            for one in reports
        ]

    def _reported(self, one: Report) -> Callable[[Delivery, int], Delivery | None]:
        def change(row: Delivery, now: int) -> Delivery | None:
            if row.fence != one.fence or row.lease_until is None:
                return None
            if (one.sent, one.sent_number) < (row.sent, row.sent_number):
                raise InvariantBroken("what was delivered stays delivered")
            is_left = row.last > one.sent or (row.last == one.sent and one.sent_number < WHOLE)
            until = None if one.lease_us is None or one.is_dead else now + one.lease_us
            return replace(
                row,
                sent=one.sent,
                sent_number=one.sent_number,
                attempts=one.attempts,
                error=one.error,
                dead_at=now if one.is_dead else None,
                lease_until=until,
                ready_at=None if one.is_dead else until or (now + one.retry_us if is_left else None),
            )

        return change

    async def _alone(
        self,
        statement: str,
        key: CursorKey,
        change: Callable[[Delivery, int], Delivery | None],
        action: Action | None = None,
    ) -> bool:
        """One statement on one row, which waits for the row's lock and commits."""
        session = self._database.begin()

        async def work() -> bool:
            if not session.is_open:
                raise StoreUnavailable("the connection is gone, and its transaction with it")
            await self._database.locks.take(session, ("delivery", *key))
            row = self._rows.cursors.get(key)
            changed = None if row is None or not session.is_open else change(row, self._clock())
            if changed is not None:
                self._rows.cursors[key] = changed
                if action is not None:
                    self._note(action)
            session.end()
            return changed is not None

        try:
            return await self._wire.wait(statement, work, session)
        finally:
            self._wire.abandon(session)

    async def redrive(self, action: Action) -> bool:
        def change(row: Delivery, now: int) -> Delivery | None:
            return None if row.dead_at is None else replace(row, dead_at=None, attempts=0, ready_at=now)

        return await self._alone("redrive delivery", (action.tenant, action.run_id or "", action.sink), change, action)

    async def drop(self, action: Action) -> bool:
        entry = (action.seq or 0, action.number or 0)

        def change(row: Delivery, now: int) -> Delivery | None:
            if row.dead_at is None or (row.sent, row.sent_number) >= entry or entry[0] > row.last:
                return None
            sent, number = entry
            return replace(row, dead_at=None, attempts=0, error=None, sent=sent, sent_number=number, ready_at=now)

        return await self._alone("drop delivery", (action.tenant, action.run_id or "", action.sink), change, action)

    async def read_cursors(self, tenant: str, run_id: str) -> list[Delivery]:
        return await self._wire.ask("read deliveries", lambda: self._rows.of_run((tenant, run_id)))

    async def list_cursors(
        self, tenant: str, *, sink: str = "", dead: bool = False, after: tuple[str, str] = ("", ""), limit: int = 100
    ) -> list[Delivery]:
        def work() -> list[Delivery]:
            open_ones = [one for one in self._rows.cursors.values() if one.tenant == tenant and _is_open(one)]
            found = [
                one
                for one in open_ones
                if (one.dead_at is not None or not dead) and sink in ("", one.sink) and (one.sink, one.run_id) > after
            ]
            return sorted(found, key=lambda one: (one.sink, one.run_id))[:limit]

        return await self._wire.ask("list deliveries", work)

    async def count_cursors(self, tenant: str) -> list[Lag]:
        def work() -> list[Lag]:
            by_sink: dict[str, list[Delivery]] = {}
            for one in self._rows.cursors.values():
                if one.tenant == tenant and _is_open(one):
                    by_sink.setdefault(one.sink, []).append(one)
            return [_lag(sink, rows) for sink, rows in sorted(by_sink.items())]

        return await self._wire.ask("count deliveries", work)

    async def read_entries(self, tenant: str, run_id: str, after: tuple[int, int], limit: int) -> list[OutboxEntry]:
        def work() -> list[OutboxEntry]:
            rows = self._database.tables.outbox.get((tenant, run_id), {})
            return [entry for place, entry in sorted(rows.items()) if place > after][:limit]

        return await self._wire.ask("read outbox after", work)

    async def read_worker_entries(self, tenant: str, worker_id: str, after: int, limit: int) -> list[SealedEntry]:
        def work() -> list[SealedEntry]:
            entries = self._database.tables.worker_journal.get((tenant, worker_id), [])
            return [entry for entry in entries if entry.seq > after][:limit]

        return await self._wire.ask("read worker entries", work)

    async def read_actions(self, tenant: str, run_id: str | None = None, limit: int = 100) -> list[Action]:
        def work() -> Iterable[Action]:
            return [
                one for one in reversed(self._rows.actions) if one.tenant == tenant and run_id in (None, one.run_id)
            ][:limit]

        return list(await self._wire.ask("read delivery actions", work))


def _is_open(cursor: Delivery) -> bool:
    return cursor.ready_at is not None or cursor.dead_at is not None


def _lag(sink: str, rows: Sequence[Delivery]) -> Lag:
    ready = [one.ready_at for one in rows if one.ready_at is not None]
    dead = sum(one.dead_at is not None for one in rows)
    return Lag(sink=sink, waiting=len(ready), dead=dead, oldest_at=min(ready, default=None))
