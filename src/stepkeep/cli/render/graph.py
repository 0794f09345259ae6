"""A run's plan as a graph in the terminal: one row per step, lines for dependencies, states in colour.

Pure: from the steps of a `describe_run` view to a rich table. Large plans are folded, wide ones lose their lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.table import Table

from stepkeep.cli.render.consoles import Text
from stepkeep.cli.render.fold import Node, fold
from stepkeep.cli.render.lanes import Line, draw_lanes
from stepkeep.cli.render.look import look, words
from stepkeep.cli.render.remarks import remark, took, tries

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


def _rows(nodes: Sequence[Node], now: datetime | None) -> Iterator[tuple[Text, ...]]:
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


def _art(line: Line, state: str) -> Text:
    text = Text(line.art, "dim")
    text.stylize(f"not dim {look(state).style}", line.column, line.column + 1)
    return text


def _cells(node: Node, now: datetime | None, after: Sequence[str]) -> tuple[Text, Text, Text, Text]:
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
