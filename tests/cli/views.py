"""Views as `describe_run` makes them, written by hand so that pictures can be compared letter by letter."""

from __future__ import annotations

from typing import Any

DAY = "2026-11-03T10:15:"


def at(seconds: float) -> str:
    """An instant, this many seconds after the run began."""
    return f"{DAY}{seconds:06.3f}Z"


def step(
    name: str,
    state: str = "succeeded",
    after: tuple[str, ...] = (),
    *,
    times: tuple[tuple[str, float], ...] = (),
    phase: str = "main",
    **more: Any,
) -> dict[str, Any]:
    """One step; `times` are the states it entered, and when."""
    begun = next((seconds for entered, seconds in times if entered not in ("pending", "ready")), None)
    over = state in ("succeeded", "failed", "skipped", "cancelled")
    return {
        "name": name,
        "phase": phase,
        "kind": "python",
        "state": state,
        "attempts": 1 if begun is not None else 0,
        "losses": 0,
        "category": None,
        "error": None,
        "output": None,
        "depends_on": list(after),
        "started_at": None if begun is None else at(begun),
        "ended_at": at(times[-1][1]) if times and over else None,
        "due_at": None,
        "until": None,
        "skipped": None,
        "record": None,
        "cost": {},
        "history": [],
        "states": [{"state": entered, "at": at(seconds)} for entered, seconds in times],
        **more,
    }


def ran(name: str, start: float, end: float, after: tuple[str, ...] = (), state: str = "succeeded", **more: Any) -> Any:
    """A step that ran once."""
    times = (("pending", 0.0), ("ready", start), ("running", start), (state, end))
    return step(name, state, after, times=times, **more)


def view(*steps: dict[str, Any], state: str = "succeeded", **more: Any) -> dict[str, Any]:
    """A run with these steps."""
    ended = max((s["ended_at"] or "" for s in steps), default="") if state not in ("running", "blocked", "idle") else ""
    run = {
        "id": "01890000-0000-7000-8000-000000000001",
        "workflow": "onboarding",
        "version": 3,
        "dialect": "native",
        "state": state,
        "rollback": "none",
        "category": None,
        "error": None,
        "priority": 0,
        "business_key": None,
        "correlation_id": "c-1",
        "created_by": "ada",
        "created_at": at(0),
        "started_at": at(0),
        "ended_at": ended or None,
        "rerun_of": None,
        "asked_before": [],
        "fired": None,
        "input": {},
        "labels": {},
        "output": None,
        "cost": {},
        "warnings": [],
        "waiting_for": [],
        **more,
    }
    return {"run": run, "steps": list(steps)}
