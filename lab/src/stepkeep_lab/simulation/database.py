"""The model database: tables behind sessions that behave as READ COMMITTED ones do.

Each statement of a session sees what was committed when it began; rows that are locked or written stay locked to the
end of the session; a session commits whole or not at all. `store` sends it statements, one round trip each.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from stepkeep.kernel.decide.decision import Involved
from stepkeep.kernel.errors import Contended, StepkeepError, StoreUnavailable
from stepkeep.kernel.machine.rows import Origin, Run, Step
from stepkeep.kernel.machine.states import STEP_WAITING
from stepkeep.store.change import IdempotencyKey, Lease, Loaded, More, Propose, Renewed, RunKey, Want, Write
from stepkeep.store.protocol import Notification
from stepkeep.store.records import Quarantine
from stepkeep.store.rows import Delivery, Firing, KeyWant, LimitKey, MailboxMessage, ReleasedKey, TriggerChange
from stepkeep_lab.simulation import queries
from stepkeep_lab.simulation.delivery_tables import key_of
from stepkeep_lab.simulation.locks import Locks, Owner
from stepkeep_lab.simulation.loop import current
from stepkeep_lab.simulation.tables import Tables


def lock_order(key: RunKey) -> tuple[str, str]:
    return (key[1], key[0])


class WallClock:
    """Microseconds since 1970 that never go back."""

    def __init__(self) -> None:
        self._last = 0

    def __call__(self) -> int:
        self._last = max(self._last, time.time_ns() // 1000)
        return self._last


class Database:
    """What all stores of one model database share. `committed` hears of every write, after it was made; `listeners` are
    handed hints, with the time that each takes."""

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        self.clock = clock or WallClock()
        self.tables = Tables()
        self.locks = Locks()
        self.migrated = False
        self.sessions: dict[Session, None] = {}
        self.listeners: list[Callable[[Notification, float], None]] = []
        self.before_commit: Callable[[Write, int | None], None] = lambda what, recorded_at: None
        self.committed: Callable[[Write], None] = lambda what: None

    def begin(self) -> Session:
        session = Session(self)
        self.sessions[session] = None
        return session

    def crash(self) -> None:
        """Every open session is gone; what was committed stays."""
        for session in list(self.sessions):
            session.abort()


class Session(Owner):
    """One transaction as the database sees it."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._writes: list[Write] = []
        self._notes: list[str] = []
        self._deleted: list[RunKey] = []
        self._cursors: list[Delivery] = []
        self._noted: list[Firing] = []
        self._recorded_at: int | None = None
        self.state = "open"
        self.waiting: asyncio.Task[object] | None = None
        self.client = current.get()

    @property
    def is_open(self) -> bool:
        return self.state == "open"

    @property
    def has_written(self) -> bool:
        return bool(self._writes or self._notes or self._deleted)

    def _live(self) -> Tables:
        if not self.is_open:
            raise StoreUnavailable("the connection is gone, and its transaction with it")
        return self._database.tables

    # -- the end -----------------------------------------------------------------------------------------------------
    def commit(self) -> None:
        tables = self._live()
        for what in self._writes:
            self._database.before_commit(what, self._recorded_at)
            tables.write(what)
        tables.deliveries.cursors.update({key_of(cursor): cursor for cursor in self._cursors})
        tables.triggers.note(self._noted)
        for key in self._deleted:
            tables.delete(key)
        tables.notes += self._notes
        self._finish("committed")
        for what in self._writes:
            self._database.committed(what)

    def end(self) -> None:
        """The end of a statement that was a transaction by itself."""
        if self.is_open:
            self._finish("committed")

    def abort(self) -> None:
        if self.is_open:
            self._finish("aborted")
            if self.waiting is not None and not self.waiting.done():
                self.waiting.cancel()

    def _finish(self, state: str) -> None:
        self.state = state
        self._database.sessions.pop(self, None)
        self._database.locks.release(self)

    # -- statements --------------------------------------------------------------------------------------------------
    async def lock_runs(self, keys: Sequence[RunKey], tenants: Iterable[str] = ()) -> tuple[dict[RunKey, Run], int]:
        """Lock runs one after the other in the order given, then share the people of tenants; read the runs, and the
        clock, when all are held."""
        tables = self._live()
        there = [key for key in keys if key in tables.runs]
        for key in there:
            await self._database.locks.take(self, ("run", key))
        for tenant in sorted(tenants):
            await self._database.locks.share(self, ("people", tenant))
        tables = self._live()
        return {key: tables.runs[key] for key in there if key in tables.runs}, self._database.clock()

    async def lock_shares(self, propose: Propose, offset: int) -> tuple[list[RunKey], dict[RunKey, Run], int]:
        """Find claimable steps and lock their runs, skipping those that another transaction holds."""
        candidates = queries.shares(self._live(), self._database.clock() + offset, propose)[: 2 * propose.limit]
        # What was found may be stale by the time its run is locked.
        await asyncio.sleep(0)
        tables = self._live()
        found: list[RunKey] = []
        runs: dict[RunKey, Run] = {}
        for key in candidates:
            if tables.is_quarantined(key):
                continue
            if len(found) < propose.limit and self._database.locks.try_take(self, ("run", key)):
                found.append(key)
                runs[key] = tables.runs[key]
        return found, runs, self._database.clock()

    def load(self, wants: Iterable[Want], loaded: Loaded) -> None:
        """Read rows of runs that are locked."""
        tables = self._live()
        for want in wants:
            key = want.key
            if callers := [one for one in want.people if one not in loaded.authorities]:
                loaded.authorities.update(tables.people.authorities(callers))
            if key not in loaded.runs:
                continue
            rows, mine = tables.steps[key], loaded.steps.setdefault(key, {})
            if want.whole:
                loaded.whole.add(key)
                mine.update(rows)
            if want.waiting:
                loaded.waiting.add(key)
                mine.update({no: row for no, row in rows.items() if row.state in STEP_WAITING and no not in mine})
            for no in want.steps:
                if no in rows and no not in mine:
                    mine[no] = rows[no]
            messages = tables.messages[key]
            if want.inbox and key not in loaded.inbox:
                kept = [message for message in messages.values() if message.consumed_by is None]
                loaded.inbox[key] = tuple(sorted(kept, key=lambda message: message.number))
            loaded.seen.update((*key, message) for message in want.messages if message in messages)
            recorded = tables.checkpoints.get(key, {})
            if known := {one: recorded[one].fence for one in want.checkpoints if one in recorded}:
                loaded.recorded.setdefault(key, {}).update(known)
            for no in want.outputs:
                loaded.outputs.setdefault(key, {})[no] = tables.output_of(key, no)
            if want.input:
                details = tables.details[key]
                loaded.inputs[key], loaded.origins[key] = (
                    details.input,
                    Origin(details.created_by, details.labels, details.policy_revision),
                )
            if want.costs:
                loaded.costs[key] = tables.costs_below(key)
            if want.duties:
                loaded.involved[key] = Involved(tables.requesters(key), tables.executors(key))

    async def write_people(self, tenant: str, work: Callable[[int], None], offset: int) -> None:
        """Change people under their lock, at the time at which it is held, and commit."""
        self._live()
        try:
            await self._database.locks.take(self, ("people", tenant))
            self._live()
            work(self._database.clock() + offset)
        except StepkeepError:
            self._finish("aborted")
            raise
        self._finish("committed")

    def load_claimable(self, propose: Propose, shares: Iterable[RunKey], loaded: Loaded) -> None:
        """Read the steps to propose: of each run the claimable ones with the lowest numbers."""
        tables = self._live()
        for tenant, run_id, no in queries.by_number(tables, loaded.now, propose, shares):
            loaded.steps.setdefault((tenant, run_id), {}).setdefault(no, tables.steps[tenant, run_id][no])
            loaded.proposed.append((tenant, run_id, no))

    def look_up(self, more: More, loaded: Loaded) -> None:
        """Read definitions and keys."""
        tables = self._live()
        loaded.definitions.update(
            {one: tables.definitions[one] for one in more.definitions if one in tables.definitions}
        )
        loaded.idempotency.update(
            {key: tables.idempotency[key] for key in more.idempotency if key in tables.idempotency}
        )
        loaded.policies.update({one: next(iter(tables.policies.get(one, ())), None) for one in more.policies})
        for tenant, number in more.revisions:
            found = [one for one in tables.policies.get(tenant, ()) if one.revision == number]
            loaded.revisions[tenant, number] = found[0] if found else None
        for tenant, per in more.spend:
            loaded.spend[tenant, per] = tables.spent(tenant, loaded.now - per)
        loaded.business_keys.update({key: tables.business[key] for key in more.business_keys if key in tables.business})

    def load_above(self, more: More, loaded: Loaded) -> None:
        """Read the runs above children, and what trees have cost."""
        tables = self._live()
        loaded.above.update({key: tables.runs_above(key) for key in more.above})
        loaded.costs.update({key: tables.costs_below(key) for key in more.costs if key not in loaded.costs})

    def load_adoptions(self, keys: Sequence[RunKey], loaded: Loaded) -> None:
        """Read what was adopted from runs."""
        tables = self._live()
        loaded.adoptions.update({key: tables.adopted_from(key) for key in keys})

    async def lock_keys(self, wants: Sequence[KeyWant]) -> int:
        """Lock business keys, in one order; returns the clock."""
        self._live()
        for key in sorted({want.business_key for want in wants}):
            await self._database.locks.take(self, ("key", key))
        return self._database.clock()

    def load_mailboxes(self, wants: Sequence[KeyWant], loaded: Loaded) -> None:
        """Read what is known about locked business keys."""
        tables = self._live()
        loaded.mailboxes.update({want.business_key: tables.mailbox_of(want) for want in wants})

    async def lock_slots(self, tenants: Sequence[str]) -> None:
        """Lock the execution slots of tenants, in one order."""
        for tenant in sorted(tenants):
            self._live()
            await self._database.locks.take(self, ("slots", tenant))

    def count_slots(self, tenants: Sequence[str], loaded: Loaded) -> None:
        """Count the slots that are held in locked tenants."""
        tables = self._live()
        loaded.slots.update({tenant: tables.slots.held(tenant, tables.runs) for tenant in tenants})

    async def lock_resources(self, tenants: Sequence[str]) -> None:
        """Lock the resources of tenants, in one order."""
        for tenant in sorted(tenants):
            self._live()
            await self._database.locks.take(self, ("resources", tenant))

    def read_holds(self, tenants: Sequence[str], loaded: Loaded) -> None:
        """Read what steps of locked tenants hold."""
        tables = self._live()
        loaded.resources.update({tenant: tuple(tables.holds.held(tenant, tables.steps)) for tenant in tenants})

    async def lock_limits(self, keys: Sequence[LimitKey]) -> None:
        """Lock keys of limits, in one order."""
        for key in sorted(keys):
            self._live()
            await self._database.locks.take(self, ("limit", key))

    def read_limits(self, keys: Sequence[LimitKey], loaded: Loaded) -> None:
        """Read locked keys of limits, and the lines under them."""
        rows = self._live().limits
        loaded.limits.update({key: rows.lock(key, loaded.now) for key in keys})
        loaded.lines.update((spot[:3], spot[3]) for spot in rows.lines if spot[:3] in set(keys))

    async def lock_triggers(self, more: More, loaded: Loaded) -> None:
        """Lock triggers in the order of their names, and read them."""
        there = sorted(key for key in more.triggers if key in self._live().triggers.triggers)
        for key in there:
            await self._database.locks.take(self, ("trigger", key))
        rows = self._live().triggers.triggers
        loaded.triggers.update({key: rows[key] for key in there})

    async def write(self, what: Write, offset: int = 0) -> None:
        """Write, to be seen at the commit. It waits for rows and keys that another transaction is writing."""
        self._live()
        take = self._database.locks.take
        for released in what.rows.of(ReleasedKey):
            await take(self, ("business", released.tenant, released.key))
        for new in what.new_runs:
            await take(self, ("run", (new.run.tenant, new.run.id)))
            for promise in new.rows.of(IdempotencyKey):
                await take(self, ("idempotency", *promise.scoped_key))
            if new.run.business_key is not None:
                await take(self, ("business", new.run.tenant, new.run.business_key))
        for change in what.runs:
            await take(self, ("run", (change.run.tenant, change.run.id)))
        for changed in what.rows.of(TriggerChange):
            await take(self, ("trigger", (changed.row.tenant, changed.row.name)))
        for place in sorted({(one.tenant, one.name, one.key) for one in self._live().limits.ended_by(what.limits)}):
            await take(self, ("limit", place))
        for child in self._live().children.written_by(what):
            await take(self, ("child", child))
        for kept in sorted((sent.tenant, sent.key, sent.id) for sent in what.rows.of(MailboxMessage)):
            await take(self, ("mail", kept))
        await self._move_cursors(what, offset)
        tables = self._live()
        self._noted += tables.triggers.noted_by(what, tables.details, self._database.clock() + offset)
        tables.check(what)
        self._writes.append(what)

    async def _move_cursors(self, what: Write, offset: int) -> None:
        """Create and advance delivery cursors, to be seen at the commit; each is locked, after the runs."""
        rows = self._live().deliveries
        for cursor in rows.moved_by(what, 0):
            await self._database.locks.take(self, ("delivery", *key_of(cursor)))
        self._cursors += self._live().deliveries.moved_by(what, self._database.clock() + offset)

    async def record(self, what: Write, offset: int, decided_at: int = 0, *, patient: bool = True) -> int:
        """Write and commit in one go, if every run is where it was left and every lease written over still stands."""
        self._live()
        what.runs.sort(key=lambda change: lock_order((change.run.tenant, change.run.id)))
        try:
            for change in what.runs:
                lock = ("run", (change.run.tenant, change.run.id))
                if patient:
                    await self._database.locks.take(self, lock)
                elif not self._database.locks.try_take(self, lock):
                    raise Contended("another transaction holds a run: load again with locks")
            self._recorded_at = now = self._database.clock() + offset
            if what.new_runs and decided_at > now:
                raise Contended("the start of a run is in the future: load again with locks")
            await self.write(what, offset)
            self._check_leases(what.steps, now)
        except Contended:
            # A statement that is a transaction by itself leaves no lock behind.
            self._finish("aborted")
            raise
        self.commit()
        return now

    def _check_leases(self, steps: Iterable[Step], now: int) -> None:
        tables = self._live()
        for step in steps:
            row = tables.steps[step.tenant, step.run_id][step.no]
            if row.worker is not None and (row.due_at is None or row.due_at < now):
                raise Contended("a lease has expired: load again with locks")

    def note(self, text: str) -> None:
        """What user code writes in a transactional step."""
        self._live()
        self._notes.append(text)

    def delete_runs(self, tenant: str, run_ids: Iterable[str]) -> list[str]:
        """Delete finished runs, to be seen at the commit; those that another transaction holds are skipped."""
        tables = self._live()
        keys = [(tenant, run_id) for run_id in dict.fromkeys(run_ids)]
        finished = [
            key for key in keys if key in tables.runs and tables.runs[key].ended_at is not None and tables.may_go(key)
        ]
        self._deleted = [key for key in finished if self._database.locks.try_take(self, ("run", key))]
        return [run_id for _, run_id in self._deleted]

    async def quarantine(self, tenant: str, run_id: str, actor: str, reason: str, offset: int) -> Quarantine | None:
        """Set a run aside under its lock, and commit."""
        key = (tenant, run_id)
        await self.lock_runs([key])
        now = self._database.clock() + offset
        noted = self._live().set_aside(Quarantine(tenant, run_id, now, actor, reason))
        self._finish("committed")
        return noted

    async def drop_mailbox(self, tenant: str, key: str, message_id: str | None, offset: int) -> list[str]:
        """Drop kept messages, each under the lock of its row, and commit."""
        for place in sorted(place for place in self._live().mailbox if place[:2] == (tenant, key)):
            await self._database.locks.take(self, ("mail", place))
        dropped = self._live().drop_mailbox(tenant, key, message_id, self._database.clock() + offset)
        self._finish("committed")
        return dropped

    async def renew(self, leases: Sequence[Lease], offset: int) -> list[Renewed]:
        """Extend leases that still stand, each under its run's lock."""
        keys = sorted({(lease.tenant, lease.run_id) for lease in leases}, key=lock_order)
        runs, now = await self.lock_runs(keys)
        now += offset
        renewed: list[Renewed] = []
        extended: list[Step] = []
        for lease in leases:
            key = (lease.tenant, lease.run_id)
            step = self._live().steps[key].get(lease.no) if key in runs else None
            if step is None or step.fence != lease.fence or step.worker is None:
                continue
            if self._live().is_quarantined(key):
                continue
            if step.due_at is not None and step.due_at >= now:
                extended.append(replace(step, due_at=max(step.due_at, now + lease.lease)))
                renewed.append(Renewed(lease.run_id, lease.no, lease.fence, runs[key].state))
        if extended:
            self._writes.append(Write(steps=extended))
        return renewed
