"""A worker in a process of its own that is killed after a commit.

`python flows_process.py URL RUN COMMITS LEDGER AHEAD`

It holds the flow of the tests, so that the tests and their processes have the same one. Its clock is `AHEAD`
microseconds ahead: past the leases of a worker that was killed before, which need no wait then.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import stepkeep as sk
from stepkeep.kernel.machine.states import RUN_TERMINAL
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.connect import connect
from stepkeep.worker.loop import Worker
from stepkeep.worker.settings import Settings

registry = sk.Registry()
ledger = Path(os.devnull)
PATIENT = sk.Retry(max_attempts=10, max_losses=10)


def note(ctx: sk.Context, said: str) -> None:
    with ledger.open("a") as file:
        file.write(f"{ctx.idempotency_key} {said}\n")


@sk.step("buy.reserve", retry=PATIENT, registry=registry)
async def reserve(ctx: sk.Context, item: str) -> dict[str, str]:
    note(ctx, f"reserve {item}")
    return {"item": item}


@sk.step("buy.release", registry=registry)
async def release(ctx: sk.Context, item: str) -> None:
    note(ctx, f"release {item}")


def pay(ctx: sk.Context, item: str, cents: int) -> dict[str, Any]:
    """The effect of a charge: once, whichever attempt it is."""
    note(ctx, f"pay {item}")
    return {"item": item, "cents": cents}


@sk.step("buy.charge", undo=release, retry=PATIENT, registry=registry)
async def charge(ctx: sk.Context, item: str, cents: int) -> dict[str, Any]:
    note(ctx, f"charge {item}")
    if cents < 0:
        raise sk.fail("less than nothing")
    return await ctx.once("pay", pay, ctx, item, cents)


@sk.flow("buy", retry=PATIENT, registry=registry)
async def buy(ctx: Any, items: list[str]) -> int:
    """Reserve all at once, then charge one after the other."""
    ctx.emit("buying", len(items))
    reserved = await asyncio.gather(*(ctx.step(reserve, item) for item in items))
    ctx.cost(tokens=100)
    total = 0
    for place, one in enumerate(reserved):
        paid = await ctx.step(charge, one["item"], cents=place + 1)
        total += paid["cents"]
        ctx.emit("charged", place)
        ctx.cost(tokens=1)
    return total


@sk.flow("buy.crash", retry=sk.Retry(max_losses=2), registry=registry)
async def crash(ctx: Any) -> None:
    """Its code ends the process of its worker after the first call, whenever it is run."""
    await ctx.step(reserve, "it")
    os.kill(os.getpid(), 9)


class Mortal(Transactor):
    """Kills its process after so many commits."""

    left = 0

    def _committed(self, *given: Any) -> None:
        super()._committed(*given)
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), 9)


async def main(url: str, run_id: str, commits: int, ahead: int, handlers: sk.Registry = registry) -> None:
    store = connect(url)
    await store.open()
    store.clock_offset = ahead
    try:
        settings = Settings(sweep_seconds=0.05, idle_poll_seconds=0.05, rare_poll_seconds=0.1)
        transactor = Mortal(store)
        transactor.left = commits

        async def is_over() -> bool:
            found = await store.read_run("default", run_id)
            return found is not None and found.run.state in RUN_TERMINAL

        await Worker(transactor, handlers, app="mortal", settings=settings).run_until(is_over)
    finally:
        await store.close()


if __name__ == "__main__":
    ledger = Path(sys.argv[4])
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[5])))
