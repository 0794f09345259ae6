"""The compensation summary of a failed run (section 4): what was undone, what was not, and what could not be.

Made from the canonical view; it decides nothing. `words` and `evidence` call it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stepkeep.dialects.action.shapes import (
    Shape,
    action_of,
    completion_order,
    error_shape,
    filled,
    key_of,
    operation_of,
    written_steps,
)

STATES = {"succeeded": "Succeeded", "failed": "Failed", "cancelled": "Cancelled", "skipped": "Cancelled"}


def compensation_summary(canonical: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> Shape | None:
    """The result for the run's side effects; None while there is nothing to report."""
    run, written = canonical["run"], written_steps(canonical)
    hooks = {action_of(step): step for step in canonical["steps"] if step["phase"] == "undo"}
    backwards = {name: place for place, name in enumerate(completion_order(lines)[::-1])}
    stays = not_compensable(canonical, lines)
    if not hooks and not stays:
        return None
    ordered = sorted(hooks, key=lambda name: backwards.get(name, len(backwards)))
    entries = [_entry(run["id"], written[name], hooks[name]) for name in ordered]
    return {
        "status": _status(run, entries, stays),
        "actions": entries,
        "notCompensable": stays,
    }


def not_compensable(canonical: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Actions of a failed run whose side effect happened and has no hook, last completed first."""
    if canonical["run"]["state"] not in ("failed", "rolled_back", "compensating"):
        return []
    hookless = {
        step["name"]
        for step in canonical["definition"]["steps"]
        if step.get("effect", "read") != "read" and step.get("undo") is None
    }
    return [name for name in completion_order(lines)[::-1] if name in hookless]


def _status(run: Mapping[str, Any], entries: Sequence[Shape], stays: Sequence[str]) -> str:
    """An effect that is left without an entry, such as one in doubt, makes the run's own rollback partial."""
    outcomes = {entry["outcome"] for entry in entries}
    if not outcomes <= set(STATES.values()):
        return "running"
    is_whole = outcomes <= {"Succeeded"} and not stays and run["rollback"] != "partial"
    return "complete" if is_whole else "partial"


def _entry(run_id: str, written: Mapping[str, Any], step: Mapping[str, Any]) -> Shape:
    waits = "Pending" if step["state"] in ("pending", "ready") else "Running"
    return filled(
        {
            "actionId": action_of(step),
            "compensationOperation": operation_of(written, undo=True),
            "idempotencyKey": key_of(run_id, step),
            "outcome": STATES.get(step["state"], waits),
            "attempts": step["attempts"],
            "startedAtIso": step["started_at"],
            "endedAtIso": step["ended_at"],
            "error": error_shape(step["category"], step["error"]),
        }
    )
