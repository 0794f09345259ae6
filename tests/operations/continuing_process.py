"""A workflow whose handlers kill their process once where a file says so: `python -c "... work(URL, RUN)"`."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import stepkeep as sk
from stepkeep.engine import AsyncEngine


def act(ctx: sk.Context, name: str) -> str:
    """Note what is done; die before it if the file `kill-NAME` is there, which is then gone."""
    folder = Path(ctx.input["folder"])
    if (folder / f"kill-{name}").exists():
        (folder / f"kill-{name}").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    with (folder / "ledger").open("a", encoding="utf-8") as ledger:
        ledger.write(f"{name} {ctx.idempotency_key}\n")
    return name


async def book(ctx: sk.Context) -> str:
    return act(ctx, "book")


async def ship(ctx: sk.Context) -> str:
    if (Path(ctx.input["folder"]) / "broken").exists():
        raise sk.fail("ship is broken")
    return act(ctx, "ship")


async def unbook(ctx: sk.Context) -> None:
    act(ctx, "unbook")


async def unship(ctx: sk.Context) -> None:
    act(ctx, "unship")


def shop() -> sk.Workflow:
    """It books, ships and waits to be paid; a lease ends so soon that a test need not wait."""
    flow = sk.Workflow("killed-shop", lease="1s")
    booked = flow.step("book", book, effect="write", undo=unbook)
    shipped = flow.step("ship", ship, after=booked, effect="write", undo=unship)
    flow.wait("paid", "paid", after=shipped, deadline="1h")
    return flow


def work(url: str, run_id: str) -> None:
    """Work on a run until it is blocked, has ended, or this process is killed."""
    shop()

    async def go() -> None:
        async with AsyncEngine(url, actor="ann") as engine:
            await engine.work_on(run_id)

    asyncio.run(go())
