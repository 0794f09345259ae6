"""Several schedulers on the model store, with drawn faults at every statement; and planted bugs, which it must find.

Virtual time, no processes. One seed gives one history. What must hold is checked from the rows alone.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from stepkeep.kernel.errors import Contended, StoreError, StoreUnavailable
from stepkeep.kernel.machine.states import RUN_TERMINAL
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.triggers import CatchUp, Keep, Overlap
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.triggers import manage, plan
from stepkeep.operations.triggers.firing import Firer, FiringBatch
from stepkeep.operations.triggers.plan import Planned
from stepkeep.store.rows import Firing, FiringState, TriggerRow
from stepkeep_lab.simulation.database import Database, Session
from stepkeep_lab.simulation.store import ModelStore, PlainWire
from tests.suites import in_proof
from tests.triggers.stage import HOUR, NAME, Stage, hourly, micros
from tests.workbench import ACTOR, TENANT, Bench

BEGIN = micros("2031-05-01T08:30:00+00:00")
MOST = 4
TURNS = 12


class FaultyWire(PlainWire):
    """Loses requests and answers: the process on this end is as good as killed there."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.is_calm = True

    async def ask(self, statement: str, work: Callable[[], Any], session: Session | None = None) -> Any:
        self._fail(f"{statement} was not sent")
        answer = await super().ask(statement, work, session)
        self._fail(f"the answer to {statement} was lost")
        return answer

    async def wait(self, statement: str, work: Callable[[], Any], session: Session) -> Any:
        self._fail(f"{statement} was not sent")
        return await super().wait(statement, work, session)

    def _fail(self, said: str) -> None:
        if not self.is_calm and self._chance.random() < 0.06:
            raise StoreUnavailable(said)


