"""The reads of triggers for both stores, whose statements have the same names. Nothing here decides or knows SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.triggers import TriggerKind
from stepkeep.store.columns import FIRING_WIDTH, backfill_from, firing_from, json_text, trigger_from
from stepkeep.store.part import Part
from stepkeep.store.reading import first, only
from stepkeep.store.rows import (
    FIRST_FIRING,
    Backfill,
    Firing,
    TriggerKey,
    TriggerRow,
    Watched,
)


class TriggerStore(Part):
    """The reads of triggers, and retention. Rows that were removed are left out, except by `read`."""

    async def find_due(self, limit: int) -> list[TriggerKey]:
        """Triggers of all tenants that a sweep must look at, the longest due first."""
        return await self._read(
            lambda row: (str(row[0]), str(row[1])), self._sql.find_due_triggers, self._time(), limit
        )

    async def read(self, tenant: str, name: str) -> TriggerRow | None:
        """A trigger, also one that was removed."""
        return first(await self._read(trigger_from, self._sql.read_trigger, tenant, name))

    async def list_all(self, tenant: str, after: str = "", limit: int = 1000) -> list[TriggerRow]:
        return await self._read(trigger_from, self._sql.list_triggers, tenant, after, limit)

    async def list_of_workflow(self, tenant: str, workflow: str) -> list[TriggerRow]:
        return await self._read(trigger_from, self._sql.list_triggers_of_workflow, tenant, workflow)

    async def list_of_kind(self, tenant: str, kind: TriggerKind) -> list[TriggerRow]:
        return await self._read(trigger_from, self._sql.list_triggers_of_kind, tenant, kind.value)

    async def read_watched(self, tenant: str, name: str, limit: int = 1000) -> list[Watched]:
        """Firings that started a run under a policy, or wait, by due time."""
        return await self._read(_watched, self._sql.read_watched_firings, tenant, name, limit)

    async def read_endings(self, tenant: str, name: str, limit: int = 100) -> list[Watched]:
        """Awaiting firings whose run has ended or is gone, by due time."""
        return await self._read(_watched, self._sql.read_endings, tenant, name, limit)

    async def find_unseen(self, tenant: str, name: str, topic: str, after: str, limit: int = 500) -> list[str]:
        """Unfinished runs of a workflow after an id for which the trigger has no firing, oldest first."""
        return await self._read(only, self._sql.find_unseen_runs, tenant, name, topic, after, limit)

    async def list_firings(
        self, tenant: str, name: str, before: tuple[int, str] = (FIRST_FIRING, ""), limit: int = 100
    ) -> list[Firing]:
        """Firings, the latest due first."""
        return await self._read(firing_from, self._sql.list_firings, tenant, name, *before, limit)

    async def read_firings(self, tenant: str, name: str, moments: Sequence[str]) -> list[Firing]:
        return await self._read(firing_from, self._sql.read_firings, tenant, name, json_text(list(moments)))

    async def find_firings_of(self, tenant: str, run_ids: Sequence[str]) -> dict[str, Firing]:
        """The firings that started runs, by run; one that no trigger started is left out."""
        known = json_text([run_id for run_id in run_ids if self._can_exist(run_id)])
        found = await self._read(firing_from, self._sql.find_firings_of, tenant, known)
        return {str(one.run_id): one for one in found}

    async def list_backfills(self, tenant: str, name: str, limit: int = 100) -> list[Backfill]:
        """Backfills of a trigger, newest first."""
        return await self._read(backfill_from, self._sql.list_backfills, tenant, name, limit)

    async def read_backfill(self, tenant: str, backfill_id: str) -> Backfill | None:
        return first(await self._read(backfill_from, self._sql.read_backfill, tenant, backfill_id))

    async def list_all_backfills(self, tenant: str, before: str = "~", limit: int = 100) -> list[Backfill]:
        """The backfills of all triggers, newest first, before an id."""
        return await self._read(backfill_from, self._sql.list_backfills_of_tenant, tenant, before, limit)

    async def forget_firings(self, tenant: str, before: int, limit: int) -> int:
        """Delete the oldest decided firings from before a moment, up to a number; returns how many. One stays while the
        run that it started, or the run that it is about, is kept."""
        [gone] = await self._transact([(self._sql.forget_firings, (tenant, before, limit))])
        return len(gone)


def _watched(row: Sequence[Any]) -> Watched:
    state = row[FIRING_WIDTH]
    return Watched(firing_from(row[:FIRING_WIDTH]), None if state is None else RunState(state))
