# /// script
# dependencies = ["pgqueuer[asyncpg]"]
#
# [tool.stepkeep-bench]
# title = "PgQueuer"
# package = "pgqueuer"
# stores = ["postgres"]
# runs = { 1 = 15000, 3 = 2000, 10 = 400 }
# note = "a queue: jobs that enqueue the next one, which is not atomic, and nothing is kept"
# ///
"""PgQueuer: a job per step; each enqueues the next. Enqueued in batches here, run by a worker process.

Told what to do by one JSON argument, answers with JSON lines; `stepkeep bench --peers` runs it in an environment of its
own. A chain of jobs is not atomic: a crash between two of them loses or repeats a step.
"""

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

KILOBYTE = b"x" * 1000
BATCH = 500


async def work(task: dict) -> None:
    async with asyncpg.create_pool(task["url"], min_size=4, max_size=8) as pool:
        driver = AsyncpgPoolDriver(pool)
        manager = PgQueuer(driver)
        queries = Queries(driver)

        @manager.entrypoint("step")
        async def step(job: Job) -> None:
            left = int(job.payload[:4]) - 1
            if left:
                await queries.enqueue("step", b"%04d" % left + KILOBYTE)

        await manager.run(batch_size=BATCH)


async def main(task: dict) -> None:
    async with asyncpg.create_pool(task["url"], min_size=2, max_size=4) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await queries.install()
        worker = subprocess.Popen([sys.executable, str(Path(__file__)), "work", sys.argv[-1]])
        try:
            await run_all(pool, queries, 1, 10, 0.02)
            for steps, runs in task["works"]:
                begun = time.perf_counter()
                await run_all(pool, queries, steps, runs, 0.02)
                print(json.dumps({"steps": steps, "runs": runs, "seconds": time.perf_counter() - begun}), flush=True)
            taken = []
            for _ in range(task["probes"]):
                await asyncio.sleep(0.02)
                begun = time.perf_counter()
                await run_all(pool, queries, 3, 1, 0.001)
                taken.append((time.perf_counter() - begun) * 1000)
            print(json.dumps({"latencies_ms": taken}), flush=True)
        finally:
            worker.terminate()
            worker.wait(60)


async def run_all(pool, queries: Queries, steps: int, runs: int, look: float) -> None:
    """Enqueue the first job of this many runs and wait until the queue is empty: each job enqueues the next first."""
    payload = b"%04d" % steps + KILOBYTE
    for begin in range(0, runs, BATCH):
        count = min(BATCH, runs - begin)
        await queries.enqueue(["step"] * count, [payload] * count, [0] * count)
    while await pool.fetchval("select exists (select from pgqueuer)"):
        await asyncio.sleep(look)


if __name__ == "__main__":
    asyncio.run((work if sys.argv[1] == "work" else main)(json.loads(sys.argv[-1])))
