"""Resources that steps need while they run: what is held, and the sizes of pools."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from stepkeep.api.bodies import By
from stepkeep.api.routing import Answer, Engine, answers, router
from stepkeep.definition.bounds import MAX_UNITS

routes = router("Resources")


class Holder(BaseModel):
    """A step that holds a resource while a worker runs it."""

    run_id: str
    step: str
    amount: Literal["exclusive", "shared"] | int
    since: str | None


class Resource(BaseModel):
    """A resource, and its use."""

    resource: str
    most: int | None = Field(description="How many units the pool has; null if nothing limits them.")
    held: int = Field(description="How many units are held.")
    holders: list[Holder]


class Resources(BaseModel):
    """The resources that are held, and the pools that have a size."""

    resources: list[Resource]


class PoolSize(By):
    """How many units a pool has."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"resource": "cpu", "most": 8}]})

    resource: str = Field(min_length=1, max_length=255)
    most: int = Field(ge=1, le=MAX_UNITS)


class PoolRelease(By):
    """Which pool has no size any more."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"resource": "cpu"}]})

    resource: str = Field(min_length=1, max_length=255)


@routes.get(
    "/resources",
    operation_id="list_resources",
    summary="Resources that steps hold",
    response_model=None,
    responses=answers(Resources),
)
async def list_resources(engine: Engine) -> Answer:
    """With the steps that hold them, and the pools that have a size."""
    return Answer(await engine.resources.list())


@routes.post(
    "/resources",
    operation_id="set_resource",
    summary="Give a pool a number of units",
    response_model=None,
    responses=answers(Resources),
)
async def set_resource(engine: Engine, body: PoolSize) -> Answer:
    """Steps that hold more than that go on."""
    return Answer(await engine.resources.set(**body.model_dump()))


@routes.post(
    "/resources/clear",
    operation_id="clear_resource",
    summary="End the limit of a pool",
    response_model=None,
    responses=answers(Resources),
)
async def clear_resource(engine: Engine, body: PoolRelease) -> Answer:
    """Its units are not counted any more. Exclusive and shared use is not affected."""
    return Answer(await engine.resources.clear(**body.model_dump()))
