"""Load without faults: rolling restarts, an old snapshot, overload, and a long soak."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from statistics import median

from stepkeep.kernel.machine.states import AttemptState
from stepkeep_lab.torture.fleet import Member
from stepkeep_lab.torture.late_worker import LateTransactor
from stepkeep_lab.torture.process import TENANT
from stepkeep_lab.torture.scenarios.outages import own_server
from stepkeep_lab.torture.stage import Stage

HAND_OVER = 1.0
RESTARTS = 40
"""In a thorough campaign."""
SAMPLES = 200
FLAT_MEMORY = 1.25
SLACK = 16 * 1024 * 1024
SLACK_FILES = 8


async def rolling_restart(stage: Stage) -> None:
    """SIGTERM, one worker after the other, under load: no attempt is burnt, what is handed back is taken at once."""
    stage.needs("restarts", at_least=2)
    await stage.workers(3, grace=0.1)
    async with stage.looking() as transactor, stage.under_load(rate=10.0, which=("chain", "fan")) as load:
        stage.begin()
        while stage.goes_on(reached=stage.counts["restarts"] >= RESTARTS):
            leaver = await stage.busiest(await load.start_many("slow", 2, seconds=0.5))
            newcomer = await stage.worker(grace=0.1)
            await stage.registered(transactor, [newcomer])
            status = await stage.fleet.end(leaver, signal.SIGTERM)
            stage.must(status == 0, f"a worker that was asked to stop ended with status {status}")
            stage.counts["restarts"] += 1
    async with stage.looking() as transactor:
        stage.must(await stage.settle(transactor), "the work did not finish")
        waits, burnt = await _hand_overs(stage, transactor)
    stage.counts["attempts burnt"] = burnt
    stage.must(burnt == 0, f"{burnt} attempts were burnt by restarts in good order")
    p99 = stage.measure("hand-over", waits)
    stage.must_have_hit("hand-over measured", at_least=SAMPLES if stage.thorough else 5)
    stage.must(p99 <= HAND_OVER, f"handed over within {p99:.2f} s at p99; {HAND_OVER:g} s are allowed")


async def _hand_overs(stage: Stage, transactor: LateTransactor) -> tuple[list[float], int]:
    """How long each released step lay about, and how many attempts were counted against a step."""
    waits: list[float] = []
    burnt = 0
    for run_id, _ in stage.acknowledged.values():
        attempts = await transactor.store.read_attempts(TENANT, run_id)
        claims = {(attempt.no, attempt.fence): attempt for attempt in attempts}
        for attempt in attempts:
            heir = claims.get((attempt.no, attempt.fence + 1))
            if attempt.state is AttemptState.RELEASED and heir is not None:
                waits.append((heir.started_at - attempt.ended_at) / 1_000_000)
        burnt += sum(step.attempts + step.losses for step in await transactor.store.read_steps(TENANT, run_id))
    return waits, burnt


async def old_snapshot(stage: Stage) -> None:
    """A transaction that holds an old snapshot open under load: dead rows cannot be removed, and the work goes on."""
    await own_server(stage)
    import asyncpg

    await stage.workers(2)
    holder = await asyncpg.connect(stage.direct)
    try:
        async with stage.looking() as transactor, stage.under_load(rate=30.0):
            before = await _pace(transactor, stage.seconds / 2)
            async with holder.transaction(isolation="repeatable_read", readonly=True):
                seen = await holder.fetchval("select count(*) from runs")
                during = await _pace(transactor, stage.seconds)
                stage.must(await holder.fetchval("select count(*) from runs") == seen, "the snapshot did not hold")
                stage.counts["snapshots held"] = 1
                dead = "select coalesce(sum(n_dead_tup), 0) from pg_stat_user_tables"
                stage.counts["dead rows"] = int(await holder.fetchval(dead))
    finally:
        await holder.close()
    stage.measures["runs ended per s before"] = round(before, 1)
    stage.measures["runs ended per s during"] = round(during, 1)
    stage.must_have_hit("snapshots held")
    stage.must(during > 0.5 * before, f"the pace fell from {before:.1f} to {during:.1f} runs a second")


async def _pace(transactor: LateTransactor, seconds: float) -> float:
    """Runs that end per second."""

    async def ended() -> int:
        counts = await transactor.store.count_runs(TENANT)
        return sum(count for state, count in counts.items() if state in ("succeeded", "rolled_back", "failed"))

    first, began = await ended(), time.monotonic()
    await asyncio.sleep(seconds)
    return (await ended() - first) / (time.monotonic() - began)


async def overload(stage: Stage) -> None:
    """Many times more work than the workers can do; when it is over they are as quick as before, without a restart."""
    crew = await stage.workers(2, concurrency=8)
    async with stage.looking() as transactor, stage.loading() as load:
        await stage.registered(transactor, crew)
        await _probe(transactor, load.start)
        before = [await _probe(transactor, load.start) for _ in range(10)]
        burst = int(40 * stage.seconds)
        await load.start_many("chain", burst)
        stage.counts["runs in the burst"] = burst
        swamped = await _probe(transactor, load.start)
        stage.must(await stage.settle(transactor, patience=120), "the backlog was never worked off")
        after = [await _probe(transactor, load.start) for _ in range(10)]
    alive = sum(member.status is None for member in crew)
    stage.must(alive == len(crew), "a worker did not survive the overload")
    stage.measure("run when idle", before)
    p99 = stage.measure("run after the overload", after)
    stage.measures["run in the overload s"] = round(swamped, 3)
    stage.counts["overloads"] = int(swamped > 2 * median(before))
    stage.must_have_hit("overloads")
    stage.must(
        p99 <= max(2 * max(before), 1.5), f"after the overload a run takes {p99:.2f} s, before {max(before):.2f} s"
    )


async def _probe(transactor: LateTransactor, start: Callable[[str], Awaitable[str]]) -> float:
    """How long one small run takes from its start to its end."""
    began = time.monotonic()
    run_id = await start("chain")
    async with asyncio.timeout(150):
        while True:
            found = await transactor.store.read_run(TENANT, run_id)
            if found is not None and found.run.ended_at is not None:
                return time.monotonic() - began
            await asyncio.sleep(0.01)


async def soak(stage: Stage) -> None:
    """A steady load for a while: memory and open files of the workers stay flat."""
    crew = await stage.workers(2)
    async with stage.under_load(rate=25.0):
        await asyncio.sleep(stage.seconds / 3)
        early = [await _most(crew) for _ in range(5)]
        await asyncio.sleep(stage.seconds * 2 / 3)
        late = [await _most(crew) for _ in range(5)]
    memory, files = max(one[0] for one in early), max(one[1] for one in early)
    memory_late, files_late = max(one[0] for one in late), max(one[1] for one in late)
    stage.measures |= {"MB early": round(memory / 1e6, 1), "MB late": round(memory_late / 1e6, 1)}
    stage.counts.update({"files early": files, "files late": files_late, "samples": 10})
    stage.must(memory_late <= FLAT_MEMORY * memory + SLACK, f"memory grew from {memory} to {memory_late} bytes")
    stage.must(files_late <= files + SLACK_FILES, f"open files grew from {files} to {files_late}")
    stage.must_have_hit("samples")


async def _most(crew: list[Member]) -> tuple[int, int]:
    await asyncio.sleep(0.1)
    return max(member.memory for member in crew), max(member.files for member in crew)
