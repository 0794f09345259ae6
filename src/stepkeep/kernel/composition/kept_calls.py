"""The calls of a flow that a new run takes from an earlier one, and the keys of those that it makes again.

A flow takes the same way as long as it is given the same ends in the same order. So a prefix of its calls in the order
of their ends is adopted, cut at the first one that may not be. It reads no store. `adoption` chooses steps;
`operations/continuation/going_on.py` asks for calls.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from stepkeep.kernel.composition.adoption import (
    Choice,
    ContinuationRequest,
    Why,
    decided_anew,
    had_effect,
    has_begun,
    is_undone,
)
from stepkeep.kernel.composition.child_runs import CONTINUE
from stepkeep.kernel.composition.continuation import ContinuationKind
from stepkeep.kernel.decide.compensation import undo_plan
from stepkeep.kernel.machine.rows import Called, Grown, KeptKey, Note, Step
from stepkeep.kernel.machine.states import StepState
from stepkeep.kernel.plan import Plan

RESUMED = frozenset({Why.NOT_FINISHED, Why.UNDONE, Why.ELEMENTS})
"""Why a flow runs again and still takes what its calls came to."""


class CallFate(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a call that is not adopted."""

    row: Step
    choice: Choice
    kept: KeptKey | None = None


class FlowCourse(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of the calls of a flow that runs again.

    `adopted` are rows in the order of their ends, `again` the others in the order of their places. `grown` is what the
    flow's own step in the new run begins with. Where it `goes_on`, it is given its checkpoints.
    """

    owner: int
    adopted: tuple[Step, ...]
    again: tuple[CallFate, ...]
    grown: Grown | None
    goes_on: bool


def courses(
    plan: Plan,
    rows: Mapping[int, Step],
    choices: Sequence[Choice],
    asked: ContinuationRequest,
    undone: Collection[str],
    replanned: Collection[str] = (),
) -> list[FlowCourse]:
    """What becomes of the calls of each flow of the earlier run that runs again, and may take some of them."""
    found = []
    for choice in choices:
        no = plan.numbers.get(choice.name)
        if no is None or not plan.steps[no].kind.is_flow:
            continue
        adopts = choice.why in RESUMED or (choice.why is Why.CHOSEN and asked.call is not None)
        if adopts or (asked.how is ContinuationKind.RETRY and not choice.adopted):
            found.append(_course(plan, rows, no, asked, undone, choice.name in replanned, adopts=adopts))
    return found


def _course(
    plan: Plan,
    rows: Mapping[int, Step],
    owner: int,
    asked: ContinuationRequest,
    undone: Collection[str],
    replanned: bool,
    *,
    adopts: bool,
) -> FlowCourse:
    segment, note = plan.steps[owner].segment, rows[owner].note or Note()
    assert segment is not None
    calls = [rows[no] for no in sorted(rows) if segment.first <= no < segment.first + segment.width]
    adopted: list[Step] = []
    fates: dict[int, Choice] = {}
    cut = None if adopts else plan.steps[owner].name
    for row in sorted(calls, key=lambda row: (row.settled is None, row.settled or 0)):
        name = plan.at(row.no).name
        why = _why_again(plan, rows, row, rows[owner], asked, undone, replanned) if cut is None else Why.FOLLOWS
        if why is None:
            adopted.append(row)
            continue
        is_lasting = had_effect(row, plan.of(row)) and not is_undone(rows.get(plan.undo_no(row.no)))
        fates[row.no] = Choice(name=name, why=why, of=cut, may_repeat=is_lasting and name not in undone)
        cut = cut or name
    kept = _keys(plan, rows, note.grown, calls, fates, undone) if asked.how is ContinuationKind.RETRY else {}
    again = tuple([CallFate(row=rows[no], choice=fates[no], kept=kept.get(no - segment.first)) for no in sorted(fates)])
    taken = {row.no - segment.first for row in adopted}
    count, before = max(taken, default=-1) + 1, note.grown or Grown(count=0)
    grown = Grown(
        count=count,
        free=tuple([place for place in range(count) if place not in taken]),
        kept=tuple([one for place, one in sorted(kept.items()) if place not in taken]),
        code=before.code if taken else None,
        seen=min(len(taken), before.seen or 0) if taken else None,
    )
    goes_on = bool(taken) or (adopts and asked.how is ContinuationKind.RETRY)
    known = grown if goes_on or kept else None
    return FlowCourse(owner=owner, adopted=tuple(adopted), again=again, grown=known, goes_on=goes_on)


def _why_again(
    plan: Plan,
    rows: Mapping[int, Step],
    row: Step,
    owner: Step,
    asked: ContinuationRequest,
    undone: Collection[str],
    replanned: bool,
) -> Why | None:
    """Why a call is not adopted; None if it may be."""
    call = _called(row)
    if row.no == asked.call:
        return Why.CHOSEN
    if row.state not in (StepState.SUCCEEDED, StepState.SKIPPED) or call.kind == CONTINUE or _is_blamed(row, owner):
        return Why.NOT_FINISHED
    undo = rows.get(plan.undo_no(row.no))
    if plan.at(row.no).name in undone or (undo is not None and has_begun(undo)):
        return Why.UNDONE
    if (why := decided_anew(plan, rows, row.no, asked, replanned)) is not None:
        return why
    if row.state is StepState.SKIPPED and asked.how.owns_undo and undo_plan(plan, [row]).undone:
        return Why.IN_DOUBT
    return None


def _is_blamed(row: Step, owner: Step) -> bool:
    """Whether the flow failed because this call did. Where that is unknown, any failure of a call may be the reason."""
    if row.state is not StepState.SKIPPED or row.category is None:
        return False
    grown = None if owner.note is None else owner.note.grown
    blames = None if grown is None else grown.blames
    return owner.state is StepState.FAILED if blames is None else row.no in blames


def _keys(
    plan: Plan,
    rows: Mapping[int, Step],
    grown: Grown | None,
    calls: Sequence[Step],
    fates: Collection[int],
    undone: Collection[str],
) -> dict[int, KeptKey]:
    """The keys by the places of the calls that run again. A call keeps its key unless its undo was begun: then its
    effect is to happen once more."""
    found = {one.place: one for one in (() if grown is None else grown.kept)}
    for row in calls:
        call, planned = _called(row), plan.at(row.no)
        assert planned.index is not None
        found.pop(planned.index, None)
        undo = rows.get(plan.undo_no(row.no))
        is_undone_once = planned.name in undone or (undo is not None and has_begun(undo))
        if row.no in fates and row.fence and not is_undone_once:
            found[planned.index] = KeptKey(
                place=planned.index, kind=call.kind, name=call.name, digest=call.digest, run=call.key or row.run_id
            )
    return found


def _called(row: Step) -> Called:
    assert row.note is not None
    assert row.note.call is not None
    return row.note.call
