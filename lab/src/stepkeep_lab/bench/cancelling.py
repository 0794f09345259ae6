"""Measures how soon a handler in another process ends after its run is cancelled, times out, or fails elsewhere.

The handler writes the wall-clock time of its end to a file; client, database and worker share one machine and one
clock. One run at a time is measured.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from stepkeep.engine import AsyncEngine
from stepkeep.kernel.plan import Plan
from stepkeep_lab.bench.ground import Ground, NotMeasured, workers
from stepkeep_lab.bench.measurement import Figures, percentile
from stepkeep_lab.bench.workflows import sleeper

PATIENCE = 60.0
TIMEOUT_SECONDS = 2


async def after_cancel(ground: Ground, *, probes: int) -> Figures:
    """From the call that cancels a run to the end of its handler."""

    async def cancel(engine: AsyncEngine, run_id: str, marks: Path) -> float:
        begun = time.time()
        await engine.cancel(run_id)
        return begun

    return await _measure(ground, probes, sleeper("cancelled"), cancel)


async def after_failure(ground: Ground, *, probes: int) -> Figures:
    """From the failure of a step to the end of the handler beside it."""

    async def fail(engine: AsyncEngine, run_id: str, marks: Path) -> float:
        (marks / f"{run_id}.fail").touch()
        return await _stamp(marks / f"{run_id}.failed")

    return await _measure(ground, probes, sleeper("failing", fails=True), fail)


async def after_timeout(ground: Ground, *, probes: int) -> Figures:
    """From the end of a run's timeout to the end of its handler."""

    async def time_out(engine: AsyncEngine, run_id: str, marks: Path) -> float:
        found = await engine.store.read_run(engine.tenant, run_id)
        if found is None or found.run.due_at is None:
            raise NotMeasured(f"run {run_id} has no timeout")
        return found.run.due_at / 1_000_000

    return await _measure(ground, probes, sleeper("timed-out", timeout=f"{TIMEOUT_SECONDS}s"), time_out)


Trigger = Callable[[AsyncEngine, str, Path], Awaitable[float]]
"""Ends a run early; returns when, by the wall clock."""


async def _measure(ground: Ground, probes: int, workflow: object, trigger: Trigger) -> Figures:
    marks = ground.folder / "marks"
    marks.mkdir(exist_ok=True)
    async with AsyncEngine(ground.url, auto_migrate=True) as engine:
        plan = await engine.publish(workflow)  # type: ignore[arg-type]
        async with workers(ground, engine):
            await _probe(engine, plan, marks, trigger)
            taken = [await _probe(engine, plan, marks, trigger) for _ in range(probes)]
    return {"p50_ms": percentile(taken, 0.5) * 1000, "p99_ms": percentile(taken, 0.99) * 1000}


async def _probe(engine: AsyncEngine, plan: Plan, marks: Path, trigger: Trigger) -> float:
    run_id = (await engine.start(plan, {"marks": str(marks)})).run_id
    await _stamp(marks / f"{run_id}.begun")
    since = await trigger(engine, run_id, marks)
    ended = await _stamp(marks / f"{run_id}.ended")
    await engine.wait(run_id)
    return max(0.0, ended - since)


async def _stamp(path: Path) -> float:
    """The time in a file that a handler writes."""
    until = time.monotonic() + PATIENCE
    while (found := _read(path)) is None:
        if time.monotonic() > until:
            raise NotMeasured(f"{path.name} was not written within {PATIENCE:g} s")
        await asyncio.sleep(0.005)
    return found


def _read(path: Path) -> float | None:
    text = path.read_text(encoding="ascii") if path.exists() else ""
    return float(text) if text else None
