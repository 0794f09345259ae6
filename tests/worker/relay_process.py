"""A worker with its relay in a process of its own, to be killed: `python relay_process.py URL`.

With the variable TOLD_FILE it has a function with `@on`, which appends the id of each event to that file.
"""

import asyncio
import os
import sys

from stepkeep.definition.python.registry import HandlerSpec, Registry, on
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.sinks.event import OutgoingEvent
from stepkeep.store.connect import connect
from stepkeep.worker.context import Context
from stepkeep.worker.executors.http import HttpPolicy
from stepkeep.worker.loop import Worker
from stepkeep.worker.settings import Settings

EVENTS = 3


async def tell(ctx: Context) -> int:
    for number in range(EVENTS):
        ctx.emit(f"order.part{number}", {"step": ctx.step, "number": number})
    return EVENTS


async def main(url: str) -> None:
    registry = Registry()
    registry.register(HandlerSpec(name="tell", function=tell))
    if (file := os.environ.get("TOLD_FILE")) is not None:

        def note(event: OutgoingEvent) -> None:
            with open(file, "a", encoding="ascii") as told:
                told.write(f"{event.id}\n")

        on("order.*", name="note", registry=registry)(note)
    store = connect(url)
    await store.open()
    try:
        settings = Settings(
            relay_seconds=0.1,
            relay_lease_seconds=3.0,
            sweep_seconds=0.3,
            idle_poll_seconds=0.1,
            rare_poll_seconds=0.3,
            lease_us=2_000_000,
            http=HttpPolicy(allow=("127.0.0.1",)),
        )
        worker = Worker(Transactor(store), registry, app="relay", settings=settings)
        await worker.serve(signals=True)
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
