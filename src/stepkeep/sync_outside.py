"""The outside world for programs without an event loop: the methods of `outside`, called and awaited.

It has no logic of its own: each method calls the one of the same name. `sync_engine.Engine` makes the objects.
"""

from __future__ import annotations

from typing import Any

from stepkeep.outside import AsyncNetwork
from stepkeep.sync_administration import Call


class Network:
    """The allow list of the tenant: internal hosts that its HTTP steps may reach, on every worker.

    >>> engine.network.list()["allow"]
    []
    """

    def __init__(self, core: AsyncNetwork, call: Call) -> None:
        self._core, self._call = core, call

    def allow(self, host: str, *, by: str | None = None) -> dict[str, Any]:
        """Allow a host, an address or a network, each with a port or without (`"search.internal:9200"`).

        Only an engine without a key may: the network belongs to the operator, and a key to a member of the tenant.

        >>> engine.network.allow("10.20.0.0/16:443")["allow"]
        ['10.20.0.0/16:443']
        """
        return self._call(self._core.allow(host, by=by))

    def remove(self, host: str, *, by: str | None = None) -> dict[str, Any]:
        """Remove an entry of the allow list. Steps that run are not interrupted.

        >>> _ = engine.network.allow("search.internal")
        >>> engine.network.remove("search.internal")["allow"]
        []
        """
        return self._call(self._core.remove(host, by=by))

    def list(self, *, history: bool = False) -> dict[str, Any]:
        """The entries; with `history`, also every change with its actor, newest first.

        >>> _ = engine.network.allow("search.internal", by="ann")
        >>> [change["by"] for change in engine.network.list(history=True)["history"]]
        ['ann']
        """
        return self._call(self._core.list(history=history))
