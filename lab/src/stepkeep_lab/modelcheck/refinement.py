"""The static proof: each transition of the engine is shown by a dialect as a legal arrow, no change, or a listed
extension, under a word that its ground covers.

`Conduct` is a model of a whole run, by the conditions that `history.py` checks in real journals. The product of it and
of what is shown is explored completely, from creation on. An unlisted arrow is a breach, and so is a listed one that no
transition produces: the list of extensions is closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from copy import copy
from typing import Any, NamedTuple

import msgspec

from stepkeep.conformance.contract import OPERATED
from stepkeep.conformance.history import MOVING, QUIET, WAITING
from stepkeep.conformance.machines import MachineData, Machines
from stepkeep.dialects.dialect import JudgedDialect
from stepkeep.dialects.grounds import FINAL, RUN_FACTS, STEP_GROUNDS, RunGrounds, Seen
from stepkeep.dialects.machine import ANY, Arrow, Extension, MachineView
from stepkeep.dialects.projection import ShownRunView

MOST_SITUATIONS = 500_000
"""Limit on the memory of a run view: unbounded memory would make the exploration endless."""

Pair = tuple[str | None, str]
Told = tuple[str | None, str, str, str]
"""A pair of shown states, with the canonical trigger and the ground on which it is shown."""


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
    """The result of the exploration: breaches, what was reached (with its grounds), and the size of the product."""

    dialect: str
    breaches: tuple[Breach, ...]
    told: dict[str, frozenset[Told]]
    explored: int

    @property
    def holds(self) -> bool:
        return not self.breaches

    @property
    def shown(self) -> dict[str, frozenset[Pair]]:
        """The pairs of states that were reached, by machine."""
        return {name: frozenset((source, target) for source, target, _, _ in told) for name, told in self.told.items()}


def refine(judged: JudgedDialect, machines: Machines, *, size: int = 2) -> Refinement:
    """Explore every machine of a dialect against the canonical ones."""
    breaches: list[Breach] = []
    told: dict[str, frozenset[Told]] = {}
    explored = 0
    for name, product in explore(judged, machines, size).items():
        breaches += product.breaches()
        told[name] = frozenset(product.told)
        explored += product.explored
    return Refinement(judged.name, tuple(breaches), told, explored)


def explore(judged: JudgedDialect, machines: Machines, size: int = 2) -> dict[str, Product]:
    """What the engine shows in every machine of a dialect; the lists of extensions play no part in it."""
    run = Product(judged.run, machines["run"])
    for finishes in (False, True) if judged.final else (False,):
        run.explore_run(judged.run_view(judged.run), Conduct(machines, size, finishes=finishes))
    products = {"run": run}
    views = [("step", judged.step)] + ([("worker", judged.worker)] if judged.worker is not None else [])
    for name, view in views:
        products[name] = Product(view, machines[name])
        products[name].explore(machines[name][0], STEP_GROUNDS if name == "step" else {})
    if judged.undo is not None:
        products["undo"] = Product(judged.undo, machines["step"])
        products["undo"].explore([row for row in machines["step"][0] if _of_a_hook(*row)], STEP_GROUNDS)
    return products


ROLLS_BACK = frozenset(
    {
        ("pending", "children_started", "awaiting_children"),
        ("awaiting_children", "children_succeeded", "validating"),
        ("awaiting_children", "children_failed", "failed"),
    }
)
"""Hops of an undo step that rolls a child back."""


def _of_a_hook(source: str | None, trigger: str, target: str) -> bool:
    """Whether an undo step may make this hop: it has no condition, gate, wait or rule, and is cancelled in time.
    A person only retries it. One that rolls a child back waits for that."""
    if (source, trigger, target) in ROLLS_BACK:
        return True
    if (
        trigger in OPERATED
        or target == "skipped"
        or target.startswith("awaiting_")
        or (source or "").startswith("awaiting_")
    ):
        return False
    if source == "pending":
        return trigger in ("dependencies_met", "cancelled")
    return trigger not in ("cancelled", "rules_failed", "denied", "denied_tolerated", "held", "adopted")


class Product:
    """Explore one machine of the dialect against its canonical one."""

    def __init__(self, view: MachineView, machine: MachineData) -> None:
        self.view = view
        self.arrows, self.terminal = machine
        self.told: dict[Told, tuple[str, ...]] = {}
        self.unended: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.explored = 0
        self.endless = False

    # -- exploring ---------------------------------------------------------------------------------------------------
    def explore(self, arrows: Collection[tuple[str | None, str, str]], grounds: Mapping[str, tuple[str, ...]]) -> None:
        """A machine on its own: pairs of (canonical state, shown state) from creation on, on every ground."""
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
                if after is not None and (after != shown or self.view.repeated(shown, trigger)):
                    for ground in grounds.get(trigger, (trigger,)):
                        self.told.setdefault((shown, after, trigger, ground), way)
                self._note_end(target, after, way)
                if (target, after) not in ways:
                    ways[target, after] = way
                    queue.append((target, after))
        self.explored = len(ways)

    def explore_run(self, view: ShownRunView, conduct: Conduct) -> None:
        """The run machine: situations of the run, combined with the memory of the dialect's view and of the grounds."""
        queue: deque[tuple[Situation, ShownRunView, RunGrounds, Witness | None]] = deque(
            [(conduct.start, view, RunGrounds(), None)]
        )
        met = {(conduct.start, _memory(view), _memory(RunGrounds()))}
        while queue:
            situation, before, known, way = queue.popleft()
            for seen, after in _with_facts(conduct.hops(situation)):
                now, grounds = _copied(before), copy(known)
                told, ground = now.feed(seen), grounds.feed(seen)
                onward = Witness(seen, way)
                if told is not None and told != before.shown:
                    # An arrow that follows the step's is written with the hop of the step: its claim.
                    because = "claimed" if ground in self.view.follows else seen.trigger
                    if (arrow := (before.shown, told, because, ground)) not in self.told:
                        self.told[arrow] = tuple(onward)
                    now.shown = told
                if seen.kind == "run":
                    self._note_end(seen.target, now.shown, onward)
                key = (after, _memory(now), _memory(grounds))
                if key not in met:
                    met.add(key)
                    queue.append((after, now, grounds, onward))
            if len(met) > MOST_SITUATIONS:
                self.endless = True
                break
        self.explored += len(met)

    def _note_end(self, canonical: str, shown: str | None, way: Iterable[str]) -> None:
        if canonical in self.terminal and shown not in self.view.terminal and canonical not in self.unended:
            self.unended[canonical] = (str(shown), tuple(way))

    # -- judging -----------------------------------------------------------------------------------------------------
    def breaches(self) -> Iterator[Breach]:
        view = self.view
        words = {told: view.word(*told) for told in self.told}
        pairs = {(source, target): way for (source, target, _, _), way in reversed(self.told.items())}
        for (source, target), way in pairs.items():
            for kind, message in self._faults(source, target):
                yield Breach(kind, view.noun, source, target, message, way)
        yield from self._uncovered(words)
        for listed in view.extensions:
            if listed in words.values():
                continue
            kind, said = "unproduced", "it is listed as an extension, but the engine never shows it: remove it"
            if listed.source == listed.target:
                said += ". Only an arrow of the specification may lead to its own state"
            if view.legal(listed.source, listed.target) and (listed.source, listed.target) in pairs:
                kind, said = "needless", "the specification has a word for it: take it off the list of extensions"
            yield Breach(kind, view.noun, listed.source, listed.target, said)
        for state in view.extra:
            if all(target != state for _, target in pairs):
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

    def _uncovered(self, words: Mapping[Told, Arrow | Extension | None]) -> Iterator[Breach]:
        """Shown arrows whose ground no word covers, one breach per pair of states."""
        missing: dict[Pair, list[str]] = {}
        for (source, target, _, ground), listed in words.items():
            if listed is None:
                missing.setdefault((source, target), []).append(ground)
        for (source, target), grounds in missing.items():
            said = f"the engine does this ({', '.join(sorted(set(grounds)))}); no arrow and no extension covers it"
            way = next(way for told, way in self.told.items() if told[:2] == (source, target) and words[told] is None)
            yield Breach("unlisted", self.view.noun, source, target, said, way)

    def _faults(self, source: str | None, target: str) -> Iterator[tuple[str, str]]:
        view = self.view
        if target not in view.states and target not in view.extra:
            yield "unknown", "it shows a state that the dialect does not have"
        for ruled in view.forbidden:
            if ruled.source in (ANY, source) and ruled.target in (ANY, target):
                yield "forbidden", f"the specification rules this out ({ruled.cites})"
        if source in view.terminal and view.extended(source, target) is None:
            yield "terminal", "a terminal state is left"


