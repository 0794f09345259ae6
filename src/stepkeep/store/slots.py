"""The table of execution slots: which runs wait for one, which hold one, and the reads of the sweep that grants them.

The rows are written with the decisions on their runs (`NewRun.slot`, `Write.granted`). A slot is held by a granted row
whose run has not ended, so that the end of a run writes nothing here. It decides nothing; `operations.limits.slots`
does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from stepkeep.kernel.machine.states import RunState
from stepkeep.store.columns import json_text, slot_from
from stepkeep.store.part import Part
from stepkeep.store.reading import first
from stepkeep.store.rows import Held, SlotRow

MOST_WORKFLOWS = 1000
"""How many workflows are read at most."""


class Waiting(NamedTuple):
    """A run that waits for a slot, and its state."""

    row: SlotRow
    state: RunState


class WorkflowSlots(NamedTuple):
    """How many runs of a workflow hold a slot, and how many wait for one. `most` is the smallest limit that the
    definition of one of them has."""

    workflow: str
    held: int
    waiting: int
    most: int | None


class SlotStore(Part):
    """The table of execution slots."""

    async def find_workflows(self, limit: int = MOST_WORKFLOWS) -> list[tuple[str, str]]:
        """Workflows of all tenants of which a run waits, as (tenant, workflow), in this order."""
        return await self._read(lambda row: (row[0], row[1]), self._sql.find_slot_workflows, limit)

    async def count_held(self, tenant: str) -> Held:
        """How many runs of each workflow hold a slot."""
        return dict(await self._read(lambda row: (row[0], row[1]), self._sql.count_held_slots, tenant))

    async def find_waiting(self, tenant: str, workflow: str, limit: int) -> list[Waiting]:
        """Runs that wait, in the order in which they are granted a slot: priority (high first), arrival, run id. Idle,
        paused and quarantined runs are left out; ended ones are not."""
        return await self._read(waiting_from, self._sql.find_slot_waiters, tenant, workflow, limit)

    async def forget_ended(self, tenant: str, run_ids: Sequence[str]) -> None:
        """Delete the rows of runs that hold a slot and have ended, and of these runs if they have ended."""
        await self._transact([(self._sql.forget_slots, (tenant, json_text(list(run_ids))))])

    async def read(self, tenant: str, run_id: str) -> SlotRow | None:
        """The row of a run; None for a run under no limit."""
        return first(await self._read(slot_from, self._sql.read_slot, tenant, run_id))

    async def read_use(self, tenant: str) -> list[WorkflowSlots]:
        """What is held and waited for, by workflow. Quarantined runs count."""
        return await self._read(lambda row: WorkflowSlots(*row), self._sql.read_slot_use, tenant, MOST_WORKFLOWS)

    async def count_waiting(self, tenant: str, limit: int) -> int:
        """How many queued runs of a tenant wait for a slot; counted up to the limit."""
        [found] = await self._read(lambda row: int(row[0]), self._sql.count_slot_waiters, tenant, limit)
        return found


def waiting_from(row: Sequence[Any]) -> Waiting:
    """A waiting run, from its columns and its state."""
    return Waiting(slot_from(row[:-1]), RunState(row[-1]))
