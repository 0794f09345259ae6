"""Policy documents: rules over the facts of a step, read from YAML or JSON, checked, compiled and tried on cases.

A compiled policy is pure: equal facts give an equal verdict. In a document the first rule that holds speaks. A rule
that cannot be evaluated denies and says so. Nothing here knows a store; `operations` publishes, the kernel asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any, Literal

import msgspec
from pydantic import Field, ValidationError

from stepkeep.definition.build import approval_of
from stepkeep.definition.complaints import complaints
from stepkeep.definition.conditions import compile_truth
from stepkeep.definition.document import read_document
from stepkeep.definition.expression_budget import ExpressionBudget
from stepkeep.definition.expression_limits import CostBudget, condition_cost
from stepkeep.definition.expressions import Expression, InvalidExpression, Scope
from stepkeep.definition.findings import Finding, located
from stepkeep.definition.written import ApprovalBlock, Block, Text, Word
from stepkeep.errors import DefinitionError, ExpressionError
from stepkeep.kernel.policy import CANNOT_EVALUATE, PolicyEffect, PolicyRule, Verdict

MAX_RULES = 500
MAX_CASES = 2_000

FACTS: Mapping[str, tuple[str, ...] | None] = {
    "step": ("name", "kind", "handler", "effect", "queue", "capabilities", "attempt", "tier"),
    "run": ("id", "workflow", "version", "dialect"),
    "principal": ("name", "registered", "roles", "groups"),
    "time": ("iso", "year", "month", "day", "hour", "weekday"),
    "input": None,
    "labels": None,
    "cost": None,
}
"""What a rule may read: each part, and its fields (None: whatever the data holds). `weekday` is 1 for Monday; times are
UTC; `cost` has the sums of what handlers reported, and `attempts`."""


class RuleBlock(Block):
    """One rule of a policy."""

    name: Word
    workflows: list[Text] = Field(default=[], max_length=100)
    steps: list[Text] = Field(default=[], max_length=100)
    when: Text | None = None
    then: Literal["allow", "hold", "deny"]
    reason: Text = ""
    approval: ApprovalBlock | None = None


class CaseBlock(Block):
    """A case for `policy test`: facts, and the verdict that they must give."""

    name: Text
    given: dict[str, Any]
    expect: Literal["allow", "hold", "deny"]
    rule: Text | None = None


class PolicyBlock(Block):
    """A policy document."""

    policy: Word
    description: Text = ""
    rules: list[RuleBlock] = Field(max_length=MAX_RULES)
    cases: list[CaseBlock] = Field(default=[], max_length=MAX_CASES)


class PolicyDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A policy as it is published: its name and its rules in order."""

    name: str
    rules: tuple[PolicyRule, ...]
    description: str = ""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Facts and the verdict that a policy must give on them."""

    name: str
    facts: dict[str, Any]
    expect: PolicyEffect
    rule: str | None = None


class CompiledPolicy:
    """The rules of one document, ready to judge. Implements the kernel's `Policy` protocol."""

    def __init__(self, document: PolicyDocument, revision: int | None = None) -> None:
        self.document, self.revision = document, revision
        scope = _scope(ExpressionBudget())
        whens = {rule.name: rule.when for rule in document.rules if rule.when is not None}
        self._whens = {name: compile_truth(text, scope) for name, text in whens.items()}
        self._cost = condition_cost(max(len(whens), 1))

    def reads(self, workflow: str, step: str) -> frozenset[str]:
        """The parts of the facts that the rules for this step read."""
        concerned = [rule.name for rule in self.document.rules if rule.concerns(workflow, step)]
        return frozenset(root for name in concerned if name in self._whens for root in self._whens[name].roots)

    def concerns(self, workflow: str, step: str) -> bool:
        return any(rule.concerns(workflow, step) for rule in self.document.rules)

    def judge(self, facts: Mapping[str, Any]) -> Verdict:
        """The verdict of the first rule that concerns this step and holds on these facts; without one, allow."""
        workflow, step = facts["run"]["workflow"], facts["step"]["name"]
        for rule in self.document.rules:
            if not rule.concerns(workflow, step):
                continue
            try:
                holds = self._holds(self._whens.get(rule.name), facts)
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

    def _holds(self, when: Expression | None, facts: Mapping[str, Any]) -> bool:
        if when is None:
            return True
        found = when.evaluate(facts, CostBudget(self._cost, is_condition=True))
        if not isinstance(found, bool):
            raise ExpressionError(f"`{when.source}` comes to {type(found).__name__}, not to true or false.")
        return found


