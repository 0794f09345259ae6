"""What a cancel with compensation would undo: the decision itself, made on a snapshot and written nowhere.

The cancel is decided twice. The first one stops the run; the second one closes the attempts that are in flight, as
the end of the grace period would. `operations.continuation.rollback` calls it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stepkeep.kernel.decide.compensation import Remains, has_effect, undo_plan
from stepkeep.kernel.decide.decide import decide
from stepkeep.kernel.decide.decision import Decision, Need, Snapshot
from stepkeep.kernel.errors import Refused
from stepkeep.kernel.machine.events import CancelRequested
from stepkeep.kernel.machine.rows import Step
from stepkeep.kernel.machine.states import STEP_TERMINAL, Rollback, RunState


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """Steps by their numbers. `ends` is the state of the run in the end, if every undo succeeds. `undone` are in their
    order, and `running` have an attempt in flight: one that ends in time is undone like any other."""

    ends: RunState
    rollback: Rollback
    undone: tuple[int, ...] = ()
    remains: tuple[tuple[int, Remains], ...] = ()
    running: tuple[int, ...] = ()
    refusal: str | None = None


def preview_rollback(snapshot: Snapshot, now: int) -> Preview | Need:
    """What a cancel with compensation would do now. A Need names what the snapshot lacks."""
    run, plan = snapshot.run, snapshot.plan
    cancel = CancelRequested(tenant=run.tenant, run_id=run.id, actor="preview", compensate=True)
    if run.state is RunState.COMPENSATING:
        return _under_way(snapshot)
    decision = decide(snapshot, [cancel, cancel], now)
    if not isinstance(decision, Decision):
        return decision
    reply = decision.replies[0]
    if isinstance(reply, Refused):
        return Preview(ends=decision.run.state, rollback=run.rollback or Rollback.NONE, refusal=str(reply))
    rows = dict(snapshot.steps) | {step.no: step for step in (*decision.changed, *decision.added)}
    held = [no for no, step in snapshot.steps.items() if step.worker is not None]
    running = tuple(sorted(no for no in held if has_effect(plan, no)))
    if decision.run.state is not RunState.COMPENSATING:
        found = undo_plan(snapshot.plan, _by_number(rows))
        left = tuple((step.no, why) for step, why in found.remains)
        return Preview(ends=decision.run.state, rollback=_rollback(decision), remains=left, running=running)
    found = undo_plan(snapshot.plan, _by_number(rows))
    return Preview(
        ends=RunState.FAILED if found.remains else RunState.ROLLED_BACK,
        rollback=Rollback.PARTIAL if found.remains else Rollback.COMPLETE,
        undone=tuple(step.no for step in found.undone),
        remains=tuple((step.no, why) for step, why in found.remains),
        running=running,
    )


def _under_way(snapshot: Snapshot) -> Preview:
    """A rollback that has begun: a cancel changes nothing. What is left to undo is on record."""
    plan = snapshot.plan
    found = undo_plan(snapshot.plan, _by_number(snapshot.steps))
    left = [step.no for step in found.undone if snapshot.steps[plan.undo_no(step.no)].state not in STEP_TERMINAL]
    is_partial = snapshot.run.rollback is Rollback.PARTIAL
    return Preview(
        ends=RunState.FAILED if is_partial else RunState.ROLLED_BACK,
        rollback=Rollback.PARTIAL if is_partial else Rollback.COMPLETE,
        undone=tuple(left),
        remains=tuple((step.no, why) for step, why in found.remains),
    )


def _rollback(decision: Decision) -> Rollback:
    return decision.run.rollback or Rollback.NONE


def _by_number(rows: Mapping[int, Step]) -> list[Step]:
    return [step for _, step in sorted(rows.items())]
