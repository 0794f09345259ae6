"""Pauses of queues, of workflows and of the tenant. A run is paused by `/runs/{run_id}/pause`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from stepkeep.api.bodies import By
from stepkeep.api.routing import Answer, Engine, answers, router

routes = router("Pauses")


class Paused(BaseModel):
    """One pause."""

    scope: Literal["tenant", "queue", "workflow"]
    queue: str | None = Field(description="Its name; the default queue is empty.")
    workflow: str | None = Field(description="The workflow whose runs start paused.")
    by: str
    since: str
    reason: str


class Pauses(BaseModel):
    """Everything that is paused."""

    pauses: list[Paused]


class TenantPause(By):
    """Why claims are paused."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "an audit"}]})

    reason: str = Field(default="", max_length=4000)


class QueuePause(TenantPause):
    """Which queue is paused, and why."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"queue": "printers", "reason": "out of paper"}]})

    queue: str = Field(max_length=255, description="Its name; the default queue is empty.")


class QueueResumption(By):
    """Which queue is claimed from again."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"queue": "printers"}]})

    queue: str = Field(max_length=255, description="Its name; the default queue is empty.")


class WorkflowPause(TenantPause):
    """Which workflow is paused, and why."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"workflow": "order", "reason": "a bad release"}]})

    workflow: str = Field(max_length=255)


class WorkflowResumption(By):
    """Which workflow is no longer paused."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"workflow": "order"}]})

    workflow: str = Field(max_length=255)


@routes.get(
    "/pauses", operation_id="list_pauses", summary="What is paused", response_model=None, responses=answers(Pauses)
)
async def list_pauses(engine: Engine) -> Answer:
    """The tenant, queues of it, or workflows, whose runs start paused. Paused runs are in the state `paused`."""
    return Answer(await engine.pauses.list())


@routes.post(
    "/pauses/queue",
    operation_id="pause_queue",
    summary="Claim nothing more from a queue",
    response_model=None,
    responses=answers(Pauses),
)
async def pause_queue(engine: Engine, body: QueuePause) -> Answer:
    """What workers hold goes on. Workers notice it within a second."""
    return Answer(await engine.pauses.pause_queue(**body.model_dump()))


@routes.post(
    "/pauses/queue/resume",
    operation_id="resume_queue",
    summary="Claim from a paused queue again",
    response_model=None,
    responses=answers(Pauses),
)
async def resume_queue(engine: Engine, body: QueueResumption) -> Answer:
    """A queue that is not paused stays as it is."""
    return Answer(await engine.pauses.resume_queue(**body.model_dump()))


@routes.post(
    "/pauses/tenant",
    operation_id="pause_tenant",
    summary="Claim nothing more of the whole tenant",
    response_model=None,
    responses=answers(Pauses),
)
async def pause_tenant(engine: Engine, body: TenantPause | None = None) -> Answer:
    """What workers hold goes on. Workers notice it within a second."""
    return Answer(await engine.pauses.pause_tenant(**(body or TenantPause()).model_dump()))


@routes.post(
    "/pauses/tenant/resume",
    operation_id="resume_tenant",
    summary="Claim from the queues of the tenant again",
    response_model=None,
    responses=answers(Pauses),
)
async def resume_tenant(engine: Engine, body: By | None = None) -> Answer:
    """Queues that are paused themselves stay paused."""
    return Answer(await engine.pauses.resume_tenant(by=body.by if body else None))


@routes.post(
    "/pauses/workflow",
    operation_id="pause_workflow",
    summary="Let the runs of a workflow start paused",
    response_model=None,
    responses=answers(Pauses),
)
async def pause_workflow(engine: Engine, body: WorkflowPause) -> Answer:
    """However they are started. Live runs are not changed: `/runs/bulk` pauses them."""
    return Answer(await engine.pauses.pause_workflow(**body.model_dump()))


@routes.post(
    "/pauses/workflow/resume",
    operation_id="resume_workflow",
    summary="Let the runs of a workflow start as usual",
    response_model=None,
    responses=answers(Pauses),
)
async def resume_workflow(engine: Engine, body: WorkflowResumption) -> Answer:
    """Runs that started paused stay so: `/runs/bulk` resumes them."""
    return Answer(await engine.pauses.resume_workflow(**body.model_dump()))
