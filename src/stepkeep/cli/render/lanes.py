"""The lines of a graph, as text: one column per step that still has successors, as version control tools draw them.

Pure, and knows nothing of steps: it receives names and predecessors, and returns rows of characters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Line(NamedTuple):
    """One row: its characters, and the name and column of the node on it (None: only lines)."""

    art: str
    node: str | None
    column: int


def draw_lanes(after: Mapping[str, Sequence[str]], mark: Mapping[str, str]) -> list[Line]:
    """Draw nodes in the order given (dependencies first), each with its mark."""
    children: dict[str, list[str]] = defaultdict(list)
    for name, before in after.items():
        for parent in dict.fromkeys(before):
            children[parent].append(name)
    lanes: list[str | None] = []
    lines: list[Line] = []
    for name in after:
        here = lanes.index(name) if name in lanes else _free(lanes, name)
        art = "".join(_cell(mark[name] if place == here else "│" if lane else " ") for place, lane in enumerate(lanes))
        lines.append(Line(art.rstrip(), name, 2 * here))
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


def _branch(lanes: list[str | None], here: int, children: Sequence[str]) -> list[Line]:
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
        return [Line("".join(_cell("│" if lane else " ") for lane in lanes).rstrip(), None, 0)]
    left, right = min(here, *ends), max(here, *ends)
    row = ""
    for place in range(len(lanes)):
        join = "─" if left <= place < right else " "
        row += _cell(_corner(place, here, left, right, joined, opened, passing, bool(fresh)), join)
    return [Line(row.rstrip(), None, 0)]


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
