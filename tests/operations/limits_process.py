"""A worker in a process of its own that is killed after a commit: `python limits_process.py URL COMMITS`.

Its handler does nothing. The process ends by itself when no run is left to do.
"""

import asyncio
import sys

from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from stepkeep.store.connect import connect
from stepkeep.store.records import RunFilter
from stepkeep.worker.loop import Worker
from stepkeep.worker.settings import Settings
from tests.operations.children_process import Mortal

LIVE = tuple(state for state in RunState if state not in RUN_TERMINAL)


async def main(url: str, commits: int) -> None:
    async def limited() -> int:
        await asyncio.sleep(0)
        return 1

    registry = Registry()
    registry.register(HandlerSpec(name="limited", function=limited))
    store = connect(url)
    await store.open()
    try:
        quick = Settings(sweep_seconds=0.05, resources_seconds=0.02, idle_poll_seconds=0.05, rare_poll_seconds=0.1)
        transactor = Mortal(store)
        transactor.left = commits

        async def is_over() -> bool:
            return not await store.list_runs(RunFilter(tenant="default", states=LIVE, limit=1))

        await Worker(transactor, registry, app="mortal", settings=quick).run_until(is_over)
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
