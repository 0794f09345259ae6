"""What is handed in for a run: messages, completions of manual steps, and deliveries of webhooks.

The signature of a delivery authenticates it instead of a key, and the operation decides by it. Its caller is the hook
itself: `DeliveryAccess` lets it receive, send and start, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from stepkeep.api.access import OPEN
from stepkeep.api.handwritten import RequestBody, Routes
from stepkeep.api.problems import SIGNATURE, TOO_LARGE, UNMAPPED, ApiError, ProblemKind
from stepkeep.api.requests import BoundedRequest
from stepkeep.api.routing import service_of, wrong_request
from stepkeep.definition.native.hooks import MAX_BODY
from stepkeep.dialects.action.signal import MAX_REFERENCES, read_signal
from stepkeep.engine.groups import ActingEngine
from stepkeep.engine.run_actions import Delegator, Evidence, Outcome, StepName
from stepkeep.kernel.errors import InvalidInput, NotAllowed, NotFound
from stepkeep.operations import validate
from stepkeep.operations.access import Access, Scope
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.definitions.publish import find_plan
from stepkeep.operations.operation import Actor, IdempotencyKey, RunId, Words
from stepkeep.operations.people.people import Completed, MessageSent
from stepkeep.operations.typed import LargePart, Wrong, reader

routes = Routes("Messages")

Text = Annotated[str, Meta(max_length=255)]


class NewMessage(RequestBody, frozen=True, kw_only=True):
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


class CompletionBody(RequestBody, frozen=True, kw_only=True, rename={"for_": "for"}):
    """The completion of a manual step."""

    token: Annotated[Words, says("The completion token that the step's handler was given.")]
    outcome: Outcome = "Succeeded"
    output: Any = None
    notes: Words = ""
    evidence: Evidence = ()
    for_: Delegator = None
    by: Actor = None


class ManualSignal(RequestBody, frozen=True, kw_only=True, rename="camel"):
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


read_completion, read_manual_signal = reader(CompletionBody), reader(ManualSignal)


@routes(
    "POST /runs/{run_id}/messages",
    "send",
    "send_message",
    "Send a message to a run",
    tag="Runs",
    example={"name": "paid", "payload": {"amount": 3}, "id": "m-1"},
)
async def send_message(
    engine: ActingEngine, run_id: RunId, body: NewMessage, idempotency_key: IdempotencyKey = None
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
async def send_by_key(engine: ActingEngine, body: KeyedMessage, idempotency_key: IdempotencyKey = None) -> MessageSent:
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
    bodies=(CompletionBody, ManualSignal),
    example={"token": "TOKEN", "outcome": "Succeeded"},
)
async def complete_step(engine: ActingEngine, run_id: RunId, step: StepName, body: Any) -> Completed:
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


HookName = Annotated[str, Meta(max_length=255, description="The name of a hook.", examples=["payments"])]
RAW = {
    "required": True,
    "description": "What the sender signed, byte for byte; at most 1 MiB.",
    "content": {"application/json": {"schema": {}, "example": {"order": "o-7"}}, "application/octet-stream": {}},
}
REFUSALS: dict[str, ProblemKind] = {
    **dict.fromkeys(("missing", "malformed", "too_old", "too_new", "wrong"), SIGNATURE),
    "too_large": TOO_LARGE,
    "no_json": UNMAPPED,
    "unmapped": UNMAPPED,
}
"""The problem of each refusal of a delivery (`definition.native.hooks.HookRefused.code`)."""


class Received(Answer, kw_only=True):
    """What became of a delivery. The sender learns nothing of the run."""

    result: Annotated[str, says("sent, started or ignored.")]


class DeliveryAccess(Access):
    """The hook as the caller of an engine. Its signature stands for a key, also where a tenant refuses vouching."""

    ALLOWED = ("hooks.receive", "send", "start")

    async def admit(self, operation: str) -> None:
        if operation not in self.ALLOWED:
            raise NotAllowed(f"a delivery to a hook may not ask for {operation}.", "scope", self.actor)

    def may(self, scope: Scope) -> bool:
        return scope in (Scope.START, Scope.COMPLETE)


@routes(
    "POST /hooks/{name}",
    OPEN,
    "receive_delivery",
    "Deliver a webhook",
    tag="Hooks",
    reads=RAW,
    problems=(401, 404, 409, 413, 422, 503),
)
async def receive_delivery(
    request: BoundedRequest,
    name: HookName,
    tenant: Annotated[str, Meta(max_length=255, description="Whose hook it is.")] = "default",
) -> Received:
    """No key: the signature authenticates it. The same delivery again changes nothing. 401 for a wrong signature, 422
    for a body that cannot be mapped, 503 where this process lacks the secret; senders try again after a 503."""
    body = await request.read_raw(limit=MAX_BODY)
    service = service_of(request)
    validate.key("the tenant", tenant)
    caller = DeliveryAccess(service.engine.store.for_tenant(tenant), tenant, f"hook:{name}")
    engine = ActingEngine(service.callers.engines.of(tenant, keep=False), caller)
    said = await engine.hooks.receive(name, request.headers.items(), body)
    if said.result == "refused":
        raise ApiError(REFUSALS[str(said.code)], str(said.message), rule=str(said.code))
    return Received(result=said.result)
