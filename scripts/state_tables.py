"""Write docs/reference/states.md from the kernel's tables, so that the pages can never disagree with the engine.

Run `python scripts/state_tables.py` after changing a table; a test compares the page with what this would write.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stepkeep.kernel.machine.states import ATTEMPT_TERMINAL, RUN_TERMINAL, STEP_TERMINAL, WORKER_TERMINAL
from stepkeep.kernel.machine.tables import MACHINES, Machine

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "states.md"

TERMINAL = {
    "run": RUN_TERMINAL,
    "step": STEP_TERMINAL,
    "worker": WORKER_TERMINAL,
    "attempt": ATTEMPT_TERMINAL,
}

OPENING = """# The four machines

Written by `scripts/state_tables.py` from the tables that the engine itself asks; do not edit by hand.

Guards in the kernel choose the trigger; these tables alone choose the state. A (state, trigger) pair without a row is
refused. Numbers in the last column name one of the five specifications Stepkeep implements and its section.
"""


def page() -> str:
    return "\n".join([OPENING, *(line for machine in MACHINES for line in section(machine))]) + "\n"


def section(machine: Machine[Any, Any]) -> Iterator[str]:
    yield f"## {machine.name.capitalize()}\n"
    yield f"Terminal: {', '.join(f'`{state}`' for state in machine.states if state in TERMINAL[machine.name])}.\n"
    yield from diagram(machine)
    yield "| from | trigger | to | because |"
    yield "|---|---|---|---|"
    for row in machine.rows:
        yield f"| {f'`{row.source}`' if row.source else '(new)'} | `{row.trigger}` | `{row.target}` | {row.cites} |"
    yield ""


def diagram(machine: Machine[Any, Any]) -> Iterator[str]:
    """One arrow per pair of states; where many states lead to one by the same trigger, the table tells them all."""
    yield "```mermaid\nstateDiagram-v2"
    arrows: dict[tuple[str, str], list[str]] = {}
    for row in machine.rows:
        if row.trigger == "cancelled" and row.source is not None and machine.name == "step":
            continue
        arrows.setdefault((row.source or "[*]", row.target), []).append(row.trigger)
    for (source, target), triggers in arrows.items():
        yield f"    {source} --> {target}: {', '.join(triggers)}"
    if machine.name == "step":
        yield "    note right of cancelled: from every state that is not terminal"
    for state in machine.states:
        if state in TERMINAL[machine.name]:
            yield f"    {state} --> [*]"
    yield "```\n"


def main() -> int:
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
