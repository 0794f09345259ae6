"""Runs in the shape of a dialect: the results of `show --as` and `runs --as`.

It only reads. The dialect builds the shapes; this module collects the canonical view, the definition and the run's log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from msgspec import UnsetType

from stepkeep.dialects.dialect import LogLine
from stepkeep.dialects.registry import dialect as dialect_named
from stepkeep.kernel.errors import NotFound, Unreadable
from stepkeep.kernel.plan import Plan
from stepkeep.operations.logs.log import export_run, lines_of
from stepkeep.operations.pipeline.plans import plan_for, written_definition
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs.run_answers import UnreadableRun
from stepkeep.operations.runs.search import Terms, search_runs
from stepkeep.operations.runs.views import read_snapshot, summarise, unreadable_view, view_of
from stepkeep.store.records import RunFilter, WholeRun


class Canonical(TypedDict):
    """What the words of a dialect are made from: the view, the definition and the journal as plain data."""

    run: dict[str, Any]
    steps: list[dict[str, Any]]
    definition: dict[str, Any]
    journal: list[LogLine]


class DialectPage(TypedDict):
    """A page of runs in the shapes of a dialect."""

    runs: list[Mapping[str, Any]]
    next: str | UnsetType | None
    unreadable: NotRequired[list[UnreadableRun]]


async def describe_run_as(transactor: Transactor, run_id: str, dialect: str, *, tenant: str) -> Mapping[str, Any]:
    """One run in the shape of this dialect, from one snapshot."""
    return await describe_whole_as(transactor, await read_snapshot(transactor, run_id, tenant=tenant), dialect)


async def describe_whole_as(transactor: Transactor, whole: WholeRun, dialect: str) -> Mapping[str, Any]:
    """A run that was read in one snapshot, in the shape of this dialect."""
    words = dialect_named(dialect).words
    plan = await plan_for(transactor, whole.record.run)
    return words.run(await canonical_of(transactor, whole, plan), lines_of(whole, plan, dialect)[1:-1])


async def canonical_of(transactor: Transactor, whole: WholeRun, plan: Plan) -> Canonical:
    """What the words of a dialect are made from: the view, the definition and the journal as plain data."""
    view = await view_of(transactor, whole, plan)
    written = written_definition(plan, whole.steps)
    plain, journal = view.as_json(), lines_of(whole, plan)[1:-1]
    return {"run": plain["run"], "steps": plain["steps"], "definition": written, "journal": journal}


async def list_runs_as(transactor: Transactor, which: RunFilter, dialect: str) -> DialectPage:
    """A page of runs in the shape of this dialect, newest first; each run is shown from one snapshot.

    A shown state depends on earlier ones, so each run's journal is read: keep pages small.
    """
    words = dialect_named(dialect).words
    rows: list[Mapping[str, Any]] = []
    listed = await search_runs(transactor, which, Terms())
    unreadable = listed.unreadable or []
    for run in listed.runs:
        try:
            whole = await read_snapshot(transactor, run.id, tenant=which.tenant)
            lines = lines_of(whole, await plan_for(transactor, whole.record.run), dialect)
        except Unreadable as problem:
            unreadable.append(unreadable_view(problem))
        except NotFound:
            continue  # retention deleted it after it was listed
        else:
            shown = summarise(whole.record, run.quarantined)
            rows.append(words.summary(shown.as_json(), lines[-1]["to_state"] or ""))
    page: DialectPage = {"runs": rows, "next": listed.next}
    if unreadable:
        page["unreadable"] = unreadable
    return page


async def dialect_log(transactor: Transactor, run_id: str, dialect: str, *, tenant: str) -> list[LogLine]:
    """The log of a run in a dialect, with its definition and its closing line."""
    return [line async for line in export_run(transactor, run_id, tenant=tenant, dialect=dialect)]
