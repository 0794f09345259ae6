"""Processes that end runs and fire triggers, killed with -9: each end fires once. Bugs are planted on the model."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess

import pytest
from msgspec.structs import replace

from stepkeep.kernel.errors import StoreError
from stepkeep.kernel.triggers import Ending
from stepkeep.operations.pipeline import expire
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.triggers import endings
from stepkeep.store.rows import FiringState
from stepkeep_lab.simulation.database import Database
from stepkeep_lab.simulation.store import ModelStore
from stepkeep_lab.simulation.trigger_tables import TriggerRows
from tests.suites import in_proof
from tests.triggers.stage import Stage, hourly, micros
from tests.triggers.test_planted import FaultyWire
from tests.workbench import TENANT, Bench, benches, chain, eventually

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.triggers.stage"])

SOURCE = chain("source", 1)
AFTER = "after"
SECOND = 1_000_000


async def add(stage: Stage) -> None:
    await stage.bench.publish(SOURCE)
    await stage.add(hourly(name=AFTER, schedule=None, ended=Ending(workflow="source")))


def work_for_ever(url: str) -> None:
    """What a killed process does: end runs of the workflow, and sweep."""

    async def go() -> None:
        async with benches(url) as [bench]:
            stage = Stage(bench)
            while True:
                try:
                    for claim in await bench.claim(2):
                        await bench.report(claim)
                    await stage.sweep()
                except StoreError:
                    continue
                await asyncio.sleep(0.002)

    asyncio.run(go())


@pytest.mark.parametrize(("runs", "kills"), [(12, 4), in_proof(200, 80)])
async def test_every_end_fires_once_whatever_is_killed(database_url: str, runs: int, kills: int) -> None:
    chance = random.Random(kills)

    def started() -> ForkServerProcess:
        process = PROCESSES.Process(target=work_for_ever, args=(database_url,), daemon=True)
        process.start()
        return process

    async def watch() -> None:
        async with benches(database_url) as [bench]:
            stage = Stage(bench)
            killed, made = 0, [await bench.start(SOURCE) for _ in range(runs // 4)]
            # These live when the trigger is added; processes end some of them meanwhile.
            await add(stage)
            for turn in range(runs - len(made)):
                made.append(await bench.start(SOURCE))
                while killed * (runs - runs // 4) < kills * (turn + 1):
                    place = chance.randrange(3)
                    os.kill(processes[place].pid or 0, signal.SIGKILL)
                    processes[place].join()
                    processes[place] = started()
                    killed += 1
            late = set(made[runs // 4 :])

            async def all_fired() -> bool:
                found = await stage.store.triggers.list_firings(TENANT, AFTER, limit=1000)
                return late <= {one.source for one in found if one.state is FiringState.STARTED}

            async def nudged() -> bool:
                """Leases of killed processes expire by this clock; what they held is done here."""
                bench.store.clock_offset += 5 * SECOND
                await expire.sweep(bench.transactor)
                for claim in await bench.claim(10):
                    await bench.report(claim)
                await stage.sweep()
                return await all_fired()

            await eventually(nudged, seconds=120)
            found = await stage.store.triggers.list_firings(TENANT, AFTER, limit=1000)
            assert killed == kills
            assert max(Counter(one.source for one in found).values()) == 1
            assert len({one.run_id for one in found if one.run_id}) == len([one for one in found if one.run_id])

    processes = [started() for _ in range(3)]
    try:
        await watch()
    finally:
        for process in processes:
            process.kill()
            process.join()


# -- on the model store, with planted bugs -----------------------------------------------------------------------------
class History:
    """One seed: three processes that end runs and sweep, with faults, and a trigger that is added in between."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = micros("2031-05-01T08:30:00+00:00")
        self.database = Database(lambda: self.now)
        self.wires = [FaultyWire(self.chance) for _ in range(3)]
        self.stages = [Stage(Bench(Transactor(ModelStore(self.database, wire)))) for wire in self.wires]

    async def live(self) -> list[str]:
        calm = self.stages[0]
        await calm.bench.publish(SOURCE)
        early = [await calm.bench.start(SOURCE) for _ in range(3)]
        await asyncio.gather(add(calm), *(self._end(stage, 1) for stage in self.stages))
        living = [run for run in early if self.database.tables.runs[TENANT, run].ended_at is None]
        late = [await calm.bench.start(SOURCE) for _ in range(6)]
        for _ in range(6):
            for wire in self.wires:
                wire.is_calm = False
            await asyncio.gather(*(self._turn(stage) for stage in self.stages), return_exceptions=True)
            for wire in self.wires:
                wire.is_calm = True
            self.now += 40 * SECOND
            await expire.sweep(calm.bench.transactor)
        for _ in range(4):
            self.now += 40 * SECOND
            await expire.sweep(calm.bench.transactor)
            await self._end(calm, 100)
            await calm.sweep()
        firings = list(self.database.tables.triggers.firings.get((TENANT, AFTER), {}).values())
        fired = {one.source for one in firings if one.state is FiringState.STARTED}
        missed = [run for run in (*living, *late) if run not in fired]
        runs = [run for run in self.database.tables.details.values() if run.workflow != "source"]
        found = [f"the end of {run} has fired nothing" for run in missed]
        return found + ([] if len(runs) == len(fired) else [f"{len(runs)} runs for {len(fired)} ends"])

    async def _end(self, stage: Stage, count: int) -> None:
        for claim in await stage.bench.claim(count):
            if self.database.tables.details[TENANT, claim.run_id].workflow == "source":
                await stage.bench.report(claim)

    async def _turn(self, stage: Stage) -> None:
        await self._end(stage, 2)
        await stage.sweep()


def run_seed(seed: int) -> list[str]:
    return asyncio.run(History(seed).live())


@pytest.mark.parametrize("seeds", [10, in_proof(1500)])
def test_no_end_is_missed_and_none_fires_twice(seeds: int) -> None:
    assert {seed: found for seed in range(seeds) if (found := run_seed(seed))} == {}


def notes_after_the_commit(patch: pytest.MonkeyPatch) -> None:
    """The end is noted in a transaction of its own, which a crash keeps from happening."""
    chance, real = random.Random(7), TriggerRows.note
    patch.setattr(TriggerRows, "note", lambda self, noted: real(self, noted) if chance.random() < 0.9 else None)


def decides_twice(patch: pytest.MonkeyPatch) -> None:
    """An end that was decided about is found again."""
    numbers = iter(range(10**6))
    real = endings._ended

    async def ended(*given: object) -> object:
        firing = await real(*given)  # type: ignore[arg-type]
        return replace(firing, moment=f"{firing.moment}/{next(numbers)}")

    patch.setattr(endings, "_ended", ended)


@pytest.mark.parametrize("plant", [notes_after_the_commit, decides_twice], ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        assert any(run_seed(seed) for seed in range(40))
