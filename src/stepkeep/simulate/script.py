"""Chooses the next event in a world: the earliest one, according to the fates of that world.

Ready steps are claimed at once, claimed steps end, people answer and messages arrive. All of that takes no time unless
a fate says so. In a slow world everything takes its longest time. This module changes nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from stepkeep.kernel.decide.limits import free_places
from stepkeep.kernel.decide.resources import unlimited_grants
from stepkeep.kernel.decide.retry import may_retry
from stepkeep.kernel.definition import SECOND, Handler, StepDefinition, Then
from stepkeep.kernel.machine.events import (
    CancelRequested,
    ChildEnded,
    CompletionSignalled,
    Event,
    GateDecided,
    HoldChoice,
    HoldDecided,
    ManualOutcome,
    MessageArrived,
    RunStarted,
    StepClaimed,
    StepReported,
    TimeCame,
)
from stepkeep.kernel.machine.outcomes import (
    Added,
    Completed,
    Failed,
    NewCall,
    Outcome,
    RulesFailed,
    RulesPassed,
    Stopped,
    TimedOut,
)
from stepkeep.kernel.machine.rows import Edge, Step, is_exhausted
from stepkeep.kernel.machine.states import Category, OnFailure, Phase, RunState, StepState
from stepkeep.kernel.plan import ADDED, PlannedStep, written_template
from stepkeep.simulate.fates import Fate, FatePoint, Part, nuisance
from stepkeep.simulate.world import RUN_ID, TENANT, WALKED, WORKER, World

TOKEN = "simulate"  # noqa: S105 - the hash of a token that opens nothing
HEAD: dict[str, Any] = {"tenant": TENANT, "run_id": RUN_ID, "actor": "simulate"}


class Happening(NamedTuple):
    """An event and its time."""

    at: int
    event: Event


def upcoming(world: World) -> Happening | None:
    """The next event on this path; None if no event is left."""
    if world.run.state is RunState.IDLE:
        return Happening(world.now, RunStarted(**HEAD))
    if world.ready:
        return Happening(world.now, _claim(world, next(iter(world.ready))))
    first = _deviating(world)
    for row in world.live.values():
        if first is not None and first.at <= world.now:
            return first
        first = _sooner(first, _next_of(world, row))
    if world.run.due_at is not None:
        first = _sooner(first, Happening(world.run.due_at, TimeCame(**HEAD)))
    return first


def _deviating(world: World) -> Happening | None:
    """A deviation goes first, so that it happens while other attempts are in flight."""
    for what in world.deviations:
        row = world.live.get(what.place.key) if isinstance(what.place.key, int) else None
        if row is not None and what.place.part is not Part.RUN:
            return _next_of(world, row)
    return None


def _sooner(one: Happening | None, other: Happening | None) -> Happening | None:
    if one is None or other is None:
        return one or other
    return other if other.at < one.at else one


def _claim(world: World, no: int) -> StepClaimed:
    """A claim with one long lease, in place of a lease that is renewed until the attempt ends."""
    planned = world.stage.plan.at(no)
    lease = world.stage.plan.definition.lease
    row = world.rows[no]
    if Fate.LOSES_WORKERS not in (_fate(world, row, Part.WORK), _fate(world, row, Part.RULES)):
        lease += planned.timeout + SECOND
    given, places = unlimited_grants(planned), free_places(planned, row)
    return StepClaimed(**HEAD, no=no, worker=WORKER, lease=lease, resources=given, limits=places)


def _fate(world: World, row: Step, part: Part) -> Fate:
    """The fate of a step's work. A person who retries a held step has mended what was wrong, so it goes well then."""
    is_mended = row.note is not None and row.note.spent > 0
    return Fate.GOES_WELL if is_mended else world.fate(FatePoint(part, row.no))


