"""The outside world, as the engine offers it: `engine.network`, `engine.hooks`.

Each method checks its arguments and calls one operation. It decides nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from stepkeep.definition import arguments
from stepkeep.definition.hooks import Decision, HookRefused, Ignored, ToSend, ToStart
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.kernel.errors import Conflict, NotFound
from stepkeep.kernel.plan import Plan
from stepkeep.network.signatures import Headers
from stepkeep.operations import hooks, network
from stepkeep.operations.access import guarded
from stepkeep.operations.publish import Newest, find_plan
from stepkeep.store.change import ANY_CALLER
from stepkeep.worker.secrets import SecretReader, Secrets

if TYPE_CHECKING:
    from stepkeep.engine.engine import AsyncEngine


@guarded("network.")
class AsyncNetwork(AsyncGroup):
    """The allow list of the tenant: internal hosts that its HTTP steps may reach, on every worker.

    >>> engine.network.list()["allow"]
    []
    """

    async def allow(self, host: str, *, by: str | None = None) -> dict[str, Any]:
        """Allow a host, an address or a network, each with a port or without (`"search.internal:9200"`).

        Only an engine without a key may: the network belongs to the operator, and a key to a member of the tenant.

        >>> engine.network.allow("10.20.0.0/16:443")["allow"]
        ['10.20.0.0/16:443']
        """
        return await network.allow_host(self._store, self._tenant, host, acting=self._acting(by))

    async def remove(self, host: str, *, by: str | None = None) -> dict[str, Any]:
        """Remove an entry of the allow list. Steps that run are not interrupted.

        >>> _ = engine.network.allow("search.internal")
        >>> engine.network.remove("search.internal")["allow"]
        []
        """
        return await network.disallow_host(self._store, self._tenant, host, acting=self._acting(by))

    async def list(self, *, history: bool = False) -> dict[str, Any]:
        """The entries; with `history`, also every change with its actor, newest first.

        >>> _ = engine.network.allow("search.internal", by="ann")
        >>> [change["by"] for change in engine.network.list(history=True)["history"]]
        ['ann']
        """
        asked = arguments.flag("network.list: history", history)
        return await network.list_allowed(self._store, self._tenant, history=asked)


class Network(Blocking[AsyncNetwork]):
    allow = blocking(AsyncNetwork.allow)
    remove = blocking(AsyncNetwork.remove)
    list = blocking(AsyncNetwork.list)


@guarded("hooks.")
class AsyncHooks(AsyncGroup):
    """Inbound webhooks: endpoints whose signed deliveries become messages or starts of runs, each once.

    >>> engine.hooks.list()["hooks"]
    []
    """

    def __init__(self, engine: AsyncEngine) -> None:
        super().__init__(engine)
        self._engine = engine
        self._secrets = SecretReader(engine.policies.get("secrets", Secrets()))

    async def add(self, document: Mapping[str, Any], *, by: str | None = None) -> dict[str, Any]:
        """Save an endpoint: its name, scheme, names of secrets, and how a delivery becomes a message or a start.

        >>> paid = {"name": "${{ body.type }}", "key": "${{ body.order }}"}
        >>> hook = {"hook": "billing", "scheme": "standard", "secrets": ["BILLING"], "message": paid}
        >>> engine.hooks.add(hook)["hook"]["hook"]
        'billing'
        """
        acting = self._acting(by)
        return await hooks.save_hook(self._store, self._tenant, document, acting=acting)

    async def remove(self, name: str, *, by: str | None = None) -> dict[str, Any]:
        """Remove an endpoint. Its revisions stay on record.

        >>> start = {"workflow": "hello"}
        >>> _ = engine.hooks.add({"hook": "deploys", "scheme": "github", "secrets": ["GITHUB"], "start": start})
        >>> engine.hooks.remove("deploys")
        {'removed': 'deploys'}
        """
        acting = self._acting(by)
        return await hooks.remove_hook(self._store, self._tenant, name, acting=acting)

    async def list(self) -> dict[str, Any]:
        """The endpoints, by name.

        >>> [hook["hook"] for hook in engine.hooks.list()["hooks"]]
        []
        """
        return await hooks.list_hooks(self._store, self._tenant)

    async def receive(
        self, name: str, headers: Headers, body: bytes, *, dry_run: bool = False, by: str | None = None
    ) -> dict[str, Any]:
        """Verify a delivery and do what its endpoint says: `result` is sent, started, ignored or refused.

        `body` is what came over the line, byte for byte. With `dry_run` nothing is sent or started.

        >>> engine.hooks.receive("billing", {}, b"{}")
        Traceback (most recent call last):
        stepkeep.kernel.errors.NotFound: there is no hook billing. `stepkeep hooks list` lists what there is.
        """
        only_look = arguments.flag("hooks.receive: dry_run", dry_run)
        decision = await hooks.decide_delivery(self._store, self._tenant, name, headers, body, secret=self._secret)
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

    async def _secret(self, name: str) -> str:
        return (await self._secrets.read([name]))[name]

    async def _deliver(self, decision: Decision, by: str | None) -> dict[str, Any]:
        """Do what a delivery to a hook asks for; the same delivery again changes nothing, also with another API key."""
        shared = copy.copy(self._engine)
        shared._key_scope = ANY_CALLER
        if isinstance(decision, ToSend):
            starts: dict[str, Any] = {}
            if decision.start is not None:
                plan = await self._plan_of_hook(decision.start)
                starts = {"start": plan, "idempotency_key": decision.id, "input": decision.input}
            return await shared.send(
                None, decision.name, decision.payload, key=decision.key, message_id=decision.id, by=by, **starts
            )
        assert isinstance(decision, ToStart)
        started = await shared.start(
            Newest(await self._plan_of_hook(decision.workflow)),
            decision.input,
            idempotency_key=decision.id,
            business_key=decision.business_key,
            by=by,
        )
        return {"run_id": started.run_id, "created": started.created}

    async def _plan_of_hook(self, workflow: str) -> Plan:
        """The newest version of a published workflow. A name that looks like a file is never read as one."""
        try:
            return await find_plan(self._transactor, workflow, None, tenant=self._tenant)
        except NotFound:
            raise Conflict(f"the workflow {workflow} of this hook is not published.") from None


class Hooks(Blocking[AsyncHooks]):
    add = blocking(AsyncHooks.add)
    remove = blocking(AsyncHooks.remove)
    list = blocking(AsyncHooks.list)
    receive = blocking(AsyncHooks.receive)
