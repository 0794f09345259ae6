"""An instance in the shapes of seed 002: its row of `workflow_instance` and its rows of `workflow_step`.

Made from the canonical view and the run's log in this dialect; it reads nothing else and decides nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Required, TypedDict

from stepkeep.dialects.dialect import LogLine, NoEvents

View = Mapping[str, Any]

COUNTED = frozenset({"failed", "timed_out", "lost"})
"""Triggers that count an attempt: retry, loss and death; a wait or a success does not."""

LEASE_EXPIRED = "LEASE_EXPIRED"


class WorkflowInstanceRow(TypedDict, total=False):
    """The columns of `workflow_instance`. A list of runs lacks the current step and the context."""

    instance_id: Required[str]
    biz_key: str | None
    workflow_type: str
    workflow_version: int
    status: str | None
    current_step_seq: int
    current_step_type: str
    context_json: str
    started_at: str | None
    completed_at: str | None
    failed_at: str | None
    created_at: str


class WorkflowStepState(TypedDict):
    """The columns of `workflow_step` that change."""

    status: str | None
    attempts: int
    max_attempts: int | None
    next_run_at: str | None
    waiting_event_type: str | None
    deadline_at: str | None
    locked_by: str | None
    locked_until: str | None
    last_error: str | None


class WorkflowStepRow(WorkflowStepState):
    """The columns of `workflow_step`."""

    instance_id: str
    step_seq: int
    step_type: str


class Tables(TypedDict):
    """The row of an instance, and those of its steps."""

    workflow_instance: WorkflowInstanceRow
    workflow_step: list[WorkflowStepRow]


class LinearWords(NoEvents):
    """The rows of the seed's two tables."""

    def run(self, canonical: View, lines: Sequence[LogLine]) -> Tables:
        run_id = canonical["run"]["id"]
        shown = {line["entity_id"]: line["to_state"] for line in lines}
        main = [step for step in canonical["steps"] if step["phase"] == "main"]
        types = canonical["definition"]["about"].get("stepTypes", {})
        limits = {step["name"]: step["retry"]["max_attempts"] for step in canonical["definition"]["steps"]}
        awaited = {wait["step"]: wait.get("event") for wait in canonical["run"]["waiting_for"]}
        holders = {line["entity_id"]: line["metadata"]["worker"] for line in lines if "worker" in line["metadata"]}
        steps: list[WorkflowStepRow] = []
        for seq, step in enumerate(main):
            entity = f"{run_id}/{step['name']}"
            steps.append(
                {
                    "instance_id": run_id,
                    "step_seq": seq,
                    "step_type": types.get(step["name"], step["name"]),
                    **_row(
                        step,
                        shown.get(entity),
                        limit=limits.get(step["name"]),
                        event=awaited.get(step["name"]),
                        holder=holders.get(entity),
                    ),
                }
            )
        current = _current(steps)
        instance = _instance(canonical["run"], shown.get(run_id), current)
        return {"workflow_instance": instance, "workflow_step": steps}

    def summary(self, canonical_run: View, shown_state: str) -> WorkflowInstanceRow:
        return _instance(canonical_run, shown_state or None)


WORDS = LinearWords()


def _instance(run: View, status: str | None, current: WorkflowStepRow | None = None) -> WorkflowInstanceRow:
    """A row in the order of its columns. A run that is not started is not an instance yet and has no status."""
    row: WorkflowInstanceRow = {
        "instance_id": run["id"],
        "biz_key": run["business_key"],
        "workflow_type": run["workflow"],
        "workflow_version": run["version"],
        "status": status,
    }
    if current is not None:
        row["current_step_seq"], row["current_step_type"] = current["step_seq"], current["step_type"]
        row["context_json"] = json.dumps(run["input"], separators=(",", ":"), ensure_ascii=False)
    row["started_at"] = run["started_at"]
    row["completed_at"] = run["ended_at"] if status == "COMPLETED" else None
    row["failed_at"] = run["ended_at"] if status == "FAILED" else None
    row["created_at"] = run["created_at"]
    return row


def _row(
    step: View, status: str | None, *, limit: int | None, event: str | None, holder: str | None
) -> WorkflowStepState:
    is_waiting, is_running = status == "WAITING", status == "RUNNING"
    return {
        "status": status,
        "attempts": sum(attempt["state"] in COUNTED for attempt in step["history"]),
        "max_attempts": limit,
        "next_run_at": _next_run_at(step) if status == "READY" else None,
        "waiting_event_type": event if is_waiting else None,
        "deadline_at": step["due_at"] if is_waiting else None,
        "locked_by": holder if is_running else None,
        "locked_until": step["due_at"] if is_running else None,
        "last_error": None if status in {"DONE", "WAITING"} else _last_error(step["error"]),
    }


def _last_error(error: str | None) -> str | None:
    """The error as the seed writes it: a lost lease reads `LEASE_EXPIRED` and nothing else (Lease Recovery)."""
    return LEASE_EXPIRED if error is not None and error.startswith(LEASE_EXPIRED) else error


def _next_run_at(step: View) -> str | None:
    """When a READY step may be claimed: the end of its backoff, or the time it became ready."""
    due: str | None = step["due_at"] if step["state"] == "retrying" else step["states"][-1]["at"]
    return due


def _current(steps: list[WorkflowStepRow]) -> WorkflowStepRow:
    """The step that was activated last; before that, the first one."""
    begun = [step for step in steps if step["status"] in {"READY", "RUNNING", "WAITING", "DONE", "DEAD"}]
    return begun[-1] if begun else steps[0]
