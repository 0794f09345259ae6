"""The timeline of a run, from its log and its view: states with their times, durations and costs.

Status and events are both made from this value, so that they never contradict each other. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, dataclass_transform

import msgspec

from stepkeep.definition.durations import format_duration
from stepkeep.dialects.dialect import LogLine

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
