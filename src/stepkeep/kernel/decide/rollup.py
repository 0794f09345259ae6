"""Derives the hops of a run from its counters: blocked, validating, ended.

A stopping run goes on when none of its steps is leased or waits for a child run. It assigns no state of a step.
`decide` calls it after each event.
"""

from __future__ import annotations

from stepkeep.kernel.composition.child_runs import ask_for_successor, has_children_out
from stepkeep.kernel.decide.compensation import finish_rollback, finish_stopping
from stepkeep.kernel.decide.draft import Draft
from stepkeep.kernel.decide.stopping import stop
from stepkeep.kernel.machine.rows import Step
from stepkeep.kernel.machine.states import RunState, StopCause
from stepkeep.kernel.machine.tables import RunTrigger, StepTrigger


def roll_up(draft: Draft) -> None:
    """Make every hop of the run that its steps now require."""
    if draft.state is RunState.RUNNING:
        if draft.open == 0:
            _all_settled(draft)
        elif draft.moving == 0:
            draft.move_run(RunTrigger.WAITING)
    if draft.state is RunState.STOPPING and draft.leased == 0 and not has_children_out(draft):
        finish_stopping(draft)
    if draft.state is RunState.COMPENSATING and draft.undoing == 0:
        finish_rollback(draft)


def _all_settled(draft: Draft) -> None:
    if draft.failed:
        policy = draft.plan.definition.on_failure
        stop(draft, RunTrigger.STEPS_FAILED, cause=StopCause.FAILURE, policy=policy)
        return
    draft.move_run(RunTrigger.STEPS_SETTLED)
    check = draft.plan.check
    if check is None:
        draft.move_run(RunTrigger.RULES_PASSED)
        ask_for_successor(draft)
        return
    run = draft.snapshot.run
    step = Step(tenant=run.tenant, run_id=run.id, no=check.no, queue=check.queue, priority=run.priority)
    draft.make_ready(draft.add(step), StepTrigger.DEPENDENCIES_MET)
