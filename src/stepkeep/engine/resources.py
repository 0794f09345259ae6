"""Resources that steps need while they run: `engine.resources`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from stepkeep.definition.bounds import MAX_UNITS
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.operations import resources
from stepkeep.operations.access import OPERATE, READ
from stepkeep.operations.operation import Actor, Name, group, operation
from stepkeep.operations.resources import ResourceList


@group("resources", "Resources")
class AsyncResources(AsyncGroup):
    """What steps hold while they run, and the sizes of pools. A step whose resources are taken stays ready.

    >>> engine.resources.list().resources
    []
    """

    @operation(READ, "GET /resources", "list_resources", "Resources that steps hold", agents="reads")
    async def list(self) -> ResourceList:
        """The resources that are held, with the steps that hold them, and the pools that have a size.

        >>> _ = engine.resources.set("cpu", 8)
        >>> [(one.resource, one.most, one.held) for one in engine.resources.list().resources]
        [('cpu', 8, 0)]
        """
        return await resources.list_resources(self._store, self._tenant)

    @operation(
        OPERATE,
        "POST /resources",
        "set_resource",
        "Give a pool a number of units",
        example={"resource": "cpu", "most": 8},
    )
    async def set(
        self, resource: Name, most: Annotated[int, Meta(ge=1, le=MAX_UNITS)], *, by: Actor = None
    ) -> ResourceList:
        """Give a pool this many units. Steps that hold more than that go on.

        >>> engine.resources.set("cpu", 4, by="bea").resources[0].most
        4
        """
        return await resources.set_pool(self._store, resource, most, caller=self._caller(by))

    @operation(
        OPERATE, "POST /resources/clear", "clear_resource", "End the limit of a pool", example={"resource": "cpu"}
    )
    async def clear(self, resource: Name, *, by: Actor = None) -> ResourceList:
        """End the limit of a pool: its units are not counted any more. Exclusive and shared use is not affected.

        >>> _ = engine.resources.set("cpu", 4)
        >>> engine.resources.clear("cpu").resources
        []
        """
        return await resources.set_pool(self._store, resource, None, caller=self._caller(by))


class Resources(Blocking[AsyncResources]):
    list = blocking(AsyncResources.list)
    set = blocking(AsyncResources.set)
    clear = blocking(AsyncResources.clear)
