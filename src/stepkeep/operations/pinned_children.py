"""Pins the workflows that a definition starts as children, when it is published: each to one published version.

A pinned version never changes, so a workflow cannot come to contain itself, and the depth and size of its tree of runs
are known before any run. `publish` calls it.
"""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from stepkeep.errors import InvalidInput, NotFound
from stepkeep.kernel.definition import Definition, StepDefinition, decode_definition
from stepkeep.operations.transact import Transactor

MAX_DEPTH = 8
"""How many generations of runs a workflow may have, itself included."""

MAX_TREE = 1000
"""How many runs a run may come to, itself included."""


async def pin_children(transactor: Transactor, definition: Definition, *, tenant: str) -> Definition:
    """The definition with a version for every workflow that it starts; refused if one is not published."""
    if all(step.child is UNSET for step in definition.steps):
        return definition
    own = await transactor.store.read_definition(tenant, definition.name, definition.version)
    before = {} if own is None else _pins(decode_definition(own.document))
    tree = _Tree(transactor, tenant)
    steps, depth, size = [], 1, 1
    for step in definition.steps:
        child = step.child
        if child is UNSET:
            steps.append(step)
            continue
        if child.workflow == definition.name:
            said = f"step {step.name} of {definition.name} starts {definition.name} itself, without an end."
            raise InvalidInput(f"{said} Name another workflow.")
        known = before.get((step.name, child.workflow), 0) if child.version == 0 else child.version
        version, below, runs = await tree.measure(child.workflow, known or None, step.name)
        steps.append(replace(step, child=replace(child, version=version)))
        depth, size = max(depth, 1 + below), size + runs * _elements(step)
    if depth > MAX_DEPTH:
        raise InvalidInput(
            f"runs of {definition.name} would have {depth} generations; at most {MAX_DEPTH} are allowed."
        )
    if size > MAX_TREE:
        said = f"a run of {definition.name} would come to {size} runs; at most {MAX_TREE} are allowed."
        has_elements = any(step.child is not UNSET and step.growth for step in steps)
        hint = " Each map and loop counts with its `max`: give it a smaller one." if has_elements else ""
        raise InvalidInput(said + hint)
    return replace(definition, steps=tuple(steps))


async def published_below(
    transactor: Transactor, definition: Definition, *, tenant: str
) -> dict[tuple[str, int], Definition]:
    """The definitions that a published one starts, and those that they start, by name and version."""
    found: dict[tuple[str, int], Definition] = {}
    pending = [definition]
    while pending:
        for (_, workflow), version in _pins(pending.pop()).items():
            stored = await transactor.store.read_definition(tenant, workflow, version)
            if stored is not None and (workflow, version) not in found:
                found[workflow, version] = decode_definition(stored.document)
                pending.append(found[workflow, version])
    return found


def _pins(definition: Definition) -> dict[tuple[str, str], int]:
    """The versions that a published definition has pinned, by step and workflow."""
    return {
        (step.name, step.child.workflow): step.child.version for step in definition.steps if step.child is not UNSET
    }


def _elements(step: StepDefinition) -> int:
    """How many children a step may start: one, or one for each element."""
    return step.growth.max if step.growth else 1


class _Tree:
    """Measures published workflows: how many generations and runs one run of each comes to."""

    def __init__(self, transactor: Transactor, tenant: str) -> None:
        self._store, self._tenant = transactor.store, tenant
        self._known: dict[tuple[str, int], tuple[int, int]] = {}

    async def measure(self, name: str, version: int | None, step: str) -> tuple[int, int, int]:
        """The version, its generations and its runs. Pinned versions are older than what pins them, so this ends."""
        stored = await self._store.read_definition(self._tenant, name, version)
        if stored is None:
            which = name if version is None else f"version {version} of {name}"
            raise NotFound(f"step {step} starts the workflow {which}, which is not published. Publish it first.")
        place = (name, stored.version)
        if place not in self._known:
            depth, size = 1, 1
            for inner in decode_definition(stored.document).steps:
                if inner.child is not UNSET:
                    _, below, runs = await self.measure(inner.child.workflow, inner.child.version, inner.name)
                    depth, size = max(depth, 1 + below), size + runs * _elements(inner)
            self._known[place] = (depth, size)
        return (stored.version, *self._known[place])
