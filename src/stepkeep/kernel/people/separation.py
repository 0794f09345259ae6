"""Separation of duties: constraints on the people of a run, each a pure function of who acts and who did what before.

A function returns the reason for a refusal, or None. It reads no store and changes nothing. `eligibility.py` calls it
before a decision or a manual completion counts, for the person and for the delegator alike. Names that look the same
are one person.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from stepkeep.edges.names import same_names
from stepkeep.kernel.definition import Definition, Distinct, Duty, FourEyes, Incompatible, RequiresRole

Names = Mapping[str, frozenset[str]]
"""People by the step on which they did something."""

NOBODY: frozenset[str] = frozenset()


class Duties(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Who did what in a run so far: asked for it, executed, completed or decided which step, or what stands below it.

    `lent` has the decisions for another, as the person who acted and the delegator. `many` are the steps of which not
    all persons are on record: any person may be one of them. `unsettled` are the steps that have not ended.
    """

    requested: frozenset[str] = NOBODY
    executed: Names = {}
    completed: Names = {}
    decided: Names = {}
    lent: Mapping[str, frozenset[tuple[str, str]]] = {}
    many: frozenset[str] = NOBODY
    unsettled: frozenset[str] = NOBODY

    def decisions_on(self, step: str) -> list[frozenset[str]]:
        """The names behind each decision on this step: the person who acted, and the delegator."""
        decided = self.decided.get(step, NOBODY)
        pairs = [frozenset(pair) for pair in self.lent.get(step, ()) if decided.issuperset(pair)]
        return [*pairs, *(frozenset({name}) for name in decided.difference(*pairs))]

    def done_on(self, step: str) -> frozenset[str]:
        """Everyone with a duty on this step."""
        return frozenset().union(*(names.get(step, NOBODY) for names in (self.executed, self.completed, self.decided)))


