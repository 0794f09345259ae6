"""Exports journals as logs: a run's definition, one line per hop, and a closing line per journal.

It only reads, page by page, so that a long journal is never in memory as a whole. An unfinished run is exported as of
the time its row was read; later entries are left to the next export. With a dialect, lines use its names and hold only
what it shows. The command line and the engine call it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from msgspec.structs import replace

from stepkeep.dialects.registry import judged
from stepkeep.errors import DefinitionChanged, InvalidInput, NotFound, Unreadable
from stepkeep.kernel.journal import SealedEntry
from stepkeep.kernel.plan import Plan
from stepkeep.kernel.states import RUN_TERMINAL, STEP_TERMINAL, WORKER_TERMINAL
from stepkeep.kernel.tables import RUN, STEP, WORKER
from stepkeep.operations import validate
from stepkeep.operations.decisions import plan_of
from stepkeep.operations.dialect_lines import DialectScribe, subject_of_run, subject_of_worker
from stepkeep.operations.lines import Scribe, unfold
from stepkeep.operations.transact import Transactor
from stepkeep.store.protocol import RunFilter, StoredDefinition
from stepkeep.store.reading import unreadable

JOURNAL_PAGE = 1000
RUNS_PAGE = 200

Line = dict[str, Any]
MachineData = tuple[frozenset[tuple[str | None, str, str]], frozenset[str]]
"""A machine as plain data: its (from, trigger, to) arrows and its terminal states."""


async def export_run(
    transactor: Transactor, run_id: str, *, tenant: str, dialect: str | None = None
) -> AsyncIterator[Line]:
    """The run's definition, its whole journal, then its head as the run's row has it; in canonical names or in a
    dialect."""
    plan = await plan_of(transactor, tenant, run_id)
    async for line in _export_run(transactor, run_id, tenant, plan, dialect):
        yield line


async def export_without_names(transactor: Transactor, run_id: str, *, tenant: str) -> AsyncIterator[Line]:
    """The same in canonical names, without the definition and with numbers for step names: for a run whose definition
    was changed."""
    async for line in _export_run(transactor, run_id, tenant, None, None):
        yield line


async def stored_definition(transactor: Transactor, run_id: str, *, tenant: str) -> StoredDefinition:
    """The definition of a run as its row has it now, bypassing the cache."""
    found = await transactor.store.read_run(tenant, validate.run_id(run_id))
    if found is None:
        raise NotFound(f"there is no run {run_id}")
    wanted = found.run.definition_id
    stored = (await transactor.store.read_definitions([wanted])).get(wanted)
    if stored is None:
        raise DefinitionChanged(f"the definition of run {run_id} (definition {wanted}) is gone from the database")
    return stored


async def stored_payloads(
    transactor: Transactor, run_id: str, *, tenant: str
) -> tuple[bytes, dict[tuple[int, int], bytes], dict[int, bytes]]:
    """The input of a run, the outputs of its attempts by (step number, fence), and the outputs on its step rows."""
    store, run_id = transactor.store, validate.run_id(run_id)
    found = await store.read_run(tenant, run_id)
    if found is None:
        raise NotFound(f"there is no run {run_id}")
    attempts = {
        (one.no, one.fence): one.output for one in await store.read_attempts(tenant, run_id) if one.output is not None
    }
    noted = [(step.no, step.note) for step in await store.read_steps(tenant, run_id)]
    steps = {no: note.output.encode() for no, note in noted if note is not None and note.output is not None}
    return found.details.input, attempts, steps


async def _export_run(
    transactor: Transactor, run_id: str, tenant: str, plan: Plan | None, dialect: str | None
) -> AsyncIterator[Line]:
    found = await transactor.store.read_run(tenant, validate.run_id(run_id))
    if found is None:
        raise NotFound(f"there is no run {run_id}")
    correlation = found.details.correlation_id
    names = {} if plan is None else {no: name for name, no in plan.numbers.items()}
    teller: Scribe | DialectScribe = Scribe("run", run_id, names, correlation)
    if dialect is not None and plan is not None:
        teller = DialectScribe(judged(dialect), subject_of_run(run_id, plan, correlation))
    at = found.details.created_at
    if plan is not None:
        yield teller.opening(tenant, plan, at)
    async for entry in _entries(transactor, tenant, run_id, found.run.seq):
        at = entry.at
        try:
            lines = [line for move in unfold(entry) for line in teller.lines(move)]
        except (LookupError, ValueError, TypeError) as problem:
            # Each row can be read, and they contradict each other: a hop of a step that the plan does not have.
            raise unreadable("journal", (tenant, run_id), (tenant, run_id, entry.seq), problem) from problem
        for line in lines:
            yield line
    yield teller.head(tenant, found.run.seq, found.run.head, found.run.state, at)


async def export_all(transactor: Transactor, which: RunFilter, *, dialect: str | None = None) -> AsyncIterator[Line]:
    """Every run that matches the filter (except `limit` and `before`), newest first.

    An unreadable run ends where the damage shows, without its closing line. After all other runs, Unreadable is raised.
    """
    page = replace(which, limit=RUNS_PAGE, before=None)
    problems: list[Unreadable] = []
    while True:
        unreadable: list[Unreadable] = []
        runs = [record.run.id for record in await transactor.store.list_runs(page, unreadable)]
        problems += unreadable
        for run_id in runs:
            try:
                async for line in export_run(transactor, run_id, tenant=which.tenant, dialect=dialect):
                    yield line
            except Unreadable as problem:
                problems.append(problem)
        listed = [*runs, *(str(problem.run_id) for problem in unreadable)]
        if not listed:
            break
        page = replace(page, before=min(listed))
    if problems:
        raise problems[0]


async def export_worker(
    transactor: Transactor, worker_id: str, *, tenant: str, dialect: str | None = None
) -> AsyncIterator[Line]:
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
