"""Processes that end as in a power failure: in a storm, at labelled points, and the time until others take over."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence

from stepkeep.kernel.machine.states import AttemptState
from stepkeep.operations.pipeline.plans import plan_of
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.worker.settings import Settings
from stepkeep_lab.torture.points import POINTS, Doing, Point
from stepkeep_lab.torture.process import TENANT
from stepkeep_lab.torture.stage import KINDS, Stage

EVERY = 0.1
WORKERS = 4
PATIENCE = 20.0
SWEEP = Settings().sweep_seconds
DEATHS = 25
"""In a thorough campaign; each leaves a dozen steps or more to be claimed again."""
SAMPLES = 200
UNDO_LOST = "attempts of undos lost with their worker"
LOOKED_AT = 20
YOUNG = 60
"""How many runs are looked at for such an attempt at once, and how many younger ones are left to go on first."""
ROLLBACKS = 5000
"""In a thorough campaign: none of them may end partial."""


async def kill_storm(stage: Stage) -> None:
    """kill -9 of a random worker every 100 ms under load; a new one takes its place at once."""
    await _storm(stage)


async def rollback_storm(stage: Stage) -> None:
    """The same, and every run is rolled back by undos without a retry policy of their own."""
    stage.needs(UNDO_LOST)
    await _storm(stage, which=("rollback",), goal=ROLLBACKS)


async def _storm(stage: Stage, which: Sequence[str] = KINDS, goal: int = 0) -> None:
    stage.needs("kills", at_least=int(stage.seconds))
    seen = 0
    await stage.workers(WORKERS)
    async with stage.looking() as transactor, stage.under_load(which=which) as load:
        stage.begin()
        while stage.goes_on(reached=len(load.acknowledged) >= goal):
            if stage.misses(UNDO_LOST) and len(load.acknowledged) > seen + LOOKED_AT + YOUNG:
                runs = [run_id for run_id, _ in load.acknowledged.values()][seen : seen + LOOKED_AT]
                stage.counts[UNDO_LOST] += await _lost_undos(transactor, runs)
                seen += LOOKED_AT
            # By the clock, not after a pause: ending one worker and launching the next takes time of its own.
            await asyncio.sleep(EVERY - time.monotonic() % EVERY)
            victim = stage.rng.choice(stage.fleet.living)
            stage.counts["kills"] += await stage.fleet.end(victim) == -signal.SIGKILL
            await stage.worker()


async def _lost_undos(transactor: Transactor, runs: Sequence[str]) -> int:
    """How many attempts of undo steps of these runs were lost with their worker."""
    found = 0
    for run_id in runs:
        plan = await plan_of(transactor, TENANT, run_id)
        attempts = await transactor.store.read_attempts(TENANT, run_id)
        found += sum(one.state is AttemptState.LOST and plan.is_undo(one.no) for one in attempts)
    return found


async def labelled_points(stage: Stage) -> None:
    """kill -9 of a worker (or a client that starts runs) at each labelled point of each kind of transaction."""
    async with stage.loading() as load:
        for point in POINTS:
            aimed = Point(point.doing, point.when, stage.rng.randint(1, 3))
            if point.doing is Doing.START:
                await _kill_starter(stage, aimed)
            else:
                await load.start_many("flaky", 6)
                await load.start_many("rollback", 2)
                await _kill_worker(stage, aimed)
    await stage.fleet.end_all()
    for point in POINTS:
        stage.must_have_hit(f"killed at {point}")


async def _kill_worker(stage: Stage, point: Point) -> None:
    member = await stage.worker(point=point, sweep=0.2, concurrency=4)
    try:
        async with asyncio.timeout(PATIENCE):
            await member.ended.wait()
    except TimeoutError:
        await stage.fleet.end(member)
    stage.counts["points tried"] += 1


async def _kill_starter(stage: Stage, point: Point) -> None:
    keys = tuple(f"{point}-{no}" for no in range(5))
    stage.extra_keys.update(keys)
    member = await stage.fleet.launch(stage.task(keys=keys, work=False, point=point))
    async with asyncio.timeout(PATIENCE):
        await member.ended.wait()
    stage.counts["points tried"] += 1
    # The client comes back and asks for everything again: what was made before it died is found, not made twice.
    again = await stage.fleet.launch(stage.task(keys=keys, work=False))
    async with asyncio.timeout(PATIENCE):
        await again.ended.wait()
    stage.must(again.status == 0, f"a client that asked again ended with status {again.status}")


async def death_to_reclaim(stage: Stage) -> None:
    """A worker dies with its hands full: how long until another worker holds its steps. Default settings."""
    gone: dict[int, float] = {}
    stage.needs("kills", at_least=2)
    async with stage.looking() as transactor, stage.loading() as load:
        await stage.workers(2, sweep=SWEEP, concurrency=40)
        stage.begin()
        while stage.goes_on(reached=stage.counts["kills"] >= DEATHS):
            victim = await stage.busiest(await load.start_many("slow", 4, seconds=0.7))
            await asyncio.sleep(stage.rng.uniform(0.0, 0.4))
            gone[victim.pid] = time.time()
            await stage.fleet.end(victim)
            stage.counts["kills"] += 1
            # One survivor, whose sweeps are all there is.
            await asyncio.sleep(2.5)
            await stage.worker(sweep=SWEEP, concurrency=40)
            await asyncio.sleep(0.5)
        await stage.settle(transactor)
        workers = {worker.no: int(worker.id.split(":")[2]) for worker in await transactor.store.list_workers(TENANT)}
        waits: list[float] = []
        for run_id, _ in load.acknowledged.values():
            attempts = await transactor.store.read_attempts(TENANT, run_id)
            for lost in attempts:
                died = gone.get(workers[lost.worker])
                heir = next((a for a in attempts if (a.no, a.fence) == (lost.no, lost.fence + 1)), None)
                if lost.state is AttemptState.LOST and died is not None and heir is not None:
                    waits.append(heir.started_at / 1_000_000 - died)
    p99 = stage.measure("death to re-claim", waits)
    stage.must_have_hit("death to re-claim measured", at_least=SAMPLES if stage.thorough else 10)
    stage.must(p99 <= 2.0, f"re-claimed {p99:.2f} s after the death at p99; the lease of 1 s and 1 s more are allowed")
