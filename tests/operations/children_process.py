"""A worker in a process of its own that is killed after a commit: `python children_process.py URL RUN COMMITS AHEAD`.

Its clock is `AHEAD` microseconds ahead: past the leases of a worker that was killed before, which need no wait then.
"""

import asyncio
import os
import sys
from typing import Any

from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.kernel.machine.states import RUN_TERMINAL
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.connect import connect
from stepkeep.worker.loop import Worker
from stepkeep.worker.settings import Settings


async def noop() -> int:
    return 1


class Mortal(Transactor):
    """Kills its process after so many commits."""

    left = 0

    def _committed(self, *given: Any) -> None:
        super()._committed(*given)
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), 9)


async def main(url: str, run_id: str, commits: int, ahead: int) -> None:
    registry = Registry()
    registry.register(HandlerSpec(name="noop", function=noop))
    store = connect(url)
    await store.open()
    store.clock_offset = ahead
    try:
        settings = Settings(sweep_seconds=0.05, children_seconds=0.05, idle_poll_seconds=0.05, rare_poll_seconds=0.1)
        transactor = Mortal(store)
        transactor.left = commits

        async def is_over() -> bool:
            found = await store.read_run("default", run_id)
            return found is not None and found.run.state in RUN_TERMINAL

        await Worker(transactor, registry, app="mortal", settings=settings).run_until(is_over)
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
