"""`decide`: events in, a decision out. The only module that interprets events.

Each event has one function: first its guards, which refuse without a change, then its transitions. Pure: the time comes
as `now`, everything random came with the event, and the same snapshot and events give the same decision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from stepkeep.kernel.composition.children import child_ended
from stepkeep.kernel.composition.flows import change_code
from stepkeep.kernel.composition.resuming import resume
from stepkeep.kernel.decide.checkpoints import checkpoint
from stepkeep.kernel.decide.decision import (
    Accepted,
    Claimer,
    Decision,
    Need,
    Reply,
    Snapshot,
    asked_json,
    check_requesters,
)
from stepkeep.kernel.decide.draft import Draft, Missing
from stepkeep.kernel.decide.execution import claim, report
from stepkeep.kernel.decide.execution_slots import grant_slot
from stepkeep.kernel.decide.notes import annotate, note_violation
from stepkeep.kernel.decide.pausing import pause, unpause
from stepkeep.kernel.decide.progress import begin, settle
from stepkeep.kernel.decide.rollup import roll_up
from stepkeep.kernel.decide.stopping import cancel_everything, fence_off, stop
from stepkeep.kernel.decide.stuck import decide_step
from stepkeep.kernel.decide.timers import meet_deadline, meet_waits, time_came
from stepkeep.kernel.decide.waits import accepts, deliver, take
from stepkeep.kernel.errors import Conflict, NotAllowed, Refused
from stepkeep.kernel.machine.events import (
    Annotated,
    CancelRequested,
    ChangesRequested,
    ChildEnded,
    CodeChanged,
    CompletionSignalled,
    EscalationRequested,
    Event,
    FlowResumed,
    GateDecided,
    GateReassigned,
    HoldDecided,
    MessageArrived,
    PauseRequested,
    Request,
    RunStarted,
    SlotGranted,
    StepCheckpointed,
    StepClaimed,
    StepReported,
    TimeCame,
    TokenReissued,
    UnpauseRequested,
    caller_of,
)
from stepkeep.kernel.machine.invariants import check_decision
from stepkeep.kernel.machine.rows import Message, Requesters, Step
from stepkeep.kernel.machine.states import (
    RUN_TERMINAL,
    OnFailure,
    RunState,
    StepState,
    StopCause,
)
from stepkeep.kernel.machine.tables import RunTrigger
from stepkeep.kernel.people.authority import admit
from stepkeep.kernel.people.changes import reassign, request_changes, request_escalation
from stepkeep.kernel.people.people import complete_by_hand, reissue_token
from stepkeep.kernel.people.votes import decide_gate


def decide(snapshot: Snapshot, events: Sequence[Event], now: int, claimer: Claimer | None = None) -> Decision | Need:
    """Decide on these events in order, as one transaction. `claimer` may claim steps that become ready by it.

    A refused event changes nothing and is answered with its refusal; the other events are not affected. If the snapshot
    lacks rows, the result is a Need, and nothing was decided.
    """
    draft = Draft(snapshot, now)
    try:
        replies = [_answer(draft, event) for event in events]
        if claimer is not None:
            _chain_claims(draft, claimer)
    except Missing as missing:
        return missing.need
    decision = draft.decision(replies)
    check_decision(snapshot.plan, decision)
    return decision


def _answer(draft: Draft, event: Event) -> Reply:
    if draft.due_at is not None and draft.due_at <= draft.now and type(event) in MEETS_DEADLINE:
        meet_deadline(draft, event)
        roll_up(draft)
    try:
        if isinstance(event, Request) and (caller := caller_of(event)) is not None:
            admit(draft.authority(caller), caller, draft.now)
        reply = HANDLERS[type(event)](draft, event)
    except Refused as refusal:
        if isinstance(refusal, NotAllowed) and refusal.step is not None and isinstance(event, Request):
            note_violation(draft, event, refusal)
        # A refusal is a value here. Its traceback would keep this draft and the decision that holds it alive.
        return refusal.with_traceback(None)
    roll_up(draft)
    return reply


def _chain_claims(draft: Draft, claimer: Claimer) -> None:
    """Claim the steps that a report made ready for the worker that reported, while it has free slots.

    Nothing is claimed if the run has other unclaimed steps: one of them may come first by its number, and only the
    claim query knows. The counters of the run show this, so that a report need not load those steps.
    """
    if draft.state is RunState.PAUSED:
        return
    new = [no for no in sorted(set(draft.ready)) if draft.step(no).state is StepState.READY]
    if draft.moving - draft.leased > len(new):
        return
    taken = blocking = 0
    for no in new:
        step = draft.step(no)
        if taken >= claimer.slots or step.queue not in claimer.queues or not draft.may_be_claimed(step):
            continue
        is_blocking = step.queue in claimer.blocking
        if is_blocking and blocking >= claimer.blocking_slots:
            continue
        lease = claimer.lease or draft.plan.definition.lease
        event = StepClaimed(
            tenant=step.tenant,
            run_id=step.run_id,
            actor=claimer.actor,
            no=no,
            worker=claimer.worker,
            owner=claimer.owner,
            lease=lease,
        )
        claim(draft, event)
        taken += 1
        blocking += is_blocking


def start(draft: Draft, event: RunStarted) -> Reply:
    if draft.state is not RunState.IDLE:
        if draft.state in RUN_TERMINAL:
            raise Conflict(f"run {event.run_id} is {draft.state}; it cannot be started again. Rerun it instead.")
        return Accepted({"state": draft.state}, repeated=True)
    draft.require(draft.plan.roots)
    if (involved := draft.snapshot.involved) is None:
        raise Missing(Need(duties=True))
    before = sorted(involved.requesters)
    if event.actor not in before:
        asked = asked_json((*before, event.actor))
        check_requesters(event.run_id, asked)
        draft.rows.put(Requesters, [Requesters(tenant=event.tenant, run_id=event.run_id, asked_before=asked)])
    draft.requested("run_started", event, {"asked_before": before} if Requesters in draft.rows else None)
    begin(draft)
    return Accepted({"state": draft.state})


def message(draft: Draft, event: MessageArrived) -> Reply:
    if event.id in draft.snapshot.seen or any(kept.id == event.id for kept in draft.rows.of(Message)):
        return Accepted({"id": event.id}, repeated=True)
    _refuse_ended(draft)
    if _listens(draft) and meet_waits(draft, event):
        roll_up(draft)
        _refuse_ended(draft)
    waiting = [
        step
        for step in (draft.waiting_steps(StepState.AWAITING_EVENT) if _listens(draft) else ())
        if step.note is not None and step.note.event == event.name and not draft.planned(step).kind.sleeps
    ]
    arrived = Message(
        tenant=event.tenant,
        run_id=event.run_id,
        id=event.id,
        number=(draft.seq << 20) + len(draft.rows.of(Message)),
        name=event.name,
        payload=event.payload,
        sender=event.actor,
        arrived_at=draft.now,
    )
    refusing: list[str] = []
    taker = _taker(draft, waiting, arrived, refusing)
    detail: dict[str, Any] = {"id": event.id, "name": event.name}
    detail |= {} if event.kept_at is None else {"kept_at": event.kept_at}
    draft.requested("message_arrived", event, detail | ({"refused_by": refusing} if refusing else {}))
    if taker is None:
        draft.keep_message(arrived)
        return Accepted({"id": event.id, "consumed_by": None})
    arrived = replace(arrived, consumed_by=taker.no)
    draft.keep_message(arrived)
    if draft.planned(taker).kind.wait is not None:
        settle(draft, take(draft, taker, arrived))
    else:
        deliver(draft, taker, arrived)
    return Accepted({"id": event.id, "consumed_by": arrived.consumed_by})


def _refuse_ended(draft: Draft) -> None:
    if draft.state in RUN_TERMINAL:
        raise Conflict(f"run {draft.run_id} is {draft.state}; it takes no more messages.")


def _taker(draft: Draft, waiting: Sequence[Step], message: Message, refusing: list[str]) -> Step | None:
    """The first of these steps that accepts the message; the names of those before it are added to `refusing`."""
    for step in waiting:
        if accepts(draft, step, message):
            return step
        refusing.append(draft.planned(step).name)
    return None


def _listens(draft: Draft) -> bool:
    return draft.state in (RunState.RUNNING, RunState.BLOCKED, RunState.PAUSED)


def cancel(draft: Draft, event: CancelRequested) -> Reply:
    if draft.state is RunState.CANCELLED:
        return Accepted({"state": draft.state}, repeated=True)
    if draft.state in RUN_TERMINAL:
        raise Conflict(
            f"run {event.run_id} has already ended ({draft.state}); a finished run cannot be cancelled. "
            "Start a new run instead.",
            {"state": draft.state, "ended_at": draft.ended_at},
        )
    if draft.state is RunState.COMPENSATING:
        return Accepted({"state": draft.state}, repeated=True)
    draft.every_step()
    detail: dict[str, Any] = {"compensate": event.compensate}
    draft.requested("cancel_requested", event, detail | ({"reason": event.reason} if event.reason else {}))
    if draft.state is RunState.STOPPING:
        fence_off(draft)
    elif event.compensate and draft.state is not RunState.IDLE:
        stop(
            draft,
            RunTrigger.UNDO_REQUESTED,
            cause=StopCause.CANCEL,
            policy=OnFailure.COMPENSATE,
            error=_cancelled_by(event),
        )
    else:
        draft.cause, draft.error = StopCause.CANCEL, _cancelled_by(event)
        cancel_everything(draft)
        draft.move_run(RunTrigger.CANCELLED)
    return Accepted({"state": draft.state})


def _cancelled_by(event: CancelRequested) -> str:
    return f"cancelled by {event.actor}" + (f": {event.reason}" if event.reason else "")


HANDLERS: dict[type[Event], Callable[[Draft, Any], Reply]] = {
    RunStarted: start,
    StepClaimed: claim,
    StepReported: report,
    FlowResumed: resume,
    StepCheckpointed: checkpoint,
    TimeCame: time_came,
    GateDecided: decide_gate,
    ChangesRequested: request_changes,
    EscalationRequested: request_escalation,
    GateReassigned: reassign,
    HoldDecided: decide_step,
    CodeChanged: change_code,
    CompletionSignalled: complete_by_hand,
    TokenReissued: reissue_token,
    MessageArrived: message,
    ChildEnded: child_ended,
    CancelRequested: cancel,
    PauseRequested: pause,
    UnpauseRequested: unpause,
    Annotated: annotate,
    SlotGranted: grant_slot,
}

MEETS_DEADLINE = frozenset(
    {
        StepClaimed,
        StepReported,
        FlowResumed,
        StepCheckpointed,
        GateDecided,
        ChangesRequested,
        EscalationRequested,
        GateReassigned,
        HoldDecided,
        CodeChanged,
        CompletionSignalled,
        TokenReissued,
        MessageArrived,
        Annotated,
        PauseRequested,
        UnpauseRequested,
        ChildEnded,
        SlotGranted,
    }
)
"""Events that go on with a run, or hold it back. If its timeout has passed, the run times out first, and they meet one
that stops or has ended."""
