"""Held resources of the model database. It follows the statements of the real stores, each in one round trip."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from stepkeep.kernel.errors import InvariantBroken
from stepkeep.kernel.machine.rows import Step
from stepkeep.store.change import RunKey, Write
from stepkeep.store.resources import ResourceStore
from stepkeep.store.rows import HoldRow, ResourceWaiter
from stepkeep_lab.simulation.delivery_tables import Asking

if TYPE_CHECKING:
    from stepkeep_lab.simulation.database import Database

FIRST, END = 100_000_000_000_000_000, 200_000_000_000_000_000
"""The times of steps that are claimed together with their resources."""

Steps = Mapping[RunKey, Mapping[int, Step]]


class HoldRows:
    """Everything that is committed about held resources."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str, str, int], HoldRow] = {}

    def write(self, what: Write, steps: Steps) -> None:
        """Delete what is not held any more, then add. It is called when the steps are written."""
        tenants = {hold.tenant for hold in what.rows.of(HoldRow)}
        for key, row in list(self.rows.items()):
            if row.tenant in tenants and not _is_held(row, steps):
                del self.rows[key]
        for hold in what.rows.of(HoldRow):
            alone = [one for one in self.rows.values() if (one.tenant, one.resource) == (hold.tenant, hold.resource)]
            if hold.mode == "exclusive" and any(one.mode == "exclusive" for one in alone):
                raise InvariantBroken("a resource has one exclusive holder")
            self.rows[hold.tenant, hold.resource, hold.run_id, hold.no] = hold

    def held(self, tenant: str, steps: Steps) -> list[HoldRow]:
        """What steps of a tenant hold."""
        found = [row for row in self.rows.values() if row.tenant == tenant and _is_held(row, steps)]
        return sorted(found, key=lambda row: (row.resource, row.run_id, row.no))

    def delete(self, key: RunKey) -> None:
        for place, row in list(self.rows.items()):
            if (row.tenant, row.run_id) == key:
                del self.rows[place]


def _is_held(row: HoldRow, steps: Steps) -> bool:
    step = steps.get((row.tenant, row.run_id), {}).get(row.no)
    return step is not None and step.fence == row.fence and step.worker is not None


class ModelResources(ResourceStore):
    """`ResourceStore` on the model database."""

    def __init__(self, database: Database, wire: Asking) -> None:
        self._database, self._wire = database, wire

    async def read_holds(self, tenant: str) -> list[HoldRow]:
        tables = self._database.tables
        return await self._wire.ask("read resource holds", lambda: tables.holds.held(tenant, tables.steps))

    async def find_waiting(
        self, queues: Collection[int], limit: int, run: RunKey | None = None, start: int = 0
    ) -> list[ResourceWaiter]:
        def work() -> list[ResourceWaiter]:
            tables = self._database.tables
            found = [
                (-step.priority, step.ready_at, step.run_id, step.no, key)
                for key, rows in tables.steps.items()
                for step in rows.values()
                if run in (None, key) and step.queue in queues and _awaits(step) and not tables.is_quarantined(key)
            ]
            found.sort()
            chosen = found[start : start + limit]
            return [ResourceWaiter(*key, no, tables.runs[key].definition_id) for _, _, _, no, key in chosen]

        return await self._wire.ask("find resource waiters", work)

    async def has_waiting(self) -> bool:
        def work() -> bool:
            return any(_awaits(step) for rows in self._database.tables.steps.values() for step in rows.values())

        return await self._wire.ask("has resource waiters", work)


def _awaits(step: Step) -> bool:
    return step.ready_at is not None and FIRST <= step.ready_at < END
