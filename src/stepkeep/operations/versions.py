"""Compares two published versions of a workflow, and says what the change means for runs that are live. Reads only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from stepkeep.kernel.definition import Definition
from stepkeep.kernel.errors import NoSuchName, NotFound
from stepkeep.kernel.states import RUN_TERMINAL, RunState, StepState
from stepkeep.kernel.versions import Comparison, Difference, Kind, StepChange, compare, obstacles
from stepkeep.operations.differences import places
from stepkeep.operations.plans import as_published
from stepkeep.operations.transact import Transactor
from stepkeep.store.records import RunFilter

MOST_RUNS = 1_000
"""How many live runs are examined."""

MOST_EXAMPLES = 10
LIVE = tuple(state for state in RunState if state not in RUN_TERMINAL)
UNBEGUN = frozenset({StepState.PENDING, StepState.READY})


async def compare_versions(
    transactor: Transactor, name: str, old: int, new: int, *, tenant: str, live: bool
) -> dict[str, Any]:
    """What differs from version `old` to version `new`; with `live`, which live runs of `old` it concerns."""
    was, now = [await _definition(transactor, name, version, tenant) for version in (old, new)]
    view = view_of(was, now, compare(was, now))
    return view | {"live": await _live(transactor, was, now, tenant)} if live else view


def view_of(old: Definition, new: Definition, found: Comparison) -> dict[str, Any]:
    """A comparison as JSON."""
    return {
        "from": {"workflow": old.name, "version": old.version},
        "to": {"workflow": new.name, "version": new.version},
        "same": found.is_empty,
        "workflow": [_with_places(one) for one in found.workflow],
        "steps": [
            {**msgspec.to_builtins(step), "differences": [_with_places(one) for one in step.differences]}
            for step in found.steps
        ],
        "consequences": list(consequences(found)),
    }


def _with_places(one: Difference) -> dict[str, Any]:
    """A difference as JSON: both values as they are stored, and as texts where they differ."""
    found = places(one.field, one.old, one.new)
    told = [{"place": place, "old": old, "new": new} for place, old, new in found]
    return {**msgspec.to_builtins(one), "places": told}


def consequences(found: Comparison) -> Iterator[str]:
    """What the change means for a run of the old version, by how far it is."""
    yield "A run in which no step has begun could continue under the new version."
    for change in found.steps:
        yield from _consequences(change)


def _consequences(change: StepChange) -> Iterator[str]:
    if change.change == "added":
        yield f"{change.name} is new: a run in which a step that depends on it has begun stays with the old version."
        return
    if change.change == "removed":
        yield f"{change.name} is gone: a run in which it has begun stays with the old version."
        return
    meaning = [one.field for one in change.differences if one.kind is Kind.MEANING]
    edges = [one for one in change.differences if one.kind is Kind.EDGE]
    settings = [one.field for one in change.differences if one.kind is Kind.SETTING]
    if meaning:
        fields = ", ".join(meaning)
        yield f"{change.name} means something else ({fields}): a run in which it has begun stays with the old version."
    if edges:
        yield f"{change.name} follows other steps: a run in which it has begun may have to stay with the old version."
    if settings and not meaning:
        fields = ", ".join(settings)
        yield f"{change.name} is treated otherwise ({fields}): every run could continue; the next attempt counts."


async def _definition(transactor: Transactor, name: str, version: int, tenant: str) -> Definition:
    stored = await transactor.store.read_definition(tenant, name, version)
    if stored is None:
        newest = await transactor.store.read_definition(tenant, name, None)
        said = f"there is no version {version} of workflow {name}."
        raise NotFound(said) if newest is None else NoSuchName(f"{said} The newest is version {newest.version}.")
    return as_published(stored)


async def _live(transactor: Transactor, old: Definition, new: Definition, tenant: str) -> dict[str, Any]:
    """How many live runs of the old version could continue under the new one, and why others could not."""
    which = RunFilter(tenant=tenant, states=LIVE, workflow=old.name, limit=MOST_RUNS)
    found = [one for one in await transactor.store.list_runs(which, []) if one.details.version == old.version]
    reasons: Counter[str] = Counter()
    examples: list[dict[str, Any]] = []
    stay = 0
    for record in found:
        rows = await transactor.store.read_steps(tenant, record.run.id)
        begun = [old.steps[row.no].name for row in rows if row.no < len(old.steps) and row.state not in UNBEGUN]
        said = list(obstacles(old, new, begun))
        reasons.update(said)
        stay += bool(said)
        if said and len(examples) < MOST_EXAMPLES:
            examples.append({"run_id": record.run.id, "reasons": said})
    return {
        "examined": len(found),
        "is_complete": len(found) < MOST_RUNS,
        "could_continue": len(found) - stay,
        "must_stay": stay,
        "reasons": [{"reason": reason, "runs": runs} for reason, runs in reasons.most_common(MOST_EXAMPLES)],
        "examples": examples,
    }
