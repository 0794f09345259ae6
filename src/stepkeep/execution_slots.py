"""Limits on running runs, as the engine offers them: `engine.slots`.

Each method checks its arguments and calls one operation. `sync_execution_slots` has the same methods for programs
without an event loop. It decides nothing.
"""

from __future__ import annotations

from typing import Any

from stepkeep.engine_arguments import optional_key
from stepkeep.operations import slots
from stepkeep.operations.access import Access, guarded
from stepkeep.store.protocol import Store


@guarded("slots.")
class AsyncSlots:
    """Limits on running runs: of the tenant, and of workflows. A run that finds no free slot stays queued."""

    def __init__(self, store: Store, access: Access, known: slots.KnownLimits) -> None:
        self._store, self.access, self._known = store, access, known

    async def list(self) -> dict[str, Any]:
        """The limits, and how many runs hold a slot and wait for one under each."""
        return await slots.list_slots(self._store, self.access.tenant)

    async def set(self, most: int, *, workflow: str | None = None, by: str | None = None) -> dict[str, Any]:
        """Let at most this many runs of a workflow run, or of the whole tenant. It counts before the `slots` of a
        definition. Runs that are running go on, and runs that started under no limit are not counted."""
        return await self._change(workflow, most, by)

    async def clear(self, *, workflow: str | None = None, by: str | None = None) -> dict[str, Any]:
        """End the limit that was set for a workflow, or for the whole tenant. The `slots` of a definition stay."""
        return await self._change(workflow, None, by)

    async def _change(self, workflow: str | None, most: int | None, by: str | None) -> dict[str, Any]:
        acting, name = self.access.acting(optional_key("by", by)), optional_key("the workflow", workflow)
        found = await slots.set_limit(self._store, self.access.tenant, name, most, acting=acting)
        self._known.forget(self.access.tenant)
        return found
