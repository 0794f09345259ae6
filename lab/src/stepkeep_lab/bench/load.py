"""Starts thousands of runs from concurrent callers, waits for them, and verifies their journals afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from stepkeep.conformance.verify import verify_lines
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from stepkeep.kernel.plan import Plan
from stepkeep.operations.logs.log import canonical_machines
from stepkeep_lab.bench.ground import NotMeasured
from stepkeep_lab.bench.workflows import INPUT

CALLERS = 500
VERIFIERS = 8
LOOK = 0.01
PATIENCE = 600.0


async def start_runs(engine: AsyncEngine, plan: Plan, count: int) -> list[str]:
    """Start this many runs as fast as they are accepted, never more than CALLERS at once."""
    left = iter(range(count))

    async def caller() -> list[str]:
        return [(await engine.start(plan, INPUT)).run_id for _ in left]

    started = await asyncio.gather(*(caller() for _ in range(min(CALLERS, count))))
    return [run_id for each in started for run_id in each]


async def all_ended(engine: AsyncEngine, run_ids: Sequence[str], look: float = LOOK) -> None:
    """Return once these runs have all succeeded.

    One run is watched, the youngest; to count them all each time would cost the server as much as some of the work.
    """
    await ended(engine, max(run_ids), look)
    until = time.monotonic() + PATIENCE
    while unfinished := sum(
        count for state, count in (await engine.store.count_runs(engine.tenant)).items() if state not in RUN_TERMINAL
    ):
        if time.monotonic() > until:
            raise NotMeasured(f"{unfinished} runs did not end within {PATIENCE:g} s")
        await asyncio.sleep(look)
    others = [state for state in RUN_TERMINAL if state is not RunState.SUCCEEDED]
    if failed := (await engine.runs(state=others, limit=1))["runs"]:
        raise NotMeasured(f"a run ended as {failed[0]['state']}: {failed[0]['error']}")


async def ended(engine: AsyncEngine, run_id: str, look: float = LOOK) -> None:
    """Return once this run has ended; it is looked at again and again, this many seconds apart."""
    until = time.monotonic() + PATIENCE
    while True:
        found = await engine.store.read_run(engine.tenant, run_id)
        if found is not None and found.run.state in RUN_TERMINAL:
            return
        if time.monotonic() > until:
            raise NotMeasured(f"run {run_id} did not end within {PATIENCE:g} s")
        await asyncio.sleep(look)


async def verify(engine: AsyncEngine, run_ids: Sequence[str]) -> None:
    """The journal of each of these runs must be legal, gapless and sealed; speed without that is worth nothing."""
    machines = canonical_machines()
    left = iter(run_ids)

    async def verifier() -> None:
        for run_id in left:
            report = verify_lines(await engine.log(run_id), machines)
            if not report.ok:
                raise NotMeasured(f"the journal of run {run_id} does not hold: {report.findings[0]}")

    await asyncio.gather(*(verifier() for _ in range(VERIFIERS)))
