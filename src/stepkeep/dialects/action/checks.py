"""Checks relations between the parts of a document: order, tiers, completion, compensation, duties; and warns.

Each check yields findings and continues. `stepkeep.definition.native.graph` checks the graph, `build` expressions and
handlers. The front end calls it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
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
    SodConstraint,
    Tier,
    WorkflowV1,
    is_manual,
    is_operation,
    is_side_effecting,
    tier_of,
)
from stepkeep.kernel import definition as kernel
from stepkeep.kernel.definition import Definition, Effect
from stepkeep.kernel.people.separation import REQUESTER


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


# -- lint ----------------------------------------------------------------------------------------------------------
def lint(written: WorkflowV1, definition: Definition, parts: Parts) -> list[Finding]:
    """All advice on one document."""
    return [
        *_waits_without_end(definition),
        *_effects_that_stay(definition),
        *_irreversible_without_approval(written, definition, parts),
        *_promises_that_nothing_keeps(written),
        *_repeated_effects(written, parts),
        *_nothing_known(written),
        *_not_active(written),
    ]


def _waits_without_end(definition: Definition) -> Iterator[Finding]:
    """The format has no limit on how long people may take."""
    for place, step in enumerate(definition.steps):
        if step.hold is not None and step.hold.deadline is None:
            said = f"Action `{step.name}` may wait for its approval forever."
            yield Finding(("actions", place, "actionId"), said, "Add `approvalDeadlineMs`.")
        if step.completion == "manual" and step.completion_deadline is None:
            said = f"Action `{step.name}` may wait for its manual completion forever."
            yield Finding(("actions", place, "actionId"), said, "Add `completionDeadlineMs`.")


def _effects_that_stay(definition: Definition) -> Iterator[Finding]:
    """Section 4: a side effect without metadata is recorded as not compensable."""
    for place, step in enumerate(definition.steps):
        if step.effect is Effect.WRITE and step.undo is None:
            said = f"Action `{step.name}` has a side effect that cannot be compensated: a rollback stays partial."
            hint = "Give its capability a compensationOperation and a compensationInputSchema."
            yield Finding(("actions", place, "actionId"), said, hint)


def _irreversible_without_approval(written: WorkflowV1, definition: Definition, parts: Parts) -> Iterator[Finding]:
    """A side effect that nothing takes back, and that no person looks at before or during it."""
    for place, (action, step) in enumerate(zip(written.actions, definition.steps, strict=True)):
        stays = is_side_effecting(parts.capability_of(action)) and step.undo is None
        if stays and step.hold is None and step.completion != "manual":
            said = f"Action `{step.name}` cannot be taken back and no gate approves it."
            hint = "Ask for `executionTierOverride: HumanApprove`, or `requiresApproval` of its capability."
            yield Finding(("actions", place, "actionId"), said, hint)


def _promises_that_nothing_keeps(written: WorkflowV1) -> Iterator[Finding]:
    """Parts of the safety metadata and a tier that the engine does not act on."""
    if written.execution_tier == "Assisted":
        yield _as_auto(("executionTier",))
    for place, action in enumerate(written.actions):
        if action.execution_tier_override == "Assisted":
            yield _as_auto(("actions", place, "executionTierOverride"))
    for name, capability in (written.capabilities or {}).items():
        path = ("capabilities", name, "safety")
        if capability.safety.default_tier == "Assisted":
            yield _as_auto((*path, "defaultTier"))
        for key, given in (
            ("supportsDryRun", capability.safety.supports_dry_run),
            ("supportsRollback", capability.safety.supports_rollback),
        ):
            if given:
                hint = "A rollback runs the compensationOperation of a capability." if key == "supportsRollback" else ""
                said = f"`{key}` of `{name}` is not used yet."
                yield Finding((*path, key), said, hint, key=True, ignored=True)


def _as_auto(path: Path) -> Finding:
    said = "`Assisted` runs like `Auto`: no person is asked."
    return Finding(path, said, "Write `HumanApprove` where a person must agree first.", ignored=True)


def _repeated_effects(written: WorkflowV1, parts: Parts) -> Iterator[Finding]:
    """Handlers run at least once: an effect that is not idempotent may happen twice."""
    for place, action in enumerate(written.actions):
        capability = parts.capability_of(action)
        if capability is not None and not capability.safety.idempotent and action.retry_policy.max_attempts > 1:
            times = action.retry_policy.max_attempts
            said = f"`{action.handler}` is not idempotent, and action `{action.action_id}` may be tried {times} times."
            hint = "Write `retryPolicy: {maxAttempts: 1}`, or let its handler use the idempotency key."
            yield Finding(("actions", place, "actionId"), said, hint)


def _nothing_known(written: WorkflowV1) -> Iterator[Finding]:
    """Section 4: without metadata nothing counts as a side effect, so nothing is ever compensated."""
    if written.capabilities is None:
        said = "There is no `capabilities` section, so no action counts as a side effect and none is compensated."
        yield Finding(("actions",), said, "Add one that says what each operation does.", key=True)


def _not_active(written: WorkflowV1) -> Iterator[Finding]:
    """A version that is kept and never runs."""
    if not written.active:
        said = "This version is not active: it is published, and no run of it may start."
        yield Finding(("active",), said, "Set `active` to true in the version that is to run.")


# -- duties --------------------------------------------------------------------------------------------------------
NOT_THE_REQUESTER = frozenset({"MakerChecker", "HazardousZoneNoSelfApproval", "RemoteEstopRequesterSeparation"})
"""Kinds that keep the person who asked for the run from approving an action of it."""

DUAL = "SafetyClassifiedZoneDualApproval"
FIELDS = {
    "DistinctApprovers": ("minimumApprovers", "minimum_approvers"),
    "IncompatibleDuties": ("dutyKeys", "duty_keys"),
    "SpecialistApproval": ("requiredRoles", "required_roles"),
}
"""What a kind needs besides its name: the key, and the field of the model."""


def check_constraints(constraints: Sequence[SodConstraint], actions: Collection[str]) -> Iterator[Finding]:
    """Every problem of the constraints of a document."""
    for place, constraint in enumerate(constraints):
        path: Path = ("sodConstraints", place)
        needed = FIELDS.get(constraint.kind)
        if needed is not None and not getattr(constraint, needed[1]):
            yield Finding(path, f"`{constraint.kind}` needs `{needed[0]}`.", "Add it.")
        for key, field in FIELDS.values():
            if getattr(constraint, field) and needed != (key, field):
                said = f"`{key}` means nothing for `{constraint.kind}`."
                yield Finding((*path, key), said, "Remove it.", key=True)
        for number, name in enumerate(constraint.duty_keys):
            if name not in actions:
                at = (*path, "dutyKeys", number)
                yield Finding(at, f"There is no action `{name}`.", did_you_mean(name, actions))
        if constraint.kind == "IncompatibleDuties" and len(set(constraint.duty_keys)) == 1:
            yield Finding((*path, "dutyKeys"), "`IncompatibleDuties` takes two actions or more.", "Name the others.")


def duties_of(constraints: Sequence[SodConstraint]) -> tuple[kernel.Duty, ...]:
    """The duties of a run."""
    kinds = [one for one in constraints if one.kind == "IncompatibleDuties"]
    return tuple(kernel.Incompatible(steps=tuple(one.duty_keys)) for one in kinds)


def quorum_of(constraints: Sequence[SodConstraint]) -> int:
    """How many people approve an action."""
    asked = [one.minimum_approvers or 1 for one in constraints if one.kind == "DistinctApprovers"]
    return max([1, *asked, *(2 for one in constraints if one.kind == DUAL)])


def excluded_by(constraints: Sequence[SodConstraint]) -> tuple[str, ...]:
    """The people who may not approve an action."""
    return (REQUESTER,) if any(one.kind in NOT_THE_REQUESTER for one in constraints) else ()


def roles_of(constraints: Sequence[SodConstraint]) -> tuple[str, ...]:
    """The roles of which an approver needs one."""
    return tuple(dict.fromkeys(role for one in constraints for role in one.required_roles))
