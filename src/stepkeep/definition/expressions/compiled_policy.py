"""Compiled policies: rules over the facts of a step, ready to judge.

A compiled policy is pure: equal facts give an equal verdict. In a document the first rule that holds speaks. A rule
that cannot be evaluated denies and says so. `policy` reads and checks documents; the kernel asks compiled ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stepkeep.definition.expressions.conditions import compile_truth
from stepkeep.definition.expressions.expressions import Expression, Scope
from stepkeep.definition.expressions.limits import CostBudget, ExpressionBudget, condition_cost
from stepkeep.kernel.decide.policy import CANNOT_EVALUATE, Verdict, strictest
from stepkeep.kernel.definition import (
    SECOND,
    Budget,
    BudgetOf,
    Definition,
    OnExceeded,
    PolicyEffect,
    PolicyRule,
    SharedBudget,
)
from stepkeep.kernel.errors import ExpressionError
from stepkeep.kernel.machine.payloads import MADE_HERE, read_reference

MAX_KEPT_NAMES = 10_000
"""For how many steps the rules that concern them are kept."""

FACTS: Mapping[str, tuple[str, ...] | None] = {
    "step": ("name", "kind", "handler", "effect", "queue", "capabilities", "attempt", "tier"),
    "run": ("id", "workflow", "version", "dialect", "domains"),
    "principal": ("name", "registered", "roles", "groups"),
    "time": ("iso", "year", "month", "day", "hour", "weekday"),
    "input": None,
    "labels": None,
    "cost": None,
}
"""What a rule may read: each part, and its fields (None: whatever the data holds). `weekday` is 1 for Monday; times are
UTC; `cost` has the sums of what handlers reported, and `attempts`."""

LIVE_FACTS: Mapping[str, tuple[str, ...] | None] = {**FACTS, "spend": None}
"""What a rule of a tenant may read: also what was spent of each shared budget of its document."""


class PolicyDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A policy as it is published: its name, its rules in order, and its shared budgets.

    With `pins`, a run that starts under this revision keeps it. `pins_since` is when the first revision
    with it was published, if that was an earlier one.
    """

    name: str
    rules: tuple[PolicyRule, ...]
    description: str = ""
    budgets: tuple[SharedBudget, ...] = ()
    pins: bool = False
    pins_since: int | None = None


