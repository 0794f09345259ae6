"""Policy documents: rules over the facts of a step, read from YAML or JSON, checked and tried on cases.

Nothing here knows a store: `operations` publishes.

Compiled policies: rules over the facts of a step, ready to judge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field, ValidationError

from stepkeep.definition.bounds import BUDGET_PERIOD, MAX_POLICY_RULES, MAX_SHARED_BUDGETS
from stepkeep.definition.expressions.conditions import compile_truth
from stepkeep.definition.expressions.expressions import Expression, InvalidExpression, Scope
from stepkeep.definition.expressions.limits import CostBudget, ExpressionBudget, condition_cost
from stepkeep.definition.findings import Finding, Path, located
from stepkeep.definition.native.build import budget_of, policy_of
from stepkeep.definition.native.validators import Word, within
from stepkeep.definition.native.written import Block, BudgetBlock, PolicyRuleBlock, Text, WorkflowBlock
from stepkeep.definition.text.complaints import complaints
from stepkeep.definition.text.document import parse_document, read_document
from stepkeep.edges.safe_text import type_name
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
from stepkeep.kernel.errors import DefinitionError, ExpressionError, InvalidInput
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


MAX_CASES = 2_000


class CaseBlock(Block):
    """A case for `policies test`: facts, and the verdict that they must give."""

    name: Text
    given: dict[str, Any]
    expect: Literal["allow", "hold", "deny"]
    rule: Text | None = None


class SharedBudgetBlock(BudgetBlock):
    """What the runs of the tenant, or of each workflow, may spend together within a time."""

    name: Word
    per: Annotated[int, within(BUDGET_PERIOD)]
    of: Literal["tenant", "workflow"] = "tenant"
    workflows: list[Text] = Field(default=[], max_length=100)


class PolicyBlock(Block):
    """A policy document."""

    policy: Word
    description: Text = ""
    runs: Literal["live", "pinned"] = "live"
    rules: list[PolicyRuleBlock] = Field(default=[], max_length=MAX_POLICY_RULES)
    budgets: list[SharedBudgetBlock] = Field(default=[], max_length=MAX_SHARED_BUDGETS)
    cases: list[CaseBlock] = Field(default=[], max_length=MAX_CASES)


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Facts and the verdict that a policy must give on them."""

    name: str
    facts: dict[str, Any]
    expect: PolicyEffect
    rule: str | None = None


def check_policy(written: WorkflowBlock) -> Iterator[Finding]:
    """Problems of the rules and the budget of a definition."""
    yield from _rule_problems(written.policy, ("policy",), FACTS)
    names = [step.name for step in written.steps]
    for place, rule in enumerate(written.policy):
        if rule.workflows:
            said = "A rule of a definition concerns its own workflow alone."
            yield Finding(("policy", place, "workflows"), said, "Remove `workflows`.")
        for pattern in rule.steps:
            if not any(fnmatchcase(name, pattern) for name in names):
                yield Finding(("policy", place, "steps"), f"No step has a name like `{pattern}`.", "Correct it.")
    if written.budget is not None:
        yield from _budget_problems(written.budget, ("budget",))


def _budget_problems(budget: BudgetBlock, where: Path) -> Iterator[Finding]:
    if budget.usd is None and budget.tokens is None and budget.attempts is None:
        yield Finding(where, "A budget limits something.", "Give `usd`, `tokens` or `attempts`.")
    if budget.approval is not None and budget.approval.facts:
        yield Finding((*where, "approval", "facts"), "A budget shows no facts: its verdict has them.", "Remove it.")
    if budget.approval is not None and budget.on_exceeded != "hold":
        said = f"`approval` means nothing with `on_exceeded: {budget.on_exceeded}`."
        yield Finding((*where, "approval"), said, "Remove it.")


def load_policy(source: str | FilePath | Mapping[str, Any]) -> tuple[PolicyDocument, tuple[Case, ...]]:
    """The policy in a file, or in a mapping of the same form, with its cases. DefinitionError has every problem."""
    if not isinstance(source, str | FilePath | Mapping):
        raise InvalidInput(f"a policy is a file or a mapping, not a value of type {type_name(source)}.")
    if isinstance(source, Mapping):
        document = parse_document(_json_of(source), file="policy", syntax="json")
    else:
        document = read_document(source)
    try:
        written = PolicyBlock.model_validate(document.data)
    except ValidationError as error:
        raise DefinitionError(located(document, complaints(error, document.data, PolicyBlock))) from None
    if problems := located(document, _problems(written)):
        raise DefinitionError(problems)
    policy = _built(written)
    return policy, tuple(_case(one, policy) for one in written.cases)


def _json_of(data: Mapping[str, Any]) -> str:
    try:
        return msgspec.json.encode(data).decode()
    except (TypeError, ValueError) as problem:
        raise InvalidInput(f"the policy is not plain data: {problem}") from None