def _next_of(world: World, row: Step) -> Happening | None:
    match row.state:
        case StepState.RUNNING | StepState.VALIDATING:
            return _in_flight(world, row)
        case StepState.RETRYING:
            return _when_due(row)
        case StepState.AWAITING_APPROVAL if is_exhausted(row):
            choice = _DECIDED.get(world.fate(FatePoint(Part.HOLD, row.no)), HoldChoice.RETRY)
            return _answered(world, row, Fate.GOES_WELL, HoldDecided(**HEAD, no=row.no, choice=choice))
        case StepState.AWAITING_APPROVAL:
            fate = world.fate(FatePoint(Part.GATE, row.no))
            return _answered(world, row, fate, GateDecided(**HEAD, no=row.no, approve=fate is not Fate.REJECTED))
        case StepState.AWAITING_EVENT if world.stage.plan.of(row).kind.sleeps:
            return _when_due(row)
        case StepState.AWAITING_EVENT:
            assert row.note is not None
            arrived = MessageArrived(**HEAD, id=f"m{row.no}", name=row.note.event or "", payload=b"{}")
            return _answered(world, row, world.fate(FatePoint(Part.WAIT, row.no)), arrived)
        case StepState.AWAITING_COMPLETION:
            fate = world.fate(FatePoint(Part.HAND, row.no))
            signal = CompletionSignalled(**HEAD, no=row.no, token=TOKEN, outcome=_BY_HAND.get(fate, _SUCCEEDED))
            return _answered(world, row, fate, signal)
        case StepState.AWAITING_CHILDREN if world.stage.plan.of(row).segment is not None:
            return _when_due(row)
        case StepState.AWAITING_CHILDREN if world.stage.plan.at(row.no).phase is Phase.UNDO:
            return _rollback(world, row)
        case StepState.AWAITING_CHILDREN:
            return _child(world, row)
        case _:
            return None


_DECIDED = {Fate.SKIPPED: HoldChoice.SKIP, Fate.FAILED: HoldChoice.FAIL}
_SUCCEEDED = ManualOutcome.SUCCEEDED
_BY_HAND = {Fate.COMPLETED_FAILED: ManualOutcome.FAILED, Fate.COMPLETED_CANCELLED: ManualOutcome.CANCELLED}


def _child(world: World, row: Step) -> Happening | None:
    """The end of a child, which is called back where the run stops. Its own paths are walked by themselves."""
    assert row.note is not None
    fate, state = world.fate(FatePoint(Part.CHILD, row.no)), RunState.CANCELLED
    if world.run.state is not RunState.STOPPING:
        state = _ENDS.get(fate, RunState.SUCCEEDED)
    elif world.fate(FatePoint(Part.FLIGHT)) is Fate.HEARS_NOTHING:
        return None
    activation = row.note.activation or 0
    ended = ChildEnded(
        **HEAD,
        no=row.no,
        activation=activation,
        child="child",
        state=state,
        error="simulated",
        partial=_leaves_something(world, row, state),
    )
    return _answered(world, row, fate, ended)


def _leaves_something(world: World, row: Step, state: RunState) -> bool:
    """Whether a child that ends like this leaves something. One that a rollback calls back undoes what it can."""
    ends = world.stage.ends_of(world.stage.plan.of(row))
    if world.run.state is RunState.STOPPING and world.run.policy is OnFailure.COMPENSATE:
        return bool(ends.leaves)
    return state in ends.leaves_when


_ENDS = {
    Fate.FAILS: RunState.FAILED,
    Fate.CHILD_CANCELLED: RunState.CANCELLED,
    Fate.CHILD_ROLLED_BACK: RunState.ROLLED_BACK,
}


def _rollback(world: World, row: Step) -> Happening | None:
    """The end of the rollback of a child. One that only leaves something found nothing that it could undo."""
    assert row.note is not None
    fate = world.fate(FatePoint(Part.ROLLBACK, row.no))
    leaves = fate is Fate.LEAVES_SOMETHING
    state = RunState.FAILED if fate is Fate.FAILS else RunState.CANCELLED if leaves else RunState.ROLLED_BACK
    activation = row.note.activation or 0
    ended = ChildEnded(**HEAD, no=row.no, activation=activation, child="rollback", state=state, partial=leaves)
    return Happening(world.now, ended)


