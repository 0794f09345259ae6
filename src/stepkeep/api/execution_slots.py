"""Limits on running runs: what is set, what is held, and what waits."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from stepkeep.api.bodies import By
from stepkeep.api.routing import Answer, Engine, answers, router
from stepkeep.definition.bounds import MAX_SLOTS

routes = router("Slots")


class Slot(BaseModel):
    """One limit, and its use."""

    scope: Literal["tenant", "workflow"]
    workflow: str | None = Field(description="Its name, for the limit of a workflow.")
    most: int | None = Field(description="How many runs may hold a slot; null if nothing limits them any more.")
    held: int = Field(description="How many runs hold a slot.")
    waiting: int = Field(description="How many runs wait for one.")


class Slots(BaseModel):
    """Every limit on running runs."""

    slots: list[Slot]


class SlotLimit(By):
    """How many runs of a workflow, or of the tenant, may run."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"workflow": "order", "most": 3}]})

    workflow: str | None = Field(default=None, max_length=255, description="Its name; without it, the whole tenant.")
    most: int = Field(ge=1, le=MAX_SLOTS)


class SlotRelease(By):
    """Whose limit ends."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"workflow": "order"}]})

    workflow: str | None = Field(default=None, max_length=255, description="Its name; without it, the whole tenant.")


@routes.get(
    "/slots",
    operation_id="list_slots",
    summary="Limits on running runs",
    response_model=None,
    responses=answers(Slots),
)
async def list_slots(engine: Engine) -> Answer:
    """With how many runs hold a slot, and how many wait for one."""
    return Answer(await engine.slots.list())


@routes.post(
    "/slots",
    operation_id="set_slots",
    summary="Limit the running runs of a workflow or of the tenant",
    response_model=None,
    responses=answers(Slots),
)
async def set_slots(engine: Engine, body: SlotLimit) -> Answer:
    """Runs that find no free slot stay queued. Runs that are running go on."""
    return Answer(await engine.slots.set(**body.model_dump()))


@routes.post(
    "/slots/clear",
    operation_id="clear_slots",
    summary="End a limit that was set",
    response_model=None,
    responses=answers(Slots),
)
async def clear_slots(engine: Engine, body: SlotRelease | None = None) -> Answer:
    """The `slots` of a definition stay."""
    return Answer(await engine.slots.clear(**(body or SlotRelease()).model_dump()))
