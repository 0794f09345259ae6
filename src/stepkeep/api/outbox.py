"""The outbox: events that are not delivered, and what people do about dead ones."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from stepkeep.api.bodies import RUN_ID, Anything, By, Cursor, Limit, Moment, Page
from stepkeep.api.routing import Answer, Engine, answers, problem_responses, router
from stepkeep.api.runs import RunId
from stepkeep.api.sinks import SinkName

routes = router("Outbox")

SinkFilter = Annotated[str | None, Query(max_length=255, description="Of one sink.")]


class Redrive(By):
    """Which dead events are sent again, and why."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"sink": "orders", "reason": "the receiver is back"}]})

    run_id: str | None = Field(default=None, max_length=255, description="Those of one run.")
    sink: str | None = Field(default=None, max_length=255, description="Those of one sink.")
    reason: str = Field(min_length=1, max_length=4000)


class Drop(By):
    """The dead event that is given up, and why."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"event": f"{RUN_ID}/3/0", "reason": "known to them"}]})

    event: str = Field(max_length=255, description="The id of the event.")
    reason: str = Field(min_length=1, max_length=4000)


class DeliveryView(BaseModel):
    """How far one run is with one sink."""

    model_config = ConfigDict(extra="allow")

    run: str
    sink: str
    state: str
    attempts: int
    error: str | None


class Deliveries(Page):
    """Runs with events that are not delivered, by sink and run."""

    deliveries: list[DeliveryView]


class DeliveryDetails(BaseModel):
    """One run and sink: what is not delivered, and what people did."""

    delivery: DeliveryView
    events: list[Anything]
    actions: list[Anything]


class Redriven(BaseModel):
    """What is sent again."""

    redriven: list[Anything]


class Dropped(BaseModel):
    """What was given up."""

    dropped: str
    sink: str


class SinkLag(BaseModel):
    """How far a sink is behind."""

    sink: str
    waiting: int
    dead: int
    lag_seconds: float


class OutboxStatus(BaseModel):
    """How far each sink is behind."""

    sinks: list[SinkLag]


class SinkAction(BaseModel):
    """What a person did to a sink or an event."""

    at: Moment
    actor: str
    action: str
    sink: str
    run: str | None
    event: str | None
    reason: str


class SinkActions(BaseModel):
    """What people did, newest first."""

    actions: list[SinkAction]


@routes.get(
    "/outbox",
    operation_id="list_outbox",
    summary="List runs with events that are not delivered",
    response_model=None,
    responses=answers(Deliveries),
)
async def list_outbox(
    engine: Engine,
    state: Annotated[Literal["ready", "sending", "dead"] | None, Query()] = None,
    sink: SinkFilter = None,
    run_id: Annotated[str | None, Query(max_length=255, description="Every sink of one run.")] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Answer:
    return Answer(await engine.outbox.list(state=state, sink=sink, run_id=run_id, after=cursor, limit=limit))


@routes.get(
    "/outbox/status",
    operation_id="get_outbox_status",
    summary="How far is each sink behind?",
    response_model=None,
    responses=answers(OutboxStatus),
)
async def get_outbox_status(engine: Engine) -> Answer:
    return Answer(await engine.outbox.status())


@routes.get(
    "/outbox/history",
    operation_id="get_outbox_history",
    summary="What people did to sinks and events",
    response_model=None,
    responses=answers(SinkActions),
)
async def get_outbox_history(engine: Engine, limit: Limit = 100) -> Answer:
    return Answer(await engine.outbox.history(limit=limit))


@routes.post(
    "/outbox/redrive",
    operation_id="redrive_outbox",
    summary="Send dead events again",
    response_model=None,
    responses={**answers(Redriven), **problem_responses(404)},
)
async def redrive_outbox(engine: Engine, body: Redrive) -> Answer:
    """Of one run, of one sink, or of both. They keep their order. 404 where none of them is dead."""
    return Answer(await engine.outbox.redrive(**body.model_dump()))


@routes.get(
    "/runs/{run_id}/outbox/{name}",
    operation_id="get_delivery",
    summary="Show what a run has for a sink",
    response_model=None,
    responses=answers(DeliveryDetails),
)
async def get_delivery(engine: Engine, run_id: RunId, name: SinkName) -> Answer:
    return Answer(await engine.outbox.show(run_id, name))


@routes.post(
    "/runs/{run_id}/outbox/{name}/drop",
    operation_id="drop_event",
    summary="Give up a dead event",
    response_model=None,
    responses=answers(Dropped),
)
async def drop_event(engine: Engine, run_id: RunId, name: SinkName, body: Drop) -> Answer:
    """For good; the events after it are sent. 409 where another event is the dead one."""
    return Answer(await engine.outbox.drop(run_id, name, **body.model_dump()))
