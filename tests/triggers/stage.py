"""A stage for tests of triggers: a clock to set, triggers in one line, and what fired."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from stepkeep.kernel.definition import Definition
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.triggers import CatchUp, Overlap, Schedule, TriggerSpec
from stepkeep.operations.triggers import manage
from stepkeep.operations.triggers.sweep import TriggerSweep
from stepkeep.schedules.moments import checked
from stepkeep.store.rows import Firing, FiringState, TriggerRow
from tests.workbench import ACTOR, TENANT, Bench, chain

WORK = chain("report", 1)
NAME = "nightly"
BY_ANN = Caller(TENANT, "ann")
EIGHT = "2031-05-01T08:30:00+00:00"
MINUTE = 60 * 1_000_000
HOUR = 60 * MINUTE


def micros(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 1_000_000


def hourly(**given: Any) -> TriggerSpec:
    """A trigger at the full hour."""
    schedule = given.pop("schedule", Schedule(cron="0 * * * *"))
    kept = None if schedule is None else checked(schedule)
    plain: dict[str, Any] = {"name": NAME, "schedule": kept, "overlap": Overlap.ALLOW}
    return TriggerSpec(**(plain | {"catch_up": CatchUp()} | given))


class Stage:
    """One opening of a database whose clock is set by hand."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.store = bench, bench.store
        self.sweeper = TriggerSweep(bench.transactor, bench.starter)
        self.firer = self.sweeper.firer

    async def set_clock(self, text: str) -> None:
        self.store.clock_offset += micros(text) - await self.store.now()

    async def add(self, spec: TriggerSpec | None = None, workflow: Definition = WORK) -> dict[str, Any]:
        await self.bench.publish(workflow)
        return await manage.add_trigger(self.firer, spec or hourly(), workflow.name, caller=Caller(TENANT, ACTOR))

    async def sweep(self) -> int:
        return await self.sweeper.sweep()

    async def sweep_at(self, text: str) -> int:
        await self.set_clock(text)
        return await self.sweep()

    async def row(self, name: str = NAME) -> TriggerRow:
        row = await self.store.triggers.read(TENANT, name)
        assert row is not None
        return row

    async def firings(self, name: str = NAME) -> list[Firing]:
        """All firings, oldest first."""
        return (await self.store.triggers.list_firings(TENANT, name))[::-1]

    async def states(self, name: str = NAME) -> list[tuple[str, str]]:
        """The hour and minute of each firing, or what it stands for, and its state."""
        return [(one.moment[11:16] or one.moment, one.state.value) for one in await self.firings(name)]

    async def runs(self, name: str = NAME) -> list[str]:
        """The runs that a trigger started, oldest first."""
        found = [one.run_id for one in await self.firings(name) if one.state is FiringState.STARTED]
        return [run_id for run_id in found if run_id is not None]
