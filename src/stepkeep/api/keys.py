"""API keys of the tenant. A secret is part of one answer, when the key is made, and kept nowhere."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from stepkeep.api.bodies import Anything, By, Cursor, Limit, Page, Time, page
from stepkeep.api.routing import Answer, Engine, answers, router, service_of
from stepkeep.operations.access import Scope
from stepkeep.operations.quotas import MOST_QUOTA

routes = router("API keys")

KeyId = Annotated[str, Path(description="The public id of a key.", examples=["0123456789abcdef"], max_length=255)]


class NewKey(By):
    """A key to make."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"owner": "ann", "scopes": ["read", "start"]}]})

    owner: str = Field(max_length=255)
    scopes: list[Annotated[Scope, Field(strict=False)]] = Field(min_length=1, max_length=20)
    expires_at: Time | None = None
    expires_in: str | None = Field(default=None, max_length=100, examples=["90d"])
    max_concurrent_runs: int | None = Field(default=None, ge=1, le=MOST_QUOTA, description="Unfinished runs.")
    max_requests_per_min: int | None = Field(default=None, ge=1, le=MOST_QUOTA, description="Of each process.")
    queues: list[Annotated[str, Field(max_length=255)]] | None = Field(
        default=None, min_length=1, max_length=100, description='The queues that it may work on; the default one is "".'
    )
    handlers: list[Annotated[str, Field(max_length=255)]] | None = Field(
        default=None, min_length=1, max_length=1000, description="The handlers that it may work on."
    )


class Rotate(By):
    """How long the old key still counts."""

    overlap: str = Field(default="1d", max_length=100)


class KeyView(BaseModel):
    """A key without its secret."""

    key: Anything


class MadeKey(KeyView):
    """A key with its secret, which is shown once."""

    secret: str
    replaced: Anything | None = None


class RevokedKey(KeyView):
    """A key that was ended, the ids of those that replaced it and ended with it, and how many sessions did."""

    successors: list[str]
    sessions: int


class Keys(Page):
    """Keys without their secrets, newest first."""

    keys: list[Anything]


@routes.get("/api-keys", operation_id="list_keys", summary="List keys", response_model=None, responses=answers(Keys))
async def list_keys(
    engine: Engine,
    owner: Annotated[str | None, Query(max_length=255, description="Only the keys of this person.")] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Answer:
    found = (await engine.keys.list(owner=owner))["keys"]
    shown, following = page(found, lambda one: str(one["id"]), cursor, limit)
    return Answer({"keys": shown, "next": following})


@routes.post(
    "/api-keys",
    operation_id="create_key",
    summary="Make a key",
    status_code=201,
    response_model=None,
    responses=answers(MadeKey, status=201, says="Made"),
)
async def create_key(engine: Engine, body: NewKey) -> Answer:
    given = body.model_dump() | {"scopes": [scope.value for scope in body.scopes]}
    return Answer(await engine.keys.create(given.pop("owner"), **given), 201)


@routes.post(
    "/api-keys/{key_id}/rotate",
    operation_id="rotate_key",
    summary="Replace a key",
    status_code=201,
    response_model=None,
    responses=answers(MadeKey, status=201, says="Made"),
)
async def rotate_key(request: Request, engine: Engine, key_id: KeyId, body: Rotate | None = None) -> Answer:
    """A new key with the same owner and scopes; the old one ends after `overlap`. A key hands out none that is worth
    more than itself: without the scope admin it needs the same owner and scopes, and an end that is not earlier. The
    new key ends when the old one would have; one made by an administrator has the same lifetime anew."""
    said = await engine.keys.rotate(key_id, **(body or Rotate()).model_dump())
    service_of(request).callers.forget()
    return Answer(said, 201)


@routes.delete(
    "/api-keys/{key_id}",
    operation_id="revoke_key",
    summary="End a key",
    response_model=None,
    responses=answers(RevokedKey),
)
async def revoke_key(request: Request, engine: Engine, key_id: KeyId) -> Answer:
    """With the keys that replaced it and their sessions; at once in this process, within a second in others. Every
    owner may."""
    said = await engine.keys.revoke(key_id)
    service_of(request).callers.forget()
    return Answer(said)