def _with_facts(hops: Iterable[tuple[Seen, Situation]]) -> Iterator[tuple[Seen, Situation]]:
    """Every hop once for each fact that may be known about it."""
    for seen, after in hops:
        for fact in RUN_FACTS.get(seen.trigger, ("",)):
            yield seen._replace(fact=fact), after


class Witness:
    """The hops that led to a situation, as a linked list that shares its prefixes."""

    __slots__ = ("before", "seen")

    def __init__(self, seen: Seen, before: Witness | None) -> None:
        self.seen, self.before = seen, before

    def __iter__(self) -> Iterator[str]:
        steps = []
        way: Witness | None = self
        while way is not None:
            steps.append(way.seen.trigger if way.seen.kind == "run" else f"{way.seen.name} {way.seen.trigger}")
            way = way.before
        return reversed(steps)


def _copied(view: ShownRunView) -> ShownRunView:
    """A copy of the view with its own memory; the underlying machine is shared."""
    copied = object.__new__(type(view))
    for name, value in vars(view).items():
        setattr(copied, name, value if isinstance(value, MachineView) else copy(value))
    return copied


def _memory(view: ShownRunView | RunGrounds) -> Hashable:
    return tuple((name, _frozen(value)) for name, value in vars(view).items() if not isinstance(value, MachineView))


