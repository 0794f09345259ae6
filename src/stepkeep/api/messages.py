"""Messages to a run that is known by its business key or correlation id, and the mailbox that keeps early ones."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field

from stepkeep.api.bodies import Anything, By, IdempotencyKey, Limit
from stepkeep.api.routing import Answer, Engine, answers, router
from stepkeep.api.steps import Decision
from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.operations.publish import find_plan

routes = router("Messages")


class KeyedMessage(By):
    """A message for the run that has a business key or a correlation id."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "paid", "business_key": "order-7", "payload": {"amount": 3}}]}
    )

    name: str = Field(max_length=255)
    payload: Any = None
    id: str | None = Field(default=None, max_length=255, description="The same id again changes nothing.")
    business_key: str | None = Field(default=None, max_length=255)
    correlation_id: str | None = Field(default=None, max_length=255)
    ttl: str | None = Field(default=None, max_length=100, description="How long it is kept without a run.")
    start: str | None = Field(
        default=None, max_length=255, description="A published workflow to start if no run has it."
    )
    input: Any = Field(default=None, description="The input of the run that is started.")


class Mailbox(BaseModel):
    """Messages that wait for a run."""

    messages: list[Anything]
    more: bool = Field(description="Whether there are others.")


@routes.post(
    "/messages",
    operation_id="send_message_by_key",
    summary="Send a message by business key or correlation id",
    response_model=None,
    responses=answers(Decision),
)
async def send_by_key(engine: Engine, body: KeyedMessage, idempotency_key: IdempotencyKey = None) -> Answer:
    """By business key it is kept until a run has the key. A correlation id must match exactly one live run. `start`
    needs the scope start, and the idempotency key is then that of the run."""
    plan = None
    if body.start is not None:
        try:
            plan = await find_plan(engine.transactor, body.start, None, tenant=engine.tenant)
        except NotFound as missing:
            raise InvalidInput(str(missing)) from None
    message_id = idempotency_key if body.id is None and plan is None else body.id
    return Answer(
        await engine.send(
            None,
            body.name,
            body.payload,
            key=body.business_key,
            correlation_id=body.correlation_id,
            start=plan,
            input=body.input,
            idempotency_key=None if plan is None else idempotency_key,
            ttl=body.ttl,
            message_id=message_id,
            by=body.by,
        )
    )


class DroppedMessages(BaseModel):
    """The ids of the messages that were dropped."""

    key: str
    dropped: list[str]


@routes.delete(
    "/mailbox/{business_key:path}",
    operation_id="drop_mailbox",
    summary="Drop messages that wait for a run",
    response_model=None,
    responses=answers(DroppedMessages),
)
async def drop_mailbox(
    engine: Engine,
    business_key: Annotated[str, Path(max_length=255, description="Whose messages.", examples=["order-7"])],
    message_id: Annotated[str | None, Query(max_length=255, description="Only this one.")] = None,
) -> Answer:
    """All that are kept for a business key, or one. A duplicate of a dropped message is not kept again."""
    return Answer(await engine.mailbox.drop(business_key, message_id))


@routes.get(
    "/mailbox",
    operation_id="list_mailbox",
    summary="List messages that wait for a run",
    response_model=None,
    responses=answers(Mailbox),
)
async def list_mailbox(
    engine: Engine,
    business_key: Annotated[str | None, Query(max_length=255, description="Of one business key.")] = None,
    limit: Limit = 100,
) -> Answer:
    return Answer(await engine.mailbox.list(business_key, limit=limit))
