"""Triggers, which start runs by themselves, their backfills, and events from outside."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field, field_validator

from stepkeep.api.bodies import Anything, By, Cursor, IdempotencyKey, Limit, Moment, Page, Time, page
from stepkeep.api.routing import Answer, Engine, answers, router
from stepkeep.kernel.errors import InvalidInput, NotFound

routes = router("Triggers")

TriggerName = Annotated[str, Path(max_length=255, description="The name of a trigger.", examples=["shop/nightly"])]
BackfillId = Annotated[str, Path(max_length=255, description="The id of a backfill.")]


class NewTrigger(By):
    """A trigger in the words of a definition, for the newest version of a workflow."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "nightly", "workflow": "hello", "trigger": {"schedule": "0 3 * * *"}}]}
    )

    name: str = Field(max_length=255)
    workflow: str = Field(max_length=255)
    trigger: dict[str, Any] = Field(description="What a definition writes below `triggers`, without the name.")

    @field_validator("trigger")
    @classmethod
    def _has_no_name(cls, trigger: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted(trigger.keys() & {"name", "workflow", "by", "self"}):
            raise ValueError(f"{taken[0]} is not part of the trigger: it stands beside it")
        return trigger


class Fire(By):
    """A firing by hand."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"key": "again-1"}]})

    payload: Any = Field(default=None, description="The payload of the event, for the trigger's expressions.")
    key: str | None = Field(default=None, max_length=100, description="One key fires once.")


class NewBackfill(By):
    """A range whose moments are fired, if they have no run."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"since": "2026-01-01T00:00:00Z", "until": "2026-01-03T00:00:00Z", "dry_run": True}]
        }
    )

    since: Time
    until: Time
    at_once: int = Field(default=5, ge=1, le=100, description="How many of its runs are live at a time.")
    dry_run: bool = Field(default=False, description="Write nothing, and say how many moments there are.")


