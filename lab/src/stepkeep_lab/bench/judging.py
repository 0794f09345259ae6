"""Measures the judge: how fast it verifies exported logs and certifies runs, and how much memory it needs.

Logs are those of real runs. A long log is verified in passes over the same runs, because one log has each run once.
"""

from __future__ import annotations

import os
import time

from stepkeep.conformance.validate import validate
from stepkeep.engine import AsyncEngine
from stepkeep_lab.bench.ground import Ground, NotMeasured
from stepkeep_lab.bench.measurement import Figures, percentile
from stepkeep_lab.bench.recording import stages
from stepkeep_lab.bench.resource_usage import memory_of

MEGABYTE = 1024 * 1024


async def verify(ground: Ground, *, lines: int, runs: int, steps: int = 10, dialect: str | None = None) -> Figures:
    """Lines per second and CPU of `log verify` on logs with their definitions, and the memory that it adds."""
    async with AsyncEngine(ground.url, auto_migrate=True) as engine:
        known = await _ended(engine, runs, steps)
        log = [line for run_id in known for line in await engine.log(run_id, as_=dialect)]
    before, judged = memory_of(os.getpid()), 0
    begun, worked = time.perf_counter(), time.process_time()
    while judged < lines:
        _, report = validate(log)
        if not report.ok:
            raise NotMeasured(f"a true log has findings: {report.findings[0]}")
        judged += report.lines
    seconds, cpu = time.perf_counter() - begun, time.process_time() - worked
    return {
        "lines_per_second": judged / seconds,
        "line_us": cpu / judged * 1_000_000,
        "seconds": seconds,
        "added_mb": max(0, memory_of(os.getpid()) - before) / MEGABYTE,
    }


async def certify(ground: Ground, *, certificates: int, runs: int, steps: int = 3) -> Figures:
    """Certificates per second and their latency, one at a time: the journal, five dialects and the definition."""
    async with AsyncEngine(ground.url, auto_migrate=True) as engine:
        known = await _ended(engine, runs, steps)
        before, taken = memory_of(os.getpid()), []
        for number in range(certificates):
            begun = time.perf_counter()
            certificate = await engine.certify(known[number % len(known)])
            taken.append(time.perf_counter() - begun)
            if not certificate.ok:
                raise NotMeasured(f"a true run is not certified: {certificate.page()}")
    added = max(0, memory_of(os.getpid()) - before)
    return {
        "certificates_per_second": len(taken) / sum(taken),
        "seconds": sum(taken),
        "p50_ms": percentile(taken, 0.5) * 1000,
        "p99_ms": percentile(taken, 0.99) * 1000,
        "added_mb": added / MEGABYTE,
    }


async def _ended(engine: AsyncEngine, runs: int, steps: int) -> list[str]:
    """This many runs that have ended."""
    return [[run_id async for run_id in stages(engine, steps, {})][-1] for _ in range(runs)]
