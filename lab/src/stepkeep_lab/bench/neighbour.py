"""Measures what one tenant's worst does to another tenant of the same service: the same requests, quiet and beside it.

The service is a real process; so is the attacker (`attack`). Both halves are measured in one run, one after the other,
so that the machine is the same. Everything is on loopback. `stepkeep lab neighbour` calls it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext

import msgspec

import stepkeep as sk
from stepkeep.engine import AsyncEngine
from stepkeep_lab.bench.ground import STORES, Ground, NotMeasured, end, fresh_ground
from stepkeep_lab.bench.http_client import Connection
from stepkeep_lab.bench.http_service import serving
from stepkeep_lab.bench.measurement import percentile
from stepkeep_lab.postgres import PostgresServer

CLIENTS = 4
PAUSE_SECONDS = 0.02
"""Between two requests of the neighbour, who is no load himself."""
MOST_MS = 100.0
"""By how much the p99 of the neighbour may rise."""
ALL = ("read", "start", "decide", "complete", "operate")
CHECKED = {
    "properties": {"text": {"pattern": "^[ab]*a[ab]{30}"}, "many": {"items": {"type": "integer", "minimum": 0}}},
}


class Half(msgspec.Struct, frozen=True):
    """The neighbour's requests of one half."""

    requests: int
    p50_ms: float
    p99_ms: float
    most_ms: float


class Neighbour(msgspec.Struct, frozen=True):
    """Both halves on one store, and what the attacker was answered."""

    store: str
    quiet: Half
    attacked: Half
    answers: dict[str, int]

    @property
    def raised_ms(self) -> float:
        return self.attacked.p99_ms - self.quiet.p99_ms

    @property
    def ok(self) -> bool:
        return self.raised_ms < MOST_MS


def measure(stores: tuple[str, ...] = STORES, *, seconds: float, only: Sequence[str] = ()) -> list[Neighbour]:
    """Measure on each of these stores: half of the time quiet, at most 20 s, and so many seconds attacked."""
    with PostgresServer() if "postgres" in stores else nullcontext() as server:
        found = []
        for store in stores:
            with fresh_ground(store, server) as ground:
                found.append(asyncio.run(_measure(ground, seconds, only)))
        return found


async def _measure(ground: Ground, seconds: float, only: Sequence[str]) -> Neighbour:
    async with AsyncEngine(ground.url, auto_migrate=True, actor="operator") as engine:
        key = await _furnish(engine, "calm")
        async with AsyncEngine(ground.url, tenant="wild", actor="operator") as wild:
            attacker = await _furnish(wild, "wild")
            waiting = (await wild.start("waiting")).run_id
    async with serving(ground) as (address, _):
        await _use(address, key, 1.0)
        quiet = await _use(address, key, min(20.0, seconds / 2 + 1))
        command = [
            sys.executable,
            "-m",
            "stepkeep_lab.bench.attack",
            address,
            attacker,
            waiting,
            str(seconds + 1),
            *only,
        ]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220 - once
        try:
            await asyncio.sleep(1.0)
            attacked = await _use(address, key, seconds)
            told, _ = await asyncio.to_thread(child.communicate, None, 60)
        finally:
            await asyncio.to_thread(end, [child])
    if child.returncode != 0:
        raise NotMeasured(f"the attacker ended with status {child.returncode}")
    return Neighbour(ground.store, quiet, attacked, dict(sorted(json.loads(told).items())))


async def _furnish(engine: AsyncEngine, name: str) -> str:
    """Workflows, and a key with the ordinary scopes."""
    plain, waiting = sk.Workflow("plain"), sk.Workflow("waiting")
    plain.step("a", "bench.nothing", timeout="5s")
    waiting.wait("paid", "paid")
    checked = sk.Workflow("checked", input_schema=CHECKED)
    for place in range(12):
        checked.step(f"s{place}", "bench.nothing", timeout="5s", retry=sk.Retry(max_attempts=3))
    for workflow in (plain, waiting, checked):
        await engine.publish(workflow)
    await engine.users.create(name)
    return str((await engine.keys.create(name, scopes=ALL)).secret)


async def _use(address: str, key: str, seconds: float) -> Half:
    """The neighbour: starts, reads and lists, by a few clients."""
    taken: list[float] = []
    until = time.perf_counter() + seconds

    async def client() -> None:
        async with Connection(address, key) as connection:

            async def timed(method: str, path: str, body: object = None) -> dict[str, str]:
                begun = time.perf_counter()
                answer: dict[str, str] = await connection.ask(method, path, body)
                taken.append((time.perf_counter() - begun) * 1000)
                await asyncio.sleep(PAUSE_SECONDS)
                return answer

            while time.perf_counter() < until:
                run = await timed("POST", "/runs", {"workflow": "plain", "input": {"a": 1}})
                await timed("GET", f"/runs/{run['run_id']}")
                await timed("GET", "/runs?limit=10")

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    half, most = (round(percentile(taken, share), 1) for share in (0.5, 0.99))
    return Half(len(taken), half, most, round(max(taken), 1))
