"""The outside world, as the engine offers it: `engine.network`.

Each method checks its arguments and calls one operation. `sync_outside` has the same methods for programs without an
event loop. It decides nothing.
"""

from __future__ import annotations

from typing import Any

from stepkeep.definition import arguments
from stepkeep.engine_arguments import optional_key
from stepkeep.operations import network
from stepkeep.operations.access import Access, Acting, guarded
from stepkeep.store.protocol import Store


@guarded("network.")
class AsyncNetwork:
    """The allow list of the tenant: internal hosts that its HTTP steps may reach, on every worker."""

    def __init__(self, store: Store, access: Access) -> None:
        self._store, self.access = store, access

    async def allow(self, host: str, *, by: str | None = None) -> dict[str, Any]:
        """Allow a host, an address or a network, each with a port or without (`"search.internal:9200"`)."""
        return await network.allow_host(self._store, self.access.tenant, host, acting=self._acting(by))

    async def remove(self, host: str, *, by: str | None = None) -> dict[str, Any]:
        """Remove an entry of the allow list. Steps that run are not interrupted."""
        return await network.disallow_host(self._store, self.access.tenant, host, acting=self._acting(by))

    async def list(self, *, history: bool = False) -> dict[str, Any]:
        """The entries; with `history`, also every change with its actor, newest first."""
        asked = arguments.flag("network.list: history", history)
        return await network.list_allowed(self._store, self.access.tenant, history=asked)

    def _acting(self, by: str | None) -> Acting:
        return self.access.acting(optional_key("by", by))
