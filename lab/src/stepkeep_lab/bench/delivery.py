"""Measures the way most programs call an engine: each caller starts a run and waits for its result.

Every result is handed to its caller and checked. The worker is a process of its own, except in `embedded`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from stepkeep.definition.python.workflow import Workflow
from stepkeep.engine import AsyncEngine
from stepkeep.engine.result import Result
from stepkeep.kernel.plan import Plan
from stepkeep_lab.bench.ground import Ground, workers
from stepkeep_lab.bench.measurement import Figures, percentile
from stepkeep_lab.bench.resource_usage import spent
from stepkeep_lab.bench.workflows import INPUT, chain

WARM_UP = 64
MILLION = 1_000_000


async def awaited(ground: Ground, *, steps: int, runs: int, callers: int) -> Figures:
    """Runs of `steps` no-ops whose result every one of `callers` waits for before it starts the next."""
    return await delivered(ground, chain(steps), runs=runs, callers=callers)


async def delivered(ground: Ground, workflow: Workflow, *, runs: int, callers: int) -> Figures:
    """Runs of this workflow, with each result handed to its caller."""
    async with AsyncEngine(ground.url, auto_migrate=True) as engine:
        plan = await engine.publish(workflow)
        async with workers(ground, engine) as pids:
            await _serve_callers(engine, plan, WARM_UP, min(callers, WARM_UP))
            before, begun = spent(pids, ground.server_pid), time.perf_counter()
            taken = await _serve_callers(engine, plan, runs, callers)
            seconds, cost = time.perf_counter() - begun, spent(pids, ground.server_pid).since(before)
    return {
        "runs_per_second": runs / seconds,
        **_latency(taken),
        "worker_us": cost.worker / runs * MILLION,
        "client_us": cost.client / runs * MILLION,
        "server_us": cost.server / runs * MILLION,
    }


async def embedded(ground: Ground, *, steps: int, probes: int) -> Figures:
    """One run of `steps` no-ops at a time by `engine.run`, with the worker in the calling process."""
    async with AsyncEngine(ground.url, auto_migrate=True) as engine:
        plan = await engine.publish(chain(steps))
        taken = []
        for probe in range(probes + 5):
            begun = time.perf_counter()
            check(await engine.run(plan, INPUT))
            if probe >= 5:
                taken.append(time.perf_counter() - begun)
    return _latency(taken)


async def _serve_callers(engine: AsyncEngine, plan: Plan, runs: int, callers: int) -> list[float]:
    """How long each of these runs took its caller."""
    taken: list[float] = []
    left: Iterator[int] = iter(range(runs))

    async def call() -> None:
        for _ in left:
            begun = time.perf_counter()
            started = await engine.start(plan, INPUT)
            check(await engine.wait(started.run_id))
            taken.append(time.perf_counter() - begun)

    await asyncio.gather(*(call() for _ in range(callers)))
    return taken


def check(result: Result) -> None:
    """Raise unless the run succeeded and its output was delivered."""
    if result.raise_for_state().output is None:
        raise AssertionError(f"run {result.run_id} succeeded and delivered no output")


def _latency(taken: list[float]) -> Figures:
    return {"p50_ms": percentile(taken, 0.5) * 1000, "p99_ms": percentile(taken, 0.99) * 1000}
