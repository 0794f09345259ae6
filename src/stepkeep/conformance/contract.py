"""The pinned definition as the judge reads it: steps by number, edges, limits, delays and policies.

It decodes the canonical document itself and imports nothing of the engine. A document that does not fit gives a
problem, never an exception. `reenact.py` asks it what a step may do.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from stepkeep.conformance.kinds import (
    BY_GATE,
    BY_HOLD,
    ENDS_OF_CHILDREN,
    HOOK_OF_CHILD,
    KINDS,
    OPENINGS,
    UNFIT,
    WORK,
    JudgedKind,
)
from stepkeep.conformance.people import DutyRule, GateRule
from stepkeep.conformance.policies import Concerned, rules_about

LONGEST_DELAY_US = 365 * 24 * 3600 * 1_000_000
"""The longest pause between two attempts."""

NEVER_RETRIED = frozenset({"validation", "governance", "auth", "conflict", "poison"})
"""Categories that no policy retries."""


class RetryRule(msgspec.Struct, frozen=True):
    """A retry policy; times are microseconds."""

    max_attempts: int
    max_losses: int
    backoff: str
    initial: int
    factor: float
    max: int | None
    jitter: float
    on: tuple[str, ...]
    caps_asked: bool = False
    max_elapsed: int | None = None
    classes: tuple[str, ...] | None = None
    counts_losses: bool = True

    def asked_us(self, asked: int) -> int:
        """A delay that the handler asks for."""
        return max(min(asked, LONGEST_DELAY_US if self.max is None or not self.caps_asked else self.max), 0)

    def allows(self, category: str | None, counted: int, error_class: object = None) -> bool:
        """Whether a failure of this category and error class is retried after `counted` attempts."""
        if self.classes is not None and error_class is not None and error_class not in self.classes:
            return False
        return category not in NEVER_RETRIED and category in self.on and counted < self.max_attempts

    def is_in_time(self, due_at: int, began_at: int) -> bool:
        """Whether a retry that is due then keeps the limit of time; `began_at` is the first attempt's start."""
        return self.max_elapsed is None or due_at <= began_at + self.max_elapsed

    def allows_loss(self, counted: int, losses: int) -> bool:
        return counted < self.max_attempts and losses < self.max_losses

    def delay_us(self, run_id: str, no: int, counted: int) -> int:
        """The pause after this many counted attempts."""
        longest = LONGEST_DELAY_US if self.max is None else self.max
        if self.backoff == "constant":
            pause = self.initial
        elif self.backoff == "linear":
            pause = self.initial * counted
        else:
            try:
                pause = int(self.initial * self.factor ** (counted - 1))
            except OverflowError:
                pause = longest if self.initial else 0
        pause = min(pause, longest)
        if self.jitter:
            drawn = hashlib.sha256(f"{run_id}:{no}:{counted}".encode()).digest()[:8]
            pause = int(pause * (1 - self.jitter * (int.from_bytes(drawn, "big") / 2**64)))
        return pause


HOOK_RETRY = RetryRule(
    max_attempts=2,
    max_losses=3,
    backoff="exponential",
    initial=1_000_000,
    factor=2.0,
    max=10_000_000,
    jitter=0.0,
    on=("agent", "external", "timeout", "transient", "unknown"),
)
"""The policy of the final check, which no definition changes."""


class EdgeRule(msgspec.Struct, frozen=True):
    step: str
    allow: tuple[str, ...]


class WaitRule(msgspec.Struct, frozen=True):
    """The parts of a wait that the judge reads."""

    deadline: int | None = None
    event: str = ""
    sleeps: bool = False
    until: int | None = None
    length: str | None = None
    accepts: str | None = None
    count: int | None = None
    enough: str | None = None


class GrowthRule(msgspec.Struct, frozen=True):
    """How a step owns elements: a `map` over a list, a `loop`, a `switch` of cases, a `flow` of calls, or the steps
    that its handler adds (`then`)."""

    kind: str
    max: int
    in_flight: int = 1
    tolerate: int = 0
    tolerate_share: float | None = None
    early_stop: bool = True
    deadline: int | None = None
    pause: int = 0
    cases: tuple[CaseRule, ...] = ()