class NewEvent(By):
    """An event from outside."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"event": "order.paid", "payload": {"order": 7}, "id": "e-7"}]}
    )

    event: str = Field(max_length=255, description="The type of the event.")
    payload: Any = None
    id: str | None = Field(default=None, max_length=255, description="The same id again fires nothing again.")
    correlation_id: str | None = Field(default=None, max_length=255)


class TriggerView(BaseModel):
    """A trigger. Fields that mean nothing for its kind are left out."""

    model_config = ConfigDict(extra="allow")

    trigger: str
    workflow: str
    version: int | None
    declared: bool = Field(description="Whether a version of the workflow declares it.")
    kind: str
    state: Literal["active", "paused", "removed"]
    overlap: str
    next_at: Moment | None
    created_at: Moment
    created_by: str


class FiringView(BaseModel):
    """What became of one moment or event."""

    model_config = ConfigDict(extra="allow")

    moment: str
    due_at: Moment
    state: str
    run_id: str | None
    reason: str | None
    recorded_at: Moment


class TriggerFiring(FiringView):
    """A firing, with its trigger."""

    trigger: str


class BackfillView(BaseModel):
    """A backfill, which workers carry out; or, of a dry run, what it would do."""

    model_config = ConfigDict(extra="allow")

    trigger: str
    backfill: str | None = None
    state: Literal["running", "done", "stopped"] | None = None
    dry_run: bool = False
    moments: int | None = None


class TriggerDetails(TriggerView):
    """A trigger with its next moments, its latest firings and its backfills."""

    next: list[Anything]
    firings: list[FiringView]
    backfills: list[BackfillView]


class Triggers(Page):
    """Triggers by name."""

    triggers: list[TriggerView]


class NextMoments(BaseModel):
    """The next moments of a schedule."""

    trigger: str
    state: str
    next: list[Anything]


class Emitted(BaseModel):
    """What an event fired."""

    event: str
    name: str
    firings: list[TriggerFiring]


@routes.get(
    "/triggers", operation_id="list_triggers", summary="List triggers", response_model=None, responses=answers(Triggers)
)
async def list_triggers(engine: Engine, cursor: Cursor = None, limit: Limit = 50) -> Answer:
    found = (await engine.triggers.list())["triggers"]
    shown, following = page(found, lambda one: str(one["trigger"]), cursor, limit)
    return Answer({"triggers": shown, "next": following})


@routes.post(
    "/triggers",
    operation_id="add_trigger",
    summary="Add a trigger, or change one that was added",
    response_model=None,
    responses=answers(TriggerView),
)
async def add_trigger(engine: Engine, body: NewTrigger) -> Answer:
    """For the newest version of a published workflow. 409 for one that a version of a workflow declares."""
    try:
        return Answer(await engine.triggers.add(body.name, body.workflow, by=body.by, **body.trigger))
    except NotFound as missing:
        raise InvalidInput(str(missing)) from None


@routes.get(
    "/triggers/{name:path}/next",
    operation_id="list_next_moments",
    summary="The next moments of a schedule",
    response_model=None,
    responses=answers(NextMoments),
)
async def list_next_moments(
    engine: Engine,
    name: TriggerName,
    after: Annotated[Time | None, Query(description="A time with a zone; now by default.")] = None,
    limit: Limit = 10,
) -> Answer:
    return Answer(await engine.triggers.next(name, count=limit, after=after))


@routes.post(
    "/triggers/{name:path}/pause",
    operation_id="pause_trigger",
    summary="Pause a trigger",
    response_model=None,
    responses=answers(TriggerView),
)
async def pause_trigger(engine: Engine, name: TriggerName, body: By | None = None) -> Answer:
    """It fires nothing by itself until it is resumed. 409 where it is paused."""
    return Answer(await engine.triggers.pause(name, by=body.by if body else None))


@routes.post(
    "/triggers/{name:path}/resume",
    operation_id="resume_trigger",
    summary="Resume a trigger",
    response_model=None,
    responses=answers(TriggerView),
)
async def resume_trigger(engine: Engine, name: TriggerName, body: By | None = None) -> Answer:
    """Moments of the pause are not caught up. 409 where it is not paused."""
    return Answer(await engine.triggers.resume(name, by=body.by if body else None))


@routes.post(
    "/triggers/{name:path}/fire",
    operation_id="fire_trigger",
    summary="Fire a trigger now",
    response_model=None,
    responses=answers(TriggerFiring),
)
async def fire_trigger(
    engine: Engine, name: TriggerName, body: Fire | None = None, idempotency_key: IdempotencyKey = None
) -> Answer:
    """Whatever its overlap policy says, and also while it is paused. One key (or idempotency key) fires once."""
    given = body or Fire()
    key = idempotency_key if given.key is None else given.key
    return Answer(await engine.triggers.fire(name, payload=given.payload, key=key, by=given.by))


@routes.post(
    "/triggers/{name:path}/backfills/{backfill}/stop",
    operation_id="stop_backfill",
    summary="End a backfill early",
    response_model=None,
    responses=answers(BackfillView),
)
async def stop_backfill(engine: Engine, name: TriggerName, backfill: BackfillId, body: By | None = None) -> Answer:
    """The runs that it has started go on."""
    return Answer(await engine.triggers.stop_backfill(name, backfill, by=body.by if body else None))


@routes.post(
    "/triggers/{name:path}/backfills",
    operation_id="start_backfill",
    summary="Fire the moments of a range that have no run",
    response_model=None,
    responses=answers(BackfillView),
)
async def start_backfill(engine: Engine, name: TriggerName, body: NewBackfill) -> Answer:
    """A job that workers carry out in small batches; the trigger shows how far it is."""
    return Answer(await engine.triggers.backfill(name, **body.model_dump()))


@routes.get(
    "/triggers/{name:path}",
    operation_id="get_trigger",
    summary="Show a trigger",
    response_model=None,
    responses=answers(TriggerDetails),
)
async def get_trigger(
    engine: Engine,
    name: TriggerName,
    firings: Annotated[int, Query(ge=1, le=200, description="How many firings at most.")] = 20,
) -> Answer:
    """With its next moments, its latest firings and its backfills."""
    return Answer(await engine.triggers.show(name, firings=firings))


@routes.delete(
    "/triggers/{name:path}",
    operation_id="remove_trigger",
    summary="Remove a trigger that was added by hand",
    response_model=None,
    responses=answers(TriggerView),
)
async def remove_trigger(engine: Engine, name: TriggerName) -> Answer:
    """Its firings stay on record. 409 for one that a version of a workflow declares."""
    return Answer(await engine.triggers.remove(name))


@routes.post(
    "/events",
    operation_id="emit_event",
    summary="Hand in an event from outside",
    response_model=None,
    responses=answers(Emitted),
)
async def emit_event(engine: Engine, body: NewEvent, idempotency_key: IdempotencyKey = None) -> Answer:
    """Every trigger that it concerns fires, once for each id. The id, or else the idempotency key, makes it unique."""
    event_id = idempotency_key if body.id is None else body.id
    said = await engine.triggers.emit(
        body.event, body.payload, id=event_id, correlation_id=body.correlation_id, by=body.by
    )
    return Answer(said)
