"""The tables of triggers of the model database: the same reads and the same checks as those of the real stores.

Rows are frozen values under their keys. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from stepkeep.kernel.errors import Contended, InvariantBroken
from stepkeep.kernel.machine.rows import Details, Run
from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.triggers import TriggerKind
from stepkeep.store.change import RunKey, Write
from stepkeep.store.rows import (
    FIRST_FIRING,
    Backfill,
    Firing,
    FiringState,
    TriggerChange,
    TriggerKey,
    TriggerRow,
    Watched,
)
from stepkeep.store.triggers import TriggerStore
from stepkeep_lab.simulation.people_tables import Wire

T = TypeVar("T")


class TriggerRows:
    """Every committed row of triggers."""

    def __init__(self) -> None:
        self.triggers: dict[TriggerKey, TriggerRow] = {}
        self.firings: dict[TriggerKey, dict[str, Firing]] = {}
        self.backfills: dict[tuple[str, str], Backfill] = {}

    def check(self, what: Write) -> None:
        """Refuse what a real database would."""
        for change in what.rows.of(TriggerChange):
            before = self.triggers.get((change.row.tenant, change.row.name))
            if (0 if before is None else before.seq) != change.was:
                raise Contended("another transaction changed a trigger: run the whole transaction again")
            if change.row.seq <= change.was:
                raise InvariantBroken("each change of a trigger has a new sequence number")
        for firing in what.rows.of(Firing):
            kept = self.firings.get((firing.tenant, firing.trigger_name), {}).get(firing.moment)
            if kept is not None and kept.run_id is not None and kept.run_id != firing.run_id:
                raise InvariantBroken("a moment fires once: its run never changes")
            if (firing.state is FiringState.STARTED) != (firing.run_id is not None):
                raise InvariantBroken("a firing that started has a run, and no other has one")

    def write(self, what: Write) -> None:
        """Make it so; it was checked."""
        for change in what.rows.of(TriggerChange):
            self.triggers[change.row.tenant, change.row.name] = change.row
        for firing in what.rows.of(Firing):
            mine = self.firings.setdefault((firing.tenant, firing.trigger_name), {})
            kept = mine.get(firing.moment, firing)
            mine[firing.moment] = replace(firing, made_at=kept.made_at, source=kept.source)
        for one in what.rows.of(Backfill):
            self.backfills[one.tenant, one.id] = one

    def holds_back(self, key: RunKey) -> bool:
        """Whether a trigger has yet to decide about the end of this run."""
        return any(
            firing.source == key[1] and firing.state is FiringState.AWAITING
            for (tenant, name), mine in self.firings.items()
            if tenant == key[0] and self.triggers[tenant, name].removed_at is None
            for firing in mine.values()
        )

    def noted_by(self, what: Write, details: Mapping[RunKey, Details], now: int) -> list[Firing]:
        """The ends of runs that this write notes, for the triggers that it sees."""
        ended = [(new.run, new.details.workflow) for new in what.new_runs if new.run.ended_at is not None]
        ended += [
            (change.run, details[change.run.tenant, change.run.id].workflow)
            for change in what.runs
            if change.run.ended_at is not None
        ]
        return [
            Firing(
                tenant=run.tenant,
                trigger_name=row.name,
                moment=run.id,
                due_at=now,
                state=FiringState.AWAITING,
                watched=1,
                made_at=now,
                depth=0,
                source=run.id,
            )
            for run, workflow in ended
            for row in self.triggers.values()
            if (row.tenant, row.topic, row.removed_at) == (run.tenant, workflow, None) and row.kind is TriggerKind.ENDED
        ]

    def note(self, noted: Sequence[Firing]) -> None:
        for one in noted:
            self.firings.setdefault((one.tenant, one.trigger_name), {}).setdefault(one.moment, one)


class ModelTriggers(TriggerStore):
    """`TriggerStore` on the rows of a model database."""

    def __init__(
        self,
        rows: TriggerRows,
        runs: Mapping[RunKey, Run],
        details: Mapping[RunKey, Details],
        wire: Wire,
        clock: Callable[[], int],
    ) -> None:
        self._rows, self._runs, self._details, self._wire, self._clock = rows, runs, details, wire, clock

    async def find_due(self, limit: int) -> list[TriggerKey]:
        def look() -> list[TriggerKey]:
            now = self._clock()
            due = [(row.due_at, key) for key, row in self._rows.triggers.items() if row.due_at is not None]
            return [key for at, key in sorted(due) if at <= now][:limit]

        return await self._wire.ask("find due triggers", look)

    async def read(self, tenant: str, name: str) -> TriggerRow | None:
        return await self._look(lambda: self._rows.triggers.get((tenant, name)))

    async def list_all(self, tenant: str, after: str = "", limit: int = 1000) -> list[TriggerRow]:
        return (await self._listed(tenant, lambda row: row.name > after))[:limit]

    async def list_of_workflow(self, tenant: str, workflow: str) -> list[TriggerRow]:
        return await self._listed(tenant, lambda row: row.workflow == workflow)

    async def list_of_kind(self, tenant: str, kind: TriggerKind) -> list[TriggerRow]:
        return await self._listed(tenant, lambda row: row.kind is kind)

    async def read_watched(self, tenant: str, name: str, limit: int = 1000) -> list[Watched]:
        def look() -> list[Watched]:
            found = [one for one in self._watched(tenant, name) if one.state is not FiringState.AWAITING]
            return [Watched(one, self._state(tenant, one.run_id)) for one in found][:limit]

        return await self._look(look)

    async def read_endings(self, tenant: str, name: str, limit: int = 100) -> list[Watched]:
        def look() -> list[Watched]:
            found = [one for one in self._watched(tenant, name) if one.state is FiringState.AWAITING]
            ended = [one for one in found if not self._lives(tenant, one.source)]
            return [Watched(one, self._state(tenant, one.source)) for one in ended][:limit]

        return await self._look(look)

    async def find_unseen(self, tenant: str, name: str, topic: str, after: str, limit: int = 500) -> list[str]:
        def look() -> list[str]:
            seen = self._rows.firings.get((tenant, name), {})
            mine = [
                run_id
                for (owner, run_id), details in self._details.items()
                if owner == tenant
                and details.workflow == topic
                and run_id > after
                and run_id not in seen
                and self._lives(tenant, run_id)
            ]
            return sorted(mine)[:limit]

        return await self._look(look)

    async def list_firings(
        self, tenant: str, name: str, before: tuple[int, str] = (FIRST_FIRING, ""), limit: int = 100
    ) -> list[Firing]:
        def look() -> list[Firing]:
            rows = self._rows.firings.get((tenant, name), {}).values()
            found = [one for one in rows if (one.due_at, one.moment) < before]
            return sorted(found, key=lambda one: (one.due_at, one.moment), reverse=True)[:limit]

        return await self._look(look)

    async def read_firings(self, tenant: str, name: str, moments: Sequence[str]) -> list[Firing]:
        mine = self._rows.firings.get((tenant, name), {})
        return await self._look(lambda: [mine[moment] for moment in sorted(set(moments)) if moment in mine])

    async def find_firings_of(self, tenant: str, run_ids: Sequence[str]) -> dict[str, Firing]:
        def look() -> dict[str, Firing]:
            rows = [one for (owner, _), mine in self._rows.firings.items() if owner == tenant for one in mine.values()]
            return {one.run_id: one for one in rows if one.run_id is not None and one.run_id in run_ids}

        return await self._look(look)

    async def list_backfills(self, tenant: str, name: str, limit: int = 100) -> list[Backfill]:
        def look() -> list[Backfill]:
            rows = [one for one in self._rows.backfills.values() if (one.tenant, one.trigger_name) == (tenant, name)]
            return sorted(rows, key=lambda one: (one.created_at, one.id), reverse=True)[:limit]

        return await self._look(look)

    async def read_backfill(self, tenant: str, backfill_id: str) -> Backfill | None:
        def look() -> Backfill | None:
            mine = (one for one in self._rows.backfills.values() if one.tenant == tenant)
            return next((one for one in mine if one.id == backfill_id), None)

        return await self._look(look)

    async def list_all_backfills(self, tenant: str, before: str = "~", limit: int = 100) -> list[Backfill]:
        def look() -> list[Backfill]:
            rows = [one for one in self._rows.backfills.values() if one.tenant == tenant and one.id < before]
            return sorted(rows, key=lambda one: one.id, reverse=True)[:limit]

        return await self._look(look)

    async def forget_firings(self, tenant: str, before: int, limit: int) -> int:
        def forget() -> int:
            old = [
                (one.made_at, key, one.moment)
                for key, mine in self._rows.firings.items()
                if key[0] == tenant
                for one in mine.values()
                if not one.watched and one.made_at < before and not self._is_kept(tenant, one)
            ]
            for _, key, moment in sorted(old)[:limit]:
                del self._rows.firings[key][moment]
            return len(old[:limit])

        return await self._wire.ask("forget firings", forget)

    def _is_kept(self, tenant: str, one: Firing) -> bool:
        return any((tenant, run_id) in self._runs for run_id in (one.run_id, one.source) if run_id is not None)

    def _watched(self, tenant: str, name: str) -> list[Firing]:
        rows = self._rows.firings.get((tenant, name), {}).values()
        return sorted((one for one in rows if one.watched), key=lambda one: (one.due_at, one.moment))

    def _state(self, tenant: str, run_id: str | None) -> RunState | None:
        run = None if run_id is None else self._runs.get((tenant, run_id))
        return None if run is None else run.state

    def _lives(self, tenant: str, run_id: str | None) -> bool:
        run = None if run_id is None else self._runs.get((tenant, run_id))
        return run is not None and run.ended_at is None

    async def _listed(self, tenant: str, fits: Callable[[TriggerRow], bool]) -> list[TriggerRow]:
        def look() -> list[TriggerRow]:
            rows = [row for row in self._rows.triggers.values() if row.tenant == tenant and row.removed_at is None]
            return sorted(filter(fits, rows), key=lambda row: row.name)

        return await self._look(look)

    async def _look(self, look: Callable[[], T]) -> T:
        return await self._wire.ask("read triggers", look)
