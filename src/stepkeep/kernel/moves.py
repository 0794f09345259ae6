"""What moves in the rows of a run when all goes well; a store that is told of nothing else may leave the rest alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter

from stepkeep.kernel.rows import Attempt, Run, Step

OF_RUN = frozenset({"state", "seq", "head", "open", "moving", "leased", "due_at", "ended_at", "moved_at"})
OF_STEP = frozenset({"state", "ready_at", "due_at", "fence", "worker", "claimed_at", "unmet", "settled"})

_rest_of_run = attrgetter(*(field for field in Run.__struct_fields__ if field not in OF_RUN))
_rest_of_step = attrgetter(*(field for field in Step.__struct_fields__ if field not in OF_STEP))


def only_move(
    before: Run, run: Run, rows: Mapping[int, Step], changed: Sequence[Step], attempts: Sequence[Attempt]
) -> bool:
    """Whether a run and its steps only move, and no attempt has anything to say about a failure."""
    if _rest_of_run(before) != _rest_of_run(run):
        return False
    if any(attempt.category is not None or attempt.error is not None for attempt in attempts):
        return False
    return all(step.no in rows and _rest_of_step(rows[step.no]) == _rest_of_step(step) for step in changed)
