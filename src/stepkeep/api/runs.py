"""Runs: create one, list and search them, show one. Each route is one operation of the engine."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field, RootModel
from starlette.requests import Request

from stepkeep.api.access import scopes_of
from stepkeep.api.bodies import RUN_ID, Anything, As, By, IdempotencyKey, Limit, Moment, Page, Time
from stepkeep.api.idempotency import under_way
from stepkeep.api.routing import Answer, Engine, answers, router, waiting
from stepkeep.definition.bounds import MAX_PRIORITY
from stepkeep.engine.result import Result
from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.kernel.states import RunState
from stepkeep.operations.publish import Newest, find_plan

routes = router("Runs")

LONGEST_WAIT = 60.0
"""Seconds that one request may wait for the end of a run."""

RunId = Annotated[str, Path(description="The id of a run.", examples=[RUN_ID])]
RunCursor = Annotated[
    str | None,
    Query(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", description="`next` of the page before."),
]


class NewRun(By):
    """A run to create."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"workflow": "hello", "input": {"name": "Ada"}, "labels": {"team": "a"}}]}
    )

    workflow: str = Field(max_length=255, description="The name of a published workflow.")
    version: int | None = Field(default=None, ge=1, le=2**31 - 1, description="Which version; the highest by default.")
    input: Any = Field(default=None, description="The input of the run; an empty object by default.")
    business_key: str | None = Field(default=None, max_length=255, description="At most one live run has this key.")
    correlation_id: str | None = Field(default=None, max_length=255, description="What the run belongs to.")
    priority: int | None = Field(default=None, ge=-MAX_PRIORITY, le=MAX_PRIORITY, description="Higher goes first.")
    labels: dict[str, str] | None = Field(default=None, description="Texts by name, for searching.")
    start_now: bool = Field(default=True, description="False creates the run idle, to be started later.")
    at: Time | None = Field(default=None, description="Start then; a time with a zone.")
    delay: str | None = Field(default=None, max_length=100, description="Start after this duration, such as `2h`.")


class ResultView(BaseModel):
    """How a run stands: its output once it has succeeded, its error once it has failed."""

    run_id: str
    state: RunState
    finished: bool
    output: Any
    error: str | None


