"""The reads of triggers for both stores, whose statements have the same names. Nothing here decides or knows SQL."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from stepkeep.kernel.states import RunState
from stepkeep.kernel.triggers import TriggerKind
from stepkeep.store.columns import FIRING_WIDTH, backfill_from, firing_from, json_text, trigger_from
from stepkeep.store.deliveries import Transact
from stepkeep.store.people import Read
from stepkeep.store.reads import SharedReads, first, only
from stepkeep.store.triggers import FIRST_FIRING, Backfill, Firing, TriggerKey, TriggerRow, Watched


class TriggerTables:
    """`TriggerStore` by the statements of one store."""

    def __init__(self, statements: SimpleNamespace, read: Read, transact: Transact, store: SharedReads) -> None:
        self._sql, self._read, self._transact, self._store = statements, read, transact, store

    async def find_due(self, limit: int) -> list[TriggerKey]:
        return await self._read(
            lambda row: (str(row[0]), str(row[1])), self._sql.find_due_triggers, self._store._time, limit
        )

    async def read(self, tenant: str, name: str) -> TriggerRow | None:
        return first(await self._read(trigger_from, self._sql.read_trigger, tenant, name))

    async def list_all(self, tenant: str, after: str = "", limit: int = 1000) -> list[TriggerRow]:
        return await self._read(trigger_from, self._sql.list_triggers, tenant, after, limit)

    async def list_of_workflow(self, tenant: str, workflow: str) -> list[TriggerRow]:
        return await self._read(trigger_from, self._sql.list_triggers_of_workflow, tenant, workflow)

    async def list_of_kind(self, tenant: str, kind: TriggerKind) -> list[TriggerRow]:
        return await self._read(trigger_from, self._sql.list_triggers_of_kind, tenant, kind.value)

    async def read_watched(self, tenant: str, name: str, limit: int = 1000) -> list[Watched]:
        return await self._read(_watched, self._sql.read_watched_firings, tenant, name, limit)

    async def read_endings(self, tenant: str, name: str, limit: int = 100) -> list[Watched]:
        return await self._read(_watched, self._sql.read_endings, tenant, name, limit)

    async def find_unseen(self, tenant: str, name: str, topic: str, after: str, limit: int = 500) -> list[str]:
        return await self._read(only, self._sql.find_unseen_runs, tenant, name, topic, after, limit)

    async def list_firings(
        self, tenant: str, name: str, before: tuple[int, str] = (FIRST_FIRING, ""), limit: int = 100
    ) -> list[Firing]:
        return await self._read(firing_from, self._sql.list_firings, tenant, name, *before, limit)

    async def read_firings(self, tenant: str, name: str, moments: Sequence[str]) -> list[Firing]:
        return await self._read(firing_from, self._sql.read_firings, tenant, name, json_text(list(moments)))

    async def find_firings_of(self, tenant: str, run_ids: Sequence[str]) -> dict[str, Firing]:
        known = json_text([run_id for run_id in run_ids if self._store._can_exist(run_id)])
        found = await self._read(firing_from, self._sql.find_firings_of, tenant, known)
        return {str(one.run_id): one for one in found}

    async def list_backfills(self, tenant: str, name: str, limit: int = 100) -> list[Backfill]:
        return await self._read(backfill_from, self._sql.list_backfills, tenant, name, limit)

    async def read_backfill(self, tenant: str, backfill_id: str) -> Backfill | None:
        return first(await self._read(backfill_from, self._sql.read_backfill, tenant, backfill_id))

    async def list_all_backfills(self, tenant: str, before: str = "~", limit: int = 100) -> list[Backfill]:
        return await self._read(backfill_from, self._sql.list_backfills_of_tenant, tenant, before, limit)

    async def forget_firings(self, tenant: str, before: int, limit: int) -> int:
        [gone] = await self._transact([(self._sql.forget_firings, (tenant, before, limit))])
        return len(gone)


def _watched(row: Sequence[Any]) -> Watched:
    state = row[FIRING_WIDTH]
    return Watched(firing_from(row[:FIRING_WIDTH]), None if state is None else RunState(state))
