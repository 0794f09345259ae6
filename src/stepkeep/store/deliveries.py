"""The rows of deliveries: sinks, one cursor for each run and sink, and the record of what people did to them.

`DeliveryStore` is the part of a store that reads and writes them. The transaction that emits an event creates or
advances the cursors of its run; a relay claims due cursors and reports on them with its fence. Both change the one
row, so that nothing is stranded between the two transactions. Locks on cursors are taken after those of runs.
It decides nothing; `operations.delivery.outbox` and `operations.delivery.sinks` do.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntFlag, StrEnum
from typing import Any
from uuid import UUID, uuid5

import msgspec

from stepkeep.kernel.machine.journal import SealedEntry
from stepkeep.kernel.machine.rows import OutboxEntry
from stepkeep.store.columns import entry_from, outbox_from, person_reader, values_of
from stepkeep.store.part import Part, Rows, Statement
from stepkeep.store.rows import Delivery, SinkRow

WHOLE = 2**31 - 1
"""The `sent_number` of a cursor whose entry at `sent` was delivered with all its events."""

RUN_WEBHOOK = "webhook_url"
"""The sink of a run that was started with an address of its own; no row of `sinks` has this name."""


HOOK = "hook:"
"""How the sink of a hook begins that the definition of a run declares: `hook:WORKFLOW@VERSION/NAME`. No row of `sinks`
has such a name."""


class Takes(IntFlag):
    """What a sink takes, as the bits of a number."""

    EMITTED = 1
    DIALECT = 2
    TRANSITIONS = 4
    ENDINGS = 8
    WORKERS = 16

    OF_RUNS = 15
    """Everything but transitions of workers."""

    COURSE = 6
    """Events that are derived from every journal entry of a run."""


def worker_cursor(worker_id: str) -> str:
    """The id that stands for a worker in the place of a run.

    >>> worker_cursor("app:host:1:aa") == worker_cursor("app:host:1:aa") != worker_cursor("app:host:1:ab")
    True
    """
    return str(uuid5(_WORKERS, worker_id))


_WORKERS = UUID("9a2f0a8e-5f0e-5d0b-8f0c-0b6d7f2e4c11")


def worker_target(worker_id: str) -> bytes:
    """The target of a cursor for transitions of a worker."""
    return msgspec.json.encode({"worker": worker_id})


def worker_of(cursor: Delivery) -> str | None:
    """The worker whose transitions a cursor is for; None for one of a run."""
    if cursor.target is None or cursor.sink == RUN_WEBHOOK:
        return None
    worker: str = msgspec.json.decode(cursor.target)["worker"]
    return worker


class DeliveryState(StrEnum):
    """The state of a cursor, by the database clock: `idle` if all is sent."""

    IDLE = "idle"
    READY = "ready"
    SENDING = "sending"
    DEAD = "dead"


def state_of(cursor: Delivery, now: int) -> DeliveryState:
    """The state of a cursor."""
    if cursor.dead_at is not None:
        return DeliveryState.DEAD
    if cursor.ready_at is None:
        return DeliveryState.IDLE
    return DeliveryState.SENDING if cursor.lease_until is not None and cursor.lease_until > now else DeliveryState.READY


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a relay says of a cursor that it claimed with `fence`.

    Everything up to (`sent`, `sent_number`) is delivered. With `lease_us` the claim goes on for so long. Otherwise it
    ends: the rest is due after `retry_us`, or never if `is_dead`. `attempts` counts failures of the first entry that is
    not delivered; `error` is the last one.
    """

    tenant: str
    run_id: str
    sink: str
    fence: int
    sent: int
    sent_number: int
    attempts: int = 0
    retry_us: int = 0
    lease_us: int | None = None
    is_dead: bool = False
    error: str | None = None


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """What a person did, with the reason: it stays on record when the run is deleted."""

    tenant: str
    at: int
    actor: str
    action: str
    sink: str
    run_id: str | None
    seq: int | None
    number: int | None
    reason: str


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """The cursors of a sink that are not idle: how many are due or will be, how many are dead, and since when the
    oldest is due."""

    sink: str
    waiting: int
    dead: int
    oldest_at: int | None


cursor_from = person_reader(Delivery)
sink_from = person_reader(SinkRow)


