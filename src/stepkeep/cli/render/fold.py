"""Folds large plans until they can be drawn: similar steps become one node.

Pure. First it folds what needs no attention (siblings with the same neighbours, parts of a chain in one state). If that
is not enough, it folds whole levels of the graph, so that ten thousand steps always fit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from stepkeep.cli.render.look import QUIET, words

StepView = Mapping[str, Any]


class Node(NamedTuple):
    """One row of the picture: a step, or several that are drawn as one."""

    name: str
    members: tuple[StepView, ...]
    after: tuple[str, ...]

    @property
    def state(self) -> str:
        """The state that the mark shows: the first one that needs attention, or the most common."""
        if len(self.members) == 1:
            return str(self.members[0]["state"])
        counts = Counter(str(step["state"]) for step in self.members)
        loud = [state for state in counts if state not in QUIET]
        return "failed" if "failed" in counts else loud[0] if loud else counts.most_common(1)[0][0]

    @property
    def label(self) -> str:
        if len(self.members) == 1:
            # A call of a flow has a number for a name: what it calls says more.
            return " ".join(filter(None, (self.members[0]["name"], self.members[0].get("call"))))
        first, last = self.members[0]["name"], self.members[-1]["name"]
        return f"{first} … {last}"

    @property
    def summary(self) -> str:
        """`9,998 succeeded, 2 failed`, for nodes of several steps."""
        counts = Counter(words(str(step["state"])) for step in self.members)
        return ", ".join(f"{count:,} {state}" for state, count in counts.most_common())


def fold(steps: Sequence[StepView], limit: int) -> list[Node]:
    """The nodes to draw, in an order in which dependencies come first; at most `limit` of them."""
    nodes = _sorted([_node(step) for step in steps])
    for smaller in (_siblings, _chains, _siblings, _levels, _chains, _evenly):
        if len(nodes) <= limit:
            return nodes
        nodes = _sorted(smaller(nodes, limit))
    return nodes


def _node(step: StepView) -> Node:
    return Node(str(step["name"]), (step,), tuple(step["depends_on"]))


def _sorted(nodes: Sequence[Node]) -> list[Node]:
    """Dependencies before dependents, otherwise in the given order. Iterative: chains may be ten thousand long."""
    followers = _followers(nodes)
    unmet = {node.name: len(set(node.after)) for node in nodes}
    by_name = {node.name: node for node in nodes}
    # A stack, so that a branch is followed to its end before the next one begins: fewer lines cross.
    ready = [node.name for node in reversed(nodes) if not unmet[node.name]]
    ordered: list[Node] = []
    while ready:
        name = ready.pop()
        ordered.append(by_name[name])
        for follower in reversed(followers[name]):
            unmet[follower] -= 1
            if not unmet[follower]:
                ready.append(follower)
    return ordered


def _followers(nodes: Iterable[Node]) -> dict[str, list[str]]:
    followers: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        for name in dict.fromkeys(node.after):
            followers[name].append(node.name)
    return followers


def _siblings(nodes: Sequence[Node], limit: int) -> list[Node]:
    """Fold steps with the same predecessors and successors; those that need attention stay separate."""
    followers = _followers(nodes)
    groups: dict[Any, list[Node]] = defaultdict(list)
    apart = limit // 2
    for node in nodes:
        loud = node.state not in QUIET and apart > 0
        apart -= loud
        groups[frozenset(node.after), frozenset(followers[node.name]), node.name if loud else ""].append(node)
    return _merged(groups.values())


def _chains(nodes: Sequence[Node], _limit: int) -> list[Node]:
    """Fold parts in which each step has one neighbour on either side and all are in one state."""
    followers = _followers(nodes)
    stretches: list[list[Node]] = []
    of: dict[str, list[Node]] = {}
    for node in nodes:
        before = of.get(node.after[0]) if len(node.after) == 1 else None
        if (
            before is not None
            and before[-1].name == node.after[0]
            and len(followers[node.after[0]]) == 1
            and before[-1].state == node.state
        ):
            before.append(node)
        else:
            before = [node]
            stretches.append(before)
        of[node.name] = before
    return _merged(stretches)


def _levels(nodes: Sequence[Node], _limit: int) -> list[Node]:
    """Fold everything at the same distance from the start; the picture becomes a chain of levels."""
    depth: dict[str, int] = {}
    levels: dict[int, list[Node]] = defaultdict(list)
    for node in nodes:
        depth[node.name] = max((depth[name] + 1 for name in node.after), default=0)
        levels[depth[node.name]].append(node)
    return _in_a_row(_together(level) for _, level in sorted(levels.items()))


def _evenly(nodes: Sequence[Node], limit: int) -> list[Node]:
    """Fold neighbours of a chain of levels evenly: the last resort, which always fits."""
    size = -(-len(nodes) // limit)
    return _in_a_row(_together(nodes[start : start + size]) for start in range(0, len(nodes), size))


def _in_a_row(nodes: Iterable[Node]) -> list[Node]:
    row: list[Node] = []
    for node in nodes:
        row.append(node._replace(after=(row[-1].name,) if row else ()))
    return row


def _together(nodes: Sequence[Node]) -> Node:
    return Node(nodes[0].name, tuple(step for node in nodes for step in node.members), nodes[0].after)


def _merged(groups: Iterable[Sequence[Node]]) -> list[Node]:
    """One node per group, with edges between groups instead of between their members."""
    groups = list(groups)
    merged = [_together(group) for group in groups]
    new_name = {node.name: whole.name for group, whole in zip(groups, merged, strict=True) for node in group}
    after = [
        dict.fromkeys(new_name[name] for node in group for name in node.after if new_name[name] != whole.name)
        for group, whole in zip(groups, merged, strict=True)
    ]
    return [whole._replace(after=tuple(names)) for whole, names in zip(merged, after, strict=True)]
