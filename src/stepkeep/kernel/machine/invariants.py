"""Checks every row before it is written. These checks stay on in production.

It repairs nothing. The schema refuses the same rows again; invariants over a whole run are checked in tests.
`decide` and `create_run` call it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stepkeep.kernel.decide.decision import Decision
from stepkeep.kernel.decide.draft import HELD_BACK
from stepkeep.kernel.errors import InvariantBroken
from stepkeep.kernel.machine.rows import Run, Step
from stepkeep.kernel.machine.states import RUN_TERMINAL, STEP_TERMINAL, RunState, StepState
from stepkeep.kernel.plan import Plan

MOVES_BY_ITSELF = frozenset({RunState.RUNNING, RunState.VALIDATING, RunState.COMPENSATING})
"""States that a run keeps only while at least one of its steps is runnable. A queued one may wait for a slot."""


def check_decision(plan: Plan, decision: Decision) -> None:
    """Refuse a decision whose rows contradict themselves, each other, or the tables."""
    check_run(plan, decision.run)
    for step in decision.changed:
        check_step(step)
    for step in decision.added:
        check_step(step)
    if decision.run.state is RunState.QUEUED and not decision.run.moving:
        _check_waiting(plan, decision)
    if decision.run.state is RunState.PAUSED:
        for step in (*decision.changed, *decision.added):
            if step.ready_at is not None and step.ready_at != HELD_BACK:
                raise InvariantBroken(f"step {step.no} of run {step.run_id} may be claimed, and its run is paused")


def _check_waiting(plan: Plan, decision: Decision) -> None:
    """Nothing of a queued run moves: its first steps must wait for an execution slot."""
    rows = (*decision.changed, *decision.added)
    waits = any(step.state is StepState.PENDING and step.unmet > plan.at(step.no).unmet for step in rows)
    if (decision.added or any(step.no in plan.roots for step in rows)) and not waits:
        raise InvariantBroken(f"run {decision.run.id} (queued) has nothing in it that can move, and waits for no slot")


def check_step(step: Step) -> None:
    wrong = WRONG_WITH[step.state](step)
    if wrong or step.unmet < 0:
        raise InvariantBroken(
            f"step {step.no} of run {step.run_id} ({step.state}) {wrong or 'has fewer than no unmet dependencies'}"
        )


def _running(step: Step) -> str | None:
    if step.worker is None or step.fence <= 0 or step.due_at is None:
        return "runs without a lease"
    return None


def _ready(step: Step) -> str | None:
    return "is ready but cannot be claimed" if step.ready_at is None or step.worker is not None else None


def _ended(step: Step) -> str | None:
    if step.settled is None or step.ready_at is not None or step.due_at is not None or step.worker is not None:
        return "has ended but still holds a lease, a timer or a ready time"
    return None


def _retrying(step: Step) -> str | None:
    return "waits for a retry that is never due" if step.due_at is None else None


def _awaiting_event(step: Step) -> str | None:
    return "waits for nothing in particular" if step.note is None or step.note.event is None else None


def _awaiting_completion(step: Step) -> str | None:
    return "waits for a token that does not exist" if step.note is None or step.note.token is None else None


def _awaiting_approval(step: Step) -> str | None:
    """Gates that an earlier version opened have no opening."""
    opening = None if step.note is None else step.note.opening
    if opening is None:
        return None
    people = [name for ballot in opening.ballots for name in ballot.names]
    return "counts a person twice" if len(people) != len(set(people)) else None


def _validating(step: Step) -> str | None:
    return "is checked by no worker" if (step.worker is None) == (step.ready_at is None) else None


def _nothing(step: Step) -> str | None:
    return None


WRONG_WITH: Mapping[StepState, Callable[[Step], str | None]] = {
    StepState.PENDING: _nothing,
    StepState.READY: _ready,
    StepState.RUNNING: _running,
    StepState.VALIDATING: _validating,
    StepState.RETRYING: _retrying,
    StepState.AWAITING_APPROVAL: _awaiting_approval,
    StepState.AWAITING_EVENT: _awaiting_event,
    StepState.AWAITING_COMPLETION: _awaiting_completion,
    StepState.AWAITING_CHILDREN: _nothing,
    **dict.fromkeys(STEP_TERMINAL, _ended),
}
"""What is wrong with a step in this state, if anything."""


def check_run(plan: Plan, run: Run) -> None:
    wrong = _wrong_with_run(plan, run)
    if wrong:
        counters = (run.open, run.moving, run.leased, run.failed, run.undoing, run.inbox)
        raise InvariantBroken(f"run {run.id} ({run.state}) {wrong}: {counters}")


def _wrong_with_run(plan: Plan, run: Run) -> str | None:
    state, moving, leased = run.state, run.moving, run.leased
    if run.open < 0 or moving < 0 or leased < 0 or run.failed < 0 or run.undoing < 0 or run.inbox < 0:
        return "has a counter below zero"
    if leased > moving:
        return "has more steps leased than moving"
    if run.open > plan.size:
        return "has more steps open than planned"
    if state in RUN_TERMINAL:
        if run.open or moving or leased or run.undoing:
            return "has ended with steps still open"
        return "has ended but still has a timer" if run.ended_at is None or run.due_at is not None else None
    if state is RunState.COMPENSATING and plan.undo_waits:
        return None if run.undoing else "is rolled back by nothing"
    if state in MOVES_BY_ITSELF:
        return None if moving else "has nothing in it that can move"
    if state is RunState.BLOCKED:
        return "is blocked although some of its steps can move" if moving else None
    if state is RunState.STOPPING and not ((leased or plan.children) and run.due_at is not None):
        return "is stopping but nothing is in flight, or nothing ends its grace period"
    return None
