"""Helpers shared by this dialect's shapes: times, outcomes, error classes, idempotency keys.

Plain data in, plain data out. `words`, `compensation` and `evidence` call it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Shape = dict[str, Any]

ENDINGS = ("Succeeded", "Failed", "Cancelled")
"""The terminal states of runs and actions alike."""

OUTCOMES = {
    "succeeded": "Succeeded",
    "failed": "Failed",
    "timed_out": "timeout",
    "lost": "lost",
    "cancelled": "Cancelled",
    "waited": "waited",
    "released": "released",
}
"""How an attempt ended; section 3.2 calls a timed-out one `timeout`."""

ERROR_CLASSES = {
    "transient": ("transient", True),
    "timeout": ("timeout", True),
    "external": ("external", True),
    "agent": ("unknown", True),
    "unknown": ("unknown", True),
    "validation": ("validation", False),
    "governance": ("policy_deny", False),
    "auth": ("auth_deny", False),
    "conflict": ("business_conflict", False),
    "poison": ("worker_lost", False),
}
"""Section 3.1: the class of an error, and whether it is retryable."""


def error_shape(category: str | None, message: str | None, *, lost: bool = False) -> Shape | None:
    """A classified error, or None if there is none."""
    if category is None and not lost:
        return None
    name, retryable = ("worker_lost", True) if category is None else ERROR_CLASSES.get(category, ("unknown", True))
    return filled({"class": name, "retryable": retryable, "message": message})


def person_of(record: Mapping[str, Any]) -> str | None:
    """The person who decided; None if a deadline or the end of the run did."""
    said = record.get("decision") or record.get("outcome")
    return str(record["by"]) if said in ("approved", "rejected", *ENDINGS) else None


def action_of(step: Mapping[str, Any]) -> str:
    """The action that a step, or its undo step, belongs to."""
    return str(step["name"]).removeprefix("undo:")


def key_of(run_id: str, step: Mapping[str, Any]) -> str:
    """The idempotency key of its handler; section 5: the same over all attempts."""
    return f"{run_id}:{action_of(step)}" + (":compensate" if step["phase"] == "undo" else "")


def written_steps(canonical: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The steps of the definition by name."""
    return {step["name"]: step for step in canonical["definition"]["steps"]}


def operation_of(written: Mapping[str, Any], *, undo: bool = False) -> str | None:
    """The operation of an action, or the one that compensates it."""
    executor = (written.get("undo") or {}).get("executor") if undo else written.get("executor")
    return None if executor is None else executor.get("name")


def completion_order(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """The actions that succeeded, first to last, by journal order."""
    return [
        line["metadata"]["step"]
        for line in lines
        if line["event_type"] == "action_state_transition" and line["to_state"] == "Succeeded"
    ]


def filled(shape: Shape) -> Shape:
    """Without unknown values."""
    return {key: value for key, value in shape.items() if value is not None}
