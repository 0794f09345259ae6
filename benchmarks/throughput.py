"""A first figure: runs of N no-op steps in sequence, each durable, from the first start to the last run's end.

Through the public API with default settings: starts from this process, a worker in a process of its own, one kilobyte
in and out of every step, journals verified afterwards. Ratios travel, absolute figures do not: compare only what was
measured in one go on one machine.

    python benchmarks/throughput.py                        both databases, 3-step runs
    python benchmarks/throughput.py --runs 5000 --steps 10 --workers 2 --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import stepkeep as sk
from stepkeep.conformance.verify import verify_lines
from stepkeep.kernel.states import RUN_TERMINAL, RunState
from stepkeep.operations.lines import encode_line
from stepkeep.operations.log import canonical_machines, export_run
from stepkeep.testing.postgres import PostgresServer

HERE = Path(__file__).parent
INPUT = {"payload": "x" * 1000}
CALLERS = 500


def workflow(steps: int) -> sk.Workflow:
    """`steps` no-ops, one after the other."""
    from handlers import noop

    made = sk.Workflow(f"bench-{steps}", version=1, timeout="1h")
    for number in range(steps):
        made.step(f"step-{number}", noop, inputs={}, timeout="1m")
    return made


@contextmanager
def workers(url: str, count: int, concurrency: int) -> Iterator[None]:
    """Worker processes as anybody would start them."""
    command = [sys.executable, "-m", "stepkeep.cli.main", "worker", "--app", str(HERE / "handlers.py")]
    command += ["--db", url, "--concurrency", str(concurrency)]
    started = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait(30)


async def measure(url: str, *, runs: int, steps: int) -> dict[str, Any]:
    """Start all runs as fast as they are accepted and wait for the last to end."""
    async with sk.AsyncEngine(url) as engine:
        plan = await engine.publish(workflow(steps))
        gate = asyncio.Semaphore(CALLERS)

        async def start() -> str:
            async with gate:
                return (await engine.start(plan, INPUT)).run_id

        begun = time.perf_counter()
        run_ids = await asyncio.gather(*(start() for _ in range(runs)))
        accepted = time.perf_counter()
        while True:
            counts = await engine.store.count_runs(engine.tenant)
            if sum(counts.get(state, 0) for state in RUN_TERMINAL) >= runs:
                break
            await asyncio.sleep(0.02)
        ended = time.perf_counter()
        if counts.get(RunState.SUCCEEDED, 0) != runs:
            raise SystemExit(f"not every run succeeded: {dict(counts)}")
        await verify(engine, run_ids)
    return {
        "runs_per_second": runs / (ended - begun),
        "steps_per_second": runs * steps / (ended - begun),
        "starts_per_second": runs / (accepted - begun),
        "seconds": ended - begun,
    }


async def verify(engine: sk.AsyncEngine, run_ids: list[str]) -> None:
    """The journal of every run must be legal, gapless and sealed."""
    machines = canonical_machines()
    for run_id in run_ids:
        lines = [encode_line(line) async for line in export_run(engine.transactor, run_id, tenant=engine.tenant)]
        report = verify_lines(lines, machines)
        if not report.ok:
            raise SystemExit("\n".join(str(finding) for finding in report.findings[:10]))


@contextmanager
def database(store: str) -> Iterator[str]:
    if store == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/bench.db"
    else:
        with PostgresServer() as server, server.fresh_database() as dsn:
            yield dsn


def bench(store: str, options: argparse.Namespace) -> dict[str, Any]:
    rounds = []
    for _ in range(options.rounds):
        with database(store) as url, workers(url, options.workers, options.concurrency):
            rounds.append(asyncio.run(measure(url, runs=options.runs, steps=options.steps)))
    figures = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    spread = [round(each["steps_per_second"]) for each in rounds]
    return {"store": store, **figures, "rounds": spread}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--store", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sys.path.insert(0, str(HERE))
    os.environ["PYTHONPATH"] = str(HERE)
    stores = ["sqlite", "postgres"] if options.store == "both" else [options.store]
    results = [bench(store, options) for store in stores]
    report = {
        "runs": options.runs,
        "steps": options.steps,
        "workers": options.workers,
        "journals_verified": True,
        "results": results,
    }
    if options.json:
        print(json.dumps(report))
        return 0
    print(f"{options.runs} runs of {options.steps} steps, {options.workers} worker process(es), journals verified")
    for result in results:
        print(
            f"{result['store']:>9}: {result['steps_per_second']:8.0f} steps/s  "
            f"{result['runs_per_second']:7.0f} runs/s  "
            f"{result['starts_per_second']:7.0f} starts/s   (rounds: {result['rounds']})"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
