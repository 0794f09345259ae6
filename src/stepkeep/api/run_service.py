"""The service of seed 001, whole: its addresses, bodies and words below `/as/run`.

A client that was written for that service works with `…/as/run` as its base address. Each route calls the operation of
its native sibling and answers in the seed's shapes. What the seed's service got wrong is not repeated: a key that
comes back with another body is 422, creation is 201, the cancel of a run that ended otherwise is 409, and the stream of
events has ids, heartbeats and an end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import StreamingResponse

from stepkeep.api.handwritten import RequestBody, Routes
from stepkeep.api.routing import JsonAnswer, under_way
from stepkeep.api.stream import EVENTS, LastEventId, StreamEvent, event_stream, follow, number_of
from stepkeep.definition.bounds import MAX_PRIORITY
from stepkeep.engine.groups import ActingEngine
from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.definitions.publish import Newest, find_plan
from stepkeep.operations.operation import RUN_ID, IdempotencyKey, RunId
from stepkeep.operations.runs.following import JournalFollower

routes = Routes("Dialect run")

DIALECT = "run"
DEFAULT_TEMPLATE = "default"


class NewTemplateRun(RequestBody, frozen=True):
    """A run of a template. Every field may be left out, and the body too."""

    template_name: Annotated[str, Meta(max_length=255)] = DEFAULT_TEMPLATE
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] = 0
    webhook_url: Annotated[
        Annotated[str, Meta(max_length=2048)] | None, says("Where the end of the run is posted, with `X-Signature`.")
    ] = None
    webhook_secret: Annotated[
        Annotated[str, Meta(max_length=128)] | None, says("The name of the workers' secret that signs it.")
    ] = None


class RunCreated(Answer, kw_only=True):
    """The id of the run."""

    run_id: Annotated[str, Meta(examples=[RUN_ID])]


class RunStatus(Answer, kw_only=True):
    """A run in the seed's words."""

    id: str
    status: Annotated[str, Meta(examples=["RUNNING"])]


class StepStatus(Answer, kw_only=True):
    """A step in the seed's words."""

    id: str
    name: str
    status: str


class StepStatuses(Answer, kw_only=True):
    """The steps of a run, by position."""

    run_id: str
    steps: list[StepStatus]


class TemplateStepCost(StepStatus, kw_only=True):
    """A step with its cost."""

    cost_usd: float


class RunCost(Answer, kw_only=True):
    """What a run cost."""

    run_id: str
    total_cost_usd: float
    steps: list[TemplateStepCost]


@routes(
    "POST /as/run/runs",
    "start",
    "create_template_run",
    "Create a run of a template",
    status=201,
    also="Created before",
    answers=RunCreated,
    example={"template_name": "default", "priority": 5},
)
async def create_template_run(
    request: Request, engine: ActingEngine, body: NewTemplateRun | None = None, idempotency_key: IdempotencyKey = None
) -> JsonAnswer:
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
    return JsonAnswer(RunCreated(run_id=started.run_id), 201 if started.created else 200, where)


@routes("GET /as/run/runs/{run_id}", "show", "get_template_run", "The status of a run")
async def get_template_run(engine: ActingEngine, run_id: RunId) -> RunStatus:
    view = await engine.show(run_id, as_=DIALECT)
    return RunStatus(id=view["id"], status=view["status"])


@routes("GET /as/run/runs/{run_id}/steps", "show", "list_template_steps", "The steps of a run", answers=StepStatuses)
async def list_template_steps(engine: ActingEngine, run_id: RunId) -> Any:
    return (await engine.show(run_id, as_=DIALECT))["steps"]


@routes("GET /as/run/runs/{run_id}/cost", "show", "get_template_cost", "The cost of a run", answers=RunCost)
async def get_template_cost(engine: ActingEngine, run_id: RunId) -> Any:
    return (await engine.show(run_id, as_=DIALECT))["cost"]


@routes("POST /as/run/runs/{run_id}/approve", "approve", "approve_template_run", "Approve the open gate of a run")
async def approve_template_run(engine: ActingEngine, run_id: RunId) -> RunStatus:
    """200 also when the gate is approved already; 409 when no gate waits."""
    await engine.approve(run_id)
    return RunStatus(id=run_id, status="APPROVED")


@routes("POST /as/run/runs/{run_id}/cancel", "cancel", "cancel_template_run", "Cancel a run")
async def cancel_template_run(engine: ActingEngine, run_id: RunId) -> RunStatus:
    """200 also when the run is CANCELED already; 409 when it ended otherwise."""
    await engine.cancel(run_id, reason="user_request")
    return RunStatus(id=run_id, status="CANCELED")


@routes("GET /as/run/runs/{run_id}/events", "show", "stream_template_events", "Follow the events of a run", **EVENTS)
async def stream_template_events(
    request: Request,
    engine: ActingEngine,
    run_id: RunId,
    since_id: Annotated[
        Annotated[str, Meta(max_length=200)] | None, says("The `seq` or `id` of the last event.")
    ] = None,
    last_event_id: LastEventId = None,
) -> StreamingResponse:
    """Every event is a `step_update`, as in the seed, with its `seq` as id. The stream ends with the run."""
    known = _known(run_id, since_id if last_event_id is None else last_event_id)
    follower = JournalFollower(engine.transactor, run_id, tenant=engine.tenant)
    await follower.begin()

    async def events() -> AsyncIterator[StreamEvent]:
        nonlocal known
        while not follower.is_over and await follower.read():
            pass
        for one in (await engine.show(run_id, as_=DIALECT))["events"]:
            if one["seq"] > known:
                known = one["seq"]
                yield StreamEvent(str(known), "step_update", one)

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
