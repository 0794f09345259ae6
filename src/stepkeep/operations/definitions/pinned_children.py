"""Pins the workflows that a definition starts as children, when it is published: each to one published version.

A pinned version never changes, so a workflow cannot come to contain itself, and the depth and size of its tree of runs
are known before any run. `publish` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import UNSET
from msgspec.structs import replace

from stepkeep.kernel.definition import Definition, StepDefinition, SubWorkflow, Switch, decode_definition, templates_of
from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.change import StoredDefinition

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
