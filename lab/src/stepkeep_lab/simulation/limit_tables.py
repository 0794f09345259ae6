"""Limits of the model database. It follows the statements of the real stores, each in one round trip."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from stepkeep.kernel.errors import InvariantBroken
from stepkeep.store.change import LimitChange, RunKey
from stepkeep.store.limits import DueLine, KeyInUse, LimitStore, LimitUse
from stepkeep.store.rows import LimitHold, LimitKey, LimitKeyRow, LimitLine, LimitWait, ResourceWaiter
from stepkeep_lab.simulation.delivery_tables import Asking

if TYPE_CHECKING:
    from stepkeep_lab.simulation.database import Database
    from stepkeep_lab.simulation.tables import Tables

AWAITS, PARKED = 100_000_000_000_000_000, 200_000_000_000_000_000
"""The times of steps that are set aside, and of those that are parked."""

Spot = tuple[str, str, str, int]


class LimitRows:
    """Everything that is committed about limits."""

    def __init__(self) -> None:
        self.keys: dict[LimitKey, LimitKeyRow] = {}
        self.holds: dict[tuple[str, str, int, str], LimitHold] = {}
        self.waits: dict[tuple[str, str, int], LimitWait] = {}
        self.lines: dict[Spot, int | None] = {}

    def ended_by(self, what: LimitChange) -> list[LimitHold]:
        """The places of the claims that end."""
        ended = set(what.ended)
        return [one for one in self.holds.values() if (one.tenant, one.run_id, one.no, one.fence) in ended]

    def lock(self, place: LimitKey, now: int) -> LimitKeyRow:
        """A key as it stands; a new one is numbered from now on."""
        tenant, name, key = place
        new = LimitKeyRow(tenant=tenant, name=name, key=key, seq=now, held=0, tat=0)
        self.keys[place] = replace(self.keys.get(place, new), used_at=now)
        return self.keys[place]

    def write(self, what: LimitChange, tables: Tables) -> None:
        for row in what.keys:
            self.keys[row.limit_key] = replace(row, freed=())
        for gone in what.left:
            self.waits.pop(gone, None)
        for hold in what.holds:
            self.holds[hold.tenant, hold.run_id, hold.no, hold.name] = hold
        for one in what.parked:
            self._park(one, tables)
        for line in what.begun:
            self.lines.setdefault(line[:4], line.due_at)
        for line in what.lines:
            if line[:4] in self.lines:
                self.lines[line[:4]] = line.due_at
        for line in what.searched:
            if not any(_spot(one) == line[:4] for one in self.waits.values()):
                self.lines.pop(line[:4], None)
        for held in sorted(self.ended_by(what), key=lambda one: one.seq):
            self._free(held, what.at)

    def _park(self, wait: LimitWait, tables: Tables) -> None:
        steps = tables.steps[wait.tenant, wait.run_id]
        ready_at = steps[wait.no].ready_at
        if ready_at is not None and AWAITS <= ready_at < PARKED:
            steps[wait.no] = replace(steps[wait.no], ready_at=ready_at + AWAITS)
        self.waits[wait.tenant, wait.run_id, wait.no] = wait

    def _free(self, held: LimitHold, now: int) -> None:
        del self.holds[held.tenant, held.run_id, held.no, held.name]
        place = (held.tenant, held.name, held.key)
        row = self.keys[place]
        if row.held < held.weight:
            raise InvariantBroken(f"the schema refused a key of a limit with less than nothing held: {place}")
        self.keys[place] = replace(row, held=row.held - held.weight, freed=(*row.freed, held.seq))
        self.lines.update(dict.fromkeys([spot for spot in self.lines if spot[:3] == place], now))

    def delete(self, key: RunKey) -> None:
        for hold in [one for one, row in self.holds.items() if (row.tenant, row.run_id) == key]:
            del self.holds[hold]
        for wait in [one for one in self.waits if one[:2] == key]:
            del self.waits[wait]


def _spot(wait: LimitWait) -> Spot:
    return wait.tenant, wait.name, wait.key, wait.queue


class ModelLimits(LimitStore):
    """`LimitStore` on the model database."""

    def __init__(self, database: Database, wire: Asking, clock: Callable[[], int]) -> None:
        self._database, self._wire, self._clock = database, wire, clock

    @property
    def _rows(self) -> LimitRows:
        return self._database.tables.limits

    def _due(self) -> Iterator[tuple[int, Spot]]:
        now = self._clock()
        yield from ((due_at, spot) for spot, due_at in self._rows.lines.items() if due_at is not None and due_at <= now)

    async def find_due(self, queues: Collection[int], limit: int) -> list[DueLine]:
        def work() -> list[DueLine]:
            found = sorted((due_at, spot) for due_at, spot in self._due() if spot[3] in queues)[:limit]
            return [DueLine(LimitLine(*spot, due_at), self._rows.keys[spot[:3]]) for due_at, spot in found]

        return await self._wire.ask("find due limit lines", work)

    async def find_parked(self, line: LimitLine, limit: int) -> list[ResourceWaiter]:
        def work() -> list[ResourceWaiter]:
            tables = self._database.tables
            found = [
                one
                for one in self._rows.waits.values()
                if _spot(one) == line[:4] and not tables.is_quarantined((one.tenant, one.run_id))
            ]
            found.sort(key=lambda one: (-one.priority, one.asked_at, one.run_id, one.no))
            return [
                ResourceWaiter(one.tenant, one.run_id, one.no, tables.runs[one.tenant, one.run_id].definition_id, line)
                for one in found[:limit]
            ]

        return await self._wire.ask("find parked steps", work)

    async def has_due(self) -> bool:
        return await self._wire.ask("has due limit lines", lambda: any(self._due()))

    async def wake(self, tenant: str, name: str, after_us: int) -> None:
        def work() -> None:
            due_at = self._clock() + after_us
            for spot, before in self._rows.lines.items():
                if spot[:2] == (tenant, name):
                    self._rows.lines[spot] = due_at if before is None else min(before, due_at)

        await self._wire.ask("wake limit", work)

    async def count_use(self, tenant: str) -> list[LimitUse]:
        def work() -> list[LimitUse]:
            held = [row for row in self._rows.keys.values() if row.tenant == tenant and row.held]
            waits = [one for one in self._rows.waits.values() if one.tenant == tenant]
            return [
                LimitUse(
                    name,
                    sum(row.held for row in held if row.name == name),
                    sum(row.name == name for row in held),
                    sum(one.name == name for one in waits),
                )
                for name in sorted({row.name for row in held} | {one.name for one in waits})
            ]

        return await self._wire.ask("count limit use", work)

    async def read_keys(self, tenant: str, name: str, after: str, limit: int) -> list[KeyInUse]:
        def work() -> list[KeyInUse]:
            lines = {spot[:3] for spot in self._rows.lines}
            found = [
                row
                for row in self._rows.keys.values()
                if (row.tenant, row.name) == (tenant, name) and row.key > after and (row.held or row.limit_key in lines)
            ]
            found.sort(key=lambda row: row.key)
            return [
                KeyInUse(row.name, row.key, row.held, row.tat, self._waiting(row.limit_key)) for row in found[:limit]
            ]

        return await self._wire.ask("read limit keys", work)

    def _waiting(self, place: LimitKey) -> int:
        return sum(_spot(one)[:3] == place for one in self._rows.waits.values())

    async def read_holds(self, tenant: str, name: str, key: str, limit: int) -> list[LimitHold]:
        def work() -> list[LimitHold]:
            found = [one for one in self._rows.holds.values() if (one.tenant, one.name, one.key) == (tenant, name, key)]
            return sorted(found, key=lambda one: one.seq)[:limit]

        return await self._wire.ask("read limit holds", work)

    async def read_waits(self, tenant: str, run_id: str) -> list[LimitWait]:
        def work() -> list[LimitWait]:
            found = [one for one in self._rows.waits.values() if (one.tenant, one.run_id) == (tenant, run_id)]
            return sorted(found, key=lambda one: one.no)

        return await self._wire.ask("read limit waits", work)

    async def forget_keys(self, unused_us: int, limit: int) -> int:
        def work() -> int:
            now, lines = self._clock(), {spot[:3] for spot in self._rows.lines}
            gone = [
                place
                for place, row in sorted(self._rows.keys.items())
                if not row.held and row.used_at < now - unused_us and row.tat < now and place not in lines
            ][:limit]
            for place in gone:
                del self._rows.keys[place]
            return len(gone)

        return await self._wire.ask("forget limit keys", work)