def _when_due(row: Step) -> Happening | None:
    if row.due_at is None:
        return None
    # A lease is valid through its last microsecond; every other timer is due in it.
    return Happening(row.due_at + (row.worker is not None), TimeCame(**HEAD, no=row.no))


def _answered(world: World, row: Step, fate: Fate, answer: Event) -> Happening | None:
    """People and messages act at once, at the last moment, or never."""
    if fate is Fate.EXPIRES:
        return _when_due(row)
    if not world.slow:
        return Happening(world.now, answer)
    if row.due_at is not None:
        return Happening(row.due_at - 1, answer)
    return None if world.run.due_at is not None else Happening(world.now, answer)


def _in_flight(world: World, row: Step) -> Happening | None:
    planned = world.stage.plan.of(row)
    rules = row.state is StepState.VALIDATING or planned.phase is Phase.CHECK
    fate = _fate(world, row, Part.RULES if rules else Part.WORK)
    if world.run.state is RunState.STOPPING and fate is Fate.GOES_WELL:
        flight = world.fate(FatePoint(Part.FLIGHT))
        if flight is Fate.HEARS_NOTHING:
            return None
        if flight is Fate.STOPS and not rules:
            return Happening(world.now, _report(row, Stopped()))
    if fate is Fate.LOSES_WORKERS:
        return _when_due(row)
    if rules:
        broken = RulesFailed(error="a rule does not hold")
        return Happening(world.now, _report(row, broken if fate is Fate.BREAKS_RULES else RulesPassed()))
    if planned.has_pre and _fate(world, row, Part.FIRST) is Fate.BREAKS_RULES:
        unrun = Failed(category=Category.VALIDATION, error="a rule does not hold", final=True, unrun=True)
        return Happening(world.now, _report(row, unrun))
    took, outcome = _attempt(world, row, planned, fate)
    return Happening((row.claimed_at or 0) + took, _report(row, outcome))


def _attempt(world: World, row: Step, planned: PlannedStep, fate: Fate) -> tuple[int, Outcome]:
    """The duration of an attempt, and the outcome that its worker reports."""
    took = planned.timeout if world.slow else 0
    if fate is Fate.TIMES_OUT:
        return planned.timeout, TimedOut()
    if fate is Fate.KEEPS_FAILING:
        return took, Failed(category=nuisance(planned), error="it failed again")
    if fate is Fate.FAILS:
        return took, Failed(category=Category.VALIDATION, error="it failed for good", final=True)
    if world.slow and may_retry(planned.retry, Category.TIMEOUT, row.attempts + 1):
        return took, TimedOut()
    growth = planned.kind.growth
    if isinstance(growth, Then):
        return took, Added(output=b"{}", calls=_added(planned, growth))
    return took, Completed(output=b"{}", token=TOKEN)


def _added(planned: PlannedStep, growth: Then) -> tuple[NewCall, ...]:
    """Steps that stand for those which a handler adds: one behind the other, with the limits of the handler's step."""
    template = StepDefinition(
        name=planned.definition.name,
        order=0,
        executor=Handler(name="added"),
        timeout=planned.timeout,
        retry=planned.retry,
    )
    step = written_template(template)
    return tuple(
        NewCall(
            kind=ADDED,
            name=f"added {place}",
            digest="0",
            arguments=b"null",
            step=step,
            queue=planned.queue,
            after=(Edge(place - 1),) if place else (),
        )
        for place in range(min(WALKED, growth.max))
    )


def _report(row: Step, outcome: Outcome) -> StepReported:
    return StepReported(**HEAD, no=row.no, fence=row.fence, worker=WORKER, outcome=outcome)


def cancel(compensate: bool) -> CancelRequested:
    return CancelRequested(**HEAD, compensate=compensate)


def run_timeout() -> TimeCame:
    return TimeCame(**HEAD)
