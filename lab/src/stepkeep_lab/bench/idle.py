"""Measures the cost of an idle worker, and the statements per step of a busy one.

Statements are counted in the server's log, which records all statements of one database.
"""

from __future__ import annotations

import asyncio
import re
import time
from urllib.parse import urlsplit

from stepkeep.engine import AsyncEngine
from stepkeep_lab.bench.ground import Ground, NotMeasured, workers
from stepkeep_lab.bench.load import all_ended, start_runs
from stepkeep_lab.bench.measurement import Figures
from stepkeep_lab.bench.resource_usage import memory_of, spent
from stepkeep_lab.bench.sql import open_sql
from stepkeep_lab.bench.throughput import MILLION
from stepkeep_lab.bench.workflows import chain

ASKED = re.compile(r"LOG:  (?:statement|execute)")
SETTLE = 4.0


async def idle_worker(ground: Ground, *, seconds: float, settle: float = SETTLE) -> Figures:
    """A worker with nothing to do: what it asks by the second, its CPU, its memory."""
    await _log_statements(ground)
    async with AsyncEngine(ground.url, auto_migrate=True) as engine:
        await engine.publish(chain(3))
        async with workers(ground, engine) as pids:
            await asyncio.sleep(settle)
            before, asked, begun = spent(pids, ground.server_pid), _asked(ground), time.perf_counter()
            await asyncio.sleep(seconds)
            took = time.perf_counter() - begun
            cost, asked_after = spent(pids, ground.server_pid).since(before), _asked(ground)
            memory = memory_of(pids[0])
    figures = {"worker_cpu_percent": cost.worker / took * 100, "worker_mb": memory / MILLION}
    if ground.server is None:
        return figures
    return {
        "statements_per_second": (asked_after - asked) / took,
        "server_cpu_percent": cost.server / took * 100,
        **figures,
    }


async def round_trips(ground: Ground, *, steps: int, runs: int) -> Figures:
    """How often worker and client ask the server per step, runs of `steps` no-ops."""
    await _log_statements(ground)
    async with AsyncEngine(ground.url, auto_migrate=True) as engine:
        plan = await engine.publish(chain(steps))
        async with workers(ground, engine):
            await all_ended(engine, await start_runs(engine, plan, 10))
            asked = _asked(ground)
            await all_ended(engine, await start_runs(engine, plan, runs), look=1.0)
            return {"round_trips": (_asked(ground) - asked) / (runs * steps)}


async def _log_statements(ground: Ground) -> None:
    if ground.server is None:
        return
    if ground.server.is_external:
        raise NotMeasured("statements are counted in the server's log, and this server is someone else's")
    name = urlsplit(ground.url).path.lstrip("/")
    async with open_sql(ground) as sql:
        await sql.run(f"alter database {name} set log_statement = 'all'")
        await sql.run(f"alter database {name} set log_parameter_max_length = 0")


def _asked(ground: Ground) -> int:
    return 0 if ground.server is None else len(ASKED.findall(ground.server.log))