class CaseRule(msgspec.Struct, frozen=True):
    """One case of a `switch`, as far as the judge reads it."""

    name: str
    step: StepRule


class ExecutorRule(msgspec.Struct, frozen=True):
    kind: str
    name: str = ""


CHILD = "child"
"""The kind of a hook that rolls a child run back; no worker runs it."""


class HookRule(msgspec.Struct, frozen=True):
    retry: RetryRule
    executor: ExecutorRule
    on_exhausted: str = "fail"


class ChildRule(msgspec.Struct, frozen=True):
    """The workflow that a step starts."""

    workflow: str
    version: int = 0
    deadline: int | None = None
    detached: bool = False


class LimitRow(msgspec.Struct, frozen=True):
    """A limit of a step, as far as the judge reads it."""

    name: str
    per: str | None = None
    weight: int = 1


class StepRule(msgspec.Struct, frozen=True):
    """One step of the definition."""

    name: str
    order: int
    retry: RetryRule
    on_failure: str
    effect: str
    compensate_when: str
    completion: str
    depends_on: tuple[EdgeRule, ...] = ()
    executor: ExecutorRule | None = None
    approval: GateRule | None = None
    wait: WaitRule | None = None
    hold: GateRule | None = None
    condition: str | None = None
    undo: HookRule | None = None
    rules: tuple[msgspec.Raw, ...] = ()
    pre: tuple[msgspec.Raw, ...] = ()
    completion_deadline: int | None = None
    on_exhausted: str = "fail"
    growth: GrowthRule | None = None
    child: ChildRule | None = None
    resources: dict[str, str | int] = {}
    limits: tuple[LimitRow, ...] = ()

    @property
    def kind(self) -> JudgedKind:
        """Its row in the table of kinds."""
        if self.approval is not None:
            return KINDS["approval"]
        if self.wait is not None:
            return KINDS["sleep" if self.wait.sleeps else "wait"]
        if self.growth is not None and self.growth.kind in KINDS:
            return KINDS[self.growth.kind]
        if self.child is not None:
            return KINDS["detached" if self.child.detached else "child"]
        return WORK


class PinnedDocument(msgspec.Struct, frozen=True):
    """The canonical definition; fields that change nothing in a run are ignored."""

    name: str
    version: int
    steps: tuple[StepRule, ...]
    dialect: str
    on_failure: str
    hook_failure: str
    compensate_always: bool
    grace: int
    timeout: int | None = None
    rules: tuple[msgspec.Raw, ...] = ()
    duties: tuple[DutyRule, ...] = ()
    policy: tuple[dict[str, Any], ...] = ()
    budget: dict[str, Any] | None = None
    slots: int | None = None


class PlannedRule(msgspec.Struct, frozen=True):
    """A numbered step: main steps, then their hooks, then the final check."""

    no: int
    name: str
    phase: str
    rule: StepRule | None
    retry: RetryRule
    kind: JudgedKind = WORK
    opens_by: str = "dependencies_met"
    opens_for_us: int | None = None
    needs: int = 0
    dependents: tuple[tuple[int, frozenset[str]], ...] = ()
    is_tolerant: bool = False
    is_checked: bool = False
    is_manual: bool = False
    is_held: bool = False
    is_asleep: bool = False
    wakes_at: int | None = None
    is_length_open: bool = False
    gate: GateRule | None = None
    never: frozenset[str] = frozenset()
    """Triggers that the definition rules out for this step."""
    rules: Mapping[str, str] = {}
    """The effects of the rules of the definition's own policy that concern this step."""
    owner: int | None = None
    index: int | None = None
    """Of an element: the number of the step that owns it, and its place."""

    def concerned(self, permit: Any) -> Concerned:
        """The step as policies see it."""
        rule = self.rule
        waits = rule is None or rule.approval is not None or rule.wait is not None
        kind = "waits" if waits or rule is None else "other" if rule.executor is None else "work"
        return Concerned(self.opens_by, kind, self.rules, self.owner is not None, permit)

    @property
    def may_hold(self) -> bool:
        """Whether attempts may be given to it anew: by its definition, or because it is a flow and other code came."""
        return self.is_held or (self.phase == "main" and self.kind.waits_for == "calls")

    @property
    def undoes_child(self) -> bool:
        """Whether this is a hook that waits for the rollback of a child run."""
        return self.kind is HOOK_OF_CHILD

    @property
    def awaits_child(self) -> bool:
        """Whether the step waits for the end of a child run. The owner of such elements waits for them."""
        return self.phase == "main" and self.kind.word == "child"


