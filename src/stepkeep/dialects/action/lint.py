"""Advice on a correct document that may still cause trouble. Warnings stop nothing; each is a function of its own."""

from __future__ import annotations

from collections.abc import Iterator

from stepkeep.definition.findings import Finding, Path
from stepkeep.dialects.action.parts import Parts
from stepkeep.dialects.action.written import WorkflowV1, is_side_effecting
from stepkeep.kernel.definition import Definition, Effect


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
