"""The allow list of the tenant: `engine.network`."""

from __future__ import annotations

from typing import Annotated

from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.operations import network
from stepkeep.operations.access import ADMINISTER, READ
from stepkeep.operations.answers import says
from stepkeep.operations.network import Allowed
from stepkeep.operations.operation import Actor, group, operation


@group("network", "Network")
class AsyncNetwork(AsyncGroup):
    """The allow list of the tenant: internal hosts that its HTTP steps may reach, on every worker.

    >>> engine.network.list().allow
    []
    """

    @operation(ADMINISTER)
    async def allow(self, host: str, *, by: Actor = None) -> Allowed:
        """Allow a host, an address or a network, each with a port or without (`"search.internal:9200"`).

        Only an engine without a key may: the network belongs to the operator, and a key to a member of the tenant.

        >>> engine.network.allow("10.20.0.0/16:443").allow
        ['10.20.0.0/16:443']
        """
        return await network.allow_host(self._store, host, caller=self._caller(by))

    @operation(ADMINISTER)
    async def remove(self, host: str, *, by: Actor = None) -> Allowed:
        """Remove an entry of the allow list. Steps that run are not interrupted.

        >>> _ = engine.network.allow("search.internal")
        >>> engine.network.remove("search.internal").allow
        []
        """
        return await network.disallow_host(self._store, host, caller=self._caller(by))

    @operation(
        READ, "GET /network", "list_network", "What HTTP steps may reach on the internal network", agents="reads"
    )
    async def list(self, *, history: Annotated[bool, says("With every change, newest first.")] = False) -> Allowed:
        """The entries; with `history`, also every change with its actor, newest first. The operator adds and removes
        them, who opens the database without a key (`stepkeep network`).

        >>> _ = engine.network.allow("search.internal", by="ann")
        >>> [change.by for change in engine.network.list(history=True).history]
        ['ann']
        """
        return await network.list_allowed(self._store, self._tenant, history=history)


class Network(Blocking[AsyncNetwork]):
    allow = blocking(AsyncNetwork.allow)
    remove = blocking(AsyncNetwork.remove)
    list = blocking(AsyncNetwork.list)
