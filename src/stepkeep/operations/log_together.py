"""Exports runs and workers as one log in the order of time, as seed 004's `.state/transitions.jsonl` has them.

Each journal keeps its own order, chain and closing line. A journal is opened when its time comes, so that memory holds
the journals that overlap, not all. It only reads. The command line calls it.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from msgspec.structs import replace

from stepkeep.dialects.registry import judged
from stepkeep.errors import InvalidInput, NotFound
from stepkeep.kernel.rows import Worker
from stepkeep.operations import validate
from stepkeep.operations.log import RUNS_PAGE, Line, export_run, export_worker
from stepkeep.operations.transact import Transactor
from stepkeep.store.protocol import RunFilter

Journal = tuple[int, Callable[[], AsyncIterator[Line]]]
"""The time at which a journal begins, and how to read it."""


async def export_together(
    transactor: Transactor, run_ids: Iterable[str] | None, *, tenant: str, dialect: str | None = None
) -> AsyncIterator[Line]:
    """These runs with the workers that had attempts of them, or all runs and workers of the tenant."""
    if dialect is not None and judged(dialect).worker is None:
        raise InvalidInput(f"the {dialect} dialect has no words for workers.")
    runs = await (_all_runs(transactor, tenant) if run_ids is None else _these_runs(transactor, tenant, run_ids))
    workers = await transactor.store.list_workers(tenant)
    if run_ids is not None:
        workers = await _involved(transactor, tenant, runs, workers)
    options: dict[str, Any] = {"tenant": tenant, "dialect": dialect}
    journals: list[Journal] = [
        *((row.started_at, lambda name=row.id: export_worker(transactor, name, **options)) for row in workers),
        *((at, lambda name=run_id: export_run(transactor, name, **options)) for run_id, at in runs.items()),
    ]
    async for line in _merged(journals):
        yield line


async def _these_runs(transactor: Transactor, tenant: str, run_ids: Iterable[str]) -> dict[str, int]:
    found = {}
    for run_id in run_ids:
        record = await transactor.store.read_run(tenant, validate.run_id(run_id))
        if record is None:
            raise NotFound(f"there is no run {run_id}")
        found[run_id] = record.details.created_at
    return found


async def _all_runs(transactor: Transactor, tenant: str) -> dict[str, int]:
    found: dict[str, int] = {}
    page = RunFilter(tenant=tenant, limit=RUNS_PAGE)
    while records := await transactor.store.list_runs(page):
        found |= {record.run.id: record.details.created_at for record in records}
        page = replace(page, before=min(record.run.id for record in records))
    return found


async def _involved(
    transactor: Transactor, tenant: str, run_ids: Iterable[str], workers: Iterable[Worker]
) -> list[Worker]:
    """The workers with attempts of these runs, open ones included."""
    numbers: set[int | None] = set()
    for run_id in run_ids:
        numbers |= {attempt.worker for attempt in await transactor.store.read_attempts(tenant, run_id)}
        numbers |= {step.worker for step in await transactor.store.read_steps(tenant, run_id)}
    return [row for row in workers if row.no in numbers]


async def _merged(journals: Iterable[Journal]) -> AsyncIterator[Line]:
    """All lines by time. Of the same time, a claim comes last: it may take the place that another line frees."""
    waiting = sorted(journals, key=lambda journal: journal[0], reverse=True)
    heads: list[tuple[int, bool, int, Line, AsyncIterator[Line]]] = []
    count = 0
    while waiting or heads:
        while waiting and (not heads or waiting[-1][0] <= heads[0][0]):
            lines = waiting.pop()[1]()
            if (first := await anext(lines, None)) is not None:
                count += 1
                heapq.heappush(heads, (*_place(first), count, first, lines))
        if not heads:
            continue
        _, _, number, line, lines = heads[0]
        yield line
        if (following := await anext(lines, None)) is None:
            heapq.heappop(heads)
        else:
            heapq.heapreplace(heads, (*_place(following), number, following, lines))


def _place(line: Line) -> tuple[int, bool]:
    return line["metadata"]["at"], line["to_state"] == "running"
