"""Two versions of a definition: what differs, and which runs of the old one the new one could continue.

A field of a step is its *meaning* (what it does, what undoes it, who must agree) or a *setting* (how often, how long,
where). A run may continue under another version only if every step that began means the same there. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.definition import Case, Definition, Loop, Map, StepDefinition, Switch

MEANING = (
    *("executor", "inputs", "condition", "approval", "hold", "wait", "rules", "pre", "completion"),
    *("effect", "undo", "compensate_when", "transactional", "input_schema", "output_schema"),
)
"""The fields of a step that say what it does. All others are settings, but for its dependencies and the fields of
`IN_PART`."""

BEHIND_EVERY_STEP = ("duties", "policy", "rules", "hooks", "output")
"""The fields of a workflow that an approval covers, whichever step it is about."""

UNCOMPARED = frozenset({"name", "order", "depends_on"})
OF_WORKFLOW = frozenset({"name", "version", "steps", "dialect"})
_MISSING = msgspec.UNSET


class Kind(StrEnum):
    """What a difference concerns: what a step does, how it is treated, or what it follows."""

    MEANING = "meaning"
    SETTING = "setting"
    EDGE = "edge"


class Difference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One field that differs, with both values as plain data."""

    field: str
    kind: Kind
    old: Any = None
    new: Any = None


class StepChange(msgspec.Struct, frozen=True, kw_only=True):
    """A step that was added, removed or changed."""

    name: str
    change: str
    differences: tuple[Difference, ...] = ()


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between two definitions, steps matched by their names."""

    workflow: tuple[Difference, ...]
    steps: tuple[StepChange, ...]

    @property
    def is_empty(self) -> bool:
        return not self.workflow and not self.steps


def compare(old: Definition, new: Definition) -> Comparison:
    """Every difference of two definitions, in the order of the new one; removed steps come last."""
    before = {step.name: step for step in old.steps}
    after = {step.name: step for step in new.steps}
    steps = [
        change
        for step in new.steps
        if (change := _changed(before.get(step.name), step, implied(old), implied(new))) is not None
    ]
    removed = [StepChange(name=step.name, change="removed") for step in old.steps if step.name not in after]
    fields = [name for name in Definition.__struct_fields__ if name not in OF_WORKFLOW]
    return Comparison(workflow=tuple(_differ(old, new, fields, Kind.SETTING)), steps=(*steps, *removed))


def _changed(
    old: StepDefinition | None, new: StepDefinition, was: Mapping[str, Any], now: Mapping[str, Any]
) -> StepChange | None:
    if old is None:
        return StepChange(name=new.name, change="added")
    settings = [one for one in StepDefinition.__struct_fields__ if one not in UNCOMPARED and one not in MEANING]
    found = [*_differ(old, new, MEANING, Kind.MEANING), *_differ(old, new, settings, Kind.SETTING)]
    other = {name for name, read in IN_PART.items() if read(old) != read(new)}
    found = [replace(one, kind=Kind.MEANING) if one.field in other else one for one in found]
    if was[new.name] != now[new.name]:
        found.append(Difference(field="depends_on", kind=Kind.EDGE, old=was[new.name], new=now[new.name]))
    return StepChange(name=new.name, change="changed", differences=tuple(found)) if found else None


def changed_behind(old: Definition, new: Definition) -> frozenset[str]:
    """The steps behind which something differs: what an approval of them covered is no longer what happens.

    Behind a step stands every step that depends on it, directly or through others, and what those depend on. A step
    differs if it was added or removed, or if its meaning, its dependencies or the version of its child did. What the
    workflow says for all of its steps, or does at its end, stands behind every step.
    """
    found = compare(old, new)
    names = {step.name for step in (*old.steps, *new.steps)}
    if any(one.field in BEHIND_EVERY_STEP for one in found.workflow):
        return frozenset(names)
    changed = {
        change.name
        for change in found.steps
        if change.change != "changed" or any(_concerns_plan(one) for one in change.differences)
    }
    edges = [{name: set(before) for name, before in implied(one).items()} for one in (old, new)] if changed else []
    return frozenset(name for name in names if any(changed & _behind(name, before) for before in edges))


def _concerns_plan(one: Difference) -> bool:
    return one.kind is not Kind.SETTING or one.field in IN_PART


def _behind(name: str, before: Mapping[str, set[str]]) -> set[str]:
    after: dict[str, set[str]] = {}
    for step, others in before.items():
        for other in others:
            after.setdefault(other, set()).add(step)
    followers = _reached(after.get(name, set()), after)
    return _reached(followers, before)


def _reached(first: set[str], edges: Mapping[str, set[str]]) -> set[str]:
    """These, and everything that the edges lead to from them."""
    found, pending = set(first), list(first)
    while pending:
        more = edges.get(pending.pop(), set()) - found
        found |= more
        pending += more
    return found


def _elements(step: StepDefinition) -> Any:
    """What the elements of a step are: its list, its condition or its cases. How many at a time is a setting."""
    match step.growth:
        case Map() as growth:
            return growth.over
        case Loop() as growth:
            return (growth.until, growth.as_long_as)
        case Switch() as growth:
            return [_case(case) for case in growth.cases]
        case growth:
            return type(growth)


def _case(case: Case) -> Any:
    """A case, but for the version and the deadline of the child that it starts."""
    return case.name, case.when, replace(case.step, child=_MISSING), _child(case.step)


def _child(step: StepDefinition) -> Any:
    """Which workflow a step runs, and whether it waits for it. The pinned version and the deadline are settings."""
    return step.child and (step.child.workflow, step.child.detached)


IN_PART: Mapping[str, Callable[[StepDefinition], Any]] = {"growth": _elements, "child": _child}
"""Fields of a step that are meaning in part, with what the meaning is."""


def implied(definition: Definition) -> dict[str, dict[str, list[str]]]:
    """What each step depends on, with the states that satisfy each dependency."""
    return {
        step.name: {edge.step: sorted(edge.allow) for edge in sorted(step.depends_on, key=lambda one: one.step)}
        for step in definition.steps
    }


def _differ(old: Any, new: Any, fields: Collection[str], kind: Kind) -> Iterator[Difference]:
    for name in fields:
        was, now = getattr(old, name), getattr(new, name)
        if was != now:
            yield Difference(field=name, kind=kind, old=_plain(was), new=_plain(now))


def _plain(value: Any) -> Any:
    return None if value is _MISSING else msgspec.to_builtins(value)


def obstacles(old: Definition, new: Definition, begun: Collection[str]) -> Iterator[str]:
    """Why a run of `old` in which these steps began cannot continue under `new`; nothing if it can."""
    changes = {change.name: change for change in compare(old, new).steps}
    for name in begun:
        change = changes.get(name)
        if change is None:
            continue
        if change.change == "removed":
            yield f"step {name} began, and the new version does not have it"
        for one in change.differences:
            if one.kind is Kind.MEANING:
                yield f"step {name} began, and its {one.field} differs"
            elif one.kind is Kind.EDGE:
                yield from _edge_obstacles(name, one, begun)


def _edge_obstacles(name: str, edges: Difference, begun: Collection[str]) -> Iterator[str]:
    """A step that began keeps the dependencies that let it begin: one on a step that has not is a contradiction."""
    was, now = edges.old, edges.new
    for other in now.keys() - was.keys():
        if other not in begun:
            yield f"step {name} began, and depends on {other} in the new version, which did not begin"
    for other in now.keys() & was.keys():
        if not set(was[other]) <= set(now[other]):
            yield f"step {name} began, and the new version asks another end of {other}"
