"""Finds the step that a person names: by its own name, or by the name that a flow gave to a call, gate or wait.

Names of steps are positional (`order[3]`), and those of calls need not be unique: one that several calls have is
refused with these. It changes nothing. Decisions of people, `explain`, `show` and continuations call it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stepkeep.edges.safe_text import inert_line
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.rows import Step
from stepkeep.kernel.plan import Plan
from stepkeep.operations import validate

MOST_CANDIDATES = 10
"""How many steps are named that have the same name of a call."""


def number_of(plan: Plan, rows: Iterable[Step], of: str, name: str) -> int:
    """The number of the step of this name, or of the one call with it. Refuses any other, with the candidates."""
    found = plan.number(name)
    if found is not None:
        return found
    calls = [(row, row.note.call.name) for row in rows if row.note is not None and row.note.call is not None]
    calls = [(row, called) for row, called in calls if plan.is_element(row.no)]
    numbers = [row.no for row, called in calls if called == name]
    if len(numbers) == 1:
        return numbers[0]
    if numbers:
        raise ambiguous(of, name, [plan.at(no).name for no in numbers])
    known = [step.name for step in plan.steps]
    raise validate.no_such_step(of, name, [*known, *dict.fromkeys(called for _, called in calls)])


def ambiguous(of: str, name: str, steps: Sequence[str]) -> InvalidInput:
    """The refusal of a name that several calls have."""
    more = f" and {len(steps) - MOST_CANDIDATES:,} more" if len(steps) > MOST_CANDIDATES else ""
    listed = ", ".join(steps[:MOST_CANDIDATES])
    return InvalidInput(f"{of} has several calls {inert_line(name, 100)}: {listed}{more}. Name one of these.")
