"""Compares two runs step by step: states, outputs, errors, attempts and durations, from their views. Reads only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from stepkeep.kernel.errors import InvalidInput, NoSuchName
from stepkeep.operations import views
from stepkeep.operations.transact import Transactor

OF_RUN = ("workflow", "version", "state", "category", "error", "input", "output", "cost")
OF_ATTEMPT = ("state", "worker", "code", "category", "error", "in_doubt", "cost", "evidence")
OF_STEP = ("state", "category", "error", "output", "attempts", "cost")


async def compare_runs(transactor: Transactor, first: str, second: str, *, tenant: str) -> dict[str, Any]:
    """What differs between two runs, steps matched by their names. A step of one run alone is named as such."""
    one, other = await asyncio.gather(
        *(views.describe_run(transactor, run_id, tenant=tenant) for run_id in (first, second))
    )
    return compare_views(one, other)


def compare_views(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The same for views that were read."""
    before = {step["name"]: step for step in one["steps"]}
    after = {step["name"]: step for step in other["steps"]}
    run = list(_differ(one["run"], other["run"], OF_RUN))
    steps = [
        {
            "name": name,
            "only_in": None,
            "differences": found,
            "seconds": [_seconds(before[name]), _seconds(after[name])],
        }
        for name in before
        if name in after and (found := list(_differ(before[name], after[name], OF_STEP)))
    ]
    alone = [
        {"name": name, "only_in": steps_of, "differences": [], "seconds": []}
        for steps_of, names in (("first", before.keys() - after.keys()), ("second", after.keys() - before.keys()))
        for name in sorted(names)
    ]
    return {
        "first": one["run"]["id"],
        "second": other["run"]["id"],
        "same": not run and not steps and not alone,
        "run": run,
        "steps": steps + alone,
    }


def compare_attempts(view: Mapping[str, Any], numbers: tuple[int, int] | None = None) -> dict[str, Any]:
    """What differs between two attempts of a step, from the view of that step; of the last two by default.

    An attempt is named by its number; a release counts as no attempt, so that of several with one number the last is
    meant.
    """
    step = view["step"]
    known = {attempt["number"]: attempt for attempt in step["history"]}
    wanted = numbers or tuple(sorted(known)[-2:])
    if len(wanted) < 2:
        said = f"step {step['name']} of run {view['run']['id']} has {len(known)} attempts that have ended"
        raise InvalidInput(f"{said}; two are compared.")
    for number in wanted:
        if number not in known:
            listed = ", ".join(map(str, sorted(known))) or "none"
            raise NoSuchName(f"step {step['name']} has no ended attempt {number}. It has: {listed}.")
    one, other = (known[number] for number in wanted)
    found = list(_differ(one, other, OF_ATTEMPT))
    return {
        "run_id": view["run"]["id"],
        "step": step["name"],
        "attempts": list(wanted),
        "same": not found,
        "same_code": None if None in (one["code"], other["code"]) else one["code"] == other["code"],
        "differences": found,
        "seconds": [_seconds(one), _seconds(other)],
    }


def _differ(one: Mapping[str, Any], other: Mapping[str, Any], fields: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for name in fields:
        if one.get(name) != other.get(name):
            yield {"field": name, "first": one.get(name), "second": other.get(name)}


def _seconds(step: Mapping[str, Any]) -> float | None:
    """From the start of a step or an attempt to its end."""
    if step.get("started_at") is None or step.get("ended_at") is None:
        return None
    began, ended = datetime.fromisoformat(step["started_at"]), datetime.fromisoformat(step["ended_at"])
    return (ended - began).total_seconds()
