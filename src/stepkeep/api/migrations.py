"""Migration of live runs to another version of their workflow, and the previews of it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

from stepkeep.api.bodies import By
from stepkeep.api.jobs import JobView
from stepkeep.api.routing import Answer, Engine, answers, router
from stepkeep.api.runs import RunId
from stepkeep.store.bounds import MAX_VERSION

routes = router("Runs")

Workflow = Annotated[str, Path(min_length=1, max_length=255, description="The name of the workflow.")]


class PreviewOfMigration(By):
    """To which version."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"to": 2}]})

    to: int = Field(ge=1, le=MAX_VERSION, description="The version to go on under.")


class Migration(PreviewOfMigration):
    """To which version, and why."""

    reason: str = Field(default="", max_length=4000)


class PreviewOfAll(PreviewOfMigration):
    """To which version, and perhaps of which version."""

    of: int | None = Field(default=None, ge=1, le=MAX_VERSION, description="Only runs of this version.")


class MigrationOfAll(PreviewOfAll):
    """To which version, and why."""

    reason: str = Field(default="", max_length=4000)


class Migrated(BaseModel):
    """The run that goes on in the place of another one."""

    run_id: str
    new_run_id: str
    version: int
    created: bool = Field(description="False if the run was migrated before.")


class MigrationPreview(BaseModel):
    """What a migration would do with a run."""

    model_config = ConfigDict(populate_by_name=True)

    run_id: str
    state: str
    from_: int = Field(alias="from")
    to: int
    allowed: bool
    reasons: list[str] = Field(description="Why the run stays with its version.")
    adopted: list[str]
    runs: list[str]
    reopens: list[str] = Field(description="Gates that were decided and open anew: the steps behind them differ.")
    added: list[str]
    removed: list[str]


class MigrationsPreview(BaseModel):
    """Which live runs a migration concerns."""

    workflow: str
    to: int
    examined: int
    is_complete: bool
    could_migrate: int
    must_stay: int
    states: list[dict[str, Any]]
    reasons: list[dict[str, Any]]
    reopens: list[dict[str, Any]]
    staying: list[dict[str, Any]]


@routes.post(
    "/runs/{run_id}/migrate",
    operation_id="migrate_run",
    summary="Go on with a live run under another version",
    response_model=None,
    responses=answers(Migrated),
)
async def migrate_run(engine: Engine, run_id: RunId, body: Migration) -> Answer:
    """The run ends as cancelled, and a new one adopts what had settled: both, or neither. The same request again
    answers with the run that was made."""
    return Answer(await engine.migrations.migrate(run_id, **body.model_dump()))


@routes.post(
    "/runs/{run_id}/migration-preview",
    operation_id="preview_migration",
    summary="Can a run go on under another version?",
    response_model=None,
    responses=answers(MigrationPreview),
)
async def preview_migration(engine: Engine, run_id: RunId, body: PreviewOfMigration) -> Answer:
    """What would be adopted and what would run, or every reason why the run stays. It writes nothing."""
    return Answer(await engine.migrations.preview(run_id, **body.model_dump()))


@routes.post(
    "/migrations/{workflow}",
    operation_id="migrate_runs",
    summary="Add a job that migrates the live runs of a workflow",
    response_model=None,
    responses=answers(JobView),
)
async def migrate_runs(engine: Engine, workflow: Workflow, body: MigrationOfAll) -> Answer:
    """Workers carry it out, run by run; `GET /jobs/{job_id}/runs` names each with its new run, or with the reason why
    it stays."""
    return Answer(await engine.migrations.migrate_all(workflow, **body.model_dump()))


@routes.post(
    "/migrations/{workflow}/preview",
    operation_id="preview_migrations",
    summary="Which live runs would a migration concern?",
    response_model=None,
    responses=answers(MigrationsPreview),
)
async def preview_migrations(engine: Engine, workflow: Workflow, body: PreviewOfAll) -> Answer:
    """By state and version: which could be migrated, which would stay, and why. It writes nothing."""
    return Answer(await engine.migrations.preview_all(workflow, **body.model_dump()))
