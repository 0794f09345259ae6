"""Requests of people: approve, reject, decide about a held step, complete manually, send a message, cancel.

Each is one event. Names become step numbers, secrets become hashes, and values that cannot be stored are refused.
It decides nothing itself. The engine and the command line call it.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, TypedDict, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from uuid_utils import uuid7

from stepkeep.definition.expressions.json_schema import misfits_of_json
from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.errors import Conflict, InvalidInput
from stepkeep.kernel.machine.events import (
    CancelRequested,
    CompletionSignalled,
    Event,
    GateDecided,
    HoldChoice,
    HoldDecided,
    ManualOutcome,
    MessageArrived,
    TokenReissued,
)
from stepkeep.kernel.machine.states import Phase, RunState
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan, PlannedStep
from stepkeep.operations import validate
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.aside import aside_large
from stepkeep.operations.instants import dated
from stepkeep.operations.pipeline.plans import plan_of
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs.run_answers import Ballot, Counted, Needs
from stepkeep.operations.runs.step_names import number_of

MAX_PAYLOAD_BYTES = 262_144
MAX_EVIDENCE = 100

A = TypeVar("A", bound=Answer)
Repeated = Annotated[bool, says("Whether it had been so before, and nothing was changed.")]


class RunChange(Answer, kw_only=True):
    """How a run stands after a request."""

    state: RunState
    repeated: Repeated


class Decided(Answer, rename={"for_": "for"}, kw_only=True):
    """What was decided about a step, by whom and when. `counted` and `needs` say how a gate stands that is open."""

    step: str
    decision: str
    by: str
    at: str
    comment: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    to: list[str] | UnsetType = UNSET
    for_: Annotated[str, says("Who delegated the decision.")] | UnsetType = UNSET
    by_right_of: list[str] | UnsetType = UNSET
    delegation: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    service: bool | UnsetType = UNSET
    level: int | UnsetType = UNSET
    evidence: Annotated[str, says("The digest of what was given as evidence.")] | UnsetType = UNSET
    votes: list[Ballot] | UnsetType = UNSET
    counted: Counted | UnsetType = UNSET
    needs: Needs | UnsetType = UNSET
    repeated: Repeated


class Completed(Answer, rename={"for_": "for"}, kw_only=True):
    """How a manual step was completed, by whom and when."""

    step: str
    outcome: ManualOutcome
    by: str
    at: str
    for_: Annotated[str, says("Who delegated it.")] | UnsetType = UNSET
    notes: str | UnsetType = UNSET
    evidence: list[str] | UnsetType = UNSET
    claim: Annotated[dict[str, Any], says("What the signal says about itself.")] | UnsetType = UNSET
    repeated: Repeated


class NewToken(Answer, kw_only=True):
    """The new completion token. It is shown once."""

    step: str
    by: str
    at: str
    reason: str
    repeated: Repeated
    token: str


class MessageSent(Answer, kw_only=True):
    """What became of a message: it went to a run, or is kept until one has its business key."""

    id: str
    key: Annotated[str, says("The business key that it was sent to.")] | UnsetType = UNSET
    consumed_by: Annotated[str | None, says("The step that took it.")] | UnsetType = UNSET
    kept_until: str | UnsetType | None = UNSET
    started: Annotated[bool, says("Whether it started the run.")] | UnsetType = UNSET
    repeated: Repeated
    dropped: Annotated[bool, says("Whether it was dropped or has expired meanwhile.")] | UnsetType = UNSET
    run_id: str | None


async def decide_gate(
    transactor: Transactor,
    run_id: str,
    *,
    approve: bool,
    caller: Caller,
    step: str | None = None,
    comment: str = "",
    on_behalf_of: str | None = None,
    evidence: tuple[str, ...] = (),
) -> Accepted:
    """Approve or reject the gate `step`, or the only open one; `on_behalf_of` names a delegator."""
    event = GateDecided(
        **requested(caller, run_id),
        approve=approve,
        comment=validate.words("the comment", comment),
        on_behalf_of=delegator(on_behalf_of),
        evidence=_references(evidence),
        no=None if step is None else await step_number(transactor, caller.tenant, run_id, step),
    )
    return await submit(transactor, event)


async def decide_hold(
    transactor: Transactor,
    run_id: str,
    step: str,
    choice: str,
    *,
    caller: Caller,
    reason: str = "",
    output: bytes | None = None,
) -> Accepted:
    """Retry, skip, fail or complete the step `step`, which holds because no attempt is left or is stuck otherwise."""
    try:
        chosen = HoldChoice(validate.key("the decision", choice))
    except ValueError:
        said = f"{choice!a} is no decision about a stuck step. Use retry, skip, fail or complete."
        raise InvalidInput(said) from None
    plan = await plan_of(transactor, caller.tenant, run_id)
    no = await _number(transactor, plan, caller.tenant, run_id, step)
    if chosen is HoldChoice.COMPLETE:
        await _check_output(caller.tenant, plan.at(no), output)
    elif output is not None:
        raise InvalidInput(f"only a completed step has an output. Leave it out to {chosen} the step.")
    if output is not None:
        transactor.payloads.check_size("the output", output)
    event = HoldDecided(
        **requested(caller, run_id),
        no=no,
        choice=chosen,
        reason=validate.words("the reason", reason),
        output=output,
    )
    return await submit(transactor, event)


async def complete(
    transactor: Transactor,
    run_id: str,
    step: str,
    *,
    token: str,
    outcome: str,
    caller: Caller,
    output: bytes | None = None,
    notes: str = "",
    evidence: tuple[str, ...] = (),
    claim: bytes | None = None,
    on_behalf_of: str | None = None,
) -> Accepted:
    """Complete a step manually; the token that was issued for it must be presented."""
    try:
        said = ManualOutcome(validate.key("the outcome", outcome).capitalize())
    except ValueError:
        raise InvalidInput(f"{outcome!a} is no outcome. Use Succeeded, Failed or Cancelled.") from None
    if output is not None:
        transactor.payloads.check_size("the output", output)
    _bound("claim of the completion", claim)
    plan = await plan_of(transactor, caller.tenant, run_id)
    no = await _number(transactor, plan, caller.tenant, run_id, step)
    if said is ManualOutcome.SUCCEEDED and plan.at(no).by_hand:
        await _check_output(caller.tenant, plan.at(no), output)
    event = CompletionSignalled(
        **requested(caller, run_id),
        token=token_hash(validate.words("the completion token", token)),
        outcome=said,
        output=output,
        notes=validate.words("the notes", notes),
        evidence=_references(evidence),
        claim=claim,
        on_behalf_of=delegator(on_behalf_of),
        no=no,
    )
    return await submit(transactor, event)


async def reissue_token(
    transactor: Transactor,
    run_id: str,
    step: str,
    *,
    token: str,
    reason: str,
    caller: Caller,
) -> Accepted:
    """Replace the completion token of an open manual step by this one; the old one is useless from now on."""
    if not validate.words("the reason", reason).strip():
        raise InvalidInput("a new token needs a reason, which stays on record. Say why the old one is lost.")
    event = TokenReissued(
        **requested(caller, run_id),
        token=token_hash(token),
        reason=reason,
        no=await step_number(transactor, caller.tenant, run_id, step),
    )
    return await submit(transactor, event)


async def send(
    transactor: Transactor,
    run_id: str,
    name: str,
    payload: bytes,
    *,
    caller: Caller,
    message_id: str | None = None,
) -> Accepted:
    """Put a message into a run's inbox; the same message id again changes nothing."""
    check_message_size(payload)
    return await submit(
        transactor,
        MessageArrived(
            **requested(caller, run_id),
            id=str(uuid7()) if message_id is None else validate.key("the message id", message_id),
            name=validate.key("the name of a message", name),
            payload=payload,
        ),
    )


