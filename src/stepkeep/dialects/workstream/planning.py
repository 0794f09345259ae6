"""The DAG file and the execution plan of a workstream: order, stages, and the critical path.

Pure arithmetic over task ids and durations. It is iterative, because ten thousand tasks may form a chain. `words` shows
it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple, TypedDict

Needs = Mapping[str, Sequence[str]]


def topological_order(needs: Needs) -> list[str]:
    """Dependencies first; among tasks that could come next, the lowest id."""
    unmet = {task: len(others) for task, others in needs.items()}
    followers = blocked_by(needs)
    free = [task for task, count in unmet.items() if count == 0]
    heapify(free)
    order = []
    while free:
        task = heappop(free)
        order.append(task)
        for follower in followers[task]:
            unmet[follower] -= 1
            if unmet[follower] == 0:
                heappush(free, follower)
    return order


def blocked_by(needs: Needs) -> dict[str, list[str]]:
    """For each task, its dependents."""
    followers: dict[str, list[str]] = defaultdict(list)
    for task, others in needs.items():
        for other in others:
            followers[other].append(task)
    return followers


def stages_of(needs: Needs) -> list[list[str]]:
    """Tasks by level: each stage depends only on earlier ones, and its tasks may run in parallel."""
    level: dict[str, int] = {}
    for task in topological_order(needs):
        level[task] = 1 + max((level[other] for other in needs[task]), default=-1)
    stages: list[list[str]] = [[] for _ in range(1 + max(level.values(), default=-1))]
    for task in sorted(level):
        stages[level[task]].append(task)
    return stages


def critical_path(needs: Needs, seconds: Mapping[str, float]) -> list[str]:
    """The longest path through the graph."""
    until: dict[str, float] = {}
    came_from: dict[str, str | None] = {}
    for task in topological_order(needs):
        slowest = max(needs[task], key=lambda other: (until[other], other), default=None)
        came_from[task] = slowest
        until[task] = seconds[task] + (until[slowest] if slowest is not None else 0)
    here = max(until, key=lambda task: (until[task], task), default=None)
    path = []
    while here is not None:
        path.append(here)
        here = came_from[here]
    return path[::-1]


class ParallelStage(TypedDict):
    """Tasks that can run at the same time."""

    stage: int
    parallel_tasks: list[str]
    max_parallelism: int
    estimated_duration_seconds: float
    critical_path: list[str]
    resource_requirements: dict[str, dict[str, Any]]


class ExecutionPlan(TypedDict):
    """Stages with their parallel tasks, and the estimated total duration."""

    stages: list[ParallelStage]
    total_estimated_duration: float
    critical_path_duration: float
    critical_path_tasks: list[str]


def execution_plan(
    needs: Needs, seconds: Mapping[str, float], resources: Mapping[str, Mapping[str, Any]]
) -> ExecutionPlan:
    """Stages with their parallel tasks, and the estimated total duration."""
    path = critical_path(needs, seconds)
    on_path = frozenset(path)
    stages: list[ParallelStage] = [
        {
            "stage": number,
            "parallel_tasks": tasks,
            "max_parallelism": len(tasks),
            "estimated_duration_seconds": max(seconds[task] for task in tasks),
            "critical_path": [task for task in tasks if task in on_path],
            "resource_requirements": {task: dict(resources[task]) for task in tasks if resources.get(task)},
        }
        for number, tasks in enumerate(stages_of(needs), 1)
    ]
    return {
        "stages": stages,
        "total_estimated_duration": _total(stage["estimated_duration_seconds"] for stage in stages),
        "critical_path_duration": _total(seconds[task] for task in path),
        "critical_path_tasks": path,
    }


def _total(seconds: Iterable[float]) -> float:
    return round(sum(seconds), 6)


# -- derivation ----------------------------------------------------------------------------------------------------
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
