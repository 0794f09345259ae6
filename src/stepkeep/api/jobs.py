"""Jobs: actions on many runs at once, carried out by workers, and backfills of triggers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from stepkeep.api.bodies import RUN_ID, Anything, Body, By, Cursor, IdempotencyKey, Limit, Moment, Page, Time
from stepkeep.api.idempotency import under_way
from stepkeep.api.routing import Answer, Engine, answers, router

routes = router("Jobs")

JobId = Annotated[str, Path(max_length=255, description="The id of a job.", examples=[RUN_ID])]
Text = Annotated[str | None, Field(max_length=255)]
When = Time | None


class Where(Body):
    """Which runs: the filters of `GET /runs`."""

    state: list[Annotated[str, Field(max_length=40)]] | None = Field(default=None, max_length=20)
    workflow: Text = None
    business_key: Text = None
    correlation_id: Text = None
    labels: dict[str, str] | None = None
    since: When = None
    until: When = None
    error: Text = None
    text: Text = None


class BulkAction(By):
    """What is done to which runs."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"action": "cancel", "where": {"workflow": "hello"}, "dry_run": True}]}
    )

    action: Literal["cancel", "rerun", "pause", "resume"]
    where: Where | None = Field(default=None, description="Which runs; or else `runs`.")
    runs: list[Annotated[str, Field(max_length=255)]] | None = Field(
        default=None, max_length=10_000, description="The ids of the runs."
    )
    compensate: bool = Field(default=False, description="With cancel: undo first what the runs did.")
    reason: str = Field(default="", max_length=4000, description="With cancel, pause and resume.")
    dry_run: bool = Field(default=False, description="Write nothing, and say which runs they are.")


class JobView(BaseModel):
    """A job. Of a backfill, `trigger` and its range are there too, and of a dry run `first`, the first runs."""

    model_config = ConfigDict(extra="allow")

    job: str | None = None
    action: Literal["cancel", "rerun", "pause", "resume", "migrate", "backfill"]
    state: Literal["running", "done", "stopped"] | None = None
    dry_run: bool = False
    where: Anything | None = None
    runs: int | None = None
    waiting: int | None = None
    done: int | None = None
    unchanged: int | None = None
    refused: int | None = None
    created_at: Moment | None = None
    created_by: str | None = None
    ended_at: Moment | None = None


class Jobs(Page):
    """Jobs and backfills, newest first."""

    jobs: list[JobView]


class JobRunView(BaseModel):
    """What became of a run."""

    run_id: str
    result: Literal["waiting", "done", "unchanged", "refused"]
    detail: str | None
    new_run_id: str | None = Field(description="The run that a rerun has made.")


class JobRuns(Page):
    """The runs of a job, by id."""

    runs: list[JobRunView]


@routes.post(
    "/runs/bulk",
    operation_id="start_job",
    summary="Cancel many runs, or run them again",
    status_code=201,
    response_model=None,
    responses={
        **answers(JobView, status=201, says="Created"),
        **answers(JobView, says="Created before, or a dry run"),
    },
)
async def start_job(
    request: Request, engine: Engine, body: BulkAction, idempotency_key: IdempotencyKey = None
) -> Answer:
    """A job for at most 100,000 runs, which are chosen now and which workers act on in small batches. `rerun`
    needs the scope start, everything else the scope operate. Without a state, cancel is about runs that have not ended,
    rerun about those that did not succeed, and resume about paused ones."""
    given: dict[str, Any] = body.model_dump()
    with under_way(request, engine, "jobs", idempotency_key):
        said = await engine.jobs.start(given.pop("action"), idempotency_key=idempotency_key, **given)
    is_new = said.pop("created", False)
    return Answer(said, 201 if is_new else 200, {"Location": f"/jobs/{said['job']}"} if is_new else {})


@routes.get("/jobs", operation_id="list_jobs", summary="List jobs", response_model=None, responses=answers(Jobs))
async def list_jobs(engine: Engine, cursor: Cursor = None, limit: Limit = 50) -> Answer:
    """Also the backfills of triggers."""
    return Answer(await engine.jobs.list(before=cursor, limit=limit))


@routes.get(
    "/jobs/{job_id}", operation_id="get_job", summary="Show a job", response_model=None, responses=answers(JobView)
)
async def get_job(engine: Engine, job_id: JobId) -> Answer:
    return Answer(await engine.jobs.show(job_id))


@routes.get(
    "/jobs/{job_id}/runs",
    operation_id="list_job_runs",
    summary="What became of each run of a job",
    response_model=None,
    responses=answers(JobRuns),
)
async def list_job_runs(engine: Engine, job_id: JobId, cursor: Cursor = None, limit: Limit = 100) -> Answer:
    return Answer(await engine.jobs.runs(job_id, after=cursor, limit=limit))


@routes.post(
    "/jobs/{job_id}/stop",
    operation_id="stop_job",
    summary="End a job early",
    response_model=None,
    responses=answers(JobView),
)
async def stop_job(engine: Engine, job_id: JobId, body: By | None = None) -> Answer:
    """What it has done stays. A backfill is ended at its trigger."""
    return Answer(await engine.jobs.stop(job_id, by=body.by if body else None))
