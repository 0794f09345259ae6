"""The rules of the model database, as in the real schemas: no half-written rows, and no change of finished runs.

They are written from the schemas and not from the kernel's checks, so that each can catch mistakes of the other.
"""

from __future__ import annotations

from stepkeep.kernel.errors import InvariantBroken
from stepkeep.kernel.machine.rows import Run, Step
from stepkeep.kernel.machine.states import RUN_TERMINAL, STEP_TERMINAL, RunState, StepState

S = StepState
NO_QUEUE = 0
WITH_A_CAUSE = (RUN_TERMINAL - {RunState.SUCCEEDED}) | {RunState.STOPPING, RunState.COMPENSATING}


def refuse_step(step: Step, before: Step | None = None) -> None:
    """Raise when this row may not be written, or not in the place of that one."""
    ready, due, leased, settled = (
        field is not None for field in (step.ready_at, step.due_at, step.worker, step.settled)
    )
    note = step.note
    match step.state:
        case S.PENDING:
            fits = not (ready or due or leased or settled)
        case S.READY:
            fits = ready and not (due or leased or settled)
        case S.RUNNING:
            fits = due and leased and not (ready or settled)
        case S.VALIDATING:
            fits = (ready != leased) and due == leased and not settled
        case S.RETRYING:
            fits = due and not (ready or leased or settled)
        case S.AWAITING_APPROVAL | S.AWAITING_CHILDREN:
            fits = not (ready or leased or settled)
        case S.AWAITING_EVENT:
            fits = not (ready or leased or settled) and note is not None and bool(note.event)
        case S.AWAITING_COMPLETION:
            fits = not (ready or leased or settled) and note is not None and bool(note.token)
        case _:
            fits = settled and not (ready or due or leased)
    whole = leased == (step.claimed_at is not None) and (not leased or step.fence > 0)
    counted = min(step.fence, step.attempts, step.losses, step.unmet) >= 0
    if not (fits and whole and counted and (not ready or step.queue > NO_QUEUE)):
        raise InvariantBroken(f"the schema refused a step that contradicts itself: {step}")
    if before is not None and (before.state in STEP_TERMINAL or step.fence < before.fence):
        raise InvariantBroken(f"a finished step never changes, and its fence only grows: {step}")


def refuse_run(run: Run, before: Run | None = None) -> None:
    """Raise when this row may not be written, or not in the place of that one."""
    counters = (run.open, run.moving, run.leased, run.undoing)
    ended = run.ended_at is not None
    fits = ended == (run.state in RUN_TERMINAL) and not (ended and run.due_at is not None)
    fits = fits and not (ended and any(counters)) and not (run.state in WITH_A_CAUSE and run.cause is None)
    if not fits or min(*counters, run.failed, run.inbox, run.seq) < 0 or run.leased > run.moving:
        raise InvariantBroken(f"the schema refused a run that contradicts itself: {run}")
    if before is not None and (before.state in RUN_TERMINAL or run.seq < before.seq):
        raise InvariantBroken(f"a finished run never changes, and its journal only grows: {run}")