class PlannedRules(dict[int, PlannedRule]):
    """Places by number. Those of elements are made when they are asked for; only the others are listed."""

    def __init__(self, known: Mapping[int, PlannedRule], size: int) -> None:
        super().__init__(known)
        self._size, self._segments = size, list[tuple[int, int, int]]()
        self._elements: dict[tuple[int, int, bool], PlannedRule | None] = {}
        """What the elements of an owner have in common, by case of a choice and for their undo steps."""
        self.calls: dict[int, PlannedRule] = {}
        """What the log of one run has shown of the calls of its flows, of added steps, and of their undo steps."""
        first = 2 * size + 1
        for no in range(size):
            rule = known[no].rule
            if rule is not None and rule.growth is not None:
                self._segments.append((first, rule.growth.max, no))
                first += 2 * rule.growth.max

    def __missing__(self, no: int) -> PlannedRule:
        found: PlannedRule | None = self.get(no)
        if found is None:
            raise KeyError(no)
        return found

    def get(self, no: int, default: Any = None) -> Any:
        if no <= 2 * self._size:
            return super().get(no, default)
        for first, width, owner in self._segments:
            if first <= no < first + 2 * width:
                return self.calls.get(no) or self._element(no, owner, no - first, width) or default
        return default

    def _element(self, no: int, owner: int, offset: int, width: int) -> PlannedRule | None:
        """The place of an element, or of its undo step."""
        own, is_undo = self[owner], offset >= width
        index = offset - width if is_undo else offset
        growth = None if own.rule is None else own.rule.growth
        key = owner, index if growth is not None and growth.cases else 0, is_undo
        if key not in self._elements:
            self._elements[key] = _element(own, key[1], is_undo=is_undo)
        like = self._elements[key]
        name = f"{'undo:' if is_undo else ''}{own.name}[{index}]"
        return None if like is None else msgspec.structs.replace(like, no=no, name=name, index=index)

    def learn_call(
        self,
        place: PlannedRule,
        rule: StepRule,
        needs: int = 0,
        dependents: tuple[tuple[int, frozenset[str]], ...] = (),
        on_failure: str = "continue",
    ) -> None:
        """The log shows what a flow called, or what a handler added, at this place."""
        assert place.owner is not None
        own = msgspec.structs.replace(rule, on_failure=on_failure, condition=None)
        known = _main(place.no, own, dependents, self[place.owner].rules)
        named = {"name": place.name, "owner": place.owner, "index": place.index}
        self.calls[place.no] = msgspec.structs.replace(known, needs=needs, **named)
        if rule.undo is not None:
            no, name = self.undo_no(place.no), f"undo:{place.name}"
            self.calls[no] = _hook(no, name, own, rule.undo, owner=place.owner, index=place.index)

    def number(self, name: str) -> int | None:
        """The number of an element, or of its undo step, by name."""
        found = _ELEMENT.fullmatch(name)
        for first, width, owner in self._segments if found is not None else ():
            index = int(found[3]) if found is not None else 0
            if found is not None and self[owner].name == found[2] and index < width:
                return first + index + (width if found[1] else 0)
        return None

    def undo_no(self, no: int) -> int:
        """The number of the undo step of this step."""
        if no < self._size:
            return no + self._size
        return next(no + width for first, width, _ in self._segments if first <= no < first + width)


