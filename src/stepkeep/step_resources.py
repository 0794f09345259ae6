"""Resources that steps need while they run, as the engine offers them: `engine.resources`.

Each method checks its arguments and calls one operation. `sync_step_resources` has the same methods for programs
without an event loop. It decides nothing.
"""

from __future__ import annotations

from typing import Any

from stepkeep.engine_arguments import optional_key
from stepkeep.operations import resources
from stepkeep.operations.access import Access, guarded
from stepkeep.store.protocol import Store


@guarded("resources.")
class AsyncResources:
    """What steps hold while they run, and the sizes of pools. A step whose resources are taken stays ready."""

    def __init__(self, store: Store, access: Access) -> None:
        self._store, self.access = store, access

    async def list(self) -> dict[str, Any]:
        """The resources that are held, with the steps that hold them, and the pools that have a size."""
        return await resources.list_resources(self._store, self.access.tenant)

    async def set(self, resource: str, most: int, *, by: str | None = None) -> dict[str, Any]:
        """Give a pool this many units. Steps that hold more than that go on."""
        acting = self.access.acting(optional_key("by", by))
        return await resources.set_pool(self._store, self.access.tenant, resource, most, acting=acting)

    async def clear(self, resource: str, *, by: str | None = None) -> dict[str, Any]:
        """End the limit of a pool: its units are not counted any more. Exclusive and shared use is not affected."""
        acting = self.access.acting(optional_key("by", by))
        return await resources.set_pool(self._store, self.access.tenant, resource, None, acting=acting)
