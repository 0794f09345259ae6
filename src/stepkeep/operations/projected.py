"""Runs in the shape of a dialect: the results of `show --as` and `runs --as`.

It only reads. The dialect builds the shapes; this module collects the canonical view, the definition and the run's log.
"""

from __future__ import annotations

from typing import Any

from stepkeep.dialects.registry import dialect as dialect_named
from stepkeep.kernel.errors import NotFound, Unreadable
from stepkeep.kernel.plan import Plan
from stepkeep.operations.log import export_run, lines_of
from stepkeep.operations.plans import plan_for, written_definition
from stepkeep.operations.search import Terms, search_runs
from stepkeep.operations.transact import Transactor
from stepkeep.operations.views import read_snapshot, summarise, unreadable_view, view_of
from stepkeep.store.records import RunFilter, WholeRun


async def describe_run_as(transactor: Transactor, run_id: str, dialect: str, *, tenant: str) -> dict[str, Any]:
    """One run in the shape of this dialect, from one snapshot."""
    return await describe_whole_as(transactor, await read_snapshot(transactor, run_id, tenant=tenant), dialect)


async def describe_whole_as(transactor: Transactor, whole: WholeRun, dialect: str) -> dict[str, Any]:
    """A run that was read in one snapshot, in the shape of this dialect."""
    words = dialect_named(dialect).words
    plan = await plan_for(transactor, whole.record.run)
    return words.run(await canonical_of(transactor, whole, plan), lines_of(whole, plan, dialect)[1:-1])


async def canonical_of(transactor: Transactor, whole: WholeRun, plan: Plan) -> dict[str, Any]:
    """What the words of a dialect are made from: the view, the definition and the journal as plain data."""
    view = await view_of(transactor, whole, plan)
    written = written_definition(plan, whole.steps)
    return {**view.as_json(), "definition": written, "journal": lines_of(whole, plan)[1:-1]}


async def list_runs_as(transactor: Transactor, which: RunFilter, dialect: str) -> dict[str, Any]:
    """A page of runs in the shape of this dialect, newest first; each run is shown from one snapshot.

    A shown state depends on earlier ones, so each run's journal is read: keep pages small.
    """
    words = dialect_named(dialect).words
    rows = []
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
    return {"runs": rows, "next": listed.next, **({"unreadable": unreadable} if unreadable else {})}


async def dialect_log(transactor: Transactor, run_id: str, dialect: str, *, tenant: str) -> list[dict[str, Any]]:
    """The log of a run in a dialect, with its definition and its closing line."""
    return [line async for line in export_run(transactor, run_id, tenant=tenant, dialect=dialect)]