class Names(dict[str, int]):
    """Numbers by name, those of elements included."""

    def __init__(self, places: PlannedRules) -> None:
        super().__init__({place.name: no for no, place in places.items()})
        self._planned_rules = places

    def __missing__(self, name: str) -> int:
        found = self._planned_rules.number(name)
        if found is None:
            raise KeyError(name)
        return found

    def get(self, name: str, default: Any = None) -> Any:
        known = super().get(name)
        found = self._planned_rules.number(name) if known is None else known
        return default if found is None else found


def is_element_name(name: str | None) -> bool:
    """Whether this is the name of an element: that of its owner, and its place."""
    return name is not None and not name.startswith("undo:") and _ELEMENT.fullmatch(name) is not None


_ELEMENT = re.compile(r"(undo:)?(.+)\[(0|[1-9][0-9]{0,6})\]")


def _element(owner: PlannedRule, case: int, *, is_undo: bool) -> PlannedRule | None:
    """What the elements of an owner, or their undo steps, have in common: all but number, name and index."""
    rule = owner.rule
    assert rule is not None
    if owner.kind.suspends:
        return PlannedRule(-1, "", "undo" if is_undo else "main", None, rule.retry, owner=owner.no)
    if rule.growth is not None and rule.growth.cases:
        rule = rule.growth.cases[case].step
    if is_undo:
        if rule.undo is None:
            return None
        return _hook(-1, "", msgspec.structs.replace(rule, growth=None), rule.undo, owner=owner.no)
    own = msgspec.structs.replace(rule, on_failure="continue", growth=None, condition=None, hold=None)
    return msgspec.structs.replace(_main(-1, own, (), owner.rules), needs=0, owner=owner.no)


class Contract(msgspec.Struct, frozen=True):
    """A definition laid out by step number. `digest` is that of the document it was read from."""

    document: PinnedDocument
    digest: str
    places: PlannedRules
    numbers: Names
    size: int

    def for_run(self) -> Contract:
        """The contract of one run, if that may add steps that only its log tells of."""
        if not any(place.kind.suspends for place in self.places.values()):
            return self
        places = PlannedRules(dict(self.places), self.size)
        return msgspec.structs.replace(self, places=places, numbers=Names(places))


_decode = msgspec.json.Decoder(PinnedDocument).decode


@lru_cache(maxsize=256)
def read_contract(document: bytes) -> Contract | str:
    """The contract in a canonical document, or the reason why there is none."""
    try:
        found = _decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        return f"the definition cannot be read: {problem}"
    ordered = sorted(found.steps, key=lambda step: (step.order, step.name))
    numbers = {step.name: no for no, step in enumerate(ordered)}
    if len(numbers) != len(ordered):
        return "the definition has two steps of one name"
    strangers = [edge.step for step in ordered for edge in step.depends_on if edge.step not in numbers]
    if strangers:
        return f"the definition names a step that it does not have: {strangers[0]!r}"
    try:
        places = PlannedRules(_planned_rules(found, ordered, numbers), len(ordered))
    except (TypeError, AttributeError, ValueError) as problem:
        return f"the definition cannot be read: {problem}"
    return Contract(found, hashlib.sha256(document).hexdigest(), places, Names(places), len(ordered))


HOLDS = frozenset({"held_exhausted", "operator_retried"})
"""How a step holds when no attempt is left, and how a person gives it attempts again."""

HOLDING = ("hold", "hold_required")
"""What a definition says of a step that holds."""

OPERATED = frozenset({"operator_skipped", "operator_failed", "operator_failed_tolerated", "operator_completed"})
"""How a person ends a main step that is stuck."""

RULED_OUT = frozenset({"rules_failed", "rules_failed_tolerated"})
"""How a step ends whose rules do not hold."""

