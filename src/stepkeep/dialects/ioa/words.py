"""A run as a workflow resource with its `status`, in the shapes of the ioa format.

Made from the canonical view, the definition and the run's own log; it reads nothing else and decides nothing. `show
--as ioa` and `runs --as ioa` print it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from stepkeep.dialects.dialect import CaseTeller, LogLine
from stepkeep.dialects.ioa.events import (
    CostAccumulated,
    IoaEvent,
    IoaShape,
    RunStory,
    Telemetry,
    events_of,
    latency,
    millis_between,
    plain,
    run_story,
)

API_VERSION = "ioa.dev/v0.2"
KIND = "Workflow"


class WorkflowMetadata(IoaShape, kw_only=True):
    name: str
    version: int | str
    labels: Mapping[str, str] | UnsetType = UNSET
    owner: Mapping[str, Any] | UnsetType = UNSET
    annotations: Mapping[str, str] | UnsetType = UNSET


class ShownCondition(IoaShape, kw_only=True):
    """What holds of a run: a type with a status, the reason in one word, and a message."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: str | None


class WorkflowStatus(IoaShape, kw_only=True):
    """The `status` of a workflow resource."""

    state: str
    current_step: str | None
    completed_steps: list[str]
    failed_steps: list[str]
    started_at: str | None
    completed_at: str | None
    retries: int
    latency: str | None
    cost_accumulated: CostAccumulated
    conditions: list[ShownCondition]


class ShownStep(IoaShape, kw_only=True):
    name: str
    state: str
    agent: str | None
    depends_on: list[str]
    retries: int
    started_at: str | None
    completed_at: str | None
    duration_ms: int | None
    on_failure: str | None
    error: str | None
    output: Any


class ShownCompensation(IoaShape, kw_only=True):
    step: str
    state: str
    started_at: str | None
    completed_at: str | None
    error: str | None


class ShownWorkflow(IoaShape, kw_only=True):
    """A run as a workflow resource."""

    api_version: str
    kind: str
    metadata: WorkflowMetadata
    run: str
    correlation_id: str
    status: WorkflowStatus
    steps: list[ShownStep]
    compensation: list[ShownCompensation]
    events: list[IoaEvent]


class WorkflowSummary(IoaShape, kw_only=True):
    """A run in a list."""

    run: str
    name: str
    state: str
    started_at: str | None
    completed_at: str | None
    latency: str | None


class IoaWords:
    """Runs and lists of runs."""

    def run(self, canonical: Mapping[str, Any], lines: Sequence[LogLine]) -> Mapping[str, Any]:
        told = run_story(canonical, lines)
        return plain(
            ShownWorkflow(
                api_version=API_VERSION,
                kind=KIND,
                metadata=_metadata(told),
                run=told.run["id"],
                correlation_id=told.run["correlation_id"],
                status=_status(told),
                steps=[_step(told, step) for step in told.steps],
                compensation=list(_compensation(told)),
                events=events_of(told),
            )
        )

    def summary(self, canonical_run: Mapping[str, Any], shown_state: str) -> Mapping[str, Any]:
        return plain(
            WorkflowSummary(
                run=canonical_run["id"],
                name=canonical_run["workflow"],
                state=shown_state,
                started_at=canonical_run["started_at"],
                completed_at=canonical_run["ended_at"],
                latency=latency(canonical_run["started_at"], canonical_run["ended_at"]),
            )
        )

    def teller(self, about: Mapping[str, Any]) -> CaseTeller:
        """The telemetry, for sinks."""
        return Telemetry(about)


WORDS = IoaWords()


def _metadata(told: RunStory) -> WorkflowMetadata:
    about = told.definition.get("about", {})
    return WorkflowMetadata(
        name=told.run["workflow"],
        version=about.get("version", told.run["version"]),
        labels=told.definition.get("labels") or UNSET,
        owner=about.get("owner", UNSET),
        annotations=about.get("annotations", UNSET),
    )


def _status(told: RunStory) -> WorkflowStatus:
    """The resource's `status`, key by key. It has no key for skipped steps; `steps` beside it has."""
    run = told.run
    return WorkflowStatus(
        state=told.state,
        current_step=next(iter(told.in_state("running")), None),
        completed_steps=told.in_state("completed"),
        failed_steps=told.in_state("failed"),
        started_at=run["started_at"],
        completed_at=run["ended_at"],
        retries=sum(max(step["attempts"] - 1, 0) for step in told.steps),
        latency=latency(run["started_at"], run["ended_at"]),
        cost_accumulated=told.cost,
        conditions=list(_conditions(told)),
    )


def _step(told: RunStory, step: Mapping[str, Any]) -> ShownStep:
    name = step["name"]
    return ShownStep(
        name=name,
        state=told.states.get(name, "pending"),
        agent=told.agents.get(name),
        depends_on=step["depends_on"],
        retries=max(step["attempts"] - 1, 0),
        started_at=told.began.get(name),
        completed_at=told.ended.get(name),
        duration_ms=millis_between(told.began.get(name), told.ended.get(name)),
        on_failure=told.policies.get(name),
        error=step["error"],
        output=step["output"],
    )


def _compensation(told: RunStory) -> Iterator[ShownCompensation]:
    """The undo steps in the order in which they run (section 4.1)."""
    for name in told.undone:
        hook = told.hooks[name]
        yield ShownCompensation(
            step=name,
            state=HOOK_STATES.get(hook["state"], "running"),
            started_at=hook["started_at"],
            completed_at=hook["ended_at"],
            error=hook["error"],
        )


HOOK_STATES = {
    "pending": "pending",
    "ready": "pending",
    "succeeded": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
}


def _conditions(told: RunStory) -> Iterator[ShownCondition]:
    yield _steps_healthy(told)
    if told.state == "blocked":
        waiting = ", ".join(wait["step"] for wait in told.run["waiting_for"])
        yield _condition("Blocked", "True", "AwaitingInput", f"waiting for input: {waiting}", told.moved_at)
    rollback = told.run["rollback"]
    if rollback != "none":
        status, reason = ("True", "RollbackComplete") if rollback == "complete" else ("False", "RollbackPartial")
        undone = ", ".join(name for name in told.undone if told.hooks[name]["state"] == "succeeded")
        yield _condition("RolledBack", status, reason, f"taken back: {undone or 'nothing'}", told.run["ended_at"])


def _steps_healthy(told: RunStory) -> ShownCondition:
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


def _condition(kind: str, status: str, reason: str, message: str, at: str | None) -> ShownCondition:
    return ShownCondition(type=kind, status=status, reason=reason, message=message, last_transition_time=at)
