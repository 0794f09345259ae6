"""Publishes a definition: stores it permanently under its name and version, with the queues of its steps; lists them.

A workflow that it starts as a child is pinned to one published version. A definition that differs from the published
one only in former defaults of Stepkeep counts as the same.

It changes no run. The engine and `start` call it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from stepkeep.kernel.definition import (
    Definition,
    StepDefinition,
    SubWorkflow,
    Switch,
    decode_definition,
    digest_of,
    encode_definition,
    templates_of,
)
from stepkeep.kernel.errors import Conflict, InvalidInput, NoSuchName, NotFound
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan, queue_specs
from stepkeep.operations.answers import Answer, Moment, Next, says
from stepkeep.operations.definitions.schemas import resolve_schemas
from stepkeep.operations.definitions.versions import differences
from stepkeep.operations.definitions.withdrawn import Withdrawal, list_withdrawn
from stepkeep.operations.instants import instant
from stepkeep.operations.limits.limits import check_limits, publish_limits
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.change import StoredDefinition

_MISSING = object()
MOVED: dict[tuple[str, ...], tuple[Any, Any]] = {
    ("undo", "retry", "max_losses"): (3, 30),
    ("undo", "retry", "counts_losses"): (_MISSING, False),
    ("retry", "jitter"): (0.0, 0.5),
    ("effect",): ("read", "unknown"),
}
"""By the end of a place: the default of an earlier version, and that of today. Add a row where a default moves."""
ADDED = ("growth", "version")
"""What an earlier version did not write: of a flow, the version of its function."""


def is_same_but_for_defaults(stored: Definition, given: Definition) -> bool:
    """Whether the definitions differ in nothing but defaults that have moved."""
    moved: dict[tuple[str, ...], set[bool]] = {}
    for place, was, now in _leaves((), msgspec.to_builtins(stored), msgspec.to_builtins(given)):
        kind = next((end for end in MOVED if place[-len(end) :] == end), ())
        former, today = MOVED.get(kind, (None, None))
        if place[-len(ADDED) :] == ADDED and was is _MISSING:
            continue
        if kind and now == today and was in (former, today):
            moved.setdefault(kind, set()).add(was == former)
        elif was != now:
            return False
    return all(len(found) == 1 for found in moved.values())


def _leaves(place: tuple[str, ...], was: Any, now: Any) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if isinstance(was, dict) and isinstance(now, dict):
        for name in {**was, **now}:
            yield from _leaves((*place, name), was.get(name, _MISSING), now.get(name, _MISSING))
    elif isinstance(was, list | tuple) and isinstance(now, list | tuple) and len(was) == len(now):
        for one, other in zip(was, now, strict=True):
            yield from _leaves(place, one, other)
    else:
        yield place, was, now


MAX_DEPTH = 8
"""How many generations of runs a workflow may have, itself included."""

MAX_TREE = 1000
"""How many runs a run may come to, itself included."""


async def pin_children(transactor: Transactor, definition: Definition, *, tenant: str) -> Definition:
    """The definition with a version for every workflow that it starts; refused if one is not published."""
    if all(step.child is UNSET for step in definition.work):
        return definition
    own = await transactor.store.read_definition(tenant, definition.name, definition.version)
    before = {} if own is None else _pins(decode_definition(own.document))
    tree = _Tree(transactor, tenant)
    pinned: dict[Place, int] = {}
    for place, child in _children(definition):
        if child.workflow == definition.name:
            said = f"step {place[0]} of {definition.name} starts {definition.name} itself, without an end."
            raise InvalidInput(f"{said} Name another workflow.")
        known = before.get((*place, child.workflow), 0) if child.version == 0 else child.version
        pinned[place] = await tree.version_of(child.workflow, known or None, place[0])
    whole = replace(definition, steps=tuple([_pinned(step, pinned) for step in definition.steps]))
    depth, size = await tree.measure(whole)
    if depth > MAX_DEPTH:
        raise InvalidInput(
            f"runs of {definition.name} would have {depth} generations; at most {MAX_DEPTH} are allowed."
        )
    if size > MAX_TREE:
        said = f"a run of {definition.name} would come to {size} runs; at most {MAX_TREE} are allowed."
        has_elements = any(step.child is not UNSET and step.growth for step in whole.steps)
        hint = " Each map and loop counts with its `max`: give it a smaller one." if has_elements else ""
        raise InvalidInput(said + hint)
    return whole


async def published_below(
    transactor: Transactor, definition: Definition, *, tenant: str
) -> dict[tuple[str, int], Definition]:
    """The definitions that a published one starts, and those that they start, by name and version."""
    found: dict[tuple[str, int], Definition] = {}
    pending = [definition]
    while pending:
        for (_, _, workflow), version in _pins(pending.pop()).items():
            stored = await transactor.store.read_definition(tenant, workflow, version)
            if stored is not None and (workflow, version) not in found:
                found[workflow, version] = decode_definition(stored.document)
                pending.append(found[workflow, version])
    return found


Place = tuple[str, str]
"""Where a definition starts a child: the step, and the name of its case, which is empty without a choice."""


def _children(definition: Definition) -> Iterator[tuple[Place, SubWorkflow]]:
    """Every workflow that a definition starts, with its place."""
    for step in definition.steps:
        names = [case.name for case in step.growth.cases] if isinstance(step.growth, Switch) else [""]
        for name, one in zip(names, templates_of(step), strict=True):
            if one.child is not UNSET:
                yield (step.name, name), one.child


def _pins(definition: Definition) -> dict[tuple[str, str, str], int]:
    """The versions that a published definition has pinned, by step, case and workflow."""
    return {(*place, child.workflow): child.version for place, child in _children(definition)}


def _pinned(step: StepDefinition, pinned: Mapping[Place, int]) -> StepDefinition:
    """The step with the pinned versions of the workflows that it and its cases start."""

    def pin(one: StepDefinition, case: str) -> StepDefinition:
        if one.child is UNSET:
            return one
        return replace(one, child=replace(one.child, version=pinned[step.name, case]))

    growth = step.growth
    if isinstance(growth, Switch):
        cases = tuple([replace(case, step=pin(case.step, case.name)) for case in growth.cases])
        return replace(step, growth=replace(growth, cases=cases))
    return pin(step, "")


def _elements(step: StepDefinition) -> int:
    """How many children a step may start: one, also of a choice, or one for each element."""
    return step.growth.max if step.growth and not isinstance(step.growth, Switch) else 1


class _Tree:
    """Measures published workflows: how many generations and runs one run of each comes to."""

    def __init__(self, transactor: Transactor, tenant: str) -> None:
        self._store, self._tenant = transactor.store, tenant
        self._known: dict[tuple[str, int], tuple[int, int]] = {}

    async def version_of(self, name: str, version: int | None, step: str) -> int:
        """The version that a step starts: this one, or the newest; refused if it is not published."""
        return (await self._read(name, version, step)).version

    async def measure(self, definition: Definition) -> tuple[int, int]:
        """The generations and the runs of one run. Pinned versions are older than what pins them, so this ends."""
        depth, size = 1, 1
        for step in definition.steps:
            below = [await self._below(one.child, step.name) for one in templates_of(step) if one.child is not UNSET]
            depth = max([depth, *(1 + generations for generations, _ in below)])
            # A choice takes one of its cases: that with most runs counts.
            size += max([runs for _, runs in below], default=0) * _elements(step)
        return depth, size

    async def _below(self, child: SubWorkflow, step: str) -> tuple[int, int]:
        place = (child.workflow, child.version)
        if place not in self._known:
            stored = await self._read(child.workflow, child.version, step)
            self._known[place] = await self.measure(decode_definition(stored.document))
        return self._known[place]

    async def _read(self, name: str, version: int | None, step: str) -> StoredDefinition:
        stored = await self._store.read_definition(self._tenant, name, version)
        if stored is None:
            which = name if version is None else f"version {version} of {name}"
            raise NotFound(f"step {step} starts the workflow {which}, which is not published. Publish it first.")
        return stored


class Newest(msgspec.Struct, frozen=True):
    """The plan that a name alone stands for. A start of it names no version, which a later one may differ from."""

    plan: Plan


class DefinitionSummary(Answer, kw_only=True):
    """A published version of a workflow."""

    workflow: str
    version: int
    dialect: str
    digest: str
    published_at: Moment
    published_by: str
    withdrawn: Annotated[Withdrawal | None, says("Set while no run of it may start.")]


class Definitions(Answer, kw_only=True):
    """Published workflows by name and version."""

    definitions: list[DefinitionSummary]
    next: Next = UNSET


class DefinitionView(Answer, kw_only=True):
    """A published version with its definition, every default made explicit."""

    definition: DefinitionSummary
    document: dict[str, Any]


async def publish(transactor: Transactor, definition: Definition, *, caller: Caller) -> Plan:
    """Publish a definition, or return the published one. The same name and version with other content is refused."""
    definition = await resolve_schemas(transactor, definition, tenant=caller.tenant)
    definition = await pin_children(transactor, definition, tenant=caller.tenant)
    await check_limits(transactor.store, caller.tenant, definition)
    document = encode_definition(definition)
    digest = digest_of(document)
    stored = await transactor.store.publish(
        caller.tenant,
        definition.name,
        definition.version,
        definition.dialect,
        digest,
        document,
        queue_specs(definition),
        caller.actor,
    )
    if not is_published(stored, definition):
        raise Conflict(
            f"version {definition.version} of {definition.name} was published before with other content"
            f"{_what_differs(stored, definition)}. A published version never changes: raise `version`, or let "
            "`stepkeep run --dev`, in Python `stepkeep.open(dev=True)`, do so while you try it."
        )
    await publish_limits(transactor.store, definition, caller=caller)
    return transactor.plans.add(stored)


def is_published(stored: StoredDefinition, definition: Definition) -> bool:
    """Whether the stored definition is this one. An earlier program stored it with the defaults of its time."""
    if stored.digest == digest_of(encode_definition(definition)):
        return True
    is_whole = digest_of(stored.document) == stored.digest
    return is_whole and is_same_but_for_defaults(decode_definition(stored.document), definition)


def _what_differs(stored: StoredDefinition, definition: Definition) -> str:
    if digest_of(stored.document) != stored.digest:
        return ""
    found = differences(decode_definition(stored.document), definition)
    return f" ({'; '.join(found)})" if found else ""


async def as_draft(transactor: Transactor, definition: Definition, *, tenant: str) -> Definition:
    """The definition under a version in which it can be published: its own, the newest if that has the same content,
    or the next one."""
    definition = await resolve_schemas(transactor, definition, tenant=tenant)
    definition = await pin_children(transactor, definition, tenant=tenant)
    own = await transactor.store.read_definition(tenant, definition.name, definition.version)
    if own is None or is_published(own, definition):
        return definition
    newest = await transactor.store.read_definition(tenant, definition.name, None)
    assert newest is not None
    again = replace(definition, version=newest.version)
    if is_published(newest, again):
        return again
    return replace(definition, version=newest.version + 1)


async def find_plan(transactor: Transactor, name: str, version: int | None, *, tenant: str) -> Plan:
    """The plan of a published definition; without a version, of the highest one."""
    stored = await transactor.definitions.new((tenant, name, version))
    if stored is None:
        which = name if version is None else f"version {version} of {name}"
        if version is not None and (newest := await transactor.store.read_definition(tenant, name, None)) is not None:
            listed = "`stepkeep definitions` lists them all"
            raise NoSuchName(f"there is no published {which}. The newest is version {newest.version}; {listed}.")
        raise NotFound(f"there is no published workflow {which}. Publish it first (stepkeep start FILE does).")
    return transactor.plans.add(stored)


async def list_published(transactor: Transactor, name: str | None, *, tenant: str) -> Definitions:
    """Every published version, by name and version; with a name, only its versions."""
    found = await transactor.store.list_definitions(tenant)
    gone = await list_withdrawn(transactor.store, tenant)
    return Definitions(
        definitions=[
            DefinitionSummary(
                workflow=one.name,
                version=one.version,
                dialect=one.dialect,
                digest=one.digest,
                published_at=instant(one.published_at),
                published_by=one.published_by,
                withdrawn=gone.get((one.name, one.version)),
            )
            for one in sorted(found, key=lambda one: (one.name, one.version))
            if name in (None, one.name)
        ]
    )


async def show_published(transactor: Transactor, name: str, version: int | None, *, tenant: str) -> DefinitionView:
    """A published version, or the highest one, with its document."""
    plan = await find_plan(transactor, name, version, tenant=tenant)
    listed = (await list_published(transactor, name, tenant=tenant)).definitions
    [found] = [one for one in listed if one.version == plan.definition.version]
    return DefinitionView(definition=found, document=msgspec.json.decode(plan.document))
