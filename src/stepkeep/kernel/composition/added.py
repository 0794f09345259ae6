"""Steps that a handler adds at run time: their rows, and which of them begin.

The report of a step with `then` brings them, or that of a step which was added before. All are elements of the step
with `then`. It validates no template: workers and the service have read the list before. `execution` calls it;
`elements` has what the ends of added steps mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.composition.elements import succeed_with_added
from stepkeep.kernel.decide.draft import Draft
from stepkeep.kernel.decide.failure import Settled
from stepkeep.kernel.decide.progress import open_step, settle
from stepkeep.kernel.definition import Then
from stepkeep.kernel.machine.journal import payload_digest
from stepkeep.kernel.machine.outcomes import Added, NewCall
from stepkeep.kernel.machine.rows import Called, Edge, Grown, Note, Read, Step
from stepkeep.kernel.machine.states import AttemptState, Phase, RunState, StepState
from stepkeep.kernel.machine.tables import StepTrigger
from stepkeep.kernel.plan import PlannedStep


def owner_of(draft: Draft, step: Step) -> Step:
    """The step with `then` that owns what this step adds: itself, or the owner of an added step."""
    owner = draft.planned(step).owner
    return step if owner is None else draft.step(owner)


def is_stopping(owner: Step) -> bool:
    """Whether an added step has failed, so that the owner only waits for those that workers hold."""
    return owner.note is not None and owner.note.grown is not None and owner.note.grown.stops


def misfit_of_added(draft: Draft, step: Step, outcome: Added) -> str | None:
    """Why this step cannot add these steps; None if it can."""
    planned = draft.planned(step)
    above = planned if planned.owner is None else draft.plan.steps[planned.owner]
    growth = above.kind.growth
    if planned.phase is not Phase.MAIN or not isinstance(growth, Then):
        return _why_not(planned, above)
    if planned.has_rules or planned.by_hand:
        return "it returned steps to add, and it has rules or is completed by hand: add the steps in a step before it"
    owner = owner_of(draft, step)
    count = 0 if planned.owner is None else _grown(owner).count
    if count + len(outcome.calls) > growth.max:
        left = f"{growth.max - count} of {growth.max}" if count else f"{growth.max}"
        return f"it adds {len(outcome.calls)} steps, and its definition leaves room for {left}"
    names = [call.name for call in outcome.calls]
    if count:
        names += [row.note.call.name for row in _rows(draft, owner, count) if row.note and row.note.call]
    twice = sorted({name for name in names if names.count(name) > 1})
    return f"it adds {twice[0]!r}, and a step of that name was added before" if twice else None


def _why_not(planned: PlannedStep, above: PlannedStep) -> str:
    if planned.phase is not Phase.MAIN:
        return "it returned steps to add, and an undo step cannot add any"
    if above.kind.is_flow:
        return "it returned steps to add, and a flow and its calls add none: make further calls in the flow"
    said = "it returned steps to add, and its definition does not allow that"
    return f"{said}: declare `then: {{max_steps: N}}` at a step with a handler"


def await_added(draft: Draft, step: Step, outcome: Added) -> Settled | None:
    """The handler of the owner returned: its attempt has succeeded, and the owner awaits the steps that it added."""
    growth = draft.planned(step).kind.growth
    assert isinstance(growth, Then)
    draft.close_attempt(step, AttemptState.SUCCEEDED, outcome, output=outcome.output)
    if draft.state is RunState.STOPPING:
        draft.move(step, StepTrigger.CANCELLED, digest=payload_digest(outcome.output))
        return None
    deadline = None if growth.deadline is None else draft.now + growth.deadline
    note = replace(step.note or Note(), grown=Grown(count=0, deadline=deadline), woken_by=None)
    _record(draft, draft.planned(step).name, outcome.calls)
    digest = payload_digest(outcome.output)
    draft.move(step, StepTrigger.CHILDREN_STARTED, due_at=deadline, digest=digest, note=note, category=None, error=None)
    added = _add_rows(draft, draft.step(step.no), outcome.calls)
    if not added:
        return succeed_with_added(draft, draft.step(step.no))
    open_added(draft, step.no, added)
    return None


def add_rows(draft: Draft, owner: Step, calls: Sequence[NewCall]) -> list[int]:
    """Add steps to those that an owner awaits already; returns their numbers. None of them has begun."""
    _record(draft, draft.planned(owner).name, calls)
    return _add_rows(draft, owner, calls)


def open_added(draft: Draft, owner: int, added: Sequence[int]) -> None:
    """Open the added steps that wait for no other. One that settles at once may end those behind it, or the owner."""
    for no in added:
        step = draft.step(no)
        if step.state is StepState.PENDING and not step.unmet and draft.state is not RunState.STOPPING:
            settle(draft, open_step(draft, step, of=owner))


def _add_rows(draft: Draft, owner: Step, calls: Sequence[NewCall]) -> list[int]:
    grown, run = _grown(owner), draft.snapshot.run
    segment = draft.planned(owner).segment
    assert segment is not None
    first, added = grown.count, []
    for place, call in enumerate(calls):
        called = _called(call, place, first, calls)
        row = Step(
            tenant=run.tenant,
            run_id=run.id,
            no=segment.element(first + place),
            queue=call.queue,
            priority=run.priority,
            unmet=called.needs,
            note=Note(call=called),
        )
        added.append(draft.add(row).no)
    if added:
        draft.only_hot = False
        more = replace(grown, count=first + len(added))
        draft.put(replace(owner, unmet=owner.unmet + len(added), note=replace(owner.note or Note(), grown=more)))
    return added


def _called(call: NewCall, place: int, first: int, calls: Sequence[NewCall]) -> Called:
    """A new step as its row has it: places count from the first step of the owner."""
    followers = [
        Edge(first + other, edge.allow) for other, one in enumerate(calls) for edge in one.after if edge.place == place
    ]
    return Called(
        kind=call.kind,
        name=call.name,
        digest=call.digest,
        arguments=call.arguments.decode(),
        step=call.step,
        queue=call.queue,
        undo_queue=call.undo_queue,
        needs=len(call.after),
        followers=tuple(followers),
        reads=tuple([Read(one.name, first + one.place) for one in call.reads]),
    )


def _rows(draft: Draft, owner: Step, count: int) -> list[Step]:
    segment = draft.planned(owner).segment
    assert segment is not None
    numbers = [segment.element(index) for index in range(count)]
    draft.require(numbers)
    return [draft.step(no) for no in numbers]


def _grown(owner: Step) -> Grown:
    assert owner.note is not None
    assert owner.note.grown is not None
    return owner.note.grown


def _record(draft: Draft, name: str, calls: Sequence[NewCall]) -> None:
    """Add to the cause of the hops that follow: what was added, as a judge needs it to follow the steps."""
    cause, told = draft.causes[-1], {name: {"calls": [_call_detail(call) for call in calls]}}
    detail = cause.detail or {}
    draft.causes[-1] = replace(cause, detail={**detail, "plan_grown": {**detail.get("plan_grown", {}), **told}})


class AddedCall(TypedDict):
    """An added step as the journal has it."""

    kind: str
    name: str
    arguments: str | None
    step: Any
    after: NotRequired[list[AddedEdge]]


class AddedEdge(TypedDict):
    """A step of the same list that an added step waits for, and the states of it that let this one begin."""

    place: int
    allow: list[str]


def _call_detail(call: NewCall) -> AddedCall:
    told: AddedCall = {
        "kind": call.kind,
        "name": call.name,
        "arguments": call.digest,
        "step": msgspec.json.decode(call.step),
    }
    if call.after:
        told["after"] = [{"place": edge.place, "allow": [state.value for state in edge.allow]} for edge in call.after]
    return told
