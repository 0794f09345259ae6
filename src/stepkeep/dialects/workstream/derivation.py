"""Derives the state of a workstream from its tasks: seed 004's `derive_workstream_state`, with its mistake corrected.

The seed's order is kept. The original tests for a failed critical task with an undefined variable; it lets a workstream
without tasks be finished, and one whose tasks have all ended continue forever. Plain data, no engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

TASK_ENDED = frozenset({"completed", "failed", "cancelled"})
WORKSTREAM_ENDED = frozenset({"completed", "failed", "cancelled"})

IN_FLIGHT = frozenset({"running", "validating"})
"""States in which a worker holds the task: also while its rules are checked."""

UNSTARTED = frozenset({"pending", "queued"})

BEYOND_TASKS = frozenset({("ready", "planned"), ("validating", "completed"), ("validating", "failed")})
"""What tasks cannot tell: whether the workstream was started, and how its final validation (or its timeout) ended."""


class TaskView(NamedTuple):
    """What the derivation needs of a task. `started` means that a worker held it before, as after a retry; `adopted`
    that an earlier workstream completed it, so that it tells nothing about the start of this one."""

    state: str
    critical: bool = False
    started: bool = False
    adopted: bool = False


def derive_workstream_state(tasks: Iterable[TaskView], *, user_cancelled: bool = False) -> str:
    """What the states of its tasks make of a workstream.

    >>> derive_workstream_state([TaskView("completed"), TaskView("running")])
    'executing'
    >>> derive_workstream_state([TaskView("failed", critical=True), TaskView("cancelled")])
    'failed'
    """
    known = tuple(tasks)
    states = {task.state for task in known}
    if user_cancelled:
        return "cancelled"
    if not known:
        return "planned"
    if states & IN_FLIGHT:
        return "executing"
    if states == {"completed"}:
        return "validating"
    if any(task.state == "failed" and task.critical for task in known):
        return "failed"
    own = [task for task in known if not task.adopted]
    if all(task.state in UNSTARTED and not task.started for task in own):
        return "ready"
    if states <= TASK_ENDED:
        return "failed"
    return "executing"


def agrees(derived: str, shown: str) -> bool:
    """Whether the shown state of a workstream is consistent with its tasks."""
    return derived == shown or (derived, shown) in BEYOND_TASKS
