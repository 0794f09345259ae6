"""Inbound webhooks: the one route that takes their signed deliveries without a key.

The signature authenticates a delivery, and the operation decides by it; this module only tells the answer as a status.
The caller is the hook itself: `DeliveryAccess` lets it receive, send and start, and nothing else.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from stepkeep.api.access import OPEN
from stepkeep.api.handwritten import Routes
from stepkeep.api.problems import SIGNATURE, TOO_LARGE, UNMAPPED, ApiError, Kind
from stepkeep.api.requests import BoundedRequest
from stepkeep.api.routing import service_of
from stepkeep.definition.hooks import MAX_BODY
from stepkeep.engine.acting import ActingEngine
from stepkeep.kernel.errors import NotAllowed
from stepkeep.operations import validate
from stepkeep.operations.access import Access, Scope
from stepkeep.operations.answers import Answer, says

routes = Routes("Hooks")

HookName = Annotated[str, Meta(max_length=255, description="The name of a hook.", examples=["payments"])]
RAW = {
    "required": True,
    "description": "What the sender signed, byte for byte; at most 1 MiB.",
    "content": {"application/json": {"schema": {}, "example": {"order": "o-7"}}, "application/octet-stream": {}},
}
REFUSALS: dict[str, Kind] = {
    **dict.fromkeys(("missing", "malformed", "too_old", "too_new", "wrong"), SIGNATURE),
    "too_large": TOO_LARGE,
    "no_json": UNMAPPED,
    "unmapped": UNMAPPED,
}
"""The problem of each refusal of a delivery (`definition.hooks.HookRefused.code`)."""


class Received(Answer, kw_only=True):
    """What became of a delivery. The sender learns nothing of the run."""

    result: Annotated[str, says("sent, started or ignored.")]


class DeliveryAccess(Access):
    """The hook as the caller of an engine. Its signature stands for a key, also where a tenant refuses vouching."""

    ALLOWED = ("hooks.receive", "send", "start")

    async def admit(self, operation: str) -> None:
        if operation not in self.ALLOWED:
            raise NotAllowed(f"a delivery to a hook may not ask for {operation}.", "scope", self.actor)

    def may(self, scope: Scope) -> bool:
        return scope in (Scope.START, Scope.COMPLETE)


@routes(
    "POST /hooks/{name}",
    OPEN,
    "receive_delivery",
    "Deliver a webhook",
    reads=RAW,
    problems=(401, 404, 409, 413, 422, 503),
)
async def receive_delivery(
    request: BoundedRequest,
    name: HookName,
    tenant: Annotated[str, Meta(max_length=255, description="Whose hook it is.")] = "default",
) -> Received:
    """No key: the signature authenticates it. The same delivery again changes nothing. 401 for a wrong signature, 422
    for a body that cannot be mapped, 503 where this process lacks the secret; senders try again after a 503."""
    body = await request.read_raw(limit=MAX_BODY)
    service = service_of(request)
    validate.key("the tenant", tenant)
    caller = DeliveryAccess(service.engine.store.for_tenant(tenant), tenant, f"hook:{name}")
    engine = ActingEngine(service.callers.engines.of(tenant, keep=False), caller)
    said = await engine.hooks.receive(name, request.headers.items(), body)
    if said.result == "refused":
        raise ApiError(REFUSALS[str(said.code)], str(said.message), rule=str(said.code))
    return Received(result=said.result)
