"""An instance in the shapes of seed 002: its row of `workflow_instance` and its rows of `workflow_step`.

Made from the canonical view and the run's log in this dialect; it reads nothing else and decides nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from stepkeep.dialects.dialect import NoEvents

View = Mapping[str, Any]

COUNTED = frozenset({"failed", "timed_out", "lost"})
"""Triggers that count an attempt: retry, loss and death; a wait or a success does not."""

LEASE_EXPIRED = "LEASE_EXPIRED"


class LinearWords(NoEvents):
    """The rows of the seed's two tables."""

    def run(self, canonical: View, lines: list[dict[str, Any]]) -> dict[str, Any]:
        run_id = canonical["run"]["id"]
        shown = {line["entity_id"]: line["to_state"] for line in lines}
        main = [step for step in canonical["steps"] if step["phase"] == "main"]
        types = canonical["definition"]["about"].get("stepTypes", {})
        limits = {step["name"]: step["retry"]["max_attempts"] for step in canonical["definition"]["steps"]}
        awaited = {wait["step"]: wait.get("event") for wait in canonical["run"]["waiting_for"]}
        holders = {line["entity_id"]: line["metadata"]["worker"] for line in lines if "worker" in line["metadata"]}
        steps = []
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
        instance = _instance(
            canonical["run"],
            shown.get(run_id),
            current_step_seq=current["step_seq"],
            current_step_type=current["step_type"],
            context_json=json.dumps(canonical["run"]["input"], separators=(",", ":"), ensure_ascii=False),
        )
        return {"workflow_instance": instance, "workflow_step": steps}

    def summary(self, canonical_run: View, shown_state: str) -> dict[str, Any]:
        return _instance(canonical_run, shown_state or None)


WORDS = LinearWords()


def _instance(run: View, status: str | None, **more: Any) -> dict[str, Any]:
    """A row in the order of its columns. A run that is not started is not an instance yet and has no status."""
    return {
        "instance_id": run["id"],
        "biz_key": run["business_key"],
        "workflow_type": run["workflow"],
        "workflow_version": run["version"],
        "status": status,
        **more,
        "started_at": run["started_at"],
        "completed_at": run["ended_at"] if status == "COMPLETED" else None,
        "failed_at": run["ended_at"] if status == "FAILED" else None,
        "created_at": run["created_at"],
    }


def _row(step: View, status: str | None, *, limit: int | None, event: str | None, holder: str | None) -> dict[str, Any]:
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


def _current(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """The step that was activated last; before that, the first one."""
    begun = [step for step in steps if step["status"] in {"READY", "RUNNING", "WAITING", "DONE", "DEAD"}]
    return begun[-1] if begun else steps[0]