async def cancel(
    transactor: Transactor,
    run_id: str,
    *,
    caller: Caller,
    compensate: bool = False,
    reason: str = "",
) -> Accepted:
    """End a run, with or without rollback."""
    return await submit(
        transactor,
        CancelRequested(
            **requested(caller, run_id),
            compensate=compensate,
            reason=validate.words("the reason", reason),
        ),
    )


class RequestFields(TypedDict):
    """What every request of a person has: the run, and its caller."""

    tenant: str
    run_id: str
    actor: str
    vouched_by: str | None
    key: str | None


def requested(caller: Caller, run_id: str) -> RequestFields:
    """The fields that every request has, checked."""
    return {
        "tenant": caller.tenant,
        "run_id": validate.run_id(run_id),
        "actor": validate.key("the actor", caller.actor),
        "vouched_by": caller.vouched_by,
        "key": caller.key,
    }


def delegator(name: str | None) -> str | None:
    """The person who delegated a decision, checked."""
    return None if name is None else validate.key("the delegator", name)


def _references(evidence: tuple[str, ...]) -> tuple[str, ...]:
    if len(evidence) > MAX_EVIDENCE:
        raise InvalidInput(f"{len(evidence)} pieces of evidence are too many; at most {MAX_EVIDENCE} are kept")
    return tuple(validate.words("a piece of evidence", piece) for piece in evidence)


