"""Checks the people of a definition: the terms of gates and holds, and the duties of a run; and gives advice on them.

A problem is something that no run could satisfy or that names a step wrongly. Advice is about a gate that does less
than it seems to say. The native front end calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from stepkeep.definition.findings import Finding, Path, did_you_mean
from stepkeep.definition.native.graph import Ancestry
from stepkeep.definition.native.written import ApprovalBlock, DutyBlock, StepBlock
from stepkeep.kernel.definition import Approval, Definition, OnDeadline
from stepkeep.kernel.people.separation import DUTIES_OF_STEPS, REQUESTER

KINDS = ("distinct", "four_eyes", "incompatible", "requires_role")
"""The kinds of duties; each item of `duties` has one of them."""


def gates_of(step: StepBlock) -> Iterator[tuple[str, ApprovalBlock]]:
    """The gate of a step, and the key that it is written under."""
    for key, gate in (("approval", step.approval), ("hold", step.hold)):
        if gate is not None:
            yield key, gate


def check_gates(steps: Mapping[Path, StepBlock], ancestry: Ancestry | None) -> Iterator[Finding]:
    """Every problem of the people that gates name."""
    by_name = {step.name: step for step in steps.values()}
    for path, step in steps.items():
        for key, gate in gates_of(step):
            at = (*path, key)
            for place, word in enumerate(gate.excluded):
                yield from _exclusion(word, (*at, "not", place), by_name, step.name, ancestry)
            for place, level in enumerate(gate.escalate):
                if not (level.roles or level.groups or level.approvers):
                    said = "A level of `escalate` names nobody."
                    yield Finding((*at, "escalate", place), said, "Give it `roles`, `groups` or `approvers`.")


def _exclusion(
    word: str, path: Path, steps: Mapping[str, StepBlock], gate: str, ancestry: Ancestry | None
) -> Iterator[Finding]:
    duty, colon, name = word.partition(":")
    if not colon:
        return
    if duty not in DUTIES_OF_STEPS:
        known = ", ".join(f"`{one}:STEP`" for one in DUTIES_OF_STEPS)
        yield Finding(path, f"`{word}` names no duty.", f"Write `{REQUESTER}`, {known}, or the name of a person.")
        return
    yield from _named(name, path, steps)
    step = steps.get(name)
    if step is not None and not (_can_be(duty, step) or _has_child(step)):
        yield Finding(path, f"No person has {duty} `{name}`: {_WHY_NOT[duty]}.", "Name another step, or remove it.")
    elif step is not None:
        yield from _known_in_time(step, gate, path, ancestry)


def _known_in_time(step: StepBlock, other: str, path: Path, ancestry: Ancestry | None) -> Iterator[Finding]:
    """The persons of a child are known when it has ended: a step that asks about them comes after it."""
    if _has_child(step) and ancestry is not None and not ancestry.precedes(step.name, other):
        said = f"`{other}` does not wait for `{step.name}`, and the people of its child run are known at its end."
        yield Finding(path, said, f"Let `{other}` depend on `{step.name}`, or remove it.")


_WHY_NOT = {
    "executed": "no worker runs it",
    "completed": "it is not completed manually",
    "decided": "it is neither an `approval` nor on `hold`",
}


def _cases(step: StepBlock) -> tuple[StepBlock, ...]:
    """A step and its cases, if it is a choice."""
    return (step, *(step.switch or ()))


def _has_child(step: StepBlock) -> bool:
    """Whether a step, its elements or one of its cases waits for a child run."""
    return any(one.workflow is not None and not one.workflow.detached for one in _cases(step))


def _can_be(duty: str, step: StepBlock) -> bool:
    """Whether a person may do this on the step, or below it in the same run: calls of a flow and added steps are of any
    kind."""
    if duty != "executed" and (step.flow is not None or step.then is not None):
        return True
    return any(_can_be_itself(duty, one) for one in _cases(step))


def _can_be_itself(duty: str, step: StepBlock) -> bool:
    if duty == "decided":
        return any(gates_of(step)) or step.on_exhausted == "hold"
    has_work = step.approval is None and step.wait is None and step.sleep is None and step.workflow is None
    return has_work and (duty == "executed" or (step.completion is not None and step.completion.mode == "manual"))


def _named(name: str, path: Path, steps: Mapping[str, StepBlock]) -> Iterator[Finding]:
    if name not in steps:
        yield Finding(path, f"There is no step `{name}`.", did_you_mean(name, steps))


def check_duties(
    duties: list[DutyBlock], steps: Mapping[Path, StepBlock], ancestry: Ancestry | None
) -> Iterator[Finding]:
    """Every problem of the duties of a run."""
    by_name = {step.name: step for step in steps.values()}
    for place, duty in enumerate(duties):
        at: Path = ("duties", place)
        given = [kind for kind in KINDS if getattr(duty, kind) is not None]
        if len(given) != 1:
            kinds = ", ".join(f"`{kind}`" for kind in KINDS)
            yield Finding(at, "A duty has exactly one kind.", f"Write one of {kinds}.")
            continue
        [kind] = given
        names = list(getattr(duty, kind))
        if kind != "requires_role" and len(set(names)) < 2:
            yield Finding((*at, kind), f"`{kind}` takes two steps or more.", "Name the others, or remove it.")
        for number, name in enumerate(names):
            where = (*at, kind, name if kind == "requires_role" else number)
            yield from _named(name, where, by_name)
            step = by_name.get(name)
            if step is not None and not _takes_people(kind, step):
                what = "acts" if kind == "incompatible" else "decisions"
                said = f"`{kind}` is about {what} of people, and `{name}` takes none."
                then = "Name another step." if kind == "incompatible" else "Name an `approval`, or a step on `hold`."
                yield Finding(where, said, then)
            elif step is not None and kind != "requires_role":
                others = [by_name[other] for other in dict.fromkeys(names) if other != name and other in by_name]
                yield from _enforceable(kind, step, others, where, ancestry)


def _enforceable(
    kind: str, step: StepBlock, others: Sequence[StepBlock], path: Path, ancestry: Ancestry | None
) -> Iterator[Finding]:
    """Nothing in a child asks about the people of its parent: a duty has one child at most, and it comes first."""
    if any(one.workflow is not None and one.workflow.detached for one in _cases(step)):
        said = f"`{kind}` cannot hold for `{step.name}`: nothing waits for its child run, whose people are never known."
        yield Finding(path, said, "Remove it, or let the step wait for its child.")
    for other in others:
        if _has_child(step) and _has_child(other):
            said = f"`{kind}` cannot hold for `{step.name}` and `{other.name}`: both are child runs."
            yield Finding(path, said, "Name one of them at most.")
        else:
            yield from _known_in_time(step, other.name, path, ancestry)


def _takes_people(kind: str, step: StepBlock) -> bool:
    if kind == "requires_role":
        return _can_be("decided", step) or _can_be("completed", step)
    acts = DUTIES_OF_STEPS if kind == "incompatible" else ("decided",)
    return any(_can_be(duty, step) for duty in acts) or any(one.workflow is not None for one in _cases(step))


# -- advice ------------------------------------------------------------------------------------------------------------
def gate_advice(definition: Definition) -> Iterator[Finding]:
    """Guideline 7: gates that do less than they seem to say."""
    for number, step in enumerate(definition.steps):
        for key, gate in (("approval", step.approval), ("hold", step.hold)):
            if gate is not None:
                yield from _advice(gate, step.name, ("steps", number, key))


def _advice(gate: Approval, name: str, path: Path) -> Iterator[Finding]:
    levels = gate.levels
    people = {person for level in levels for person in level.approvers}
    open_to_more = any(level.roles or level.groups or level.is_open for level in levels)
    if not open_to_more and gate.quorum > len(people):
        said = f"`{name}` asks for {gate.quorum} decisions and names {len(people)} people: it can never be approved."
        yield Finding((*path, "quorum"), said, "Name more `approvers`, or lower the `quorum`.", key=True)
    if gate.on_deadline is OnDeadline.ESCALATE and not gate.escalate:
        said = f"`{name}` escalates at its deadline, and has no further level: it is rejected instead."
        yield Finding(
            (*path, "on_deadline"), said, "Add levels: `escalate: [{roles: [boss], deadline: 4h}]`.", key=True
        )
    if gate.escalate and gate.on_deadline is not OnDeadline.ESCALATE:
        said = f"The levels of `{name}` are never reached: `on_deadline` is `{gate.on_deadline}`."
        yield Finding((*path, "escalate"), said, "Write `on_deadline: escalate`.", key=True, ignored=True)
    if gate.deadline is None and gate.on_deadline not in (OnDeadline.REJECT, OnDeadline.FAIL):
        said = f"`{name}` has no `deadline`, so that its `on_deadline: {gate.on_deadline}` has no effect."
        yield Finding((*path, "on_deadline"), said, "Add a `deadline`.", key=True, ignored=True)
    for place, level in enumerate(levels[1:-1]):
        if level.deadline is None:
            said = f"A level of `{name}` has no `deadline`: the levels after it are never reached."
            yield Finding((*path, "escalate", place), said, "Add one.")
    if gate.remind is not msgspec.UNSET and gate.deadline is not None and gate.remind >= gate.deadline:
        said = f"`{name}` ends before its first reminder."
        yield Finding((*path, "remind"), said, "Make `remind` shorter than the `deadline`.", key=True, ignored=True)
