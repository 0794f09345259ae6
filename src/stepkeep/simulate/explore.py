"""Enumerates the paths of a definition and walks them: the path without failures, one deviation at every point, then
pairs.

Paths share their beginning (a world is forked where one branches off) and their end (equal states are walked once). If
there are too many, an even sample is walked and the rest is counted. The budget counts decisions, not time, so that
every machine gives the same report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from stepkeep.kernel.composition.segments import read_element_name
from stepkeep.kernel.machine.events import StepClaimed
from stepkeep.kernel.machine.rows import is_exhausted
from stepkeep.kernel.machine.states import STEP_TERMINAL, Phase, RunState, StepState
from stepkeep.kernel.plan import Plan, PlannedStep
from stepkeep.simulate import script
from stepkeep.simulate.endings import Ending, ending_of
from stepkeep.simulate.fates import Deviation, Fate, FatePoint, Part, case_place, deviation, fates_of
from stepkeep.simulate.script import upcoming
from stepkeep.simulate.world import Stage, World, cases_of

Progress = Callable[[int, int], None]
Offer = tuple[FatePoint, Fate]

WORK = 4_000_000
"""The total budget: a decision costs 16, each of its rows 1. About twenty seconds."""
KEPT_ROWS = 2_000_000
"""How many rows are kept for second deviations: about two hundred megabytes."""
PILOT = 24
LARGE = 500
SLOW_ENDS = 40
NAMED = 3

INTERRUPTIONS = (Fate.CANCELLED, Fate.CANCELLED_AND_UNDONE, Fate.RUN_TIMES_OUT)


class Walked(NamedTuple):
    """All endings; `unwalked` is the number of paths that are known but were not walked."""

    endings: list[Ending]
    slowest: list[Ending]
    unwalked: int


class Tail(NamedTuple):
    """The outcome of a state, and the time until then."""

    ending: Ending
    took: int


class Explorer:
    """One exploration of one definition."""

    def __init__(self, stage: Stage, *, max_paths: int, pairs: bool = False, progress: Progress | None = None) -> None:
        self._stage, self._max, self._pairs = stage, max_paths, pairs
        self._tell = progress or (lambda done, total: None)
        self._tails: dict[object, Tail] = {}
        self._queue: list[tuple[World, Offer]] = []
        self._kept = 0
        self._endings: list[Ending] = []
        self._unwalked = 0
        self._total = 0
        self._patience = 1_000 + 400 * stage.plan.size

    def explore(self) -> Walked:
        slowest = self._slowest()
        total = self._walk_base(None)
        keep = min(total, self._max)
        if total > LARGE:
            keep = min(keep, self._affordable(total))
        self._total = keep
        if total <= LARGE or keep != PILOT:
            self._forget()
            self._walk_base(_Sample(total, keep))
        self._unwalked += total - keep
        self._walk_queue()
        return Walked(self._endings, slowest, self._unwalked)

    # -- the base path, and one deviation ----------------------------------------------------------------------------
    def _walk_base(self, sample: _Sample | None) -> int:
        """Walk the path without failures. Without a sample, only count what branches off."""
        world, offered, asked = World.born(self._stage), 0, set[FatePoint]()
        while not world.over and (coming := upcoming(world)) is not None:
            if not isinstance(coming.event, StepClaimed) or world.run.state is RunState.QUEUED:
                for offer in self._first_offers(world):
                    offered += 1
                    if sample is not None and sample.takes():
                        self._walk(self._take(world, offer), level=1)
            world.now = max(world.now, coming.at)
            decision = world.decide(coming.event)
            for place in dict.fromkeys(self._stage.asked):
                for offer in self._answers(place) if place not in asked else ():
                    offered += 1
                    if sample is not None and sample.takes():
                        self._walk(self._take(world, offer), level=1)
                asked.add(place)
            world.apply(decision)
        if sample is not None:
            self._endings.insert(0, ending_of(world))
        return offered

    def _answers(self, place: FatePoint) -> list[Offer]:
        """Every other answer to a condition or a choice than that of the base path."""
        if place.part is Part.CONDITION:
            return [(place, fate) for fate in (Fate.IS_FALSE, Fate.IS_BROKEN)]
        assert isinstance(place.key, str)
        cases = cases_of(self._stage.plan.steps[self._stage.plan.numbers[place.key]].definition)
        offers = [(case_place(place.key, number), Fate.IS_TAKEN) for number in range(1, len(cases))]
        if cases[-1].when is not None:
            offers.append((place, Fate.IS_FALSE))
        return [*offers, (place, Fate.IS_BROKEN)]

    def _first_offers(self, world: World) -> Iterator[Offer]:
        plan = self._stage.plan
        if world.run.state in (RunState.STOPPING, RunState.COMPENSATING):
            return
        fresh, world.fresh = world.fresh, []
        for no in fresh:
            if no in world.live:
                yield from fates_of(plan.at(no), world.live[no].state, self._stage.ends_of(plan.at(no)))
        for fate in INTERRUPTIONS:
            if fate is Fate.CANCELLED_AND_UNDONE and not self._stage.effects:
                continue
            if fate is Fate.RUN_TIMES_OUT and world.run.due_at is None:
                continue
            yield FatePoint(Part.RUN), fate

    # -- a second deviation --------------------------------------------------------------------------------------------
    def _second_offers(self, world: World) -> Iterator[Offer]:
        """Second deviations: decisions about held steps, undo steps that fail, failures of a case that the base path
        does not take, attempts in flight when the run stops, and a cancel in between."""
        plan, fresh = self._stage.plan, world.fresh
        world.fresh = []
        state = world.run.state
        for no in fresh:
            row = world.live.get(no)
            if row is not None and (self._pairs or is_exhausted(row) or self._is_other(world, plan.at(no))):
                offers = fates_of(plan.at(no), row.state, self._stage.ends_of(plan.at(no)))
                yield from (offer for offer in offers if offer[0] not in world.fates)
        if state in (RunState.STOPPING, RunState.COMPENSATING) and state not in world.seen:
            world.seen |= {state}
            if state is RunState.STOPPING:
                yield from ((FatePoint(Part.FLIGHT), fate) for fate in (Fate.STOPS, Fate.HEARS_NOTHING))
            yield FatePoint(Part.RUN), Fate.CANCELLED

    def _is_other(self, world: World, planned: PlannedStep) -> bool:
        """Whether it is an undo step, or a case that this path takes and the base path does not."""
        if planned.phase is Phase.UNDO or planned.owner is None or planned.index is None:
            return planned.phase is Phase.UNDO
        return case_place(planned.definition.name, planned.index) in world.fates

    def _walk_queue(self) -> None:
        queue, self._queue = self._queue, []
        room = max(0, self._max - len(self._endings))
        order = sorted(range(len(queue)), key=lambda place: place * 0.6180339887498949 % 1.0)
        chosen = sorted(order[:room])
        # Every prefix of a golden-ratio sequence is evenly spread, so an exhausted budget still leaves an even sample.
        if len(chosen) < len(queue) or self._stage.work > WORK // 2:
            chosen = order[:room]
        self._total = len(self._endings) + len(chosen)
        walked = 0
        for place in chosen:
            if self._stage.work > WORK:
                break
            world, offer = queue[place]
            self._walk(self._take(world, offer), level=2)
            walked += 1
        self._unwalked += len(queue) - walked

    # -- walking -------------------------------------------------------------------------------------------------------
    def _take(self, world: World, offer: Offer) -> World:
        """The world in which this deviation happens."""
        place, fate = offer
        twin = world.fork()
        twin.deviate(self._named(world, place, fate))
        if place.part is Part.RUN:
            self._interrupt(twin, fate)
        elif fate is Fate.LOSES_WORKERS:
            # The step was claimed as if it would succeed; its worker dies now, after its last renewal.
            twin.renew(self._stage.plan.definition.lease, place.key)
        return twin

    def _interrupt(self, world: World, fate: Fate) -> None:
        if fate is Fate.RUN_TIMES_OUT:
            assert world.run.due_at is not None
            world.now = max(world.now, world.run.due_at)
            world.renew(self._stage.plan.definition.lease)
            world.apply(world.decide(script.run_timeout()))
        else:
            world.apply(world.decide(script.cancel(fate is Fate.CANCELLED_AND_UNDONE)))

    def _named(self, world: World, place: FatePoint, fate: Fate) -> Deviation:
        plan = self._stage.plan
        if place.part is Part.RUN:
            return deviation(place, fate, _moment(world))
        if place.part is Part.CONDITION:
            steps = [step.name for step in plan.steps if step.definition.condition == place.key]
            return deviation(place, fate, f"the condition of {_few(steps)}", steps[0])
        if place.part is Part.CHOICE:
            assert isinstance(place.key, str)
            return deviation(place, fate, *_choice(plan, place.key))
        if place.part is Part.FLIGHT:
            return deviation(place, fate, "")
        assert isinstance(place.key, int)
        name = plan.at(place.key).name
        shown = "the run" if plan.at(place.key).phase is Phase.CHECK else name
        return deviation(place, fate, shown, plan.at(place.key).definition.name)

    def _walk(self, world: World, level: int) -> None:
        ending = self._to_the_end(world, level)
        self._endings.append(ending)
        self._tell(len(self._endings), self._total)

    def _to_the_end(self, world: World, level: int) -> Ending:
        watched = world.deviations[-1].place.key if world.deviations else None
        mark: tuple[object, int] | None = None
        known: Tail | None = None
        while not world.over and known is None and world.events < self._patience:
            coming = upcoming(world)
            if coming is None:
                break
            if level == 1 and not isinstance(coming.event, StepClaimed):
                self._remember(world)
            world.now = max(world.now, coming.at)
            world.apply(world.decide(coming.event))
            if mark is None and isinstance(watched, int) and self._settled(world, watched):
                mark = (self._signature(world, level), world.now)
                known = self._tails.get(mark[0])
        if known is not None and mark is not None:
            return replace(known.ending, deviations=world.deviations, elapsed=mark[1] + known.took)
        ending = ending_of(world)
        if mark is not None:
            self._tails[mark[0]] = Tail(ending, ending.elapsed - mark[1])
        return ending

    def _remember(self, world: World) -> None:
        offers = list(self._second_offers(world))
        if not offers:
            return
        if self._kept > KEPT_ROWS:
            self._unwalked += len(offers)
            return
        here = world.fork()
        self._kept += len(here.rows)
        self._queue += [(here, offer) for offer in offers if _sensible(here, offer)]

    def _settled(self, world: World, no: int) -> bool:
        row = world.rows.get(no)
        return row is not None and row.state in STEP_TERMINAL

    def _signature(self, world: World, level: int) -> object:
        """Everything that the rest of the path depends on: equal signatures have equal endings and durations."""
        run, now, size = world.run, world.now, self._stage.plan.size
        ahead = [pair for pair in world.fates.items() if isinstance(pair[0].key, str) or pair[0].key in world.live]
        hooked = [
            row
            for no in self._stage.effects
            if (row := world.rows.get(no)) is not None and row.state is StepState.SUCCEEDED
        ]
        return (
            level,
            (run.state, run.cause, run.policy, run.rollback, run.failed, run.due_at and run.due_at - now),
            tuple([row.state for row in world.rows.values()]),
            tuple([(no, row.attempts, row.losses, row.due_at and row.due_at - now) for no, row in world.live.items()]),
            tuple([row.no for row in sorted(hooked, key=lambda row: row.settled or 0)]),
            tuple(sorted(no for no in world.rows if no >= size)),
            (world.done, world.unsure, world.slow),
            frozenset(ahead),
        )

    # -- as long as it may take ----------------------------------------------------------------------------------------
    def _slowest(self) -> list[Ending]:
        """Everything takes its longest time and succeeds; or does so until one step has timed out for good."""
        slow = deviation(FatePoint(Part.RUN), Fate.SLOW, "")
        every = self._stage.plan.steps
        steps = [planned for planned in every if planned.executor is not None and planned.segment is None]
        sample = _Sample(len(steps), min(len(steps), SLOW_ENDS))
        # The last step has the longest path before it.
        chosen = [planned for planned in reversed(steps) if sample.takes()]
        found = []
        for planned in (None, *chosen):
            world = World.born(self._stage)
            world.slow, world.deviations = True, (slow,)
            if planned is not None:
                place = FatePoint(Part.WORK, planned.no)
                world.deviate(self._named(world, place, Fate.TIMES_OUT))
            found.append(self._to_the_end(world, level=3))
            if self._stage.work > WORK // 4:
                break
        return [*found, *self._slow_rollback(slow)]

    def _slow_rollback(self, slow: Deviation) -> list[Ending]:
        """The run times out just before its end, and every undo step takes its longest time."""
        world, last = World.born(self._stage), None
        while not world.over and (coming := upcoming(world)) is not None:
            if world.run.due_at is not None and not isinstance(coming.event, StepClaimed):
                last = world.fork() if self._stage.plan.undos or last is None else last
            world.now = max(world.now, coming.at)
            world.apply(world.decide(coming.event))
        if last is None:
            return []
        late = self._take(last, (FatePoint(Part.RUN), Fate.RUN_TIMES_OUT))
        late.slow, late.deviations = True, (*late.deviations, slow)
        return [self._to_the_end(late, level=3)]

    def _affordable(self, total: int) -> int:
        """Estimate how many paths the budget allows, from a few paths that are walked and kept."""
        before = self._stage.work
        self._walk_base(_Sample(total, PILOT))
        each = max(1, (self._stage.work - before) // PILOT)
        return max(PILOT, (WORK - self._stage.work) // each)

    def _forget(self) -> None:
        """Drop the paths of the estimate: another number of paths is walked."""
        self._endings, self._queue, self._kept, self._unwalked = [], [], 0, 0
        self._tails.clear()


def _choice(plan: Plan, key: str) -> tuple[str, str]:
    """How a choice or a case of one is told, and the name of its step."""
    if (named := read_element_name(key)) is None:
        return key, key
    _, step, case = named
    return f"{step} takes {cases_of(plan.steps[plan.numbers[step]].definition)[case].name}", step


class _Sample:
    """Answers True to `keep` of `total` questions, evenly spread."""

    def __init__(self, total: int, keep: int) -> None:
        self._total, self._keep, self._asked = max(1, total), keep, 0

    def takes(self) -> bool:
        before = self._asked * self._keep // self._total
        self._asked += 1
        return self._asked * self._keep // self._total > before


def _sensible(world: World, offer: Offer) -> bool:
    """Skip the deviation for what is in flight if no other attempt, and no other child, is in flight."""
    if offer[0].part is not Part.FLIGHT:
        return True
    deviating = {place.key for place in world.fates}
    plan = world.stage.plan
    flying = [no for no, row in world.live.items() if row.worker is not None or plan.of(row).kind.child is not None]
    return any(no not in deviating for no in flying)


def _moment(world: World) -> str:
    if world.run.state in (RunState.IDLE, RunState.QUEUED):
        return f"while the run is {world.run.state}"
    if world.run.state in (RunState.STOPPING, RunState.COMPENSATING):
        return f"while the run is {world.run.state}"
    if world.run.state is RunState.VALIDATING:
        return "while the run's rules are judged"
    return f"while {_few([world.name(no) for no in sorted(world.live)])} {_doing(world)}"


def _doing(world: World) -> str:
    one = len(world.live) == 1
    if all(row.worker is None for row in world.live.values()):
        return "waits" if one else "wait"
    if all(row.state is StepState.VALIDATING for row in world.live.values()):
        return "is judged" if one else "are judged"
    return "runs" if one else "run"


def _few(names: list[str]) -> str:
    if len(names) > NAMED:
        return f"{', '.join(names[:NAMED])} and {len(names) - NAMED:,} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
