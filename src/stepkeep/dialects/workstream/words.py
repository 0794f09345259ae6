"""A run in the shapes of seed 004: the workstream, its task files, its DAG file, its execution plan, its derived state.

Made from the canonical view and the run's log in this dialect; it reads nothing else. States, times and counts come
from the log, everything written from the definition. Runs of other formats can be shown too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Required, TypedDict

from stepkeep.definition.native.build import VERSION
from stepkeep.dialects.dialect import CaseTeller, DomainEvent, LogLine
from stepkeep.dialects.workstream.machine import FINAL_STEPS
from stepkeep.dialects.workstream.planning import (
    TASK_ENDED,
    ExecutionPlan,
    TaskView,
    blocked_by,
    derive_workstream_state,
    execution_plan,
    topological_order,
)

Plain = Mapping[str, Any]

SECOND = 1_000_000
WHY = {
    "dependency_unmet": "{of}, which it depends on, did not complete",
    "condition_false": "its condition did not hold",
    "cancelled": "its workstream ended before it did",
}
"""Why a task was cancelled without a cancel of its own."""


class Execution(TypedDict):
    """How a task is executed."""

    command: list[str] | None
    working_directory: str | None
    timeout_seconds: float
    max_retries: int
    retry_delay_seconds: float


class TaskState(TypedDict):
    created_at: str | None
    started_at: str | None
    completed_at: str | None
    assigned_worker: str | None
    validated_by: str | None
    retry_count: int
    last_error: str | None
    reason: str | None


class TaskFile(TypedDict, total=False):
    """The file of a task. Its requirements and its schema are there if they were written."""

    task_id: Required[str]
    workstream_id: str
    name: str
    description: str
    type: str
    status: Required[str | None]
    critical: Required[bool]
    dependencies: list[str]
    blocks: list[str]
    worker_requirements: Mapping[str, Any]
    execution: Required[Execution]
    validation_rules: Mapping[str, list[str]]
    context_requirements: Any
    resource_requirements: Mapping[str, Any]
    schema_version: Any
    schema_url: str
    state: TaskState


class FinalStep(TypedDict):
    """A step of the final validation."""

    name: str
    state: str
    last_error: str | None


class StreamState(TypedDict):
    created_at: str | None
    started_at: str | None
    completed_at: str | None
    last_error: str | None


class WorkstreamFile(TypedDict):
    """The file of a workstream."""

    workstream_id: str
    run_id: str
    name: str
    description: str
    version: int
    status: str | None
    derived_status: str
    max_duration_seconds: float | None
    validation_rules: Mapping[str, list[str]]
    final_steps: list[FinalStep]
    tasks: list[str]
    state: StreamState


class DagFile(TypedDict):
    """The graph of a workstream."""

    workstream_id: str
    generated_at: str | None
    nodes: list[dict[str, object]]
    edges: list[dict[str, str]]
    topological_order: list[str]


class ExecutionPlanFile(ExecutionPlan):
    """The execution plan of a workstream."""

    workstream_id: str


class WorkstreamFiles(TypedDict):
    """A run in the files of the seed."""

    workstream: WorkstreamFile
    tasks: list[TaskFile]
    dag: DagFile
    execution_plan: ExecutionPlanFile


class WorkstreamSummary(TypedDict):
    """A run in a list."""

    workstream_id: str
    run_id: str
    version: int
    status: str
    created_at: str | None
    started_at: str | None
    completed_at: str | None
    last_error: str | None


class WorkstreamWords:
    """Runs in the seed's shapes."""

    def run(self, canonical: Plain, lines: Sequence[LogLine]) -> WorkstreamFiles:
        definition = canonical["definition"]
        written = [step for step in definition["steps"] if not is_final(step)]
        histories = {step["name"]: TaskHistory() for step in written}
        stream = TaskHistory()
        for line in lines:
            name = line["metadata"].get("step")
            (stream if name is None else histories[name]).consume(line)
        steps = {step["name"]: step for step in canonical["steps"]}
        needs = {step["name"]: [edge["step"] for edge in step["depends_on"]] for step in written}
        blocks = blocked_by(needs)
        tasks = [
            _task(definition, step, histories[step["name"]], blocks.get(step["name"], []), steps.get(step["name"], {}))
            for step in sorted(written, key=lambda step: (step["order"], step["name"]))
        ]
        return {
            "workstream": _workstream(canonical, stream, tasks, histories),
            "tasks": tasks,
            "dag": _dag(definition, stream, tasks, needs),
            "execution_plan": _plan(definition, tasks, needs, histories),
        }

    def summary(self, canonical_run: Plain, shown_state: str) -> WorkstreamSummary:
        return {
            "workstream_id": canonical_run["workflow"],
            "run_id": canonical_run["id"],
            "version": canonical_run["version"],
            "status": shown_state,
            "created_at": canonical_run["created_at"],
            "started_at": canonical_run["started_at"],
            "completed_at": canonical_run["ended_at"],
            "last_error": canonical_run["error"],
        }

    def teller(self, about: Plain) -> CaseTeller:
        """The state transition events of the seed's schema, for sinks."""
        return Transitions()


