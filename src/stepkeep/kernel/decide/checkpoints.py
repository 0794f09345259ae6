"""Checkpoints: values that a handler records while it runs, for later attempts of its step.

A checkpoint is accepted under the same terms as a report: from the holder of a valid lease alone. It is never changed
and moves nothing. `decide` calls it; the worker gives a handler what is recorded here.
"""

from __future__ import annotations

from msgspec.structs import replace

from stepkeep.kernel.decide.decision import Accepted, Reply
from stepkeep.kernel.decide.draft import Draft
from stepkeep.kernel.errors import Conflict, Fenced
from stepkeep.kernel.machine.events import StepCheckpointed
from stepkeep.kernel.machine.journal import payload_digest
from stepkeep.kernel.machine.rows import Checkpoint, Note, Step
from stepkeep.kernel.machine.states import StepState

MOST_CHECKPOINTS = 100
"""How many one step may have: all of them are in its row, which is written again with each."""


def checkpoint(draft: Draft, event: StepCheckpointed) -> Reply:
    """Record a checkpoint of the attempt that holds the step. The same one again changes nothing."""
    step = draft.named(event.no)
    if step.worker != event.worker or step.fence != event.fence:
        raise Fenced(_too_late(event, "another claim, an expiry or a cancel came first"))
    if step.due_at is None or step.due_at < draft.now:
        raise Fenced(_too_late(event, "the lease had run out"))
    if step.state is not StepState.RUNNING:
        raise Conflict(f"step {event.no} of run {event.run_id} is {step.state}; its handler has returned")
    known = recorded(step, event.name)
    if known is not None:
        if known.fence == event.fence:
            # The reply to the first one was lost: an attempt records each name once.
            return Accepted({"state": step.state, "name": event.name}, repeated=True)
        raise Conflict(f"step {event.no} of run {event.run_id} has a checkpoint {event.name} of an earlier attempt")
    note = step.note or Note()
    if len(note.checkpoints) >= MOST_CHECKPOINTS:
        raise Conflict(
            f"step {event.no} of run {event.run_id} has {MOST_CHECKPOINTS} checkpoints; no more fit. "
            "Make it several steps."
        )
    told = {
        "step": draft.planned(step).name,
        "no": step.no,
        "checkpoint": event.name,
        "fence": event.fence,
        "digest": payload_digest(event.value),
    }
    draft.caused_by("checkpoint_recorded", event.actor, told)
    draft.only_hot = False
    new = Checkpoint(name=event.name, value=event.value.decode(), fence=event.fence, at=draft.now)
    draft.put(replace(step, note=replace(note, checkpoints=(*note.checkpoints, new))))
    return Accepted({"state": step.state, "name": event.name})


def recorded(step: Step, name: str) -> Checkpoint | None:
    """The checkpoint of this name; None if the step has none."""
    known = () if step.note is None else step.note.checkpoints
    return next((one for one in known if one.name == name), None)


def _too_late(event: StepCheckpointed, why: str) -> str:
    said = f"the checkpoint {event.name} of step {event.no} of run {event.run_id}"
    return f"{said} (fence {event.fence}) came too late: {why}"