def _frozen(value: Any) -> Hashable:
    if isinstance(value, dict):
        return frozenset((key, _frozen(item)) for key, item in value.items())
    if isinstance(value, set | frozenset):
        return frozenset(map(_frozen, value))
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    return value if isinstance(value, str | int | float | bool | None) else repr(value)


# -- conduct -------------------------------------------------------------------------------------------------------
IN_FLIGHT = ("running", "validating", "awaiting_children")
FINISHING = ("stopping", "compensating")
RUN = "run"
HOOK, CHECK = "undo:a", "check:run"
NAMES = ("a", "b", "c", "d")


class Situation(NamedTuple):
    """The states of a run, its main steps, one undo step and the final check; None before they exist.

    `cancelling` means that steps are being cancelled because their run is cancelled; no other hop may come in between.
    `tried` means that a step was started. Without that there is nothing to undo. `progressed` means that the run has
    left `queued`.
    """

    run: str | None
    steps: tuple[str | None, ...]
    hook: str | None = None
    check: str | None = None
    cancelling: bool = False
    tried: bool = False
    progressed: bool = False

    @property
    def all_steps(self) -> tuple[str | None, ...]:
        return (*self.steps, self.hook, self.check)


Hop = tuple[Seen, Situation]


class Conduct:
    """The model for runs of `size` main steps under the given tables. With `finishes`, the last of them is final."""

    def __init__(self, machines: Machines, size: int = 2, *, finishes: bool = False) -> None:
        self._last = size - 1 if finishes else None
        self._arrows = {name: _by_source(machines[name][0]) for name in ("run", "step")}
        self._run_ended, self._ended = frozenset(machines["run"][1]), frozenset(machines["step"][1])
        self.start = Situation(None, (None,) * size)

    def hops(self, now: Situation) -> Iterator[Hop]:
        """Every hop that is possible next."""
        if now.run in self._run_ended:
            return
        for trigger, target in self._arrows["run"].get(now.run, ()):
            if self._run_may(now, trigger):
                progressed = now.progressed or trigger == "progressed"
                after = now._replace(run=target, cancelling=False, progressed=progressed)
                yield Seen("run", RUN, now.run, trigger, target), after
        for place, state in enumerate(now.steps):
            for trigger, target in self._step_hops(now, "main", state):
                if place == self._last and state == "pending" and self._opens_early(now, target):
                    continue
                steps = (*now.steps[:place], target, *now.steps[place + 1 :])
                seen = Seen("step", NAMES[place], state, trigger, target, FINAL if place == self._last else "main")
                tried = now.tried or trigger == "claimed" or target == "succeeded"
                yield seen, now._replace(steps=steps, cancelling=_cancelling(now, trigger), tried=tried)
        for trigger, target in self._step_hops(now, "undo", now.hook):
            seen = Seen("step", HOOK, now.hook, trigger, target, "undo")
            yield seen, now._replace(hook=target)
        for trigger, target in self._step_hops(now, "check", now.check):
            seen = Seen("step", CHECK, now.check, trigger, target, "check")
            yield seen, now._replace(check=target, cancelling=_cancelling(now, trigger))

    def _opens_early(self, now: Situation, target: str) -> bool:
        """Whether a final step would begin before every other step has succeeded."""
        return target not in ("skipped", "cancelled") and set(now.steps[: self._last]) != {"succeeded"}

    # -- what the steps allow their run ------------------------------------------------------------------------------
    def _run_may(self, now: Situation, trigger: str) -> bool:
        if now.run is None:
            return True
        if None in now.steps or (now.cancelling and trigger != "cancelled"):
            return False
        settled, over = not self._open((*now.steps, now.check)), not self._open(now.all_steps)
        guards = {
            "steps_settled": settled and "failed" not in now.steps,
            "steps_failed": settled and "failed" in now.steps,
            "waiting": not _any(now.steps, MOVING) and _any(now.steps, WAITING),
            "step_failed": "failed" in now.steps,
            "rules_passed": over and now.check in (None, "succeeded"),
            "rules_failed": now.check == "failed",
            "stopped_failed": over,
            "stopped_cancelled": over,
            "undo_started": settled and now.tried,
            "undone": over and now.hook == "succeeded",
            "undo_failed": over and now.hook is not None,
            "cancelled": over,
            "unpaused": now.progressed,
            "unpaused_queued": not now.progressed,
        }
        # An unknown trigger may fire at any time, so that its effects are explored.
        return guards.get(trigger, True)

    def _open(self, states: Collection[str | None]) -> bool:
        return any(state is not None and state not in self._ended for state in states)

    # -- what the run allows its steps -------------------------------------------------------------------------------
    def _step_hops(self, now: Situation, phase: str, state: str | None) -> Iterator[tuple[str, str]]:
        for trigger, target in self._arrows["step"].get(state, ()):
            if self._step_may(now, phase, state, trigger, target):
                yield trigger, target

    def _step_may(self, now: Situation, phase: str, state: str | None, trigger: str, target: str) -> bool:
        run = now.run or ""
        if state is None:
            return run == {"main": "idle", "undo": "compensating", "check": "validating"}[phase] and not now.cancelling
        if now.cancelling or (trigger == "cancelled" and run not in FINISHING):
            return trigger == "cancelled" and run not in FINISHING and None not in now.steps
        if trigger in OPERATED and run == "paused" and state == "ready":
            return False
        is_rollback = phase == "undo" and target == "awaiting_children" and state == "pending"
        odd = target.startswith("awaiting_") or target == "skipped" or trigger in OPERATED
        if phase != "main" and not is_rollback and odd:
            return False
        if run == "stopping":
            settles = target in self._ended or trigger in ("completed", "children_succeeded")
            return phase != "undo" and (trigger == "cancelled" or (state in IN_FLIGHT and settles))
        if run == "paused":
            return phase == "main" and trigger != "claimed" and (now.progressed or trigger in QUIET["queued"])
        if run in QUIET:
            return trigger in QUIET[run] and None not in now.steps
        return phase == {"running": "main", "validating": "check", "compensating": "undo"}.get(run)


def _cancelling(now: Situation, trigger: str) -> bool:
    return now.cancelling or (trigger == "cancelled" and now.run not in FINISHING)


def _any(states: Collection[str | None], of: Collection[str]) -> bool:
    return any(state in of for state in states)


def _by_source(arrows: Collection[tuple[str | None, str, str]]) -> dict[str | None, list[tuple[str, str]]]:
    found: dict[str | None, list[tuple[str, str]]] = {}
    for source, trigger, target in sorted(arrows, key=lambda arrow: (arrow[0] or "", *arrow[1:])):
        found.setdefault(source, []).append((trigger, target))
    return found
