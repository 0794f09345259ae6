"""Policy documents: rules over the facts of a step, read from YAML or JSON, checked and tried on cases.

Nothing here knows a store: `operations` publishes, and `compiled_policy` judges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field, ValidationError

from stepkeep.definition.bounds import BUDGET_PERIOD, MAX_POLICY_RULES, MAX_SHARED_BUDGETS
from stepkeep.definition.expressions.compiled_policy import (
    FACTS,
    LIVE_FACTS,
    CompiledPolicy,
    PolicyDocument,
    limits_of,
    scope_of,
)
from stepkeep.definition.expressions.conditions import compile_truth
from stepkeep.definition.expressions.expressions import InvalidExpression
from stepkeep.definition.findings import Finding, Path, located
from stepkeep.definition.native.build import budget_of, policy_of
from stepkeep.definition.native.validators import Word, within
from stepkeep.definition.native.written import Block, BudgetBlock, PolicyRuleBlock, Text, WorkflowBlock
from stepkeep.definition.text.complaints import complaints
from stepkeep.definition.text.document import parse_document, read_document
from stepkeep.edges.safe_text import type_name
from stepkeep.kernel.decide.policy import Verdict
from stepkeep.kernel.definition import (
    BudgetOf,
    PolicyEffect,
    SharedBudget,
)
from stepkeep.kernel.errors import DefinitionError, InvalidInput

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
