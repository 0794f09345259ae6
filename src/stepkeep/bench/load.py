"""Runs by the thousand: started by concurrent callers, awaited without getting in the way, verified afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from stepkeep.bench.ground import NotMeasured
from stepkeep.bench.workflows import INPUT
from stepkeep.conformance.verify import verify_lines
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.plan import Plan
from stepkeep.kernel.states import RUN_TERMINAL, RunState
from stepkeep.operations.log import canonical_machines

CALLERS = 500
LOOK = 0.01
PATIENCE = 600.0


async def start_runs(engine: AsyncEngine, plan: Plan, count: int) -> list[str]:
    """Start so many runs as fast as they are accepted, never more than CALLERS at once."""
    left = iter(range(count))

    async def caller() -> list[str]:
        return [(await engine.start(plan, INPUT)).run_id for _ in left]

    started = await asyncio.gather(*(caller() for _ in range(min(CALLERS, count))))
    return [run_id for each in started for run_id in each]


async def all_ended(engine: AsyncEngine, run_ids: Sequence[str]) -> None:
    """Return once every run has succeeded. One run is watched, the youngest; counting them all would cost the server
    as much as some of the work."""
    until = time.monotonic() + PATIENCE
    youngest = max(run_ids)
    while not await has_ended(engine, youngest):
        await _pause(until)
    while True:
        counts = await engine.store.count_runs(engine.tenant)
        if sum(counts.get(state, 0) for state in RUN_TERMINAL) >= len(run_ids):
            break
        await _pause(until)
    if counts.get(RunState.SUCCEEDED, 0) != len(run_ids):
        raise NotMeasured(f"not every run succeeded: { ({str(state): count for state, count in counts.items()}) }")


async def has_ended(engine: AsyncEngine, run_id: str) -> bool:
    found = await engine.store.read_run(engine.tenant, run_id)
    return found is not None and found.run.state in RUN_TERMINAL


async def _pause(until: float) -> None:
    if time.monotonic() > until:
        raise NotMeasured(f"the runs did not end within {PATIENCE:g} s")
    await asyncio.sleep(LOOK)


async def verify(engine: AsyncEngine, run_ids: Sequence[str]) -> None:
    """The journal of each of these runs must be legal, gapless and sealed; speed without that is worth nothing."""
    machines = canonical_machines()
    for run_id in run_ids:
        report = verify_lines(await engine.log(run_id), machines)
        if not report.ok:
            raise NotMeasured(f"the journal of run {run_id} does not hold: {report.findings[0]}")
