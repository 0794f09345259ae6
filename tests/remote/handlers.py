"""Handlers of the processes in the tests of remote workers. They leave marks in a folder, and wait for files there."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import stepkeep as sk

MARKS = Path(os.environ.get("STEPKEEP_MARKS", "."))


def mark(name: str) -> None:
    with (MARKS / name).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")


@sk.step("fleet.quick")
def quick(ctx: sk.Context) -> int:
    mark(f"{ctx.step}-{ctx.run_id}")
    return ctx.attempt


@sk.step("fleet.gated")
def gated(ctx: sk.Context) -> int:
    """Runs until the file `go` is there, or until its lease is lost."""
    mark(f"{ctx.step}-{ctx.run_id}")
    while not (MARKS / "go").exists() and not ctx.cancelled:
        time.sleep(0.02)
    return os.getpid()


async def hold(run_id: str) -> int:
    """Holds the flow itself, until the file `flow` is there."""
    mark(f"flow-{run_id}")
    while not (MARKS / "flow").exists():  # noqa: ASYNC110 - another process makes the file
        await asyncio.sleep(0.02)
    return os.getpid()


@sk.flow("fleet.flow", lease="4s")
async def flow(ctx: Any) -> list[Any]:
    first = await ctx.step(quick)
    held = await ctx.once("held", hold, ctx.run_id)
    second, third = await asyncio.gather(ctx.options(name="long").step(gated), ctx.step(quick))
    return [first, held, second, third]
