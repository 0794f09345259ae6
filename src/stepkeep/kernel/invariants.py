"""What must be true of every row that is about to be written. These checks stay on in production.

The schema refuses the same things once more; the invariants that span a whole run or store are checked in sweeps and
tests.
"""

from __future__ import annotations

from stepkeep.errors import InvariantBroken
from stepkeep.kernel.decision import Decision
from stepkeep.kernel.plan import Plan
from stepkeep.kernel.rows import Run, Step
from stepkeep.kernel.states import RUN_TERMINAL, STEP_TERMINAL, RunState, StepState

MOVES_BY_ITSELF = frozenset({RunState.QUEUED, RunState.RUNNING, RunState.VALIDATING, RunState.COMPENSATING})
"""States that a run keeps only while one of its steps can move without anybody's help."""


def check_decision(plan: Plan, decision: Decision) -> None:
    """Refuse a decision whose rows contradict themselves, each other, or the way they came from."""
    check_run(plan, decision.run)
    for step in decision.changed:
        check_step(step)
    for step in decision.added:
        check_step(step)


def check_step(step: Step) -> None:
    state = step.state
    if state is StepState.RUNNING:
        _must(step.worker is not None and step.fence > 0 and step.due_at is not None, step, "runs without a lease")
    elif state is StepState.READY:
        _must(step.ready_at is not None and step.worker is None, step, "is ready but cannot be claimed")
    elif state in STEP_TERMINAL:
        idle = step.ready_at is None and step.due_at is None and step.worker is None
        _must(idle and step.settled is not None, step, "has ended but still holds a lease, a timer or a place")
    elif state is StepState.RETRYING:
        _must(step.due_at is not None, step, "waits for a retry that is never due")
    elif state is StepState.AWAITING_EVENT:
        _must(step.note is not None and step.note.event is not None, step, "waits for nothing in particular")
    elif state is StepState.AWAITING_COMPLETION:
        _must(step.note is not None and step.note.token is not None, step, "waits for a token that nobody has")
    elif state is StepState.VALIDATING:
        _must((step.worker is None) != (step.ready_at is None), step, "is checked by nobody")
    _must(step.unmet >= 0, step, "has fewer than no unmet dependencies")


def check_run(plan: Plan, run: Run) -> None:
    counters = (run.open, run.moving, run.leased, run.failed, run.undoing, run.inbox)
    if min(counters) < 0:
        raise InvariantBroken(f"run {run.id}: a counter fell below zero: {counters}")
    if run.leased > run.moving:
        raise InvariantBroken(f"run {run.id}: more steps leased than moving: {counters}")
    if run.open > plan.size:
        raise InvariantBroken(f"run {run.id}: more steps open than planned: {counters}")
    if run.state in RUN_TERMINAL:
        if run.open or run.moving or run.leased or run.undoing:
            raise InvariantBroken(f"run {run.id} has ended ({run.state}) with steps still open: {counters}")
        if run.ended_at is None or run.due_at is not None:
            raise InvariantBroken(f"run {run.id} has ended ({run.state}) but still has a timer")
    elif run.state is RunState.BLOCKED and run.moving:
        raise InvariantBroken(f"run {run.id} is blocked although {run.moving} of its steps can move")
    elif run.state in MOVES_BY_ITSELF and not run.moving:
        raise InvariantBroken(f"run {run.id} is {run.state} but nothing in it can move")
    elif run.state is RunState.STOPPING and not (run.leased and run.due_at is not None):
        raise InvariantBroken(f"run {run.id} is stopping but nothing is in flight, or nothing ends its grace period")


def _must(holds: bool, step: Step, what: str) -> None:
    if not holds:
        raise InvariantBroken(f"step {step.no} of run {step.run_id} ({step.state}) {what}")
