"""Explores every state of a case breadth first, and checks each decision and each state.

Every successor is a result of the production `decide`. When all states are known, the graph is walked backwards. From
every state a terminal state must be reachable through timers, workers and declared waits, without a cancel, a run
timeout or a fault. If a limit ends the exploration, each unexplored state is first driven to an end.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.decide.decide import decide
from stepkeep.kernel.decide.decision import Accepted, Decision, Snapshot
from stepkeep.kernel.errors import Broken
from stepkeep.kernel.machine.events import Event
from stepkeep.kernel.machine.rows import Run, Step
from stepkeep.kernel.machine.states import RUN_TERMINAL
from stepkeep_lab.invariants.journal import Arrow
from stepkeep_lab.invariants.rows import check_rows
from stepkeep_lab.invariants.violation import Violation
from stepkeep_lab.modelcheck import properties
from stepkeep_lab.modelcheck.actions import CAUSES, Action, Actions
from stepkeep_lab.modelcheck.backwards import first_without_way
from stepkeep_lab.modelcheck.family import Case
from stepkeep_lab.modelcheck.world import NOW, Codec, State, after, born, crashed, run_out


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A promise that does not hold, and the shortest way to where it does not."""

    case: str
    name: str
    what: str
    path: tuple[str, ...]


class Explored(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of one case. `complete` is False when the limit came before the last state.

    Then `edge` states were found but not left, and `beyond` more were passed on the way from these to an end.
    """

    case: str
    about: str
    states: int
    transitions: int
    probes: int
    depth: int
    endings: dict[str, int]
    complete: bool
    seconds: float
    edge: int = 0
    beyond: int = 0
    finding: Finding | None = None
    arrows: frozenset[Arrow] = frozenset()


class _Passed(NamedTuple):
    """A state on the way to an end: how it was come by, and where one can go from it."""

    label: str
    packed: bytes
    onwards: Iterator[tuple[str, bytes, bool]]


class Explorer:
    """One exploration."""

    def __init__(self, case: Case, limit: int) -> None:
        self.case, self.limit = case, limit
        self.plan = case.plan
        self.actions = Actions(case, self.plan)
        self.codec = Codec(self.plan)
        self.numbers: dict[bytes, int] = {}
        self.states: list[bytes] = []
        self.parents = array("I")
        self.helpful: tuple[array[int], array[int]] = (array("I"), array("I"))
        self.open: list[int] = []
        self.driven: set[bytes] = set()
        self.arrows: set[Arrow] = set()
        self.endings: dict[str, int] = {}
        self.sound: set[Step] = set()
        self.probed: set[tuple[Run, Step | None, Event]] = set()
        self.transitions = self.probes = self.depth = 0

    def explore(self) -> Explored:
        began = time.monotonic()
        finding = None
        try:
            complete = self._walk()
            for place in self.open:
                self._drive(place)
            self._all_end()
        except _Found as found:
            complete, finding = False, found.finding
        return Explored(
            case=self.case.name,
            about=self.case.about,
            states=len(self.states),
            transitions=self.transitions,
            probes=self.probes,
            depth=self.depth,
            endings=dict(sorted(self.endings.items())),
            complete=complete,
            seconds=round(time.monotonic() - began, 2),
            edge=len(self.open),
            beyond=len(self.driven.difference(self.numbers)),
            finding=finding,
            arrows=frozenset(self.arrows),
        )

    def _walk(self) -> bool:
        """Visit states in the order in which they were found; False when there are more than the limit."""
        self._add(born(self.plan, start=not self.case.starts_idle), 0)
        place, level = 0, len(self.states)
        while place < len(self.states) and len(self.states) < self.limit:
            if place == level:
                self.depth, level = self.depth + 1, len(self.states)
            self._expand(place)
            place += 1
        self.open = list(range(place, len(self.states)))
        return not self.open

    def _expand(self, place: int) -> None:
        state = self.codec.unpack(self.states[place])
        snapshot = state.snapshot(self.plan)
        self._probe(place, state, snapshot)
        if state.ended:
            return
        moved = False
        for action in self.actions.of(state):
            try:
                successor = self._follow(state, snapshot, action)
            except (Broken, Violation) as problem:
                raise self._found(problem, place, action.label) from problem
            if successor is None:
                continue
            self.transitions += 1
            target = self._add(successor, place, action.label)
            if action.by in CAUSES and target != place:
                moved = True
                self.helpful[0].append(place)
                self.helpful[1].append(target)
        if not moved:
            raise self._found(Violation("no dead end", f"{state.run.state}, and nothing can happen"), place)

    def _follow(self, state: State, snapshot: Snapshot, action: Action) -> State | None:
        """The state that this action leads to; None when the engine refuses it."""
        if action.crashes is not None:
            return crashed(state, action.crashes)
        if action.runs_out is not None:
            return run_out(state, action.runs_out)
        assert action.event is not None
        events = (action.event,) if action.resumes is None else (action.event, action.resumes)
        decision = decide(snapshot, events, action.now, action.claimer)
        assert isinstance(decision, Decision), "a whole snapshot leaves nothing to ask for"
        self.arrows.update(properties.between(self.plan, state, action, decision))
        return None if decision.entry is None else after(self.plan, state, decision)

    def _probe(self, place: int, state: State, snapshot: Snapshot) -> None:
        """What the answer may hang on is the run's row and that of the step in question: each pair is tried once."""
        for label, event, seen in self.actions.probes(state):
            about = (state.run, state.rows.get(getattr(event, "no", None) or 0), event)
            if about in self.probed:
                continue
            self.probed.add(about)
            self.probes += 1
            try:
                decision = decide(replace(snapshot, seen=seen) if seen else snapshot, (event,), NOW)
            except Broken as problem:
                raise self._found(problem, place, label) from problem
            if not isinstance(decision, Decision) or decision.entry is not None:
                name = "I1 terminal is final" if state.ended else _PROBED.get(label, "what is out of place is refused")
                raise self._found(Violation(name, f"{label} changed the run"), place, label)
            if label == "a stale report" and isinstance(decision.replies[0], Accepted):
                raise self._found(Violation("I3 stale reports are refused", "it was believed"), place, label)

    def _add(self, state: State, parent: int, label: str = "") -> int:
        packed = self.codec.pack(state)
        known = self.numbers.get(packed)
        if known is not None:
            return known
        number = self.numbers[packed] = len(self.states)
        self.states.append(packed)
        self.parents.append(parent)
        try:
            check_rows(self.plan, state.run, state.rows, state.inbox, self.sound)
        except Violation as problem:
            raise self._found(problem, parent, label) from problem
        if state.run.state in RUN_TERMINAL:
            self.endings[state.run.state] = self.endings.get(state.run.state, 0) + 1
        return number

    # -- from everywhere to an end -----------------------------------------------------------------------------------
    def _all_end(self) -> None:
        """Backwards from the ends, and from the edge of the exploration, each of whose states was driven to one."""
        lost = first_without_way(len(self.states), (*self._ends(), *self.open), *self.helpful)
        if lost is not None:
            raise self._endless(lost)

    def _ends(self) -> Iterator[int]:
        for number, packed in enumerate(self.states):
            if self.codec.unpack(packed).ended:
                yield number

    def _drive(self, place: int) -> None:
        """Find a way from this state to an end, or to one that is known to have a way; what it passes is checked."""
        way = [_Passed("", self.states[place], self._homewards(place, ()))]
        seen = {way[0].packed}
        while way:
            label, packed, ended = next(way[-1].onwards, ("", b"", False))
            if not packed:
                way.pop()
            elif ended or packed in self.driven:
                self.driven.update(passed.packed for passed in way)
                return
            elif packed not in seen:
                seen.add(packed)
                labels = (*(passed.label for passed in way[1:]), label)
                way.append(_Passed(label, packed, self._homewards(place, labels, packed)))
        raise self._endless(place)

    def _homewards(self, place: int, labels: tuple[str, ...], packed: bytes = b"") -> Iterator[tuple[str, bytes, bool]]:
        """The states that follow, those first that look closest to an end; whether each is one."""
        state = self.codec.unpack(packed or self.states[place])
        if state.ended:
            yield "", self.states[place], True
        snapshot = state.snapshot(self.plan)
        for action in sorted(
            (action for action in self.actions.of(state) if action.by in CAUSES), key=lambda action: action.detour
        ):
            try:
                successor = self._follow(state, snapshot, action)
                if successor is not None:
                    check_rows(self.plan, successor.run, successor.rows, successor.inbox, self.sound)
            except (Broken, Violation) as problem:
                raise self._found(problem, place, *labels, action.label) from problem
            if successor is not None:
                yield action.label, self.codec.pack(successor), successor.ended

    # -- what went wrong ---------------------------------------------------------------------------------------------
    def _endless(self, place: int) -> _Found:
        state = self.codec.unpack(self.states[place]).run.state
        return self._found(Violation("an end is reachable from everywhere", f"{state} forever"), place)

    def _found(self, problem: Broken | Violation, place: int, *last: str) -> _Found:
        name = problem.name if isinstance(problem, Violation) else type(problem).__name__
        what = problem.what if isinstance(problem, Violation) else str(problem)
        return _Found(Finding(case=self.case.name, name=name, what=what, path=(*self._path(place), *last)))

    def _path(self, place: int) -> list[str]:
        """The actions that lead there, worked out again: parents are remembered, labels are not."""
        chain = [place]
        while chain[-1]:
            chain.append(self.parents[chain[-1]])
        return [self._label(chain[step], chain[step - 1]) for step in range(len(chain) - 1, 0, -1)]

    def _label(self, source: int, target: int) -> str:
        state = self.codec.unpack(self.states[source])
        for action in self.actions.of(state):
            successor = self._follow(state, state.snapshot(self.plan), action)
            if successor is not None and self.codec.pack(successor) == self.states[target]:
                return action.label
        return "?"


_PROBED = {
    "a stale report": "I3 stale reports are refused",
    "a stranger's report": "I3 stale reports are refused",
    "a report under a fence not given out": "I3 stale reports are refused",
    "an early sweep": "timers fire when they are due",
    "an early sweep of the run": "timers fire when they are due",
    "a message again": "I6 no message twice",
    "a gate that is not open": "I11 one decision per gate",
    "a completion come too late": "I11 one decision per gate",
}


class _Found(Exception):
    """The walk is over: this was found."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        super().__init__(finding.name)
