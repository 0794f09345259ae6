"""Compares two published versions of a workflow, and says what the change means for live runs. Reads only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType, structs

from stepkeep.definition.durations import format_duration
from stepkeep.edges.redaction import hide_secrets
from stepkeep.kernel.composition.versions import Comparison, Difference, Kind, StepChange, compare, obstacles
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.errors import NoSuchName, NotFound
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState, StepState
from stepkeep.operations.answers import Answer
from stepkeep.operations.pipeline.plans import as_published
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.records import RunFilter

MOST = 5
LONGEST = 60
AROUND = 20
"""How much that is the same is told before the first difference of two long texts."""

DURATIONS = frozenset(
    {
        *("timeout", "lease", "grace", "deadline", "completion_deadline", "remind", "pause", "per", "period"),
        *("retry.initial", "retry.max", "retry.max_elapsed"),
    }
)
"""The fields of a definition that are microseconds, by the end of their place."""

FREE = frozenset(
    {
        *("inputs", "output", "about", "labels", "trigger", "triggers", "executor", "program", "facts"),
        *("schema", "schemas", "input_schema", "output_schema"),
    }
)
"""Fields with content of the user, in which a number under any name is a number."""

_MISSING = object()
Place = tuple[str, str, str]
"""Where something differs, with both values as texts."""


def differences(old: Definition, new: Definition) -> list[str]:
    """The places that differ, as `steps.label.timeout: 30s → 1m`; the version itself does not count."""
    found = [
        f"{place}: {was} → {now}"
        for place, was, now in differing_paths("", _plain(old), _plain(new))
        if place not in ("version", "order") and not place.endswith(".order")
    ]
    return found if len(found) <= MOST else [*found[:MOST], f"and {len(found) - MOST} more"]


def differing_paths(field: str, old: Any, new: Any) -> list[Place]:
    """Every place at which two values of a field differ, in parts as small as possible.

    >>> differing_paths("retry", {"max_attempts": 3, "max": 30_000_000}, {"max_attempts": 3, "max": 60_000_000})
    [('retry.max', '30s', '1m')]
    """
    found = _differ((field,) if field else (), old, new)
    return [(".".join(place), *value_texts(place, was, now)) for place, was, now in found]


def value_texts(place: Sequence[str], old: Any, new: Any) -> tuple[str, str]:
    """Two values as texts. Of long ones, the part around the first difference is told."""
    was, now = _text(place, old), _text(place, new)
    if max(len(was), len(now)) <= LONGEST:
        return was, now
    same = next((number for number, (one, other) in enumerate(zip(was, now, strict=False)) if one != other), 0)
    return _cut(was, same), _cut(now, same)


def _cut(text: str, first: int) -> str:
    begin = max(0, first - AROUND) if first > LONGEST - AROUND else 0
    part = text[begin : begin + LONGEST - 1]
    return f"{'…' if begin else ''}{part}{'…' if begin + len(part) < len(text) else ''}"


def _plain(definition: Definition) -> Mapping[str, Any]:
    """As JSON, with steps by their names, so that an added step is one difference."""
    said: dict[str, Any] = msgspec.to_builtins(definition)
    return said | {"steps": {step["name"]: step for step in said["steps"]}}


def _differ(place: tuple[str, ...], old: Any, new: Any) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from _differ((*place, str(name)), old.get(name, _MISSING), new.get(name, _MISSING))
    elif old != new:
        yield place, old, new


def _text(place: Sequence[str], value: Any) -> str:
    if value is _MISSING or value is None:
        return "nothing"
    if _is_duration(place) and type(value) is int:
        return format_duration(value)
    hidden = hide_secrets({place[-1] if place else "": value})
    assert isinstance(hidden, dict)
    [shown] = hidden.values()
    return msgspec.json.encode(shown).decode()


def _is_duration(place: Sequence[str]) -> bool:
    return FREE.isdisjoint(place) and bool({place[-1], ".".join(place[-2:])} & DURATIONS)


MOST_RUNS = 1_000
"""How many live runs are examined."""

MOST_EXAMPLES = 10
LIVE = tuple(state for state in RunState if state not in RUN_TERMINAL)
UNBEGUN = frozenset({StepState.PENDING, StepState.READY})


class PlaceDifference(Answer, kw_only=True):
    """A place in a field at which two versions differ, with both values as texts: durations have their units."""

    place: str
    old: str
    new: str


class FieldDifference(Answer, kw_only=True):
    """A field that differs. Its `kind` is `meaning`, `setting` or `edge`."""

    field: str
    kind: Kind
    old: Any = UNSET
    new: Any = UNSET
    places: list[PlaceDifference]


class StepDifference(Answer, kw_only=True):
    """A step that was `added`, `removed` or `changed`."""

    name: str
    change: str
    differences: list[FieldDifference]


class VersionName(Answer, kw_only=True):
    """A version of a workflow."""

    workflow: str
    version: int


class ReasonToStay(Answer, kw_only=True):
    """Why runs could not continue under the new version, and how many."""

    reason: str
    runs: int


class StayingRun(Answer, kw_only=True):
    """A run that could not continue under the new version."""

    run_id: str
    reasons: list[str]


class LiveRuns(Answer, kw_only=True):
    """The live runs of the old version."""

    examined: int
    is_complete: bool
    could_continue: int
    must_stay: int
    reasons: list[ReasonToStay]
    examples: list[StayingRun]


class VersionDifferences(Answer, rename={"from_": "from"}, kw_only=True):
    """What differs between two versions."""

    from_: VersionName
    to: VersionName
    same: bool
    workflow: list[FieldDifference]
    steps: list[StepDifference]
    consequences: list[str]
    live: LiveRuns | UnsetType = UNSET


async def compare_versions(
    transactor: Transactor, name: str, old: int | None, new: int | None, *, tenant: str, live: bool
) -> VersionDifferences:
    """What differs from version `old` to version `new`; with `live`, which live runs of `old` it concerns."""
    if old is None or new is None:
        listed = await transactor.store.list_definitions(tenant)
        versions = sorted(one.version for one in listed if one.name == name)
        if not versions:
            raise NotFound(f"there is no published workflow {name}")
        new = versions[-1] if new is None else new
        old = max((one for one in versions if one < new), default=new) if old is None else old
    was, now = [await _definition(transactor, name, version, tenant) for version in (old, new)]
    found = compare(was, now)
    return VersionDifferences(
        from_=VersionName(workflow=was.name, version=was.version),
        to=VersionName(workflow=now.name, version=now.version),
        same=found.is_empty,
        workflow=[_with_places(one) for one in found.workflow],
        steps=[
            StepDifference(
                name=step.name, change=step.change, differences=[_with_places(one) for one in step.differences]
            )
            for step in found.steps
        ],
        consequences=list(consequences(found)),
        live=await _live(transactor, was, now, tenant) if live else UNSET,
    )


def _with_places(one: Difference) -> FieldDifference:
    """A difference: both values as they are stored, and as texts where they differ."""
    told = [
        PlaceDifference(place=place, old=old, new=new)
        for place, old, new in differing_paths(one.field, one.old, one.new)
    ]
    values = {name: value for name, value in structs.asdict(one).items() if value is not None}
    return FieldDifference(**values, places=told)


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


async def _live(transactor: Transactor, old: Definition, new: Definition, tenant: str) -> LiveRuns:
    """How many live runs of the old version could continue under the new one, and why others could not."""
    which = RunFilter(tenant=tenant, states=LIVE, workflow=old.name, limit=MOST_RUNS)
    found = [one for one in await transactor.store.list_runs(which, []) if one.details.version == old.version]
    reasons: Counter[str] = Counter()
    examples: list[StayingRun] = []
    stay = 0
    for record in found:
        rows = await transactor.store.read_steps(tenant, record.run.id)
        begun = [old.steps[row.no].name for row in rows if row.no < len(old.steps) and row.state not in UNBEGUN]
        said = list(obstacles(old, new, begun))
        reasons.update(said)
        stay += bool(said)
        if said and len(examples) < MOST_EXAMPLES:
            examples.append(StayingRun(run_id=record.run.id, reasons=said))
    return LiveRuns(
        examined=len(found),
        is_complete=len(found) < MOST_RUNS,
        could_continue=len(found) - stay,
        must_stay=stay,
        reasons=[ReasonToStay(reason=reason, runs=runs) for reason, runs in reasons.most_common(MOST_EXAMPLES)],
        examples=examples,
    )
