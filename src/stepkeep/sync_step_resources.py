"""Resources of steps for programs without an event loop: the methods of `step_resources`, called and awaited.

It has no logic of its own: each method calls the one of the same name. `sync_engine.Engine` makes the object.
"""

from __future__ import annotations

from typing import Any

from stepkeep.step_resources import AsyncResources
from stepkeep.sync_administration import Call


class Resources:
    """What steps hold while they run, and the sizes of pools. A step whose resources are taken stays ready.

    >>> engine.resources.list()["resources"]
    []
    """

    def __init__(self, core: AsyncResources, call: Call) -> None:
        self._core, self._call = core, call

    def list(self) -> dict[str, Any]:
        """The resources that are held, with the steps that hold them, and the pools that have a size.

        >>> _ = engine.resources.set("cpu", 8)
        >>> [(one["resource"], one["most"], one["held"]) for one in engine.resources.list()["resources"]]
        [('cpu', 8, 0)]
        """
        return self._call(self._core.list())

    def set(self, resource: str, most: int, *, by: str | None = None) -> dict[str, Any]:
        """Give a pool this many units. Steps that hold more than that go on.

        >>> engine.resources.set("cpu", 4, by="bea")["resources"][0]["most"]
        4
        """
        return self._call(self._core.set(resource, most, by=by))

    def clear(self, resource: str, *, by: str | None = None) -> dict[str, Any]:
        """End the limit of a pool: its units are not counted any more. Exclusive and shared use is not affected.

        >>> _ = engine.resources.set("cpu", 4)
        >>> engine.resources.clear("cpu")["resources"]
        []
        """
        return self._call(self._core.clear(resource, by=by))
