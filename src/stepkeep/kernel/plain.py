"""What most decisions are: a plain step is claimed, or it is done and the next one follows. Made without a draft.

Each has a form: an ordinary decision that `decide` made about a toy, with its names, numbers and times left blank.
Filled in, it is what `decide` would decide, to the byte. Whatever is not plain is left to `decide` itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.decide import decide
from stepkeep.kernel.decision import Accepted, Claimer, Decision, Need, Snapshot
from stepkeep.kernel.draft import HOP_BITS
from stepkeep.kernel.events import Event, StepClaimed, StepReported
from stepkeep.kernel.forms import CLAIMS, ENDS, HANDS_OVER, LEAVES, OPENS, Form
from stepkeep.kernel.invariants import check_decision
from stepkeep.kernel.journal import SealedEntry, chain
from stepkeep.kernel.outcomes import Completed
from stepkeep.kernel.plan import Plan, PlannedStep
from stepkeep.kernel.rows import Attempt, Run, Step
from stepkeep.kernel.states import RUN_TERMINAL, AttemptState, RunState, StepState

CLAIMED = Accepted()
DONE = Accepted({"state": StepState.SUCCEEDED})

_encode = msgspec.json.Encoder().encode


def decide_quickly(
    snapshot: Snapshot, events: Sequence[Event], now: int, claimer: Claimer | None = None
) -> Decision | Need:
    """What `decide` decides, and sooner where there is one event and it is a plain one."""
    if len(events) == 1:
        plain = decide_plainly(snapshot, events[0], now, claimer)
        if plain is not None:
            check_decision(snapshot.plan, plain)
            return plain
    return decide(snapshot, events, now, claimer)


def decide_plainly(snapshot: Snapshot, event: Event, now: int, claimer: Claimer | None) -> Decision | None:
    """The decision if it is a plain one."""
    if type(event) is StepReported:
        return _report(snapshot, event, now, claimer)
    if type(event) is StepClaimed and claimer is None:
        return _claim(snapshot, event, now)
    return None


def _claim(snapshot: Snapshot, event: StepClaimed, now: int) -> Decision | None:
    run, step = snapshot.run, snapshot.steps.get(event.no)
    form, now = CLAIMS.get(run.state), max(now, run.moved_at)
    if form is None or step is None or step.no >= snapshot.plan.size or step.state is not StepState.READY:
        return None
    if step.ready_at is None or step.ready_at > now or step.worker is not None or run.open == 0:
        return None
    fence, due_at = step.fence + 1, now + event.lease
    after, entry = _fill(form, run, now, (_encode(event.actor), step.no, fence, step.attempts + 1, due_at))
    held = replace(
        step, state=form.state, ready_at=None, due_at=due_at, fence=fence, worker=event.worker, claimed_at=now
    )
    return Decision(
        was=run.seq, run=after, replies=(CLAIMED,), changed=(held,), claimed=(held,), entry=entry, only_moves=True
    )


def _report(snapshot: Snapshot, event: StepReported, now: int, claimer: Claimer | None) -> Decision | None:
    run, step, outcome = snapshot.run, snapshot.steps.get(event.no), event.outcome
    if step is None or type(outcome) is not Completed or outcome.emit or not _goes_well(run):
        return None
    clock, now = now, max(now, run.moved_at)
    if not _is_held(step, event, now) or not _ends_plainly(snapshot.plan, step):
        return None
    sequel = _what_follows(snapshot, step, now, clock, claimer)
    if sequel is None:
        return None
    form, actors, numbers, follower = sequel
    number, took = step.attempts + 1, now - (step.claimed_at or 0)
    done = (step.no, step.fence, number, step.due_at, step.no, step.fence, number, took)
    after, entry = _fill(form, run, now, (_encode(event.actor), *actors, *done, *numbers))
    ended = replace(
        step,
        state=StepState.SUCCEEDED,
        due_at=None,
        worker=None,
        claimed_at=None,
        settled=(after.seq << HOP_BITS) + form.place,
        category=None,
        error=None,
    )
    attempt = Attempt(
        step.tenant,
        step.run_id,
        step.no,
        step.fence,
        number,
        AttemptState.SUCCEEDED,
        event.worker,
        step.claimed_at or 0,
        now,
        output=outcome.output,
        cost=outcome.cost,
    )
    return Decision(
        was=run.seq,
        run=replace(after, due_at=None, ended_at=now) if after.state in RUN_TERMINAL else after,
        replies=(DONE,),
        changed=(ended,) if follower is None else (ended, follower),
        claimed=() if follower is None or follower.worker is None else (follower,),
        attempts=(attempt,),
        entry=entry,
        only_moves=step.category is None and step.error is None,
    )


def _is_held(step: Step, event: StepReported, now: int) -> bool:
    """Whether the report comes from the holder of a lease that stands."""
    return (
        step.worker == event.worker
        and step.fence == event.fence
        and step.due_at is not None
        and step.due_at >= now
        and step.claimed_at is not None
        and step.state is StepState.RUNNING
    )


def _goes_well(run: Run) -> bool:
    return run.state is RunState.RUNNING and run.failed == 0 and run.category is None and run.error is None


def _ends_plainly(plan: Plan, step: Step) -> bool:
    """Whether a step whose handler returned is done."""
    if step.no >= plan.size or step.note is not None:
        return False
    planned = plan.steps[step.no]
    return not planned.by_hand and not planned.has_rules


def _opens_plainly(planned: PlannedStep) -> bool:
    """Whether a step is ready as soon as its dependencies are met."""
    about = planned.definition
    return planned.condition is None and about.approval is None and about.wait is None and about.hold is None


def _has_not_begun(step: Step) -> bool:
    return step.state is StepState.PENDING and step.unmet > 0 and step.fence == 0 and step.attempts == 0


class Sequel(NamedTuple):
    """What follows a step that is done: the form for it, what fills the blanks that are its own, and the next row."""

    form: Form
    actors: tuple[bytes, ...] = ()
    numbers: tuple[int, ...] = ()
    step: Step | None = None


def _what_follows(snapshot: Snapshot, step: Step, now: int, clock: int, claimer: Claimer | None) -> Sequel | None:
    run, plan = snapshot.run, snapshot.plan
    dependents = plan.steps[step.no].dependents
    if len(dependents) > 1:
        return None
    if not dependents:
        if run.open == 1:
            return None if plan.check is not None else Sequel(ENDS)
        return None if run.moving == 1 else Sequel(LEAVES)
    [(no, allow)] = dependents
    follower = snapshot.steps.get(no)
    if follower is None or not _has_not_begun(follower) or StepState.SUCCEEDED not in allow or run.open == 1:
        return None
    if follower.unmet > 1:
        return None if run.moving == 1 else Sequel(LEAVES, step=replace(follower, unmet=follower.unmet - 1))
    if not _opens_plainly(plan.steps[no]):
        return None
    if claimer is None or not _takes(claimer, follower):
        ready = replace(follower, state=OPENS.state, ready_at=clock, unmet=0)
        return Sequel(OPENS, numbers=(no, step.no), step=ready)
    due_at = now + (claimer.lease or plan.definition.lease)
    held = replace(
        follower, state=HANDS_OVER.state, due_at=due_at, fence=1, worker=claimer.worker, claimed_at=now, unmet=0
    )
    return Sequel(HANDS_OVER, (_encode(claimer.actor),), (no, step.no, no, due_at), held)


def _takes(claimer: Claimer, step: Step) -> bool:
    if claimer.room <= 0 or step.queue not in claimer.queues:
        return False
    return step.queue not in claimer.narrow or claimer.narrow_room > 0


def _fill(form: Form, run: Run, now: int, values: tuple[bytes | int | None, ...]) -> tuple[Run, SealedEntry]:
    """The run as it is after this decision, and the entry that says so."""
    tenant, run_id, seq = run.tenant, run.id, run.seq + 1
    body = form.text % (_encode(tenant), _encode(run_id), seq, now, *values)
    sealed = SealedEntry(tenant, run_id, seq, now, body, chain(run.head, body))
    after = replace(
        run,
        state=form.run_state,
        seq=seq,
        head=sealed.hash,
        open=run.open + form.open,
        moving=run.moving + form.moving,
        leased=run.leased + form.leased,
        moved_at=now,
    )
    return after, sealed
