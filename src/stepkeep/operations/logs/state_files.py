"""The state files of seed 004, as documents: `current.json`, the DAG, the execution plan and the checkpoint of a
workstream.

Pure: it shapes what `describe_run_as` gives. It reads no store and writes no file. `state_export` writes the documents.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

import msgspec

from stepkeep.operations.logs.lines import timestamp

CURRENT, TRANSITIONS, CHECKPOINTS = "current.json", "transitions.jsonl", "checkpoints"


class ReadAt(TypedDict):
    """The place in the journal of a run at which it was read."""

    run_id: str
    seq: int
    head: str


class StreamCheckpoint(ReadAt):
    """What is done and what is left of a workstream: enough to say what would go on."""

    workstream_id: str
    status: str
    completed_tasks: list[str]
    failed_tasks: list[str]
    cancelled_tasks: list[str]
    pending_tasks: list[str]
    running_tasks: list[str]
    resources_held: dict[str, str]


class Indices(TypedDict):
    by_workstream: dict[str, list[str]]
    by_status: dict[str, list[str]]
    by_worker: dict[str, list[str]]


class Current(TypedDict):
    """`current.json`: every workstream and task, and indices over them."""

    timestamp: str
    workstreams: dict[str, object]
    tasks: dict[str, object]
    indices: Indices


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """One run in the seed's words, with the place in its journal at which it was read."""

    run_id: str
    seq: int
    head: str
    body: Mapping[str, Any]
    logs: dict[str, bytes] = {}
    interventions: tuple[dict[str, Any], ...] = ()

    @property
    def workstream(self) -> str:
        return str(self.body["workstream"]["workstream_id"])

    @property
    def read_at(self) -> ReadAt:
        return {"run_id": self.run_id, "seq": self.seq, "head": self.head}


def documents_of(shown: Shown) -> dict[str, Mapping[str, object]]:
    """The files of one workstream, by their names in the folder."""
    name, at = shown.workstream, shown.read_at
    return {
        f"dag_{name}.json": {**shown.body["dag"], **at},
        f"execution_plan_{name}.json": {**shown.body["execution_plan"], **at},
        f"{CHECKPOINTS}/{name}_latest.json": checkpoint_of(shown),
    }


def checkpoint_of(shown: Shown) -> StreamCheckpoint:
    by_status: dict[str, list[str]] = defaultdict(list)
    for task in shown.body["tasks"]:
        by_status[task["status"] or "pending"].append(task["task_id"])
    return {
        "workstream_id": shown.workstream,
        **shown.read_at,
        "status": shown.body["workstream"]["status"],
        "completed_tasks": by_status["completed"],
        "failed_tasks": by_status["failed"],
        "cancelled_tasks": by_status["cancelled"],
        "pending_tasks": [*by_status["pending"], *by_status["queued"], *by_status["retrying"]],
        "running_tasks": [*by_status["running"], *by_status["validating"]],
        "resources_held": {
            task["task_id"]: worker for task in shown.body["tasks"] if (worker := holder_of(task)) is not None
        },
    }


def holder_of(task: dict[str, Any]) -> str | None:
    """The worker that holds a task: the one that it is assigned to, or the one that evaluates its rules."""
    worker: str | None = task["state"]["assigned_worker"] or task["state"]["validated_by"]
    return worker


def current_of(all_shown: Iterable[Shown], now: int) -> Current:
    workstreams: dict[str, object] = {}
    tasks: dict[str, object] = {}
    by_workstream: dict[str, list[str]] = {}
    by_status: dict[str, list[str]] = defaultdict(list)
    by_worker: dict[str, list[str]] = defaultdict(list)
    for shown in all_shown:
        workstreams[shown.workstream] = {**shown.body["workstream"], **shown.read_at}
        by_workstream[shown.workstream] = []
        for task in shown.body["tasks"]:
            key = f"{shown.workstream}/{task['task_id']}"
            tasks[key] = task
            by_workstream[shown.workstream].append(key)
            by_status[task["status"] or "pending"].append(key)
            if (worker := holder_of(task)) is not None:
                by_worker[worker].append(key)
    return {
        "timestamp": timestamp(now),
        "workstreams": workstreams,
        "tasks": tasks,
        "indices": {"by_workstream": by_workstream, "by_status": dict(by_status), "by_worker": dict(by_worker)},
    }
