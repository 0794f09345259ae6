"""The engines of a service, by tenant: where the database keeps its role to one tenant at a time, each has its own.

Batches, plans and waiters of two tenants then share no transaction. Where the role sees all tenants, one engine serves
all of them. It opens nothing; `Callers` asks it for the engine of a caller.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from stepkeep.engine import AsyncEngine

MOST_ENGINES: Final = 1_000
"""Tenants whose engines are kept. An engine that is let go finishes what it has begun."""


class TenantEngines:
    """The engines that this process has made."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._made: OrderedDict[str, AsyncEngine] = OrderedDict()

    def of(self, tenant: str, *, keep: bool = True) -> AsyncEngine:
        """The engine of this tenant. Without `keep`, for a tenant that no key has authenticated: a new one is used once
        and takes the place of no other."""
        found = self._made.get(tenant)
        if found is not None:
            self._made.move_to_end(tenant)
            return found
        found = self._engine._acting_for(tenant)
        if keep and found is not self._engine:
            self._made[tenant] = found
            while len(self._made) > MOST_ENGINES:
                self._made.popitem(last=False)
        return found

    async def close(self) -> None:
        """Finish what the engines have begun. The store and the first engine are closed by their owner."""
        made, self._made = self._made, OrderedDict()
        for engine in made.values():
            await engine._finish()
