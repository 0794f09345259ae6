"""Tenants, users and services with their roles, groups and delegations, and the record of every change of them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from stepkeep.api.bodies import Anything, By, Cursor, Limit, Page, Time, page
from stepkeep.api.routing import Answer, Engine, answers, router, service_of

routes = router("People")

UserName = Annotated[str, Path(description="The name of a user or service.", examples=["ann"])]
When = Time | None


class NewTenant(By):
    """Settings of the tenant of the key."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "default", "vouching": "allowed"}]})

    name: str = Field(max_length=255)
    vouching: Literal["allowed", "refused"] = "allowed"


class ChangedTenant(By):
    """Whether programs without a key may name persons."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"vouching": "allowed"}]})

    vouching: Literal["allowed", "refused"]


class NewUser(By):
    """A user or a service to register."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "bob", "display": "Bob"}]})

    name: str = Field(max_length=255)
    kind: Literal["user", "service"] = "user"
    display: str = Field(default="", max_length=4000)


class Grant(By):
    """A role or a group to give."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"role": "finance"}]})

    role: str | None = Field(default=None, max_length=255)
    group: str | None = Field(default=None, max_length=255)
    to_group: bool = Field(default=False, description="The name is that of a group, which gets the role.")
    valid_from: When = None
    valid_to: When = None


class Revoke(By):
    """A role or a group to take away."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"role": "finance"}]})

    role: str | None = Field(default=None, max_length=255)
    group: str | None = Field(default=None, max_length=255)
    from_group: bool = False


class NewDelegation(By):
    """The right of one person to decide on behalf of another."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"delegator": "ann", "to": "bob", "open_ended": True}]})

    delegator: str = Field(max_length=255)
    to: str = Field(max_length=255)
    valid_from: When = None
    valid_to: When = None
    open_ended: bool = False
    reason: str = Field(default="", max_length=4000)


class EndDelegation(By):
    """A delegation to end."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"delegator": "ann", "to": "bob"}]})

    delegator: str = Field(max_length=255)
    to: str = Field(max_length=255)


class TenantView(BaseModel):
    """A tenant."""

    tenant: Anything


class QuotasView(BaseModel):
    """What a tenant may use; null where nothing is set, and a default counts if there is one."""

    max_concurrent_runs: int | None
    max_requests_per_min: int | None
    max_kept_messages: int | None
    max_kept_message_bytes: int | None
    max_triggers: int | None
    max_definitions: int | None
    max_definition_bytes: int | None
    max_settings: int | None
    max_people: int | None
    max_notes_per_hour: int | None
    max_bytes_per_hour: int | None


class TenantQuotas(BaseModel):
    """The quotas of a tenant."""

    tenant: str
    quotas: QuotasView


