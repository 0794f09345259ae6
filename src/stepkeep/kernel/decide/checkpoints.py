"""Checkpoints: values that a handler records while it runs, for later attempts of its step.

A checkpoint is accepted under the same terms as a report: from the holder of a valid lease alone. It is a row of its
own, is never changed and moves nothing. `decide` calls it; the worker gives a handler what is recorded here.
"""

from __future__ import annotations

from stepkeep.kernel.decide.decision import Accepted, Reply
from stepkeep.kernel.decide.draft import Draft
from stepkeep.kernel.errors import Conflict, Fenced
from stepkeep.kernel.machine.events import StepCheckpointed
from stepkeep.kernel.machine.journal import payload_digest
from stepkeep.kernel.machine.rows import Checkpoint
from stepkeep.kernel.machine.states import StepState


def checkpoint(draft: Draft, event: StepCheckpointed) -> Reply:
    """Record a checkpoint of the attempt that holds the step. The same one again changes nothing."""
    step = draft.named(event.no)
    if step.worker != event.worker or step.fence != event.fence:
        raise Fenced(_too_late(event, "another claim, an expiry or a cancel came first"))
    if step.due_at is None or step.due_at < draft.now:
        raise Fenced(_too_late(event, "the lease had run out"))
    if step.state is not StepState.RUNNING:
        raise Conflict(f"step {event.no} of run {event.run_id} is {step.state}; its handler has returned")
    known = _recorded(draft, event)
    if known is not None:
        if known == event.fence:
            # The reply to the first one was lost: an attempt records each name once.
            return Accepted({"state": step.state, "name": event.name}, repeated=True)
        raise Conflict(f"step {event.no} of run {event.run_id} has a checkpoint {event.name} of an earlier attempt")
    told = {
        "step": draft.planned(step).name,
        "no": step.no,
        "checkpoint": event.name,
        "fence": event.fence,
        "digest": payload_digest(event.value),
    }
    draft.caused_by("checkpoint_recorded", event.actor, told)
    draft.rows.add(
        Checkpoint(
            tenant=event.tenant,
            run_id=event.run_id,
            no=step.no,
            name=event.name,
            fence=event.fence,
            seq=draft.seq,
            at=draft.now,
            value=event.value,
        )
    )
    return Accepted({"state": step.state, "name": event.name})


def _recorded(draft: Draft, event: StepCheckpointed) -> int | None:
    """The fence under which the step has recorded this name; None if it has not."""
    new = (one.fence for one in draft.rows.of(Checkpoint) if (one.no, one.name) == (event.no, event.name))
    return draft.snapshot.recorded.get((event.no, event.name), next(new, None))


def _too_late(event: StepCheckpointed, why: str) -> str:
    said = f"the checkpoint {event.name} of step {event.no} of run {event.run_id}"
    return f"{said} (fence {event.fence}) came too late: {why}"
