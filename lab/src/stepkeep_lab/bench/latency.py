"""Measures the duration of one run, from the call that starts it until its client sees the end.

One run at a time is measured; the load beside it, if any, has a fixed start rate (open loop).
"""

from __future__ import annotations

import asyncio
import time

from stepkeep.engine import AsyncEngine
from stepkeep.kernel.plan import Plan
from stepkeep_lab.bench.ground import Ground, workers
from stepkeep_lab.bench.load import all_ended, start_runs, verify
from stepkeep_lab.bench.measurement import Figures, percentile
from stepkeep_lab.bench.workflows import INPUT, chain

TICK = 0.01
REST = 0.02


async def one_run(ground: Ground, *, steps: int, probes: int) -> Figures:
    """A run of `steps` no-ops from end to end, with nothing else to do."""
    async with AsyncEngine(ground.url, auto_migrate=True) as engine:
        plan = await engine.publish(chain(steps))
        async with workers(ground, engine):
            await all_ended(engine, await start_runs(engine, plan, 10))
            taken = [await _probe(engine, plan, rest=REST) for _ in range(probes)]
        await verify(engine, [run_id for _, run_id in taken])
    return _figures([seconds for seconds, _ in taken])


async def under_load(ground: Ground, *, steps: int, rate: int, seconds: float) -> Figures:
    """The same at a steady rate of other runs by the second."""
    async with AsyncEngine(ground.url, auto_migrate=True) as engine:
        plan = await engine.publish(chain(steps))
        async with workers(ground, engine):
            await all_ended(engine, await start_runs(engine, plan, 10))
            until = time.perf_counter() + seconds
            load = asyncio.create_task(_steady(engine, plan, rate, until))
            taken: list[tuple[float, str]] = []
            while time.perf_counter() < until:
                taken.append(await _probe(engine, plan, rest=REST))
            started, late = await load
        await verify(engine, [run_id for _, run_id in taken])
    figures = _figures([seconds for seconds, _ in taken])
    return {**figures, "runs_per_second": started / (seconds + late)}


async def _probe(engine: AsyncEngine, plan: Plan, *, rest: float) -> tuple[float, str]:
    await asyncio.sleep(rest)
    begun = time.perf_counter()
    run_id = (await engine.start(plan, INPUT)).run_id
    await engine.wait(run_id)
    return time.perf_counter() - begun, run_id


async def _steady(engine: AsyncEngine, plan: Plan, rate: int, until: float) -> tuple[int, float]:
    """Start `rate` runs by the second, by the clock; returns how many, and how much later than asked the last came."""
    begun, started = time.perf_counter(), 0
    under_way: set[asyncio.Task[object]] = set()
    while (now := time.perf_counter()) < until:
        due = int((now - begun) * rate)
        for _ in range(due - started):
            task: asyncio.Task[object] = asyncio.create_task(engine.start(plan, INPUT))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        started = due
        await asyncio.sleep(TICK)
    await asyncio.gather(*under_way)
    return started, max(0.0, time.perf_counter() - until)


def _figures(taken: list[float]) -> Figures:
    return {"p50_ms": percentile(taken, 0.5) * 1000, "p99_ms": percentile(taken, 0.99) * 1000}
