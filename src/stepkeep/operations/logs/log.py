"""Exports journals as logs: a run's definition, one line per hop, and a closing line per journal.

It only reads, page by page, so that a long journal is never in memory as a whole. An unfinished run is exported as of
the time its row was read; later entries are left to the next export. With a dialect, lines use its names and hold only
what it shows. Runs and workers in one log, in the order of time, are
seed 004's `.state/transitions.jsonl`. The command line and the engine call it.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from stepkeep.dialects.dialect import LogLine
from stepkeep.dialects.registry import judged
from stepkeep.kernel.errors import InvalidInput, NotFound, Unreadable
from stepkeep.kernel.machine.journal import SealedEntry
from stepkeep.kernel.machine.rows import Worker
from stepkeep.kernel.machine.states import RUN_TERMINAL, STEP_TERMINAL, WORKER_TERMINAL
from stepkeep.kernel.machine.tables import RUN, STEP, WORKER
from stepkeep.kernel.plan import Plan
from stepkeep.operations import validate
from stepkeep.operations.logs.dialect_lines import DialectScribe, subject_of_run, subject_of_worker
from stepkeep.operations.logs.lines import PlanNames, Scribe, unfold
from stepkeep.operations.pipeline.plans import plan_for
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.reading import unreadable
from stepkeep.store.records import RunFilter, RunRecord, WholeRun

JOURNAL_PAGE = 1000
RUNS_PAGE = 200

MachineData = tuple[frozenset[tuple[str | None, str, str]], frozenset[str]]
"""A machine as plain data: its (from, trigger, to) arrows and its terminal states."""


class RunLog:
    """The lines of one run, as of one reading of its row; without a plan, in canonical names and without a definition.

    Entries are passed in journal order. It reads nothing.
    """

    def __init__(self, record: RunRecord, plan: Plan | None, dialect: str | None = None) -> None:
        self.run, self._details, self._plan = record.run, record.details, plan
        correlation = record.details.correlation_id
        names: Mapping[int, str] = {} if plan is None else PlanNames(plan)
        self._scribe: Scribe | DialectScribe = Scribe("run", record.run.id, names, correlation)
        if dialect is not None and plan is not None:
            self._scribe = DialectScribe(judged(dialect), subject_of_run(record.run.id, plan, correlation))
        self._at = record.details.created_at

    def opening(self) -> list[LogLine]:
        return [] if self._plan is None else [self._scribe.opening(self.run.tenant, self._plan, self._at)]

    def lines(self, entry: SealedEntry) -> list[LogLine]:
        self._at = entry.at
        try:
            return [line for move in unfold(entry) for line in self._scribe.lines(move)]
        except (LookupError, ValueError, TypeError) as problem:
            # Each row can be read, and they contradict each other: a hop of a step that the plan does not have.
            owner = (self.run.tenant, self.run.id)
            raise unreadable("journal", owner, (*owner, entry.seq), problem) from problem

    def closing(self) -> LogLine:
        run = self.run
        return self._scribe.head(run.tenant, run.seq, run.head, run.state, self._at)


def lines_of(whole: WholeRun, plan: Plan | None, dialect: str | None = None) -> list[LogLine]:
    """The log of a run that was read in one snapshot."""
    log = RunLog(whole.record, plan, dialect)
    return [*log.opening(), *(line for entry in whole.entries for line in log.lines(entry)), log.closing()]


def stored_payloads(
    whole: WholeRun,
) -> tuple[bytes, dict[tuple[int, int], bytes], dict[int, bytes], dict[tuple[int, str], bytes]]:
    """The input of a run, the outputs of its attempts by (step number, fence), the outputs on its step rows, and its
    checkpoints by (step number, name)."""
    attempts = {(one.no, one.fence): one.output for one in whole.attempts if one.output is not None}
    noted = [(step.no, step.note) for step in whole.steps]
    steps = {no: note.output.encode() for no, note in noted if note is not None and note.output is not None}
    checkpoints = {(one.no, one.name): one.value for one in whole.checkpoints}
    return whole.record.details.input, attempts, steps, checkpoints


async def export_run(
    transactor: Transactor, run_id: str, *, tenant: str, dialect: str | None = None
) -> AsyncIterator[LogLine]:
    """The run's definition, its whole journal, then its head as the run's row has it; in canonical names or in a
    dialect. The row is read first and entries never change, so that this is the log of one moment. A run that is
    deleted meanwhile has no closing line, and NotFound is raised."""
    found = await _record(transactor, run_id, tenant)
    log = RunLog(found, await plan_for(transactor, found.run), dialect)
    for line in log.opening():
        yield line
    last = 0
    async for entry in _entries(transactor, tenant, run_id, found.run.seq):
        last = entry.seq
        for line in log.lines(entry):
            yield line
    if last < found.run.seq and await transactor.store.read_run(tenant, run_id) is None:
        raise NotFound(f"run {run_id} was deleted while its log was read. The lines so far have no closing line.")
    yield log.closing()


async def _record(transactor: Transactor, run_id: str, tenant: str) -> RunRecord:
    found = await transactor.store.read_run(tenant, validate.run_id(run_id))
    if found is None:
        raise NotFound(f"there is no run {run_id}")
    return found


async def export_all(transactor: Transactor, which: RunFilter, *, dialect: str | None = None) -> AsyncIterator[LogLine]:
    """Every run that matches the filter (except `limit` and `before`), newest first.

    An unreadable run ends where the damage shows, without its closing line, and so does one that is deleted meanwhile.
    After all other runs, the first such problem is raised.
    """
    page = replace(which, limit=RUNS_PAGE, before=None)
    problems: list[Unreadable | NotFound] = []
    while True:
        unreadable: list[Unreadable] = []
        runs = [record.run.id for record in await transactor.store.list_runs(page, unreadable)]
        problems += unreadable
        for run_id in runs:
            begun = False
            try:
                async for line in export_run(transactor, run_id, tenant=which.tenant, dialect=dialect):
                    begun = True
                    yield line
            except Unreadable as problem:
                problems.append(problem)
            except NotFound as deleted:
                problems += [deleted] if begun else []
        listed = [*runs, *(str(problem.run_id) for problem in unreadable)]
        if not listed:
            break
        page = replace(page, before=min(listed))
    if problems:
        raise problems[0]


async def export_worker(
    transactor: Transactor, worker_id: str, *, tenant: str, dialect: str | None = None
) -> AsyncIterator[LogLine]:
    """The whole journal of a worker, then its head as the worker's row has it."""
    worker = await transactor.store.find_worker(tenant, worker_id)
    if worker is None:
        raise NotFound(f"there is no worker {worker_id}")
    teller: Scribe | DialectScribe = Scribe("worker", worker_id, {})
    if dialect is not None:
        if judged(dialect).worker is None:
            raise InvalidInput(f"the {dialect} dialect has no words for workers.")
        teller = DialectScribe(judged(dialect), subject_of_worker(worker, dialect))
    at = worker.started_at
    for entry in _up_to(worker.seq, await transactor.store.read_worker_journal(tenant, worker_id)):
        at = entry.at
        for move in unfold(entry):
            for line in teller.lines(move):
                yield line
    yield teller.head(tenant, worker.seq, worker.head, worker.state, at)


async def _entries(transactor: Transactor, tenant: str, run_id: str, last: int) -> AsyncIterator[SealedEntry]:
    after = 0
    while after < last:
        page = await transactor.store.read_journal(tenant, run_id, after, JOURNAL_PAGE)
        if not page:
            return
        for entry in _up_to(last, page):
            yield entry
        after = page[-1].seq


def _up_to(last: int, entries: Iterable[SealedEntry]) -> Iterable[SealedEntry]:
    return (entry for entry in entries if entry.seq <= last)


def canonical_machines() -> dict[str, MachineData]:
    """The canonical tables as plain data, for a judge that must not import them."""
    return {
        machine.name: (
            frozenset((row.source and str(row.source), str(row.trigger), str(row.target)) for row in machine.rows),
            frozenset(str(state) for state in terminal),
        )
        for machine, terminal in ((RUN, RUN_TERMINAL), (STEP, STEP_TERMINAL), (WORKER, WORKER_TERMINAL))
    }


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
