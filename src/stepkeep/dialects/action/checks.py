"""Checks relations between the parts of a document: order, tiers, completion, compensation.

Each check yields findings and continues. `stepkeep.definition.native.graph` checks the graph, `borrowed` checks
expressions and handlers. The front end calls it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from stepkeep.definition.expressions.json_schema import schema_findings
from stepkeep.definition.findings import Finding, Path, did_you_mean
from stepkeep.dialects.action.parts import Parts
from stepkeep.dialects.action.written import (
    OPERATION_RULE,
    TIERS,
    Action,
    Capability,
    Tier,
    is_manual,
    is_operation,
    tier_of,
)


def check_document(data: dict[str, Any], parts: Parts) -> Iterator[Finding]:
    """Run every check."""
    yield from _order(data)
    yield from _one_kind_of_edges(data)
    yield from _edge_targets(data, parts)
    for path, action in parts.actions.items():
        yield from _operation(action, path, data.get("schemaVersion"))
        yield from _tier(action, path, parts)
        yield from _compensation_of(action, path, parts)
        yield from _declared(action, path, parts)
        yield from _one_schema(action, path, parts)
    for name, capability in parts.capabilities.items():
        yield from _capability(name, capability, ("capabilities", name))


def _one_schema(action: Action, path: Path, parts: Parts) -> Iterator[Finding]:
    """A value is checked by one schema: that of the capability, or the one that the action refers to."""
    capability = parts.capability_of(action)
    for key, ref, inline in (
        ("inputSchemaRef", action.input_schema_ref, capability and capability.input_schema),
        ("outputSchemaRef", action.output_schema_ref, capability and capability.output_schema),
    ):
        if ref is not None and inline is not None:
            said = f"Action `{action.action_id}` has `{key}`, and its capability has the schema inline."
            yield Finding((*path, key), said, "Keep one of them.", key=True)


def _order(data: dict[str, Any]) -> Iterator[Finding]:
    """Section 1.1: contiguous values from 1, and the list sorted by them."""
    actions = data.get("actions")
    for place, action in enumerate(actions if isinstance(actions, list) else ()):
        order = action.get("order") if isinstance(action, dict) else None
        if type(order) is int and order != place + 1:
            said = f"`order` is {order} here; actions are numbered from 1 without a gap and listed in that order."
            yield Finding(("actions", place, "order"), said, f"Write {place + 1}, or move the action.")
            return  # one gap shifts every later action


def _one_kind_of_edges(data: dict[str, Any]) -> Iterator[Finding]:
    actions = data.get("actions")
    for place, action in enumerate(actions if isinstance(actions, list) else ()):
        if "edges" in data and isinstance(action, dict) and "dependsOn" in action:
            said = "The graph is written twice: in `edges` and in `dependsOn`."
            yield Finding(("actions", place, "dependsOn"), said, "Keep one of them.", key=True)
            return


def _edge_targets(data: dict[str, Any], parts: Parts) -> Iterator[Finding]:
    names = {node.name for node in parts.nodes}
    edges = data.get("edges")
    for number, edge in enumerate(edges if isinstance(edges, list) else ()):
        target = edge.get("to") if isinstance(edge, dict) else None
        if isinstance(target, str) and target not in names:
            hint = did_you_mean(target, names) if number < 20 else ""
            yield Finding(("edges", number, "to"), f"There is no action `{target}` to lead to.", hint)


def _operation(action: Action, path: Path, version: Any) -> Iterator[Finding]:
    if action.operation is None and action.capability is None:
        said = f"Action `{action.action_id}` does not say what to do."
        yield Finding(path, said, "Add `operation`, for example invoice:write.")
    elif version == 2 and action.capability is None:
        said = "`capability` is missing; schemaVersion 2 asks every action for it."
        yield Finding(path, said, f"Add `capability: {action.operation}`.")
    elif action.operation and action.capability and action.operation != action.capability:
        said = f"`capability` is `{action.capability}` and `operation` is `{action.operation}`; they must be the same."
        yield Finding((*path, "capability"), said, "Keep one of them, or make them equal.")


def _tier(action: Action, path: Path, parts: Parts) -> Iterator[Finding]:
    override = action.execution_tier_override
    if override is not None and TIERS.index(override) < TIERS.index(parts.tier):
        said = (
            f"`executionTierOverride` is {override}, and the workflow's tier is {parts.tier}; it may only be stricter."
        )
        yield Finding((*path, "executionTierOverride"), said, "Remove it, or choose a stricter tier.")
    tier = tier_of(parts.tier, action, parts.capability_of(action))
    if tier == "ManualOnly" and action.completion_mode == "Auto":
        said = f"Action `{action.action_id}` is ManualOnly, so it cannot complete by itself."
        yield Finding((*path, "completionMode"), said, "Remove `completionMode`, or write ManualOnly.")
    if action.completion_deadline_ms is not None and not is_manual(tier, action):
        said = "`completionDeadlineMs` means nothing for an action that completes by itself."
        hint = "Add `completionMode: ManualOnly`, or remove it."
        yield Finding((*path, "completionDeadlineMs"), said, hint, key=True)
    if action.approval_deadline_ms is not None and tier != "HumanApprove":
        said = f"`approvalDeadlineMs` means nothing here: actions of tier {tier} are not held for approval."
        hint = "Add `executionTierOverride: HumanApprove`, or remove it."
        yield Finding((*path, "approvalDeadlineMs"), said, hint, key=True)
    yield from _escalation(action, path, tier)


def _escalation(action: Action, path: Path, tier: Tier) -> Iterator[Finding]:
    """ApprovalV1: the assignee is asked first, then the users of the chain, later and later."""
    given = {"approvalAssignee": action.approval_assignee, "approvalEscalation": action.approval_escalation}
    for key in [name for name, value in given.items() if value and tier != "HumanApprove"]:
        said = f"`{key}` means nothing here: actions of tier {tier} are not held for approval."
        yield Finding((*path, key), said, "Add `executionTierOverride: HumanApprove`, or remove it.", key=True)
    chain = action.approval_escalation
    if not chain or tier != "HumanApprove":
        return
    if action.approval_deadline_ms is not None:
        said = "An escalation chain has its own deadlines: the approval expires four hours after its last step."
        yield Finding((*path, "approvalDeadlineMs"), said, "Remove `approvalDeadlineMs`.", key=True)
    if action.approval_assignee is None:
        said = "An escalation chain begins with an assignee: without one, every person may decide from the start."
        yield Finding((*path, "approvalEscalation"), said, "Add `approvalAssignee`.", key=True)
    for place, (before, after) in enumerate(pairwise(chain), 1):
        if after.after_hours <= before.after_hours:
            said = f"`afterHours` is {after.after_hours:g}, and the step before it has {before.after_hours:g}."
            where = (*path, "approvalEscalation", place, "afterHours")
            yield Finding(where, said, "Each step of the chain comes later than the one before it.")


def _compensation_of(action: Action, path: Path, parts: Parts) -> Iterator[Finding]:
    capability = parts.capability_of(action)
    known = parts.declared is None or action.handler not in parts.declared or capability is not None
    if action.compensation is not None and known and not (capability and capability.compensation_operation):
        said = f"`compensation` has nothing to call: the capability `{action.handler}` has no compensationOperation."
        yield Finding((*path, "compensation"), said, "Add one to `capabilities`, or remove this.", key=True)


def _declared(action: Action, path: Path, parts: Parts) -> Iterator[Finding]:
    if action.capability is not None and parts.declared is not None and action.capability not in parts.declared:
        hint = did_you_mean(action.capability, parts.declared) or "Add it there: its safety, and what takes it back."
        said = f"There is no capability `{action.capability}` in `capabilities`."
        yield Finding((*path, "capability"), said, hint)


def _capability(name: str, capability: Capability, path: Path) -> Iterator[Finding]:
    operation, schema, safety = (
        capability.compensation_operation,
        capability.compensation_input_schema,
        capability.safety,
    )
    if not is_operation(name):
        yield Finding(path, f"`{name}` cannot be a capability.", f"Write {OPERATION_RULE}.", key=True)
    if (operation is None) != (schema is None):
        given, missing = ("compensationOperation", "compensationInputSchema")[:: 1 if schema is None else -1]
        said = f"`{given}` needs `{missing}` beside it: a capability has both or neither."
        yield Finding((*path, given), said, f"Add `{missing}`.", key=True)
    if operation is not None and not safety.supports_compensation:
        said = "`supportsCompensation` must be true for a capability with a compensationOperation."
        yield Finding((*path, "safety"), said, "Add `supportsCompensation: true`.", key=True)
    if operation is None and safety.supports_compensation:
        said = "`supportsCompensation` is true, and there is no compensationOperation to call."
        yield Finding((*path, "safety", "supportsCompensation"), said, "Add one, or write false.")
    if operation is not None and capability.side_effecting is False:
        said = "`sideEffecting` is false, and there is a compensationOperation: nothing to take back."
        yield Finding((*path, "sideEffecting"), said, "Keep one of them.")
    schemas = {
        "inputSchema": capability.input_schema,
        "outputSchema": capability.output_schema,
        "compensationInputSchema": schema,
    }
    for key, written in schemas.items():
        if written is not None:
            yield from schema_findings(written, (*path, key))
