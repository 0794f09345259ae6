"""A worker in a process of its own that is killed after a commit: `python resources_process.py URL COMMITS FILE`.

Its handler locks the file, which the system frees when the process dies. A second holder writes a line into
`FILE.wrong`. The process ends by itself when no run is left to do.
"""

import asyncio
import fcntl
import sys
from pathlib import Path

from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from stepkeep.store.connect import connect
from stepkeep.store.records import RunFilter
from stepkeep.worker.loop import Worker
from stepkeep.worker.settings import Settings
from tests.operations.children_process import Mortal

LIVE = tuple(state for state in RunState if state not in RUN_TERMINAL)


async def main(url: str, commits: int, file: Path) -> None:
    async def alone() -> int:
        with file.open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                with file.with_suffix(".wrong").open("a") as wrong:
                    wrong.write("two steps hold it\n")
            await asyncio.sleep(0)
        return 1

    registry = Registry()
    registry.register(HandlerSpec(name="alone", function=alone))
    store = connect(url)
    await store.open()
    try:
        quick = Settings(
            sweep_seconds=0.05,
            resources_seconds=0.02,
            idle_poll_seconds=0.05,
            rare_poll_seconds=0.1,
        )
        transactor = Mortal(store)
        transactor.left = commits

        async def is_over() -> bool:
            return not await store.list_runs(RunFilter(tenant="default", states=LIVE, limit=1))

        await Worker(transactor, registry, app="mortal", settings=quick).run_until(is_over)
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
