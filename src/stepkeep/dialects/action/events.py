"""The domain events of a run (companions of seed 003), for other systems: RunStarted, ActionCompleted, ApprovalGranted.

Derived from the log, so that the same run always gives the same events. The relay sends them as CloudEvents with the
extensions `tenantid`, `correlationid`, `runid` and `actionid`. This module sends nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stepkeep.dialects.action.shapes import Shape, error_shape, filled
from stepkeep.dialects.dialect import DomainEvent

OF_RUN = {
    ("Pending", "Running"): "RunStarted",
    ("WaitingForApproval", "Running"): "RunResumed",
    ("Paused", "Running"): "RunResumed",
    ("Running", "Paused"): "RunPaused",
}
RUN_ENDINGS = {"Succeeded": "RunSucceeded", "Failed": "RunFailed", "Cancelled": "RunCancelled"}
OF_ACTION = {"Running": "ActionDispatched", "Succeeded": "ActionCompleted", "Failed": "ActionFailed"}
OF_GATE = {
    "gate_opened": "ApprovalRequested",
    "held": "ApprovalRequested",
    "held_exhausted": "ApprovalRequested",
    "approved": "ApprovalGranted",
    "hold_approved": "ApprovalGranted",
    "deadline_approved": "ApprovalGranted",
    "hold_deadline_approved": "ApprovalGranted",
    "rejected": "ApprovalDenied",
    "rejected_tolerated": "ApprovalDenied",
    "escalated": "ApprovalEscalated",
}
"""By the canonical trigger."""

EXPIRED = ("deadline_passed", "deadline_tolerated", "deadline_skipped")
"""Triggers of a deadline that ends a gate without a decision."""


def domain_events(canonical: Mapping[str, Any], lines: list[dict[str, Any]], since: int) -> list[DomainEvent]:
    """The events from journal entry `since` on, in the order of the journal."""
    found = [*_shown(canonical, lines), *_gates(canonical)]
    ordered = sorted(found, key=lambda one: one[0])
    return [event for _, event in ordered if event.seq >= since]


Placed = tuple[tuple[int, int, int], DomainEvent]


def _shown(canonical: Mapping[str, Any], lines: list[dict[str, Any]]) -> Iterator[Placed]:
    run = canonical["run"]
    for line in lines:
        facts = line["metadata"]
        place = (facts["seq"], facts["hop"])
        error = error_shape(facts.get("category"), facts.get("error"))
        if line["event_type"] == "run_state_transition":
            name = RUN_ENDINGS.get(line["to_state"]) or OF_RUN.get((line["from_state"], line["to_state"]))
            if name is not None:
                said = {"status": line["to_state"], "initiatedByUserId": run["created_by"], "error": error}
                yield (*place, 1), DomainEvent(facts["seq"], name, _about(canonical, line, said))
        elif line["event_type"] == "action_state_transition":
            name = OF_ACTION.get(line["to_state"])
            if name is not None:
                said = {"actionId": facts["step"], "attempt": facts.get("attempt"), "error": error}
                about = _about(canonical, line, said)
                yield (*place, 0), DomainEvent(facts["seq"], name, about, {"actionid": facts["step"]})


def _gates(canonical: Mapping[str, Any]) -> Iterator[Placed]:
    for line in canonical["journal"]:
        facts = line["metadata"]
        if "step" not in facts:
            continue
        name = OF_GATE.get(line["trigger"])
        if name is None and line["from_state"] == "awaiting_approval" and line["trigger"] in EXPIRED:
            name = "ApprovalExpired"
        if name is not None:
            by = None if name in ("ApprovalRequested", "ApprovalExpired", "ApprovalEscalated") else facts["actor"]
            about = _about(canonical, line, {"actionId": facts["step"], "decidedByUserId": by})
            yield (facts["seq"], facts["hop"], 0), DomainEvent(facts["seq"], name, about, {"actionid": facts["step"]})


def _about(canonical: Mapping[str, Any], line: Mapping[str, Any], said: Shape) -> Shape:
    run = canonical["run"]
    workspace = canonical["definition"].get("about", {}).get("workspaceId")
    common = {"workspaceId": workspace, "runId": run["id"], "workflowId": run["workflow"]}
    return filled({**common, "correlationId": run["correlation_id"], "occurredAtIso": line["timestamp"], **said})
