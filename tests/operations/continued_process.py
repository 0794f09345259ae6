"""A worker in a process of its own that is killed after a commit: `python continued_process.py URL COMMITS`.

It holds the flow of the tests, which continues as new twice. It ends when no run is left.
"""

import asyncio
import os
import sys
from typing import Any

import stepkeep as sk
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.connect import connect
from stepkeep.worker.loop import Worker
from stepkeep.worker.settings import Settings

registry = sk.Registry()
PATIENT = sk.Retry(max_attempts=10, max_losses=10)
LAST = 2


@sk.step("count.next", retry=PATIENT, registry=registry)
async def following(number: int) -> int:
    return number + 1


@sk.flow("count", retry=PATIENT, registry=registry)
async def count(ctx: Any, number: int) -> int:
    """One call, and the next run."""
    if number < LAST:
        ctx.continue_as_new({"number": await ctx.step(following, number)})
    return number


class Mortal(Transactor):
    """Kills its process after so many commits."""

    left = 0

    def _committed(self, *given: Any) -> None:
        super()._committed(*given)
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), 9)


async def main(url: str, commits: int, ahead: int) -> None:
    store = connect(url)
    await store.open()
    store.clock_offset = ahead
    try:
        settings = Settings(sweep_seconds=0.05, idle_poll_seconds=0.05, rare_poll_seconds=0.1)
        transactor = Mortal(store)
        transactor.left = commits
        async with sk.AsyncEngine(url, registry=registry) as engine:

            async def is_over() -> bool:
                found = [run for run in (await engine.runs())["runs"] if run["state"] == "succeeded"]
                return len(found) == LAST + 1

            await Worker(transactor, registry, app="mortal", settings=settings).run_until(is_over)
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
