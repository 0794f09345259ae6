# /// script
# dependencies = ["absurd-sdk", "absurdctl"]
#
# [tool.stepkeep-bench]
# title = "Absurd"
# package = "absurd-sdk"
# stores = ["postgres"]
# runs = { 1 = 1200, 3 = 800, 10 = 300 }
# ///
"""Absurd: tasks of checkpointed no-op steps, spawned here and run by a worker process with default polling.

Told what to do by one JSON argument, answers with JSON lines; `stepkeep bench --peers` runs it in an environment of its
own. The schema is the one that absurdctl carries.
"""

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import absurdctl
import psycopg
from absurd_sdk import AsyncAbsurd

KILOBYTE = "x" * 1000
CALLERS = 8
PLACES = 64


async def noop() -> dict[str, str]:
    return {"payload": KILOBYTE}


async def work(task: dict) -> None:
    app = AsyncAbsurd(task["url"])

    @app.register_task(name="chain")
    async def chain(params: dict, ctx) -> None:
        for number in range(params["steps"]):
            await ctx.step(f"step-{number}", noop)

    await app.start_worker(concurrency=PLACES)


async def main(task: dict) -> None:
    async with await psycopg.AsyncConnection.connect(task["url"], autocommit=True) as connection:
        await connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
        clients = [AsyncAbsurd(task["url"]) for _ in range(CALLERS)]
        await clients[0].create_queue("default")
        worker = subprocess.Popen([sys.executable, str(Path(__file__)), "work", sys.argv[-1]])
        try:
            ended = await run_all(connection, clients, 1, 10, 0)
            for steps, runs in task["works"]:
                begun = time.perf_counter()
                ended = await run_all(connection, clients, steps, runs, ended)
                print(json.dumps({"steps": steps, "runs": runs, "seconds": time.perf_counter() - begun}), flush=True)
            taken = []
            for _ in range(task["probes"]):
                await asyncio.sleep(0.02)
                begun = time.perf_counter()
                made = await clients[0].spawn("chain", {"steps": 3, "payload": KILOBYTE}, queue="default")
                while (await clients[0].fetch_task_result(made["task_id"])).state != "completed":
                    await asyncio.sleep(0.001)
                taken.append((time.perf_counter() - begun) * 1000)
            print(json.dumps({"latencies_ms": taken}), flush=True)
        finally:
            worker.terminate()
            worker.wait(30)


async def run_all(connection, clients: list, steps: int, runs: int, before: int) -> int:
    """Spawn this many tasks and wait until all have ended; returns how many have ended by then."""
    left = iter(range(runs))

    async def caller(client: AsyncAbsurd) -> None:
        for _ in left:
            await client.spawn("chain", {"steps": steps, "payload": KILOBYTE}, queue="default")

    await asyncio.gather(*(caller(client) for client in clients))
    while True:
        found = await connection.execute("select count(*) from absurd.t_default where state = 'completed'")
        [ended] = await found.fetchone()
        if ended >= before + runs:
            return ended
        await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run((work if sys.argv[1] == "work" else main)(json.loads(sys.argv[-1])))
