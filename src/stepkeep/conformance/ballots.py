"""Replays the decisions of people about gates: which counted, how many were needed, and which person might decide.

It keeps the decisions and completions of one run by step, and compares each new one with the terms of the pinned
definition. Names that look the same are one person, and a service is none. What stands below a step counts for it; what
another run did is carried by the end of a child or by adoption. It reads causes alone, so it believes the roles that a
cause names, and cannot know which person owned a worker of this run. It must not share code with the engine.
`reenact.py` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from stepkeep.conformance.contract import Contract, DutyRule, GateRule, PlannedRule
from stepkeep.conformance.line import Line
from stepkeep.conformance.persons import is_persons
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.steps import ASKED, Step
from stepkeep.edges.names import same_names

Problem = tuple[Code, str]

APPROVES = frozenset({"approved", "hold_approved"})
REJECTS = frozenset({"rejected", "rejected_tolerated"})
COUNTED = APPROVES | REJECTS | {"decision_recorded"}
"""Triggers by which the decision of a person counts."""

COMPLETES = frozenset(
    {"completion_succeeded", "completion_failed", "completion_failed_tolerated", "completion_cancelled"}
)

REASSIGNED = "gate_reassigned"
REASSIGNS = REJECTS | {"reassigned"}
"""The event by which an operator names other approvers of a gate or rejects it, and its triggers."""

SENT_BACK = "changes_requested"
"""The trigger by which a gate opens anew, and its decisions are void."""

HOLDS = frozenset(
    {"operator_retried", "operator_skipped", "operator_failed", "operator_failed_tolerated", "operator_completed"}
)
"""Triggers by which a person decides about a stuck step."""


class Ballot(NamedTuple):
    """A decision that counted: the names behind it, and what was decided."""

    names: frozenset[str]
    approves: bool


Acts = tuple[frozenset[str], ...]
"""Decisions, each as the names behind it: the person who acted, and the delegator."""


class People:
    """The people of one run: who asked for it, and who decided or completed which step."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self.requesters: frozenset[str] = NOBODY
        self.rules: Any = 1
        """The rules that its creation names: the first ones see nothing below a step and count names alone."""
        self._decided: dict[str, Acts] = {}
        self._completed: dict[str, frozenset[str]] = {}
        self._executed: dict[str, frozenset[str]] = {}
        self._many: set[str] = set()
        """Steps of which not all persons are on record: any person may be one of them."""
        self._below: dict[str, set[str]] = {}
        """Elements, calls and added steps by the step that they stand below."""
        self._before: dict[str, Acts] = {}
        """The decisions on a step before its gate opened."""

    def carry(self, name: str, persons: Any) -> None:
        """Add the persons of another run to a step: those of its child, or those of an adopted step."""
        if not is_persons(persons):
            return
        no = self._contract.numbers.get(name)
        place = None if no is None else self._contract.places.get(no)
        if place is not None:
            self._within(place)
        lent = [frozenset(pair) for pair in persons.get("lent", ())]
        alone = frozenset(persons.get("decided", ())).difference(*lent)
        self._decided[name] = (*self._decided.get(name, ()), *lent, *(frozenset({one}) for one in alone))
        for known, kind in ((self._completed, "completed"), (self._executed, "executed")):
            known[name] = known.get(name, NOBODY).union(persons.get(kind, ()))
        if persons.get("many") is True:
            self._many.add(name)

    def _within(self, place: PlannedRule) -> str:
        """The step by which the definition names this one: the owner of an element."""
        if self.rules == 1 or place.owner is None or place.phase != "main":
            return place.name
        owner = self._contract.places[place.owner].name
        self._below.setdefault(owner, set()).add(place.name)
        return owner

    def _names(self, step: str) -> set[str]:
        """A step and what stands below it."""
        return {step, *self._below.get(step, ())}

    def _acts(self, step: str) -> list[frozenset[str]]:
        return [act for name in self._names(step) for act in self._decided.get(name, ())]

    def _decided_by(self, step: str) -> frozenset[str]:
        return NOBODY.union(*self._acts(step))

    def _done(self, known: Mapping[str, frozenset[str]], step: str) -> frozenset[str]:
        return NOBODY.union(*(known.get(name, NOBODY) for name in self._names(step)))

    def _may_be_any(self, step: str) -> bool:
        return not self._many.isdisjoint(self._names(step))

    def check(
        self, step: Step, place: PlannedRule, line: Line, asked: Mapping[str, Any], steps: Mapping[int, Step]
    ) -> Iterator[Problem]:
        """Every reason why this decision or completion cannot have counted like this; then record it."""
        names = frozenset(name for name in (line.actor, asked.get("for")) if isinstance(name, str))
        if line.source != line.target:
            step.violations.clear()
        if line.trigger in ("gate_opened", "held"):
            self._before[place.name] = self._decided.get(place.name, ())
        elif line.trigger == "escalated" and line.event == ASKED:
            yield from self._check_request(step, place, line, asked, names, steps)
        elif line.event == REASSIGNED and line.trigger in REASSIGNS:
            yield from self._check_reassigned(step, place, names, asked)
            if line.trigger != "reassigned":
                self._decided[place.name] = (*self._decided.get(place.name, ()), names)
        elif line.trigger == SENT_BACK:
            yield from self._check_request(step, place, line, asked, names, steps)
            if step.ballots is not None:
                step.ballots.clear()
            self._decided[place.name] = self._before.get(place.name, ())
        elif line.trigger == "claimed":
            yield from self._check_claim(place, asked.get("owner"))
        elif line.trigger in COMPLETES:
            yield from self._check_duties(place, names, True, steps)
            self._completed[place.name] = self._completed.get(place.name, NOBODY) | names
        elif line.trigger in HOLDS or (line.trigger == "retry_due" and line.event == "step_decided"):
            yield from self._check_duties(place, names, True, steps)
            self._decided[place.name] = (*self._decided.get(place.name, ()), names)
        elif line.trigger in COUNTED:
            gate = step.terms or place.gate
            approves = asked.get("decision") == "approved"
            if step.ballots is not None and gate is not None:
                yield from _check_count(step.ballots, gate, line, approves)
                if step.gate_due_at is not None and line.at >= step.gate_due_at:
                    yield Code.TIMER, f"a decision counts at {line.at}, but its deadline passed at {step.gate_due_at}"
                yield from _check_once(step.ballots, names)
                yield from _check_terms(gate, step, names, asked)
                yield from self._check_excluded(gate, place, names)
                yield from self._check_duties(place, names, line.trigger != "decision_recorded", steps)
                if asked.get("service") is True:
                    yield from self._check_service(gate, place, line, asked, approves)
                step.ballots.append(Ballot(names, approves))
            self._decided[place.name] = (*self._decided.get(place.name, ()), names)

    def _check_reassigned(
        self, step: Step, place: PlannedRule, names: frozenset[str], asked: Mapping[str, Any]
    ) -> Iterator[Problem]:
        """An operator who did not ask for the run opens a gate to other people, or fails it."""
        gate, to = step.terms or place.gate, tuple(str(name) for name in asked.get("to") or ())
        levels = () if gate is None else gate.levels[: step.level + 1]
        if any(not (one.roles or one.groups or one.approvers) for one in levels):
            yield Code.PEOPLE, "it is reassigned, but any person may decide it"
        if both := same_names(names, {*self.requesters, *to}):
            yield Code.PEOPLE, f"{quoted(both[0])} reassigns a gate of a run that they asked for, or to themselves"
        step.named = (*step.named, *to)

    def _check_request(
        self,
        step: Step,
        place: PlannedRule,
        line: Line,
        asked: Mapping[str, Any],
        names: frozenset[str],
        steps: Mapping[int, Step],
    ) -> Iterator[Problem]:
        """A person who may decide a gate, and has not, may ask for changes or for the next level."""
        gate = step.terms or place.gate
        if step.ballots is None or gate is None:
            return
        if step.gate_due_at is not None and line.at >= step.gate_due_at:
            yield Code.TIMER, f"it is {line.trigger} at {line.at}, but its deadline passed at {step.gate_due_at}"
        yield from _check_once(step.ballots, names)
        yield from _check_terms(gate, step, names, asked)
        yield from self._check_excluded(gate, place, names)
        yield from self._check_duties(place, names, False, steps)
        if asked.get("service") is True and asked.get("by_right_of") != [f"approver:{line.actor}"]:
            yield Code.PEOPLE, f"{quoted(line.actor)} is a service and decides {place.name}, which does not name it"

    def violation(self, step: Step, place: PlannedRule, line: Line, asked: Mapping[str, Any]) -> Iterator[Problem]:
        """Every reason why this violation of a duty cannot be on record like this; then remember it."""
        rule = str(asked.get("rule"))
        if step.state in ENDED or step.state == "pending":
            yield Code.PEOPLE, f"{quoted(line.actor)} violates a duty on {place.name}, which waits for no person"
        if rule not in self._rules(step, place):
            yield Code.PEOPLE, f"metadata.detail.rule is {quoted(rule)}, and the definition has no such duty for it"
        if (line.actor, rule) in step.violations:
            yield Code.PEOPLE, f"the violation of {quoted(rule)} by {quoted(line.actor)} is on record already"
        step.violations.add((line.actor, rule))
        if len(step.violations) > MOST_VIOLATIONS:
            yield Code.PEOPLE, f"{place.name} has more than {MOST_VIOLATIONS} violations on record"

    def _rules(self, step: Step, place: PlannedRule) -> set[str]:
        """The duties that can rule a person out here."""
        gate = step.terms or place.gate
        found = {"maker_checker"} if gate is not None and gate.excluded else set()
        within = self._within(place)
        for rule in self._contract.document.duties:
            if within in (*rule.gates, *rule.steps, rule.step):
                found.add(rule.kind)
        return found

    def _check_excluded(self, gate: GateRule, place: PlannedRule, names: frozenset[str]) -> Iterator[Problem]:
        for word in gate.excluded:
            duty, _, of = word.partition(":")
            if word == "requester":
                ruled_out = self.requesters
            elif of and duty == "decided":
                ruled_out = self._decided_by(of)
            elif of and duty in ("completed", "executed"):
                ruled_out = self._done(self._completed if duty == "completed" else self._executed, of)
            else:
                ruled_out = NOBODY if of else frozenset({word})
            if of and self._may_be_any(of):
                yield Code.PEOPLE, f"{place.name} is decided, and any person may have {duty} {of}: `not: {word}`"
            if found := same_names(names, ruled_out):
                yield Code.PEOPLE, f"{quoted(found[0])} decides {place.name}, which `not: {word}` rules out"

    def _check_duties(
        self, place: PlannedRule, names: frozenset[str], settles: bool, steps: Mapping[int, Step]
    ) -> Iterator[Problem]:
        within = self._within(place)
        for rule in self._contract.document.duties:
            if within in rule.gates and rule.kind == "four_eyes":
                yield from self._check_four_eyes(rule, within, names, settles, steps)
            elif within in (*rule.gates, *rule.steps):
                yield from self._check_apart(rule, place, names)

    def _check_apart(self, rule: DutyRule, place: PlannedRule, names: frozenset[str]) -> Iterator[Problem]:
        """No person acts on two of the steps that a duty names."""
        for other in sorted({*rule.gates, *rule.steps} - {self._within(place)}):
            done = self._decided_by(other)
            if rule.kind == "incompatible":
                done |= self._done(self._completed, other) | self._done(self._executed, other)
            if self._may_be_any(other):
                yield Code.PEOPLE, f"any person may have acted on {other}, and `{rule.kind}` names it"
            if both := same_names(names, done):
                said = f"{quoted(both[0])} acts on {other} and on {place.name}"
                yield Code.PEOPLE, f"{said}, which `{rule.kind}` rules out"

    def _check_claim(self, place: PlannedRule, owner: Any) -> Iterator[Problem]:
        """A worker claims a step: its owner executes it. A worker without one is no person, and a log from before
        names none."""
        if not isinstance(owner, str) or place.phase != "main":
            return
        names, within = frozenset({owner}), self._within(place)
        for rule in self._contract.document.duties:
            if rule.kind == "incompatible" and within in rule.steps:
                yield from self._check_apart(rule, place, names)
        for gate in self._contract.places.values():
            excluded = () if gate.gate is None else gate.gate.excluded
            if f"executed:{within}" in excluded and same_names(names, self._decided_by(gate.name)):
                yield Code.PEOPLE, f"{quoted(owner)} decided {gate.name} and executes {place.name}, against its `not`"
        self._executed[place.name] = self._executed.get(place.name, NOBODY) | names

    def _check_four_eyes(
        self, rule: DutyRule, within: str, names: frozenset[str], settles: bool, steps: Mapping[int, Step]
    ) -> Iterator[Problem]:
        others = [steps.get(self._contract.numbers[gate]) for gate in rule.gates if gate != within]
        if not settles or any(step is None or step.state not in ENDED for step in others):
            return
        acts = [act for gate in rule.gates for act in self._acts(gate)]
        if self.rules == 1:
            before = NOBODY.union(*acts)
            is_alone = bool(before) and len(same_names(before, names)) == len(before)
        else:
            both = [*acts, names]
            is_alone = bool(acts) and all(same_names(one, other) for one in both for other in both)
        if is_alone:
            yield Code.PEOPLE, f"{quoted(min(names))} alone decides {', '.join(rule.gates)}, against `four_eyes`"

    def _check_service(
        self, gate: GateRule, place: PlannedRule, line: Line, asked: Mapping[str, Any], approves: bool
    ) -> Iterator[Problem]:
        """A service is no person: it decides in its own name, where the gate names it and one decision is enough."""
        who = f"{quoted(line.actor)} is a service and decides {place.name}"
        if asked.get("by_right_of") != [f"approver:{line.actor}"]:
            yield Code.PEOPLE, f"{who}, which does not name it"
        if "for" in asked:
            yield Code.PEOPLE, f"{who} for {quoted(asked['for'])}; a service acts for no person"
        if (needed := gate.quorum if approves else gate.reject_on) > 1:
            yield Code.PEOPLE, f"{who}, which takes {needed} people"
        if any(rule.kind == "four_eyes" and place.name in rule.gates for rule in self._contract.document.duties):
            yield Code.PEOPLE, f"{who}, which `four_eyes` leaves to people"


