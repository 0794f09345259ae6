"""Exports runs and workers as one log in the order of time, as seed 004's `.state/transitions.jsonl` has them.

Each journal keeps its own order, chain and closing line. A journal is opened when its time comes, so that memory holds
the journals that overlap, not all. It only reads. The command line calls it.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from msgspec.structs import replace

from stepkeep.dialects.dialect import LogLine
from stepkeep.dialects.registry import judged
from stepkeep.kernel.errors import InvalidInput, NotFound, Unreadable
from stepkeep.kernel.machine.rows import Worker
from stepkeep.operations import validate
from stepkeep.operations.logs.log import RUNS_PAGE, export_run, export_worker
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.records import RunFilter

Journal = tuple[int, Callable[[], AsyncIterator[LogLine]]]
"""The time at which a journal begins, and how to read it."""

Problems = list[Unreadable | NotFound]


async def export_together(
    transactor: Transactor, run_ids: Iterable[str] | None, *, tenant: str, dialect: str | None = None
) -> AsyncIterator[LogLine]:
    """These runs with the workers that had attempts of them, or all runs and workers of the tenant.

    An unreadable run ends where the damage shows, without its closing line; so does a run that is deleted meanwhile.
    After all others, the first such problem is raised.
    """
    problems: Problems = []
    if dialect is not None and judged(dialect).worker is None:
        raise InvalidInput(f"the {dialect} dialect has no words for workers.")
    runs = await (
        _all_runs(transactor, tenant, problems) if run_ids is None else _these_runs(transactor, tenant, run_ids)
    )
    workers = await transactor.store.list_workers(tenant)
    if run_ids is not None:
        workers = await _involved(transactor, tenant, runs, workers)
    options: dict[str, Any] = {"tenant": tenant, "dialect": dialect}
    journals: list[Journal] = [
        *((row.started_at, lambda name=row.id: export_worker(transactor, name, **options)) for row in workers),
        *((at, lambda name=run_id: export_run(transactor, name, **options)) for run_id, at in runs.items()),
    ]
    async for line in _merged(journals, problems):
        yield line
    if problems:
        raise problems[0]


async def _these_runs(transactor: Transactor, tenant: str, run_ids: Iterable[str]) -> dict[str, int]:
    found = {}
    for run_id in run_ids:
        record = await transactor.store.read_run(tenant, validate.run_id(run_id))
        if record is None:
            raise NotFound(f"there is no run {run_id}")
        found[run_id] = record.details.created_at
    return found


async def _all_runs(transactor: Transactor, tenant: str, problems: Problems) -> dict[str, int]:
    found: dict[str, int] = {}
    page = RunFilter(tenant=tenant, limit=RUNS_PAGE)
    while True:
        unreadable: list[Unreadable] = []
        records = await transactor.store.list_runs(page, unreadable)
        problems += unreadable
        found |= {record.run.id: record.details.created_at for record in records}
        listed = [*(record.run.id for record in records), *(str(problem.run_id) for problem in unreadable)]
        if not listed:
            return found
        page = replace(page, before=min(listed))


async def _involved(
    transactor: Transactor, tenant: str, run_ids: Iterable[str], workers: Iterable[Worker]
) -> list[Worker]:
    """The workers with attempts of these runs, open ones included."""
    numbers: set[int | None] = set()
    for run_id in run_ids:
        numbers |= {attempt.worker for attempt in await transactor.store.read_attempts(tenant, run_id)}
        numbers |= {step.worker for step in await transactor.store.read_steps(tenant, run_id)}
    return [row for row in workers if row.no in numbers]


async def _next(lines: AsyncIterator[LogLine], problems: Problems, *, is_first: bool = False) -> LogLine | None:
    """The next line; None at the end, where the damage of an unreadable run shows, and where a run was deleted."""
    try:
        return await anext(lines, None)
    except Unreadable as problem:
        problems.append(problem)
    except NotFound as deleted:
        problems += [] if is_first else [deleted]
    return None


async def _merged(journals: Iterable[Journal], problems: Problems) -> AsyncIterator[LogLine]:
    """All lines by time. Of the same time, a claim comes last: it may take the place that another line frees."""
    waiting = sorted(journals, key=lambda journal: journal[0], reverse=True)
    heads: list[tuple[int, bool, int, LogLine, AsyncIterator[LogLine]]] = []
    count = 0
    while waiting or heads:
        while waiting and (not heads or waiting[-1][0] <= heads[0][0]):
            lines = waiting.pop()[1]()
            if (first := await _next(lines, problems, is_first=True)) is not None:
                count += 1
                heapq.heappush(heads, (*place_of(first), count, first, lines))
        if not heads:
            continue
        _, _, number, line, lines = heads[0]
        yield line
        if (following := await _next(lines, problems)) is None:
            heapq.heappop(heads)
        else:
            heapq.heapreplace(heads, (*place_of(following), number, following, lines))


def place_of(line: LogLine) -> tuple[int, bool]:
    """The order of lines of several journals: by time; of the same time, a claim comes last."""
    return line["metadata"]["at"], line["to_state"] == "running"
