"""Inbound webhooks: `engine.hooks`. A delivery becomes a message or a start of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from stepkeep.definition.native.hooks import MAX_BODY, Decision, HookRefused, Ignored, ToSend, ToStart
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.kernel.errors import Conflict, InvalidInput, NotFound
from stepkeep.kernel.plan import Plan
from stepkeep.network.signatures import Headers
from stepkeep.operations.access import ADMINISTER, COMPLETE, READ
from stepkeep.operations.answers import says
from stepkeep.operations.definitions.publish import Newest, find_plan
from stepkeep.operations.messages import hooks
from stepkeep.operations.messages.hooks import Delivered, HookList, RemovedHook, SavedHook
from stepkeep.operations.operation import Actor, group, operation
from stepkeep.operations.typed import InPython
from stepkeep.store.change import ANY_CALLER
from stepkeep.worker.attempts.secrets import SecretReader, Secrets

if TYPE_CHECKING:
    from stepkeep.engine.engine import AsyncEngine

HookName = Annotated[str, Meta(min_length=1, max_length=255, description="The name of a hook.", examples=["payments"])]
Document = Annotated[
    Mapping[str, Any], InPython(dict[str, Any]), says("Its definition: hook, scheme, secrets, message or start, when.")
]
EXAMPLE = {
    "hook": "payments",
    "scheme": "standard",
    "secrets": ["PAYMENTS_HOOK"],
    "message": {"name": "paid", "key": "${{ body.order }}"},
}


@group("hooks", "Hooks")
class AsyncHooks(AsyncGroup):
    """Inbound webhooks: endpoints whose signed deliveries become messages or starts of runs, each once.

    >>> engine.hooks.list().hooks
    []
    """

    def __init__(self, engine: AsyncEngine) -> None:
        super().__init__(engine)
        self._engine = engine
        self._secrets = SecretReader(engine.policies.get("secrets", Secrets()))

    @operation(
        ADMINISTER, "POST /hooks", "save_hook", "Save a hook", names={"document": "hook"}, example={"hook": EXAMPLE}
    )
    async def add(self, document: Document, *, by: Actor = None) -> SavedHook:
        """Save an endpoint: its name, scheme, names of secrets, and how a delivery becomes a message or a start. One of
        the same name is replaced, and the earlier one stays on record.

        >>> paid = {"name": "${{ body.type }}", "key": "${{ body.order }}"}
        >>> hook = {"hook": "billing", "scheme": "standard", "secrets": ["BILLING"], "message": paid}
        >>> engine.hooks.add(hook).hook.hook
        'billing'
        """
        return await hooks.save_hook(self._store, document, caller=self._caller(by))

    @operation(ADMINISTER, "DELETE /hooks/{name}", "remove_hook", "Remove a hook")
    async def remove(self, name: HookName, *, by: Actor = None) -> RemovedHook:
        """Remove an endpoint. Its revisions stay on record.

        >>> start = {"workflow": "hello"}
        >>> _ = engine.hooks.add({"hook": "deploys", "scheme": "github", "secrets": ["GITHUB"], "start": start})
        >>> engine.hooks.remove("deploys").removed
        'deploys'
        """
        return await hooks.remove_hook(self._store, name, caller=self._caller(by))

    @operation(READ, "GET /hooks", "list_hooks", "List hooks", pages="hooks", page_key="hook", agents="reads")
    async def list(self) -> HookList:
        """The endpoints, by name.

        >>> [hook.hook for hook in engine.hooks.list().hooks]
        []
        """
        return await hooks.list_hooks(self._store, self._tenant)

    @operation(COMPLETE)
    async def receive(
        self,
        name: HookName,
        headers: Annotated[Headers, InPython(Any)],
        body: Annotated[bytes, InPython(Any)],
        *,
        dry_run: bool = False,
        by: Actor = None,
    ) -> Delivered:
        """Verify a delivery and do what its endpoint says: `result` is sent, started, ignored or refused.

        `body` is what came over the line, byte for byte. With `dry_run` nothing is sent or started.

        >>> engine.hooks.receive("billing", {}, b"{}")
        Traceback (most recent call last):
        stepkeep.kernel.errors.NotFound: there is no hook billing. `stepkeep hooks list` lists what there is.
        """
        return await self._received(name, headers, body, dry_run, by)

    @operation(
        COMPLETE,
        "POST /hooks/{name}/test",
        "test_hook",
        "Verify and map a recorded delivery",
        example={"headers": {"webhook-id": "msg_1"}, "body": '{"order": "o-7"}'},
    )
    async def test(
        self,
        name: HookName,
        headers: Annotated[dict[str, str], Meta(max_length=100)],
        body: Annotated[str, Meta(max_length=MAX_BODY)],
    ) -> Delivered:
        """Verify and map a recorded delivery, and do nothing else. Its time must be within five minutes.

        >>> engine.hooks.test("billing", {"webhook-id": "msg_1"}, "{}")
        Traceback (most recent call last):
        stepkeep.kernel.errors.NotFound: there is no hook billing. `stepkeep hooks list` lists what there is.
        """
        try:
            content = body.encode()
        except UnicodeEncodeError:
            raise InvalidInput("the body has half of a character.") from None
        return await self._received(name, headers, content)

    async def _received(
        self, name: str, headers: Headers, body: bytes, only_look: bool = True, by: str | None = None
    ) -> Delivered:
        decision = await hooks.decide_delivery(self._store, self._tenant, name, headers, body, secret=self._secret)
        said: dict[str, Any] = {"hook": name, **msgspec.to_builtins(decision)}
        if isinstance(decision, HookRefused):
            return Delivered(result="refused", **said)
        if isinstance(decision, Ignored):
            return Delivered(result="ignored", **said)
        is_message = isinstance(decision, ToSend)
        if only_look:
            return Delivered(result="would send" if is_message else "would start", **said)
        done = {"hook": name, "id": decision.id, **await self._deliver(decision, by)}
        return Delivered(result="sent" if is_message else "started", **done)

    async def _secret(self, name: str) -> str:
        return (await self._secrets.read([name]))[name]

    async def _deliver(self, decision: Decision, by: str | None) -> Mapping[str, Any]:
        """Do what a delivery to a hook asks for; the same delivery again changes nothing, also with another API key."""
        from stepkeep.engine.groups import ActingEngine

        shared = ActingEngine(self._engine, self.access, key_scope=ANY_CALLER)
        if isinstance(decision, ToSend):
            starts: dict[str, Any] = {}
            if decision.start is not None:
                plan = await self._plan_of_hook(decision.start)
                starts = {"start": plan, "idempotency_key": decision.id, "input": decision.input}
            sent = await shared.send(
                None, decision.name, decision.payload, key=decision.key, message_id=decision.id, by=by, **starts
            )
            return sent.as_json()
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
    add, remove, list = blocking(AsyncHooks.add), blocking(AsyncHooks.remove), blocking(AsyncHooks.list)
    receive, test = blocking(AsyncHooks.receive), blocking(AsyncHooks.test)
