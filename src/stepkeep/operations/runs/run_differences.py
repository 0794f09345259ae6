"""Compares two runs step by step: states, outputs, errors, attempts and durations, from their views. Reads only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime

from msgspec import to_builtins

from stepkeep.kernel.errors import InvalidInput, NoSuchName
from stepkeep.operations.answers import Answer
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs import views
from stepkeep.operations.runs.run_answers import (
    AttemptDetail,
    AttemptDifferences,
    FieldOfBoth,
    RunDifferences,
    RunView,
    StepDetail,
    StepOfBoth,
    StepView,
)

OF_RUN = ("workflow", "version", "state", "category", "error", "input", "output", "cost")
OF_ATTEMPT = ("state", "worker", "code", "category", "error", "in_doubt", "cost", "evidence")
OF_STEP = ("state", "category", "error", "output", "attempts", "cost")


async def compare_runs(transactor: Transactor, first: str, second: str, *, tenant: str) -> RunDifferences:
    """What differs between two runs, steps matched by their names. A step of one run alone is named as such."""
    one, other = await asyncio.gather(
        *(views.describe_run(transactor, run_id, tenant=tenant) for run_id in (first, second))
    )
    return compare_views(one, other)


def compare_views(one: RunView, other: RunView) -> RunDifferences:
    """The same for views that were read."""
    before = {step.name: step for step in one.steps}
    after = {step.name: step for step in other.steps}
    run = list(_differ(one.run, other.run, OF_RUN))
    steps = [
        StepOfBoth(name=name, differences=found, seconds=[_seconds(before[name]), _seconds(after[name])])
        for name in before
        if name in after and (found := list(_differ(before[name], after[name], OF_STEP)))
    ]
    steps += [StepOfBoth(name=name, only_in="first") for name in sorted(before.keys() - after.keys())]
    steps += [StepOfBoth(name=name, only_in="second") for name in sorted(after.keys() - before.keys())]
    return RunDifferences(first=one.run.id, second=other.run.id, same=not run and not steps, run=run, steps=steps)


def compare_attempts(view: StepView, numbers: tuple[int, int] | None = None) -> AttemptDifferences:
    """What differs between two attempts of a step, from the view of that step; of the last two by default.

    An attempt is named by its number; a release counts as no attempt, so that of several with one number the last is
    meant.
    """
    step = view.step
    known = {attempt.number: attempt for attempt in step.attempts}
    wanted = numbers or tuple(sorted(known)[-2:])
    if len(wanted) < 2:
        said = f"step {step.name} of run {view.run.id} has {len(known)} attempts that have ended"
        raise InvalidInput(f"{said}; two are compared.")
    for number in wanted:
        if number not in known:
            listed = ", ".join(map(str, sorted(known))) or "none"
            raise NoSuchName(f"step {step.name} has no ended attempt {number}. It has: {listed}.")
    one, other = (known[number] for number in wanted)
    found = list(_differ(one, other, OF_ATTEMPT))
    return AttemptDifferences(
        run_id=view.run.id,
        step=step.name,
        attempts=list(wanted),
        same=not found,
        same_code=None if None in (one.code, other.code) else one.code == other.code,
        differences=found,
        seconds=[_seconds(one), _seconds(other)],
    )


def _differ(one: Answer, other: Answer, fields: tuple[str, ...]) -> Iterator[FieldOfBoth]:
    for name in fields:
        if one.get(name) != other.get(name):
            yield FieldOfBoth(field=name, first=to_builtins(one.get(name)), second=to_builtins(other.get(name)))


def _seconds(one: StepDetail | AttemptDetail) -> float | None:
    """From the start of a step or an attempt to its end."""
    if one.started_at is None or one.ended_at is None:
        return None
    return (datetime.fromisoformat(one.ended_at) - datetime.fromisoformat(one.started_at)).total_seconds()
