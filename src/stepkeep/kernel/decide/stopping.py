"""Stops a run: no new step starts, and every step that is not in flight is cancelled in the same transaction.

Attempts in flight settle, or are fenced off when the grace period ends. Only then does the run end or roll back. An
attempt that is closed while its handler may still run is in doubt: its step and its attempt say so.
"""

from __future__ import annotations

from msgspec.structs import replace

from stepkeep.kernel.composition.child_runs import awaits_child, has_children_out, recall
from stepkeep.kernel.decide.draft import Draft, json_text
from stepkeep.kernel.machine.rows import Note, Step
from stepkeep.kernel.machine.states import (
    STEP_TERMINAL,
    AttemptState,
    Category,
    OnFailure,
    Phase,
    StepState,
    StopCause,
)
from stepkeep.kernel.machine.tables import RunTrigger, StepTrigger

IN_DOUBT = "IN_DOUBT: its handler was still running when the attempt was closed; it may have had its effect"
CHILD_IN_DOUBT = "IN_DOUBT: its child run had not ended when the grace period did; it may have had its effect"
CHILD_LATE = "IN_DOUBT: its child run had not ended when the deadline passed; it may have had its effect"
CHILD_ENDED = "child run "
"""How the error of a step begins whose child did not succeed, and left nothing."""
EFFECTS_LEFT = "EFFECTS_LEFT: "
"""How the error of a step begins whose child did not succeed, and did not undo everything that it had done."""
LEASE_EXPIRED = "LEASE_EXPIRED: the worker was not heard of in time"
NOT_RUN = "NOT_RUN: "
"""How the error of a step begins whose rules failed before its handler ran."""


def is_in_doubt(error: str | None) -> bool:
    """Whether the error of a step or an attempt says that its effect is unknown.

    >>> is_in_doubt(IN_DOUBT), is_in_doubt("no such account"), is_in_doubt(None)
    (True, False, False)
    """
    return error is not None and error.startswith("IN_DOUBT")


def is_effect_unknown(error: str | None) -> bool:
    """Whether the last error of a step leaves its effect open: its attempt is in doubt, or its lease was lost.

    >>> is_effect_unknown(IN_DOUBT), is_effect_unknown(LEASE_EXPIRED), is_effect_unknown("no such account")
    (True, True, False)
    """
    return is_in_doubt(error) or (error is not None and error.startswith("LEASE_EXPIRED"))


def leaves_effect(error: str | None) -> bool:
    """Whether the last error of a step says that an effect remains or may remain: it is unknown, or a child left some.

    >>> leaves_effect(IN_DOUBT), leaves_effect(f"{EFFECTS_LEFT}child run c has ended failed"), leaves_effect("no")
    (True, True, False)
    """
    return is_effect_unknown(error) or (error is not None and error.startswith(EFFECTS_LEFT))


def may_have_run(step: Step) -> bool:
    """Whether a handler of this step may have begun: it was claimed, and not only for rules that failed before it."""
    return step.fence > 1 or (step.fence == 1 and not (step.error or "").startswith(NOT_RUN))


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
        if step.state in STEP_TERMINAL or step.worker is not None:
            continue
        if awaits_child(draft, step):
            # Its child is in flight: the step ends when the child has, or with the grace period.
            recall(draft, step)
            draft.put(replace(step, due_at=None))
        else:
            cancel_step(draft, step, of=of)
    in_flight = draft.leased or has_children_out(draft)
    draft.due_at = draft.now + draft.plan.definition.grace if in_flight else None


def fence_off(draft: Draft, but: int | None = None) -> None:
    """End the grace period: attempts still in flight are cancelled, and their reports will be refused.

    That of step `but` has come: if a worker holds the step, it keeps its grace until the report is decided on. A late
    report on a step that awaits a child keeps nothing.
    """
    for step in draft.every_step():
        if awaits_child(draft, step) or (step.worker is not None and step.no != but):
            cancel_step(draft, step)
    draft.due_at = draft.due_at if draft.leased else None


def cancel_everything(draft: Draft) -> None:
    for step in draft.every_step():
        if step.state not in STEP_TERMINAL:
            cancel_step(draft, step)


def cancel_step(draft: Draft, step: Step, of: int | None = None) -> Step:
    """Cancel one step. An attempt in flight is closed, in doubt, and an open gate records its end."""
    if _may_have_effect(draft, step):
        draft.close_attempt(step, AttemptState.CANCELLED, error=IN_DOUBT)
        return draft.move(step, StepTrigger.CANCELLED, of=of, error=IN_DOUBT)
    if awaits_child(draft, step):
        if draft.stopping:
            return draft.move(step, StepTrigger.CANCELLED, of=of, error=CHILD_IN_DOUBT)
        recall(draft, step)
    draft.close_attempt(step, AttemptState.CANCELLED)
    if step.state is StepState.AWAITING_APPROVAL:
        by = draft.causes[-1].actor
        record = json_text({"decision": "cancelled", "by": by, "at": draft.now})
        step = replace(step, note=replace(step.note or Note(), record=record))
    return draft.move(step, StepTrigger.CANCELLED, of=of)


def _may_have_effect(draft: Draft, step: Step) -> bool:
    """Whether a handler may run. A validating step has only its rules left, and rules have no effect. What a
    definition says of effects is no proof that there is none."""
    runs = step.worker is not None and step.state is not StepState.VALIDATING
    return runs and draft.planned(step).phase is not Phase.CHECK
