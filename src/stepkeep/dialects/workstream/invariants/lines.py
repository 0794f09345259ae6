"""Reads lines of seed 004's log: the owner of a line, its completeness, and whether a task is critical."""

from __future__ import annotations

from collections.abc import Callable

from stepkeep.dialects.dialect import Line

TASK, STREAM, WORKER, HEAD = (
    "task_state_transition",
    "workstream_state_transition",
    "worker_state_transition",
    "journal_head",
)
Feed = Callable[[Line], None]


def about(line: Line) -> Line:
    return line.get("metadata") or {}


def is_sealed(line: Line) -> bool:
    """Whether this is a line of our own export, which is complete."""
    return "written_in" in about(line)


def stream_of(line: Line) -> str | None:
    """The workstream of a line, if it names one."""
    said = about(line)
    own = line["entity_id"] if line["event_type"] == STREAM else None
    return said.get("run_id") or said.get("workstream_id") or own


def is_critical(said: Line) -> bool | None:
    """Whether a task is critical, as far as a line tells."""
    if "on_failure" in said:
        return bool(said["on_failure"] == "abort")
    told = said.get("critical", said.get("is_critical"))
    return None if told is None else bool(told)
