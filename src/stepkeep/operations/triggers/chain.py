"""How many triggers led to an event, run by run, and how many may.

One read. `events` and `endings` call it.
"""

from __future__ import annotations

from stepkeep.operations.triggers.firing import Firer

MAX_DEPTH = 16
"""How many triggers may lead to one another, run by run. A longer chain is probably a circle."""


async def depth_after(firer: Firer, tenant: str, source: str | None) -> int:
    """How many triggers led to a firing that this run caused."""
    if source is None:
        return 1
    before = (await firer.transactor.store.triggers.find_firings_of(tenant, [source])).get(source)
    return 1 if before is None else before.depth + 1


def too_deep(depth: int) -> str:
    """Why a firing of this depth starts nothing; empty if it may."""
    if depth <= MAX_DEPTH:
        return ""
    return f"chain: {MAX_DEPTH} triggers led here, one after the other. Look for a circle of workflows and events."
