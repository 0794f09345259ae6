"""Flows: a step whose handler is a coroutine, and whose calls are steps of its run.

The worker that runs a flow reports the calls that it makes for the first time, and the flow is suspended. The end of a
call makes it ready again. It knows no coroutine: a replay compares the calls with what is recorded here. `execution`
calls it for reports, `elements` for the ends of calls.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.composition.child_runs import CONTINUE
from stepkeep.kernel.composition.elements import cancel_element, owner_due
from stepkeep.kernel.decide.decision import Accepted, Reply
from stepkeep.kernel.decide.draft import HOP_BITS, Draft
from stepkeep.kernel.decide.failure import FAILED, Settled, fail_for_good
from stepkeep.kernel.decide.progress import open_step, settle
from stepkeep.kernel.definition import Flow
from stepkeep.kernel.errors import Conflict
from stepkeep.kernel.machine.events import CodeChanged
from stepkeep.kernel.machine.outcomes import NewCall, Suspended
from stepkeep.kernel.machine.rows import Called, Grown, Note, Step, is_unfit
from stepkeep.kernel.machine.states import STEP_TERMINAL, AttemptState, Category, RunState, StepState
from stepkeep.kernel.machine.tables import StepTrigger


def suspend(draft: Draft, step: Step, outcome: Suspended) -> Settled | None:
    """A flow has made new calls, or awaits earlier ones: its attempt ends, and each new call is a step."""
    growth = draft.planned(step).kind.growth
    assert isinstance(growth, Flow)
    known = None if step.note is None else step.note.grown
    limit = None if growth.deadline is None else draft.now + growth.deadline
    grown = Grown(count=0, deadline=limit) if known is None else known
    if grown.deadline is None:
        # An earlier run began it: the time for its calls begins with the first suspension here.
        grown = replace(grown, deadline=limit)
    settled = settled_calls(step)
    places, count = places_of(grown, len(outcome.calls))
    if count > growth.max:
        return _fail(draft, step, outcome, too_many_calls(growth))
    if not outcome.calls and not step.unmet and outcome.seen >= grown.count:
        return _fail(draft, step, outcome, "it awaits nothing: all its calls have settled")
    draft.close_attempt(step, AttemptState.WAITED, outcome)
    if draft.state is RunState.STOPPING:
        draft.move(step, StepTrigger.CANCELLED)
        return None
    waiting = draft.move(
        replace(step, unmet=step.unmet + len(outcome.calls)),
        StepTrigger.CHILDREN_STARTED,
        due_at=grown.deadline,
        note=replace(
            step.note or Note(),
            grown=replace(
                grown,
                count=count,
                free=grown.free[len(outcome.calls) :],
                kept=tuple([one for one in grown.kept if one.place not in places]),
                code=outcome.code or grown.code,
                seen=outcome.seen,
                continues=grown.continues or any(call.kind == CONTINUE for call in outcome.calls),
            ),
            woken_by=None,
        ),
    )
    if grown.deadline is not None and grown.deadline <= draft.now:
        return owner_due(draft, waiting)
    for index, call in zip(places, outcome.calls, strict=True):
        added = _add(draft, step.no, index, call, kept_key(grown, index, call))
        if index not in outcome.cancels:
            settle(draft, open_step(draft, added, of=step.no))
    _cancel(draft, step.no, outcome.cancels)
    owner = draft.step(step.no)
    if settled > outcome.seen or not owner.unmet:
        # One of its calls has settled since the worker looked, or it awaits none: nothing else would wake it.
        _wake(draft, owner)
    return None


def _cancel(draft: Draft, no: int, places: tuple[int, ...]) -> None:
    """End these calls of a flow. One that has settled stays as it is, and is undone with the run like every other."""
    segment = draft.plan.steps[no].segment
    assert segment is not None
    numbers = [segment.element(place) for place in places]
    draft.require(numbers)
    for row in map(draft.step, numbers):
        if row.state in STEP_TERMINAL:
            continue
        cancel_element(draft, row, no)
        owner = draft.step(no)
        draft.put(replace(owner, unmet=owner.unmet - 1))


def cancelled_now(draft: Draft, no: int, outcome: Suspended) -> list[tuple[int, int]]:
    """Numbers and fences of the calls that this decision has cancelled, if no other end came since the worker looked:
    then the flow knows every end that is on record."""
    owner, segment = draft.step(no), draft.plan.steps[no].segment
    assert segment is not None
    rows = [draft.step(segment.element(place)) for place in outcome.cancels]
    found = [row for row in rows if row.state is StepState.CANCELLED and (row.settled or 0) >> HOP_BITS == draft.seq]
    found.sort(key=lambda row: row.settled or 0)
    return [(row.no, row.fence) for row in found] if settled_calls(owner) == outcome.seen + len(found) else []


def too_many_calls(growth: Flow) -> str:
    """Why a flow fails that makes more calls than it may."""
    return f"it makes more than {growth.max} calls, as its definition allows; end it before by ctx.continue_as_new"


def settled_calls(step: Step) -> int:
    """How many of the calls of a flow have settled."""
    grown = None if step.note is None else step.note.grown
    return 0 if grown is None else grown.count - len(grown.free) - step.unmet


def places_of(grown: Grown, calls: int) -> tuple[list[int], int]:
    """The places of so many new calls, and how many places there are then: calls that an earlier run made and this one
    did not adopt come first, because the flow makes its calls in the same order."""
    filled = grown.free[:calls]
    count = grown.count + calls - len(filled)
    return [*filled, *range(grown.count, count)], count


def kept_key(grown: Grown, place: int, call: NewCall) -> str | None:
    """The run whose idempotency key a call keeps: it is the call of that run at this place, with equal arguments."""
    made = (place, call.kind, call.name, call.digest)
    return next((one.run for one in grown.kept if (one.place, one.kind, one.name, one.digest) == made), None)


def made_calls(step: Step, outcome: Suspended) -> int:
    """How many calls a flow has made with this report."""
    grown = None if step.note is None else step.note.grown
    return places_of(grown or Grown(count=0), len(outcome.calls))[1]


class CallRecord(TypedDict):
    """A call of a flow as the journal has it. `key`: the run whose idempotency key it keeps."""

    kind: str
    name: str
    arguments: str | None
    step: msgspec.Raw
    key: NotRequired[str]


class GrownRecord(TypedDict):
    """What a flow has called, and the places of the calls that it has cancelled."""

    calls: list[CallRecord]
    cancels: NotRequired[list[int]]


def calls_told(step: Step, outcome: Suspended) -> GrownRecord:
    """The new calls as the journal has them: what a judge needs to follow their steps."""
    calls: list[CallRecord] = [
        {"kind": call.kind, "name": call.name, "arguments": call.digest, "step": msgspec.Raw(call.step.encode())}
        for call in outcome.calls
    ]
    grown = None if step.note is None else step.note.grown
    if grown is not None and grown.kept:
        for place, call, one in zip(places_of(grown, len(calls))[0], outcome.calls, calls, strict=True):
            if (key := kept_key(grown, place, call)) is not None:
                one["key"] = key
    return {"calls": calls, "cancels": list(outcome.cancels)} if outcome.cancels else {"calls": calls}


def _fail(draft: Draft, step: Step, outcome: Suspended, said: str) -> Settled | None:
    category = Category.VALIDATION
    # As of every attempt that fails, its events are dropped with its result.
    draft.close_attempt(step, AttemptState.FAILED, replace(outcome, emit=()), category=category, error=said)
    return fail_for_good(draft, step, FAILED, category, said, attempts=step.attempts + 1)


def _add(draft: Draft, owner: int, index: int, call: NewCall, key: str | None) -> Step:
    segment, run = draft.plan.steps[owner].segment, draft.snapshot.run
    assert segment is not None
    called = Called(
        kind=call.kind,
        name=call.name,
        digest=call.digest,
        arguments=call.arguments.decode(),
        step=call.step,
        queue=call.queue,
        undo_queue=call.undo_queue,
        key=key,
    )
    return draft.add(
        Step(
            tenant=run.tenant,
            run_id=run.id,
            no=segment.element(index),
            queue=call.queue,
            priority=run.priority,
            note=Note(call=called),
        )
    )


MOST_TRIED = 20
"""How many digests of code that did not fit a flow remembers: the newest ones."""


def tried_code(note: Note, code: str) -> Note:
    """The note of a flow that has tried this code. While it holds, ends of calls are recorded without waking it."""
    return replace(note, tried=(*(one for one in note.tried if one != code), code)[-MOST_TRIED:])


def change_code(draft: Draft, event: CodeChanged) -> Reply:
    """A worker has code that was not tried for a flow that holds: it is ready once more."""
    step = draft.named(event.no)
    tried = () if step.note is None else step.note.tried
    if not is_unfit(step) or event.code in tried:
        why = "that code was tried" if is_unfit(step) else f"it is {step.state}, and holds for no other code"
        raise Conflict(f"step {event.no} of run {event.run_id} is not made ready for other code: {why}")
    draft.caused_by("code_changed", event.actor, {"step": draft.planned(step).name, "code": event.code})
    note = replace(step.note or Note(), exhausted=False, spent=step.attempts, began_at=None)
    draft.make_ready(step, StepTrigger.CODE_CHANGED, losses=0, note=note)
    return Accepted({"state": draft.step(event.no).state})


def _wake(draft: Draft, owner: Step) -> None:
    if owner.state is StepState.AWAITING_CHILDREN:
        draft.make_ready(owner, StepTrigger.CHILDREN_SETTLED)
