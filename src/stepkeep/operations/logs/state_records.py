"""What people and programs left on record, as files of seed 004: logs of tasks, interventions, metrics.

Pure: it shapes views and lines that were read. It reads no store and writes no file. `state_export` writes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

import msgspec

from stepkeep.kernel.machine.states import Phase
from stepkeep.operations.logs.lines import timestamp
from stepkeep.operations.logs.state_files import holder_of
from stepkeep.operations.runs.run_answers import AttemptDetail, RunView

LOGS, BACKUPS, METRICS, INTERVENTIONS = "logs", "backups", "metrics.json", "interventions.log"

BY_PEOPLE = frozenset(
    {
        "gate_decided",
        "hold_decided",
        "step_decided",
        "completion_signalled",
        "cancel_requested",
        "token_reissued",
        "pause_requested",
        "unpause_requested",
    }
)
"""Events by which a person changes the course of a run."""

_encode = msgspec.json.Encoder(order="sorted").encode


def logs_of(workstream: str, view: RunView) -> dict[str, bytes]:
    """One log for each task that was tried: its attempts, and what its program printed last."""
    found = {}
    for step in view.steps:
        if step.phase is not Phase.MAIN or not step.attempts:
            continue
        lines = [_attempt(attempt) for attempt in step.attempts]
        output = step.output
        if isinstance(output, dict):
            for name in ("stdout", "stderr"):
                text = output.get(name)
                lines += [f"{name}: {line}" for line in text.splitlines()] if isinstance(text, str) else []
        found[f"{LOGS}/{workstream}/{step.name}.log"] = "".join(f"{line}\n" for line in lines).encode()
    return found


def _attempt(attempt: AttemptDetail) -> str:
    said = f"{attempt.ended_at} attempt {attempt.number} since {attempt.started_at}: {attempt.state}"
    return f"{said}: {attempt.error.splitlines()[0]}" if attempt.error else said


def interventions_of(workstream: str, lines: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """What people did to a run, in the order of its journal."""
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for line in lines:
        facts = line["metadata"]
        if facts["event"] in BY_PEOPLE:
            place = (facts["seq"], facts["cause"])
            entry = found.setdefault(place, {"timestamp": line["timestamp"], "event": facts["event"]})
            entry |= {"workstream_id": workstream, "run_id": facts["run_id"], "operator": facts["actor"]}
            detail = facts.get("detail", {})
            entry |= {name: detail[name] for name in ("decision", "outcome", "reason", "comment") if name in detail}
            if "task_id" not in entry and ("step" in detail or "step" in facts):
                entry["task_id"] = detail.get("step") or facts["step"]
    return tuple(found[place] for place in sorted(found))


def interventions_file(found: Iterable[Mapping[str, Any]]) -> bytes:
    """One line of JSON for each intervention, the earliest first."""
    return b"".join(_encode(one) + b"\n" for one in sorted(found, key=lambda one: str(one["timestamp"])))


class StateMetrics(TypedDict):
    """How many workstreams and tasks are in which state, how often tasks were retried, and how busy workers are."""

    timestamp: str
    workstreams: dict[str, int]
    tasks: dict[str, int]
    retries: int
    tasks_by_worker: dict[str, int]


def metrics_of(bodies: Iterable[Mapping[str, Any]], now: int) -> StateMetrics:
    """How many workstreams and tasks are in which state, how often tasks were retried, and how busy workers are."""
    streams: Counter[str] = Counter()
    tasks: Counter[str] = Counter()
    workers: Counter[str] = Counter()
    retries = 0
    for body in bodies:
        streams[body["workstream"]["status"]] += 1
        for task in body["tasks"]:
            tasks[task["status"] or "pending"] += 1
            retries += task["state"]["retry_count"]
            if (worker := holder_of(task)) is not None:
                workers[worker] += 1
    return {
        "timestamp": timestamp(now),
        "workstreams": dict(sorted(streams.items())),
        "tasks": dict(sorted(tasks.items())),
        "retries": retries,
        "tasks_by_worker": dict(sorted(workers.items())),
    }