class CompiledPolicy:
    """The rules of one document, ready to judge. Implements the kernel's `Policy` protocol.

    `opened` opens an input that is sealed.
    """

    def __init__(
        self, document: PolicyDocument, revision: int | None = None, opened: Callable[[bytes], bytes] | None = None
    ) -> None:
        self.document, self.revision, self._opened = document, revision, opened
        self.budgets = document.budgets
        self._limits = tuple(rule for budget in document.budgets for rule in limits_of(budget))
        scope = scope_of(LIVE_FACTS)
        whens = {rule.name: rule.when for rule in (*document.rules, *self._limits) if rule.when is not None}
        self._whens = {name: compile_truth(text, scope) for name, text in whens.items()}
        self._cost = condition_cost(max(len(whens), 1))
        self._concerned: dict[tuple[str, str], tuple[PolicyRule, ...]] = {}

    @property
    def is_pinned(self) -> bool:
        return self.document.pins

    @property
    def counts_attempts(self) -> bool:
        return any("attempts" in budget.limits for budget in self.budgets)

    def concerns(self, workflow: str, step: str) -> bool:
        return bool(self._rules(workflow, step))

    def reads(self, workflow: str, step: str) -> frozenset[str]:
        """The parts of the facts that the rules for this step read."""
        whens = [self._whens[rule.name] for rule in self._rules(workflow, step) if rule.name in self._whens]
        return frozenset(root for when in whens for root in when.roots)

    def judge(self, facts: Mapping[str, Any], given: bytes | None = None) -> Verdict:
        """The verdict of the first rule that concerns this step and holds on these facts; without one, allow.

        A shared budget that is spent counts beside the rules: the stricter verdict of both. `given` is the input of a
        run as it is stored; without it, the input is a part of the facts.
        """
        rules = self._rules(facts["run"]["workflow"], facts["step"]["name"])
        own = self._first([rule for rule in rules if rule not in self._limits], facts, given)
        if not self._limits:
            return own
        limits = [self._first([rule], facts, given) for rule in rules if rule in self._limits]
        return strictest([own, *limits])

    def _first(self, rules: Sequence[PolicyRule], facts: Mapping[str, Any], given: bytes | None) -> Verdict:
        known = dict(facts)
        for rule in rules:
            try:
                holds = self._holds(self._whens.get(rule.name), known, given)
            except ExpressionError as problem:
                said = f"the rule {rule.name} of policy {self.document.name} cannot be evaluated: {problem.message}"
                return Verdict(effect=PolicyEffect.DENY, rule=CANNOT_EVALUATE, revision=self.revision, reason=said)
            if holds:
                return Verdict(
                    effect=rule.then,
                    rule=rule.name,
                    revision=self.revision,
                    reason=rule.reason,
                    approval=rule.approval,
                )
        return Verdict(revision=self.revision)

    def _rules(self, workflow: str, step: str) -> tuple[PolicyRule, ...]:
        found = self._concerned.get((workflow, step))
        if found is None:
            every = (*self.document.rules, *self._limits)
            found = tuple(rule for rule in every if rule.concerns(workflow, step))
            if len(self._concerned) >= MAX_KEPT_NAMES:
                self._concerned.clear()
            self._concerned[workflow, step] = found
        return found

    def _holds(self, when: Expression | None, facts: dict[str, Any], given: bytes | None) -> bool:
        if when is None:
            return True
        if given is not None and when.uses_input and "input" not in facts:
            facts["input"] = self._plain(given)
        found = when.evaluate(facts, CostBudget(self._cost, is_condition=True))
        if not isinstance(found, bool):
            raise ExpressionError(f"`{when.source}` comes to {type(found).__name__}, not to true or false.")
        return found

    def _plain(self, given: bytes) -> Any:
        if (large := read_reference(given)) is not None:
            said = f"`input` has {large.size_bytes} bytes, which are kept outside its row: no rule reads them."
            raise ExpressionError(said, hint="Let a step return the part that the rule needs.")
        if self._opened is not None and given.startswith(MADE_HERE):
            given = self._opened(given)
        return msgspec.json.decode(given)


def policies_of(
    definition: Definition, *, opened: Callable[[bytes], bytes] | None = None
) -> tuple[CompiledPolicy, ...]:
    """The policies of a definition: its rules, and its budget."""
    found = []
    if definition.policy is not msgspec.UNSET:
        found.append(CompiledPolicy(PolicyDocument(name=definition.name, rules=definition.policy), opened=opened))
    if definition.budget is not msgspec.UNSET:
        found.append(CompiledPolicy(PolicyDocument(name=definition.name, rules=_budget_rules(definition.budget))))
    return tuple(found)


ON_EXCEEDED = {
    OnExceeded.HOLD: PolicyEffect.HOLD,
    OnExceeded.WARN: PolicyEffect.ALLOW,
    OnExceeded.STOP: PolicyEffect.DENY,
}


def limits_of(budget: SharedBudget) -> Iterator[PolicyRule]:
    """The rules of a shared budget: one for each limit."""
    whose = "the tenant has" if budget.of is BudgetOf.TENANT else "the workflow has"
    for name, limit in budget.limits.items():
        yield PolicyRule(
            name=f"budget:{budget.name}:{name}",
            then=ON_EXCEEDED[budget.on_exceeded],
            when=f'spend["{budget.name}"].{name} >= {limit!r}',
            reason=f"{whose} spent {limit:g} {name} within {budget.per / SECOND:g} s (budget {budget.name})",
            workflows=budget.workflows,
            approval=budget.approval,
        )


def _budget_rules(budget: Budget) -> tuple[PolicyRule, ...]:
    return tuple(
        PolicyRule(
            name=f"budget:{name}",
            then=ON_EXCEEDED[budget.on_exceeded],
            when=f"cost.{name} >= {limit!r}",
            reason=f"the run has spent its budget of {limit:g} {name}",
            approval=budget.approval,
        )
        for name, limit in budget.limits.items()
    )


def scope_of(facts: Mapping[str, tuple[str, ...] | None]) -> Scope:
    return Scope(facts=facts, budget=ExpressionBudget())
