"""A worker is killed while it migrates all runs: each run is migrated or not, and another worker goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

import stepkeep as sk
from stepkeep.engine import AsyncEngine
from stepkeep.operations.continuation.jobs import JobSweep

RUNS = 30


async def noted(ctx: sk.Context) -> str:
    return "noted"


def flow(version: int) -> sk.Workflow:
    made = sk.Workflow("killed", version=version)
    first = made.step("note", noted, effect="write")
    asked = made.approval("ask", after=first)
    if version > 1:
        made.step("again", noted, after=asked)
    return made


@pytest.mark.proof
async def test_a_killed_migration_of_all_runs_leaves_none_in_between(database_url: str) -> None:
    async def prepare() -> list[str]:
        async with AsyncEngine(database_url, actor="ann", auto_migrate=True) as engine:
            runs = [(await engine.run(flow(1))).run_id for _ in range(RUNS)]
            await engine.publish(flow(2))
            return runs

    async def count() -> int:
        async with AsyncEngine(database_url, actor="ann") as engine:
            return len((await engine.runs(workflow="killed", state="cancelled", limit=100))["runs"])

    async def check(runs: list[str]) -> None:
        async with AsyncEngine(database_url, actor="ann") as engine:
            for run in runs:
                view = (await engine.show(run))["run"]
                assert view["state"] == "cancelled"
                [successor] = view["continued_by"]
                went_on = (await engine.show(successor))["run"]
                assert (went_on["state"], went_on["version"]) == ("blocked", 2)
                assert (await engine.certify(successor)).ok

    runs = await prepare()
    command = [sys.executable, "-m", "stepkeep", "migrate", "--all", "killed", "--to", "2", "--db", database_url]
    assert subprocess.run(command, capture_output=True, timeout=300, check=False).returncode == 0
    worker = [sys.executable, "-m", "stepkeep", "worker", "--db", database_url]
    process = subprocess.Popen(worker, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(2_000):
            if process.poll() is not None or await count() >= 3:
                break
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait(timeout=60)
    async with AsyncEngine(database_url, actor="ann") as engine:
        engine.store.clock_offset += 60_000_000  # the killed worker held the job for half a minute
        sweep = JobSweep(engine.transactor)
        while await sweep.sweep("another"):
            pass
        [job] = (await engine.jobs.list())["jobs"]
        assert (job["state"], job["done"], job["refused"]) == ("done", RUNS, 0)
    await check(runs)
