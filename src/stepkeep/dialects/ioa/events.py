"""The telemetry of a run: one kind of event for each change of state, all under one correlation id.

Derived from the log, one event per line that requires one, so the same run always gives the same events. `show --as
ioa` has them all; the relay sends them to sinks. This module sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple, dataclass_transform

import msgspec
from msgspec import UNSET, UnsetType

from stepkeep.definition.durations import format_duration
from stepkeep.dialects.dialect import DomainEvent, LogLine

SECOND = 1_000_000
UNDO = "undo:"
"""How the name of a compensation begins; the name of its step follows."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class IoaShape(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of a run as the format shows it."""


def plain(shape: IoaShape) -> Mapping[str, Any]:
    """A part of a run as JSON."""
    found: Mapping[str, Any] = msgspec.to_builtins(shape)
    return found


class CostAccumulated(IoaShape, kw_only=True):
    """What a run has cost, in the words of the format."""

    tokens: int
    cost: float
    currency: str


@dataclass(kw_only=True)
class RunStory:
    """The timeline of one run. Steps are those of the plan, in its order; `undone` names those with an undo step,
    first one first."""

    run: Mapping[str, Any]
    definition: Mapping[str, Any]
    lines: Sequence[LogLine]
    steps: list[Mapping[str, Any]]
    hooks: dict[str, Mapping[str, Any]]
    state: str = "idle"
    moved_at: str | None = None
    states: dict[str, str] = field(default_factory=dict)
    began: dict[str, str] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    tolerated: list[str] = field(default_factory=list)

    def copy(self) -> RunStory:
        """The timeline as it is now; the original goes on."""
        states, began, ended = dict(self.states), dict(self.began), dict(self.ended)
        return replace(self, states=states, began=began, ended=ended, tolerated=list(self.tolerated))

    def in_state(self, state: str) -> list[str]:
        """The steps in this state, in the order in which they entered it."""
        return [name for name, shown in self.states.items() if shown == state]

    @property
    def agents(self) -> dict[str, str | None]:
        gates = self.definition.get("about", {}).get("gates", {})
        steps = self.definition.get("steps", ())
        undos = {f"{UNDO}{step['name']}": step.get("undo") for step in steps if step.get("undo")}
        doers = {step["name"]: step for step in steps} | undos
        return {name: gates.get(name) or (doer.get("executor") or {}).get("name") for name, doer in doers.items()}

    @property
    def policies(self) -> dict[str, str]:
        return {step["name"]: step["on_failure"] for step in self.definition.get("steps", ())}

    @property
    def undone(self) -> list[str]:
        """Steps with an undo step, in reverse order of completion."""
        return [name for name in reversed(self.in_state("completed")) if name in self.hooks]

    @property
    def cost(self) -> CostAccumulated:
        spent = self.run["cost"]
        return CostAccumulated(tokens=int(spent.get("tokens", 0)), cost=spent.get("usd", 0), currency="USD")


def run_story(canonical: Mapping[str, Any], lines: Sequence[LogLine]) -> RunStory:
    """Combine a run's view and its log."""
    told = RunStory(
        run=canonical["run"],
        definition=canonical.get("definition", {}),
        lines=lines,
        steps=[step for step in canonical["steps"] if step["phase"] == "main"],
        hooks={step["name"].removeprefix(UNDO): step for step in canonical["steps"] if step["phase"] == "undo"},
    )
    for line in lines:
        add_line(told, line)
    return told


def add_line(told: RunStory, line: LogLine) -> None:
    """Go on with one line."""
    if line["event_type"] == "step_state_transition":
        _step_moved(told, line)
    elif line["event_type"] == "compensation_state_transition":
        _note_time(told, line)
    elif line["event_type"] == "workflow_state_transition":
        told.state, told.moved_at = line["to_state"] or "", line["timestamp"]


def _step_moved(told: RunStory, line: LogLine) -> None:
    name, state = line["metadata"]["step"], line["to_state"] or ""
    told.states.pop(name, None)
    told.states[name] = state
    _note_time(told, line)
    if is_tolerated(line):
        told.tolerated.append(name)


def _note_time(told: RunStory, line: LogLine) -> None:
    """When a step, or a compensation under its own name, began and ended."""
    if line["to_state"] == "running":
        told.began[line["metadata"]["step"]] = line["timestamp"]
    elif line["to_state"] != "pending":
        told.ended[line["metadata"]["step"]] = line["timestamp"]


def is_tolerated(line: LogLine) -> bool:
    """Whether a step was skipped because it failed; a skip that follows from another one has no category."""
    return line["to_state"] == "skipped" and "category" in line["metadata"]


def millis_between(begin: str | None, end: str | None) -> int | None:
    """Whole milliseconds between two times of a log."""
    if begin is None or end is None:
        return None
    return round((datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds() * 1000)


def latency(begin: str | None, end: str | None) -> str | None:
    """A duration as text, like 8m32s; below one second in milliseconds."""
    millis = millis_between(begin, end)
    if millis is None:
        return None
    micros = max(millis, 0) * 1000
    return format_duration(micros if micros < SECOND else micros - micros % SECOND)


# -- events -----------------------------------------------------------------------------------------------------------
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
