"""The static proof: each transition of the engine is shown by a dialect as a legal arrow, no change, or a listed
extension.

The canonical tables are an argument. The product of canonical and shown state is explored completely, from creation on.
An unlisted arrow is a breach, and so is a listed one that no transition produces: the list of extensions is closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator
from copy import deepcopy
from typing import Any

import msgspec

from stepkeep.conformance.conduct import Conduct, Situation
from stepkeep.conformance.machines import MachineData, Machines
from stepkeep.dialects.dialect import Judged
from stepkeep.dialects.machine import ANY, MachineView
from stepkeep.dialects.projection import RunView, Seen

MOST_SITUATIONS = 500_000
"""Limit on the memory of a run view: unbounded memory would make the exploration endless."""

Pair = tuple[str | None, str]


class Breach(msgspec.Struct, frozen=True):
    """One disagreement between a dialect's machine file and the engine; `witness` is a shortest sequence of hops that
    shows it."""

    kind: str
    machine: str
    source: str | None
    target: str
    message: str
    witness: tuple[str, ...] = ()

    def __str__(self) -> str:
        way = f" Reached by: {', '.join(self.witness)}." if self.witness else ""
        return f"{self.machine} {self.source or '(new)'} → {self.target}: {self.kind}: {self.message}{way}"


class Refinement(msgspec.Struct, frozen=True):
    """The result of the exploration: breaches, the pairs that were reached, and the size of the product."""

    dialect: str
    breaches: tuple[Breach, ...]
    shown: dict[str, frozenset[Pair]]
    explored: int

    @property
    def holds(self) -> bool:
        return not self.breaches


def refine(judged: Judged, machines: Machines, *, size: int = 2) -> Refinement:
    """Explore every machine of a dialect against the canonical ones."""
    breaches: list[Breach] = []
    shown: dict[str, frozenset[Pair]] = {}
    explored = 0
    for name, product in _products(judged, machines, size):
        breaches += product.breaches()
        shown[name] = frozenset(product.pairs)
        explored += product.explored
    return Refinement(judged.name, tuple(breaches), shown, explored)


def _products(judged: Judged, machines: Machines, size: int) -> Iterator[tuple[str, Product]]:
    run = Product(judged.run, machines["run"])
    run.explore_run(judged.run_view(judged.run), Conduct(machines, size))
    yield "run", run
    views = [("step", judged.step)] + ([("worker", judged.worker)] if judged.worker is not None else [])
    for name, view in views:
        product = Product(view, machines[name])
        product.explore(machines[name][0])
        yield name, product


class Product:
    """Explore one machine of the dialect against its canonical one."""

    def __init__(self, view: MachineView, machine: MachineData) -> None:
        self.view = view
        self.arrows, self.terminal = machine
        self.pairs: dict[Pair, tuple[str, ...]] = {}
        self.unended: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.explored = 0
        self.endless = False

    # -- exploring ---------------------------------------------------------------------------------------------------
    def explore(self, arrows: Collection[tuple[str | None, str, str]]) -> None:
        """A machine on its own: pairs of (canonical state, shown state) from creation on."""
        start: tuple[str | None, str | None] = (None, None)
        ways: dict[tuple[str | None, str | None], tuple[str, ...]] = {start: ()}
        queue = deque([start])
        while queue:
            state, shown = here = queue.popleft()
            for source, trigger, target in sorted(arrows, key=str):
                if source != state:
                    continue
                after = self.view.next_shown(shown, target, trigger)
                way = (*ways[here], trigger)
                self._note(shown, after, way, repeated=self.view.repeated(shown, trigger))
                self._note_end(target, after, way)
                if (target, after) not in ways:
                    ways[target, after] = way
                    queue.append((target, after))
        self.explored = len(ways)

    def explore_run(self, view: RunView, conduct: Conduct) -> None:
        """The run machine: situations of the run, combined with the memory of the dialect's view."""
        queue: deque[tuple[Situation, RunView, Way | None]] = deque([(conduct.start, view, None)])
        met = {(conduct.start, _memory(view))}
        while queue:
            situation, before, way = queue.popleft()
            for seen, after in conduct.hops(situation):
                now = _copied(before)
                told = now.feed(seen)
                onward = Way(seen, way)
                if told is not None and told != before.shown:
                    self._note(before.shown, told, onward)
                    now.shown = told
                if seen.kind == "run":
                    self._note_end(seen.target, now.shown, onward)
                key = (after, _memory(now))
                if key not in met:
                    met.add(key)
                    queue.append((after, now, onward))
            if len(met) > MOST_SITUATIONS:
                self.endless = True
                break
        self.explored = len(met)

    def _note(self, before: str | None, after: str | None, way: Iterable[str], *, repeated: bool = False) -> None:
        if after is not None and (after != before or repeated) and (before, after) not in self.pairs:
            self.pairs[before, after] = tuple(way)

    def _note_end(self, canonical: str, shown: str | None, way: Iterable[str]) -> None:
        if canonical in self.terminal and shown not in self.view.terminal and canonical not in self.unended:
            self.unended[canonical] = (str(shown), tuple(way))

    # -- judging -----------------------------------------------------------------------------------------------------
    def breaches(self) -> Iterator[Breach]:
        view = self.view
        for (source, target), way in self.pairs.items():
            for kind, message in self._faults(source, target):
                yield Breach(kind, view.noun, source, target, message, way)
        for listed in view.extensions:
            if (listed.source, listed.target) not in self.pairs:
                said = "it is listed as an extension, but the engine never does it: take it off the list"
                yield Breach("unproduced", view.noun, listed.source, listed.target, said)
        for state in view.extra:
            if all(target != state for _, target in self.pairs):
                said = "it is listed as an extra state, but is never shown"
                yield Breach("unproduced", view.noun, None, state, said)
        for canonical, (shown, way) in self.unended.items():
            said = f"the thing has ended {canonical} and is shown {shown}, which is not an end"
            yield Breach("unended", view.noun, canonical, shown, said, way)
        known = {target for _, _, target in self.arrows}
        for state in view.shows:
            if state not in known:
                yield Breach("unknown", view.noun, None, state, "there is no such canonical state to show")
        triggers = {trigger for _, trigger, _ in self.arrows}
        for trigger in sorted((view.quiet | view.repeats) - triggers):
            yield Breach("unknown", view.noun, None, trigger, "there is no such canonical trigger")
        if self.endless:
            said = f"its view remembers so much that there are more than {MOST_SITUATIONS:,} situations"
            yield Breach("endless", view.noun, None, "", said)

    def _faults(self, source: str | None, target: str) -> Iterator[tuple[str, str]]:
        view = self.view
        legal, listed = view.legal(source, target), view.extended(source, target) is not None
        if target not in view.states and target not in view.extra:
            yield "unknown", "it shows a state that the dialect does not have"
        if not legal and not listed:
            yield "unlisted", "the engine does this; the specification has no such arrow and no extension lists it"
        if legal and listed:
            yield "needless", "the specification has this arrow itself: take it off the list of extensions"
        for ruled in view.forbidden:
            if ruled.source in (ANY, source) and ruled.target in (ANY, target):
                yield "forbidden", f"the specification rules this out ({ruled.cites})"
        if source in view.terminal and not listed:
            yield "terminal", "a terminal state is left"


class Way:
    """The hops that led to a situation, as a linked list that shares its prefixes."""

    __slots__ = ("before", "seen")

    def __init__(self, seen: Seen, before: Way | None) -> None:
        self.seen, self.before = seen, before

    def __iter__(self) -> Iterator[str]:
        steps = []
        way: Way | None = self
        while way is not None:
            steps.append(way.seen.trigger if way.seen.kind == "run" else f"{way.seen.name} {way.seen.trigger}")
            way = way.before
        return reversed(steps)


def _copied(view: RunView) -> RunView:
    """A copy of the view with its own memory; the underlying machine is shared."""
    copied = object.__new__(type(view))
    for name, value in vars(view).items():
        setattr(copied, name, value if isinstance(value, MachineView | str | None) else deepcopy(value))
    return copied


def _memory(view: RunView) -> Hashable:
    return tuple((name, _frozen(value)) for name, value in vars(view).items() if not isinstance(value, MachineView))


def _frozen(value: Any) -> Hashable:
    if isinstance(value, dict):
        return frozenset((key, _frozen(item)) for key, item in value.items())
    if isinstance(value, set | frozenset):
        return frozenset(map(_frozen, value))
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
