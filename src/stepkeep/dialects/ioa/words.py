"""A run as a workflow resource with its `status`, in the shapes of the ioa format.

Made from the canonical view, the definition and the run's own log; it reads nothing else and decides nothing. `show
--as ioa` and `runs --as ioa` print it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stepkeep.dialects.dialect import Teller
from stepkeep.dialects.ioa.events import Telemetry, events_of
from stepkeep.dialects.ioa.story import Told, latency, millis_between, tell

API_VERSION = "ioa.dev/v0.2"
KIND = "Workflow"


class IoaWords:
    """Runs and lists of runs."""

    def run(self, canonical: Mapping[str, Any], lines: list[dict[str, Any]]) -> dict[str, Any]:
        told = tell(canonical, lines)
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": _metadata(told),
            "run": told.run["id"],
            "correlationId": told.run["correlation_id"],
            "status": _status(told),
            "steps": [_step(told, step) for step in told.steps],
            "compensation": list(_compensation(told)),
            "events": events_of(told),
        }

    def summary(self, canonical_run: Mapping[str, Any], shown_state: str) -> dict[str, Any]:
        return {
            "run": canonical_run["id"],
            "name": canonical_run["workflow"],
            "state": shown_state,
            "startedAt": canonical_run["started_at"],
            "completedAt": canonical_run["ended_at"],
            "latency": latency(canonical_run["started_at"], canonical_run["ended_at"]),
        }

    def teller(self, about: Mapping[str, Any]) -> Teller:
        """The telemetry, for sinks."""
        return Telemetry(about)


WORDS = IoaWords()


def _metadata(told: Told) -> dict[str, Any]:
    about = told.definition.get("about", {})
    said: dict[str, Any] = {"name": told.run["workflow"], "version": about.get("version", told.run["version"])}
    if labels := told.definition.get("labels"):
        said["labels"] = labels
    return said | {key: about[key] for key in ("owner", "annotations") if key in about}


def _status(told: Told) -> dict[str, Any]:
    """The resource's `status`, key by key. It has no key for skipped steps; `steps` beside it has."""
    run = told.run
    return {
        "state": told.state,
        "currentStep": next(iter(told.in_state("running")), None),
        "completedSteps": told.in_state("completed"),
        "failedSteps": told.in_state("failed"),
        "startedAt": run["started_at"],
        "completedAt": run["ended_at"],
        "retries": sum(max(step["attempts"] - 1, 0) for step in told.steps),
        "latency": latency(run["started_at"], run["ended_at"]),
        "costAccumulated": told.cost,
        "conditions": list(_conditions(told)),
    }


def _step(told: Told, step: Mapping[str, Any]) -> dict[str, Any]:
    name = step["name"]
    return {
        "name": name,
        "state": told.states.get(name, "pending"),
        "agent": told.agents.get(name),
        "dependsOn": step["depends_on"],
        "retries": max(step["attempts"] - 1, 0),
        "startedAt": told.began.get(name),
        "completedAt": told.ended.get(name),
        "durationMs": millis_between(told.began.get(name), told.ended.get(name)),
        "onFailure": told.policies.get(name),
        "error": step["error"],
        "output": step["output"],
    }


def _compensation(told: Told) -> Iterator[dict[str, Any]]:
    """The undo steps in the order in which they run (section 4.1)."""
    for name in told.undone:
        hook = told.hooks[name]
        yield {
            "step": name,
            "state": HOOK_STATES.get(hook["state"], "running"),
            "startedAt": hook["started_at"],
            "completedAt": hook["ended_at"],
            "error": hook["error"],
        }


HOOK_STATES = {
    "pending": "pending",
    "ready": "pending",
    "succeeded": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
}


def _conditions(told: Told) -> Iterator[dict[str, Any]]:
    yield _steps_healthy(told)
    if told.state == "blocked":
        waiting = ", ".join(wait["step"] for wait in told.run["waiting_for"])
        yield _condition("Blocked", "True", "AwaitingInput", f"waiting for input: {waiting}", told.moved_at)
    rollback = told.run["rollback"]
    if rollback != "none":
        status, reason = ("True", "RollbackComplete") if rollback == "complete" else ("False", "RollbackPartial")
        undone = ", ".join(name for name in told.undone if told.hooks[name]["state"] == "succeeded")
        yield _condition("RolledBack", status, reason, f"taken back: {undone or 'nothing'}", told.run["ended_at"])


def _steps_healthy(told: Told) -> dict[str, Any]:
    failed, tolerated = told.in_state("failed"), told.tolerated
    if failed:
        said = f"failed: {', '.join(failed)}"
        return _condition("StepsHealthy", "False", "StepFailed", said, told.ended[failed[0]])
    if told.state == "failed" and told.run["error"] is not None:
        reason = "WorkflowTimeout" if told.run["category"] == "timeout" else "WorkflowFailed"
        return _condition("StepsHealthy", "False", reason, told.run["error"], told.run["ended_at"])
    if tolerated:
        said = f"skipped after a failure: {', '.join(tolerated)}"
        return _condition("StepsHealthy", "True", "FailuresTolerated", said, told.ended[tolerated[-1]])
    if told.run["started_at"] is None:
        return _condition("StepsHealthy", "Unknown", "NotStarted", "no step has run", told.run["created_at"])
    return _condition("StepsHealthy", "True", "NoFailures", "no step has failed", told.run["started_at"])


def _condition(kind: str, status: str, reason: str, message: str, at: str | None) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}
