"""A run's time as bars: when each step ran, waited and was tried again, on one scale.

Pure: from a `describe_run` view to a rich table. Steps that never began are left out; large runs are folded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.table import Table

from stepkeep.cli.render.consoles import Text
from stepkeep.cli.render.graph import GraphNode, fold, parts_of
from stepkeep.cli.render.lines import began
from stepkeep.cli.render.look import moment, span, style

ROWS = 40
BARS = {"running": "█", "validating": "▓", "retrying": "·", "ready": "·"}
WAITING = "░"
NOTHING = frozenset({"pending", "succeeded", "failed", "skipped", "cancelled"})
RANK = {" ": 0, "·": 1, "░": 2, "▓": 3, "█": 4}


def draw_timeline(view: Mapping[str, Any], *, width: int = 60, rows: int = ROWS, now: datetime | None = None) -> Table:
    """One bar per step (or per group of steps), from the run's start to its end or to `now`."""
    steps = [step for step in view["steps"] if began(step)]
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=32)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="dim")
    if not steps:
        return table
    marks = [at for step in steps for state in step["states"] if (at := moment(state["at"]))]
    end = moment(view["run"]["ended_at"]) or max([*marks, *([now] if now else [])])
    start = min([at for step in steps if (at := moment(step["started_at"]))])
    scale = Scale(start, max(end, *marks), width)
    table.add_row("", Text(scale.ruler(), "dim"), "")
    for node in _rows(view["steps"], rows):
        table.add_row(Text(node.label), _bar(node, scale), span(scale.seconds(*_extent(node, scale))))
    return table


class Scale:
    """Which column an instant falls into."""

    def __init__(self, start: datetime, end: datetime, width: int) -> None:
        self.start, self.end, self.width = start, end, width
        self.length = max((end - start).total_seconds(), 0.001)

    def column(self, at: datetime) -> int:
        share = (at - self.start).total_seconds() / self.length
        return min(self.width - 1, max(0, int(share * self.width)))

    def seconds(self, start: datetime, end: datetime) -> float:
        return max(0.0, (end - start).total_seconds())

    def ruler(self) -> str:
        """The beginning, the middle and the end, written where they are."""
        middle, last = span(self.length / 2), span(self.length)
        text = f"0{middle:>{self.width // 2 + len(middle) // 2}}"
        return text[: self.width - len(last) - 1].ljust(self.width - len(last)) + last


def _rows(steps: Sequence[Mapping[str, Any]], rows: int) -> list[GraphNode]:
    """What the graph shows, as far as it began, in order of time."""
    nodes = [node for part in parts_of(steps) for node in fold(part, rows)]
    begun = [node._replace(members=tuple(filter(began, node.members))) for node in nodes]
    return sorted(
        (node for node in begun if node.members), key=lambda node: min(step["started_at"] for step in node.members)
    )


def _extent(node: GraphNode, scale: Scale) -> tuple[datetime, datetime]:
    starts = [at for step in node.members if (at := moment(step["started_at"]))]
    ends = [moment(step["ended_at"]) or scale.end for step in node.members]
    return min(starts), max(ends)


def _bar(node: GraphNode, scale: Scale) -> Text:
    cells: list[tuple[str, str]] = [(" ", "")] * scale.width
    for step in node.members:
        states = step["states"]
        for place, entered in enumerate(states):
            character = BARS.get(entered["state"], " " if entered["state"] in NOTHING else WAITING)
            left = moment(states[place + 1]["at"]) if place + 1 < len(states) else scale.end
            begun = moment(entered["at"])
            if character == " " or begun is None or left is None or step["started_at"] is None:
                continue
            for column in range(scale.column(begun), scale.column(left) + 1):
                if RANK[character] > RANK[cells[column][0]]:
                    shown = str(step["state"]) if character in "█▓" else entered["state"]
                    cells[column] = (character, style(shown).replace("dim", ""))
    return Text.assemble(*cells)
