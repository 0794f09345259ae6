"""The telemetry of a run: one kind of event for each change of state, all under one correlation id.

Derived from the log, one event per line that requires one, so the same run always gives the same events. `show --as
ioa` has them all; the relay sends them to sinks. This module sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType

from stepkeep.dialects.dialect import DomainEvent, LogLine
from stepkeep.dialects.ioa.story import (
    UNDO,
    IoaShape,
    RunStory,
    add_line,
    is_tolerated,
    millis_between,
    plain,
    run_story,
)

Fields = Mapping[str, Callable[[RunStory, LogLine], object]]
"""The fields of a payload in their order, and what makes each from the run so far and the line of the event."""


class IoaEventKind(NamedTuple):
    """One kind of event: its category in the taxonomy, and the columns of its payload."""

    category: str
    fields: Fields


class IoaEvent(IoaShape, kw_only=True):
    """An event as a run shows it. `extension`: the taxonomy does not have it."""

    event: str
    name: str
    category: str
    timestamp: str
    correlation_id: str
    payload: Mapping[str, Any]
    extension: bool | UnsetType = UNSET


def events_of(told: RunStory) -> list[IoaEvent]:
    """All events of a run so far, oldest first."""
    found = []
    for line in told.lines:
        name = _event_in(line)
        if name is not None:
            found.append(_event(told, line, name))
    return found


class Telemetry:
    """The events of one run for sinks: each is made from the lines up to its own."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        self._told = run_story({**about, "steps": []}, [])

    def entry(self, canonical: Sequence[LogLine], lines: Sequence[LogLine]) -> list[DomainEvent]:
        """The events of the next entry."""
        found = []
        for line in lines:
            add_line(self._told, line)
            name = _event_in(line)
            if name is not None:
                found.append(self._made(line, name))
        return found

    def _made(self, line: LogLine, name: str) -> DomainEvent:
        seq, about = line["metadata"]["seq"], {"category": KINDS[name].category}
        called = f"{_domain(self._told)}.{name}"
        if name not in OF_THE_WHOLE:
            return DomainEvent(seq, called, _event(self._told, line, name).payload, about)
        then = self._told.copy()

        def late(canonical: Mapping[str, Any], lines: Sequence[LogLine]) -> list[Mapping[str, Any]]:
            now = run_story(canonical, [])
            told = replace(then, run=now.run, steps=now.steps, hooks=now.hooks)
            return [_event(told, line, name).payload]

        return DomainEvent(seq, called, {}, about, late=late)


def _event(told: RunStory, line: LogLine, name: str) -> IoaEvent:
    kind = KINDS[name]
    made = {field: value(told, line) for field, value in kind.fields.items()}
    return IoaEvent(
        event=name,
        name=f"{_domain(told)}.{name}",
        category=kind.category,
        timestamp=line["timestamp"],
        correlation_id=told.run["correlation_id"],
        payload={"workflowName": told.run["workflow"], **made},
        extension=UNSET if name in TAXONOMY else True,
    )


def _domain(told: RunStory) -> str:
    involved = told.definition.get("about", {}).get("domainsInvolved") or ["system"]
    return str(involved[0])


def _event_in(line: LogLine) -> str | None:
    state = line["to_state"] or ""
    if line["event_type"] == "workflow_state_transition":
        return OF_WORKFLOW.get(state)
    if line["event_type"] == "compensation_state_transition":
        return None if state == "pending" else f"workflow_compensation_{state}"
    if line["event_type"] != "step_state_transition":
        return None
    if state == "failed" or is_tolerated(line):
        return "workflow_step_failed"
    return OF_STEP.get(state)


def _domains(told: RunStory, line: LogLine) -> list[str]:
    found: list[str] = told.definition.get("about", {}).get("domainsInvolved", [])
    return found


def _trigger(told: RunStory, line: LogLine) -> str:
    """What started the run: the name of a trigger, or `manual` for a person or a program."""
    actor = str(told.run.get("created_by", ""))
    return actor.removeprefix("trigger:") if actor.startswith("trigger:") else "manual"


def _correlation(told: RunStory, line: LogLine) -> object:
    return told.run["correlation_id"]


