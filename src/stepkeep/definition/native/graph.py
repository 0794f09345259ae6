"""The graph of a plan: the rules of seed 000 section 5.2, and the ancestors of each step.

It is iterative, so that a chain of ten thousand steps needs no deep stack. It knows only names and edges. The native
front end, the Python API and the dialects call it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from stepkeep.definition.bounds import MAX_EDGES, MAX_STEPS
from stepkeep.definition.findings import Finding, Path, did_you_mean

_SHOWN = 12
_CYCLES = 10


class Node(NamedTuple):
    """A step by name, its dependencies, and the position of each name."""

    name: str
    path: Path
    after: tuple[tuple[str, Path], ...]


def check_graph(nodes: Sequence[Node]) -> list[Finding]:
    """Every problem of the graph.

    Seed 000 section 5.2: no cycles, all dependencies exist, at least one root, all steps reachable from a root. The
    last two follow from the first two, so they need no findings of their own.
    """
    edges = sum(len(node.after) for node in nodes)
    if len(nodes) > MAX_STEPS:
        return [Finding(("steps",), f"{len(nodes)} steps are more than the {MAX_STEPS} a workflow may have.")]
    if edges > MAX_EDGES:
        said = f"{edges} dependencies are more than the {MAX_EDGES} a workflow may have."
        return [Finding(("steps",), said, "Let a step in the middle gather what many wait for.")]
    return [*_duplicates(nodes), *_bad_edges(nodes), *_cycles(nodes)]


def _duplicates(nodes: Sequence[Node]) -> Iterable[Finding]:
    seen: set[str] = set()
    for node in nodes:
        if node.name in seen:
            said = f"Another step is already named `{node.name}`."
            yield Finding((*node.path, "name"), said, "Give each step a name of its own.")
        seen.add(node.name)


def _bad_edges(nodes: Sequence[Node]) -> Iterable[Finding]:
    named = Counter(node.name for node in nodes)
    names = set(named)
    hints = 20
    for node in nodes:
        seen: set[str] = set()
        for name, path in node.after:
            if name == node.name and named[name] > 1:
                continue  # which of the two is meant is open until one has another name
            if name == node.name:
                yield Finding(path, f"Step `{name}` depends on itself.", "Remove it here.")
            elif name not in names:
                # Finding the nearest of ten thousand names takes time; a few hints are enough.
                hint = did_you_mean(name, names) if hints > 0 else ""
                hints -= 1
                yield Finding(path, f"There is no step `{name}` to depend on.", hint)
            elif name in seen:
                yield Finding(path, f"Step `{node.name}` already depends on `{name}`.", "Name it once.")
            seen.add(name)


def _cycles(nodes: Sequence[Node]) -> Iterable[Finding]:
    """One finding per group of steps that wait for each other, naming a shortest cycle."""
    places = {node.name: node for node in nodes}
    after = {node.name: [name for name, _ in node.after if name in places and name != node.name] for node in nodes}
    numbers = {name: number for number, name in enumerate(places)}
    left = _left_after_sorting(after)
    for _ in range(_CYCLES):
        if not left:
            return
        way = _cycle_in(left, after)
        first = min(way, key=numbers.__getitem__)
        at = way.index(first)
        # Edges point from a step to its dependency; the finding shows the order of execution.
        ring = [first, *reversed([*way[at + 1 :], *way[:at]]), first]
        shown = [*ring[:_SHOWN], "…", ring[-1]] if len(ring) > _SHOWN + 1 else ring
        yield Finding(
            (*places[first].path, "depends_on"),
            f"These steps wait for each other: {' → '.join(shown)}.",
            "Remove one of these dependencies.",
        )
        left = _left_after_sorting({name: after[name] for name in left - set(way)})


def _left_after_sorting(after: Mapping[str, Sequence[str]]) -> set[str]:
    """The steps on a cycle or between cycles: what is left after repeatedly removing first and last steps."""
    left = _peel(after)
    backwards: dict[str, list[str]] = {name: [] for name in left}
    for name in left:
        for other in after[name]:
            if other in left:
                backwards[other].append(name)
    return _peel(backwards)


def _peel(after: Mapping[str, Sequence[str]]) -> set[str]:
    unmet = {name: sum(other in after for other in others) for name, others in after.items()}
    followers: dict[str, list[str]] = {name: [] for name in after}
    for name, others in after.items():
        for other in others:
            if other in followers:
                followers[other].append(name)
    free = deque(name for name, count in unmet.items() if count == 0)
    left = set(after)
    while free:
        name = free.popleft()
        left.discard(name)
        for follower in followers[name]:
            unmet[follower] -= 1
            if unmet[follower] == 0:
                free.append(follower)
    return left


def _cycle_in(left: set[str], after: Mapping[str, Sequence[str]]) -> list[str]:
    """A cycle: follow dependencies until a step repeats, then find its shortest path back to itself."""
    seen: set[str] = set()
    name = next(name for name in after if name in left)
    while name not in seen:
        seen.add(name)
        name = next(other for other in after[name] if other in left)
    return _shortest_back(name, after, left)


def _shortest_back(start: str, after: Mapping[str, Sequence[str]], left: set[str]) -> list[str]:
    came_from: dict[str, str] = {}
    queue = deque([start])
    while queue:
        name = queue.popleft()
        for other in after[name]:
            if other == start:
                way = [name]
                while way[-1] != start:
                    way.append(came_from[way[-1]])
                return way[::-1]
            if other in left and other not in came_from:
                came_from[other] = name
                queue.append(other)
    raise AssertionError("a step that was reached twice lies on a cycle")


class Ancestry:
    """The steps that have always settled before a given one: its direct and indirect dependencies."""

    def __init__(self, after: Mapping[str, Sequence[str]]) -> None:
        self._index = {name: number for number, name in enumerate(after)}
        self._names = tuple(after)
        self._sets = self._gather(after)

    def _gather(self, after: Mapping[str, Sequence[str]]) -> dict[str, int]:
        # One integer per step, a bit per ancestor: ten thousand steps in a chain fit in a few megabytes.
        unmet = {name: len(set(others)) for name, others in after.items()}
        followers: dict[str, list[str]] = {name: [] for name in after}
        for name, others in after.items():
            for other in set(others):
                followers[other].append(name)
        sets = dict.fromkeys(after, 0)
        free = deque(name for name, count in unmet.items() if count == 0)
        while free:
            name = free.popleft()
            reach = sets[name] | (1 << self._index[name])
            for follower in followers[name]:
                sets[follower] |= reach
                unmet[follower] -= 1
                if unmet[follower] == 0:
                    free.append(follower)
        return sets

    def precedes(self, earlier: str, later: str) -> bool:
        """Whether `later` depends, directly or indirectly, on `earlier`."""
        return bool(self._sets[later] >> self._index[earlier] & 1)

    def of(self, name: str) -> tuple[str, ...]:
        """All ancestors of a step, in the given order of steps."""
        found = self._sets[name]
        return tuple(other for number, other in enumerate(self._names) if found >> number & 1)