class Transitions:
    """One event for each line of the log, which has the seed's own shape."""

    def entry(self, canonical: Sequence[LogLine], lines: Sequence[LogLine]) -> list[DomainEvent]:
        return [
            DomainEvent(line["metadata"]["seq"], line["event_type"], line, {"severity": line["severity"]})
            for line in lines
        ]


WORDS = WorkstreamWords()


class TaskHistory:
    """What the log shows of one task, or of the workstream."""

    def __init__(self) -> None:
        self.status: str | None = None
        self.moments: dict[str, str] = {}
        self.worker: str | None = None
        self.retry_count = 0
        self.seconds: float | None = None
        self.reason: str | None = None
        self.adopted = False

    def consume(self, line: LogLine) -> None:
        said = line["metadata"]
        self.status = line["to_state"] or ""
        self.adopted = self.adopted or said.get("because") == "adopted"
        self.moments[self.status] = line["timestamp"]
        self.moments.setdefault("created", line["timestamp"])
        self.worker = said.get("worker")
        self.retry_count = said.get("retry_count", self.retry_count)
        self.seconds = said.get("duration_seconds", self.seconds)
        if self.status == "cancelled":
            self.reason = _why(said)

    @property
    def ended_at(self) -> str | None:
        return self.moments[self.status] if self.status in TASK_ENDED else None


def _why(said: Plain) -> str | None:
    if said["event"] == "cancel_requested":
        return f"cancelled by {said['actor']}"
    return WHY[said["because"]].format(of=said.get("of")) if said["because"] in WHY else said.get("error")


def is_final(step: Plain) -> bool:
    """Whether a step is one of the final validation, and no task of the file."""
    return (step["executor"] or {}).get("name") in FINAL_STEPS


def is_critical(step: Plain) -> bool:
    return step["on_failure"] in ("abort", "compensate")


def _task(definition: Plain, step: Plain, history: TaskHistory, blocks: list[str], now: Plain) -> TaskFile:
    written = _about(definition, step["name"])
    asked = [word for word in step["capabilities"] if not word.startswith(VERSION)]
    requirements = {"capabilities": asked, "min_version": written.get("min_version")}
    task: TaskFile = {
        "task_id": step["name"],
        "workstream_id": definition["name"],
        "name": written.get("name") or step["name"],
        "description": step["description"],
        "type": written.get("type", "custom"),
        "status": history.status,
        "critical": is_critical(step),
        "dependencies": [edge["step"] for edge in step["depends_on"]],
        "blocks": sorted(blocks),
        "worker_requirements": requirements,
        "execution": _execution(step),
        "validation_rules": {
            "pre_execution": _rules(step.get("pre", ())),
            "post_execution": _rules(step["rules"]),
        },
    }
    if "context_requirements" in written:
        task["context_requirements"] = written["context_requirements"]
    if "resource_requirements" in written:
        task["resource_requirements"] = written["resource_requirements"]
    if "schema_version" in written:
        task["schema_version"] = written["schema_version"]
    if "schema_url" in written:
        task["schema_url"] = written["schema_url"]
    task["state"] = {
        "created_at": history.moments.get("created"),
        "started_at": history.moments.get("running"),
        "completed_at": history.ended_at,
        "assigned_worker": history.worker,
        # Its rules are evaluated under a lease: the task is in the hands of this worker, and not assigned to it.
        "validated_by": now.get("worker") if history.status == "validating" else None,
        "retry_count": history.retry_count,
        "last_error": now.get("error"),
        "reason": history.reason,
    }
    return task


