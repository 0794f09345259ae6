"""The outside world for programs without an event loop: the methods of `outside`, called and awaited.

It has no logic of its own: each method calls the one of the same name. `sync_engine.Engine` makes the objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stepkeep.network.signatures import Headers
from stepkeep.outside import AsyncHooks, AsyncNetwork
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


class Hooks:
    """Inbound webhooks: endpoints whose signed deliveries become messages or starts of runs, each once.

    >>> engine.hooks.list()["hooks"]
    []
    """

    def __init__(self, core: AsyncHooks, call: Call) -> None:
        self._core, self._call = core, call

    def add(self, document: Mapping[str, Any], *, by: str | None = None) -> dict[str, Any]:
        """Save an endpoint: its name, scheme, names of secrets, and how a delivery becomes a message or a start.

        >>> paid = {"name": "${{ body.type }}", "key": "${{ body.order }}"}
        >>> hook = {"hook": "billing", "scheme": "standard", "secrets": ["BILLING"], "message": paid}
        >>> engine.hooks.add(hook)["hook"]["hook"]
        'billing'
        """
        return self._call(self._core.add(document, by=by))

    def remove(self, name: str, *, by: str | None = None) -> dict[str, Any]:
        """Remove an endpoint. Its revisions stay on record.

        >>> start = {"workflow": "hello"}
        >>> _ = engine.hooks.add({"hook": "deploys", "scheme": "github", "secrets": ["GITHUB"], "start": start})
        >>> engine.hooks.remove("deploys")
        {'removed': 'deploys'}
        """
        return self._call(self._core.remove(name, by=by))

    def list(self) -> dict[str, Any]:
        """The endpoints, by name.

        >>> [hook["hook"] for hook in engine.hooks.list()["hooks"]]
        []
        """
        return self._call(self._core.list())

    def receive(
        self, name: str, headers: Headers, body: bytes, *, dry_run: bool = False, by: str | None = None
    ) -> dict[str, Any]:
        """Verify a delivery and do what its endpoint says: `result` is sent, started, ignored or refused.

        `body` is what came over the line, byte for byte. With `dry_run` nothing is sent or started.

        >>> engine.hooks.receive("billing", {}, b"{}")
        Traceback (most recent call last):
        stepkeep.errors.NotFound: there is no hook billing. `stepkeep hooks list` lists what there is.
        """
        return self._call(self._core.receive(name, headers, body, dry_run=dry_run, by=by))
