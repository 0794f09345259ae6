"""The plan of a run (PlanV1 of the companions): the effects that its actions should have, and those that were verified.

It is derived from the definition, which never changes for a run. An approval of an action stands for this plan, by its
`digestSha256`. It reads no store. `words` and `evidence` call it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from stepkeep.dialects.action.shapes import Shape, filled, key_of, operation_of, written_steps

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