def _rules(rules: Iterable[Plain]) -> list[str]:
    """Rules by their names, or as the expressions that they are."""
    return [rule.get("name") or rule["expression"] or _program(rule) for rule in rules]


def _program(rule: Plain) -> str:
    program = rule["program"]
    return str(program["name"] if program["kind"] == "python" else program["argv"][0])


def _execution(step: Plain) -> Execution:
    executor = step["executor"] or {}
    return {
        "command": list(executor["argv"]) if executor.get("kind") == "command" else None,
        "working_directory": executor.get("cwd"),
        "timeout_seconds": step["timeout"] / SECOND,
        "max_retries": step["retry"]["max_attempts"] - 1,
        "retry_delay_seconds": step["retry"]["initial"] / SECOND,
    }


def _view(task: Mapping[str, Any], history: TaskHistory) -> TaskView:
    started = "running" in history.moments
    return TaskView(task["status"] or "pending", task["critical"], started, history.adopted)


def _workstream(
    canonical: Plain, stream: TaskHistory, tasks: list[TaskFile], histories: Mapping[str, TaskHistory]
) -> WorkstreamFile:
    definition, run = canonical["definition"], canonical["run"]
    written = definition["about"].get("workstream", {})
    final = {step["name"]: step for step in definition["steps"] if is_final(step)}
    steps = {step["name"]: step for step in canonical["steps"]}
    rules = [*definition["rules"], *(rule for step in final.values() for rule in step["rules"])]
    views = [_view(task, histories[task["task_id"]]) for task in tasks]
    timeout = definition["timeout"]
    return {
        "workstream_id": definition["name"],
        "run_id": run["id"],
        "name": written.get("name") or definition["name"],
        "description": definition["description"],
        "version": definition["version"],
        "status": stream.status,
        "derived_status": derive_workstream_state(views, user_cancelled=stream.status == "cancelled"),
        "max_duration_seconds": None if timeout is None else timeout / SECOND,
        "validation_rules": {"post_execution": _rules(rules)},
        "final_steps": [
            {"name": name, "state": steps[name]["state"], "last_error": steps[name]["error"]} for name in final
        ],
        "tasks": [task["task_id"] for task in tasks],
        "state": {
            "created_at": stream.moments.get("created"),
            "started_at": stream.moments.get("executing"),
            "completed_at": stream.ended_at,
            "last_error": run["error"],
        },
    }


def _dag(definition: Plain, stream: TaskHistory, tasks: list[TaskFile], needs: Mapping[str, list[str]]) -> DagFile:
    """`dag_{workstream_id}.json`; an edge goes from a task to what it depends on."""
    return {
        "workstream_id": definition["name"],
        "generated_at": stream.moments.get("ready") or stream.moments.get("created"),
        "nodes": [{key: task.get(key) for key in ("task_id", "name", "type", "status")} for task in tasks],
        "edges": [
            {"from": task, "to": other, "type": "depends_on"} for task in sorted(needs) for other in sorted(needs[task])
        ],
        "topological_order": topological_order(needs),
    }


def _plan(
    definition: Plain, tasks: list[TaskFile], needs: Mapping[str, list[str]], histories: Mapping[str, TaskHistory]
) -> ExecutionPlanFile:
    """`execution_plan_{workstream_id}.json`; the duration of a task is the measured one, or else its timeout."""
    resources = {task["task_id"]: task.get("resource_requirements", {}) for task in tasks}
    seconds = {}
    for task in tasks:
        history = histories[task["task_id"]]
        measured = history.seconds if history.status == "completed" else None
        seconds[task["task_id"]] = task["execution"]["timeout_seconds"] if measured is None else measured
    return {"workstream_id": definition["name"], **execution_plan(needs, seconds, resources)}


def _about(definition: Plain, task: str) -> Plain:
    written: Plain = definition["about"].get("tasks", {}).get(task, {})
    return written
