"""Elements: the steps that a map, a loop, a choice or a handler adds to the plan of its run, and what their ends mean
for their owner.

The owner awaits its elements; an element's failure is told to the owner, never to the run. Of a map at most
`in_flight` elements are unsettled, so that a decision reads one element and its owner, however long the list is. The
owner's `unmet` counts the elements that have not settled. `progress.py` opens owners and tells of ends, `timers.py` of
due owners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.composition.child_runs import awaits_child, open_child, recall
from stepkeep.kernel.decide.draft import Draft
from stepkeep.kernel.decide.failure import CHILDREN, DEADLINE, Settled, fail_for_good
from stepkeep.kernel.decide.reading import outputs_of, view_of
from stepkeep.kernel.decide.stopping import CHILD_IN_DOUBT, cancel_step
from stepkeep.kernel.definition import Map
from stepkeep.kernel.errors import ExpressionError, InvariantBroken
from stepkeep.kernel.kinds import ChoiceStep, LoopStep, MapStep, StepKind, WorkStep
from stepkeep.kernel.machine.journal import payload_digest
from stepkeep.kernel.machine.rows import Grown, Limited, Note, Step
from stepkeep.kernel.machine.states import STEP_TERMINAL, Category, OnFailure, StepState
from stepkeep.kernel.machine.tables import StepTrigger
from stepkeep.kernel.plan import PlannedStep

NO_CASE = "no condition of its cases holds, and it has no default"
OUT_OF_TIME = "its elements did not end before the deadline"


class Beginning(msgspec.Struct, frozen=True):
    """How an owner begins: how many elements it has, as far as that is known, and how many begin at once.

    `items` are those of a map, `case` is the one that a choice takes, `limited` what that asks of its limits, `empty`
    the output without elements. `wrong` is why the owner fails.
    """

    count: int
    first: int
    items: bytes | None = None
    case: int | None = None
    limited: tuple[Limited, ...] = ()
    empty: bytes | None = None
    wrong: str | None = None


def grow(draft: Draft, step: Step, of: int | None = None) -> Settled | None:
    """Open a step that owns elements: fix how many a map has, or which case a choice takes, and add the first ones."""
    planned = draft.planned(step)
    growth = planned.kind.growth
    assert growth is not None
    deadline = None if growth.deadline is None else draft.now + growth.deadline
    try:
        found = OWNERS[type(planned.kind)].begin(draft, planned)
    except ExpressionError as error:
        found = Beginning(0, 0, wrong=f"its elements cannot be determined: {error}")
    count, case = found.count, found.case
    note = step.note or Note()
    _record(draft, planned.name, count, payload_digest(found.items), case)
    started = draft.move(
        replace(step, unmet=count),
        StepTrigger.CHILDREN_STARTED,
        of=of,
        due_at=deadline,
        note=replace(
            note,
            grown=Grown(count=count, deadline=deadline, case=case),
            limited=found.limited or note.limited,
        ),
    )
    if found.wrong is not None:
        return fail_for_good(draft, started, CHILDREN, Category.VALIDATION, found.wrong)
    for index in range(found.first) if case is None else (case,):
        _add(draft, planned, index)
    return None if count else _succeed(draft, started, found.empty)


def element_settled(draft: Draft, element: PlannedStep, news: Settled) -> Settled | None:
    """Tell the owner that one of its elements has settled. Returns the end of the owner, if that ends it."""
    assert element.owner is not None
    owner = draft.step(element.owner)
    if draft.plan.steps[element.owner].kind.is_flow:
        call_settled(draft, owner)
        return None
    if owner.state is not StepState.AWAITING_CHILDREN:
        return None
    grown = _grown(owner)
    owner = replace(owner, unmet=owner.unmet - 1)
    kind = draft.planned(owner).kind
    is_borne = kind.grows_by_report and _is_tolerated(draft, element)
    if news.state not in (StepState.SUCCEEDED, StepState.CANCELLED) and not is_borne:
        category, said = _why(draft, element, news)
        grown = replace(grown, failed=grown.failed + 1, category=category, error=said)
    if grown.stops:
        # It only waits for the elements that workers still hold. Of added steps, several may settle in one decision.
        if kind.grows_by_report:
            owner = replace(owner, unmet=len(_unsettled(draft, owner)))
        owner = _keep(draft, owner, grown)
        return None if owner.unmet else _fail(draft, owner)
    return OWNERS[type(kind)].go_on(draft, owner, grown, news)


def call_settled(draft: Draft, owner: Step) -> None:
    """A call of a flow has settled, whatever its end: a flow that awaits its calls may go on."""
    if owner.state in STEP_TERMINAL:
        return
    owner = replace(owner, unmet=owner.unmet - 1)
    if owner.state is StepState.AWAITING_CHILDREN:
        draft.make_ready(owner, StepTrigger.CHILDREN_SETTLED)
    else:
        # It runs, or is about to: its next suspension is told how many calls have settled.
        draft.put(owner)


def owner_due(draft: Draft, owner: Step) -> Settled | None:
    """The timer of an owner: its pause is over, its deadline has passed, or the time to wait for workers is up."""
    grown = _grown(owner)
    is_late = grown.deadline is not None and grown.deadline <= draft.now
    if not grown.stops and not is_late:
        if draft.planned(owner).kind.grows_by_report:
            return None
        return _next_of_loop(draft, owner, grown)
    for row in _unsettled(draft, owner) if owner.unmet else ():
        cancel_element(draft, row, owner.no)
    owner = replace(owner, unmet=0)
    if grown.stops:
        return _fail(draft, owner)
    return fail_for_good(draft, owner, DEADLINE, Category.TIMEOUT, OUT_OF_TIME)


def cancel_element(draft: Draft, row: Step, owner: int) -> None:
    """End an element that its owner awaits no longer: a child is called back, and what a worker does is in doubt."""
    if awaits_child(draft, row):
        recall(draft, row)
        draft.move(row, StepTrigger.CANCELLED, of=owner, error=CHILD_IN_DOUBT)
    else:
        cancel_step(draft, row, of=owner)


# -- maps --------------------------------------------------------------------------------------------------------------
def _begin_map(draft: Draft, planned: PlannedStep) -> Beginning:
    kind = planned.kind
    assert isinstance(kind, MapStep)
    count, items = kind.grower.items(view_of(draft, kind.grower))
    if count > kind.growth.max:
        said = f"its list has {count} items, and it takes at most {kind.growth.max}"
        return Beginning(0, 0, items=items, wrong=said)
    return Beginning(
        count, min(count, kind.growth.in_flight), items=items, empty=None if count else kind.grower.join(())
    )


def _map_goes_on(draft: Draft, owner: Step, grown: Grown, news: Settled) -> Settled | None:
    planned = draft.planned(owner)
    growth = planned.kind.growth
    assert isinstance(growth, Map)
    too_many = grown.failed > growth.tolerated(grown.count)
    if too_many and (growth.early_stop or not owner.unmet):
        return _stop(draft, owner, grown)
    owner = _keep(draft, owner, grown)
    if owner.unmet:
        index = grown.count - owner.unmet - 1 + growth.in_flight
        if index < grown.count:
            _add(draft, planned, index)
        return None
    try:
        return _succeed(draft, owner, _joined(draft, planned, grown))
    except ExpressionError as error:
        return fail_for_good(draft, owner, CHILDREN, Category.VALIDATION, f"its results cannot be joined: {error}")


def _joined(draft: Draft, planned: PlannedStep, grown: Grown) -> bytes:
    """The outputs in order of the list; an element that did not succeed has none."""
    segment, grower = planned.segment, planned.kind.grower
    assert segment is not None
    assert grower is not None
    numbers = [segment.element(index) for index in range(grown.count)]
    found = outputs_of(draft, numbers)
    if grown.failed:
        draft.require(numbers)
        has_ended_well = [draft.step(no).state is StepState.SUCCEEDED for no in numbers]
        found = [output if well else None for output, well in zip(found, has_ended_well, strict=True)]
    return grower.join(found)


# -- loops -------------------------------------------------------------------------------------------------------------
def _begin_loop(draft: Draft, planned: PlannedStep) -> Beginning:
    kind = planned.kind
    assert isinstance(kind, LoopStep)
    begins = kind.growth.as_long_as is None or kind.grower.goes_on(view_of(draft, kind.grower, index=0))
    return Beginning(int(begins), int(begins))


def _loop_goes_on(draft: Draft, owner: Step, grown: Grown, news: Settled) -> Settled | None:
    kind, index = draft.planned(owner).kind, grown.count - 1
    assert isinstance(kind, LoopStep)
    if news.state is not StepState.SUCCEEDED:
        return _stop(draft, owner, grown)
    growth, grower = kind.growth, kind.grower
    last = outputs_of(draft, [news.no])[0]
    seen = index if growth.until is not None else index + 1
    owner = _keep(draft, owner, grown)
    try:
        goes_on = grower.goes_on(view_of(draft, grower, index=seen, last=last))
    except ExpressionError as error:
        said = f"whether it goes on cannot be determined: {error}"
        return fail_for_good(draft, owner, CHILDREN, Category.VALIDATION, said)
    if not goes_on:
        return _succeed(draft, owner, last)
    if grown.count >= growth.max:
        said = f"it did not end within {growth.max} elements"
        return fail_for_good(draft, owner, CHILDREN, Category.VALIDATION, said)
    if growth.pause == 0:
        return _next_of_loop(draft, owner, grown)
    ends = draft.now + growth.pause
    draft.put(replace(owner, due_at=ends if grown.deadline is None else min(ends, grown.deadline)))
    return None


def _next_of_loop(draft: Draft, owner: Step, grown: Grown) -> Settled | None:
    _keep(draft, replace(owner, unmet=1, due_at=grown.deadline), replace(grown, count=grown.count + 1))
    _add(draft, draft.planned(owner), grown.count)
    return None


# -- choices -----------------------------------------------------------------------------------------------------------
def _choose(draft: Draft, planned: PlannedStep) -> Beginning:
    grower = planned.kind.grower
    assert grower is not None
    case = grower.chosen(view_of(draft, grower))
    if case is None:
        return Beginning(0, 0, wrong=NO_CASE)
    assert planned.segment is not None
    keys = draft.plan.at(planned.segment.element(case)).keys
    return Beginning(1, 1, case=case, limited=() if keys is None else keys.of(view_of(draft, keys)))


def _case_ended(draft: Draft, owner: Step, grown: Grown, news: Settled) -> Settled | None:
    if news.state is not StepState.SUCCEEDED:
        return _stop(draft, owner, grown)
    return _succeed(draft, _keep(draft, owner, grown), outputs_of(draft, [news.no])[0])


# -- steps that a handler added ----------------------------------------------------------------------------------------
def _is_tolerated(draft: Draft, element: PlannedStep) -> bool:
    """Whether an added step that did not succeed does not fail its owner: it may be skipped, it never began, or a
    person skipped it."""
    return element.definition.on_failure is OnFailure.SKIP or draft.step(element.no).category is None


def _begin_adding(draft: Draft, planned: PlannedStep) -> Beginning:
    raise InvariantBroken("a handler that adds steps runs before them")


def _added_ended(draft: Draft, owner: Step, grown: Grown, news: Settled) -> Settled | None:
    if grown.failed:
        return _stop(draft, owner, grown)
    owner = _keep(draft, owner, grown)
    return None if owner.unmet else succeed_with_added(draft, owner)


def succeed_with_added(draft: Draft, owner: Step) -> Settled | None:
    """All added steps have settled: the output of the owner has theirs by name. One that did not succeed has none."""
    planned, count = draft.planned(owner), _grown(owner).count
    segment, grower = planned.segment, planned.kind.grower
    assert segment is not None
    assert grower is not None
    numbers = [segment.element(index) for index in range(count)]
    draft.require(numbers)
    rows = [draft.step(no) for no in numbers]
    worked = [owner.no, *(row.no for row in rows if _is_told(row) is None and row.state is StepState.SUCCEEDED)]
    found = dict(zip(worked, outputs_of(draft, worked), strict=True))
    added = [(row.note.call.name, _is_told(row) or found.get(row.no)) for row in rows if row.note and row.note.call]
    try:
        return _succeed(draft, owner, grower.join_added(found[owner.no], added))
    except ExpressionError as error:
        return fail_for_good(draft, owner, CHILDREN, Category.VALIDATION, f"its results cannot be joined: {error}")


def _is_told(row: Step) -> bytes | None:
    """The output of a step that no worker ran: a decision, or messages."""
    return None if row.note is None or row.note.output is None else row.note.output.encode()


# -- all ---------------------------------------------------------------------------------------------------------------
class Owner(NamedTuple):
    """A kind that owns elements: how it begins, and how it goes on when one of them has settled."""

    begin: Callable[[Draft, PlannedStep], Beginning]
    go_on: Callable[[Draft, Step, Grown, Settled], Settled | None]


OWNERS: Mapping[type[StepKind], Owner] = {
    MapStep: Owner(_begin_map, _map_goes_on),
    LoopStep: Owner(_begin_loop, _loop_goes_on),
    ChoiceStep: Owner(_choose, _case_ended),
    WorkStep: Owner(_begin_adding, _added_ended),
}


def _add(draft: Draft, owner: PlannedStep, index: int) -> None:
    segment, run = owner.segment, draft.snapshot.run
    assert segment is not None
    no, queue = segment.element(index), draft.plan.element_queue(segment, index)
    step = draft.add(Step(tenant=run.tenant, run_id=run.id, no=no, queue=queue, priority=run.priority))
    if (known := draft.step(owner.no).note) is not None and known.limited:
        step = draft.noted(step, limited=known.limited)
    if draft.planned(step).kind.starts_child:
        open_child(draft, step, owner.no)
    else:
        draft.make_ready(step, StepTrigger.DEPENDENCIES_MET, of=owner.no)


def _stop(draft: Draft, owner: Step, grown: Grown) -> Settled | None:
    """No further element begins: those that no worker holds are cancelled, and the others may settle.

    A child run of an element is in flight like an attempt: it is called back, and its end settles the element.
    """
    left = 0
    for row in _unsettled(draft, owner) if owner.unmet else ():
        if row.worker is not None:
            left += 1
        elif awaits_child(draft, row):
            recall(draft, row)
            draft.put(replace(row, due_at=None))
            left += 1
        else:
            cancel_step(draft, row, of=owner.no)
    grown = replace(grown, stops=True)
    due_at = draft.now + draft.plan.definition.grace if left else None
    owner = _keep(draft, replace(owner, unmet=left, due_at=due_at), grown)
    return None if left else _fail(draft, owner)


def _unsettled(draft: Draft, owner: Step) -> list[Step]:
    segment = draft.planned(owner).segment
    assert segment is not None
    numbers = range(segment.first, segment.first + segment.width)
    return [row for row in draft.every_step() if row.no in numbers and row.state not in STEP_TERMINAL]


def _why(draft: Draft, element: PlannedStep, news: Settled) -> tuple[Category, str]:
    """Why an element did not succeed, as its owner repeats it."""
    row = draft.step(news.no)
    return row.category or Category.UNKNOWN, f"{element.name} failed: {row.error or row.state}"[:MAX_ERROR]


MAX_ERROR = 2_000
"""How much of an element's error its owner repeats."""


