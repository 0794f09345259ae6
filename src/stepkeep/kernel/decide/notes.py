"""What is journaled without a change of state: a violation of duties that was refused, and a note of a person.

Neither moves a run or a step. `decide` calls it: for a refusal after the guards of the event, so that the caller gets
the same refusal with or without the record.
"""

from __future__ import annotations

from msgspec.structs import replace

from stepkeep.kernel.decide.decision import Accepted, Reply
from stepkeep.kernel.decide.draft import Draft
from stepkeep.kernel.errors import Conflict, NotAllowed
from stepkeep.kernel.machine.events import Annotated, Request
from stepkeep.kernel.machine.rows import Note
from stepkeep.kernel.machine.states import RUN_TERMINAL

MOST_VIOLATIONS = 50
"""Violations of one step that are journaled. Each person and rule is journaled once, so that a repeated attempt cannot
fill the journal; neither can attempts under many names."""


def note_violation(draft: Draft, event: Request, refusal: NotAllowed) -> None:
    """Journal that a person tried what their duties rule out."""
    no = None if refusal.step is None else draft.plan.number(refusal.step)
    step = None if no is None else draft.known(no)
    if step is None:
        return
    note = step.note or Note()
    known = (refusal.person or event.actor, refusal.rule)
    if known in note.violations or len(note.violations) >= MOST_VIOLATIONS:
        return
    said = {"step": refusal.step, "rule": refusal.rule, "reason": refusal.reason}
    draft.requested("duty_violated", event, said)
    draft.only_hot = False
    draft.put(replace(step, note=replace(note, violations=(*note.violations, known))))


def annotate(draft: Draft, event: Annotated) -> Reply:
    """Keep a note of a person in the journal of a run that has not ended."""
    if draft.state in RUN_TERMINAL:
        raise Conflict(f"run {event.run_id} has ended ({draft.state}); its journal is closed.", {"state": draft.state})
    step = {} if event.no is None else {"step": draft.planned(draft.named(event.no)).name}
    draft.requested("annotated", event, {**step, "note": event.note})
    return Accepted({**step, "note": event.note, "by": event.actor, "at": draft.now, "state": draft.state})
