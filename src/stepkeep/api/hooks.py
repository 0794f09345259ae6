"""Inbound webhooks: endpoints of a tenant, and the one route that takes their signed deliveries without a key.

The signature authenticates a delivery, and the operation decides by it; this module only tells the answer as a status.
The caller is the hook itself: `DeliveryAccess` lets it receive, send and start, and nothing else.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from stepkeep.api.bodies import Anything, Body, By, Cursor, Limit, Page, page
from stepkeep.api.problems import SIGNATURE, TOO_LARGE, UNMAPPED, ApiError, Kind
from stepkeep.api.requests import BoundedRequest
from stepkeep.api.routing import Answer, Engine, answers, problem_responses, router, service_of
from stepkeep.definition.hooks import MAX_BODY
from stepkeep.kernel.errors import InvalidInput, NotAllowed
from stepkeep.operations import validate
from stepkeep.operations.access import Access, Scope

routes = router("Hooks")

HookName = Annotated[str, Path(max_length=255, description="The name of a hook.", examples=["payments"])]
EXAMPLE: dict[str, Any] = {
    "hook": "payments",
    "scheme": "standard",
    "secrets": ["PAYMENTS_HOOK"],
    "message": {"name": "paid", "key": "${{ body.order }}"},
}
RAW = {
    "requestBody": {
        "required": True,
        "description": "What the sender signed, byte for byte; at most 1 MiB.",
        "content": {"application/json": {"schema": {}, "example": {"order": "o-7"}}, "application/octet-stream": {}},
    }
}
REFUSALS: dict[str, Kind] = {
    **dict.fromkeys(("missing", "malformed", "too_old", "too_new", "wrong"), SIGNATURE),
    "too_large": TOO_LARGE,
    "no_json": UNMAPPED,
    "unmapped": UNMAPPED,
}
"""The problem of each refusal of a delivery (`definition.hooks.HookRefused.code`)."""


class NewHook(By):
    """An endpoint: who signs its deliveries, and what becomes of them."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"hook": EXAMPLE}]})

    hook: dict[str, Any] = Field(description="Its definition: hook, scheme, secrets, message or start, when.")


class RecordedDelivery(Body):
    """A delivery that was recorded: its headers, and its body as text."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"headers": {"webhook-id": "msg_1"}, "body": '{"order": "o-7"}'}]}
    )

    headers: dict[str, str] = Field(max_length=100)
    body: str = Field(max_length=MAX_BODY)


class HookView(BaseModel):
    """A hook that was saved."""

    hook: Anything


class Hooks(Page):
    """Hooks by name."""

    hooks: list[Anything]


class RemovedHook(BaseModel):
    """A hook that was removed."""

    removed: str


class DeliveryResult(BaseModel):
    """What became of a delivery, or would."""

    model_config = ConfigDict(extra="allow")

    hook: str
    result: str = Field(description="sent, started, ignored; of a test also refused, would send, would start.")


class Received(BaseModel):
    """What became of a delivery. The sender learns nothing of the run."""

    result: str = Field(description="sent, started or ignored.")


class DeliveryAccess(Access):
    """The hook as the caller of an engine. Its signature stands for a key, also where a tenant refuses vouching."""

    ALLOWED = ("hooks.receive", "send", "start")

    async def admit(self, operation: str) -> None:
        if operation not in self.ALLOWED:
            raise NotAllowed(f"a delivery to a hook may not ask for {operation}.", "scope", self.actor)

    def may(self, scope: Scope) -> bool:
        return scope in (Scope.START, Scope.COMPLETE)


@routes.post(
    "/hooks/{name}",
    operation_id="receive_delivery",
    summary="Deliver a webhook",
    response_model=None,
    openapi_extra=RAW,
    responses={**answers(Received), **problem_responses(401, 404, 409, 413, 422, 503)},
)
async def receive_delivery(
    request: Request,
    name: HookName,
    tenant: Annotated[str, Query(max_length=255, description="Whose hook it is.")] = "default",
) -> Answer:
    """No key: the signature authenticates it. The same delivery again changes nothing. 401 for a wrong signature, 422
    for a body that cannot be mapped, 503 where this process lacks the secret; senders try again after a 503."""
    assert isinstance(request, BoundedRequest)
    body = await request.read_raw(limit=MAX_BODY)
    service = service_of(request)
    validate.key("the tenant", tenant)
    caller = DeliveryAccess(service.engine.store.for_tenant(tenant), tenant, f"hook:{name}")
    engine = service.callers.engine_for(caller, keep=False)
    said = await engine.hooks.receive(name, request.headers.items(), body)
    if said["result"] == "refused":
        raise ApiError(REFUSALS[said["code"]], said["message"], rule=said["code"])
    return Answer({"result": said["result"]})


@routes.get("/hooks", operation_id="list_hooks", summary="List hooks", response_model=None, responses=answers(Hooks))
async def list_hooks(engine: Engine, cursor: Cursor = None, limit: Limit = 50) -> Answer:
    shown, following = page((await engine.hooks.list())["hooks"], lambda one: str(one["hook"]), cursor, limit)
    return Answer({"hooks": shown, "next": following})


@routes.post(
    "/hooks",
    operation_id="save_hook",
    summary="Save a hook",
    response_model=None,
    responses=answers(HookView),
)
async def save_hook(engine: Engine, body: NewHook) -> Answer:
    """One of the same name is replaced, and the earlier one stays on record."""
    return Answer(await engine.hooks.add(body.hook, by=body.by))


@routes.post(
    "/hooks/{name}/test",
    operation_id="test_hook",
    summary="Verify and map a recorded delivery",
    response_model=None,
    responses=answers(DeliveryResult),
)
async def test_hook(engine: Engine, name: HookName, body: RecordedDelivery) -> Answer:
    """Nothing else is done. Its time must be within five minutes."""
    try:
        content = body.body.encode()
    except UnicodeEncodeError:
        raise InvalidInput("the body has half of a character.") from None
    return Answer(await engine.hooks.receive(name, list(body.headers.items()), content, dry_run=True))


@routes.delete(
    "/hooks/{name}",
    operation_id="remove_hook",
    summary="Remove a hook",
    response_model=None,
    responses=answers(RemovedHook),
)
async def remove_hook(engine: Engine, name: HookName) -> Answer:
    """Its revisions stay on record."""
    return Answer(await engine.hooks.remove(name))