def _step(told: RunStory, line: LogLine) -> str:
    return str(line["metadata"]["step"])


def _because(told: RunStory, line: LogLine) -> object:
    """The step that led to it, if one did."""
    return line["metadata"].get("of")


def _agent(told: RunStory, line: LogLine) -> str | None:
    return told.agents.get(_step(told, line))


def _lasted(told: RunStory, line: LogLine) -> int | None:
    name = _step(told, line)
    return millis_between(told.began.get(name), told.ended.get(name))


def _error(told: RunStory, line: LogLine) -> object:
    return line["metadata"].get("error") or line["metadata"].get("category")


def _failed_step(told: RunStory, line: LogLine) -> str | None:
    """The step that failed the workflow; None if it timed out or was cancelled as a whole."""
    return next(iter(told.in_state("failed")), None)


STEP: Fields = {"stepName": _step, "agent": _agent}
LEFT_OUT: Fields = {"stepName": _step, "because": _because}
UNDONE: Fields = {"stepName": lambda told, line: _step(told, line).removeprefix(UNDO), "agent": _agent}

KINDS = {
    "workflow_started": IoaEventKind("audit", {"trigger": _trigger, "domainsInvolved": _domains}),
    "workflow_executing": IoaEventKind("trace", {"resumed": lambda told, line: line["from_state"] == "blocked"}),
    "workflow_blocked": IoaEventKind("alert", {"stepName": _because}),
    "workflow_step_running": IoaEventKind("trace", {**STEP, "correlationId": _correlation}),
    "workflow_step_completed": IoaEventKind("trace", {**STEP, "durationMs": _lasted, "correlationId": _correlation}),
    "workflow_step_failed": IoaEventKind(
        "alert",
        {"stepName": _step, "error": _error, "onFailure": lambda told, line: told.policies.get(_step(told, line))},
    ),
    "workflow_step_skipped": IoaEventKind("trace", LEFT_OUT),
    "workflow_step_cancelled": IoaEventKind("trace", LEFT_OUT),
    "workflow_compensation_running": IoaEventKind("trace", UNDONE),
    "workflow_compensation_completed": IoaEventKind("trace", {**UNDONE, "durationMs": _lasted}),
    "workflow_compensation_failed": IoaEventKind("alert", {**UNDONE, "error": _error}),
    "workflow_compensation_cancelled": IoaEventKind("trace", UNDONE),
    "workflow_completed": IoaEventKind(
        "audit",
        {
            "totalDurationMs": lambda told, line: millis_between(told.run["started_at"], line["timestamp"]),
            "stepsCompleted": lambda told, line: len(told.in_state("completed")),
            "costAccumulated": lambda told, line: plain(told.cost),
            "rolledBack": lambda told, line: line["from_state"] == "compensating",
        },
    ),
    "workflow_failed": IoaEventKind(
        "alert",
        {"failedStep": _failed_step, "failurePolicy": lambda told, line: told.definition.get("on_failure")},
    ),
    "workflow_compensating": IoaEventKind(
        "alert", {"failedStep": _failed_step, "compensationSteps": lambda told, line: told.undone}
    ),
    "workflow_cancelled": IoaEventKind("audit", {"reason": lambda told, line: told.run["error"]}),
}

OF_THE_WHOLE = frozenset({"workflow_completed", "workflow_compensating", "workflow_cancelled"})
"""Events that need totals of the run, or its undo steps. There are few of them in a run."""

OF_STEP = {state: f"workflow_step_{state}" for state in ("running", "completed", "skipped", "cancelled")}

OF_WORKFLOW = {
    "queued": "workflow_started",
    "executing": "workflow_executing",
    "blocked": "workflow_blocked",
    "completed": "workflow_completed",
    "failed": "workflow_failed",
    "compensating": "workflow_compensating",
    "cancelled": "workflow_cancelled",
}

TAXONOMY = frozenset(
    {
        "workflow_started", "workflow_step_completed", "workflow_step_failed", "workflow_completed", "workflow_failed",
        "workflow_compensating",
    }
)  # fmt: skip
"""The events of the taxonomy; guideline 6 asks for one at every state change, so that the others are extensions."""
