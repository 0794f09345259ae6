"""The telemetry of a run: one kind of event for each change of state, all under one correlation id.

Derived from the log, one event per line that requires one, so the same run always gives the same events. `show --as
ioa` has them all; the relay sends them to sinks. This module sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from stepkeep.dialects.dialect import DomainEvent
from stepkeep.dialects.ioa.story import UNDO, Told, hear, is_tolerated, millis_between, tell

Line = Mapping[str, Any]


class Kind(NamedTuple):
    """One kind of event: its category in the taxonomy, and how its payload is made."""

    category: str
    payload: Callable[[Told, Line], dict[str, Any]]


def events_of(told: Told) -> list[dict[str, Any]]:
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

    def entry(self, canonical: list[dict[str, Any]], lines: list[dict[str, Any]]) -> list[DomainEvent]:
        """The events of the next entry."""
        found = []
        for line in lines:
            hear(self._told, line)
            name = _event_in(line)
            if name is not None:
                found.append(self._made(line, name))
        return found

    def _made(self, line: Line, name: str) -> DomainEvent:
        seq, about = line["metadata"]["seq"], {"category": KINDS[name].category}
        called = f"{_domain(self._told)}.{name}"
        if name not in OF_THE_WHOLE:
            return DomainEvent(seq, called, _event(self._told, line, name)["payload"], about)
        then = self._told.copy()

        def late(canonical: Mapping[str, Any], lines: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
            now = tell(canonical, [])
            told = replace(then, run=now.run, steps=now.steps, hooks=now.hooks)
            return [_event(told, line, name)["payload"]]

        return DomainEvent(seq, called, {}, about, late=late)


def _event(told: Told, line: Line, name: str) -> dict[str, Any]:
    kind = KINDS[name]
    event = {
        "event": name,
        "name": f"{_domain(told)}.{name}",
        "category": kind.category,
        "timestamp": line["timestamp"],
        "correlationId": told.run["correlation_id"],
        "payload": {"workflowName": told.run["workflow"], **kind.payload(told, line)},
    }
    return event | ({"extension": True} if name not in TAXONOMY else {})


def _domain(told: Told) -> str:
    involved = told.definition.get("about", {}).get("domainsInvolved") or ["system"]
    return str(involved[0])


def _event_in(line: Line) -> str | None:
    state = line["to_state"]
    if line["event_type"] == "workflow_state_transition":
        return OF_WORKFLOW.get(state)
    if line["event_type"] == "compensation_state_transition":
        return None if state == "pending" else f"workflow_compensation_{state}"
    if line["event_type"] != "step_state_transition":
        return None
    if state == "failed" or is_tolerated(line):
        return "workflow_step_failed"
    return OF_STEP.get(state)


def _started(told: Told, line: Line) -> dict[str, Any]:
    return {"trigger": _trigger(told), "domainsInvolved": told.definition.get("about", {}).get("domainsInvolved", [])}


def _trigger(told: Told) -> str:
    """What started the run: the name of a trigger, or `manual` for a person or a program."""
    actor = str(told.run.get("created_by", ""))
    return actor.removeprefix("trigger:") if actor.startswith("trigger:") else "manual"


def _executing(told: Told, line: Line) -> dict[str, Any]:
    return {"resumed": line["from_state"] == "blocked"}


def _blocked(told: Told, line: Line) -> dict[str, Any]:
    return {"stepName": line["metadata"].get("of")}


def _step_running(told: Told, line: Line) -> dict[str, Any]:
    name = line["metadata"]["step"]
    return {"stepName": name, "agent": told.agents.get(name), "correlationId": told.run["correlation_id"]}


def _step_completed(told: Told, line: Line) -> dict[str, Any]:
    name = line["metadata"]["step"]
    return {
        "stepName": name,
        "agent": told.agents.get(name),
        "durationMs": millis_between(told.began.get(name), told.ended.get(name)),
        "correlationId": told.run["correlation_id"],
    }


def _step_failed(told: Told, line: Line) -> dict[str, Any]:
    name = line["metadata"]["step"]
    return {"stepName": name, "error": _error_in(line), "onFailure": told.policies.get(name)}


def _step_left_out(told: Told, line: Line) -> dict[str, Any]:
    """A step that was skipped or cancelled, and the step that led to it, if one did."""
    return {"stepName": line["metadata"]["step"], "because": line["metadata"].get("of")}


def _compensation(told: Told, line: Line) -> dict[str, Any]:
    name = line["metadata"]["step"]
    return {"stepName": name.removeprefix(UNDO), "agent": told.agents.get(name)}


def _compensation_ended(told: Told, line: Line) -> dict[str, Any]:
    name = line["metadata"]["step"]
    lasted = millis_between(told.began.get(name), told.ended.get(name))
    return {**_compensation(told, line), "durationMs": lasted}


def _compensation_failed(told: Told, line: Line) -> dict[str, Any]:
    return {**_compensation(told, line), "error": _error_in(line)}


def _error_in(line: Line) -> Any:
    return line["metadata"].get("error") or line["metadata"].get("category")


def _completed(told: Told, line: Line) -> dict[str, Any]:
    return {
        "totalDurationMs": millis_between(told.run["started_at"], line["timestamp"]),
        "stepsCompleted": len(told.in_state("completed")),
        "costAccumulated": told.cost,
        "rolledBack": line["from_state"] == "compensating",
    }


def _failed(told: Told, line: Line) -> dict[str, Any]:
    return {"failedStep": _failed_step(told), "failurePolicy": told.definition.get("on_failure")}


def _compensating(told: Told, line: Line) -> dict[str, Any]:
    return {"failedStep": _failed_step(told), "compensationSteps": told.undone}


def _cancelled(told: Told, line: Line) -> dict[str, Any]:
    return {"reason": told.run["error"]}


def _failed_step(told: Told) -> str | None:
    """The step that failed the workflow; None if it timed out or was cancelled as a whole."""
    return next(iter(told.in_state("failed")), None)


KINDS = {
    "workflow_started": Kind("audit", _started),
    "workflow_executing": Kind("trace", _executing),
    "workflow_blocked": Kind("alert", _blocked),
    "workflow_step_running": Kind("trace", _step_running),
    "workflow_step_completed": Kind("trace", _step_completed),
    "workflow_step_failed": Kind("alert", _step_failed),
    "workflow_step_skipped": Kind("trace", _step_left_out),
    "workflow_step_cancelled": Kind("trace", _step_left_out),
    "workflow_compensation_running": Kind("trace", _compensation),
    "workflow_compensation_completed": Kind("trace", _compensation_ended),
    "workflow_compensation_failed": Kind("alert", _compensation_failed),
    "workflow_compensation_cancelled": Kind("trace", _compensation),
    "workflow_completed": Kind("audit", _completed),
    "workflow_failed": Kind("alert", _failed),
    "workflow_compensating": Kind("alert", _compensating),
    "workflow_cancelled": Kind("audit", _cancelled),
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
