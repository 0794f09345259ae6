"""What is done to a run: start an idle one, cancel, pause, resume, run again, approve, reject, send a message,
quarantine, release."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from stepkeep.api.bodies import Anything, By, IdempotencyKey
from stepkeep.api.idempotency import under_way
from stepkeep.api.routing import Answer, Engine, answers, router
from stepkeep.api.runs import Created, RunId, created
from stepkeep.api.steps import Decision

routes = router("Runs")


class Cancel(By):
    """How a run is to end."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "ordered twice", "compensate": True}]})

    compensate: bool = Field(default=False, description="Undo first what the run did.")
    reason: str = Field(default="", max_length=4000)


class Pause(By):
    """Why a run is paused or resumed."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "the shop is closed"}]})

    reason: str = Field(default="", max_length=4000)


class Rerun(By):
    """A new run like a finished one."""

    input: Any = Field(default=None, description="Another input; that of the old run by default.")


class GateDecision(By):
    """A decision at a gate."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"step": "sign", "comment": "checked"}]})

    step: str | None = Field(
        default=None, max_length=255, description="Which gate; not needed where exactly one is open."
    )
    comment: str = Field(default="", max_length=4000)
    evidence: list[str] = Field(default=[], max_length=100, description="References that are kept with the decision.")
    for_: str | None = Field(default=None, alias="for", max_length=255, description="Who delegated the decision.")


class NewMessage(By):
    """A message for a run."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "paid", "payload": {"amount": 3}, "id": "m-1"}]})

    name: str = Field(max_length=255)
    payload: Any = None
    id: str | None = Field(default=None, max_length=255, description="The same id again changes nothing.")


class Reason(By):
    """Why."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "its rows are damaged"}]})

    reason: str = Field(min_length=1, max_length=4000)


class Undo(BaseModel):
    """A step that would be undone."""

    position: int = Field(description="Its place in the order, counted from 1.")
    step: str
    undo: str = Field(description="The step that undoes it.")
    run_id: str = Field(description="The run of the tree that the step belongs to.")
    level: int = Field(description="How far below the run that was asked about: 0 is that run itself.")


class Remaining(BaseModel):
    """A step whose effect would remain."""

    step: str
    state: str
    reason: Literal["no_undo", "not_finished", "attempted", "child"]
    says: str
    run_id: str
    level: int


class RunningStep(BaseModel):
    """A step with an attempt or a child in flight, and what becomes of it."""

    step: str
    says: str
    run_id: str
    level: int


class RollbackPreview(BaseModel):
    """What a cancel with `compensate` would do now, if every undo succeeds and what runs is cut off."""

    run_id: str
    state: str
    possible: bool
    refusal: str | None = Field(description="Why the run cannot be cancelled.")
    ends: str = Field(description="The state in which the run would end.")
    rollback: Literal["none", "complete", "partial"]
    undo: list[Undo]
    cannot_undo: list[Remaining]
    running: list[RunningStep]


class QuarantineView(BaseModel):
    """One quarantine."""

    run: str
    reason: str
    by: str
    at: str | None
    released_by: str | None
    released_at: str | None
    release_reason: str | None


class Quarantined(BaseModel):
    """Quarantined runs."""

    quarantined: list[QuarantineView]


@routes.post(
    "/runs/{run_id}/start",
    operation_id="start_run",
    summary="Start an idle run",
    response_model=None,
    responses=answers(Decision),
)
async def start_run(engine: Engine, run_id: RunId, body: By | None = None) -> Answer:
    return Answer(await engine.start_idle(run_id, by=body.by if body else None))


@routes.post(
    "/runs/{run_id}/cancel",
    operation_id="cancel_run",
    summary="Cancel a run",
    response_model=None,
    responses=answers(Decision),
)
async def cancel_run(engine: Engine, run_id: RunId, body: Cancel | None = None) -> Answer:
    """With `compensate`, what it did is undone first. A run that is cancelled already is answered the same again."""
    return Answer(await engine.cancel(run_id, **(body or Cancel()).model_dump()))


@routes.post(
    "/runs/{run_id}/pause",
    operation_id="pause_run",
    summary="Pause a run",
    response_model=None,
    responses=answers(Decision),
)
async def pause_run(engine: Engine, run_id: RunId, body: Pause | None = None) -> Answer:
    """Nothing more of it is claimed until it is resumed. What is in flight settles; deadlines and its timeout go on."""
    return Answer(await engine.pause(run_id, **(body or Pause()).model_dump()))


