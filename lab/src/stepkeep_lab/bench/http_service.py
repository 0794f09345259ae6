"""Measures the service over HTTP: clients that start runs and wait for them, and a start beside a bare insert.

The service and the worker are processes of their own; so is a FastAPI application that inserts one row into the same
kind of database, durably. Clients keep one connection each.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

from stepkeep.engine import AsyncEngine
from stepkeep_lab.bench.ground import PATIENCE, Ground, NotMeasured, end, last_words, workers
from stepkeep_lab.bench.http_client import Connection
from stepkeep_lab.bench.measurement import Figures, percentile
from stepkeep_lab.bench.resource_usage import cpu_of, spent
from stepkeep_lab.bench.workflows import INPUT, chain

WARM_UP = 64
MILLION = 1_000_000
BARE = "stepkeep_lab.bench.bare_service"


async def awaited(ground: Ground, *, steps: int, runs: int, clients: int) -> Figures:
    """Runs of `steps` no-ops, each started and awaited in one request by one of `clients`."""
    async with AsyncEngine(ground.url, auto_migrate=True, actor="operator") as engine:
        key = await furnish(engine, steps)
        async with workers(ground, engine) as pids, serving(ground) as (address, service):
            await _serve_clients(address, key, steps, WARM_UP, min(clients, WARM_UP))
            before, begun = spent(pids, ground.server_pid), time.perf_counter()
            served = cpu_of(service)
            taken = await _serve_clients(address, key, steps, runs, clients)
            seconds, cost = time.perf_counter() - begun, spent(pids, ground.server_pid).since(before)
            served = cpu_of(service) - served
    return {
        "runs_per_second": runs / seconds,
        "p50_ms": percentile(taken, 0.5) * 1000,
        "p99_ms": percentile(taken, 0.99) * 1000,
        "service_us": served / runs * MILLION,
        "worker_us": cost.worker / runs * MILLION,
        "client_us": cost.client / runs * MILLION,
        "server_us": cost.server / runs * MILLION,
        "all_us": (served + cost.worker + cost.client + cost.server) / runs * MILLION,
    }


async def one_start(ground: Ground, *, steps: int, probes: int) -> Figures:
    """One start at a time over HTTP, in turns with a row that a bare FastAPI application inserts."""
    async with AsyncEngine(ground.url, auto_migrate=True, actor="operator") as engine:
        key = await furnish(engine, steps)
    starts: list[float] = []
    inserts: list[float] = []
    body = {"workflow": f"chain-{steps}", "input": INPUT}
    async with (
        serving(ground) as (address, service),
        _bare(ground) as bare,
        Connection(address, key) as ours,
        Connection(bare) as other,
    ):
        for connection in (ours, other) * 20:
            await connection.ask("POST", "/runs", body)
        before = cpu_of(service)
        for _ in range(probes):
            for connection, times in ((ours, starts), (other, inserts)):
                begun = time.perf_counter()
                await connection.ask("POST", "/runs", body)
                times.append(time.perf_counter() - begun)
        cost = cpu_of(service) - before
    return {
        "p50_ms": percentile(starts, 0.5) * 1000,
        "p99_ms": percentile(starts, 0.99) * 1000,
        "bare_p50_ms": percentile(inserts, 0.5) * 1000,
        "bare_p99_ms": percentile(inserts, 0.99) * 1000,
        "service_us": cost / probes * MILLION,
    }


async def furnish(engine: AsyncEngine, steps: int) -> str:
    """A workflow, and a key that may start and read."""
    await engine.publish(chain(steps))
    await engine.users.create("bench")
    return str((await engine.keys.create("bench", scopes=("read", "start"))).secret)


async def _serve_clients(address: str, key: str, steps: int, runs: int, clients: int) -> list[float]:
    """How long each of these runs took its client."""
    taken: list[float] = []
    left: Iterator[int] = iter(range(runs))
    body = {"workflow": f"chain-{steps}", "input": INPUT}

    async def call() -> None:
        async with Connection(address, key) as connection:
            for _ in left:
                begun = time.perf_counter()
                result = (await connection.ask("POST", "/runs?wait=60", body))["result"]
                if result["state"] != "succeeded" or result["output"] is None:
                    raise NotMeasured(f"run {result['run_id']} is {result['state']}")
                taken.append(time.perf_counter() - begun)

    await asyncio.gather(*(call() for _ in range(clients)))
    return taken


@asynccontextmanager
async def serving(ground: Ground) -> AsyncIterator[tuple[str, int]]:
    """A process that serves: its address and its id."""
    command = [sys.executable, "-m", ground.worker, "serve", "--db", ground.url, "--port", "0", "--json"]
    async with running(ground, command, "service") as child:
        text = await asyncio.to_thread(first_object, child)
        if not text:
            raise NotMeasured(f"the service did not start: {last_words(ground.folder / 'service.log')}")
        yield str(json.loads(text)["service"]["address"]), child.pid


@asynccontextmanager
async def _bare(ground: Ground) -> AsyncIterator[str]:
    """A process with a bare FastAPI application on the same kind of database: its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = ground.url if ground.server is not None else str(ground.folder / "bare.db")
    command = [sys.executable, "-m", BARE, url, str(listener.fileno())]
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with listener:
        async with running(ground, command, "bare", keep=(listener.fileno(),)):
            # The listener holds the connection until the application takes it.
            async with asyncio.timeout(PATIENCE), Connection(address) as probe:
                await probe.ask("POST", "/runs", {"workflow": "warm", "input": INPUT})
            yield address


@asynccontextmanager
async def running(
    ground: Ground, command: Sequence[str], name: str, keep: tuple[int, ...] = ()
) -> AsyncIterator[subprocess.Popen[str]]:
    """A process that ends with the block; its log is `NAME.log`."""
    with (ground.folder / f"{name}.log").open("ab") as log:
        child = subprocess.Popen(  # noqa: ASYNC220 - once
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            pass_fds=keep,
        )
    try:
        yield child
    finally:
        await asyncio.to_thread(end, [child])
        assert child.stdout is not None
        child.stdout.close()


def first_object(child: subprocess.Popen[str]) -> str:
    """The JSON object that a service prints; empty where it ended instead."""
    assert child.stdout is not None
    text = ""
    while not text.endswith("\n}\n"):
        line = child.stdout.readline()
        if not line:
            return ""
        text += line
    return text
