"""Handles a step that failed for good: tolerate it, continue without it, or stop the run.

The policy chooses between two triggers, the hard one and the tolerated one; the table gives the target state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from stepkeep.kernel.decide.draft import Draft
from stepkeep.kernel.decide.stopping import cancel_step, stop
from stepkeep.kernel.definition import HookFailure
from stepkeep.kernel.machine.rows import Step
from stepkeep.kernel.machine.states import (
    STEP_TERMINAL,
    Category,
    OnFailure,
    Phase,
    Rollback,
    RunState,
    StepState,
    StopCause,
)
from stepkeep.kernel.machine.tables import RunTrigger
from stepkeep.kernel.machine.tables import StepTrigger as T
from stepkeep.kernel.plan import PlannedStep


class Settled(msgspec.Struct, frozen=True, gc=False):
    """A step ended. `hard` means that it satisfies no dependency, whatever the edge allows."""

    no: int
    state: StepState
    hard: bool = False


class Verdict(NamedTuple):
    """The two triggers of one kind of failure: for good, and for good but tolerated."""

    hard: T
    tolerated: T


FAILED = Verdict(T.FAILED, T.FAILED_TOLERATED)
RULES = Verdict(T.RULES_FAILED, T.RULES_FAILED_TOLERATED)
DEADLINE = Verdict(T.DEADLINE_PASSED, T.DEADLINE_TOLERATED)
REJECTION = Verdict(T.REJECTED, T.REJECTED_TOLERATED)
COMPLETION = Verdict(T.COMPLETION_FAILED, T.COMPLETION_FAILED_TOLERATED)
CHILDREN = Verdict(T.CHILDREN_FAILED, T.CHILDREN_FAILED_TOLERATED)
OPERATOR = Verdict(T.OPERATOR_FAILED, T.OPERATOR_FAILED_TOLERATED)
CONDITION = Verdict(T.CONDITION_BROKEN, T.CONDITION_FALSE)
DENIAL = Verdict(T.DENIED, T.DENIED_TOLERATED)


def fail_for_good(
    draft: Draft,
    step: Step,
    verdict: Verdict,
    category: Category,
    error: str,
    *,
    hard: bool = False,
    **changes: Any,
) -> Settled | None:
    """End a step in failure. Returns the ending to pass to its dependents, or None if the run stops instead."""
    planned = draft.planned(step)
    changes |= {"category": category, "error": error}
    if planned.phase is Phase.UNDO:
        return _fail_hook(draft, draft.move(step, verdict.hard, **changes))
    if planned.phase is Phase.CHECK:
        draft.move(step, verdict.hard, **changes)
        if draft.state is RunState.VALIDATING:
            _stop(draft, RunTrigger.RULES_FAILED, draft.plan.definition.on_failure, category, error, step.no)
        return None
    if planned.owner is not None:
        is_tolerated = tolerates(draft, planned)
        ended = draft.move(step, verdict.tolerated if is_tolerated else verdict.hard, **changes)
        return Settled(step.no, ended.state, hard)
    if planned.on_failure is OnFailure.SKIP:
        draft.move(step, verdict.tolerated, **changes)
        _end_calls(draft, step, planned)
        return Settled(step.no, StepState.SKIPPED, hard)
    draft.move(step, verdict.hard, **changes)
    if draft.state is RunState.STOPPING:
        if planned.on_failure is OnFailure.COMPENSATE:
            # Of several failures the stronger policy counts: a later one may still ask for the rollback.
            draft.policy = OnFailure.COMPENSATE
        return None
    if planned.on_failure is OnFailure.CONTINUE:
        _end_calls(draft, step, planned)
        draft.failed += 1
        draft.blame(category, error)
        return Settled(step.no, StepState.FAILED, hard)
    _stop(draft, RunTrigger.STEP_FAILED, planned.on_failure, category, error, step.no)
    return None


def _end_calls(draft: Draft, step: Step, planned: PlannedStep) -> None:
    """A flow has failed, and its run goes on: the calls that it would have waited for are cancelled."""
    if not step.unmet or planned.segment is None or not planned.kind.is_flow:
        return
    numbers = range(planned.segment.first, planned.segment.first + planned.segment.width)
    for row in draft.every_step():
        if row.no in numbers and row.state not in STEP_TERMINAL:
            cancel_step(draft, row, of=step.no)


def tolerates(draft: Draft, element: PlannedStep) -> bool:
    """Whether the owner of elements bears the failure of this one. In a stopping run it has ended already."""
    assert element.owner is not None
    row, planned = draft.step(element.owner), draft.plan.steps[element.owner]
    grown = None if row.note is None else row.note.grown
    if planned.kind.is_flow:
        # Its code decides what the failure of a call means.
        return row.state not in STEP_TERMINAL
    if row.state is not StepState.AWAITING_CHILDREN or grown is None:
        return False
    kind = planned.kind
    return kind.tolerates(grown.failed, grown.count, element.definition) or planned.on_failure is OnFailure.SKIP


def _fail_hook(draft: Draft, step: Step) -> Settled | None:
    draft.rollback = Rollback.PARTIAL
    if draft.plan.definition.hook_failure is HookFailure.STOP:
        for other in draft.every_step():
            if other.state is StepState.PENDING:
                cancel_step(draft, other, of=step.no)
        return None
    return Settled(step.no, StepState.FAILED)


def _stop(draft: Draft, trigger: RunTrigger, policy: OnFailure, category: Category, error: str, of: int) -> None:
    stop(draft, trigger, cause=StopCause.FAILURE, policy=policy, category=category, error=error, of=of)
