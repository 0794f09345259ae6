"""A run's plan as a graph in the terminal: one row per step, lines for dependencies, states in colour.

Pure: from the steps of a `describe_run` view to a rich table. Large plans are folded: alike neighbours become one row.
Lanes find the lines; wide plans lose them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from rich.table import Table

from stepkeep.cli.render.consoles import Text
from stepkeep.cli.render.lines import remark, took, tries
from stepkeep.cli.render.look import QUIET, look, words

StepView = Mapping[str, Any]


class GraphNode(NamedTuple):
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


def fold(steps: Sequence[StepView], limit: int) -> list[GraphNode]:
    """The nodes to draw, in an order in which dependencies come first; at most `limit` of them."""
    nodes = _sorted([_node(step) for step in steps])
    for smaller in (_siblings, _chains, _siblings, _levels, _chains, _evenly):
        if len(nodes) <= limit:
            return nodes
        nodes = _sorted(smaller(nodes, limit))
    return nodes


def _node(step: StepView) -> GraphNode:
    return GraphNode(str(step["name"]), (step,), tuple(step["depends_on"]))


def _sorted(nodes: Sequence[GraphNode]) -> list[GraphNode]:
    """Dependencies before dependents, otherwise in the given order. Iterative: chains may be ten thousand long."""
    followers = _followers(nodes)
    unmet = {node.name: len(set(node.after)) for node in nodes}
    by_name = {node.name: node for node in nodes}
    # A stack, so that a branch is followed to its end before the next one begins: fewer lines cross.
    ready = [node.name for node in reversed(nodes) if not unmet[node.name]]
    ordered: list[GraphNode] = []
    while ready:
        name = ready.pop()
        ordered.append(by_name[name])
        for follower in reversed(followers[name]):
            unmet[follower] -= 1
            if not unmet[follower]:
                ready.append(follower)
    return ordered


def _followers(nodes: Iterable[GraphNode]) -> dict[str, list[str]]:
    followers: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        for name in dict.fromkeys(node.after):
            followers[name].append(node.name)
    return followers


def _siblings(nodes: Sequence[GraphNode], limit: int) -> list[GraphNode]:
    """Fold steps with the same predecessors and successors; those that need attention stay separate."""
    followers = _followers(nodes)
    groups: dict[Any, list[GraphNode]] = defaultdict(list)
    apart = limit // 2
    for node in nodes:
        loud = node.state not in QUIET and apart > 0
        apart -= loud
        groups[frozenset(node.after), frozenset(followers[node.name]), node.name if loud else ""].append(node)
    return _merged(groups.values())


def _chains(nodes: Sequence[GraphNode], _limit: int) -> list[GraphNode]:
    """Fold parts in which each step has one neighbour on either side and all are in one state."""
    followers = _followers(nodes)
    stretches: list[list[GraphNode]] = []
    of: dict[str, list[GraphNode]] = {}
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


def _levels(nodes: Sequence[GraphNode], _limit: int) -> list[GraphNode]:
    """Fold everything at the same distance from the start; the picture becomes a chain of levels."""
    depth: dict[str, int] = {}
    levels: dict[int, list[GraphNode]] = defaultdict(list)
    for node in nodes:
        depth[node.name] = max((depth[name] + 1 for name in node.after), default=0)
        levels[depth[node.name]].append(node)
    return _in_a_row(_together(level) for _, level in sorted(levels.items()))


def _evenly(nodes: Sequence[GraphNode], limit: int) -> list[GraphNode]:
    """Fold neighbours of a chain of levels evenly: the last resort, which always fits."""
    size = -(-len(nodes) // limit)
    return _in_a_row(_together(nodes[start : start + size]) for start in range(0, len(nodes), size))


def _in_a_row(nodes: Iterable[GraphNode]) -> list[GraphNode]:
    row: list[GraphNode] = []
    for node in nodes:
        row.append(node._replace(after=(row[-1].name,) if row else ()))
    return row


def _together(nodes: Sequence[GraphNode]) -> GraphNode:
    return GraphNode(nodes[0].name, tuple(step for node in nodes for step in node.members), nodes[0].after)


def _merged(groups: Iterable[Sequence[GraphNode]]) -> list[GraphNode]:
    """One node per group, with edges between groups instead of between their members."""
    groups = list(groups)
    merged = [_together(group) for group in groups]
    new_name = {node.name: whole.name for group, whole in zip(groups, merged, strict=True) for node in group}
    after = [
        dict.fromkeys(new_name[name] for node in group for name in node.after if new_name[name] != whole.name)
        for group, whole in zip(groups, merged, strict=True)
    ]
    return [whole._replace(after=tuple(names)) for whole, names in zip(merged, after, strict=True)]


class GraphLine(NamedTuple):
    """One row: its characters, and the name and column of the node on it (None: only lines)."""

    art: str
    node: str | None
    column: int


def draw_lanes(after: Mapping[str, Sequence[str]], mark: Mapping[str, str]) -> list[GraphLine]:
    """Draw nodes in the order given (dependencies first), each with its mark."""
    children: dict[str, list[str]] = defaultdict(list)
    for name, before in after.items():
        for parent in dict.fromkeys(before):
            children[parent].append(name)
    lanes: list[str | None] = []
    lines: list[GraphLine] = []
    for name in after:
        here = lanes.index(name) if name in lanes else _free(lanes, name)
        art = "".join(_cell(mark[name] if place == here else "│" if lane else " ") for place, lane in enumerate(lanes))
        lines.append(GraphLine(art.rstrip(), name, 2 * here))
        lines += _branch(lanes, here, children[name])
        while lanes and lanes[-1] is None:
            lanes.pop()
    return lines


def _free(lanes: list[str | None], name: str) -> int:
    """Give a node the first free column."""
    if None in lanes:
        place = lanes.index(None)
        lanes[place] = name
        return place
    lanes.append(name)
    return len(lanes) - 1


def _cell(character: str, join: str = " ") -> str:
    return character + join


def _branch(lanes: list[str | None], here: int, children: Sequence[str]) -> list[GraphLine]:
    """Draw the edges of a node: straight on, into new columns, or into columns that lead there already."""
    if not children:
        lanes[here] = None
        return []
    passing = [lane is not None for lane in lanes]
    joined = [lanes.index(child) for child in children if child in lanes]
    fresh = [child for child in children if child not in lanes]
    lanes[here] = fresh[0] if fresh else None
    opened = [_free(lanes, child) for child in fresh[1:]]
    passing += [False] * (len(lanes) - len(passing))
    ends = [*joined, *opened]
    if not ends:
        return [GraphLine("".join(_cell("│" if lane else " ") for lane in lanes).rstrip(), None, 0)]
    left, right = min(here, *ends), max(here, *ends)
    row = ""
    for place in range(len(lanes)):
        join = "─" if left <= place < right else " "
        row += _cell(_corner(place, here, left, right, joined, opened, passing, bool(fresh)), join)
    return [GraphLine(row.rstrip(), None, 0)]


def _corner(
    place: int,
    here: int,
    left: int,
    right: int,
    joined: Sequence[int],
    opened: Sequence[int],
    passing: Sequence[bool],
    goes_on: bool,
) -> str:
    to_left, to_right = place > left, place < right
    if place == here:
        return {
            (True, False, True): "├",
            (True, True, False): "┤",
            (True, True, True): "┼",
            (False, False, True): "╰",
            (False, True, False): "╯",
            (False, True, True): "┴",
        }[goes_on, to_left, to_right]
    if not left <= place <= right:
        return "│" if passing[place] else " "
    if place in opened:
        return {(False, True): "╭", (True, False): "╮", (True, True): "┬"}[to_left, to_right]
    if place in joined:
        return {(False, True): "├", (True, False): "┤", (True, True): "┼"}[to_left, to_right]
    return "│" if passing[place] else "─"


ROWS = 40
COLUMNS, NAME, GAP = 5, 1, 2
LONGEST_NAME, SHORTEST_NAME = 48, 12
ROOM_TO_WRAP = 32
LANES = 16
"""More columns than this cannot be followed by eye: dependencies are then given as text."""


def draw_graph(
    view: Mapping[str, Any], *, rows: int = ROWS, now: datetime | None = None, width: int | None = None
) -> Table:
    """The main steps with their dependencies, then the undo steps, in the order they ran.

    If `width` leaves little space behind the states, remarks are cut to one line: errors are shown below anyway.
    """
    waits = {wait["step"]: wait.get("event") for wait in view["run"].get("waiting_for", ())}
    steps = [{**step, "event": waits.get(step["name"])} for step in view["steps"]]
    lines: list[tuple[Text, ...]] = []
    for part in parts_of(steps):
        if lines:
            lines.append(())
        lines += _rows(fold(part, rows), now)
    return _table(lines, width)


def _table(lines: Sequence[tuple[Text, ...]], width: int | None) -> Table:
    longest = [
        max((len(line[place]) for line in lines if len(line) > place), default=0) for place in range(COLUMNS - 1)
    ]
    longest[NAME] = min(longest[NAME], LONGEST_NAME if width is None else max(SHORTEST_NAME, width // 3))
    room = None if width is None else width - sum(longest) - GAP * COLUMNS
    table = Table.grid(padding=(0, GAP, 0, 0))
    for place in range(COLUMNS - 1):
        table.add_column(no_wrap=True, overflow="ellipsis", max_width=longest[NAME] if place == NAME else None)
    if room is None or room >= ROOM_TO_WRAP:
        table.add_column(overflow="fold")
    else:
        table.add_column(no_wrap=True, overflow="ellipsis", max_width=max(1, room))
    for line in lines:
        table.add_row(*line)
    return table


def parts_of(steps: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """The main steps, the final check, and the hooks as the chain in which they ran."""
    main = [step for step in steps if step["phase"] == "main"]
    undo = sorted(
        (step for step in steps if step["phase"] == "undo"), key=lambda step: (step["started_at"] or "~", step["name"])
    )
    chain: list[Mapping[str, Any]]
    check: list[Mapping[str, Any]]
    chain = [{**step, "depends_on": [undo[place - 1]["name"]] if place else []} for place, step in enumerate(undo)]
    check = [{**step, "depends_on": []} for step in steps if step["phase"] == "check"]
    return [part for part in (main, check, chain) if part]


def _rows(nodes: Sequence[GraphNode], now: datetime | None) -> Iterator[tuple[Text, ...]]:
    by_name = {node.name: node for node in nodes}
    lines = draw_lanes({node.name: node.after for node in nodes}, {node.name: look(node.state).mark for node in nodes})
    too_wide = max((len(line.art) for line in lines), default=0) > 2 * LANES
    for line in lines:
        node = by_name[line.node] if line.node else None
        if node is None:
            if not too_wide:
                yield (Text(line.art, "dim"),)
            continue
        art = Text(look(node.state).mark, look(node.state).style) if too_wide else _art(line, node.state)
        yield art, *_cells(node, now, after=node.after if too_wide else ())


def _art(line: GraphLine, state: str) -> Text:
    text = Text(line.art, "dim")
    text.stylize(f"not dim {look(state).style}", line.column, line.column + 1)
    return text


def _cells(node: GraphNode, now: datetime | None, after: Sequence[str]) -> tuple[Text, Text, Text, Text]:
    style = look(node.state).style
    if len(node.members) > 1:
        return Text(node.label), Text(f"{len(node.members):,} steps", style), Text(""), Text(node.summary, "dim")
    step = node.members[0]
    said = remark(step, now)
    if tries(step):
        said = f"{said} ({tries(step)})" if said else f"({tries(step)})"
    if after:
        names = ", ".join(after[:3]) + (" …" if len(after) > 3 else "")
        said = f"after {names}. {said}" if said else f"after {names}"
    loud = "red" if step["state"] == "failed" else "dim"
    return Text(node.label), Text(words(node.state), style), Text(took(step), "dim"), Text(said, loud)
