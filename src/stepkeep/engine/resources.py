"""Resources that steps need while they run, as the engine offers them: `engine.resources`.

Each method checks its arguments and calls one operation. It decides nothing.
"""

from __future__ import annotations

from typing import Any

from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.operations import resources
from stepkeep.operations.access import guarded


@guarded("resources.")
class AsyncResources(AsyncGroup):
    """What steps hold while they run, and the sizes of pools. A step whose resources are taken stays ready.

    >>> engine.resources.list()["resources"]
    []
    """

    async def list(self) -> dict[str, Any]:
        """The resources that are held, with the steps that hold them, and the pools that have a size.

        >>> _ = engine.resources.set("cpu", 8)
        >>> [(one["resource"], one["most"], one["held"]) for one in engine.resources.list()["resources"]]
        [('cpu', 8, 0)]
        """
        return await resources.list_resources(self._store, self._tenant)

    async def set(self, resource: str, most: int, *, by: str | None = None) -> dict[str, Any]:
        """Give a pool this many units. Steps that hold more than that go on.

        >>> engine.resources.set("cpu", 4, by="bea")["resources"][0]["most"]
        4
        """
        acting = self._acting(by)
        return await resources.set_pool(self._store, self._tenant, resource, most, acting=acting)

    async def clear(self, resource: str, *, by: str | None = None) -> dict[str, Any]:
        """End the limit of a pool: its units are not counted any more. Exclusive and shared use is not affected.

        >>> _ = engine.resources.set("cpu", 4)
        >>> engine.resources.clear("cpu")["resources"]
        []
        """
        acting = self._acting(by)
        return await resources.set_pool(self._store, self._tenant, resource, None, acting=acting)


class Resources(Blocking[AsyncResources]):
    list = blocking(AsyncResources.list)
    set = blocking(AsyncResources.set)
    clear = blocking(AsyncResources.clear)
