"""Retries that are due soon are not kept waiting for the regular sweep."""

from __future__ import annotations

import asyncio
from pathlib import Path

from stepkeep import AsyncEngine, Context, Registry, Retry, Workflow, step
from stepkeep.worker.settings import Settings


async def test_a_short_pause_before_a_retry_does_not_wait_for_the_regular_sweep(tmp_path: Path) -> None:
    """The sweep is set to once an hour: only the alarm that the worker sets for its own retries can bring it on."""
    registry = Registry()
    tries: list[int] = []

    @step("flaky", registry=registry)
    async def flaky(ctx: Context) -> int:
        tries.append(ctx.attempt)
        if ctx.attempt < 3:
            raise ConnectionError("not yet")
        return ctx.attempt

    async with AsyncEngine(f"sqlite:///{tmp_path}/alarm.db", registry=registry) as engine:
        flow = Workflow("alarm", version=1, registry=registry)
        flow.step("flaky", flaky, retry=Retry(max_attempts=3, initial="50ms", max="50ms"))
        run_id = (await engine.start(flow)).run_id

        async def ended() -> bool:
            return (await engine.result(run_id)).finished

        worker = engine.worker(settings=Settings(sweep_seconds=3600.0))
        await asyncio.wait_for(worker.run_until(ended), 30)
        assert (await engine.result(run_id)).output == 3
    assert tries == [1, 2, 3]