def publishable_policy(source: str | FilePath | Mapping[str, Any]) -> PolicyDocument:
    """A policy to publish. One whose cases have another verdict than they expect is refused."""
    document, cases = load_policy(source)
    if failed := failed_cases(CompiledPolicy(document), cases):
        names = ", ".join(case.name for case, _ in failed[:5])
        raise InvalidInput(
            f"{len(failed)} of {len(cases)} cases of policy {document.name} have another verdict: {names}. "
            "Try it with `stepkeep policies test`."
        )
    return document


def failed_cases(policy: CompiledPolicy, cases: tuple[Case, ...]) -> list[tuple[Case, Verdict]]:
    """The cases whose verdict is not the expected one, with the verdict that was given."""
    given = [(case, policy.judge(case.facts)) for case in cases]
    return [(case, verdict) for case, verdict in given if not _is_expected(case, verdict)]


def _is_expected(case: Case, verdict: Verdict) -> bool:
    return verdict.effect is case.expect and (case.rule is None or verdict.rule == case.rule)


def _problems(written: PolicyBlock) -> Iterator[Finding]:
    yield from _rule_problems(written.rules, ("rules",), LIVE_FACTS)
    if not written.rules and not written.budgets:
        yield Finding((), "A policy has rules or budgets.", "Add some, or end the policy with `stepkeep policies off`.")
    names = {rule.name for rule in written.rules}
    budgets = Counter(budget.name for budget in written.budgets)
    for place, budget in enumerate(written.budgets):
        yield from _budget_problems(budget, ("budgets", place))
        if budgets[budget.name] > 1:
            said = f"Two budgets are named `{budget.name}`."
            yield Finding(("budgets", place, "name"), said, "A verdict names its budget.")
        names |= {rule.name for rule in limits_of(_shared_budget(budget))}
    for place, case in enumerate(written.cases):
        for part in case.given.keys() - LIVE_FACTS.keys():
            hint = f"There are {', '.join(sorted(LIVE_FACTS))}."
            yield Finding(("cases", place, "given", part), f"`{part}` is no part of the facts.", hint, key=True)
        if case.rule is not None and case.rule not in names:
            yield Finding(("cases", place, "rule"), f"There is no rule `{case.rule}`.", "Name one of this document.")


def _rule_problems(
    rules: Sequence[PolicyRuleBlock], where: Path, facts: Mapping[str, tuple[str, ...] | None]
) -> Iterator[Finding]:
    names = Counter(rule.name for rule in rules)
    scope = scope_of(facts)
    for place, rule in enumerate(rules):
        path = (*where, place)
        if names[rule.name] > 1:
            yield Finding((*path, "name"), f"Two rules are named `{rule.name}`.", "A verdict names its rule.")
        if rule.approval is not None and rule.then != "hold":
            yield Finding((*path, "approval"), f"`approval` means nothing with `then: {rule.then}`.", "Remove it.")
        if rule.approval is not None and rule.approval.facts:
            yield Finding((*path, "approval", "facts"), "A rule shows no facts: its verdict has them.", "Remove it.")
        if rule.when is None:
            continue
        try:
            compile_truth(rule.when, scope)
        except InvalidExpression as error:
            yield from (one._replace(path=(*path, "when")) for one in error.findings)


def _built(written: PolicyBlock) -> PolicyDocument:
    return PolicyDocument(
        name=written.policy,
        rules=policy_of(written.rules),
        description=written.description,
        budgets=tuple(map(_shared_budget, written.budgets)),
        pins=written.runs == "pinned",
    )


def _shared_budget(block: SharedBudgetBlock) -> SharedBudget:
    own = budget_of(block)
    return SharedBudget(
        name=block.name,
        limits=own.limits,
        per=block.per,
        of=BudgetOf(block.of),
        workflows=tuple(block.workflows),
        on_exceeded=own.on_exceeded,
        approval=own.approval,
    )


def _case(written: CaseBlock, document: PolicyDocument) -> Case:
    """A case whose facts have every part, so that a rule meets what it would meet in a run."""
    policy = document.name
    given = {part: written.given.get(part, {}) for part in LIVE_FACTS}
    nothing = {"usd": 0.0, "tokens": 0.0, "attempts": 0.0}
    given["spend"] = {one.name: nothing | given["spend"].get(one.name, {}) for one in document.budgets}
    step = {"name": "step", "kind": "python", "effect": "unknown", "queue": "", "capabilities": [], "attempt": 1}
    run = {"id": "", "workflow": policy, "version": 1, "dialect": "native", "domains": []}
    facts = {**given, "step": step | given["step"], "run": run | given["run"]}
    return Case(name=written.name, facts=facts, expect=PolicyEffect(written.expect), rule=written.rule)
