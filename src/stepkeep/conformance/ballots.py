"""Replays the decisions of people about gates: which counted, how many were needed, and which person might decide.

It keeps the decisions and completions of one run by step, and compares each new one with the terms of the pinned
definition. Names that look the same are one person, and a service is none. It reads causes alone, so it believes the
roles that a cause names, and cannot know which person owned a worker. It must not share code with the engine.
`reenact.py` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from stepkeep.conformance.contract import Contract, DutyRule, GateRule, Place
from stepkeep.conformance.line import Line
from stepkeep.conformance.names import alike
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.steps import ASKED, Step

Problem = tuple[Code, str]

APPROVES = frozenset({"approved", "hold_approved"})
REJECTS = frozenset({"rejected", "rejected_tolerated"})
COUNTED = APPROVES | REJECTS | {"decision_recorded"}
"""Triggers by which the decision of a person counts."""

COMPLETES = frozenset(
    {"completion_succeeded", "completion_failed", "completion_failed_tolerated", "completion_cancelled"}
)

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


class People:
    """The people of one run: who asked for it, and who decided or completed which step."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self.requesters: frozenset[str] = NOBODY
        self.decided: dict[str, frozenset[str]] = {}
        self.completed: dict[str, frozenset[str]] = {}
        self._before: dict[str, frozenset[str]] = {}
        """Who had decided a step before its gate opened."""

    def check(
        self, step: Step, place: Place, line: Line, asked: Mapping[str, Any], steps: Mapping[int, Step]
    ) -> Iterator[Problem]:
        """Every reason why this decision or completion cannot have counted like this; then record it."""
        names = frozenset(name for name in (line.actor, asked.get("for")) if isinstance(name, str))
        if line.source != line.target:
            step.violations.clear()
        if line.trigger in ("gate_opened", "held"):
            self._before[place.name] = self.decided.get(place.name, NOBODY)
        elif line.trigger == "escalated" and line.event == ASKED:
            yield from self._check_request(step, place, line, asked, names, steps)
        elif line.trigger == SENT_BACK:
            yield from self._check_request(step, place, line, asked, names, steps)
            if step.ballots is not None:
                step.ballots.clear()
            self.decided[place.name] = self._before.get(place.name, NOBODY)
        elif line.trigger in COMPLETES:
            yield from self._check_duties(place, names, True, steps)
            self.completed[place.name] = self.completed.get(place.name, NOBODY) | names
        elif line.trigger in HOLDS or (line.trigger == "retry_due" and line.event == "step_decided"):
            yield from self._check_duties(place, names, True, steps)
            self.decided[place.name] = self.decided.get(place.name, NOBODY) | names
        elif line.trigger in COUNTED:
            gate = step.terms or place.gate
            approves = asked.get("decision") == "approved"
            if step.ballots is not None and gate is not None:
                yield from _check_count(step.ballots, gate, line, approves)
                if step.gate_due_at is not None and line.at >= step.gate_due_at:
                    yield Code.TIMER, f"a decision counts at {line.at}, but its deadline passed at {step.gate_due_at}"
                yield from _check_once(step.ballots, names)
                yield from _check_terms(gate, step.level, names, asked)
                yield from self._check_excluded(gate, place, names)
                yield from self._check_duties(place, names, line.trigger != "decision_recorded", steps)
                if asked.get("service") is True:
                    yield from self._check_service(gate, place, line, asked, approves)
                step.ballots.append(Ballot(names, approves))
            self.decided[place.name] = self.decided.get(place.name, NOBODY) | names

    def _check_request(
        self,
        step: Step,
        place: Place,
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
        yield from _check_terms(gate, step.level, names, asked)
        yield from self._check_excluded(gate, place, names)
        yield from self._check_duties(place, names, False, steps)
        if asked.get("service") is True and asked.get("by_right_of") != [f"approver:{line.actor}"]:
            yield Code.PEOPLE, f"{quoted(line.actor)} is a service and decides {place.name}, which does not name it"

    def violation(self, step: Step, place: Place, line: Line, asked: Mapping[str, Any]) -> Iterator[Problem]:
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

    def _rules(self, step: Step, place: Place) -> set[str]:
        """The duties that can rule a person out here."""
        gate = step.terms or place.gate
        found = {"maker_checker"} if gate is not None and gate.excluded else set()
        for rule in self._contract.document.duties:
            if place.name in (*rule.gates, *rule.steps, rule.step):
                found.add(rule.kind)
        return found

    def _check_excluded(self, gate: GateRule, place: Place, names: frozenset[str]) -> Iterator[Problem]:
        for word in gate.excluded:
            duty, _, of = word.partition(":")
            if word == "requester":
                ruled_out = self.requesters
            elif of and duty in ("decided", "completed"):
                ruled_out = (self.decided if duty == "decided" else self.completed).get(of, NOBODY)
            else:
                # The log does not tell which person owned a worker.
                ruled_out = NOBODY if of else frozenset({word})
            if found := alike(names, ruled_out):
                yield Code.PEOPLE, f"{quoted(found[0])} decides {place.name}, which `not: {word}` rules out"

    def _check_duties(
        self, place: Place, names: frozenset[str], settles: bool, steps: Mapping[int, Step]
    ) -> Iterator[Problem]:
        for rule in self._contract.document.duties:
            if place.name in rule.gates and rule.kind == "four_eyes":
                yield from self._check_four_eyes(rule, place, names, settles, steps)
            elif place.name in (*rule.gates, *rule.steps):
                for other in (*rule.gates, *rule.steps):
                    done = self.decided.get(other, NOBODY)
                    if rule.kind == "incompatible":
                        done |= self.completed.get(other, NOBODY)
                    if other != place.name and (both := alike(names, done)):
                        said = f"{quoted(both[0])} acts on {other} and on {place.name}"
                        yield Code.PEOPLE, f"{said}, which `{rule.kind}` rules out"

    def _check_four_eyes(
        self, rule: DutyRule, place: Place, names: frozenset[str], settles: bool, steps: Mapping[int, Step]
    ) -> Iterator[Problem]:
        others = [steps.get(self._contract.numbers[gate]) for gate in rule.gates if gate != place.name]
        if not settles or any(step is None or step.state not in ENDED for step in others):
            return
        before = frozenset().union(*(self.decided.get(gate, NOBODY) for gate in rule.gates))
        if before and len(alike(before, names)) == len(before):
            yield Code.PEOPLE, f"{quoted(min(names))} alone decides {', '.join(rule.gates)}, against `four_eyes`"

    def _check_service(
        self, gate: GateRule, place: Place, line: Line, asked: Mapping[str, Any], approves: bool
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
        if both := alike(names, ballot.names):
            yield Code.PEOPLE, f"{quoted(both[0])} decides twice: each person decides a gate once"


def _check_terms(gate: GateRule, level: int, names: frozenset[str], asked: Mapping[str, Any]) -> Iterator[Problem]:
    """A gate that names its approvers is decided by one of them, or by a right that it names."""
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
    }
    if not isinstance(rights, list) or not rights or not allowed.issuperset(map(str, rights)):
        yield Code.PEOPLE, f"metadata.detail.by_right_of is {quoted(rights)}, expected one of {sorted(allowed)}"
