"""Replaces the service again and again under load, and counts the requests that were not answered with success.

The processes serve on one socket that stays open, as under a supervisor. Clients send at a steady rate, each on its own
connection, and reconnect only where an answer asks for it. A request that is late counts, and is not sent twice.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from stepkeep.engine import AsyncEngine
from stepkeep_lab.bench.ground import PATIENCE, Ground, NotMeasured, last_words
from stepkeep_lab.bench.http_client import Connection
from stepkeep_lab.bench.http_service import first_object, furnish, running
from stepkeep_lab.bench.measurement import Figures, percentile

WORKFLOW = "/workflows/chain-3"


async def rolling(ground: Ground, *, rate: int, seconds: float, clients: int, restarts: int) -> Figures:
    """Reads at this rate while the service is replaced this many times, with pauses of `seconds` in all.

    A lost request is an error, not a figure.
    """
    async with AsyncEngine(ground.url, auto_migrate=True, actor="operator") as engine:
        key = await furnish(engine, 3)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    taken: list[float] = []
    lost: list[str] = []
    with listener:
        async with AsyncExitStack() as old:
            await old.enter_async_context(_serving(ground, listener))
            begun = time.perf_counter()
            pause, stop = clients / rate, asyncio.Event()
            sending = asyncio.gather(
                *(_send(address, key, number, pause, stop, taken, lost) for number in range(clients))
            )
            between = seconds / (restarts + 1)
            for _ in range(restarts):
                await asyncio.sleep(between)
                async with AsyncExitStack() as following:
                    await following.enter_async_context(_serving(ground, listener))
                    # The old one is asked to stop when its successor serves, and drains.
                    await old.aclose()
                    old.push_async_exit(following.pop_all())
            await asyncio.sleep(between)
            stop.set()
            await sending
            elapsed = time.perf_counter() - begun
    if lost:
        raise NotMeasured(f"{len(lost)} of {len(taken) + len(lost)} requests were lost: {lost[0]}")
    return {
        "requests_per_second": len(taken) / elapsed,
        "p50_ms": percentile(taken, 0.5) * 1000,
        "p99_ms": percentile(taken, 0.99) * 1000,
    }


async def _send(
    address: str, key: str, number: int, pause: float, stop: asyncio.Event, taken: list[float], lost: list[str]
) -> None:
    """Requests of one client, one at a time, each `pause` after the one before was due."""
    due = time.perf_counter() + pause * (number % 16) / 16
    async with AsyncExitStack() as open_:
        connection = await open_.enter_async_context(Connection(address, key))
        while not stop.is_set():
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            due += pause
            begun = time.perf_counter()
            try:
                async with asyncio.timeout(PATIENCE):
                    await connection.ask("GET", WORKFLOW)
            except (OSError, EOFError, TimeoutError, NotMeasured) as problem:
                lost.append(f"{type(problem).__name__}: {problem}")
                connection = await open_.enter_async_context(Connection(address, key))
            else:
                taken.append(time.perf_counter() - begun)


@asynccontextmanager
async def _serving(ground: Ground, listener: socket.socket) -> AsyncIterator[None]:
    """A process that serves on this socket, until the end of the block. It must end by itself, with status 0."""
    options = ["--fd", str(listener.fileno()), "--db", ground.url, "--json", "--log-level", "error"]
    command = [sys.executable, "-m", ground.worker, "serve", *options]
    async with running(ground, command, "service", keep=(listener.fileno(),)) as child:
        text = await asyncio.to_thread(first_object, child)
        if not text:
            raise NotMeasured(f"the service did not start: {last_words(ground.folder / 'service.log')}")
        assert json.loads(text)["service"], "the service tells where it is"
        yield
        child.send_signal(signal.SIGTERM)
        if await asyncio.to_thread(child.wait, PATIENCE) != 0:
            raise NotMeasured(f"a service ended with status {child.returncode}")
