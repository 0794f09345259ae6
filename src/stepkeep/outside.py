"""The outside world, as the engine offers it: `engine.network`, `engine.hooks`.

Each method checks its arguments and calls one operation. `sync_outside` has the same methods for programs without an
event loop. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from stepkeep.definition import arguments
from stepkeep.definition.hooks import Decision, HookRefused, Ignored, ToSend
from stepkeep.engine_arguments import optional_key
from stepkeep.network.signatures import Headers
from stepkeep.operations import hooks, network
from stepkeep.operations.access import Access, Acting, guarded
from stepkeep.store.protocol import Store


@guarded("network.")
class AsyncNetwork:
    """The allow list of the tenant: internal hosts that its HTTP steps may reach, on every worker."""

    def __init__(self, store: Store, access: Access) -> None:
        self._store, self.access = store, access

    async def allow(self, host: str, *, by: str | None = None) -> dict[str, Any]:
        """Allow a host, an address or a network, each with a port or without (`"search.internal:9200"`)."""
        return await network.allow_host(self._store, self.access.tenant, host, acting=self._acting(by))

    async def remove(self, host: str, *, by: str | None = None) -> dict[str, Any]:
        """Remove an entry of the allow list. Steps that run are not interrupted."""
        return await network.disallow_host(self._store, self.access.tenant, host, acting=self._acting(by))

    async def list(self, *, history: bool = False) -> dict[str, Any]:
        """The entries; with `history`, also every change with its actor, newest first."""
        asked = arguments.flag("network.list: history", history)
        return await network.list_allowed(self._store, self.access.tenant, history=asked)

    def _acting(self, by: str | None) -> Acting:
        return self.access.acting(optional_key("by", by))


class Deliver(Protocol):
    """What the engine does for a delivery."""

    async def __call__(self, decision: Decision, by: str | None) -> dict[str, Any]: ...


@guarded("hooks.")
class AsyncHooks:
    """Inbound webhooks: endpoints whose signed deliveries become messages or starts of runs, each once."""

    def __init__(self, store: Store, access: Access, secret: hooks.ReadSecret, deliver: Deliver) -> None:
        self._store, self.access = store, access
        self._secret, self._deliver = secret, deliver

    async def add(self, document: Mapping[str, Any], *, by: str | None = None) -> dict[str, Any]:
        """Save an endpoint: its name, scheme, names of secrets, and how a delivery becomes a message or a start."""
        acting = self.access.acting(optional_key("by", by))
        return await hooks.save_hook(self._store, self.access.tenant, document, acting=acting)

    async def remove(self, name: str, *, by: str | None = None) -> dict[str, Any]:
        """Remove an endpoint. Its revisions stay on record."""
        acting = self.access.acting(optional_key("by", by))
        return await hooks.remove_hook(self._store, self.access.tenant, name, acting=acting)

    async def list(self) -> dict[str, Any]:
        """The endpoints, by name."""
        return await hooks.list_hooks(self._store, self.access.tenant)

    async def receive(
        self, name: str, headers: Headers, body: bytes, *, dry_run: bool = False, by: str | None = None
    ) -> dict[str, Any]:
        """Verify a delivery and do what its endpoint says: `result` is sent, started, ignored or refused."""
        only_look = arguments.flag("hooks.receive: dry_run", dry_run)
        decision = await hooks.decide_delivery(
            self._store, self.access.tenant, name, headers, body, secret=self._secret
        )
        said = {"hook": name, **msgspec.to_builtins(decision)}
        if isinstance(decision, HookRefused):
            return {"result": "refused", **said}
        if isinstance(decision, Ignored):
            return {"result": "ignored", **said}
        if only_look:
            return {"result": "would send" if isinstance(decision, ToSend) else "would start", **said}
        done = await self._deliver(decision, by)
        return {
            "result": "sent" if isinstance(decision, ToSend) else "started",
            "hook": name,
            "id": decision.id,
            **done,
        }
