"""A worker in a process of its own that is killed after it appended to a stream: `python streams_process.py URL RUN
APPENDS BEFORE AHEAD`.

With `BEFORE`, it dies before that append, else after it. Its clock is `AHEAD` microseconds ahead: past the leases of a
worker that was killed before, which need no wait then.
"""

import asyncio
import os
import sys
from collections.abc import Sequence

from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.kernel.machine.rows import StreamPart
from stepkeep.kernel.machine.states import RUN_TERMINAL
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.streams.writing import StreamWriter
from stepkeep.store.connect import connect
from stepkeep.store.streams import Holder
from stepkeep.worker.context import Context
from stepkeep.worker.loop import Worker
from stepkeep.worker.settings import Settings

PARTS = 4
"""How many parts an attempt appends, one after the other."""


async def talk(ctx: Context) -> int:
    """Goes on where the attempts before have ended, in one stream; writes another anew."""
    tokens, again = ctx.stream("tokens", after="last"), ctx.stream("again")
    for number in range(PARTS):
        tokens.write(f"{ctx.attempt}.{number}")
        again.write(number)
        async with asyncio.timeout(30):
            while ctx.streams.size_bytes:  # noqa: ASYNC110 - the worker tells nothing when it has appended
                await asyncio.sleep(0.005)
    tokens.write("end")
    return PARTS


class Mortal(StreamWriter):
    """Kills its process at an append."""

    left, dies_before = 0, False

    async def append(self, holder: Holder, parts: Sequence[StreamPart]) -> None:
        self.left -= 1
        if self.left == 0 and self.dies_before:
            os.kill(os.getpid(), 9)
        await super().append(holder, parts)
        if self.left == 0:
            os.kill(os.getpid(), 9)


async def main(url: str, run_id: str, appends: int, before: bool, ahead: int) -> None:
    registry = Registry()
    registry.register(HandlerSpec(name="talk", function=talk))
    store = connect(url)
    await store.open()
    store.clock_offset = ahead
    try:
        transactor = Transactor(store)
        writer = Mortal(store, transactor.payloads.seal)
        writer.left, writer.dies_before, transactor.streams = appends, before, writer

        async def is_over() -> bool:
            found = await store.read_run("default", run_id)
            return found is not None and found.run.state in RUN_TERMINAL

        settings = Settings(sweep_seconds=0.05, idle_poll_seconds=0.05, rare_poll_seconds=0.1)
        await Worker(transactor, registry, app="mortal", settings=settings).run_until(is_over)
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "before", int(sys.argv[5])))
