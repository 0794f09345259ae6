"""The domain events of a run (companions of seed 003), for other systems: RunStarted, ActionCompleted, ApprovalGranted.

Derived from the log, so that the same run always gives the same events. The relay sends them as CloudEvents with the
extensions `tenantid`, `correlationid`, `runid` and `actionid`. This module sends nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stepkeep.dialects.action.evidence import evidence_of, is_ending, may_be_evidence
from stepkeep.dialects.action.shapes import Shape, error_shape, filled
from stepkeep.dialects.action.signal import plan_of
from stepkeep.dialects.dialect import DomainEvent, LogLine

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
    "changes_requested": "ApprovalChangesRequested",
}
"""By the canonical trigger."""

EXPIRED = ("deadline_passed", "deadline_tolerated", "deadline_skipped")
"""Triggers of a deadline that ends a gate without a decision."""


POLICY, EVIDENCE, PLAN, VIOLATION = 1, 2, 3, 4
"""Ranks: these come after the other events of their entry, so that the numbers of those stay what they were."""

VIOLATIONS = {
    "maker_checker": "MakerCheckerViolation",
    "distinct": "DistinctApproversViolation",
    "four_eyes": "DistinctApproversViolation",
    "incompatible": "IncompatibleDutiesViolation",
    "requires_role": "SpecialistApprovalViolation",
}
"""The seed's kinds of a violation, by the duty that refused."""

DECISIONS = {"allow": "Allow", "hold": "RequireApproval", "deny": "Deny"}
"""The seed's words for what a policy says."""


class DomainEvents:
    """The domain events of one run. No event needs an earlier entry."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        self._about = about

    def entry(self, canonical: Sequence[LogLine], lines: Sequence[LogLine]) -> list[DomainEvent]:
        """The events of the next entry, in the order of its hops."""
        whole = {**self._about, "journal": canonical}
        found = sorted([*_shown(whole, lines), *_gates(whole)], key=lambda one: one[0])
        rest = (_policies(whole), _evidence(canonical, lines), _plan(canonical), _violations(whole))
        return [*(event for _, event in found), *(event for some in rest for event in some)]


Placed = tuple[tuple[int, int, int], DomainEvent]


def _policies(canonical: Mapping[str, Any]) -> Iterator[DomainEvent]:
    """What policies said about actions: the journal has each verdict with the rule that it rests on."""
    for line in canonical["journal"]:
        facts = line["metadata"]
        for name, verdict in sorted(facts.get("detail", {}).get("policy", {}).items()):
            said = {
                "actionId": name,
                "decision": DECISIONS[verdict["effect"]],
                "ruleId": verdict.get("rule"),
                "policyRevision": verdict.get("revision"),
                "rationale": verdict.get("reason"),
            }
            about = _about(canonical, line, said)
            yield DomainEvent(facts["seq"], "PolicyEvaluated", about, {"actionid": name}, POLICY)


def _violations(canonical: Mapping[str, Any]) -> Iterator[DomainEvent]:
    """Acts that the duties of their person rule out: refused, and in the journal once per person and duty."""
    for line in canonical["journal"]:
        facts = line["metadata"]
        if facts.get("event") == "duty_violated":
            detail = facts["detail"]
            said = {
                "actionId": detail["step"],
                "userId": facts["actor"],
                "violations": [{"kind": VIOLATIONS[detail["rule"]], "reason": detail["reason"]}],
            }
            extension = {"actionid": detail["step"]}
            yield DomainEvent(facts["seq"], "SodViolationDetected", _about(canonical, line, said), extension, VIOLATION)


def _evidence(canonical: Sequence[LogLine], lines: Sequence[LogLine]) -> Iterator[DomainEvent]:
    """An event for each entry of evidence that the journal entry brought."""
    if not canonical or not (any(map(may_be_evidence, canonical)) or any(map(is_ending, lines))):
        return
    seq = canonical[0]["metadata"]["seq"]

    def late(whole: Mapping[str, Any], lines: Sequence[LogLine]) -> list[Mapping[str, Any]]:
        workspace = whole["definition"].get("about", {}).get("workspaceId")
        return [
            filled(
                {
                    "workspaceId": workspace,
                    "runId": whole["run"]["id"],
                    "evidenceId": entry["evidenceId"],
                    "category": entry["category"],
                    "summary": entry["summary"],
                    "actor": entry["actor"],
                    "occurredAtIso": entry["occurredAtIso"],
                    "hashSha256": entry["hashSha256"],
                    "correlationId": whole["run"]["correlation_id"],
                }
            )
            for entry in evidence_of(whole, lines)
            if entry["payload"]["journal"]["seq"] == seq
        ]

    yield DomainEvent(seq, "EvidenceRecorded", rank=EVIDENCE, late=late)


def _plan(canonical: Sequence[LogLine]) -> Iterator[DomainEvent]:
    """The plan of a run is there as soon as the run is: its definition does not change."""
    if not any(line["metadata"]["event"] == "run_created" for line in canonical):
        return

    def late(whole: Mapping[str, Any], _: Sequence[LogLine]) -> list[Mapping[str, Any]]:
        run, plan = whole["run"], plan_of(whole)
        told = {name: plan[name] for name in ("planId", "createdByUserId", "plannedEffects", "digestSha256")}
        workspace = {"workspaceId": plan.get("workspaceId")}
        return [filled({**workspace, "runId": run["id"], **told, "correlationId": run["correlation_id"]})]

    yield DomainEvent(canonical[0]["metadata"]["seq"], "PlanGenerated", rank=PLAN, late=late)


def _shown(canonical: Mapping[str, Any], lines: Sequence[LogLine]) -> Iterator[Placed]:
    run = canonical["run"]
    for line in lines:
        facts = line["metadata"]
        place, state = (facts["seq"], facts["hop"]), line["to_state"] or ""
        error = error_shape(facts.get("category"), facts.get("error"))
        if line["event_type"] == "run_state_transition":
            name = RUN_ENDINGS.get(state) or OF_RUN.get((line["from_state"] or "", state))
            if name is not None and line["trigger"] != "stopped":
                said = {"status": line["to_state"], "initiatedByUserId": run["created_by"], "error": error}
                yield (*place, 1), DomainEvent(facts["seq"], name, _about(canonical, line, said))
        elif line["event_type"] == "action_state_transition":
            name = OF_ACTION.get(state)
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
            why = facts.get("detail", {}).get("comment") if name == "ApprovalChangesRequested" else None
            about = _about(canonical, line, {"actionId": facts["step"], "decidedByUserId": by, "rationale": why})
            yield (facts["seq"], facts["hop"], 0), DomainEvent(facts["seq"], name, about, {"actionid": facts["step"]})


def _about(canonical: Mapping[str, Any], line: Mapping[str, Any], said: Shape) -> Shape:
    run = canonical["run"]
    workspace = canonical["definition"].get("about", {}).get("workspaceId")
    common = {"workspaceId": workspace, "runId": run["id"], "workflowId": run["workflow"]}
    return filled({**common, "correlationId": run["correlation_id"], "occurredAtIso": line["timestamp"], **said})
