"""Votes, duties and rights of the people of one run: which decisions count, and which person might make them.

It replays decisions and completions from plain values, and keeps them by step. Names that look the same are one person,
and a service is none. What stands below a step counts for it; what another run did is carried by the end of a child or
by adoption. Standard library alone: evidence packs ship this file. `reenact.py` and `evidence/verifier.py` call it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from stepkeep.edges.names import same_names

APPROVES = frozenset({"approved", "hold_approved"})
REJECTS = frozenset({"rejected", "rejected_tolerated"})
COUNTED = APPROVES | REJECTS | {"decision_recorded"}
"""Triggers by which the decision of a person counts."""

COMPLETES = frozenset(
    {"completion_succeeded", "completion_failed", "completion_failed_tolerated", "completion_cancelled"}
)
STUCK = frozenset(
    {"operator_retried", "operator_skipped", "operator_failed", "operator_failed_tolerated", "operator_completed"}
)
"""Triggers by which a person decides about a step that no attempt moves any more."""

OPENS = frozenset({"gate_opened", "held"})
SENT_BACK = "changes_requested"
"""The trigger by which a gate opens anew, and its decisions are void."""

REASSIGNED = "gate_reassigned"
"""The event by which an operator names other approvers of a gate, or rejects it."""

ASKED = "escalation_requested"
"""The event by which a person does what otherwise time does."""

SETTLED = frozenset({"succeeded", "failed", "skipped", "cancelled"})
NOBODY: frozenset[str] = frozenset()
MOST_VIOLATIONS = 50
"""Violations of one step that a journal holds at most."""

Problem = tuple[str, str]
"""The name of the broken rule, as packs report it, and a sentence."""


@dataclass(frozen=True)
class LevelRule:
    """The people who may decide a gate, and until when."""

    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    approvers: tuple[str, ...] = ()
    deadline: int | None = None


@dataclass(frozen=True)
class GateRule:
    """The terms of a gate, as a definition or a verdict has them."""

    deadline: int | None = None
    on_deadline: str = "reject"
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    approvers: tuple[str, ...] = ()
    quorum: int = 1
    reject_on: int = 1
    excluded: tuple[str, ...] = ()
    escalate: tuple[LevelRule, ...] = ()
    remind: int | None = None
    facts: dict[str, str] | None = None
    standing: str = "both"

    @property
    def levels(self) -> tuple[LevelRule, ...]:
        return (LevelRule(self.roles, self.groups, self.approvers, self.deadline), *self.escalate)

    @property
    def shortest(self) -> int | None:
        """The shortest time after which it may end by a deadline: a person may ask for the next level at once."""
        return min((level.deadline for level in self.levels if level.deadline is not None), default=None)

    def timer(self, at: int, deadline: int | None) -> int | None:
        """The next reminder or the deadline, whichever comes first."""
        ends = [end for end in (deadline, None if self.remind is None else at + self.remind) if end is not None]
        return min(ends, default=None)


@dataclass(frozen=True)
class DutyRule:
    """A constraint on the people of a run."""

    kind: str
    gates: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    step: str = ""
    role: str = ""


def gate_of(terms: Mapping[str, Any]) -> GateRule:
    """The terms of a gate in a document."""
    found = _fitting(GateRule, terms)
    found["escalate"] = tuple(LevelRule(**_fitting(LevelRule, one)) for one in terms.get("escalate") or ())
    return GateRule(**found)


def duty_of(rule: Mapping[str, Any]) -> DutyRule:
    """A duty in a document."""
    return DutyRule(**_fitting(DutyRule, rule))


def _fitting(kind: Any, told: Mapping[str, Any]) -> dict[str, Any]:
    known = {one.name: told[one.name] for one in fields(kind) if told.get(one.name) is not None}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in known.items()}


class PersonAct(NamedTuple):
    """A hop of a step with its cause: what people are judged by. `seq` is its journal entry."""

    step: str
    trigger: str
    source: str
    target: str
    event: str
    actor: str
    detail: Mapping[str, Any]
    seq: int
    at: int
    is_main: bool = True

    @property
    def names(self) -> frozenset[str]:
        """The person who acted, and the one for whom."""
        return frozenset(name for name in (self.actor, self.detail.get("for")) if isinstance(name, str))

    @property
    def subject(self) -> str:
        """The person whose right counts."""
        return str(self.detail.get("for") or self.actor)

    @property
    def said(self) -> str:
        return f"{self.actor} on {self.step} (entry {self.seq})"


class OpenedGate:
    """A gate that has opened: its terms, and the decisions that have counted."""

    def __init__(self, rule: GateRule, act: PersonAct, kept: int | None) -> None:
        self.rule, self.at = rule, act.at
        self.level = 0
        self.due_at = None if rule.deadline is None else act.at + rule.deadline
        if self.due_at is not None and kept is not None:
            self.due_at = min(self.due_at, max(kept, act.at))
        self.ballots: list[tuple[frozenset[str], bool]] = []
        """The names behind each decision, and whether it approves."""
        self.named: frozenset[str] = NOBODY
        """Approvers whom an operator added."""
        self.acts: list[frozenset[str]] = []

    @property
    def open_levels(self) -> tuple[LevelRule, ...]:
        """The levels that were asked so far."""
        return self.rule.levels[: self.level + 1]

    @property
    def is_for_anyone(self) -> bool:
        return any(not (one.roles or one.groups or one.approvers) for one in self.open_levels)

    def needed(self, approves: bool) -> int:
        return self.rule.quorum if approves else self.rule.reject_on

    def escalate(self, at: int) -> None:
        if self.level < len(self.rule.escalate):
            self.level += 1
            deadline = self.open_levels[-1].deadline
            self.due_at = None if deadline is None else at + deadline


class PersonRecord:
    """What is on record of persons beside the journal of a run: of nobody anything. A pack has more."""

    def holds(self, person: str, kind: str, name: str, at: int) -> bool:
        return True

    def is_service(self, person: str) -> bool:
        return False


class RunPeople:
    """The people of one run: who asked for it, and who decided, completed or executed which step."""

    def __init__(
        self,
        duties: Iterable[DutyRule],
        gates: Mapping[str, GateRule],
        state_of: Callable[[str], str],
        standing: PersonRecord | None = None,
    ) -> None:
        """`gates` are those of the definition by their step, and `state_of` gives the state of a step by its name."""
        self._duties, self._state_of, self._standing = tuple(duties), state_of, standing or PersonRecord()
        self._excluding: dict[str, list[str]] = {}
        for gate, rule in gates.items():
            for word in rule.excluded:
                if word.startswith("executed:"):
                    self._excluding.setdefault(word.partition(":")[2], []).append(gate)
        self.requesters: frozenset[str] = NOBODY
        self.rules: Any = 1
        """The rules that its creation names: the first ones see nothing below a step and count names alone."""
        self.open: dict[str, OpenedGate] = {}
        self.unowned: set[str] = set()
        """Steps that a worker claimed whose owner the journal does not name: it has none, or the journal is older."""
        self._decided: dict[str, Counter[frozenset[str]]] = {}
        self._completed: dict[str, frozenset[str]] = {}
        self._executed: dict[str, frozenset[str]] = {}
        self._many: set[str] = set()
        """Steps of which not all persons are on record: any person may be one of them."""
        self._violations: dict[str, set[tuple[str, str]]] = {}

    # -- what is recorded ----------------------------------------------------------------------------------------------
    def ask(self, event: str, actor: str, detail: Mapping[str, Any]) -> None:
        """A person asks for the run: its creation, or the start of an idle run, which names those who had asked."""
        before = detail.get("asked_before")
        if event == "run_created" or (event == "run_started" and before):
            self.requesters |= {actor, *(before if isinstance(before, list) else ())}
        if event == "run_created":
            self.rules = detail.get("duty_rules", 1)

    def carry(self, step: str, persons: Mapping[str, Any]) -> None:
        """Add the persons of another run to a step: those of its child, or those of an adopted step."""
        within = self._within(step)
        lent = [frozenset(pair) for pair in persons.get("lent") or ()]
        alone = frozenset(persons.get("decided") or ()).difference(*lent)
        self._decided.setdefault(within, Counter()).update([*lent, *(frozenset({one}) for one in alone)])
        for known, kind in ((self._completed, "completed"), (self._executed, "executed")):
            known[within] = known.get(within, NOBODY).union(persons.get(kind) or ())
        self._many |= {within} if persons.get("many") is True else set()

    def _within(self, step: str) -> str:
        """The step by which the definition names this one: the owner of an element, a call or an added step."""
        return step.rpartition("[")[0] if self.rules != 1 and step.endswith("]") else step

    def _decide(self, act: PersonAct, names: frozenset[str]) -> None:
        self._decided.setdefault(self._within(act.step), Counter())[names] += 1
        if (gate := self.open.get(act.step)) is not None:
            gate.acts.append(names)

    def _decided_by(self, step: str) -> frozenset[str]:
        return NOBODY.union(*self._decided.get(step, ()))

    # -- one hop -------------------------------------------------------------------------------------------------------
    def hop(self, act: PersonAct, terms: GateRule | None, kept: int | None = None) -> Iterator[Problem]:
        """Every reason why a decision or completion cannot have counted like this; then record it. `terms` are those of
        the gate that the step has, and `kept` the deadline that a migrated gate had before."""
        if act.source != act.target:
            self._violations.pop(act.step, None)
        gate = self.open.get(act.step)
        if act.trigger in OPENS:
            if terms is not None:
                self.open[act.step] = OpenedGate(terms, act, kept)
        elif act.trigger == "escalated":
            if gate is not None:
                yield from self._requested(act, gate) if act.event == ASKED else ()
                gate.escalate(act.at)
        elif act.event == REASSIGNED and (act.trigger in REJECTS or act.trigger == "reassigned"):
            yield from self._reassigned(act, gate)
        elif act.trigger == SENT_BACK:
            if gate is not None:
                yield from self._requested(act, gate)
                self._decided.setdefault(self._within(act.step), Counter()).subtract(gate.acts)
                self._decided[self._within(act.step)] += Counter()
                gate.ballots, gate.acts = [], []
        elif act.trigger == "claimed":
            yield from self._claimed(act, act.detail.get("owner"))
        elif act.trigger in COMPLETES:
            yield from self._separated(act, act.actor, settles=True)
            within = self._within(act.step)
            self._completed[within] = self._completed.get(within, NOBODY) | act.names
        elif act.trigger in STUCK or (act.trigger == "retry_due" and act.event == "step_decided"):
            yield from self._separated(act, act.actor, settles=True)
            self._decide(act, act.names)
        elif act.trigger in COUNTED:
            approves = act.detail.get("decision") == "approved"
            if gate is not None:
                yield from self._counted(act, gate, approves)
                gate.ballots.append((act.names, approves))
            self._decide(act, act.names)

    def _counted(self, act: PersonAct, gate: OpenedGate, approves: bool) -> Iterator[Problem]:
        needed, settles = gate.needed(approves), act.trigger != "decision_recorded"
        count = 1 + sum(one is approves for _, one in gate.ballots)
        if settles is not (count >= needed) or (settles and (act.trigger in APPROVES) is not approves):
            yield "quorum_wrong", f"decision {count} of {needed} has the effect {act.trigger!r}: {act.said}"
        yield from self._admitted(act, gate)
        yield from self._separated(act, act.subject, settles=settles)
        if act.detail.get("service") is True or self._standing.is_service(act.actor):
            yield from self._service(act, gate, needed)

    def _requested(self, act: PersonAct, gate: OpenedGate) -> Iterator[Problem]:
        """A person who may decide a gate, and has not, may ask for changes or for the next level."""
        yield from self._admitted(act, gate)
        yield from self._separated(act, act.subject, settles=False)
        if act.detail.get("service") is True and act.detail.get("by_right_of") != [f"approver:{act.actor}"]:
            yield "decider_not_allowed", f"a service decides a gate that does not name it: {act.said}"

    def _admitted(self, act: PersonAct, gate: OpenedGate) -> Iterator[Problem]:
        """These people are in time, have not decided, have a right, and are not ruled out by the gate."""
        if gate.due_at is not None and act.at >= gate.due_at:
            yield "decision_late", f"it came at {act.at}, after the deadline of the gate at {gate.due_at}: {act.said}"
        if any(same_names(act.names, names) for names, _ in gate.ballots):
            yield "decision_twice", f"a second decision of one person: {act.said}"
        yield from self._right(act, gate)
        for word in gate.rule.excluded:
            duty, _, of = word.partition(":")
            if self._may_be_any(of) or same_names(act.names, self._excluded(word, duty, of)):
                yield "duty_broken", f"`not: {word}` rules out {act.said}"

    def _right(self, act: PersonAct, gate: OpenedGate) -> Iterator[Problem]:
        """The person is an approver, or held a role or group that the gate asks for, when it had to be held."""
        if act.detail.get("level", 0) != gate.level:
            yield "decider_not_allowed", f"the gate is at level {gate.level}, not at that of {act.said}"
        if gate.is_for_anyone:
            return
        rights = act.detail.get("by_right_of")
        allowed = {f"role:{role}" for one in gate.open_levels for role in one.roles}
        allowed |= {f"group:{group}" for one in gate.open_levels for group in one.groups}
        allowed |= {f"approver:{name}" for one in gate.open_levels for name in one.approvers if name in act.names}
        allowed |= {f"approver:{name}" for name in gate.named & act.names}
        if not isinstance(rights, list) or not rights or not allowed.issuperset(map(str, rights)):
            yield "decider_not_allowed", f"the gate does not name the right of {act.said}: one of {sorted(allowed)}"
        moments = {"both": (gate.at, act.at), "opening": (gate.at,)}.get(gate.rule.standing, (act.at,))
        for right in rights if isinstance(rights, list) else ():
            kind, _, name = str(right).partition(":")
            if kind != "approver" and not all(self._standing.holds(act.subject, kind, name, at) for at in moments):
                yield "role_not_held", f"{act.subject} is not on record with the {kind} {name}: {act.said}"

    def _excluded(self, word: str, duty: str, of: str) -> frozenset[str]:
        if word == "requester":
            return self.requesters
        if of and duty == "decided":
            return self._decided_by(of)
        if of and duty in ("completed", "executed"):
            return (self._completed if duty == "completed" else self._executed).get(of, NOBODY)
        return NOBODY if of else frozenset({word})

    def _may_be_any(self, step: str) -> bool:
        return step in self._many

    def _service(self, act: PersonAct, gate: OpenedGate, needed: int) -> Iterator[Problem]:
        """A service is no person: it decides in its own name, where the gate names it and one decision is enough."""
        within = self._within(act.step)
        eyes = any(rule.kind == "four_eyes" and within in rule.gates for rule in self._duties)
        named = act.detail.get("by_right_of") == [f"approver:{act.actor}"]
        if needed > 1 or eyes or not named or "for" in act.detail:
            yield "decider_not_allowed", f"a service counts as no person: {act.said}"

    def _reassigned(self, act: PersonAct, gate: OpenedGate | None) -> Iterator[Problem]:
        """An operator who did not ask for the run opens a gate to other people, or fails it."""
        to = frozenset(map(str, act.detail.get("to") or ()))
        if gate is not None and gate.is_for_anyone:
            yield "decider_not_allowed", f"it is reassigned, and any person may decide it: {act.said}"
        if same_names(act.names, self.requesters | to):
            yield "duty_broken", f"a requester reassigns a gate, or a person to themselves: {act.said}"
        if gate is not None:
            gate.named |= to
        if act.trigger != "reassigned":
            self._decide(act, act.names)

    # -- duties --------------------------------------------------------------------------------------------------------
    def _separated(self, act: PersonAct, person: str, *, settles: bool) -> Iterator[Problem]:
        """The duties of the whole run. `person` is the one whose roles count."""
        within, names = self._within(act.step), act.names
        for rule in self._duties:
            among = {*rule.gates, *rule.steps}
            if rule.kind == "requires_role":
                is_broken = rule.step == within and not self._standing.holds(person, "role", rule.role, act.at)
            elif within not in among:
                continue
            elif rule.kind == "four_eyes":
                is_broken = settles and self._is_alone(within, rule, names)
            else:
                is_broken = self._on_another(rule.kind, among - {within}, names)
            if is_broken:
                yield "duty_broken", f"`{rule.kind}` rules out {act.said}"

    def _on_another(self, kind: str, others: Iterable[str], names: frozenset[str]) -> bool:
        """Whether one of these persons acted, or may have acted, on another of the steps that a duty names."""
        for other in others:
            done = self._decided_by(other)
            if kind == "incompatible":
                done |= self._completed.get(other, NOBODY) | self._executed.get(other, NOBODY)
            if self._may_be_any(other) or same_names(names, done):
                return True
        return False

    def _is_alone(self, within: str, rule: DutyRule, names: frozenset[str]) -> bool:
        if any(self._state_of(gate) not in SETTLED for gate in rule.gates if gate != within):
            return False
        acts = [act for gate in rule.gates for act in self._decided.get(gate, ())]
        if self.rules == 1:
            before = NOBODY.union(*acts)
            return bool(before) and len(same_names(before, names)) == len(before)
        # Two decisions are those of two people if they share no name.
        both = [*acts, names]
        return bool(acts) and all(same_names(one, other) for one in both for other in both)

    def _claimed(self, act: PersonAct, owner: Any) -> Iterator[Problem]:
        """A worker claims a step: its owner executes it. A worker without one is no person, and an older log names
        none."""
        within = self._within(act.step)
        if not act.is_main or not isinstance(owner, str):
            self.unowned |= {within} if act.is_main else set()
            return
        names = frozenset({owner})
        for rule in self._duties:
            others = {*rule.gates, *rule.steps} - {within}
            is_bound = rule.kind == "incompatible" and within in rule.steps
            if is_bound and self._on_another(rule.kind, others, names):
                yield "duty_broken", f"`incompatible` rules out workers of {owner} for {act.step}"
        for gate in self._excluding.get(within, ()):
            if same_names(names, self._decided_by(gate)):
                yield "duty_broken", f"{owner} decided {gate} and executes {act.step}, against its `not`"
        self._executed[within] = self._executed.get(within, NOBODY) | names

    def violated(self, act: PersonAct, terms: GateRule | None) -> Iterator[Problem]:
        """Every reason why this violation of a duty cannot be on record like this; then remember it."""
        rule, within = str(act.detail.get("rule")), self._within(act.step)
        kinds = {one.kind for one in self._duties if within in (*one.gates, *one.steps, one.step)}
        kinds |= {"maker_checker"} if terms is not None and terms.excluded else set()
        known = self._violations.setdefault(act.step, set())
        if self._state_of(act.step) in (*SETTLED, "pending", ""):
            yield "duty_broken", f"a violation of a duty on a step that waits for no person: {act.said}"
        if rule not in kinds:
            yield "duty_broken", f"metadata.detail.rule is {rule!r}, and the definition has no such duty: {act.said}"
        if (act.actor, rule) in known or len(known) >= MOST_VIOLATIONS:
            yield "duty_broken", f"this violation is on record already, or there are too many: {act.said}"
        known.add((act.actor, rule))


def own_decision(actor: str, persons: Mapping[str, Any]) -> bool:
    """Whether a step is adopted with a decision of the person who asks for the run, in whatever letters."""
    names = (*(persons.get("decided") or ()), *(persons.get("completed") or ()))
    return persons.get("many") is True or bool(same_names([actor], names))