async def submit(transactor: Transactor, event: Event) -> Accepted:
    """Decide on a request. The winner of a conflict is named with its time in words."""
    try:
        return await transactor.submit(event)
    except Conflict as refused:
        if refused.winner is not None:
            refused.winner = dated(refused.winner)
        raise


def token_hash(token: str) -> str:
    """Only hashes of tokens are stored: read access to the database is not enough to complete a step."""
    return hashlib.sha256(token.encode()).hexdigest()


async def _check_output(tenant: str, planned: PlannedStep, output: bytes | None) -> None:
    """Refuse a completion whose output does not match the schema of its step; a corrected one may follow."""
    schema = planned.definition.output_schema
    if schema is msgspec.UNSET or planned.phase is not Phase.MAIN:
        return
    if output is None:
        raise InvalidInput(f"step {planned.name} has an output schema: complete it with an output that matches it.")
    await aside_large(tenant, len(output), misfits_of_json, f"the output of {planned.name}", schema, output)


async def step_number(transactor: Transactor, tenant: str, run_id: str, step: str) -> int:
    """The number of a step of a run by its name, or by that of a call."""
    return await _number(transactor, await plan_of(transactor, tenant, run_id), tenant, run_id, step)


async def _number(transactor: Transactor, plan: Plan, tenant: str, run_id: str, step: str) -> int:
    name = validate.key("the name of a step", step)
    no = plan.number(name)
    if no is not None:
        return no
    return number_of(plan, await transactor.store.read_steps(tenant, run_id), f"run {run_id}", name)


def check_message_size(payload: bytes) -> None:
    """Refuse a message whose payload is larger than an inbox keeps."""
    _bound("payload of the message", payload)


def _bound(what: str, payload: bytes | None) -> None:
    if payload is not None and len(payload) > MAX_PAYLOAD_BYTES:
        said = f"the {what} is {len(payload)} bytes; at most {MAX_PAYLOAD_BYTES} fit"
        raise InvalidInput(f"{said}. Keep it elsewhere and pass its name.")


def answer_of(kind: type[A], accepted: Accepted, **more: Any) -> A:
    """What was accepted, as the answer of this kind."""
    record = {**dated(accepted.record), "repeated": accepted.repeated, **more}
    if isinstance(claim := record.get("claim"), msgspec.Raw):
        record["claim"] = msgspec.json.decode(claim)
    return msgspec.convert(record, kind)
