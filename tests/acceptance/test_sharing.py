"""Several worker processes on one database share the work, and no step is ever claimed twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from stepkeep.kernel.machine.states import RunState
from tests.processes import Fleet
from tests.suites import first_on, in_proof
from tests.workbench import TENANT, benches, chain, eventually

CALLERS = 200


@pytest.mark.parametrize("runs", [1_000, in_proof(10_000)])
@first_on("sqlite")
async def test_two_worker_processes_share_thousands_of_runs_without_a_double_claim(
    database_url: str, tmp_path: Path, runs: int
) -> None:
    async with benches(database_url) as (bench,):
        plan = await bench.publish(chain("shared", 1))
        with Fleet(database_url, tmp_path) as workers:
            workers.launch(100)
            workers.launch(100)

            async def both_joined() -> bool:
                return len(await bench.store.list_workers(TENANT, live_only=True)) == 2

            async def all_done() -> bool:
                counts = await bench.store.count_runs(TENANT)
                return counts.get(RunState.SUCCEEDED, 0) == runs

            # One that starts later would find little left: a thousand runs take less than a second.
            await eventually(both_joined, "both workers to register")
            for begin in range(0, runs, CALLERS):
                await asyncio.gather(*(bench.start(plan) for _ in range(begin, begin + CALLERS)))
            await eventually(all_done, "every run to succeed")
        claims, shares = await read_claims(database_url)
        assert claims == runs, f"{claims} claims were made for {runs} steps"
        assert len(shares) == 2
        assert min(shares.values()) > runs // 20, f"one worker did it all: {shares}"
        assert await bench.store.stuck_runs() == []
        print(f"{runs} runs, {claims} claims, shares {sorted(shares.values())}")


async def read_claims(url: str) -> tuple[int, Counter[int]]:
    """The sum of all fences (each claim adds one) and how many attempts each worker made, straight from the rows."""
    statement = "select (select sum(fence) from steps), worker, count(*) from attempts group by worker"
    if url.startswith("sqlite"):
        import apsw

        rows = apsw.Connection(url.removeprefix("sqlite:///")).execute(statement).fetchall()
    else:
        import asyncpg

        connection = await asyncpg.connect(url)
        rows = [tuple(row) for row in await connection.fetch(statement)]
        await connection.close()
    return int(rows[0][0]), Counter({int(worker): int(count) for _, worker, count in rows})
