"""Pauses a run and goes on with it: nothing new is claimed in between.

A pause holds claimable steps back by their `ready_at`; it changes the state of no step. What is in flight settles, its
dependents open, messages and decisions are taken, and leases, deadlines and the timeout of the run go on. `decide`
calls it.
"""

from __future__ import annotations

from msgspec.structs import replace

from stepkeep.kernel.decide.decision import Accepted, Reply
from stepkeep.kernel.decide.draft import HELD_BACK, Draft
from stepkeep.kernel.decide.rollup import roll_up
from stepkeep.kernel.errors import Conflict
from stepkeep.kernel.machine.events import PauseRequested, UnpauseRequested
from stepkeep.kernel.machine.rows import Note, Step
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState, StepState
from stepkeep.kernel.machine.tables import RUN, RunTrigger

WHY_NOT = {
    RunState.IDLE: "it has not been started, and does nothing before that",
    RunState.VALIDATING: "all its steps have settled, and only its rules are left",
    RunState.STOPPING: "it is about to end, and starts nothing more",
    RunState.COMPENSATING: "a rollback is not interrupted",
}
"""Why a live run in this state cannot be paused."""


def pause(draft: Draft, event: PauseRequested) -> Reply:
    """Hold back every claimable step, and those that become claimable until the run goes on."""
    if draft.state is RunState.PAUSED and event.freeze:
        raise Conflict(f"run {event.run_id} is paused already. Resume it before you freeze it, or leave it so.")
    if draft.state is RunState.PAUSED:
        return Accepted({"state": draft.state}, repeated=True)
    if draft.state in RUN_TERMINAL:
        raise Conflict(f"run {event.run_id} has already ended ({draft.state}); a finished run cannot be paused.")
    if not RUN.allows(draft.state, RunTrigger.PAUSED):
        raise Conflict(f"run {event.run_id} is {draft.state} and cannot be paused: {WHY_NOT[draft.state]}.")
    rows = draft.every_step()
    said = {"reason": event.reason} if event.reason else {}
    draft.requested("pause_requested", event, said | ({"freeze": True} if event.freeze else {}))
    draft.move_run(RunTrigger.PAUSED)
    for step in rows:
        if step.ready_at is not None:
            draft.set_claimable(step, HELD_BACK)
    return Accepted({"state": draft.state})


def unpause(draft: Draft, event: UnpauseRequested) -> Reply:
    """Release what the pause held back. A run of which nothing had begun is queued again."""
    if draft.state in RUN_TERMINAL:
        raise Conflict(f"run {event.run_id} has already ended ({draft.state}); there is nothing to resume.")
    if draft.state is not RunState.PAUSED:
        return Accepted({"state": draft.state}, repeated=True)
    rows = draft.every_step()
    draft.requested("unpause_requested", event, {"reason": event.reason} if event.reason else None)
    draft.move_run(RunTrigger.UNPAUSED if any(map(_has_begun, rows)) else RunTrigger.UNPAUSED_QUEUED)
    for step in rows:
        if step.ready_at is not None:
            draft.set_claimable(step, draft.claimable_from(step, draft.clock))
    roll_up(draft)
    return Accepted({"state": draft.state})


def _has_begun(step: Step) -> bool:
    """Whether a step did more than become ready. One that was held, or waited, and is ready again has a note of more
    than the keys of its limits.

    An adopted step began in another run, and so did the calls and checkpoints of a flow that nobody has claimed.
    """
    note = step.note
    if note is not None and note.adopted is not None:
        return False
    is_noted = note is not None and replace(note, limited=(), grown=None) != Note()
    return step.state not in (StepState.PENDING, StepState.READY) or step.fence > 0 or is_noted
