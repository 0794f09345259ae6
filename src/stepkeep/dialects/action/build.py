"""Builds the canonical definition from a checked document, with the seed's defaults made explicit.

It cannot fail. Parts of the format that the engine does not need (families, schema references, tiers) are kept in the
definition's `about`, from which this dialect shows them again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from stepkeep.definition.expressions.conditions import own_output
from stepkeep.definition.expressions.template_text import WHOLE_INPUT
from stepkeep.definition.findings import Finding, Path
from stepkeep.definition.native.checks import check_handlers
from stepkeep.definition.native.graph import Ancestry, check_graph
from stepkeep.definition.native.references import check_expressions
from stepkeep.definition.native.written import StepBlock
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.dialects.action.checks import duties_of, excluded_by, quorum_of, roles_of
from stepkeep.dialects.action.parts import Parts
from stepkeep.dialects.action.written import (
    Action,
    ActionRetryPolicy,
    Capability,
    SodConstraint,
    Tier,
    WorkflowV1,
    is_manual,
    is_side_effecting,
    needs_approval,
    tier_of,
)
from stepkeep.kernel import definition as kernel
from stepkeep.kernel.machine.states import Category, ErrorClass, OnFailure, StepState

MILLISECOND = 1_000
HOUR = 3_600 * kernel.SECOND
EXPIRY_HOURS = 4
"""An approval expires so long after the last step of its escalation chain (ApprovalV1)."""

ANY_ENDING = (StepState.SUCCEEDED, StepState.SKIPPED, StepState.FAILED, StepState.CANCELLED)
"""In a sequence the next action is eligible after any terminal state (section 1.1); fail-fast comes first."""

# Rate limits, 5xx and transport failures are one category; error classes tell them apart.
CATEGORIES: dict[str, tuple[Category, ...]] = {
    "timeout": (Category.TIMEOUT,),
    "rate_limit": (Category.TRANSIENT,),
    "5xx": (Category.TRANSIENT, Category.EXTERNAL),
    "transport": (Category.TRANSIENT, Category.EXTERNAL),
    "unknown": (Category.UNKNOWN, Category.AGENT),
}


CLASSES = {one.value: one for one in ErrorClass}


def build(written: WorkflowV1, parts: Parts, sequence: bool, handlers: Registry | None = None) -> kernel.Definition:
    """The canonical definition. Of a handler's own settings, only those on where it runs count here."""
    after = {node.name: [name for name, _ in node.after] for node in parts.nodes}
    allow = ANY_ENDING if sequence else (StepState.SUCCEEDED,)
    tiers = {
        action.action_id: tier_of(written.execution_tier, action, parts.capability_of(action))
        for action in written.actions
    }
    steps = []
    for action in written.actions:
        edges = tuple(kernel.Dependency(step=name, allow=allow) for name in after[action.action_id])
        spec = None if handlers is None else handlers.get(action.handler)
        hold = _hold(action, written.sod_constraints)
        steps.append(_step(action, tiers[action.action_id], parts.capability_of(action), edges, spec, hold))
    return kernel.Definition(
        name=written.workflow_id,
        version=written.version,
        steps=tuple(steps),
        dialect="action",
        description=written.description,
        timeout=None,
        on_failure=OnFailure.ABORT,
        hook_failure=kernel.HookFailure.CONTINUE,
        compensate_always=True,
        about=_about(written, tiers),
        duties=duties_of(written.sod_constraints) or UNSET,
    )


def _step(
    action: Action,
    tier: Tier,
    capability: Capability | None,
    edges: tuple[kernel.Dependency, ...],
    spec: HandlerSpec | None,
    hold: kernel.Approval,
) -> kernel.StepDefinition:
    manual = is_manual(tier, action)
    return kernel.StepDefinition(
        name=action.action_id,
        order=action.order,
        executor=kernel.Handler(name=action.handler),
        hold=hold if needs_approval(tier, capability) else None,
        inputs=action.inputs if "inputs" in action.model_fields_set else WHOLE_INPUT,
        depends_on=edges,
        timeout=action.timeout_ms * MILLISECOND,
        retry=_retry(action.retry_policy),
        on_failure=OnFailure.ABORT,
        effect=kernel.Effect.WRITE if is_side_effecting(capability) else kernel.Effect.READ,
        undo=_undo(action, capability),
        compensate_when=kernel.CompensateWhen.SUCCEEDED,
        completion=kernel.Completion.MANUAL if manual else kernel.Completion.AUTO,
        completion_deadline=_micros(action.completion_deadline_ms) if manual else None,
        transactional=spec.transactional if spec else False,
        capabilities=tuple(sorted(set(spec.capabilities))) if spec else (),
        queue=spec.queue if spec else "",
        input_schema=_schema(action.input_schema_ref, None if capability is None else capability.input_schema),
        output_schema=_schema(action.output_schema_ref, None if capability is None else capability.output_schema),
    )


def _schema(ref: str | None, inline: dict[str, Any] | None) -> dict[str, Any] | UnsetType:
    """The schema that a capability has inline, or a reference to the registry, which publishing resolves."""
    if ref is not None:
        return {"ref": ref}
    return UNSET if inline is None else inline


def _hold(action: Action, constraints: Sequence[SodConstraint]) -> kernel.Approval:
    """The gate of an action. Its escalation chain becomes levels: the last one expires four hours after it opened."""
    chain = action.approval_escalation
    plain = kernel.Approval(
        prompt=f"Approve {action.handler} ({action.action_id})?",
        deadline=_micros(action.approval_deadline_ms),
        roles=roles_of(constraints),
        approvers=() if action.approval_assignee is None else (action.approval_assignee,),
        quorum=quorum_of(constraints),
        excluded=excluded_by(constraints),
    )
    if not chain:
        return plain
    opens = [round(one.after_hours * HOUR) for one in chain]
    ends = [*opens[1:], opens[-1] + EXPIRY_HOURS * HOUR]
    levels = zip(chain, opens, ends, strict=True)
    return replace(
        plain,
        deadline=opens[0],
        on_deadline=kernel.OnDeadline.ESCALATE,
        escalate=tuple(kernel.Level(approvers=(one.user,), deadline=end - begin) for one, begin, end in levels),
    )


