"""Parses the manual completion signal of section 3.3 into the arguments of `operations.people.people.complete`.

It checks the shape of the payload and reports all problems at once. The kernel checks the token, the state of the
action and repetition. The user named in the payload is kept as a claim: the actor of a signal comes from authentication
alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, Field, StringConstraints, ValidationError
from pydantic_core import PydanticCustomError

from stepkeep.definition.native.validators import Word
from stepkeep.definition.text.complaints import complaints
from stepkeep.dialects.action.shapes import Shape, filled, key_of, operation_of, written_steps
from stepkeep.dialects.action.written import ActionBlock, Name, Text, WholeNumber
from stepkeep.kernel.errors import InvalidInput

MAX_REFERENCES = 100


def _moment(value: str) -> str:
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise PydanticCustomError("moment", "must be a moment with its offset, like 2026-01-31T09:30:00Z")
    return value


Opaque = Annotated[str, StringConstraints(min_length=1, max_length=255)]
Reference = Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class SignalBlock(ActionBlock):
    """The signal that a person finished a manual action."""

    schema_version: Annotated[Literal[1], WholeNumber]
    run_id: Opaque
    action_id: Name
    completion_token: Opaque
    outcome: Literal["Succeeded", "Failed", "Cancelled"]
    actor_user_id: Word
    completed_at_iso: Annotated[str, StringConstraints(max_length=64), AfterValidator(_moment)]
    notes: Text = ""
    evidence_refs: list[Reference] = Field(default=[], max_length=MAX_REFERENCES)


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal of the right shape, in the engine's terms. It is idempotent on `(run_id, step, token)`."""

    run_id: str
    step: str
    token: str
    outcome: str
    notes: str
    evidence: tuple[str, ...]
    claim: bytes

    def arguments(self) -> dict[str, Any]:
        """The arguments of `operations.people.people.complete` besides the transactor, the tenant and the actor."""
        return msgspec.structs.asdict(self)


def read_signal(payload: Any) -> Signal:
    """The signal in a payload, or InvalidInput that names everything wrong with it.

    >>> read_signal({"schemaVersion": 1})
    Traceback (most recent call last):
    stepkeep.kernel.errors.InvalidInput: This is no manual completion signal. `runId` is missing. \
`actionId` is missing. `completionToken` is missing. `outcome` is missing. `actorUserId` is missing. \
`completedAtIso` is missing.
    """
    if not isinstance(payload, dict):
        raise InvalidInput("A manual completion signal is an object with schemaVersion, runId, actionId and the rest.")
    try:
        block = SignalBlock.model_validate(payload)
    except ValidationError as error:
        said = " ".join(finding.message for finding in complaints(error, payload, SignalBlock))
        raise InvalidInput(f"This is no manual completion signal. {said}") from None
    claim = {"actorUserId": block.actor_user_id, "completedAtIso": block.completed_at_iso}
    return Signal(
        run_id=block.run_id,
        step=block.action_id,
        token=block.completion_token,
        outcome=block.outcome,
        notes=block.notes,
        evidence=tuple(block.evidence_refs),
        claim=msgspec.json.encode(claim),
    )


# -- plan ----------------------------------------------------------------------------------------------------------
VERBS = {"create": "Create", "add": "Create", "update": "Update", "delete": "Delete", "remove": "Delete"}
"""What the verb of an operation does; any other verb is an Upsert."""


def plan_id(run_id: str) -> str:
    return f"{run_id}/plan"


def plan_of(canonical: Mapping[str, Any]) -> Shape:
    """The planned effects in the order of the actions, and the verified ones in the order of the actions."""
    run, written = canonical["run"], written_steps(canonical)
    about = canonical["definition"].get("about", {})
    main = [
        step for step in canonical["steps"] if step["phase"] == "main" and written[step["name"]]["effect"] != "read"
    ]
    planned = [_effect(run["id"], step["name"], written[step["name"]], about) for step in main]
    verified = [
        filled({"effectId": step["name"], "verifiedAtIso": step["ended_at"], "idempotencyKey": key_of(run["id"], step)})
        for step in main
        if step["state"] == "succeeded"
    ]
    return filled(
        {
            "schemaVersion": 1,
            "planId": plan_id(run["id"]),
            "workspaceId": about.get("workspaceId"),
            "createdAtIso": run["created_at"],
            "createdByUserId": run["created_by"],
            "plannedEffects": planned,
            "verifiedEffects": verified,
            "digestSha256": digest_of(planned),
        }
    )


def digest_of(planned: list[Shape]) -> str:
    """SHA-256 over the canonical JSON of the planned effects."""
    text = json.dumps(planned, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _effect(run_id: str, name: str, written: Mapping[str, Any], about: Mapping[str, Any]) -> Shape:
    operation = operation_of(written) or name
    entity, _, verb = operation.partition(":")
    family = about.get("actions", {}).get(name, {}).get("portFamily")
    return {
        "effectId": name,
        "operation": VERBS.get(verb.lower(), "Upsert"),
        "target": filled({"portFamily": family, "entity": entity}),
        "summary": f"{operation} by action {name}",
        "idempotencyKey": f"{run_id}:{name}",
    }
