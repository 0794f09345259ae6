"""Rollback: which steps are undone, in which order, and how it ends.

Each undo is a step of its own (phase `undo`). They run one after the other, in reverse order of completion by journal
sequence and hop, never by timestamps.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from stepkeep.kernel.composition.child_runs import begin_hook
from stepkeep.kernel.decide.draft import Draft
from stepkeep.kernel.decide.stopping import leaves_effect, may_have_run
from stepkeep.kernel.definition import CompensateWhen, Effect, StepDefinition
from stepkeep.kernel.machine.rows import Note, Run, Step, is_completed
from stepkeep.kernel.machine.states import OnFailure, Rollback, StepState, StopCause
from stepkeep.kernel.machine.tables import RunTrigger
from stepkeep.kernel.plan import Plan


def finish_stopping(draft: Draft) -> None:
    """Nothing is in flight any more: start the undo steps, or end the run."""
    draft.due_at = None
    hooked = _to_undo(draft) if wants_rollback(draft) else []
    if not hooked:
        cancelled = draft.cause is StopCause.CANCEL
        draft.move_run(RunTrigger.STOPPED_CANCELLED if cancelled else RunTrigger.STOPPED_FAILED)
        return
    draft.undoing = len(hooked)
    draft.move_run(RunTrigger.UNDO_STARTED)
    numbers = [draft.plan.undo_no(step.no) for step in hooked]
    followers: list[int | None] = [*numbers[1:], None]
    hooks = [_add_hook(draft, step, follower) for step, follower in zip(hooked, followers, strict=True)]
    begin_hook(draft, hooks[0])


def finish_rollback(draft: Draft) -> None:
    """Every undo step has ended: the run is rolled back, or failed with a partial rollback."""
    if draft.rollback is Rollback.PARTIAL:
        draft.move_run(RunTrigger.UNDO_FAILED)
        return
    draft.rollback = Rollback.COMPLETE
    draft.move_run(RunTrigger.UNDONE)


def wants_rollback(draft: Draft) -> bool:
    return draft.policy is OnFailure.COMPENSATE or draft.plan.definition.compensate_always


def _to_undo(draft: Draft) -> list[Step]:
    """The steps to undo, last completed first. What remains makes the rollback partial."""
    found = undo_plan(draft.plan, draft.every_step())
    if found.remains:
        draft.rollback = Rollback.PARTIAL
    return list(found.undone)


class Remains(StrEnum):
    """Why the effect of a step is not undone."""

    NO_UNDO = "no_undo"
    """It succeeded and has an effect, and its definition has no undo."""
    NOT_FINISHED = "not_finished"
    """Its handler completed, and its rules did not pass."""
    ATTEMPTED = "attempted"
    """Nothing tells how its last attempt ended, and its undo is for steps that succeeded."""
    CHILD = "child"
    """Its child had not ended, or did not succeed and left something of what it had done."""


class UndoPlan(NamedTuple):
    """What a rollback undoes, in its order, and what it leaves, with the reason."""

    undone: tuple[Step, ...]
    remains: tuple[tuple[Step, Remains], ...]


def undo_plan(plan: Plan, rows: Sequence[Step]) -> UndoPlan:
    """The steps to undo, last completed first, and those whose effect remains. `rows` are all steps, by number.

    An effect without an undo step remains. So does the effect of a step that did not succeed, where it happened or is
    unknown, and is not undone.
    """
    undone: list[Step] = []
    remains: list[tuple[Step, Remains]] = []
    for step in rows:
        if (left := _left_by_child(step)) is not None:
            remains.append((step, left))
            continue
        if not has_effect(plan, step.no) or is_anothers(step):
            continue
        definition = plan.of(step).definition
        if not _happened(step, definition):
            if may_remain(step) and (definition.undo is not None or definition.effect is not Effect.READ):
                remains.append((step, _why(step, definition)))
            continue
        if definition.undo is not None:
            undone.append(step)
        elif definition.effect is not Effect.READ:
            remains.append((step, Remains.NO_UNDO))
    undone.sort(key=lambda step: step.settled or 0, reverse=True)
    return UndoPlan(tuple(undone), tuple(remains))


def _why(step: Step, definition: StepDefinition) -> Remains:
    if definition.child is not msgspec.UNSET:
        return Remains.CHILD
    return Remains.NOT_FINISHED if is_completed(step) else Remains.ATTEMPTED


def leaves_effects(plan: Plan, run: Run, rows: Sequence[Step]) -> bool:
    """Whether something remains, or may remain, of what a run did that ended without success."""
    if run.rollback is not Rollback.NONE:
        return run.rollback is Rollback.PARTIAL
    found = undo_plan(plan, rows)
    if found.undone or found.remains:
        return True
    # A run that is cancelled at once, and so has no policy, calls its children back and does not hear what they left.
    unheard = [row for row in rows if row.state is StepState.CANCELLED and has_child(row)] if run.policy is None else []
    return any(_may_change(plan, row) for row in unheard)


def has_child(step: Step) -> bool:
    """Whether a step, or an undo step, has asked for a child."""
    return step.note is not None and step.note.child is not None


def _may_change(plan: Plan, step: Step) -> bool:
    definition = plan.of(step).definition
    return definition.undo is not None or definition.effect is not Effect.READ


def is_anothers(step: Step) -> bool:
    """Whether an earlier run finished this step, and its effect is not for this run to undo."""
    adopted = None if step.note is None else step.note.adopted
    return adopted is not None and not adopted.owned


def _left_by_child(step: Step) -> Remains | None:
    """In the rollback of a finished child: why the effect of a step that the child did not finish remains."""
    adopted = None if step.note is None else step.note.adopted
    return None if adopted is None or adopted.remains is None else Remains(adopted.remains)


def has_effect(plan: Plan, no: int) -> bool:
    """Whether a step of this number may have an effect: a main step, or an element. The owner of elements has none."""
    return plan.steps[no].segment is None if no < plan.size else plan.is_element(no)


def may_remain(step: Step) -> bool:
    """Whether a step that did not succeed may have left its effect: its handler completed and its rules did not pass,
    nothing tells how its last attempt ended, or its child left something."""
    return is_completed(step) or leaves_effect(step.error)


def _happened(step: Step, definition: StepDefinition) -> bool:
    """Whether the step had its effect, or may have had it and the definition counts that."""
    attempted = definition.compensate_when is CompensateWhen.ATTEMPTED and may_have_run(step)
    # The rollback of a finished child also undoes steps that the child tried and skipped; it owns their undo.
    is_owned = step.note is not None and step.note.adopted is not None and step.note.adopted.owned
    return step.state is StepState.SUCCEEDED or attempted or is_owned


def _add_hook(draft: Draft, undone: Step, follower: int | None) -> Step:
    no = draft.plan.undo_no(undone.no)
    planned, run = draft.plan.undo_for(undone), draft.snapshot.run
    known = undone.note or Note()
    child = known.child if planned is not None and planned.kind.undoes_child else None
    note = Note(next=follower, adopted=known.adopted, undoes=child, call=known.call)
    return draft.add(
        Step(
            tenant=run.tenant,
            run_id=run.id,
            no=no,
            queue=draft.plan.at(no).queue if note.call is None else note.call.undo_queue,
            priority=run.priority,
            note=None if note == Note() else note,
        )
    )
