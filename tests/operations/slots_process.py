"""A worker in a process of its own that is killed after a commit: `python slots_process.py URL COMMITS`.

It ends by itself when no run of the workflow `limited` is left to do.
"""

import asyncio
import sys

from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from stepkeep.store.connect import connect
from stepkeep.store.records import RunFilter
from stepkeep.worker.loop import Worker
from stepkeep.worker.settings import Settings
from tests.operations.children_process import Mortal, noop

LIVE = tuple(state for state in RunState if state not in RUN_TERMINAL)


async def main(url: str, commits: int) -> None:
    registry = Registry()
    registry.register(HandlerSpec(name="noop", function=noop))
    store = connect(url)
    await store.open()
    try:
        quick = Settings(sweep_seconds=0.05, slots_seconds=0.05, idle_poll_seconds=0.05, rare_poll_seconds=0.1)
        transactor = Mortal(store)
        transactor.left = commits

        async def is_over() -> bool:
            return not await store.list_runs(RunFilter(tenant="default", states=LIVE, limit=1))

        await Worker(transactor, registry, app="mortal", settings=quick).run_until(is_over)
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
