"""What is handed in for a run: messages, and completions of manual steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from stepkeep.api.handwritten import Body, Routes
from stepkeep.api.routing import wrong_request
from stepkeep.dialects.action.signal import MAX_REFERENCES, read_signal
from stepkeep.engine import AsyncEngine
from stepkeep.engine.run_actions import Delegator, Evidence, Outcome, StepName
from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.operations.answers import says
from stepkeep.operations.operation import Actor, IdempotencyKey, RunId, Words
from stepkeep.operations.people import Completed, MessageSent
from stepkeep.operations.publish import find_plan
from stepkeep.operations.typed import LargePart, Wrong, reader

routes = Routes("Messages")

Text = Annotated[str, Meta(max_length=255)]


class NewMessage(Body, frozen=True, kw_only=True):
    """A message for a run."""

    name: Text
    payload: Any = None
    id: Annotated[Text | None, says("The same id again changes nothing.")] = None
    by: Actor = None


class KeyedMessage(NewMessage, frozen=True, kw_only=True):
    """A message for the run that has a business key or a correlation id."""

    business_key: Text | None = None
    correlation_id: Text | None = None
    ttl: Annotated[Annotated[str, Meta(max_length=100)] | None, says("How long it is kept without a run.")] = None
    start: Annotated[Text | None, says("A published workflow to start if no run has it.")] = None
    input: Annotated[Any, says("The input of the run that is started.")] = None


class Completion(Body, frozen=True, kw_only=True, rename={"for_": "for"}):
    """The completion of a manual step."""

    token: Annotated[Words, says("The completion token that the step's handler was given.")]
    outcome: Outcome = "Succeeded"
    output: Any = None
    notes: Words = ""
    evidence: Evidence = ()
    for_: Delegator = None
    by: Actor = None


class ManualSignal(Body, frozen=True, kw_only=True, rename="camel"):
    """The signal that a person finished a manual action (seed 003)."""

    schema_version: Literal[1]
    run_id: Text
    action_id: Text
    completion_token: Text
    outcome: Outcome
    actor_user_id: Text
    completed_at_iso: Annotated[str, Meta(max_length=64)]
    notes: Words = ""
    evidence_refs: Annotated[Sequence[Annotated[str, Meta(max_length=1000)]], Meta(max_length=MAX_REFERENCES)] = ()


read_completion, read_manual_signal = reader(Completion), reader(ManualSignal)


@routes(
    "POST /runs/{run_id}/messages",
    "send",
    "send_message",
    "Send a message to a run",
    tag="Runs",
    example={"name": "paid", "payload": {"amount": 3}, "id": "m-1"},
)
async def send_message(
    engine: AsyncEngine, run_id: RunId, body: NewMessage, idempotency_key: IdempotencyKey = None
) -> MessageSent:
    """It is kept until a step waits for it. The id of the message, or else the idempotency key, makes it unique."""
    message_id = idempotency_key if body.id is None else body.id
    return await engine.send(run_id, body.name, body.payload, message_id=message_id, by=body.by)


@routes(
    "POST /messages",
    "send",
    "send_message_by_key",
    "Send a message by business key or correlation id",
    example={"name": "paid", "business_key": "order-7", "payload": {"amount": 3}},
)
async def send_by_key(engine: AsyncEngine, body: KeyedMessage, idempotency_key: IdempotencyKey = None) -> MessageSent:
    """By business key it is kept until a run has the key. A correlation id must match exactly one live run. `start`
    needs the scope start, and the idempotency key is then that of the run."""
    plan = None
    if body.start is not None:
        try:
            plan = await find_plan(engine.transactor, body.start, None, tenant=engine.tenant)
        except NotFound as missing:
            raise InvalidInput(str(missing)) from None
    return await engine.send(
        None,
        body.name,
        body.payload,
        key=body.business_key,
        correlation_id=body.correlation_id,
        start=plan,
        input=body.input,
        idempotency_key=None if plan is None else idempotency_key,
        ttl=body.ttl,
        message_id=idempotency_key if body.id is None and plan is None else body.id,
        by=body.by,
    )


@routes(
    "POST /runs/{run_id}/steps/{step:path}/complete",
    "complete",
    "complete_step",
    "Complete a manual step",
    tag="Steps",
    bodies=(Completion, ManualSignal),
    example={"token": "TOKEN", "outcome": "Succeeded"},
)
async def complete_step(engine: AsyncEngine, run_id: RunId, step: StepName, body: Any) -> Completed:
    """With the token that was issued for the step. The same token and outcome again is answered as before.

    The signal of the dialect `action` names the run, the action and the token itself. What it says about its actor and
    its time is kept as a claim; the actor is the owner of the key.
    """
    is_signal, wrong = isinstance(body, dict) and "completionToken" in body, list[Wrong]()
    given = (read_manual_signal if is_signal else read_completion)(body, ("body",), wrong)
    if wrong:
        raise wrong_request(wrong)
    if not is_signal:
        return await engine.complete(run_id, step, **msgspec.structs.asdict(given))
    said = read_signal({name: one.decoded() if isinstance(one, LargePart) else one for name, one in body.items()})
    if (said.run_id, said.step) != (run_id, step):
        raise InvalidInput("the signal names another run or action than the address.")
    told: dict[str, Any] = {
        "token": said.token,
        "outcome": said.outcome,
        "notes": said.notes,
        "evidence": said.evidence,
    }
    return await engine.complete(run_id, step, claim=msgspec.json.decode(said.claim), **told)