class _Undelivered(Exception):
    """A sink is not removed, because so many of its cursors are not idle."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


class _Unchanged(Exception):
    """The row is not there, or not as the statement asks: nothing is written."""


def action_from(row: Sequence[Any]) -> Action:
    return Action(**dict(zip(Action.__struct_fields__, row, strict=True)))


class DeliveryStore(Part):
    """The tables of deliveries. Quarantined runs are never claimed here; every list shows them."""

    def _noted(self, action: Action) -> Statement:
        noted = (action.actor, action.action, action.sink, action.run_id, action.seq, action.number, action.reason)
        return (self._sql.insert_delivery_action, (action.tenant, self._time(), *noted))

    async def save_sink(self, sink: SinkRow, action: Action, *, replace: bool = True) -> bool:
        """Add a sink, or replace the one of this name; its cursors stay. False: there is one, and nothing is written,
        because `replace` is False."""
        saved = (self._sql.save_sink, (*values_of(sink), replace))
        try:
            await self._transact([saved, self._noted(action)], _changed)
        except _Unchanged:
            return False
        return True

    async def remove_sink(self, action: Action, *, discard: bool) -> int | None:
        """Remove a sink with its cursors. Returns how many were not delivered: without `discard` nothing is removed
        if there are any. None: there is no such sink."""
        which = (action.tenant, action.sink)

        def check(found: Rows) -> None:
            [(left,)], removed, *_ = found
            if not removed:
                raise _Unchanged
            if left and not discard:
                raise _Undelivered(left)

        statements = [
            (self._sql.count_undelivered, which),
            (self._sql.remove_sink, which),
            (self._sql.delete_sink_deliveries, which),
            self._noted(action),
        ]
        try:
            [(left,)], *_ = await self._transact(statements, check)
        except _Unchanged:
            return None
        except _Undelivered as problem:
            return problem.count
        return int(left)

    async def list_sinks(self, tenant: str) -> list[SinkRow]:
        return await self._read(sink_from, self._sql.list_sinks, tenant)

    async def find_due_sinks(self, tenant: str) -> list[str]:
        """The sinks with a cursor that may be claimed now, read without locks."""
        return await self._read(lambda row: str(row[0]), self._sql.find_due_sinks, tenant, self._time())

    async def claim(self, tenant: str, wanted: Sequence[tuple[str, int]], holder: str, lease_us: int) -> list[Delivery]:
        """Claim due cursors, oldest first, up to a number for each sink: fence + 1 and a lease. Cursors that another
        transaction holds are skipped."""
        asked = [
            (self._sql.claim_deliveries, (tenant, sink, most, self._time(), lease_us, holder))
            for sink, most in sorted(wanted)
            if most > 0
        ]
        found = await self._transact(asked) if asked else []
        return [cursor_from(row) for rows in found for row in rows]

    async def report(self, reports: Sequence[Report]) -> list[bool]:
        """Write reports; False for one whose fence is not the cursor's: another relay has claimed it since."""
        order = sorted(range(len(reports)), key=lambda place: _key(reports[place]))
        found = await self._transact([(self._sql.report_delivery, self._values(reports[place])) for place in order])
        by_place = dict(zip(order, found, strict=True))
        return [bool(by_place[place]) for place in range(len(reports))]

    def _values(self, one: Report) -> tuple[Any, ...]:
        said = (one.sent, one.sent_number, one.attempts, one.retry_us, one.lease_us, one.is_dead, one.error)
        return (one.tenant, one.run_id, one.sink, one.fence, self._time(), *said)

    async def redrive(self, action: Action) -> bool:
        """Make a dead cursor due now, with all its attempts; False if it is not dead."""
        which = (action.tenant, action.run_id, action.sink)
        return await self._act(action, (self._sql.redrive_delivery, (*which, self._time())))

    async def drop(self, action: Action) -> bool:
        """Pass over the dead entry (`seq`, `number`) of a cursor; False if that is not its dead entry."""
        which = (action.tenant, action.run_id, action.sink)
        return await self._act(action, (self._sql.drop_delivery, (*which, self._time(), action.seq, action.number)))

    async def _act(self, action: Action, statement: Statement) -> bool:
        if action.run_id is None or not self._can_exist(action.run_id):
            return False
        try:
            await self._transact([statement, self._noted(action)], _changed)
        except _Unchanged:
            return False
        return True

    async def read_cursors(self, tenant: str, run_id: str) -> list[Delivery]:
        if not self._can_exist(run_id):
            return []
        return await self._read(cursor_from, self._sql.read_deliveries, tenant, run_id)

    async def list_cursors(
        self, tenant: str, *, sink: str = "", dead: bool = False, after: tuple[str, str] = ("", ""), limit: int = 100
    ) -> list[Delivery]:
        """Cursors that are not idle, or those that are dead, in the order of sink and run, after the given ones."""
        statement = self._sql.list_dead_deliveries if dead else self._sql.list_open_deliveries
        return await self._read(cursor_from, statement, tenant, sink, *after, limit)

    async def count_cursors(self, tenant: str) -> list[Lag]:
        found = await self._read(tuple, self._sql.count_deliveries, tenant)
        return [Lag(sink=sink, waiting=waiting, dead=dead, oldest_at=oldest) for sink, waiting, dead, oldest in found]

    async def read_entries(self, tenant: str, run_id: str, after: tuple[int, int], limit: int) -> list[OutboxEntry]:
        """The outbox of a run after an entry (sequence and number)."""
        return await self._read(outbox_from, self._sql.read_outbox_after, tenant, run_id, *after, limit)

    async def read_worker_entries(self, tenant: str, worker_id: str, after: int, limit: int) -> list[SealedEntry]:
        """The journal of a worker after an entry."""
        return await self._read(entry_from, self._sql.read_worker_entries, tenant, worker_id, after, limit)

    async def read_actions(self, tenant: str, run_id: str | None = None, limit: int = 100) -> list[Action]:
        """What people did, newest first."""
        if run_id is None:
            return await self._read(action_from, self._sql.list_delivery_actions, tenant, limit)
        if not self._can_exist(run_id):
            return []
        return await self._read(action_from, self._sql.read_delivery_actions, tenant, run_id, limit)


def _changed(found: Rows) -> None:
    if not found[0]:
        raise _Unchanged


def _key(one: Report) -> tuple[str, str, str]:
    return (one.tenant, one.run_id, one.sink)
