"""Handles due timers: expired leases, retries, deadlines, run timeouts, grace periods.

A sweep only proposes. Each timer is checked again here, so a late or duplicate sweep changes nothing. The timeout of a
run does not wait for a sweep: an event that comes after it meets it first.
"""

from __future__ import annotations

from msgspec.structs import replace

from stepkeep.kernel.composition.child_runs import awaits_child
from stepkeep.kernel.composition.children import out_of_time as children_out_of_time
from stepkeep.kernel.composition.elements import owner_due
from stepkeep.kernel.decide.compensation import wants_rollback
from stepkeep.kernel.decide.decision import Accepted, Reply
from stepkeep.kernel.decide.draft import Draft, json_text
from stepkeep.kernel.decide.execution import lose
from stepkeep.kernel.decide.failure import DEADLINE, Settled, fail_for_good
from stepkeep.kernel.decide.progress import begin, retry_now, settle, wake_up
from stepkeep.kernel.decide.stopping import fence_off, stop
from stepkeep.kernel.decide.waits import is_past_wait, out_of_time
from stepkeep.kernel.definition import OnDeadline
from stepkeep.kernel.machine.events import Event, MessageArrived, StepReported, TimeCame
from stepkeep.kernel.machine.rows import Note, Step
from stepkeep.kernel.machine.states import RUN_TERMINAL, Category, RunState, StepState, StopCause
from stepkeep.kernel.machine.tables import RunTrigger, StepTrigger
from stepkeep.kernel.people.gates import escalate, gate_of, opening_of, remind
from stepkeep.kernel.people.votes import ballot_record, release

NOTHING_DUE = Accepted({"due": False}, repeated=True)


def time_came(draft: Draft, event: TimeCame) -> Reply:
    if draft.state in RUN_TERMINAL:
        return NOTHING_DUE
    if event.no is None or _is_over(draft):
        # A sleep whose end is swept first must not let a run succeed after its timeout.
        return _run_due(draft, event)
    step = draft.named(event.no)
    if step.due_at is None or step.due_at > draft.now or (step.worker is not None and step.due_at == draft.now):
        return NOTHING_DUE
    if step.state not in STEP_DUE:
        return NOTHING_DUE
    draft.caused_by("time_came", event.actor)
    settle(draft, STEP_DUE[step.state](draft, step))
    return Accepted({"due": True})


def meet_deadline(draft: Draft, event: Event) -> None:
    """Time the run out if its timeout has passed: this event came too late to go on with the run.

    The end of a grace period is no deadline: a report that a sweep has not fenced off yet still counts. Nor is the
    moment at which an idle run starts.
    """
    if _is_over(draft):
        draft.every_step()
        draft.caused_by("time_came", event.actor)
        _time_out(draft, event.no if isinstance(event, StepReported) else None)


def _is_over(draft: Draft) -> bool:
    """Whether the timeout of the run has passed, and nothing has stopped it yet."""
    is_timeout = draft.state not in (RunState.IDLE, RunState.STOPPING)
    return is_timeout and draft.due_at is not None and draft.due_at <= draft.now


def meet_waits(draft: Draft, event: MessageArrived) -> bool:
    """End the waits for this message whose deadline has passed: the deadline decides, not the sweep that finds it.

    Returns whether there were any.
    """
    late = [
        step
        for step in draft.waiting_steps(StepState.AWAITING_EVENT)
        if step.note is not None and step.note.event == event.name and is_past_wait(step, draft.now)
    ]
    for step in late:
        if draft.step(step.no).state is StepState.AWAITING_EVENT:
            draft.caused_by("time_came", event.actor)
            settle(draft, _wait_over(draft, draft.step(step.no)))
    return bool(late)


def _run_due(draft: Draft, event: TimeCame) -> Reply:
    if draft.due_at is None or draft.due_at > draft.now:
        return NOTHING_DUE
    draft.every_step()
    if draft.state is RunState.IDLE:
        draft.caused_by("run_started", event.actor, {"start_at": draft.due_at})
        begin(draft)
        return Accepted({"due": True})
    draft.caused_by("time_came", event.actor)
    if draft.state is RunState.STOPPING:
        fence_off(draft)
    else:
        _time_out(draft)
    return Accepted({"due": True})


