"""What fires a trigger by an event: the event as expressions read it, and how many triggers led to it.

Values and one read. `events` and `endings` call it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stepkeep.operations.instants import instant
from stepkeep.operations.triggers.firing import Firer

MAX_DEPTH = 16
"""How many triggers may lead to one another, run by run. A longer chain is probably a circle."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event that may fire triggers. `run` is the run that it comes from."""

    id: str
    name: str
    payload: Any
    at: int
    run: str | None = None
    correlation_id: str | None = None
    facts: dict[str, Any] = {}

    def shown(self) -> dict[str, Any]:
        """What expressions read."""
        plain = {"id": self.id, "name": self.name, "time": instant(self.at), "run": self.run}
        return {**plain, "correlation_id": self.correlation_id, **self.facts, "payload": self.payload}


async def depth_after(firer: Firer, tenant: str, source: str | None) -> int:
    """How many triggers led to a firing that this run caused."""
    before = None if source is None else await firer.transactor.store.triggers.find_firing_of(tenant, source)
    return 1 if before is None else before.depth + 1


def too_deep(depth: int) -> str:
    """Why a firing of this depth starts nothing; empty if it may."""
    if depth <= MAX_DEPTH:
        return ""
    return f"chain: {MAX_DEPTH} triggers led here, one after the other. Look for a circle of workflows and events."
