"""CPU time of a worker per step, with and without counting for metrics, in turns in one process.

    python benchmarks/metrics_overhead.py [ROUNDS] [RUNS]

One round is RUNS runs of three steps on a new SQLite file. Both kinds of rounds alternate, so that what else happens on
the machine meets both. It prints the median of each kind and the median of the differences between neighbours.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

import stepkeep as sk
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.engine import AsyncEngine

STEPS = 3


async def measured(folder: str, runs: int, is_watched: bool) -> float:
    """Microseconds of CPU per step."""
    registry = Registry()
    registry.register(HandlerSpec(name="noop", function=_noop))
    flow = sk.Workflow("overhead")
    for no in range(STEPS):
        flow.step(f"s{no}", "noop", after=[f"s{no - 1}"] if no else [])
    path = Path(folder) / f"{time.monotonic_ns()}.db"
    async with AsyncEngine(f"sqlite:///{path}", actor="bench", registry=registry) as engine:
        engine.transactor.measures.is_watched = is_watched
        plan = await engine.publish(flow)
        await engine.start_worker(concurrency=200)
        began = time.process_time()
        started = await asyncio.gather(*(engine.start(plan) for _ in range(runs)))
        await asyncio.gather(*(engine.wait(one.run_id) for one in started))
        return (time.process_time() - began) / (runs * STEPS) * 1_000_000


async def _noop() -> None:
    return None


async def main(rounds: int, runs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        await measured(folder, runs, True)  # warms up
        pairs = []
        for number in range(rounds):
            order = (False, True) if number % 2 else (True, False)
            found = {is_watched: await measured(folder, runs, is_watched) for is_watched in order}
            pairs.append((found[False], found[True]))
    without, counted = (statistics.median(column) for column in zip(*pairs, strict=True))
    more = statistics.median(after - before for before, after in pairs)
    print(f"without counting: {without:.1f} µs per step (median of {rounds} rounds, {runs} runs of {STEPS} steps each)")
    print(f"with counting:    {counted:.1f} µs per step")
    print(f"difference:       {more:+.1f} µs per step ({more / without:+.1%})")


if __name__ == "__main__":
    asyncio.run(main(*(int(one) for one in [*sys.argv[1:], "11", "1000"][:2])))