def _time_out(draft: Draft, reported: int | None = None) -> None:
    """`reported` is the step whose report brought the news."""
    stop(
        draft,
        RunTrigger.TIMED_OUT,
        cause=StopCause.TIMEOUT,
        policy=draft.plan.definition.on_failure,
        category=Category.TIMEOUT,
        error="the run did not end within its timeout",
    )
    if not wants_rollback(draft):
        # Nothing is undone, so nothing has to wait for what is in flight: a handler that blocks its thread would keep
        # the run beyond its limit for the whole grace period.
        fence_off(draft, reported)


def _wait_over(draft: Draft, step: Step) -> Settled | None:
    note, planned = step.note or Note(), draft.planned(step)
    if planned.kind.sleeps:
        return wake_up(draft, step)
    if note.takes_timeouts:
        draft.make_ready(step, StepTrigger.DEADLINE_HANDED_OVER, note=out_of_time(note))
        return None
    said = f"no message {note.event!r} arrived before the deadline"
    return fail_for_good(draft, step, DEADLINE, Category.TIMEOUT, said)


def _gate_due(draft: Draft, step: Step) -> Settled | None:
    """A gate reminds its approvers until its deadline, and then does what its definition says."""
    gate, opening = gate_of(draft, step), opening_of(draft, step)
    if opening.deadline is None or opening.deadline > draft.now:
        remind(draft, step, gate, opening)
        return None
    if gate.on_deadline is OnDeadline.ESCALATE and escalate(draft, step, gate, opening):
        return None
    if gate.on_deadline is OnDeadline.APPROVE:
        note = _expired(draft, step, decided="approved")
        return release(draft, step, note, StepTrigger.DEADLINE_APPROVED, StepTrigger.HOLD_DEADLINE_APPROVED)
    if gate.on_deadline is OnDeadline.SKIP:
        draft.move(step, StepTrigger.DEADLINE_SKIPPED, note=_expired(draft, step, decided="skipped"))
        return Settled(step.no, StepState.SKIPPED)
    # A gate whose deadline passed satisfies no dependency, whether that is called a rejection or a failure.
    rejects = gate.on_deadline is not OnDeadline.FAIL
    said = ("rejected: " if rejects else "") + "no decision came before the deadline"
    category = Category.GOVERNANCE if rejects else Category.TIMEOUT
    return fail_for_good(draft, step, DEADLINE, category, said, hard=True, note=_expired(draft, step))


def _nobody_completed(draft: Draft, step: Step) -> Settled | None:
    said = "the step was not completed before the deadline"
    return fail_for_good(draft, step, DEADLINE, Category.TIMEOUT, said, note=_expired(draft, step, "outcome"))


def _expired(draft: Draft, step: Step, question: str = "decision", decided: str = "expired") -> Note:
    """A late decision, or a late manual outcome, must learn that the deadline came first."""
    note = step.note or Note()
    votes = [] if note.opening is None else [ballot_record(ballot) for ballot in note.opening.ballots]
    record = {question: decided, "by": draft.causes[-1].actor, "at": draft.now} | ({"votes": votes} if votes else {})
    return replace(note, record=json_text(record))


def _children_due(draft: Draft, step: Step) -> Settled | None:
    """The timer of a step that waits for a child run, or for its elements."""
    return children_out_of_time(draft, step) if awaits_child(draft, step) else owner_due(draft, step)


STEP_DUE = {
    StepState.RUNNING: lose,
    StepState.VALIDATING: lose,
    StepState.RETRYING: retry_now,
    StepState.AWAITING_EVENT: _wait_over,
    StepState.AWAITING_APPROVAL: _gate_due,
    StepState.AWAITING_COMPLETION: _nobody_completed,
    StepState.AWAITING_CHILDREN: _children_due,
}