def load_policy(path: str | FilePath) -> tuple[PolicyDocument, tuple[Case, ...]]:
    """The policy in a file with its cases, or DefinitionError with every problem of it."""
    document = read_document(path)
    try:
        written = PolicyBlock.model_validate(document.data)
    except ValidationError as error:
        raise DefinitionError(located(document, complaints(error, document.data, PolicyBlock))) from None
    if problems := located(document, _problems(written)):
        raise DefinitionError(problems)
    return _built(written), tuple(_case(one, written.policy) for one in written.cases)


def failed_cases(policy: CompiledPolicy, cases: tuple[Case, ...]) -> list[tuple[Case, Verdict]]:
    """The cases whose verdict is not the expected one, with the verdict that was given."""
    given = [(case, policy.judge(case.facts)) for case in cases]
    return [(case, verdict) for case, verdict in given if not _is_expected(case, verdict)]


def _is_expected(case: Case, verdict: Verdict) -> bool:
    return verdict.effect is case.expect and (case.rule is None or verdict.rule == case.rule)


def _scope(budget: ExpressionBudget) -> Scope:
    return Scope(facts=FACTS, budget=budget)


def _problems(written: PolicyBlock) -> Iterator[Finding]:
    names = Counter(rule.name for rule in written.rules)
    scope = _scope(ExpressionBudget())
    for place, rule in enumerate(written.rules):
        path = ("rules", place)
        if names[rule.name] > 1:
            yield Finding((*path, "name"), f"Two rules are named `{rule.name}`.", "A verdict names its rule.")
        if rule.approval is not None and rule.then != "hold":
            yield Finding((*path, "approval"), f"`approval` means nothing with `then: {rule.then}`.", "Remove it.")
        if rule.when is None:
            continue
        try:
            compile_truth(rule.when, scope)
        except InvalidExpression as error:
            yield from (one._replace(path=(*path, "when")) for one in error.findings)
    for place, case in enumerate(written.cases):
        for part in case.given.keys() - FACTS.keys():
            hint = f"There are {', '.join(sorted(FACTS))}."
            yield Finding(("cases", place, "given", part), f"`{part}` is no part of the facts.", hint, key=True)
        if case.rule is not None and case.rule not in names:
            yield Finding(("cases", place, "rule"), f"There is no rule `{case.rule}`.", "Name one of this document.")


def _built(written: PolicyBlock) -> PolicyDocument:
    rules = tuple(
        PolicyRule(
            name=rule.name,
            then=PolicyEffect(rule.then),
            when=rule.when,
            reason=rule.reason,
            workflows=tuple(rule.workflows),
            steps=tuple(rule.steps),
            approval=approval_of(rule.approval),
        )
        for rule in written.rules
    )
    return PolicyDocument(name=written.policy, rules=rules, description=written.description)


def _case(written: CaseBlock, policy: str) -> Case:
    """A case whose facts have every part, so that a rule meets what it would meet in a run."""
    given = {part: written.given.get(part, {}) for part in FACTS}
    step = {"name": "step", "kind": "python", "effect": "unknown", "queue": "", "capabilities": [], "attempt": 0}
    run = {"id": "", "workflow": policy, "version": 1, "dialect": "native"}
    facts = {**given, "step": step | given["step"], "run": run | given["run"]}
    return Case(name=written.name, facts=facts, expect=PolicyEffect(written.expect), rule=written.rule)