HOOKS_NEVER = HOLDS | UNFIT | OPERATED | RULED_OUT | BY_GATE | BY_HOLD | ENDS_OF_CHILDREN | {
    "slept", "gate_opened", "held", "wait_opened", "children_started", "children_settled", "waited",
    "completion_requested",
}  # fmt: skip


def _planned_rules(
    document: PinnedDocument, ordered: list[StepRule], numbers: dict[str, int]
) -> dict[int, PlannedRule]:
    size = len(ordered)
    dependents: list[list[tuple[int, frozenset[str]]]] = [[] for _ in ordered]
    for no, step in enumerate(ordered):
        for edge in step.depends_on:
            dependents[numbers[edge.step]].append((no, frozenset(edge.allow)))
    known = {"policy": document.policy, "budget": document.budget}
    places = {
        no: _main(no, step, tuple(dependents[no]), rules_about(known, step.name)) for no, step in enumerate(ordered)
    }
    for no, step in enumerate(ordered):
        if step.undo is not None and step.growth is None:
            places[size + no] = _hook(size + no, f"undo:{step.name}", step, step.undo)
    if document.rules:
        places[2 * size] = PlannedRule(
            2 * size, "check:run", "check", None, HOOK_RETRY, is_checked=True, never=OPERATED
        )
    return places


def _hook(no: int, name: str, step: StepRule, undo: HookRule, **of: Any) -> PlannedRule:
    kind, never, is_held = WORK, HOOKS_NEVER, False
    if undo.executor.kind == CHILD:
        kind, never = (
            HOOK_OF_CHILD,
            HOOKS_NEVER - ENDS_OF_CHILDREN - {"children_started"} | {"dependencies_met", "claimed"},
        )
    elif is_held := undo.on_exhausted in HOLDING:
        never = never - HOLDS - {"operator_failed", "operator_completed"}
    own = {"never": never, "is_held": is_held, **of}
    return PlannedRule(no, name, "undo", step, undo.retry, kind=kind, opens_by=kind.opens_by, **own)


def _main(
    no: int, step: StepRule, dependents: tuple[tuple[int, frozenset[str]], ...], rules: Mapping[str, str]
) -> PlannedRule:
    kind, sleep = step.kind, step.wait if step.wait is not None and step.wait.sleeps else None
    opening, is_checked = kind.opens_by, bool(step.rules) and not kind.owns
    waits: GateRule | WaitRule | GrowthRule | ChildRule | None = step.approval or step.wait
    waits = waits or (None if kind.suspends else step.growth)
    if kind.waits_for == "child":
        waits = None if kind.word == "detached" else step.child
    elif step.hold is not None and "held" in kind.may_open_by:
        opening, waits = "held", step.hold
    return PlannedRule(
        no,
        step.name,
        "main",
        step,
        step.retry,
        kind=kind,
        opens_by=opening,
        opens_for_us=None if waits is None else waits.deadline,
        needs=len(step.depends_on),
        dependents=dependents,
        is_tolerant=step.on_failure == "skip",
        is_checked=is_checked,
        is_manual=step.completion == "manual",
        is_held=step.on_exhausted in HOLDING,
        is_asleep=sleep is not None,
        wakes_at=None if sleep is None else sleep.until,
        is_length_open=sleep is not None and sleep.length is not None,
        gate=step.approval or step.hold,
        rules=rules,
        never=OPENINGS - {opening, *kind.may_open_by}
        | kind.never
        | (frozenset() if kind.is_claimed else {"claimed"})
        | (frozenset() if is_checked else RULED_OUT)
        | NEVER_IF_MANUAL[step.completion == "manual"]
        | (NEVER_IF_EXHAUSTED.get(step.on_exhausted, HOLDS) - kind.may_also),
    )


NEVER_IF_MANUAL = {True: frozenset({"completed"}), False: frozenset({"completion_requested"})}
NEVER_IF_EXHAUSTED = {"hold": frozenset[str](), "hold_required": frozenset({"operator_skipped"})}
