"""Sinks: where events go. Secrets are named, and read by the process that sends."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field

from stepkeep.api.bodies import Anything, By, Cursor, Limit, Moment, Page, page
from stepkeep.api.routing import Answer, Engine, answers, router

routes = router("Sinks")

SinkName = Annotated[str, Path(max_length=255, description="The name of a sink.", examples=["orders"])]
Sources = Literal["emitted", "dialect", "transitions", "endings"]
EXAMPLE: dict[str, Any] = {
    "kind": "webhook",
    "on": ["order.*"],
    "options": {"url": "https://example.com/in", "secrets": ["HOOK"]},
}


class SinkSettings(By):
    """What a sink takes and where it sends it."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    kind: str = Field(max_length=255, description="webhook, message, handler, host, redis, nats or kafka.")
    on: list[Annotated[str, Field(max_length=255)]] = Field(
        default=["*"], max_length=100, description="Patterns of types of events."
    )
    events: list[Sources] = Field(
        default=["emitted"], min_length=1, max_length=4, description="Which events there are."
    )
    options: dict[str, Any] = Field(default={}, description="The options of the kind. Secrets are named, never given.")


class NewSink(SinkSettings):
    """A sink to add."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "orders", **EXAMPLE}]})

    name: str = Field(max_length=255)


class SinkView(BaseModel):
    """A sink."""

    name: str
    kind: str
    on: list[str]
    events: list[str]
    options: Anything
    created_at: Moment
    created_by: str


class SinkSummary(SinkView):
    """A sink with the runs that wait for it."""

    waiting: int = Field(description="Runs with events that are not delivered.")
    dead: int = Field(description="Runs whose next event is dead.")


class Sinks(Page):
    """Sinks by name."""

    sinks: list[SinkSummary]


class RemovedSink(BaseModel):
    """A sink that was removed."""

    removed: str
    discarded_runs: int


class TestedSink(BaseModel):
    """What became of the event that was sent."""

    sink: str
    delivered: bool
    error: str | None


@routes.post(
    "/sinks",
    operation_id="add_sink",
    summary="Add a sink",
    status_code=201,
    response_model=None,
    responses=answers(SinkView, status=201, says="Added"),
)
async def add_sink(engine: Engine, body: NewSink) -> Answer:
    """409 where there is one of this name. A sink of kind jsonl or command is the operator's, without a key."""
    return Answer(await engine.sinks.add(**body.model_dump()), 201)


@routes.get("/sinks", operation_id="list_sinks", summary="List sinks", response_model=None, responses=answers(Sinks))
async def list_sinks(engine: Engine, cursor: Cursor = None, limit: Limit = 50) -> Answer:
    shown, following = page((await engine.sinks.list())["sinks"], lambda one: str(one["name"]), cursor, limit)
    return Answer({"sinks": shown, "next": following})


@routes.put(
    "/sinks/{name}",
    operation_id="replace_sink",
    summary="Add a sink or replace it, as when a secret is rotated",
    response_model=None,
    responses=answers(SinkView),
)
async def replace_sink(engine: Engine, name: SinkName, body: SinkSettings) -> Answer:
    """Events that are not delivered stay, and go to the new place. While a secret is rotated, name the new one and
    the old one: deliveries are signed with both."""
    return Answer(await engine.sinks.add(name, **body.model_dump(), replace=True))


@routes.delete(
    "/sinks/{name}",
    operation_id="remove_sink",
    summary="Remove a sink",
    response_model=None,
    responses=answers(RemovedSink),
)
async def remove_sink(
    engine: Engine,
    name: SinkName,
    discard: Annotated[bool, Query(description="Lose the events that are not delivered; needs a reason.")] = False,
    reason: Annotated[str, Query(max_length=4000)] = "",
) -> Answer:
    """409 while events for it are not delivered, unless they are discarded."""
    return Answer(await engine.sinks.remove(name, discard=discard, reason=reason))


@routes.post(
    "/sinks/{name}/test",
    operation_id="test_sink",
    summary="Send a test event to a sink",
    response_model=None,
    responses=answers(TestedSink),
)
async def test_sink(engine: Engine, name: SinkName) -> Answer:
    """One event of type `stepkeep.test`, sent from this process and with its secrets."""
    policies = engine.policies
    return Answer(await engine.sinks.test(name, http=policies.get("http"), secrets=policies.get("secrets")))
