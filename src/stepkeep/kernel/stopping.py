"""Stops a run: no new step starts, and every step that is not in flight is cancelled in the same transaction.

Attempts in flight settle, or are fenced off when the grace period ends. Only then does the run end or roll back.
"""

from __future__ import annotations

from msgspec.structs import replace

from stepkeep.kernel.draft import Draft, json_text
from stepkeep.kernel.rows import Note, Step
from stepkeep.kernel.states import (
    STEP_TERMINAL,
    AttemptState,
    Category,
    OnFailure,
    StepState,
    StopCause,
)
from stepkeep.kernel.tables import RunTrigger, StepTrigger


def stop(
    draft: Draft,
    trigger: RunTrigger,
    *,
    cause: StopCause,
    policy: OnFailure,
    category: Category | None = None,
    error: str | None = None,
    of: int | None = None,
) -> None:
    """Begin to stop: the run starts no step, and every step that no worker holds is cancelled."""
    rows = draft.every_step()
    draft.cause, draft.policy = cause, policy
    draft.blame(category, error)
    draft.move_run(trigger, of=of)
    for step in rows:
        if step.state not in STEP_TERMINAL and step.worker is None:
            cancel_step(draft, step, of=of)
    draft.due_at = draft.now + draft.plan.definition.grace if draft.leased else None


def fence_off(draft: Draft) -> None:
    """End the grace period: attempts still in flight are cancelled, and their reports will be refused."""
    for step in draft.every_step():
        if step.worker is not None:
            cancel_step(draft, step)
    draft.due_at = None


def cancel_everything(draft: Draft) -> None:
    for step in draft.every_step():
        if step.state not in STEP_TERMINAL:
            cancel_step(draft, step)


def cancel_step(draft: Draft, step: Step, of: int | None = None) -> Step:
    """Cancel one step. An attempt in flight is closed, and an open gate records its end."""
    draft.close_attempt(step, AttemptState.CANCELLED)
    if step.state is StepState.AWAITING_APPROVAL:
        by = draft.causes[-1].actor
        record = json_text({"decision": "cancelled", "by": by, "at": draft.now})
        step = replace(step, note=replace(step.note or Note(), record=record))
    return draft.move(step, StepTrigger.CANCELLED, of=of)