class History:
    """One seed: three schedulers, a clock that jumps, runs that end now and then, and a pause."""

    def __init__(self, seed: int, overlap: Overlap) -> None:
        self.chance, self.overlap = random.Random(seed), overlap
        self.now = BEGIN
        self.database = Database(lambda: self.now)
        self.wires = [FaultyWire(self.chance) for _ in range(3)]
        self.stages = [Stage(Bench(Transactor(ModelStore(self.database, wire)))) for wire in self.wires]
        self.findings: list[str] = []
        self.paused: list[tuple[int, int]] = []

    async def live(self) -> list[str]:
        calm = self.stages[0]
        await calm.add(hourly(overlap=self.overlap, catch_up=CatchUp(keep=Keep.ALL, most=MOST, window=24 * HOUR)))
        for turn in range(TURNS):
            before = self._runs()
            # Mostly one hour; sometimes no worker has run for many.
            hours = self.chance.choice((1, 1, 1, 2, 12))
            self.now = BEGIN + (self.now - BEGIN) // HOUR * HOUR + hours * HOUR + HOUR // 2 + 1_000_000
            await self._sweeps()
            if self._runs() - before > MOST + 1:
                self.findings.append(f"{self._runs() - before} runs were started after {hours} hours")
            self._check_overlap()
            if turn == TURNS // 2:
                await self._pause()
            if self.chance.random() < 0.6:
                await calm.bench.work_off()
        self._check_firings()
        return self.findings

    async def _sweeps(self) -> None:
        """All three sweep, with faults; then one without, as the next worker does."""
        for wire in self.wires:
            wire.is_calm = False
        for _ in range(3):
            done = await asyncio.gather(*(stage.sweep() for stage in self.stages), return_exceptions=True)
            assert all(isinstance(one, int | StoreError) for one in done), done
        for wire in self.wires:
            wire.is_calm = True
        for _ in range(3):
            await self.stages[0].sweep()

    async def _pause(self) -> None:
        await manage.pause_trigger(self.stages[0].firer, NAME, caller=Caller(TENANT, ACTOR))
        began, runs = self.now, self._runs()
        self.now += 3 * HOUR
        await self._sweeps()
        if self._runs() != runs:
            self.findings.append("a paused trigger has fired")
        await manage.resume_trigger(self.stages[0].firer, NAME, tenant=TENANT)
        self.paused.append((began, self.now))

    def _runs(self) -> int:
        return len(self.database.tables.runs)

    def _firings(self) -> list[Firing]:
        return list(self.database.tables.triggers.firings.get((TENANT, NAME), {}).values())

    def _check_overlap(self) -> None:
        live = [run for run in self.database.tables.runs.values() if run.state not in RUN_TERMINAL]
        if self.overlap is Overlap.SKIP and len(live) > 1:
            self.findings.append(f"{len(live)} runs overlap")

    def _check_firings(self) -> None:
        firings = self._firings()
        started = [one for one in firings if one.state is FiringState.STARTED]
        if len(started) != self._runs() or len({one.run_id for one in started}) != self._runs():
            self.findings.append(f"{self._runs()} runs, and {len(started)} firings that started one")
        twice = [moment for moment, count in Counter(one.due_at for one in firings).items() if count > 1]
        if twice:
            self.findings.append(f"{len(twice)} moments have fired twice")
        row = self.database.tables.triggers.triggers[TENANT, NAME]
        assert row.next_at is not None
        known = {one.due_at for one in firings}
        gap = 0
        for moment in range(BEGIN + HOUR // 2, row.next_at, HOUR):
            gap = 0 if moment in known or any(a <= moment <= b for a, b in self.paused) else gap + 1
            # One skipped firing stands for the moments that are not caught up.
            if gap and not any(one.state is FiringState.SKIPPED and one.due_at <= moment for one in firings):
                self.findings.append(f"the moment {plan.moment_text(moment)} is not on record")
        if self.overlap is Overlap.ALLOW and max(known) != row.next_at - HOUR:
            self.findings.append("the last moment has not fired")


def run_seed(seed: int, overlap: Overlap) -> list[str]:
    return asyncio.run(History(seed, overlap).live())


@pytest.mark.parametrize("seeds", [15, in_proof(1500)])
@pytest.mark.parametrize("overlap", [Overlap.ALLOW, Overlap.SKIP])
def test_schedulers_with_faults_keep_every_promise(overlap: Overlap, seeds: int) -> None:
    assert {seed: found for seed in range(seeds) if (found := run_seed(seed, overlap))} == {}


# -- planted bugs ------------------------------------------------------------------------------------------------------
def fires_twice(patch: pytest.MonkeyPatch) -> None:
    """The firing has a key of its own for each try, and the trigger's row is not checked."""
    numbers = iter(range(10**6))
    real = plan.new_firing

    def new_firing(row: TriggerRow, moment: str, *given: Any) -> Firing:
        return real(row, f"{moment}/{next(numbers)}", *given)

    patch.setattr(plan, "new_firing", new_firing)
    decide = FiringBatch.decide

    def unchecked(self: FiringBatch, loaded: Any) -> Any:
        row = loaded.triggers.get(self._key)
        if row is not None:
            self._was = row.seq
            self._planned = replace(self._planned, row=replace(self._planned.row, seq=row.seq + 1))
        return decide(self, loaded)

    patch.setattr(FiringBatch, "decide", unchecked)


def misses_after_a_crash(patch: pytest.MonkeyPatch) -> None:
    """The next moment is written in a transaction before that of the runs."""
    real = Firer.carry_out

    async def carry_out(self: Firer, before: Any, planned: Planned, *given: Any) -> Any:
        if not planned.starts:
            return await real(self, before, planned, *given)
        first = await real(self, before, replace(planned, starts=(), records=()), *given)
        if first is None:
            return None
        again = replace(planned, row=replace(planned.row, seq=planned.row.seq + 1))
        return await real(self, planned.row, again, *given)

    patch.setattr(Firer, "carry_out", carry_out)


def ignores_overlap(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plan._Line, "_is_busy", False)


def catches_up_without_bound(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plan, "_most", lambda catch_up: 1000)


def fires_while_paused(patch: pytest.MonkeyPatch) -> None:
    real = plan.plan_sweep

    def plan_sweep(row: TriggerRow, *given: Any) -> Planned:
        planned = real(replace(row, paused_at=None), *given)
        return replace(planned, row=replace(planned.row, paused_at=row.paused_at, paused_by=row.paused_by))

    patch.setattr("stepkeep.operations.triggers.sweep.plan_sweep", plan_sweep)


@pytest.mark.parametrize(
    ("plant", "overlap"),
    [
        (fires_twice, Overlap.ALLOW),
        (misses_after_a_crash, Overlap.ALLOW),
        (ignores_overlap, Overlap.SKIP),
        (catches_up_without_bound, Overlap.ALLOW),
        (fires_while_paused, Overlap.ALLOW),
    ],
    ids=lambda given: getattr(given, "__name__", str(given)),
)
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], overlap: Overlap) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        found: list[str] = []
        for seed in range(40):
            try:
                found += run_seed(seed, overlap)
            except Contended as problem:
                found.append(str(problem))
            if found:
                break
    assert found
