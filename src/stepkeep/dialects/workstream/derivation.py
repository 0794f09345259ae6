"""The state of a workstream as its tasks tell it: seed 004's `derive_workstream_state`, with its slip mended.

The seed's own order is kept. It asks whether a critical task failed with a variable that does not exist there; it lets
a workstream of no tasks be finished, and one whose tasks have all ended go on for ever. Plain words, no engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

TASK_ENDED = frozenset({"completed", "failed", "cancelled"})
WORKSTREAM_ENDED = frozenset({"completed", "failed", "cancelled"})

IN_FLIGHT = frozenset({"running", "validating"})
"""A worker holds the task: also while its rules are checked."""

UNSTARTED = frozenset({"pending", "queued"})

BEYOND_TASKS = frozenset({("ready", "planned"), ("validating", "completed"), ("validating", "failed")})
"""What tasks cannot tell: whether the workstream was started, and how its final validation (or its time) ended."""


class TaskView(NamedTuple):
    """What the derivation asks about a task. `started` says that a worker had it before, as after a retry."""

    state: str
    critical: bool = False
    started: bool = False


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
    if states <= UNSTARTED and not any(task.started for task in known):
        return "ready"
    if states <= TASK_ENDED:
        return "failed"
    return "executing"


def agrees(derived: str, shown: str) -> bool:
    """Is a workstream that is shown so consistent with what its tasks make of it?"""
    return derived == shown or (derived, shown) in BEYOND_TASKS
