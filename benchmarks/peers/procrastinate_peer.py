# /// script
# dependencies = ["procrastinate", "psycopg[binary,pool]"]
#
# [tool.stepkeep-bench]
# title = "Procrastinate"
# package = "procrastinate"
# stores = ["postgres"]
# runs = { 1 = 600, 3 = 240, 10 = 80 }
# note = "a queue: jobs that defer the next one, which is not atomic"
# ///
"""Procrastinate: a job per step; each defers the next. Deferred by concurrent callers, run by a worker process.

Told what to do by one JSON argument, answers with JSON lines; `stepkeep bench --peers` runs it in an environment of its
own. A chain of jobs is not atomic: a crash between two of them loses or repeats a step.
"""

import asyncio
import json
import logging
import subprocess
import sys
import time
from pathlib import Path

import procrastinate
import psycopg

KILOBYTE = "x" * 1000
CALLERS = 8
PLACES = 64


def application(task: dict) -> tuple[procrastinate.App, object]:
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=task["url"], max_size=10))

    @app.task(name="step")
    async def step(left: int, payload: str) -> None:
        if left > 1:
            await step.defer_async(left=left - 1, payload=payload)

    return app, step


async def work(task: dict) -> None:
    logging.disable(logging.WARNING)
    app, _ = application(task)
    async with app.open_async():
        await app.run_worker_async(concurrency=PLACES)


async def main(task: dict) -> None:
    app, step = application(task)
    async with app.open_async(), await psycopg.AsyncConnection.connect(task["url"], autocommit=True) as connection:
        await app.schema_manager.apply_schema_async()
        worker = subprocess.Popen([sys.executable, str(Path(__file__)), "work", sys.argv[-1]])
        try:
            await run_all(connection, step, 1, 10, 0.02)
            for steps, runs in task["works"]:
                begun = time.perf_counter()
                await run_all(connection, step, steps, runs, 0.02)
                print(json.dumps({"steps": steps, "runs": runs, "seconds": time.perf_counter() - begun}), flush=True)
            taken = []
            for _ in range(task["probes"]):
                await asyncio.sleep(0.02)
                begun = time.perf_counter()
                await run_all(connection, step, 3, 1, 0.001)
                taken.append((time.perf_counter() - begun) * 1000)
            print(json.dumps({"latencies_ms": taken}), flush=True)
        finally:
            worker.terminate()
            worker.wait(60)


async def run_all(connection, step, steps: int, runs: int, look: float) -> None:
    """Defer the first job of this many runs and wait until none is left: each job defers the next before it ends."""
    left = iter(range(runs))

    async def caller() -> None:
        for _ in left:
            await step.defer_async(left=steps, payload=KILOBYTE)

    await asyncio.gather(*(caller() for _ in range(min(CALLERS, runs))))
    while True:
        found = await connection.execute(
            "select exists (select from procrastinate_jobs where status in ('todo', 'doing'))"
        )
        if not (await found.fetchone())[0]:
            return
        await asyncio.sleep(look)


if __name__ == "__main__":
    asyncio.run((work if sys.argv[1] == "work" else main)(json.loads(sys.argv[-1])))
