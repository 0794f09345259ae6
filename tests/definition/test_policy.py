"""Policy documents: the first rule that holds speaks, what cannot be evaluated denies, and mistakes are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepkeep.definition.policy import CompiledPolicy, failed_cases, load_policy
from stepkeep.kernel.decide.policy import CANNOT_EVALUATE, Verdict, strictest
from stepkeep.kernel.definition import PolicyEffect
from stepkeep.kernel.errors import DefinitionError

PAYOUTS = """
policy: payouts
rules:
  - name: trusted
    workflows: [payout]
    when: '"treasurer" in principal.roles'
    then: allow
  - name: large
    workflows: [payout, "refund-*"]
    steps: ["pay*"]
    when: input.amount > 1000 && step.effect != "read"
    then: hold
    reason: Large payouts need finance.
    approval: {roles: [finance], quorum: 2, deadline: 24h}
  - name: weekend
    when: time.weekday >= 6
    then: deny
cases:
  - name: a large payout is held
    given: {run: {workflow: payout}, step: {name: pay}, input: {amount: 2000}, principal: {roles: []}}
    expect: hold
    rule: large
  - name: not for the treasurer
    given: {run: {workflow: payout}, step: {name: pay}, input: {amount: 2000}, principal: {roles: [treasurer]}}
    expect: allow
    rule: trusted
  - name: nor for another step
    given: {run: {workflow: payout}, step: {name: look}, principal: {roles: []}, time: {weekday: 1}}
    expect: allow
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "policy.yaml"
    file.write_text(text)
    return file


def facts(workflow: str = "payout", step: str = "pay", **parts: Any) -> dict[str, Any]:
    usual = {
        "run": {"workflow": workflow},
        "step": {"name": step, "effect": "write"},
        "principal": {"roles": []},
        "time": {"weekday": 1},
    }
    return {**usual, **parts}


def test_the_cases_of_a_document_are_judged(tmp_path: Path) -> None:
    document, cases = load_policy(written(tmp_path, PAYOUTS))
    assert [case.name for case in cases] == ["a large payout is held", "not for the treasurer", "nor for another step"]
    assert failed_cases(CompiledPolicy(document), cases) == []
    wrong = PAYOUTS.replace("expect: hold", "expect: deny")
    document, cases = load_policy(written(tmp_path, wrong))
    [(case, verdict)] = failed_cases(CompiledPolicy(document), cases)
    assert (case.name, verdict.effect, verdict.rule) == ("a large payout is held", PolicyEffect.HOLD, "large")


def test_the_first_rule_that_holds_speaks_and_names_itself(tmp_path: Path) -> None:
    policy = CompiledPolicy(load_policy(written(tmp_path, PAYOUTS))[0], revision=7)
    held = policy.judge(facts(input={"amount": 5000}, time={"weekday": 6}))
    assert (held.effect, held.rule, held.revision, held.reason) == (
        PolicyEffect.HOLD,
        "large",
        7,
        "Large payouts need finance.",
    )
    assert held.approval is not None
    assert (held.approval.roles, held.approval.quorum) == (("finance",), 2)
    assert policy.judge(facts(input={"amount": 5}, time={"weekday": 6})).rule == "weekend"
    assert policy.judge(facts(input={"amount": 5})) == Verdict(revision=7)
    assert policy.judge(facts("refund-eu", "pay-out", input={"amount": 5000})).rule == "large"
    assert policy.judge(facts("refunds", "pay", input={"amount": 5000})).rule is None, "patterns match whole names"


def test_a_rule_that_cannot_be_evaluated_denies_and_says_so(tmp_path: Path) -> None:
    policy = CompiledPolicy(load_policy(written(tmp_path, PAYOUTS))[0])
    verdict = policy.judge(facts(input={}))
    assert (verdict.effect, verdict.rule) == (PolicyEffect.DENY, CANNOT_EVALUATE)
    assert "large" in verdict.reason
    assert "amount" in verdict.reason
    text = "policy: p\nrules: [{name: odd, when: input.flag, then: allow}]"
    odd = CompiledPolicy(load_policy(written(tmp_path, text))[0])
    assert odd.judge(facts(input={"flag": "yes"})).effect is PolicyEffect.DENY
    assert odd.judge(facts(input={"flag": True})).effect is PolicyEffect.ALLOW


def test_equal_facts_give_an_equal_verdict_and_only_what_is_read_is_asked_for(tmp_path: Path) -> None:
    policy = CompiledPolicy(load_policy(written(tmp_path, PAYOUTS))[0])
    given = facts(input={"amount": 5000})
    assert policy.judge(given) == policy.judge(given)
    assert policy.reads("payout", "pay") == {"principal", "input", "step", "time"}
    assert policy.reads("other", "look") == {"time"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("policy: p\nrules: [{name: a, then: maybe}]", "maybe"),
        ("policy: p\nrules: [{name: a, then: deny}, {name: a, then: deny}]", "Two rules are named `a`"),
        ("policy: p\nrules: [{name: a, then: deny, when: 'steps.x.output == 1'}]", "There is no `steps`"),
        ("policy: p\nrules: [{name: a, then: deny, when: 'step.effekt == 1'}]", "`step` has no `effekt`"),
        ("policy: p\nrules: [{name: a, then: deny, when: 'principal == 1'}]", "not a value by itself"),
        ("policy: p\nrules: [{name: a, then: deny, when: '1 + 1'}]", "not to true or false"),
        ("policy: p\nrules: [{name: a, then: deny, approval: {roles: [x]}}]", "means nothing"),
        ("policy: p\nrules: []\ncases: [{name: c, given: {stepp: {}}, expect: deny}]", "no part of the facts"),
        ("policy: p\nrules: []\ncases: [{name: c, given: {}, expect: deny, rule: r}]", "no rule `r`"),
        ("policy: p", "A policy has rules or budgets"),
        ("policy: p\nrules: []\nrule: 1", "rule"),
    ],
)
def test_a_mistake_is_named_where_it_is(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        load_policy(written(tmp_path, text))
    assert any(said in str(problem) for problem in refused.value.problems), refused.value.problems


def test_the_strictest_of_several_policies_counts() -> None:
    hold, deny = (Verdict(effect=effect, rule=effect) for effect in (PolicyEffect.HOLD, PolicyEffect.DENY))
    assert strictest([]) == Verdict()
    assert strictest([Verdict(), hold]) == hold
    assert strictest([deny, hold, Verdict()]) == deny


def test_facts_of_a_rule_are_refused_because_nothing_would_show_them() -> None:
    rule = {"name": "r", "then": "hold", "approval": {"facts": {"n": "${{ input.n }}"}}}
    with pytest.raises(DefinitionError, match="A rule shows no facts"):
        load_policy({"policy": "p", "rules": [rule]})
