"""What may happen to each part of a run, with its text for reports. Data only.

A fate belongs to a part (`FatePoint`): a step's handler, gate, hold, wait, manual completion, condition, rules before
or after its handler, the attempts in flight when the run stops, or the run as a whole. The first fate of each part is
success.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

import msgspec

from stepkeep.kernel.composition.segments import element_name
from stepkeep.kernel.decide.retry import may_retry
from stepkeep.kernel.definition import OnExhausted
from stepkeep.kernel.machine.states import NEVER_RETRIED, Category, Phase, StepState
from stepkeep.kernel.plan import PlannedStep
from stepkeep.simulate.children import UNKNOWN, ChildEnds


class Part(StrEnum):
    """Which part of a step (or of the run) a fate belongs to."""

    WORK = "work"
    GATE = "gate"
    HOLD = "hold"
    WAIT = "wait"
    HAND = "hand"
    CHILD = "child"
    ROLLBACK = "rollback"
    FIRST = "first"
    RULES = "rules"
    CONDITION = "condition"
    CHOICE = "choice"
    FLIGHT = "flight"
    RUN = "run"


class FatePoint(NamedTuple):
    """A part of the step with this number. Conditions use their text as the key, because equal conditions have equal
    results; choices use the name of their step, and their cases that of the element."""

    part: Part
    key: int | str = ""


def case_place(step: str, case: int) -> FatePoint:
    return FatePoint(Part.CHOICE, element_name(step, case))


class Fate(StrEnum):
    GOES_WELL = "goes_well"
    FAILS = "fails"
    KEEPS_FAILING = "keeps_failing"
    TIMES_OUT = "times_out"
    LOSES_WORKERS = "loses_workers"
    REJECTED = "rejected"
    SKIPPED = "skipped"
    FAILED = "failed"
    EXPIRES = "expires"
    COMPLETED_FAILED = "completed_failed"
    COMPLETED_CANCELLED = "completed_cancelled"
    BREAKS_RULES = "breaks_rules"
    IS_FALSE = "is_false"
    IS_BROKEN = "is_broken"
    IS_TAKEN = "is_taken"
    STOPS = "stops"
    HEARS_NOTHING = "hears_nothing"
    CANCELLED = "cancelled"
    CANCELLED_AND_UNDONE = "cancelled_and_undone"
    RUN_TIMES_OUT = "run_times_out"
    SLOW = "slow"
    CHILD_CANCELLED = "child_cancelled"
    CHILD_ROLLED_BACK = "child_rolled_back"
    LEAVES_SOMETHING = "leaves_something"


WORDS = {
    (Part.WORK, Fate.FAILS): "{step} fails for good",
    (Part.WORK, Fate.KEEPS_FAILING): "{step} fails at every attempt",
    (Part.WORK, Fate.TIMES_OUT): "{step} times out",
    (Part.WORK, Fate.LOSES_WORKERS): "{step} loses its workers",
    (Part.GATE, Fate.REJECTED): "{step} is rejected",
    (Part.GATE, Fate.EXPIRES): "{step} is not decided",
    (Part.HOLD, Fate.SKIPPED): "{step} is skipped by hand",
    (Part.HOLD, Fate.FAILED): "{step} is failed by hand",
    (Part.WAIT, Fate.EXPIRES): "nothing arrives for {step}",
    (Part.HAND, Fate.COMPLETED_FAILED): "{step} is completed as Failed",
    (Part.HAND, Fate.COMPLETED_CANCELLED): "{step} is completed as Cancelled",
    (Part.HAND, Fate.EXPIRES): "{step} is not completed",
    (Part.CHILD, Fate.FAILS): "the child of {step} fails",
    (Part.CHILD, Fate.CHILD_CANCELLED): "the child of {step} is cancelled",
    (Part.CHILD, Fate.CHILD_ROLLED_BACK): "the child of {step} is rolled back",
    (Part.CHILD, Fate.EXPIRES): "the child of {step} does not end in time",
    (Part.ROLLBACK, Fate.FAILS): "the rollback of a child fails in {step}",
    (Part.ROLLBACK, Fate.LEAVES_SOMETHING): "the rollback of a child leaves something in {step}",
    (Part.FIRST, Fate.BREAKS_RULES): "a rule before {step} does not hold",
    (Part.RULES, Fate.BREAKS_RULES): "{step} breaks its rules",
    (Part.RULES, Fate.LOSES_WORKERS): "{step} loses the workers that judge its rules",
    (Part.CONDITION, Fate.IS_FALSE): "{step} is false",
    (Part.CONDITION, Fate.IS_BROKEN): "{step} cannot be evaluated",
    (Part.CHOICE, Fate.IS_TAKEN): "{step}",
    (Part.CHOICE, Fate.IS_FALSE): "no condition of {step} holds",
    (Part.CHOICE, Fate.IS_BROKEN): "a condition of {step} cannot be evaluated",
    (Part.FLIGHT, Fate.STOPS): "what is in flight stops when told",
    (Part.FLIGHT, Fate.HEARS_NOTHING): "what is in flight is fenced off",
    (Part.RUN, Fate.CANCELLED): "cancelled {step}",
    (Part.RUN, Fate.CANCELLED_AND_UNDONE): "cancelled with undo {step}",
    (Part.RUN, Fate.RUN_TIMES_OUT): "the run times out {step}",
    (Part.RUN, Fate.SLOW): "everything takes as long as it may",
}


class Deviation(msgspec.Struct, frozen=True, kw_only=True):
    """One deviation from success. `step` is None if it concerns the run as a whole."""

    place: FatePoint
    fate: Fate
    step: str | None
    text: str


def deviation(place: FatePoint, fate: Fate, name: str, step: str | None = None) -> Deviation:
    return Deviation(place=place, fate=fate, step=step, text=WORDS[place.part, fate].format(step=name))


def fates_of(planned: PlannedStep, state: StepState, ends: ChildEnds = UNKNOWN) -> Iterator[tuple[FatePoint, Fate]]:
    """Every deviation that is possible for a step that has entered this state. `ends` tells of the child it starts."""
    no = planned.no
    match state:
        case StepState.RUNNING if planned.phase is Phase.CHECK:
            yield from ((FatePoint(Part.RULES, no), fate) for fate in (Fate.BREAKS_RULES, Fate.LOSES_WORKERS))
        case StepState.RUNNING:
            if planned.has_pre:
                yield FatePoint(Part.FIRST, no), Fate.BREAKS_RULES
            yield from ((FatePoint(Part.WORK, no), fate) for fate in _work(planned))
        case StepState.VALIDATING:
            yield from ((FatePoint(Part.RULES, no), fate) for fate in (Fate.BREAKS_RULES, Fate.LOSES_WORKERS))
        case StepState.AWAITING_APPROVAL if is_held(planned):
            if planned.phase is Phase.MAIN and planned.definition.on_exhausted is not OnExhausted.HOLD_REQUIRED:
                yield FatePoint(Part.HOLD, no), Fate.SKIPPED
            yield FatePoint(Part.HOLD, no), Fate.FAILED
        case StepState.AWAITING_APPROVAL:
            yield from ((FatePoint(Part.GATE, no), fate) for fate in (Fate.REJECTED, Fate.EXPIRES))
        case StepState.AWAITING_EVENT if planned.kind.sleeps:
            return
        case StepState.AWAITING_EVENT:
            yield FatePoint(Part.WAIT, no), Fate.EXPIRES
        case StepState.AWAITING_COMPLETION:
            fates = (Fate.COMPLETED_FAILED, Fate.COMPLETED_CANCELLED, Fate.EXPIRES)
            yield from ((FatePoint(Part.HAND, no), fate) for fate in fates)
        case StepState.AWAITING_CHILDREN if planned.phase is Phase.UNDO:
            yield FatePoint(Part.ROLLBACK, no), Fate.FAILS
            if ends.may_leave:
                yield FatePoint(Part.ROLLBACK, no), Fate.LEAVES_SOMETHING
        case StepState.AWAITING_CHILDREN if planned.segment is not None:
            return  # Its elements have fates of their own.
        case StepState.AWAITING_CHILDREN:
            if ends.fails:
                yield FatePoint(Part.CHILD, no), Fate.FAILS
            if ends.is_rolled_back:
                yield FatePoint(Part.CHILD, no), Fate.CHILD_ROLLED_BACK
            yield FatePoint(Part.CHILD, no), Fate.CHILD_CANCELLED
            child = planned.kind.child
            if ends.never_ends or (child is not None and child.deadline is not None):
                yield FatePoint(Part.CHILD, no), Fate.EXPIRES
        case _:
            return


def _work(planned: PlannedStep) -> Iterator[Fate]:
    yield Fate.FAILS
    if may_retry(planned.retry, nuisance(planned), 1):
        yield Fate.KEEPS_FAILING
    yield Fate.TIMES_OUT
    yield Fate.LOSES_WORKERS


def nuisance(planned: PlannedStep) -> Category:
    """A category of failure that this step retries, if any."""
    retried = [category for category in planned.retry.on if category not in NEVER_RETRIED]
    return next((category for category in retried if category is not Category.TIMEOUT), Category.VALIDATION)


def is_held(planned: PlannedStep) -> bool:
    """Whether this step waits for people only when no attempt is left."""
    return planned.stays_exhausted and (planned.phase is Phase.UNDO or planned.definition.hold is None)
