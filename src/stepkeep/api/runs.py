"""Creating a run, with an answer at once or when it has ended."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request

from stepkeep.api.access import scopes_of
from stepkeep.api.handwritten import Body, Routes
from stepkeep.api.idempotency import under_way
from stepkeep.api.routing import JsonAnswer, waiting
from stepkeep.definition.bounds import MAX_PRIORITY
from stepkeep.engine.acting import ActingEngine
from stepkeep.engine.result import Result
from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.kernel.states import RunState
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.operation import Actor, IdempotencyKey, Time
from stepkeep.operations.publish import Newest, find_plan

routes = Routes("Runs")

LONGEST_WAIT = 60.0
"""Seconds that one request may wait for the end of a run."""

Key = Annotated[str, Meta(max_length=255)]


class NewRun(Body, frozen=True, kw_only=True):
    """A run to create."""

    by: Actor = None
    workflow: Annotated[Key, says("The name of a published workflow.")]
    version: Annotated[
        Annotated[int, Meta(ge=1, le=2**31 - 1)] | None, says("Which version; the highest by default.")
    ] = None
    input: Annotated[Any, says("The input of the run; an empty object by default.")] = None
    business_key: Annotated[Key | None, says("At most one live run has this key.")] = None
    correlation_id: Annotated[Key | None, says("What the run belongs to.")] = None
    priority: Annotated[Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] | None, says("Higher goes first.")] = (
        None
    )
    labels: Annotated[dict[str, str] | None, says("Texts by name, for searching.")] = None
    start_now: Annotated[bool, says("False creates the run idle, to be started later.")] = True
    at: Annotated[Time | None, says("Start then; a time with a zone.")] = None
    delay: Annotated[Annotated[str, Meta(max_length=100)] | None, says("Start after this duration, such as `2h`.")] = (
        None
    )


class ResultView(Answer, kw_only=True):
    """How a run stands: its output once it has succeeded, its error once it has failed."""

    run_id: str
    state: RunState
    finished: bool
    output: Any
    error: str | None


class Created(Answer, kw_only=True):
    """The run of a creation. `created` is false where the idempotency key had created it before."""

    run_id: str
    created: bool
    result: Annotated[ResultView | UnsetType, says("With `wait`: how the run stands after it.")] = UNSET


@routes(
    "POST /runs",
    "start",
    "create_run",
    "Create a run",
    status=201,
    done="Created",
    also="Created before by this key",
    answers=Created,
    example={"workflow": "hello", "input": {"name": "Ada"}, "labels": {"team": "a"}},
)
async def create_run(
    request: Request,
    engine: ActingEngine,
    body: NewRun,
    idempotency_key: IdempotencyKey = None,
    wait: Annotated[
        Annotated[float, Meta(ge=0, le=LONGEST_WAIT)] | None,
        says("Wait this many seconds for the end, and answer with the `result`. Needs the scope read, too."),
    ] = None,
) -> JsonAnswer:
    """201 when the run is new; 200 with the same run when the key and the body came before; 422 when the key came with
    another body; 409 while a request with this key is under way. With `wait`, the answer comes when the run has ended,
    and after that time in any case: look at `finished`."""
    if wait is not None:
        # Before anything is created: a key that may not read would get no answer about its run.
        engine.access.require(*scopes_of("wait"), operation="wait")
    given = msgspec.structs.asdict(body)
    workflow, version, run_input = (given.pop(name) for name in ("workflow", "version", "input"))
    try:
        plan = await find_plan(engine.transactor, workflow, version, tenant=engine.tenant)
    except NotFound as missing:
        raise InvalidInput(str(missing)) from None
    with under_way(request, engine, "start", idempotency_key):
        started = await engine.start(
            Newest(plan) if version is None else plan, run_input, idempotency_key=idempotency_key, **given
        )
    told = Created(run_id=started.run_id, created=started.created)
    if wait is not None:
        async with waiting(request, wait):
            result = result_view(await engine.wait(started.run_id, seconds=wait))
        told = msgspec.structs.replace(told, result=result)
    return JsonAnswer(told, 201 if started.created else 200, {"Location": f"/runs/{started.run_id}"})


def result_view(found: Result) -> ResultView:
    return ResultView(
        run_id=found.run_id, state=found.state, finished=found.finished, output=found.output, error=found.error
    )
