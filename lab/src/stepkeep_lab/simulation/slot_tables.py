"""Execution slots of the model database. It follows the statements of the real stores, each in one round trip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from stepkeep.kernel.errors import Contended, InvariantBroken
from stepkeep.kernel.machine.rows import Run
from stepkeep.kernel.machine.states import RunState
from stepkeep.store.change import RunKey, Write
from stepkeep.store.rows import Held, SlotGrant, SlotRow
from stepkeep.store.slots import MOST_WORKFLOWS, SlotStore, Waiting, WorkflowSlots
from stepkeep_lab.simulation.delivery_tables import Asking

if TYPE_CHECKING:
    from stepkeep_lab.simulation.database import Database


class SlotRows:
    """Everything that is committed about execution slots."""

    def __init__(self) -> None:
        self.rows: dict[RunKey, SlotRow] = {}

    def refuse(self, what: Write) -> None:
        """Raise if a slot is to be granted to a run that does not wait for one."""
        for grant in what.rows.of(SlotGrant):
            found = self.rows.get((grant.tenant, grant.run_id))
            if found is None or found.granted_at is not None:
                raise Contended("another transaction granted a slot: run the whole transaction again")

    def write(self, what: Write) -> None:
        for slot in what.every_row().of(SlotRow):
            self.rows[slot.tenant, slot.run_id] = slot
        for grant in what.rows.of(SlotGrant):
            key = (grant.tenant, grant.run_id)
            if self.rows[key].granted_at is not None:
                raise InvariantBroken("a slot is granted to a run once")
            self.rows[key] = replace(self.rows[key], granted_at=grant.granted_at)

    def waits(self, key: RunKey) -> bool:
        """Whether a run waits for a slot."""
        return key in self.rows and self.rows[key].granted_at is None

    def held(self, tenant: str, runs: Mapping[RunKey, Run]) -> Held:
        """How many runs of each workflow hold a slot."""
        found: dict[str, int] = {}
        for key, row in self.rows.items():
            if row.tenant == tenant and row.granted_at is not None and runs[key].ended_at is None:
                found[row.workflow] = found.get(row.workflow, 0) + 1
        return found


class ModelSlots(SlotStore):
    """`SlotStore` on the model database."""

    def __init__(self, database: Database, wire: Asking) -> None:
        self._database, self._wire = database, wire

    @property
    def _rows(self) -> dict[RunKey, SlotRow]:
        return self._database.tables.slots.rows

    def _run(self, row: SlotRow) -> Run:
        return self._database.tables.runs[row.tenant, row.run_id]

    async def find_workflows(self, limit: int = MOST_WORKFLOWS) -> list[tuple[str, str]]:
        def work() -> list[tuple[str, str]]:
            return sorted({(row.tenant, row.workflow) for row in self._rows.values() if row.granted_at is None})[:limit]

        return await self._wire.ask("find slot workflows", work)

    async def count_held(self, tenant: str) -> Held:
        tables = self._database.tables
        return await self._wire.ask("count held slots", lambda: tables.slots.held(tenant, tables.runs))

    async def find_waiting(self, tenant: str, workflow: str, limit: int) -> list[Waiting]:
        def work() -> list[Waiting]:
            tables = self._database.tables
            found = [
                row
                for key, row in self._rows.items()
                if (row.tenant, row.workflow, row.granted_at) == (tenant, workflow, None)
                and not tables.is_quarantined(key)
                and self._run(row).state not in (RunState.IDLE, RunState.PAUSED)
            ]
            found.sort(key=lambda row: (-row.priority, row.asked_at, row.run_id))
            return [Waiting(row, self._run(row).state) for row in found[:limit]]

        return await self._wire.ask("find slot waiters", work)

    async def forget_ended(self, tenant: str, run_ids: Sequence[str]) -> None:
        def work() -> None:
            for key, row in list(self._rows.items()):
                named = row.granted_at is not None or row.run_id in run_ids
                if row.tenant == tenant and named and self._run(row).ended_at is not None:
                    del self._rows[key]

        await self._wire.ask("forget slots", work)

    async def read(self, tenant: str, run_id: str) -> SlotRow | None:
        return await self._wire.ask("read slot", lambda: self._rows.get((tenant, run_id)))

    async def read_use(self, tenant: str) -> list[WorkflowSlots]:
        def work() -> list[WorkflowSlots]:
            mine: dict[str, list[SlotRow]] = {}
            for row in self._rows.values():
                run = self._run(row)
                if row.tenant == tenant and run.ended_at is None and run.state is not RunState.IDLE:
                    mine.setdefault(row.workflow, []).append(row)
            return [_use(name, rows) for name, rows in sorted(mine.items())][:MOST_WORKFLOWS]

        return await self._wire.ask("read slot use", work)

    async def count_waiting(self, tenant: str, limit: int) -> int:
        def work() -> int:
            mine = [row for row in self._rows.values() if (row.tenant, row.granted_at) == (tenant, None)]
            return min(limit, sum(self._run(row).state is RunState.QUEUED for row in mine))

        return await self._wire.ask("count slot waiters", work)


def _use(workflow: str, rows: Sequence[SlotRow]) -> WorkflowSlots:
    held = sum(row.granted_at is not None for row in rows)
    most = min((row.most for row in rows if row.most is not None), default=None)
    return WorkflowSlots(workflow, held, len(rows) - held, most)
