"""Limits on running runs, as the engine offers them: `engine.slots`.

Each method checks its arguments and calls one operation. It decides nothing.
"""

from __future__ import annotations

from typing import Any

from stepkeep.engine.arguments import optional_key
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.operations import slots
from stepkeep.operations.access import guarded


@guarded("slots.")
class AsyncSlots(AsyncGroup):
    """Limits on running runs: of the tenant, and of workflows. A run that finds no free slot stays queued.

    >>> engine.slots.list()["slots"]
    []
    """

    async def list(self) -> dict[str, Any]:
        """The limits, and how many runs hold a slot and wait for one under each.

        >>> _ = engine.slots.set(5)
        >>> [(one["scope"], one["most"], one["held"], one["waiting"]) for one in engine.slots.list()["slots"]]
        [('tenant', 5, 0, 0)]
        """
        return await slots.list_slots(self._store, self._tenant)

    async def set(self, most: int, *, workflow: str | None = None, by: str | None = None) -> dict[str, Any]:
        """Let at most this many runs of a workflow run, or of the whole tenant. It counts before the `slots` of a
        definition. Runs that are running go on, and runs that started under no limit are not counted.

        >>> _ = engine.publish(hello)
        >>> engine.slots.set(2, workflow="hello", by="bea")["slots"][0]["most"]
        2
        """
        return await self._change(workflow, most, by)

    async def clear(self, *, workflow: str | None = None, by: str | None = None) -> dict[str, Any]:
        """End the limit that was set for a workflow, or for the whole tenant. The `slots` of a definition stay.

        >>> _ = engine.slots.set(5)
        >>> engine.slots.clear()["slots"]
        []
        """
        return await self._change(workflow, None, by)

    async def _change(self, workflow: str | None, most: int | None, by: str | None) -> dict[str, Any]:
        acting, name = self._acting(by), optional_key("the workflow", workflow)
        found = await slots.set_limit(self._store, self._tenant, name, most, acting=acting)
        self._starter.limits.forget(self._tenant)
        return found


class Slots(Blocking[AsyncSlots]):
    list = blocking(AsyncSlots.list)
    set = blocking(AsyncSlots.set)
    clear = blocking(AsyncSlots.clear)
