"""A run in this dialect's shapes: RunV1 with its actions, attempts, evidence and compensation summary.

Made from the canonical view, the definition's `about` and the run's log in this dialect. It reads nothing else and
decides nothing; `show --as action` and `runs --as action` print it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stepkeep.dialects.action.events import DomainEvents
from stepkeep.dialects.action.evidence import compensation_summary, evidence_of
from stepkeep.dialects.action.shapes import (
    OUTCOMES,
    Shape,
    error_shape,
    filled,
    key_of,
    operation_of,
    person_of,
    written_steps,
)
from stepkeep.dialects.action.signal import plan_of
from stepkeep.dialects.dialect import CaseTeller, LogLine


class ActionWords:
    """Runs as RunV1."""

    def run(self, canonical: Mapping[str, Any], lines: Sequence[LogLine]) -> Shape:
        """The whole run."""
        run, about = canonical["run"], canonical["definition"].get("about", {})
        shown = {line["metadata"].get("step"): line["to_state"] or "" for line in lines}
        whole = self.summary(run, shown.get(None, "Pending")) | filled(
            {
                "workspaceId": about.get("workspaceId"),
                "executionTier": about.get("executionTier", "Auto"),
                "controlState": _control_state(run, canonical),
                "operatorOwnerId": _operator(run, canonical),
                "error": error_shape(run["category"], run["error"]),
                "compensation": compensation_summary(canonical, lines),
            }
        )
        written, told = written_steps(canonical), about.get("actions", {})
        main = {step["name"]: step for step in canonical["steps"] if step["phase"] == "main"}
        return whole | {
            "parameters": run["input"],
            "actions": [
                _action(run["id"], step, written[name], told.get(name, {}), shown.get(name, "Pending"))
                for name, step in main.items()
            ],
            "plan": plan_of(canonical),
            "evidence": evidence_of(canonical, lines),
        }

    def summary(self, canonical_run: Mapping[str, Any], shown_state: str) -> Shape:
        """One row of a list of runs: RunV1 without what only the definition has."""
        run = canonical_run
        return filled(
            {
                "schemaVersion": 1,
                "runId": run["id"],
                "workflowId": run["workflow"],
                "workflowVersion": run["version"],
                "correlationId": run["correlation_id"],
                "initiatedByUserId": run["created_by"],
                "status": shown_state,
                "createdAtIso": run["created_at"],
                "startedAtIso": None if shown_state == "Pending" else run["started_at"],
                "endedAtIso": run["ended_at"],
            }
        )

    def teller(self, about: Mapping[str, Any]) -> CaseTeller:
        """The domain events, for sinks."""
        return DomainEvents(about)


def _control_state(run: Mapping[str, Any], canonical: Mapping[str, Any]) -> str | None:
    """RunV1: `waiting` for people who decide as planned, `blocked` by what holds an action, `degraded` after a failure
    that the run goes on from, `operator-owned` while it is paused, and `frozen` if that is a freeze."""
    if run["ended_at"] is not None or run["state"] == "idle":
        return None
    if run["state"] == "paused" and _is_frozen(canonical):
        return "frozen"
    held = {step["name"] for step in canonical["steps"] if step["state"] == "awaiting_approval"}
    for line in canonical["journal"]:
        facts = line["metadata"]
        if facts.get("step") in held and line["trigger"] == "held_exhausted":
            return "blocked"
        verdicts = facts.get("detail", {}).get("policy", {})
        if any(name in held and verdict.get("effect") == "hold" for name, verdict in verdicts.items()):
            return "blocked"
    if run["state"] == "paused":
        return "operator-owned"
    if run["state"] == "blocked":
        return "waiting"
    failing = any(step["phase"] == "main" and step["state"] in ("failed", "retrying") for step in canonical["steps"])
    return "degraded" if failing else None


def _is_frozen(canonical: Mapping[str, Any]) -> bool:
    """Whether the last pause was a freeze."""
    paused = [line["metadata"].get("detail", {}) for line in canonical["journal"] if line["trigger"] == "paused"]
    return bool(paused and paused[-1].get("freeze"))


def _operator(run: Mapping[str, Any], canonical: Mapping[str, Any]) -> str | None:
    """RunV1: who has paused the run."""
    paused = [line["metadata"]["actor"] for line in canonical["journal"] if line["trigger"] == "paused"]
    return paused[-1] if run["state"] == "paused" and paused else None


WORDS = ActionWords()


def _action(
    run_id: str, step: Mapping[str, Any], written: Mapping[str, Any], about: Mapping[str, Any], status: str
) -> Shape:
    return filled(
        {
            "actionId": step["name"],
            "order": written["order"],
            "operation": operation_of(written),
            **about,
            "completionMode": "ManualOnly" if written["completion"] == "manual" else "Auto",
            "dependsOn": step["depends_on"],
            "status": status,
            "idempotencyKey": key_of(run_id, step),
            "attempts": [_attempt(attempt) for attempt in step["history"]],
            "startedAtIso": step["started_at"],
            "endedAtIso": step["ended_at"],
            "dueAtIso": step["due_at"],
            "output": step["output"],
            "error": error_shape(step["category"], step["error"]),
            **_record(step["record"]),
        }
    )


def _attempt(attempt: Mapping[str, Any]) -> Shape:
    return filled(
        {
            "attempt": attempt["number"],
            "startedAtIso": attempt["started_at"],
            "endedAtIso": attempt["ended_at"],
            "outcome": OUTCOMES.get(attempt["state"], attempt["state"]),
            "error": error_shape(attempt["category"], attempt["error"], lost=attempt["state"] == "lost"),
        }
    )


def _record(record: Mapping[str, Any] | None) -> Shape:
    """The decision on the action, or its manual completion; an expired one names no person."""
    if record is None:
        return {}
    by, at = person_of(record), record["at"]
    if "decision" in record:
        decided = {"decision": record["decision"], "decidedByUserId": by, "decidedAtIso": at}
        return {"approval": filled(decided | {"rationale": record.get("comment") or None})}
    completed = {"outcome": record.get("outcome"), "actorUserId": by, "completedAtIso": at}
    said = {"notes": record.get("notes"), "evidenceRefs": record.get("evidence"), "claim": record.get("claim")}
    return {"manualCompletion": filled(completed | said)}
