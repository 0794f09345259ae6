"""Limits on running runs: `engine.slots`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from stepkeep.definition.bounds import MAX_SLOTS
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.operations import slots
from stepkeep.operations.access import OPERATE, READ
from stepkeep.operations.answers import says
from stepkeep.operations.operation import Actor, Name, group, operation
from stepkeep.operations.slots import SlotList

Whose = Annotated[Name | None, says("Its name; without it, the whole tenant.")]


@group("slots", "Slots")
class AsyncSlots(AsyncGroup):
    """Limits on running runs: of the tenant, and of workflows. A run that finds no free slot stays queued.

    >>> engine.slots.list()["slots"]
    []
    """

    @operation(READ, "GET /slots", "list_slots", "Limits on running runs", agents="reads")
    async def list(self) -> SlotList:
        """The limits, and how many runs hold a slot and wait for one under each.

        >>> _ = engine.slots.set(5)
        >>> [(one.scope, one.most, one.held, one.waiting) for one in engine.slots.list().slots]
        [('tenant', 5, 0, 0)]
        """
        return await slots.list_slots(self._store, self._tenant)

    @operation(
        OPERATE,
        "POST /slots",
        "set_slots",
        "Limit the running runs of a workflow or of the tenant",
        example={"workflow": "order", "most": 3},
    )
    async def set(
        self, most: Annotated[int, Meta(ge=1, le=MAX_SLOTS)], *, workflow: Whose = None, by: Actor = None
    ) -> SlotList:
        """Let at most this many runs of a workflow run, or of the whole tenant. It counts before the `slots` of a
        definition. Runs that are running go on, and runs that started under no limit are not counted.

        >>> _ = engine.publish(hello)
        >>> engine.slots.set(2, workflow="hello", by="bea").slots[0].most
        2
        """
        return await self._change(workflow, most, by)

    @operation(OPERATE, "POST /slots/clear", "clear_slots", "End a limit that was set", example={"workflow": "order"})
    async def clear(self, *, workflow: Whose = None, by: Actor = None) -> SlotList:
        """End the limit that was set for a workflow, or for the whole tenant. The `slots` of a definition stay.

        >>> _ = engine.slots.set(5)
        >>> engine.slots.clear().slots
        []
        """
        return await self._change(workflow, None, by)

    async def _change(self, workflow: str | None, most: int | None, by: str | None) -> SlotList:
        caller = self._caller(by)
        found = await slots.set_limit(self._store, workflow, most, caller=caller)
        self._starter.limits.forget(self._tenant)
        return found


class Slots(Blocking[AsyncSlots]):
    list = blocking(AsyncSlots.list)
    set = blocking(AsyncSlots.set)
    clear = blocking(AsyncSlots.clear)
