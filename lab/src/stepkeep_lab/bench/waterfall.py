"""`stepkeep bench --waterfall`: the stages of one run that nothing else waits with, from its start to its result.

A stage is a call of the store, in the client or in the worker, or a handler. Both processes write down when each began
and ended, by the clock of the machine. Run as a program, it is a worker that does so.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import runpy
import statistics
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec.structs import replace

from stepkeep.engine import AsyncEngine
from stepkeep.kernel.plan import Plan
from stepkeep.store.postgres.store import PostgresStore
from stepkeep.store.sqlite.store import SqliteStore
from stepkeep.worker.executors.python import PythonExecutor
from stepkeep_lab.bench.delivery import check
from stepkeep_lab.bench.ground import Ground, fresh_ground, own_server, workers
from stepkeep_lab.bench.measurement import percentile
from stepkeep_lab.bench.workflows import INPUT, chain

STEPS, PROBES, WARM_UP, REST = 3, 50, 10, 0.02
MARKS = "STEPKEEP_BENCH_MARKS"
"""Names the file to which a worker appends what it marked."""

CHORES = frozenset({"beat", "change_workers", "find_due", "list_queues", "now", "report_worker", "status"})
"""Calls of a store that belong to no run."""

_encode, _decode = msgspec.json.encode, msgspec.json.Decoder(tuple[str, float, float]).decode


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One stage: milliseconds from the start of the run, and how long it took; medians over the runs that had it.

    `share` is the part of the runs that had it: a poll that comes in some runs alone is a stage of these.
    """

    who: str
    what: str
    begins_ms: float
    takes_ms: float
    share: float


class Waterfall(msgspec.Struct, frozen=True, kw_only=True):
    """The stages of a run on one store, in the order in which they begin."""

    store: str
    runs: int
    p50_ms: float
    stages: tuple[Stage, ...]


Mark = Callable[[str, float, float], None]


@contextmanager
def marking(mark: Mark) -> Iterator[None]:
    """Mark each call of a store and each handler of this process as long as the block runs."""
    before: list[tuple[type, str, Any]] = [
        (owner, name, getattr(owner, name)) for owner in (PostgresStore, SqliteStore) for name in _calls(owner)
    ]
    for owner, name, call in before:
        setattr(owner, name, _marked(call, name, mark))
    run = PythonExecutor.run
    before.append((PythonExecutor, "run", run))

    async def handle(executor: PythonExecutor, job: Any) -> Any:
        begun = time.monotonic()
        try:
            return await run(executor, job)
        finally:
            mark("handler", begun, time.monotonic())

    PythonExecutor.run = handle  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        for owner, name, call in before:
            setattr(owner, name, call)


def _calls(owner: type) -> list[str]:
    found = inspect.getmembers(owner, inspect.iscoroutinefunction)
    return [name for name, _ in found if not name.startswith("_") and name not in CHORES]


def _marked(call: Callable[..., Coroutine[Any, Any, Any]], name: str, mark: Mark) -> Callable[..., Any]:
    @functools.wraps(call)
    async def marked(*args: Any, **kwargs: Any) -> Any:
        begun = time.monotonic()
        try:
            return await call(*args, **kwargs)
        finally:
            mark(name, begun, time.monotonic())

    return marked


def measure(stores: Sequence[str], runs: int | None) -> list[Waterfall]:
    """The stages on each of these stores."""
    found = []
    with own_server(stores) as server:
        for store in stores:
            with fresh_ground(store, server) as ground:
                found.append(asyncio.run(_measured(ground, runs or PROBES)))
    return found


async def _measured(ground: Ground, probes: int) -> Waterfall:
    marks: list[tuple[str, str, float, float]] = []
    written = ground.folder / "marks"
    os.environ[MARKS] = str(written)
    try:
        async with AsyncEngine(ground.url, auto_migrate=True) as engine:
            plan = await engine.publish(chain(STEPS))
            async with workers(replace(ground, worker=__name__), engine):
                for _ in range(WARM_UP):
                    await _probe(engine, plan)
                with marking(lambda *one: marks.append(("client", *one))):
                    spans = [await _probe(engine, plan) for _ in range(probes)]
    finally:
        del os.environ[MARKS]
    marks += [("worker", *_decode(line)) for line in written.read_bytes().splitlines()]
    taken = [(ended - begun) * 1000 for begun, ended in spans]
    return Waterfall(store=ground.store, runs=probes, p50_ms=percentile(taken, 0.5), stages=stages(spans, marks))


async def _probe(engine: AsyncEngine, plan: Plan) -> tuple[float, float]:
    await asyncio.sleep(REST)
    begun = time.monotonic()
    check(await engine.wait((await engine.start(plan, INPUT)).run_id))
    return begun, time.monotonic()


def stages(spans: Sequence[tuple[float, float]], marks: Sequence[tuple[str, str, float, float]]) -> tuple[Stage, ...]:
    """What begins within the span of a run is a stage of it; the second call of a name is a stage of its own."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for begun, ended in spans:
        counts: dict[tuple[str, str], int] = {}
        for who, what, since, until in sorted(marks, key=lambda mark: mark[2]):
            if begun <= since < ended:
                counts[who, what] = count = counts.get((who, what), 0) + 1
                place = (who, what if count == 1 else f"{what} {count}")
                found.setdefault(place, []).append(((since - begun) * 1000, (until - since) * 1000))
    made = [
        Stage(
            who=who,
            what=what,
            begins_ms=round(statistics.median(begins for begins, _ in each), 2),
            takes_ms=round(statistics.median(takes for _, takes in each), 2),
            share=round(len(each) / len(spans), 2),
        )
        for (who, what), each in found.items()
    ]
    return tuple(sorted(made, key=lambda stage: stage.begins_ms))


def text(found: Sequence[Waterfall]) -> str:
    """A line for each stage, with a bar from its begin to its end."""
    return "\n\n".join(_drawn(each) for each in found)


def _drawn(one: Waterfall, width: int = 40) -> str:
    head = f"{one.store}: one idle {STEPS}-step run takes {one.p50_ms:.1f} ms (median of {one.runs})"
    per_ms = width / one.p50_ms
    lines = [
        f"  {stage.begins_ms:7.2f} {stage.takes_ms:6.2f} ms  {stage.who:<7}{stage.what:<24}"
        f"{'' if stage.share == 1 else f'{stage.share:.0%} of runs':<14}"
        + " " * min(width, int(stage.begins_ms * per_ms))
        + "█" * max(1, round(stage.takes_ms * per_ms))
        for stage in one.stages
    ]
    return "\n".join([head, *lines])


def _work(file: BinaryIO) -> None:
    def write(*mark: str | float) -> None:
        file.write(_encode(mark) + b"\n")

    with marking(write):
        runpy.run_module("stepkeep.cli.main", run_name="__main__")


if __name__ == "__main__":
    with Path(os.environ[MARKS]).open("ab", buffering=0) as marks:
        _work(marks)