class Created(BaseModel):
    """The run of a creation. `created` is false where the idempotency key had created it before."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"run_id": RUN_ID, "created": True}]})

    run_id: str
    created: bool
    result: ResultView | None = Field(default=None, description="With `wait`: how the run stands after it.")


class RunSummary(BaseModel):
    """A run in a list."""

    id: str
    workflow: str
    version: int
    dialect: str
    state: RunState
    rollback: str | None
    category: str | None
    error: str | None
    priority: int
    business_key: str | None
    correlation_id: str | None
    created_by: str
    created_at: Moment
    starts_at: Moment | None
    started_at: Moment | None
    ended_at: Moment | None
    rerun_of: str | None
    labels: dict[str, str]
    journal: dict[str, Any] = Field(description="`seq` and `head` of the journal.")
    quarantined: dict[str, Any] | None
    fired: dict[str, Any] | None = Field(description="The firing that started it: `trigger`, `moment`, `backfill`.")


class RunList(Page):
    """A page of runs, newest first. With `as`, the rows have the shape of the dialect."""

    runs: list[dict[str, Any]] = Field(description="`RunSummary` of each run; with `as`, the shape of the dialect.")
    total: int | None = Field(default=None, description="How many match, from `cursor` on; absent with `as`.")
    is_complete: bool | None = Field(default=None, description="False where there may be more than `total`.")
    looked_at: dict[str, Any] | None = Field(
        default=None,
        description="What a search looked at that ended before the last run: `runs`, `of` so many (`of_at_least` where "
        "that is a lower bound), `back_to` the start of the `last` one. Absent where it looked at all.",
    )
    unreadable: list[dict[str, Any]] | None = Field(default=None, description="Runs whose rows are damaged.")


class RunDetail(RunSummary):
    """A run with its input, output, cost and what it waits for."""

    input: Any
    output: Any
    cost: dict[str, float]
    warnings: list[str]
    waiting_for: list[dict[str, Any]]
    waits_for_slot: str | None = Field(
        default=None, description="Why a queued run has no execution slot yet; null if it waits for none."
    )
    continues: dict[str, Any] | None = Field(
        description="The run that it repeats or continues: `run`, `as` (`retry`, `rerun` or `fork`), `from`, `adopted`."
    )
    continued_by: list[str] = Field(description="Runs that repeat or continue it, newest first.")
    parent: dict[str, Any] | None = Field(default=None, description="The run and step that started it as a child.")
    children: list[dict[str, Any]] | None = Field(default=None, description="Its child runs, with theirs.")
    continued_as: dict[str, Any] | None = Field(
        default=None, description="The run as which its flow continued as new: `run_id`, `state`, `error`."
    )
    continued_from: str | None = Field(default=None, description="The run whose flow continued as this one.")
    tree_cost: dict[str, float] | None = Field(default=None, description="What it and all runs below it cost.")


class RunView(BaseModel):
    """A run and its steps."""

    run: RunDetail
    steps: list[Anything]


class RunAnswer(RootModel[RunView | Anything]):
    """A run and its steps; with `as`, the shape of the dialect."""


@routes.post(
    "/runs",
    operation_id="create_run",
    summary="Create a run",
    status_code=201,
    response_model=None,
    responses={**answers(Created, status=201, says="Created"), **answers(Created, says="Created before by this key")},
)
async def create_run(
    request: Request,
    engine: Engine,
    body: NewRun,
    idempotency_key: IdempotencyKey = None,
    wait: Annotated[
        float | None,
        Query(
            ge=0,
            le=LONGEST_WAIT,
            allow_inf_nan=False,
            description="Wait this many seconds for the end, and answer with the `result`. Needs the scope read, too.",
        ),
    ] = None,
) -> Answer:
    """201 when the run is new; 200 with the same run when the key and the body came before; 422 when the key came with
    another body; 409 while a request with this key is under way. With `wait`, the answer comes when the run has ended,
    and after that time in any case: look at `finished`."""
    if wait is not None:
        # Before anything is created: a key that may not read would get no answer about its run.
        engine.access.require(*scopes_of("wait"), operation="wait")
    given = body.model_dump(exclude={"workflow", "version", "input"}, exclude_unset=True)
    try:
        plan = await find_plan(engine.transactor, body.workflow, body.version, tenant=engine.tenant)
    except NotFound as missing:
        raise InvalidInput(str(missing)) from None
    with under_way(request, engine, "start", idempotency_key):
        started = await engine.start(
            Newest(plan) if body.version is None else plan, body.input, idempotency_key=idempotency_key, **given
        )
    if wait is None:
        return created(started.run_id, is_new=started.created)
    async with waiting(request, wait):
        result = await engine.wait(started.run_id, seconds=wait)
    return created(started.run_id, is_new=started.created, result=result_view(result))


def created(run_id: str, *, is_new: bool, **more: Any) -> Answer:
    """The answer of a creation, with the address of the run."""
    told = {"run_id": run_id, "created": is_new, **more}
    return Answer(told, 201 if is_new else 200, {"Location": f"/runs/{run_id}"})


def result_view(found: Result) -> dict[str, Any]:
    """`ResultView` of a result."""
    return {
        "run_id": found.run_id,
        "state": found.state,
        "finished": found.finished,
        "output": found.output,
        "error": found.error,
    }


@routes.get(
    "/runs",
    operation_id="list_runs",
    summary="List and search runs",
    response_model=None,
    responses=answers(RunList, says="A page of runs"),
)
async def list_runs(
    engine: Engine,
    state: Annotated[list[RunState] | None, Query(description="Only in these states; may be repeated.")] = None,
    workflow: Annotated[str | None, Query(max_length=255)] = None,
    business_key: Annotated[str | None, Query(max_length=255)] = None,
    correlation_id: Annotated[str | None, Query(max_length=255)] = None,
    label: Annotated[list[str] | None, Query(description="`NAME=TEXT`; may be repeated.", max_length=64)] = None,
    since: Annotated[Time | None, Query(description="Started at or after this time.")] = None,
    until: Annotated[Time | None, Query(description="Started at or before this time.")] = None,
    error: Annotated[str | None, Query(max_length=255, description="A part of the error.")] = None,
    text: Annotated[str | None, Query(max_length=255, description="A part of ids, keys, labels or input.")] = None,
    cursor: RunCursor = None,
    limit: Limit = 50,
    as_: As = None,
) -> Answer:
    """Newest first. Filters can be combined; `labels`, times and texts are not searched for with `as`.

    Labels and texts are looked for in a bounded number of runs. If there are more, the answer has `looked_at`, and
    `next` goes on where it ended, also where it found nothing."""
    which: dict[str, Any] = {
        "state": state or (),
        "workflow": workflow,
        "business_key": business_key,
        "correlation_id": correlation_id,
        "labels": dict(_label(one) for one in label) if label else None,
        "since": since,
        "until": until,
        "error": error,
        "text": text,
        "before": cursor,
        "limit": limit,
    }
    found = await engine.runs(**which)
    if as_ is not None:
        found = {**await engine.runs(**which, as_=as_), "next": found["next"]}
    return Answer(found)


@routes.get(
    "/runs/{run_id}",
    operation_id="get_run",
    summary="Show a run",
    response_model=None,
    responses=answers(RunAnswer, says="The run and its steps"),
)
async def get_run(engine: Engine, run_id: RunId, as_: As = None) -> Answer:
    """Everything about one run, from one snapshot. With `as`, the shape of the dialect."""
    return Answer(await engine.show(run_id, as_=as_))


def _label(text: str) -> tuple[str, str]:
    name, is_there, value = text.partition("=")
    if not is_there or not name:
        raise InvalidInput("a label to search for has the form NAME=TEXT.")
    return name, value
