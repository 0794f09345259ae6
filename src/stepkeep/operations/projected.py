"""Runs in a dialect's own shapes: what `show --as` and `runs --as` answer with.

Reads only; the dialect's words make the shapes, this gathers what they need: the canonical view, the definition that
was run and the run's log.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stepkeep.dialects.registry import dialect as dialect_named
from stepkeep.errors import Unreadable
from stepkeep.operations.decisions import plan_of
from stepkeep.operations.log import export_run
from stepkeep.operations.transact import Transactor
from stepkeep.operations.views import describe_run, list_runs, unreadable_view
from stepkeep.store.protocol import RunFilter


async def describe_run_as(transactor: Transactor, run_id: str, dialect: str, *, tenant: str) -> dict[str, Any]:
    """One run in this dialect's own shape."""
    words = dialect_named(dialect).words
    canonical = await describe_run(transactor, run_id, tenant=tenant)
    plan = await plan_of(transactor, tenant, run_id)
    canonical["definition"] = msgspec.to_builtins(plan.definition)
    log = await dialect_log(transactor, run_id, dialect, tenant=tenant)
    return words.run(canonical, log[:-1])


async def list_runs_as(transactor: Transactor, which: RunFilter, dialect: str) -> dict[str, Any]:
    """`{"runs": [...]}` in this dialect's own shape, newest first.

    What a dialect shows depends on what it showed before, so each run's journal is read: keep pages small.
    """
    words = dialect_named(dialect).words
    rows = []
    listed = await list_runs(transactor, which)
    unreadable = listed.get("unreadable", [])
    for run in listed["runs"]:
        try:
            lines = await dialect_log(transactor, run["id"], dialect, tenant=which.tenant)
        except Unreadable as problem:
            unreadable.append(unreadable_view(problem))
        else:
            rows.append(words.summary(run, lines[-1]["to_state"] or ""))
    return {"runs": rows, "unreadable": unreadable} if unreadable else {"runs": rows}


async def dialect_log(transactor: Transactor, run_id: str, dialect: str, *, tenant: str) -> list[dict[str, Any]]:
    """The log of a run in a dialect's words, its closing line included."""
    return [line async for line in export_run(transactor, run_id, tenant=tenant, dialect=dialect)]
