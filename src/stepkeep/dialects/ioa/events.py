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
from stepkeep.dialects.ioa.story import UNDO, Shape, Told, hear, is_tolerated, millis_between, plain, tell

Fields = Mapping[str, Callable[[Told, LogLine], object]]
"""The fields of a payload in their order, and what makes each from the run so far and the line of the event."""


class Kind(NamedTuple):
    """One kind of event: its category in the taxonomy, and the columns of its payload."""

    category: str
    fields: Fields


class Event(Shape, kw_only=True):
    """An event as a run shows it. `extension`: the taxonomy does not have it."""

    event: str
    name: str
    category: str
    timestamp: str
    correlation_id: str
    payload: Mapping[str, Any]
    extension: bool | UnsetType = UNSET


def events_of(told: Told) -> list[Event]:
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
        self._told = tell({**about, "steps": []}, [])

    def entry(self, canonical: Sequence[LogLine], lines: Sequence[LogLine]) -> list[DomainEvent]:
        """The events of the next entry."""
        found = []
        for line in lines:
            hear(self._told, line)
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
            now = tell(canonical, [])
            told = replace(then, run=now.run, steps=now.steps, hooks=now.hooks)
            return [_event(told, line, name).payload]

        return DomainEvent(seq, called, {}, about, late=late)


def _event(told: Told, line: LogLine, name: str) -> Event:
    kind = KINDS[name]
    made = {field: value(told, line) for field, value in kind.fields.items()}
    return Event(
        event=name,
        name=f"{_domain(told)}.{name}",
        category=kind.category,
        timestamp=line["timestamp"],
        correlation_id=told.run["correlation_id"],
        payload={"workflowName": told.run["workflow"], **made},
        extension=UNSET if name in TAXONOMY else True,
    )


def _domain(told: Told) -> str:
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


def _domains(told: Told, line: LogLine) -> list[str]:
    found: list[str] = told.definition.get("about", {}).get("domainsInvolved", [])
    return found


def _trigger(told: Told, line: LogLine) -> str:
    """What started the run: the name of a trigger, or `manual` for a person or a program."""
    actor = str(told.run.get("created_by", ""))
    return actor.removeprefix("trigger:") if actor.startswith("trigger:") else "manual"


def _correlation(told: Told, line: LogLine) -> object:
    return told.run["correlation_id"]


def _step(told: Told, line: LogLine) -> str:
    return str(line["metadata"]["step"])


def _because(told: Told, line: LogLine) -> object:
    """The step that led to it, if one did."""
    return line["metadata"].get("of")


def _agent(told: Told, line: LogLine) -> str | None:
    return told.agents.get(_step(told, line))


def _lasted(told: Told, line: LogLine) -> int | None:
    name = _step(told, line)
    return millis_between(told.began.get(name), told.ended.get(name))


def _error(told: Told, line: LogLine) -> object:
    return line["metadata"].get("error") or line["metadata"].get("category")


def _failed_step(told: Told, line: LogLine) -> str | None:
    """The step that failed the workflow; None if it timed out or was cancelled as a whole."""
    return next(iter(told.in_state("failed")), None)


STEP: Fields = {"stepName": _step, "agent": _agent}
LEFT_OUT: Fields = {"stepName": _step, "because": _because}
UNDONE: Fields = {"stepName": lambda told, line: _step(told, line).removeprefix(UNDO), "agent": _agent}

KINDS = {
    "workflow_started": Kind("audit", {"trigger": _trigger, "domainsInvolved": _domains}),
    "workflow_executing": Kind("trace", {"resumed": lambda told, line: line["from_state"] == "blocked"}),
    "workflow_blocked": Kind("alert", {"stepName": _because}),
    "workflow_step_running": Kind("trace", {**STEP, "correlationId": _correlation}),
    "workflow_step_completed": Kind("trace", {**STEP, "durationMs": _lasted, "correlationId": _correlation}),
    "workflow_step_failed": Kind(
        "alert",
        {"stepName": _step, "error": _error, "onFailure": lambda told, line: told.policies.get(_step(told, line))},
    ),
    "workflow_step_skipped": Kind("trace", LEFT_OUT),
    "workflow_step_cancelled": Kind("trace", LEFT_OUT),
    "workflow_compensation_running": Kind("trace", UNDONE),
    "workflow_compensation_completed": Kind("trace", {**UNDONE, "durationMs": _lasted}),
    "workflow_compensation_failed": Kind("alert", {**UNDONE, "error": _error}),
    "workflow_compensation_cancelled": Kind("trace", UNDONE),
    "workflow_completed": Kind(
        "audit",
        {
            "totalDurationMs": lambda told, line: millis_between(told.run["started_at"], line["timestamp"]),
            "stepsCompleted": lambda told, line: len(told.in_state("completed")),
            "costAccumulated": lambda told, line: plain(told.cost),
            "rolledBack": lambda told, line: line["from_state"] == "compensating",
        },
    ),
    "workflow_failed": Kind(
        "alert",
        {"failedStep": _failed_step, "failurePolicy": lambda told, line: told.definition.get("on_failure")},
    ),
    "workflow_compensating": Kind(
        "alert", {"failedStep": _failed_step, "compensationSteps": lambda told, line: told.undone}
    ),
    "workflow_cancelled": Kind("audit", {"reason": lambda told, line: told.run["error"]}),
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