def _fail(draft: Draft, owner: Step) -> Settled | None:
    """Fail the owner for the reason that it stopped for."""
    grown = _grown(owner)
    assert grown.category is not None
    said = grown.error or ""
    if grown.failed > 1:
        said = f"{grown.failed} of {grown.count} elements failed, the last: {said}"
    return fail_for_good(draft, owner, CHILDREN, grown.category, said)


def _succeed(draft: Draft, owner: Step, output: bytes | None) -> Settled:
    digest = payload_digest(output)
    validating = draft.move(owner, StepTrigger.CHILDREN_SUCCEEDED, digest=digest)
    told: dict[str, Any] = {}
    if output is not None:
        told["note"] = replace(owner.note or Note(), output=output.decode())
    draft.move(validating, StepTrigger.RULES_PASSED, **told)
    return Settled(owner.no, StepState.SUCCEEDED)


def _keep(draft: Draft, owner: Step, grown: Grown) -> Step:
    """Keep the owner's row with this count of its elements."""
    if grown != _grown(owner):
        draft.only_hot = False
        owner = replace(owner, note=replace(owner.note or Note(), grown=grown))
    draft.put(owner)
    return owner


def _grown(owner: Step) -> Grown:
    assert owner.note is not None
    assert owner.note.grown is not None
    return owner.note.grown


def _record(draft: Draft, name: str, count: int, items: str | None, case: int | None) -> None:
    """Add to the cause of the hops that follow: the plan has grown by `count` elements. `items` is a digest, `case` the
    place of the case that a choice took."""
    cause, more = draft.causes[-1], {"items": items, "case": case}
    detail, told = cause.detail or {}, {"count": count} | {key: one for key, one in more.items() if one is not None}
    draft.causes[-1] = replace(cause, detail={**detail, "plan_grown": {**detail.get("plan_grown", {}), name: told}})