def _retry(policy: ActionRetryPolicy) -> kernel.Retry:
    # Unknown errors are retryable until the attempts are used up (section 3.1), whatever else is listed.
    categories = {category for name in (*policy.retryable_errors, "unknown") for category in CATEGORIES[name]}
    named = tuple(CLASSES[name] for name in CLASSES if name in policy.retryable_errors)
    return kernel.Retry(
        max_attempts=policy.max_attempts,
        backoff=kernel.Backoff.EXPONENTIAL,
        initial=policy.initial_backoff_ms * MILLISECOND,
        factor=float(policy.backoff_multiplier),
        max=policy.max_backoff_ms * MILLISECOND,
        jitter=0.0,
        on=tuple(sorted(categories)),
        caps_asked=True,
        # With all three, or none, the categories say it all.
        classes=named if 0 < len(named) < len(CLASSES) else UNSET,
    )


def _undo(action: Action, capability: Capability | None) -> kernel.Undo | None:
    if capability is None or capability.compensation_operation is None:
        return None
    hook = action.compensation
    written = hook is not None and "compensation_input" in hook.model_fields_set
    return kernel.Undo(
        executor=kernel.Handler(name=capability.compensation_operation),
        inputs=hook.compensation_input if hook is not None and written else own_output(action.action_id),
        input_schema=capability.compensation_input_schema,
        timeout=(hook.timeout_ms if hook is not None else 300_000) * MILLISECOND,
        retry=kernel.UNDO_RETRY,
    )


def _about(written: WorkflowV1, tiers: dict[str, Tier]) -> dict[str, Any]:
    return {
        "schemaVersion": written.schema_version,
        "workspaceId": written.workspace_id,
        "name": written.name,
        "executionTier": written.execution_tier,
        **({} if written.active else {"active": False}),
        "actions": {action.action_id: _about_action(action, tiers[action.action_id]) for action in written.actions},
    }


def _about_action(action: Action, tier: Tier) -> dict[str, Any]:
    said = {
        "portFamily": action.port_family,
        "capability": action.capability,
        "executionTier": tier,
        "inputSchemaRef": action.input_schema_ref,
        "outputSchemaRef": action.output_schema_ref,
    }
    return {key: value for key, value in said.items() if value is not None}


def _micros(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else milliseconds * MILLISECOND


# -- borrowed ------------------------------------------------------------------------------------------------------
_NOUN = re.compile(r"\b([Ss])tep(s?)\b")


def check_edges(parts: Parts, *, by_edges: bool) -> list[Finding]:
    """The graph rules of seed 000 section 5.2, which hold for every dialect."""
    return [_reworded(finding, _graph_path(finding.path, by_edges)) for finding in check_graph(parts.nodes)]


def check_contents(parts: Parts, tangled: bool, handlers: Registry | None) -> Iterator[Finding]:
    """Expressions read only outputs that surely exist; handlers exist and accept their inputs."""
    steps = {path: _as_step(action, parts) for path, action in parts.actions.items() if action.handler}
    names = {node.name for node in parts.nodes}
    ancestry = None if tangled else Ancestry({node.name: [name for name, _ in node.after] for node in parts.nodes})
    found: list[Finding] = list(check_expressions({}, steps, ancestry, names))
    if handlers is not None:
        for path, step in steps.items():
            found += check_handlers(step, path, handlers, all_known=True)
    for finding in found:
        yield finding._replace(
            path=_written_path(finding.path, parts), hint=finding.hint.replace("depends_on", "dependsOn")
        )


def _as_step(action: Action, parts: Parts) -> StepBlock:
    step: dict[str, Any] = {"name": action.action_id, "uses": action.handler}
    if "inputs" in action.model_fields_set:
        step["with"] = action.inputs
    capability = parts.capability_of(action)
    if capability is not None and capability.compensation_operation is not None:
        step["undo"] = undo = {"uses": capability.compensation_operation}
        hook = action.compensation
        if hook is not None and "compensation_input" in hook.model_fields_set:
            undo["with"] = hook.compensation_input
    return StepBlock.model_validate(step)


def _written_path(path: Path, parts: Parts) -> Path:
    """Where the part of a step is written in an action."""
    action = parts.actions[path[:2]]
    match path[2:]:
        case ("uses", *rest):
            return (*path[:2], "operation" if action.operation else "capability", *rest)
        case ("with", *rest):
            return (*path[:2], "inputs", *rest)
        case ("undo", "uses", *_):
            return ("capabilities", action.handler, "compensationOperation")
        case ("undo", "with", *rest):
            return (*path[:2], "compensation", "compensationInput", *rest)
    return path


def _graph_path(path: Path, by_edges: bool) -> Path:
    match path:
        case ("steps", *_):
            return ("actions",)
        case (*_, "depends_on"):
            return ("edges",) if by_edges else (*path[:-1], "dependsOn")
        case (*_, "name"):
            return (*path[:-1], "actionId")
    return path


def _reworded(finding: Finding, path: Path) -> Finding:
    return finding._replace(path=path, message=_in_our_words(finding.message), hint=_in_our_words(finding.hint))


def _in_our_words(text: str) -> str:
    """The first noun is the checker's own; the following ones may be user names."""
    return _NOUN.sub(lambda found: ("A" if found[1] == "S" else "a") + "ction" + found[2], text, count=1)
