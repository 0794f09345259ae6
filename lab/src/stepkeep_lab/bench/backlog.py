"""Measures claims from a long queue, and the status beside it: millions of ready runs, and a million finished ones.

The queue is filled by copying the rows of a recorded run inside the database. Claims go through the operations, with
the worker's own low-water mark, and are released afterwards.
"""

from __future__ import annotations

import asyncio
import statistics
import time

from stepkeep.engine import AsyncEngine
from stepkeep.kernel.machine.events import StepReported
from stepkeep.kernel.machine.outcomes import Released
from stepkeep.worker.chores.polling import ReadyWatermark
from stepkeep.worker.runtime import Runtime
from stepkeep.worker.settings import Settings
from stepkeep_lab.bench.ground import Ground, workers
from stepkeep_lab.bench.measurement import Figures
from stepkeep_lab.bench.recording import ACTOR, claimer, keep_rows, multiply, stages
from stepkeep_lab.bench.resource_usage import cpu_of_sessions, memory_of
from stepkeep_lab.bench.sql import Sql, open_sql
from stepkeep_lab.bench.throughput import MILLION

LIMIT = 100
PORTION = 250_000
WARM_UP = 5
STAGES = READY, CLAIMED, FINISHED = "ready", "claimed", "finished"
TIDY = {"postgres": ("vacuum analyze",), "sqlite": ("analyze", "pragma wal_checkpoint(truncate)")}


async def claims(ground: Ground, *, ready: int, finished: int = 0, probes: int = 40) -> Figures:
    """A claim of 100 steps from a queue of this many ready runs, beside this many finished ones."""
    async with AsyncEngine(ground.url, auto_migrate=True) as engine:
        await _fill(ground, engine, ready, finished)
        return await _claim(engine, ground.server_pid, probes)


async def status(ground: Ground, *, ready: int, finished: int, probes: int = 20) -> Figures:
    """`engine.status` beside this many ready and finished runs; of few probes, the slowest counts as p99."""
    async with AsyncEngine(ground.url, auto_migrate=True) as engine:
        await _fill(ground, engine, ready, finished)
        taken = []
        for _ in range(probes):
            begun = time.perf_counter()
            await engine.status()
            taken.append(time.perf_counter() - begun)
    return {"p50_ms": statistics.median(taken) * 1000, "p99_ms": max(taken) * 1000}


async def memory(ground: Ground, *, ready: int, seconds: float) -> Figures:
    """A worker's memory after some time at work on a queue of this many ready runs."""
    async with AsyncEngine(ground.url, auto_migrate=True) as engine:
        await _fill(ground, engine, ready, 0)
        async with workers(ground, engine) as pids:
            begun = time.perf_counter()
            held = 0
            while time.perf_counter() - begun < seconds:
                await asyncio.sleep(0.2)
                held = max(held, memory_of(pids[0]))
    return {"worker_mb": held / MILLION}


async def _fill(ground: Ground, engine: AsyncEngine, ready: int, finished: int) -> None:
    async with open_sql(ground) as sql:
        if ground.server is None:
            # Nothing is measured yet: rows that are made to be measured on need not survive anything.
            await sql.run("pragma synchronous = off")
        run_id = ""
        lived = iter(STAGES)
        async for run_id in stages(engine, 1, {}):
            await keep_rows(sql, run_id, next(lived))
        await _portions(sql, FINISHED, run_id, 1, finished)
        await _portions(sql, READY, run_id, finished + 1, finished + ready)
        # What would have been done in passing by the time that a queue has grown so long.
        for statement in TIDY[ground.store]:
            await sql.run(statement)


async def _portions(sql: Sql, stage: str, run_id: str, first: int, last: int) -> None:
    for begin in range(first, last + 1, PORTION):
        await multiply(sql, stage, run_id, begin, min(begin + PORTION - 1, last))


async def _claim(engine: AsyncEngine, server: int | None, probes: int) -> Figures:
    worker = await claimer(engine, LIMIT)
    mark = ReadyWatermark(Settings(), Runtime())
    taken, spent = [], []
    for _ in range(WARM_UP + probes):
        before, begun = _cpu(server), time.perf_counter()
        held = await engine.transactor.claim(worker, limit=LIMIT, after=mark.after())
        taken.append(time.perf_counter() - begun)
        spent.append(_cpu(server) - before)
        assert len(held) == LIMIT, "the queue is longer than one claim"
        mark.looked(len(held), LIMIT, held[-1].claimed_at)
        await engine.transactor.submit_all(
            [
                StepReported(
                    tenant=claim.tenant,
                    run_id=claim.run_id,
                    actor=ACTOR,
                    no=claim.step.no,
                    fence=claim.step.fence,
                    worker=worker.worker,
                    outcome=Released(),
                )
                for claim in held
            ]
        )
    return {
        "claim_ms": statistics.median(taken[WARM_UP:]) * 1000,
        "claim_cpu_ms": statistics.median(spent[WARM_UP:]) * 1000,
    }


def _cpu(server: int | None) -> float:
    return time.process_time() + (0.0 if server is None else cpu_of_sessions(server))
