"""A worker as a process of its own, to be stopped, continued and killed: `python worker_process.py URL [CONCURRENCY]`.

Its handlers leave marks in a folder (`STEPKEEP_MARKS`), so that a test can see what really happened outside of any
database.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import stepkeep as sk

MARKS = Path(os.environ["STEPKEEP_MARKS"])


def mark(name: str) -> None:
    with open(MARKS / name, "a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")


@sk.step("noop")
async def noop() -> None:
    return None


@sk.step("linger")
async def linger(ctx: sk.Context) -> int:
    """Run until the folder says that it may end."""
    mark(f"begun-{ctx.run_id}")
    while not (MARKS / "may-end").exists():  # noqa: ASYNC110 - another process says so, by a file
        await asyncio.sleep(0.02)
    mark(f"ended-{ctx.run_id}")
    return os.getpid()


@sk.step("sleep-coroutine")
async def sleep_coroutine() -> None:
    mark("begun-coroutine")
    try:
        await asyncio.sleep(120)
    finally:
        mark("ended-coroutine")


@sk.step("sleep-process", mode="process")
def sleep_process() -> None:
    mark("begun-process")
    time.sleep(120)


@sk.step("linger-thread", mode="thread")
def linger_thread(ctx: sk.Context) -> None:
    """Block until the folder says that it may end; nothing else ends it."""
    mark(f"begun-{ctx.run_id}")
    while not (MARKS / "may-end").exists():
        time.sleep(0.02)
    mark(f"ended-{ctx.run_id}")


@sk.step("fail-when-told")
async def fail_when_told() -> None:
    while not (MARKS / "may-fail").exists():  # noqa: ASYNC110 - another process says so, by a file
        await asyncio.sleep(0.02)
    raise ValueError("told to fail")


@sk.step("undo")
async def undo() -> None:
    mark("undone")


@sk.step("kill-worker")
def kill_worker(ctx: sk.Context) -> None:
    """The step that no worker survives."""
    mark(f"kills-{ctx.run_id}")
    os.kill(os.getpid(), signal.SIGKILL)


@sk.step("transfer", transactional=True, mode="thread")
def transfer(ctx: sk.Context) -> None:
    """A write beside the decision; the first try dies after the write and before the commit, if the input says so."""
    mark(f"tries-{ctx.run_id}")
    ctx.connection.execute("insert into transfers (run_id) values (?)", (ctx.run_id,))
    if ctx.input["dies"]:
        tried = (MARKS / f"tries-{ctx.run_id}").read_text(encoding="utf-8").count("\n")
        if tried == 1:
            os.kill(os.getpid(), signal.SIGKILL)


@sk.step("transfer-async", transactional=True)
async def transfer_async(ctx: sk.Context) -> None:
    mark(f"tries-{ctx.run_id}")
    await ctx.connection.execute("insert into transfers (run_id) values ($1)", ctx.run_id)
    if ctx.input["dies"]:
        tried = (MARKS / f"tries-{ctx.run_id}").read_text(encoding="utf-8").count("\n")
        if tried == 1:
            os.kill(os.getpid(), signal.SIGKILL)


async def serve(url: str, concurrency: int) -> None:
    async with sk.AsyncEngine(url) as engine:
        commands = sk.CommandPolicy(tenants=(engine.tenant,))
        worker = engine.worker(app="acceptance", concurrency=concurrency, commands=commands)
        mark("up")
        await worker.serve(signals=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 16))
