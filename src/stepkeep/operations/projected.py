"""Runs in the shape of a dialect: the results of `show --as` and `runs --as`.

It only reads. The dialect builds the shapes; this module collects the canonical view, the definition and the run's log.
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
    """One run in the shape of this dialect."""
    words = dialect_named(dialect).words
    canonical = await describe_run(transactor, run_id, tenant=tenant)
    plan = await plan_of(transactor, tenant, run_id)
    canonical["definition"] = msgspec.to_builtins(plan.definition)
    log = await dialect_log(transactor, run_id, dialect, tenant=tenant)
    return words.run(canonical, log[1:-1])


async def list_runs_as(transactor: Transactor, which: RunFilter, dialect: str) -> dict[str, Any]:
    """`{"runs": [...]}` in the shape of this dialect, newest first.

    A shown state depends on earlier ones, so each run's journal is read: keep pages small.
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
    """The log of a run in a dialect, with its definition and its closing line."""
    return [line async for line in export_run(transactor, run_id, tenant=tenant, dialect=dialect)]
