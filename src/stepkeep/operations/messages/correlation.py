"""Finds the one live run with a correlation id, for a sender that knows neither its id nor its business key.

It changes nothing. The engine calls it before it sends.
"""

from __future__ import annotations

from stepkeep.kernel.errors import Conflict, NotFound
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from stepkeep.operations import validate
from stepkeep.store.protocol import Store
from stepkeep.store.records import RunFilter

LIVE = tuple(state for state in RunState if state not in RUN_TERMINAL)
MOST_NAMED = 20


async def correlated_run(store: Store, correlation_id: str, *, tenant: str) -> str:
    """The id of the only live run with this correlation id; otherwise the sender is told which there are."""
    wanted = validate.key("the correlation id", correlation_id)
    which = RunFilter(tenant=tenant, states=LIVE, correlation_id=wanted, limit=MOST_NAMED + 1)
    found = [record.run.id for record in await store.list_runs(which)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFound(f"no live run has the correlation id {wanted!r}; a message by correlation id is not kept.")
    named = ", ".join(found[:MOST_NAMED]) + (", ..." if len(found) > MOST_NAMED else "")
    raise Conflict(
        f"{len(found)} live runs have the correlation id {wanted!r}: {named}. Send to one of them by its run id.",
        {"run_ids": found[:MOST_NAMED]},
    )