@routes.post(
    "/runs/{run_id}/resume",
    operation_id="resume_run",
    summary="Go on with a paused run",
    response_model=None,
    responses=answers(Decision),
)
async def resume_run(engine: Engine, run_id: RunId, body: Pause | None = None) -> Answer:
    """A run that is not paused is answered as it is."""
    return Answer(await engine.resume(run_id, **(body or Pause()).model_dump()))


@routes.get(
    "/runs/{run_id}/rollback",
    operation_id="preview_rollback",
    summary="What would a cancel with compensation undo?",
    response_model=None,
    responses=answers(RollbackPreview),
)
async def preview_rollback(engine: Engine, run_id: RunId) -> Answer:
    """In which order, and what it cannot undo and why. Decided as the cancel would be, and written nowhere."""
    return Answer(await engine.rollback_preview(run_id))


@routes.post(
    "/runs/{run_id}/rerun",
    operation_id="rerun_run",
    summary="Run a finished run again",
    status_code=201,
    response_model=None,
    responses={**answers(Created, status=201, says="Created"), **answers(Created, says="Created before")},
)
async def rerun_run(
    request: Request, engine: Engine, run_id: RunId, body: Rerun | None = None, idempotency_key: IdempotencyKey = None
) -> Answer:
    """A new run of the same definition and input, or of another input, that names the old one (`rerun_of`)."""
    given = (body or Rerun()).model_dump()
    with under_way(request, engine, "rerun", idempotency_key):
        started = await engine.rerun(run_id, idempotency_key=idempotency_key, **given)
    return created(started.run_id, is_new=started.created)


@routes.post(
    "/runs/{run_id}/approve",
    operation_id="approve_gate",
    summary="Approve an open gate",
    response_model=None,
    responses=answers(Decision),
)
async def approve(engine: Engine, run_id: RunId, body: GateDecision | None = None) -> Answer:
    """409 with the `winner` where the gate was decided otherwise. The same decision again is answered as before."""
    return Answer(await engine.approve(run_id, **(body or GateDecision()).model_dump()))


@routes.post(
    "/runs/{run_id}/reject",
    operation_id="reject_gate",
    summary="Reject an open gate",
    response_model=None,
    responses=answers(Decision),
)
async def reject(engine: Engine, run_id: RunId, body: GateDecision | None = None) -> Answer:
    return Answer(await engine.reject(run_id, **(body or GateDecision()).model_dump()))


@routes.post(
    "/runs/{run_id}/messages",
    operation_id="send_message",
    summary="Send a message to a run",
    response_model=None,
    responses=answers(Decision),
)
async def send_message(
    engine: Engine, run_id: RunId, body: NewMessage, idempotency_key: IdempotencyKey = None
) -> Answer:
    """It is kept until a step waits for it. The id of the message, or else the idempotency key, makes it unique."""
    message_id = idempotency_key if body.id is None else body.id
    return Answer(await engine.send(run_id, body.name, body.payload, message_id=message_id, by=body.by))


@routes.post(
    "/runs/{run_id}/quarantine",
    operation_id="quarantine_run",
    summary="Quarantine a run",
    response_model=None,
    responses=answers(QuarantineView),
)
async def quarantine_run(engine: Engine, run_id: RunId, body: Reason) -> Answer:
    """Nothing claims, changes or deletes the run until it is released."""
    return Answer(await engine.quarantine(run_id, reason=body.reason, by=body.by))


@routes.post(
    "/runs/{run_id}/release",
    operation_id="release_run",
    summary="End a quarantine",
    response_model=None,
    responses=answers(QuarantineView),
)
async def release_run(engine: Engine, run_id: RunId, body: Reason) -> Answer:
    return Answer(await engine.release(run_id, reason=body.reason, by=body.by))


@routes.get(
    "/quarantine",
    operation_id="list_quarantined",
    summary="List quarantined runs",
    response_model=None,
    responses=answers(Quarantined),
)
async def list_quarantined(engine: Engine, history: bool = False) -> Answer:
    """With `history`, every quarantine there was."""
    found: Anything = await engine.quarantined(history=history)
    return Answer(found)