NOBODY: frozenset[str] = frozenset()
MOST_VIOLATIONS = 50
"""Violations of one step that a journal holds at most."""

ENDED = frozenset({"succeeded", "failed", "skipped", "cancelled"})


def _check_count(before: list[Ballot], gate: GateRule, line: Line, approves: bool) -> Iterator[Problem]:
    count = 1 + sum(ballot.approves is approves for ballot in before)
    needed = gate.quorum if approves else gate.reject_on
    settles = line.trigger != "decision_recorded"
    if settles and count < needed:
        yield Code.PEOPLE, f"trigger is {quoted(line.trigger)} after {count} of {needed} decisions"
    if not settles and count >= needed:
        yield Code.PEOPLE, f"trigger is 'decision_recorded', but decision {count} of {needed} settles the gate"


def _check_once(before: list[Ballot], names: frozenset[str]) -> Iterator[Problem]:
    for ballot in before:
        if both := same_names(names, ballot.names):
            yield Code.PEOPLE, f"{quoted(both[0])} decides twice: each person decides a gate once"


def _check_terms(gate: GateRule, step: Step, names: frozenset[str], asked: Mapping[str, Any]) -> Iterator[Problem]:
    """A gate that names its approvers is decided by one of them, or by a right that it names."""
    level = step.level
    levels = gate.levels[: level + 1]
    if asked.get("level", 0) != level:
        yield Code.PEOPLE, f"metadata.detail.level is {quoted(asked.get('level', 0))}, but the gate is at level {level}"
    if any(not (one.roles or one.groups or one.approvers) for one in levels):
        return
    rights = asked.get("by_right_of")
    allowed = {
        *(f"role:{role}" for one in levels for role in one.roles),
        *(f"group:{group}" for one in levels for group in one.groups),
        *(f"approver:{person}" for one in levels for person in one.approvers if person in names),
        *(f"approver:{person}" for person in step.named if person in names),
    }
    if not isinstance(rights, list) or not rights or not allowed.issuperset(map(str, rights)):
        yield Code.PEOPLE, f"metadata.detail.by_right_of is {quoted(rights)}, expected one of {sorted(allowed)}"
