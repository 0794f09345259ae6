"""Fills a database with runs in every state, with the program on the import path, and dies with a worker at work.

`make.py` runs it with an earlier program. It uses only what every earlier program has.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import handlers

import stepkeep as sk
from stepkeep.store.connect import connect

FILES = Path(__file__).parent / "definitions"
WANTED = {
    "done": "succeeded",
    "failed": "failed",
    "rolled back": "rolled_back",
    "gate": "blocked",
    "message": "blocked",
    "waiting": "blocked",
    "waited": "succeeded",
    "manual": "blocked",
    "retrying": "running",
    "running": "running",
    "cancelled": "cancelled",
    "undoing": "compensating",
    "stopping": "stopping",
    "queued": "queued",
    "idle": "idle",
}
"""The state in which each run is left, by its business key."""


async def fill(url: str) -> None:
    store = connect(url)
    await store.open()
    await store.migrate()
    await store.close()
    async with sk.AsyncEngine(url, actor="ann") as engine:

        async def start(name: str, file: str, **options: object) -> str:
            found = await engine.start(
                FILES / f"{file}.yaml", {}, business_key=name, idempotency_key=f"key of {name}", **options
            )
            return found.run_id

        async def state(run: str) -> str:
            return str((await engine.result(run)).state)

        runs = {
            "done": await start("done", "ok"),
            "failed": await start("failed", "failing"),
            "rolled back": await start("rolled back", "saga"),
            "gate": await start("gate", "gate"),
            "message": await start("message", "message"),
            "waiting": await start("waiting", "waiting"),
            "waited": await start("waited", "waiting"),
            "manual": await start("manual", "manual"),
            "retrying": await start("retrying", "retried"),
            "running": await start("running", "slow"),
            "cancelled": await start("cancelled", "slow"),
            "undoing": await start("undoing", "undoing"),
            "stopping": await start("stopping", "slow"),
            "queued": await start("queued", "elsewhere"),
            "idle": await start("idle", "ok", start_now=False),
        }
        worker = engine.worker(concurrency=50)
        working = asyncio.ensure_future(worker.serve())

        async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
            while not await is_so():
                if working.done():
                    working.result()
                await asyncio.sleep(0.05)

        async def has(run: str, step: str, wanted: str) -> bool:
            return any(one["name"] == step and one["state"] == wanted for one in (await engine.show(run))["steps"])

        for name in ("cancelled", "stopping", "running"):
            await until(lambda name=name: has(runs[name], "work", "running"))
        await engine.cancel(runs["cancelled"])
        await engine.cancel(runs["stopping"], compensate=True)
        await until(lambda: has(runs["undoing"], "undo:pay", "running"))
        await until(lambda: has(runs["waited"], "ask", "awaiting_event"))
        await engine.send(runs["waited"], "paid", {"amount": 1})

        async def is_there() -> bool:
            found = {name: await state(run) for name, run in runs.items()}
            return found == WANTED and await has(runs["retrying"], "try", "retrying")

        try:
            await asyncio.wait_for(until(is_there), 60)
        except TimeoutError:
            print({name: await state(run) for name, run in runs.items()})
            raise
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    os.environ[handlers.SEEDING] = "1"
    asyncio.run(fill(sys.argv[1]))