class Signing(By):
    """The names of the secrets to release."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"secrets": ["SHOP_HOOK"]}]})

    secrets: list[Annotated[str, Field(max_length=100)]] = Field(max_length=100)


class TenantSigning(BaseModel):
    """The secrets that starts may name to sign the webhooks of their runs."""

    tenant: str
    secrets: list[str]


class Tenants(BaseModel):
    """The tenant of the key, if it has settings."""

    tenants: list[Anything]


class UserView(BaseModel):
    """A user or service."""

    model_config = ConfigDict(extra="allow")

    user: Anything


class Users(Page):
    """Users and services by name."""

    users: list[Anything]


class MembershipView(BaseModel):
    """A role or group of a person."""

    membership: Anything


class DelegationView(BaseModel):
    """A delegation."""

    delegation: Anything


class Delegations(Page):
    """Delegations that have not ended."""

    delegations: list[Anything]


class History(Page):
    """The record of changes of people, with its hash chain."""

    history: list[Anything]
    chain: Anything


@routes.get(
    "/tenants",
    operation_id="list_tenants",
    summary="The tenant of the key",
    response_model=None,
    responses=answers(Tenants),
)
async def list_tenants(engine: Engine) -> Answer:
    return Answer(await engine.tenants.list())


@routes.post(
    "/tenants",
    operation_id="create_tenant",
    summary="Give the tenant of the key settings",
    status_code=201,
    response_model=None,
    responses=answers(TenantView, status=201, says="Created"),
)
async def create_tenant(engine: Engine, body: NewTenant) -> Answer:
    return Answer(await engine.tenants.create(**body.model_dump()), 201)


@routes.get(
    "/tenants/{name:path}/quotas",
    operation_id="get_tenant_quotas",
    summary="The quotas of the tenant of the key",
    response_model=None,
    responses=answers(TenantQuotas),
)
async def get_tenant_quotas(engine: Engine, name: Annotated[str, Path(max_length=255)]) -> Answer:
    """The operator sets them, at the database."""
    return Answer(await engine.tenants.quotas(name))


@routes.get(
    "/tenants/{name:path}/signing",
    operation_id="get_signing_secrets",
    summary="The secrets that starts may name",
    response_model=None,
    responses=answers(TenantSigning),
)
async def get_signing_secrets(engine: Engine, name: Annotated[str, Path(max_length=255)]) -> Answer:
    return Answer(await engine.tenants.signing(name))


@routes.put(
    "/tenants/{name:path}/signing",
    operation_id="release_signing_secrets",
    summary="Release secrets for signing",
    response_model=None,
    responses=answers(TenantSigning),
)
async def release_signing_secrets(engine: Engine, name: Annotated[str, Path(max_length=255)], body: Signing) -> Answer:
    """Starts may name these secrets of the workers, and no others, to sign the webhooks of their runs."""
    return Answer(await engine.tenants.set_signing(name, **body.model_dump()))


@routes.patch(
    "/tenants/{name:path}",
    operation_id="change_tenant",
    summary="Change the tenant of the key",
    response_model=None,
    responses=answers(TenantView),
)
async def change_tenant(engine: Engine, name: Annotated[str, Path(max_length=255)], body: ChangedTenant) -> Answer:
    return Answer(await engine.tenants.set_vouching(name, body.vouching, by=body.by))


@routes.get(
    "/users",
    operation_id="list_users",
    summary="List users and services",
    response_model=None,
    responses=answers(Users),
)
async def list_users(engine: Engine, cursor: Cursor = None, limit: Limit = 50) -> Answer:
    found = await engine.users.list(after=cursor or "", limit=limit)
    names = [one["name"] for one in found["users"]]
    return Answer({"users": found["users"], "next": names[-1] if len(names) == limit else None})


@routes.post(
    "/users",
    operation_id="create_user",
    summary="Register a user or a service",
    status_code=201,
    response_model=None,
    responses=answers(UserView, status=201, says="Created"),
)
async def create_user(engine: Engine, body: NewUser) -> Answer:
    """A name that looks like a registered one is refused."""
    return Answer(await engine.users.create(**body.model_dump()), 201)


@routes.post(
    "/users/{name:path}/disable",
    operation_id="disable_user",
    summary="Disable a user",
    response_model=None,
    responses=answers(UserView),
)
async def disable_user(request: Request, engine: Engine, name: UserName, body: By | None = None) -> Answer:
    """Refuses the person in every decision from now on, and revokes their keys."""
    said = await engine.users.disable(name, by=body.by if body else None)
    service_of(request).callers.forget()
    return Answer(said)


@routes.post(
    "/users/{name:path}/enable",
    operation_id="enable_user",
    summary="Enable a disabled user",
    response_model=None,
    responses=answers(UserView),
)
async def enable_user(engine: Engine, name: UserName, body: By | None = None) -> Answer:
    return Answer(await engine.users.enable(name, by=body.by if body else None))


@routes.post(
    "/users/{name:path}/grant",
    operation_id="grant_membership",
    summary="Give a role or a group",
    response_model=None,
    responses=answers(MembershipView),
)
async def grant_membership(engine: Engine, name: UserName, body: Grant) -> Answer:
    return Answer(await engine.users.grant(name, **body.model_dump()))


@routes.post(
    "/users/{name:path}/revoke",
    operation_id="revoke_membership",
    summary="Take a role or a group away",
    response_model=None,
    responses=answers(MembershipView),
)
async def revoke_membership(engine: Engine, name: UserName, body: Revoke) -> Answer:
    return Answer(await engine.users.revoke(name, **body.model_dump()))


@routes.get(
    "/users/{name:path}",
    operation_id="get_user",
    summary="Show a user or service",
    response_model=None,
    responses=answers(UserView),
)
async def get_user(engine: Engine, name: UserName) -> Answer:
    """With roles, groups, delegations and keys."""
    return Answer(await engine.users.show(name))


@routes.get(
    "/delegations",
    operation_id="list_delegations",
    summary="List delegations",
    response_model=None,
    responses=answers(Delegations),
)
async def list_delegations(engine: Engine, cursor: Cursor = None, limit: Limit = 50) -> Answer:
    found = (await engine.users.delegations())["delegations"]
    shown, following = page(found, lambda one: str(one["id"]), cursor, limit)
    return Answer({"delegations": shown, "next": following})


@routes.post(
    "/delegations",
    operation_id="create_delegation",
    summary="Delegate decisions",
    status_code=201,
    response_model=None,
    responses=answers(DelegationView, status=201, says="Delegated"),
)
async def create_delegation(engine: Engine, body: NewDelegation) -> Answer:
    """One's own with any key that may decide; another's with the scope admin."""
    return Answer(await engine.users.delegate(**body.model_dump()), 201)


@routes.post(
    "/delegations/end",
    operation_id="end_delegation",
    summary="End a delegation",
    response_model=None,
    responses=answers(DelegationView),
)
async def end_delegation(engine: Engine, body: EndDelegation) -> Answer:
    return Answer(await engine.users.undelegate(**body.model_dump()))


@routes.get(
    "/history",
    operation_id="get_history",
    summary="The record of changes of people",
    response_model=None,
    responses=answers(History),
)
async def get_history(
    engine: Engine,
    name: Annotated[str | None, Query(max_length=255, description="Of one person, group or tenant.")] = None,
    after: Annotated[int, Query(ge=0, le=2**43, description="The `seq` of the last entry that is known.")] = 0,
    limit: Limit = 100,
) -> Answer:
    """In order, with its hash chain."""
    found = await engine.users.history(name, after=after, limit=limit)
    last = found["history"][-1]["seq"] if len(found["history"]) == limit else None
    return Answer({**found, "next": None if last is None else str(last)})
