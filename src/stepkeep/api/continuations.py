"""New runs that go on with finished ones: retry, rerun from a step, fork, and the preview of each."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from stepkeep.api.bodies import By, IdempotencyKey
from stepkeep.api.idempotency import under_way
from stepkeep.api.routing import Answer, Engine, answers, router
from stepkeep.api.runs import Created, RunId, created
from stepkeep.store.bounds import MAX_VERSION

routes = router("Runs")

CREATED: dict[int | str, dict[str, Any]] = {
    **answers(Created, status=201, says="Created"),
    **answers(Created, says="Created before"),
}


class Retry(By):
    """A new run that continues a failed one."""

    version: int | None = Field(default=None, ge=1, le=MAX_VERSION, description="A newer version of the workflow.")


class RerunFrom(Retry):
    """A new run that repeats a finished one from a step on."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"start": "ship"}]})

    start: str = Field(min_length=1, max_length=255, description="The step; it and all that depends on it run again.")
    input: Any = Field(default=None, description="Another input; that of the old run by default.")


class Fork(Retry):
    """A new run that takes another course from a step on."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"at": "ship", "input": {"country": "CH"}}]})

    at: str = Field(min_length=1, max_length=255, description="The step; it and all that depends on it run again.")
    input: Any = Field(default=None, description="Another input; that of the old run by default.")


class PreviewOf(Retry):
    """What to preview."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"how": "retry"}]})

    how: Literal["retry", "rerun", "fork"]
    start: str | None = Field(default=None, min_length=1, max_length=255, description="The step of a rerun or a fork.")
    input: Any = Field(default=None, description="Another input; that of the old run by default.")


class StepFate(BaseModel):
    """What would become of a step."""

    step: str
    adopted: bool
    reason: str
    says: str
    was: str | None = Field(description="Its state in the earlier run; null where that has no such step.")
    effect: str
    undo: bool
    may_repeat: bool = Field(description="Its effect happened, or may have happened, and it would run again.")


class ContinuationPreview(BaseModel):
    """What a new run would adopt and run again."""

    model_config = ConfigDict(populate_by_name=True)

    run_id: str
    as_: str = Field(alias="as")
    from_: str | None = Field(alias="from")
    version: int
    adopted: list[str]
    runs_again: list[str]
    reopens: list[str] = Field(description="Steps that people decided about, and are asked about anew.")
    may_repeat: list[str]
    owns_undo: list[str] = Field(description="Adopted steps that the new run would undo in a rollback.")
    continued_by: list[str] = Field(description="Runs that repeat or continue this one already, newest first.")
    child_of: str | None = Field(description="The parent of the run, which does not wait for the new run.")
    steps: list[StepFate]


@routes.post(
    "/runs/{run_id}/retry",
    operation_id="retry_run",
    summary="Continue a run after a fix",
    status_code=201,
    response_model=None,
    responses=CREATED,
)
async def retry_run(
    request: Request, engine: Engine, run_id: RunId, body: Retry | None = None, idempotency_key: IdempotencyKey = None
) -> Answer:
    """A new run that adopts the finished steps, and takes over their undo. A run has one retry."""
    with under_way(request, engine, "retry", idempotency_key):
        started = await engine.continuations.retry(
            run_id, idempotency_key=idempotency_key, **(body or Retry()).model_dump()
        )
    return created(started.run_id, is_new=started.created)


@routes.post(
    "/runs/{run_id}/rerun-from",
    operation_id="rerun_run_from",
    summary="Run a finished run again from a step",
    status_code=201,
    response_model=None,
    responses=CREATED,
)
async def rerun_run_from(
    request: Request, engine: Engine, run_id: RunId, body: RerunFrom, idempotency_key: IdempotencyKey = None
) -> Answer:
    """The step and all that depends on it run again; what was finished before is adopted."""
    with under_way(request, engine, "rerun", idempotency_key):
        started = await engine.continuations.rerun(run_id, idempotency_key=idempotency_key, **body.model_dump())
    return created(started.run_id, is_new=started.created)


@routes.post(
    "/runs/{run_id}/fork",
    operation_id="fork_run",
    summary="Take another course from a step",
    status_code=201,
    response_model=None,
    responses=CREATED,
)
async def fork_run(
    request: Request, engine: Engine, run_id: RunId, body: Fork, idempotency_key: IdempotencyKey = None
) -> Answer:
    """A new run without the business key. It never undoes what the earlier run did."""
    with under_way(request, engine, "fork", idempotency_key):
        started = await engine.continuations.fork(run_id, idempotency_key=idempotency_key, **body.model_dump())
    return created(started.run_id, is_new=started.created)


@routes.post(
    "/runs/{run_id}/continuation-preview",
    operation_id="preview_continuation",
    summary="What would a retry, rerun or fork do?",
    response_model=None,
    responses=answers(ContinuationPreview),
)
async def preview_continuation(engine: Engine, run_id: RunId, body: PreviewOf) -> Answer:
    """What would be adopted, what would run again, and which effects may happen twice. It writes nothing."""
    return Answer(await engine.continuations.preview(run_id, **body.model_dump()))
