"""Interventions in a run besides decisions: request changes, escalate a gate, freeze a run, add a note."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from stepkeep.api.bodies import By
from stepkeep.api.routing import Answer, Engine, answers, router
from stepkeep.api.runs import RunId
from stepkeep.api.steps import Decision

routes = router("Runs")


class GateRequest(By):
    """Which gate."""

    step: str | None = Field(
        default=None, max_length=255, description="Which gate; not needed where exactly one is open."
    )
    for_: str | None = Field(default=None, alias="for", max_length=255, description="Who delegated the decision.")


class ChangesRequest(GateRequest):
    """What is to change before a gate is decided."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"step": "sign", "comment": "name the supplier"}]})

    comment: str = Field(min_length=1, max_length=4000)


class Escalation(GateRequest):
    """Why the next level of a gate is asked."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"step": "sign", "reason": "bea is away"}]})

    reason: str = Field(min_length=1, max_length=4000)


class Reassignment(By):
    """Other approvers for a gate that nobody may decide, or its failure."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"step": "sign", "to": ["dan"], "reason": "finance has left"}]}
    )

    step: str = Field(min_length=1, max_length=255, description="Which gate.")
    to: list[str] = Field(default=[], max_length=50, description="Who may decide it, besides those whom it names.")
    fail: bool = Field(default=False, description="Fail the gate instead.")
    reason: str = Field(min_length=1, max_length=4000)


class NewNote(By):
    """A note for the journal of a run."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"note": "the bank has a holiday"}]})

    note: str = Field(min_length=1, max_length=4000)
    step: str | None = Field(default=None, max_length=255, description="The step that it is about.")


class Freeze(By):
    """Why a run is frozen."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "an audit"}]})

    reason: str = Field(min_length=1, max_length=4000)


@routes.post(
    "/runs/{run_id}/request-changes",
    operation_id="request_changes",
    summary="Request changes at an open gate",
    response_model=None,
    responses=answers(Decision),
)
async def request_changes(engine: Engine, run_id: RunId, body: ChangesRequest) -> Answer:
    """The gate stays open with its deadline, and every decision so far is void. Only a person who may decide it may."""
    return Answer(await engine.interventions.request_changes(run_id, **body.model_dump()))


@routes.post(
    "/runs/{run_id}/escalate",
    operation_id="escalate_gate",
    summary="Open the next level of a gate",
    response_model=None,
    responses=answers(Decision),
)
async def escalate(engine: Engine, run_id: RunId, body: Escalation) -> Answer:
    """Before its deadline does. Only a person who may decide the gate may; 409 where it has no further level."""
    return Answer(await engine.interventions.escalate(run_id, **body.model_dump()))


@routes.post(
    "/runs/{run_id}/reassign",
    operation_id="reassign_gate",
    summary="Name other approvers for a gate that nobody may decide, or fail it",
    response_model=None,
    responses=answers(Decision),
)
async def reassign(engine: Engine, run_id: RunId, body: Reassignment) -> Answer:
    """Only a person who did not ask for the run may; 409 while a person may decide the gate."""
    return Answer(await engine.interventions.reassign(run_id, **body.model_dump()))


@routes.post(
    "/runs/{run_id}/notes",
    operation_id="annotate_run",
    summary="Keep a note in the journal of a run",
    response_model=None,
    responses=answers(Decision),
)
async def annotate(engine: Engine, run_id: RunId, body: NewNote) -> Answer:
    """It changes no state. 409 where the run has ended."""
    return Answer(await engine.interventions.annotate(run_id, **body.model_dump()))


@routes.post(
    "/runs/{run_id}/freeze",
    operation_id="freeze_run",
    summary="Freeze a run",
    response_model=None,
    responses=answers(Decision),
)
async def freeze(engine: Engine, run_id: RunId, body: Freeze) -> Answer:
    """A pause under a name of its own; `/runs/{run_id}/resume` ends it. 409 where the run is paused already."""
    return Answer(await engine.interventions.freeze(run_id, **body.model_dump()))
