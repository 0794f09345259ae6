"""Steps per second: from the first start to the end of the last run, starts included, one kilobyte in and out."""

from __future__ import annotations

import time

from msgspec.structs import replace

from stepkeep.definition.python.workflow import Workflow
from stepkeep.engine import AsyncEngine
from stepkeep_lab.bench.delivery import delivered
from stepkeep_lab.bench.ground import Ground, workers
from stepkeep_lab.bench.handlers import CALLS, ten_calls
from stepkeep_lab.bench.load import all_ended, start_runs, verify
from stepkeep_lab.bench.measurement import Figures
from stepkeep_lab.bench.no_notify import muted
from stepkeep_lab.bench.resource_usage import memory_of, spent
from stepkeep_lab.bench.sql import wal_position
from stepkeep_lab.bench.workflows import chain, fan, mapped

WARM_UP = 64
FLOW_CALLERS = 64
MILLION = 1_000_000


async def runs_of_steps(ground: Ground, *, steps: int, runs: int, workers: int = 1) -> Figures:
    """Runs of `steps` no-ops in sequence."""
    return await _measure(ground, chain(steps), steps=steps, runs=runs, count=workers)


async def without_notifications(ground: Ground, *, steps: int, runs: int) -> Figures:
    """Runs of `steps` no-ops, found by polling alone."""
    with muted():
        silent = replace(ground, worker="stepkeep_lab.bench.no_notify")
        return await _measure(silent, chain(steps), steps=steps, runs=runs, count=1)


async def fan_out(ground: Ground, *, steps: int, runs: int, workers: int = 1) -> Figures:
    """Runs of `steps` no-ops, all but the first and the last at once."""
    return await _measure(ground, fan(steps), steps=steps, runs=runs, count=workers)


async def elements(ground: Ground, *, steps: int, runs: int, workers: int = 1) -> Figures:
    """Runs of one map with `steps` elements, which are counted as the steps."""
    return await _measure(ground, mapped(steps), steps=steps, runs=runs, count=workers)


async def calls_of_a_flow(ground: Ground, *, runs: int) -> Figures:
    """Runs of a flow of ten calls, which are counted as the steps, after as many runs of the same steps as a plan.

    Then as many once more, whose results 64 callers wait for: these are compared with peers that deliver.
    """
    plan = await _measure(ground, chain(CALLS), steps=CALLS, runs=runs, count=1)
    figures = await _measure(ground, ten_calls, steps=CALLS, runs=runs, count=1)
    awaited = await delivered(ground, ten_calls, runs=runs, callers=FLOW_CALLERS)
    return figures | {
        "plan_steps_per_second": plan["steps_per_second"],
        "plan_all_us": plan["all_us"],
        "delivered_steps_per_second": awaited["runs_per_second"] * CALLS,
    }


async def under_slots(ground: Ground, *, steps: int, runs: int) -> Figures:
    """Runs of `steps` no-ops under a limit of slots that all of them fit in, after as many without a limit."""
    free = await _measure(ground, chain(steps), steps=steps, runs=runs, count=1)
    figures = await _measure(ground, chain(steps, slots=runs + WARM_UP), steps=steps, runs=runs, count=1)
    return figures | {"plan_steps_per_second": free["steps_per_second"], "plan_all_us": free["all_us"]}


async def starts(ground: Ground, *, runs: int) -> Figures:
    """Runs accepted by the second from concurrent callers of one client, with no worker about."""
    async with AsyncEngine(ground.url, auto_migrate=True) as engine:
        plan = await engine.publish(chain(3))
        await start_runs(engine, plan, WARM_UP)
        before, begun = spent((), ground.server_pid), time.perf_counter()
        await start_runs(engine, plan, runs)
        seconds = time.perf_counter() - begun
        cost = spent((), ground.server_pid).since(before)
    return {
        "starts_per_second": runs / seconds,
        "client_us": cost.client / runs * MILLION,
        "server_us": cost.server / runs * MILLION,
    }


async def _measure(ground: Ground, workflow: Workflow, *, steps: int, runs: int, count: int) -> Figures:
    async with AsyncEngine(ground.url, auto_migrate=True) as engine:
        plan = await engine.publish(workflow)
        async with workers(ground, engine, count) as pids:
            before, wal = spent(pids, ground.server_pid), await wal_position(ground)
            begun = time.perf_counter()
            run_ids = await start_runs(engine, plan, runs)
            accepted = time.perf_counter()
            await all_ended(engine, run_ids)
            ended = time.perf_counter()
            cost, wal_after = spent(pids, ground.server_pid).since(before), await wal_position(ground)
            memory = max(map(memory_of, pids))
        await verify(engine, run_ids)
    done = runs * steps
    figures = {
        "steps_per_second": done / (ended - begun),
        "runs_per_second": runs / (ended - begun),
        "starts_per_second": runs / (accepted - begun),
        "worker_us": cost.worker / done * MILLION,
        "client_us": cost.client / done * MILLION,
        "all_us": sum(cost) / done * MILLION,
        "worker_mb": memory / MILLION,
    }
    if wal is not None and wal_after is not None:
        figures |= {"server_us": cost.server / done * MILLION, "wal_bytes": (wal_after - wal) / done}
    return figures
