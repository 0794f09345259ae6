"""The service of seed 001, whole: its addresses, bodies and words below `/as/run`.

A client that was written for that service works with `…/as/run` as its base address. Each route calls the operation of
its native sibling and answers in the seed's shapes. What the seed's service got wrong is not repeated: a key that
comes back with another body is 422, creation is 201, the cancel of a run that ended otherwise is 409, and the stream of
events has ids, heartbeats and an end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from stepkeep.api.bodies import RUN_ID, Body, IdempotencyKey
from stepkeep.api.idempotency import under_way
from stepkeep.api.routing import Answer, Engine, answers, router
from stepkeep.api.runs import RunId
from stepkeep.api.stream import SSE, Event, LastEventId, event_stream, follow, number_of
from stepkeep.definition.bounds import MAX_PRIORITY
from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.operations.following import JournalFollower
from stepkeep.operations.publish import Newest, find_plan

routes = router("Dialect run")

DIALECT = "run"
DEFAULT_TEMPLATE = "default"


class NewTemplateRun(Body):
    """A run of a template. Every field may be left out, and the body too."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"template_name": "default", "priority": 5}]})

    template_name: str = Field(default=DEFAULT_TEMPLATE, max_length=255)
    priority: int = Field(default=0, ge=-MAX_PRIORITY, le=MAX_PRIORITY)
    webhook_url: str | None = Field(
        default=None, max_length=2048, description="Where the end of the run is posted, with `X-Signature`."
    )
    webhook_secret: str | None = Field(
        default=None, max_length=128, description="The name of the workers' secret that signs it."
    )


class RunCreated(BaseModel):
    """The id of the run."""

    run_id: str = Field(examples=[RUN_ID])


class RunStatus(BaseModel):
    """A run in the seed's words."""

    id: str
    status: str = Field(examples=["RUNNING"])


class StepStatus(BaseModel):
    """A step in the seed's words."""

    id: str
    name: str
    status: str


class StepStatuses(BaseModel):
    """The steps of a run, by position."""

    run_id: str
    steps: list[StepStatus]


class StepCost(StepStatus):
    """A step with its cost."""

    cost_usd: float


class RunCost(BaseModel):
    """What a run cost."""

    run_id: str
    total_cost_usd: float
    steps: list[StepCost]


@routes.post(
    "/as/run/runs",
    operation_id="create_template_run",
    summary="Create a run of a template",
    status_code=201,
    response_model=None,
    responses={**answers(RunCreated, status=201, says="Created"), **answers(RunCreated, says="Created before")},
)
async def create_template_run(
    request: Request, engine: Engine, body: NewTemplateRun | None = None, idempotency_key: IdempotencyKey = None
) -> Answer:
    """An unknown template is 400."""
    wanted = body or NewTemplateRun()
    try:
        plan = await find_plan(engine.transactor, wanted.template_name, None, tenant=engine.tenant)
    except NotFound:
        raise InvalidInput(f"there is no template {wanted.template_name[:80]!a}.") from None
    with under_way(request, engine, "start", idempotency_key):
        started = await engine.start(
            Newest(plan),
            priority=wanted.priority,
            idempotency_key=idempotency_key,
            webhook_url=wanted.webhook_url,
            webhook_secret=wanted.webhook_secret,
        )
    where = {"Location": f"/as/run/runs/{started.run_id}"}
    return Answer({"run_id": started.run_id}, 201 if started.created else 200, where)


@routes.get(
    "/as/run/runs/{run_id}",
    operation_id="get_template_run",
    summary="The status of a run",
    response_model=None,
    responses=answers(RunStatus),
)
async def get_template_run(engine: Engine, run_id: RunId) -> Answer:
    view = await engine.show(run_id, as_=DIALECT)
    return Answer({"id": view["id"], "status": view["status"]})


@routes.get(
    "/as/run/runs/{run_id}/steps",
    operation_id="list_template_steps",
    summary="The steps of a run",
    response_model=None,
    responses=answers(StepStatuses),
)
async def list_template_steps(engine: Engine, run_id: RunId) -> Answer:
    return Answer((await engine.show(run_id, as_=DIALECT))["steps"])


@routes.get(
    "/as/run/runs/{run_id}/cost",
    operation_id="get_template_cost",
    summary="The cost of a run",
    response_model=None,
    responses=answers(RunCost),
)
async def get_template_cost(engine: Engine, run_id: RunId) -> Answer:
    return Answer((await engine.show(run_id, as_=DIALECT))["cost"])


@routes.post(
    "/as/run/runs/{run_id}/approve",
    operation_id="approve_template_run",
    summary="Approve the open gate of a run",
    response_model=None,
    responses=answers(RunStatus),
)
async def approve_template_run(engine: Engine, run_id: RunId) -> Answer:
    """200 also when the gate is approved already; 409 when no gate waits."""
    await engine.approve(run_id)
    return Answer({"id": run_id, "status": "APPROVED"})


@routes.post(
    "/as/run/runs/{run_id}/cancel",
    operation_id="cancel_template_run",
    summary="Cancel a run",
    response_model=None,
    responses=answers(RunStatus),
)
async def cancel_template_run(engine: Engine, run_id: RunId) -> Answer:
    """200 also when the run is CANCELED already; 409 when it ended otherwise."""
    await engine.cancel(run_id, reason="user_request")
    return Answer({"id": run_id, "status": "CANCELED"})


@routes.get(
    "/as/run/runs/{run_id}/events",
    operation_id="stream_template_events",
    summary="Follow the events of a run",
    response_model=None,
    responses=SSE,
)
async def stream_template_events(
    request: Request,
    engine: Engine,
    run_id: RunId,
    since_id: Annotated[str | None, Query(max_length=200, description="The `seq` or `id` of the last event.")] = None,
    last_event_id: LastEventId = None,
) -> StreamingResponse:
    """Every event is a `step_update`, as in the seed, with its `seq` as id. The stream ends with the run."""
    known = _known(run_id, since_id if last_event_id is None else last_event_id)
    follower = JournalFollower(engine.transactor, run_id, tenant=engine.tenant)
    await follower.begin()

    async def events() -> AsyncIterator[Event]:
        nonlocal known
        while not follower.is_over and await follower.read():
            pass
        for one in (await engine.show(run_id, as_=DIALECT))["events"]:
            if one["seq"] > known:
                known = one["seq"]
                yield Event(str(known), "step_update", one)

    return event_stream(request, follow(request, engine, follower, events))


def _known(run_id: str, given: str | None) -> int:
    """The number of the last event that the client knows: a number, or the id of an event, which ends in it."""
    prefix = f"{run_id}:"
    if given is not None and given.startswith(prefix):
        given = given.removeprefix(prefix)
    try:
        return number_of(given)
    except InvalidInput:
        raise InvalidInput("since_id is the seq or the id of an event of this run.") from None
