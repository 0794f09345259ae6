"""What people ask of a run: approve, reject, complete by hand, send a message, cancel.

Each is one event; names become step numbers here, secrets become hashes, and everything unstorable is refused.
"""

from __future__ import annotations

import hashlib
from typing import Any

from uuid_utils import uuid7

from stepkeep.errors import InvalidInput, NotFound
from stepkeep.kernel.decision import Accepted
from stepkeep.kernel.events import (
    CancelRequested,
    CompletionSignalled,
    GateDecided,
    ManualOutcome,
    MessageArrived,
)
from stepkeep.kernel.plan import Plan
from stepkeep.operations.transact import Transactor

MAX_PAYLOAD_BYTES = 262_144


async def decide_gate(
    transactor: Transactor,
    run_id: str,
    *,
    approve: bool,
    tenant: str,
    actor: str,
    step: str | None = None,
    comment: str = "",
) -> Accepted:
    """Approve or reject the gate `step`, or the one that is open."""
    no = None if step is None else await _number(transactor, tenant, run_id, step)
    event = GateDecided(tenant=tenant, run_id=run_id, actor=actor, approve=approve, no=no, comment=comment)
    return await transactor.submit(event)


async def complete(
    transactor: Transactor,
    run_id: str,
    step: str,
    *,
    token: str,
    outcome: str,
    tenant: str,
    actor: str,
    output: bytes | None = None,
    notes: str = "",
    evidence: tuple[str, ...] = (),
    claim: bytes | None = None,
) -> Accepted:
    """Complete a step by hand; the token that was issued for it must be presented."""
    try:
        said = ManualOutcome(outcome.capitalize())
    except ValueError:
        raise InvalidInput(f"{outcome!r} is no outcome. Use Succeeded, Failed or Cancelled.") from None
    _bound("output", output)
    return await transactor.submit(
        CompletionSignalled(
            tenant=tenant,
            run_id=run_id,
            actor=actor,
            no=await _number(transactor, tenant, run_id, step),
            token=token_hash(token),
            outcome=said,
            output=output,
            notes=notes,
            evidence=evidence,
            claim=claim,
        )
    )


async def send(
    transactor: Transactor,
    run_id: str,
    name: str,
    payload: bytes,
    *,
    tenant: str,
    actor: str,
    message_id: str | None = None,
) -> Accepted:
    """Put a message into a run's inbox; the same message id again changes nothing."""
    if not (0 < len(name) <= 255 and name.isprintable()):
        raise InvalidInput("a message needs a name of 1 to 255 printable characters")
    _bound("payload", payload)
    return await transactor.submit(
        MessageArrived(
            tenant=tenant,
            run_id=run_id,
            actor=actor,
            id=message_id or str(uuid7()),
            name=name,
            payload=payload,
        )
    )


async def cancel(
    transactor: Transactor, run_id: str, *, tenant: str, actor: str, compensate: bool = False, reason: str = ""
) -> Accepted:
    """End a run, with or without undoing what it did."""
    return await transactor.submit(
        CancelRequested(tenant=tenant, run_id=run_id, actor=actor, compensate=compensate, reason=reason)
    )


def token_hash(token: str) -> str:
    """Tokens are kept as hashes only: who reads the database cannot complete a step."""
    return hashlib.sha256(token.encode()).hexdigest()


async def plan_of(transactor: Transactor, tenant: str, run_id: str) -> Plan:
    """The plan of a run."""
    found = await transactor.store.read_run(tenant, run_id)
    if found is None:
        raise NotFound(f"there is no run {run_id}")
    plan = transactor.plans.get(found.run.definition_id)
    if plan is None:
        stored = await transactor.store.read_definitions([found.run.definition_id])
        plan = transactor.plans.add(stored[found.run.definition_id])
    return plan


async def _number(transactor: Transactor, tenant: str, run_id: str, step: str) -> int:
    plan = await plan_of(transactor, tenant, run_id)
    no = plan.number(step)
    if no is None:
        names = ", ".join(planned.name for planned in plan.steps[:20])
        raise NotFound(f"run {run_id} has no step {step!r}. Its steps: {names}")
    return no


def _bound(what: str, payload: bytes | None) -> None:
    if payload is not None and len(payload) > MAX_PAYLOAD_BYTES:
        raise InvalidInput(f"the {what} is {len(payload)} bytes; at most {MAX_PAYLOAD_BYTES} fit. Pass a reference.")


def record_of(accepted: Accepted) -> dict[str, Any]:
    return {**accepted.record, "repeated": accepted.repeated}
