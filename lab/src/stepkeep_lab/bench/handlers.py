"""The handlers of measured steps: some do nothing and return bytes, one sleeps until it is cancelled.

Worker processes import them.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import stepkeep as sk

KILOBYTE = "x" * 1000
CALLS = 10
"""How many calls the measured flow makes."""


@sk.step("bench.noop")
async def noop() -> dict[str, str]:
    return {"payload": KILOBYTE}


@sk.flow("bench.ten-calls", max_calls=CALLS)
async def ten_calls(ctx: sk.FlowContext, payload: str) -> Any:
    """The no-ops of a chain, as calls. The kilobyte is the input of every measured run."""
    told = None
    for _ in range(CALLS):
        told = await ctx.options(timeout="1m").step(noop)
    return told


@sk.step("bench.numbers")
async def numbers(count: int) -> list[int]:
    return list(range(count))


@sk.step("bench.element")
async def element(number: int) -> dict[str, str]:
    """Half a kilobyte: the results of 10,000 are joined, and have a limit."""
    return {"payload": KILOBYTE[:500]}


@sk.step("bench.sleep")
async def sleep(ctx: sk.Context, marks: str) -> None:
    """Sleep until cancelled, and write down when that was."""
    stamp(marks, ctx.run_id, "begun")
    try:
        await asyncio.sleep(600)
    finally:
        stamp(marks, ctx.run_id, "ended")


@sk.step("bench.fail", retry=sk.Retry(max_attempts=1))
async def fail(ctx: sk.Context, marks: str) -> None:
    """Fail as soon as a file says so, and write down when that was."""
    while not (Path(marks) / f"{ctx.run_id}.fail").exists():  # noqa: ASYNC110 - another process says so, by a file
        await asyncio.sleep(0.005)
    stamp(marks, ctx.run_id, "failed")
    raise ValueError("asked to fail")


def stamp(marks: str, run_id: str, name: str) -> None:
    (Path(marks) / f"{run_id}.{name}").write_text(str(time.time()), encoding="ascii")
