"""Comparisons of versions and of runs as text. Pure, from a view to lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from stepkeep.edges.redaction import hide_secrets

if TYPE_CHECKING:
    from stepkeep.operations.run_answers import AttemptDifferences, FieldOfBoth, RunDifferences
    from stepkeep.operations.versions import FieldDifference, LiveRuns, VersionDifferences

INDENT = "    "
LONGEST = 100
SIGNS = {"added": "+", "removed": "-", "changed": "~"}


def version_lines(view: VersionDifferences) -> Iterator[str]:
    """What differs between two versions, and what it means for runs."""
    yield f"{view.from_.workflow}: version {view.from_.version} → {view.to.version}"
    if view.same:
        yield "nothing differs but the number of the version"
        return
    for one in view.workflow:
        yield from (f"~ {line}" for line in _places(one))
    for step in view.steps:
        yield f"{SIGNS[step.change]} step {step.name}"
        for one in step.differences:
            yield from (f"{INDENT}{line}" for line in _places(one))
    yield ""
    yield from view.consequences
    if view.live:
        yield from _live(view.live)


def _live(live: LiveRuns) -> Iterator[str]:
    least = "" if live.is_complete else "at least "
    said = f"{live.could_continue} could continue, {live.must_stay} must stay"
    yield f"live runs of the old version: {least}{live.examined}; {said}"
    for one in live.reasons:
        yield f"{INDENT}{one.runs} × {one.reason}"
    for stays in live.examples:
        yield f"{INDENT}{stays.run_id}: {stays.reasons[0]}"


def run_lines(view: RunDifferences) -> Iterator[str]:
    """What differs between two runs."""
    yield f"{view.first} → {view.second}"
    if view.same:
        yield "nothing differs but ids and times"
    for one in view.run:
        yield f"~ {_pair(one)}"
    for step in view.steps:
        if step.only_in is not None:
            yield f"{'-' if step.only_in == 'first' else '+'} step {step.name}"
            continue
        yield f"~ step {step.name}"
        for one in step.differences:
            yield f"{INDENT}{_pair(one)}"


def attempt_lines(view: AttemptDifferences) -> Iterator[str]:
    """What differs between two attempts of a step."""
    first, second = view.attempts
    yield f"step {view.step} of {view.run_id}: attempt {first} → attempt {second}"
    if view.same:
        yield "nothing differs but times"
    for one in view.differences:
        yield f"~ {_pair(one)}"
    code = {True: "the same code ran both", False: "other code ran", None: "which code ran is not known"}
    yield code[view.same_code]


def _places(one: FieldDifference) -> Iterator[str]:
    return (f"{place.place}: {place.old} → {place.new}" for place in one.places)


def _pair(one: FieldOfBoth) -> str:
    return f"{one.field}: {_shown(one.first)} → {_shown(one.second)}"


def _shown(value: Any) -> str:
    said = json.dumps(hide_secrets(value), ensure_ascii=False)
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 1]}…"