class Act(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is about to count: a decision or a completion of `step`, by these names (the person and the delegator).

    `within` is the step of the definition that `step` stands below, if not itself. `roles` are the roles by which the
    person acts. `settles` says whether the step ends by it. A service is no person.
    """

    step: str
    within: str = ""
    names: frozenset[str]
    roles: frozenset[str] = NOBODY
    settles: bool = True
    is_service: bool = False

    @property
    def named_step(self) -> str:
        """The step by which the definition names it."""
        return self.within or self.step


class Excluded(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Maker-checker: the people with this duty may not act. `duty` is a field of `Duties`, or `named`."""

    duty: str
    of: str = ""


Constraint = Duty | Excluded

REQUESTER = "requester"
DUTIES_OF_STEPS = ("executed", "completed", "decided")


class Objection(msgspec.Struct, frozen=True, gc=False):
    """Why a constraint does not allow an act. `rule` names the constraint in one word."""

    rule: str
    reason: str


def read_exclusion(word: str) -> Excluded:
    """A word of `not:` as a constraint.

    >>> read_exclusion("executed:pay")
    Excluded(duty='executed', of='pay')
    >>> read_exclusion("ann")
    Excluded(duty='named', of='ann')
    """
    duty, _, step = word.partition(":")
    if word == REQUESTER:
        return Excluded(duty="requested")
    if step and duty in DUTIES_OF_STEPS:
        return Excluded(duty=duty, of=step)
    return Excluded(duty="named", of=word)


def objection(constraints: Iterable[Constraint], act: Act, duties: Duties) -> Objection | None:
    """The first constraint that does not allow this act."""
    for constraint in constraints:
        rule, check = CHECKS[type(constraint)]
        if reason := check(constraint, act, duties):
            return Objection(rule, reason)
    return None


def steps_named(constraint: Constraint) -> tuple[str, ...]:
    """The steps on which a constraint looks for people."""
    if isinstance(constraint, Excluded):
        return (constraint.of,) if constraint.duty in DUTIES_OF_STEPS else ()
    if isinstance(constraint, Incompatible):
        return constraint.steps
    return () if isinstance(constraint, RequiresRole) else constraint.gates


def duties_of_execution(definition: Definition) -> dict[str, tuple[Constraint, ...]]:
    """By step, the constraints on the owner of a worker that executes it. A gate with `not: [executed:STEP]` counts for
    STEP, too: its deciders may not execute STEP afterwards."""
    found: dict[str, tuple[Constraint, ...]] = {}
    for duty in definition.duties or ():
        for name in duty.steps if isinstance(duty, Incompatible) else ():
            found[name] = (*found.get(name, ()), duty)
    for step in definition.steps:
        gate = step.approval or step.hold
        for rule in () if gate is None else map(read_exclusion, gate.excluded):
            if rule.duty == "executed":
                found[rule.of] = (*found.get(rule.of, ()), Excluded(duty="decided", of=step.name))
    return found


def _excluded(rule: Excluded, act: Act, duties: Duties) -> str | None:
    if rule.duty == "named":
        return f"{rule.of} may not decide {act.step}" if same_names([rule.of], act.names) else None
    if rule.duty == "requested":
        who, did = duties.requested, "asked for the run"
    elif rule.of in duties.many:
        return f"any person may have {rule.duty} {rule.of}: {MANY}"
    else:
        found: Names = getattr(duties, rule.duty)
        who, did = found.get(rule.of, NOBODY), f"{rule.duty} {rule.of}"
    found_names = same_names(act.names, who)
    return f"{found_names[0]} {did}" if found_names else None


def _distinct(rule: Distinct, act: Act, duties: Duties) -> str | None:
    if act.named_step not in rule.gates:
        return None
    return _one_of(act, {gate: duties.decided.get(gate, NOBODY) for gate in rule.gates}, "decided", duties.many)


def _incompatible(rule: Incompatible, act: Act, duties: Duties) -> str | None:
    if act.named_step not in rule.steps:
        return None
    return _one_of(act, {step: duties.done_on(step) for step in rule.steps}, "acted on", duties.many)


def _one_of(act: Act, done: Names, did: str, many: frozenset[str]) -> str | None:
    for step, names in done.items():
        if step != act.named_step and step in many:
            return f"any person may have {did} {step}: {MANY}"
        if step != act.named_step and (both := same_names(act.names, names)):
            return f"{both[0]} {did} {step}"
    return None


MANY = "not all of its persons are on record"


def _four_eyes(rule: FourEyes, act: Act, duties: Duties) -> str | None:
    """Only the act that settles the last of the gates can be one pair of eyes too few. Gates that no person decided,
    because they were skipped, do not count. Two decisions are those of two people if they share no name: a delegate
    and the delegator are one pair of eyes, and so is one delegate of two."""
    if act.named_step not in rule.gates:
        return None
    if act.is_service:
        return f"{min(act.names)} is a service, and {', '.join(rule.gates)} take people"
    if not act.settles:
        return None
    others = [gate for gate in rule.gates if gate != act.named_step]
    if duties.unsettled.intersection(others):
        return None
    before = [names for gate in rule.gates for names in duties.decisions_on(gate)]
    decisions = [*before, act.names]
    is_unknown = not duties.many.isdisjoint(rule.gates)
    if not (before or is_unknown) or any(not same_names(one, two) for one in decisions for two in decisions):
        return None
    return f"another person than {min(act.names)} must decide one of {', '.join(rule.gates)}"


def _requires_role(rule: RequiresRole, act: Act, duties: Duties) -> str | None:
    return (
        f"{act.step} takes the role {rule.role}" if act.named_step == rule.step and rule.role not in act.roles else None
    )


CHECKS: Mapping[type, tuple[str, Callable[[Any, Act, Duties], str | None]]] = {
    Excluded: ("maker_checker", _excluded),
    Distinct: ("distinct", _distinct),
    Incompatible: ("incompatible", _incompatible),
    FourEyes: ("four_eyes", _four_eyes),
    RequiresRole: ("requires_role", _requires_role),
}
"""The name and the check of each kind of constraint."""
