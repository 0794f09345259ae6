"""What the end of a child run means for the step that waits for it.

The news comes at least once and in any order with other events of the parent; only the first that is awaited counts.
`decide` calls it; it starts and cancels nothing.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from stepkeep.kernel.composition.child_runs import recall
from stepkeep.kernel.decide.decision import Accepted, Reply
from stepkeep.kernel.decide.draft import Draft
from stepkeep.kernel.decide.execution import pass_rules
from stepkeep.kernel.decide.failure import CHILDREN, DEADLINE, Settled, fail_for_good
from stepkeep.kernel.decide.progress import settle
from stepkeep.kernel.decide.stopping import CHILD_ENDED, CHILD_LATE, EFFECTS_LEFT
from stepkeep.kernel.machine.events import ChildEnded
from stepkeep.kernel.machine.journal import payload_digest
from stepkeep.kernel.machine.rows import Note, Step
from stepkeep.kernel.machine.states import Category, Phase, RunState, StepState
from stepkeep.kernel.machine.tables import StepTrigger
from stepkeep.kernel.people.persons import joined, persons_detail

CALLED_OFF = frozenset({RunState.CANCELLED, RunState.ROLLED_BACK, None})
"""Ends of a child that was called back; None is one that never started."""

UNDONE = frozenset({RunState.ROLLED_BACK, RunState.CANCELLED})
"""Ends of the rollback of a child that left nothing, unless it is partial."""


def child_ended(draft: Draft, event: ChildEnded) -> Reply:
    """A child has ended, or never started. News that came before, or that nothing waits for, changes nothing."""
    step = draft.named(event.no)
    is_awaited = step.note is not None and step.note.activation == event.activation
    if step.state is not StepState.AWAITING_CHILDREN or not is_awaited:
        return Accepted({"state": step.state}, repeated=True)
    said: dict[str, Any] = {
        "step": draft.planned(step).name,
        "child": event.child,
        "state": event.state or "not_started",
    }
    said |= {"partial": True} if event.partial else {}
    if event.persons is not None and draft.planned(step).phase is Phase.MAIN:
        said |= {"persons": persons} if (persons := persons_detail(event.persons)) else {}
        note = step.note or Note()
        draft.only_hot = False
        step = replace(step, note=replace(note, persons=joined(filter(None, (note.persons, event.persons)))))
    draft.caused_by("child_ended", event.actor, said)
    settle(draft, _end(draft, step, event))
    return Accepted({"state": draft.step(event.no).state})


def _end(draft: Draft, step: Step, event: ChildEnded) -> Settled | None:
    if draft.planned(step).phase is Phase.UNDO:
        return _end_hook(draft, step, event)
    if event.state is RunState.SUCCEEDED:
        output = None if event.output is None else event.output.decode()
        note = replace(step.note or Note(), output=output)
        persons_detail = draft.move(step, StepTrigger.CHILDREN_SUCCEEDED, note=note)
        return pass_rules(draft, persons_detail, payload_digest(event.output))
    error = (EFFECTS_LEFT if event.partial else "") + _error(event)
    left: dict[str, Any] = {"error": error} if event.partial else {}
    if draft.stopping and event.state in CALLED_OFF:
        draft.move(step, StepTrigger.CANCELLED, **left)
        return None
    if event.state in CALLED_OFF and _owner_stops(draft, step):
        draft.move(step, StepTrigger.CANCELLED, of=draft.planned(step).owner, **left)
        return Settled(step.no, StepState.CANCELLED)
    return fail_for_good(draft, step, CHILDREN, event.category or Category.EXTERNAL, error)


def _error(event: ChildEnded) -> str:
    ended = "was not started" if event.state is None else f"has ended {event.state}"
    return f"{CHILD_ENDED}{event.child} {ended}" + (f": {event.error}" if event.error else "")


def _owner_stops(draft: Draft, step: Step) -> bool:
    """Whether this is an element whose owner has called its child back."""
    owner = draft.planned(step).owner
    note = None if owner is None else draft.step(owner).note
    return note is not None and note.grown is not None and note.grown.stops


def _end_hook(draft: Draft, step: Step, event: ChildEnded) -> Settled | None:
    """The rollback of a child has ended. One that found nothing to undo was only cancelled."""
    if event.state in UNDONE and not event.partial:
        return pass_rules(draft, draft.move(step, StepTrigger.CHILDREN_SUCCEEDED))
    return fail_for_good(draft, step, CHILDREN, event.category or Category.EXTERNAL, _error(event))


def out_of_time(draft: Draft, step: Step) -> Settled | None:
    """The deadline of a step with a child has passed: it is called back, and the step has failed, in doubt."""
    recall(draft, step)
    return fail_for_good(draft, step, DEADLINE, Category.TIMEOUT, CHILD_LATE)
