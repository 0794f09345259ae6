"""Lines between steps are followed by eye, so they must lead where the edges lead: no further, nowhere else."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from stepkeep.cli.render.graph import GraphLine, draw_lanes
from tests.suites import drawn


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    """Nodes with what they come after, dependencies first."""
    size = draw(st.integers(1, 14))
    return {
        str(no): tuple(sorted(str(m) for m in draw(st.sets(st.integers(0, no - 1), max_size=4)))) if no else ()
        for no in range(size)
    }


@drawn(50, 300, graphs())
def test_following_the_lines_down_from_a_step_leads_to_exactly_what_comes_after_it(
    after: dict[str, tuple[str, ...]],
) -> None:
    lines = draw_lanes(after, dict.fromkeys(after, "*"))
    assert [line.node for line in lines if line.node] == list(after)
    for name in after:
        children = {other for other, before in after.items() if name in before}
        assert reached(lines, name) == children, "\n".join(line.art for line in lines)


def reached(lines: Sequence[GraphLine], name: str) -> set[str]:
    """Where the lines lead from a node: down from it, or along the row below it and then down."""
    start = next(place for place, line in enumerate(lines) if line.node == name)
    if start + 1 == len(lines) or lines[start + 1].node is not None:
        return set()
    row, here = lines[start + 1].art, lines[start].column
    columns = [here] if row[here] in "│├┤┼" else []
    if row[here] in "├┼╰┴":
        columns += along(row, here, +1, opens="┤┼╮┬", ends="┤╮")
    if row[here] in "┤┼╯┴":
        columns += along(row, here, -1, opens="├┼╭┬", ends="├╭")
    return {down(lines, start + 2, column) for column in columns}


def along(row: str, here: int, step: int, *, opens: str, ends: str) -> list[int]:
    """The columns into which a line turns on its way to the side."""
    found = []
    column = here
    while True:
        assert row[column + step] == "─"
        column += 2 * step
        if row[column] in opens:
            found.append(column)
        if row[column] in ends:
            return found
        assert row[column] in "─│┼┬"


def down(lines: Sequence[GraphLine], place: int, column: int) -> str:
    """The node at the end of a line that goes straight down."""
    for line in lines[place:]:
        if line.node is not None and line.column == column:
            return line.node
        assert line.art[column] in "│├┤┼"
    raise AssertionError("the line leads nowhere")
