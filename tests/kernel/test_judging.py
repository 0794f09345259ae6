"""Policies before a step becomes ready: what they deny, hold and let through, and what the journal has about it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.conformance.logs import log_of
from tests.kernel.driver import TOKEN, World, gate, sequence, wait, work

from stepkeep.conformance.contract import Contract, read_contract
from stepkeep.conformance.verify import verify_lines
from stepkeep.definition.policy import CompiledPolicy, PolicyDocument
from stepkeep.kernel.decide.create import start_template
from stepkeep.kernel.decide.policy import CANNOT_EVALUATE
from stepkeep.kernel.definition import (
    SECOND,
    Approval,
    Budget,
    Completion,
    Level,
    OnDeadline,
    OnExceeded,
    PolicyEffect,
    PolicyRule,
    Retry,
)
from stepkeep.kernel.errors import NotAllowed
from stepkeep.kernel.machine.events import ManualOutcome
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.outcomes import Completed, Failed
from stepkeep.kernel.machine.payloads import Reference
from stepkeep.kernel.machine.states import Category, OnFailure, RunState, StepState
from stepkeep.kernel.people.authority import Authority, Membership, MembershipKind
from stepkeep.operations.logs.log import canonical_machines

S = StepState
MACHINES = canonical_machines()
ALLOW, HOLD, DENY = PolicyEffect.ALLOW, PolicyEffect.HOLD, PolicyEffect.DENY


def rule(then: PolicyEffect, when: str | None = None, **more: Any) -> PolicyRule:
    return PolicyRule(name=more.pop("name", "r"), then=then, when=when, **more)


def live(*rules: PolicyRule, revision: int = 3) -> CompiledPolicy:
    return CompiledPolicy(PolicyDocument(name="p", rules=rules), revision)


def verdicts(world: World, step: str) -> list[dict[str, Any]]:
    """Every verdict on a step that the journal has, in order."""
    causes = [cause for body in world.bodies for cause in open_entry(body).causes]
    return [cause.detail["policy"][step] for cause in causes if cause.detail and step in cause.detail.get("policy", {})]


def judge_world(world: World) -> None:
    """The judge has nothing to object to."""
    contract = read_contract(world.plan.document)
    assert isinstance(contract, Contract)
    report = verify_lines(log_of(world), MACHINES, contract=contract)
    assert report.ok, report.findings


# -- before a completion -----------------------------------------------------------------------------------------------
def by_hand(**settings: Any) -> World:
    """A step that waits for a person who completes it."""
    world = World(*sequence(work("m", completion=Completion.MANUAL), work("z")), **settings)
    if world.state("m") is S.AWAITING_APPROVAL:
        world.approve("m")
    world.claim("m")
    world.report("m", Completed(token=TOKEN))
    return world


@pytest.mark.parametrize("outcome", list(ManualOutcome))
@pytest.mark.parametrize(("effect", "word"), [(DENY, "denied"), (HOLD, "held")])
def test_a_policy_is_asked_before_a_completion_is_accepted(
    effect: PolicyEffect, word: str, outcome: ManualOutcome
) -> None:
    """003 §3.3: "SoD/policy checks must run before accepting the signal transition"."""
    world = by_hand()
    world.live = live(rule(effect, reason="not today"))
    with pytest.raises(NotAllowed, match=f"is not accepted: {word} by the rule r of policy revision 3: not today"):
        world.complete("m", outcome)
    assert world.state("m") is S.AWAITING_COMPLETION
    world.live = live(rule(ALLOW), revision=4)
    world.complete("m", outcome)
    assert world.state("m") is not S.AWAITING_COMPLETION
    assert verdicts(world, "m")[-1] == {"effect": "allow", "rule": "r", "by": "tenant", "revision": 4}
    judge_world(world)


def test_a_completion_passes_a_hold_that_people_have_approved_before() -> None:
    world = by_hand(live=live(rule(HOLD)))
    world.complete("m")
    assert verdicts(world, "m")[-1]["permitted"] is True
    judge_world(world)


def test_a_spent_budget_does_not_refuse_a_completion() -> None:
    """It begins no work, and the person has done theirs."""
    world = World(work("m", completion=Completion.MANUAL), budget=Budget(limits={"usd": 1.0}))
    world.claim("m")
    world.report("m", Completed(token=TOKEN, cost=b'{"usd": 2}'))
    world.complete("m")
    assert (world.state("m"), verdicts(world, "m")[-1]["rule"]) == (S.SUCCEEDED, "budget:usd")
    judge_world(world)


def test_a_completion_against_a_verdict_is_found() -> None:
    world = by_hand(live=live(rule(ALLOW)))
    world.complete("m")
    contract = read_contract(world.plan.document)
    assert isinstance(contract, Contract)
    forged = [
        line.replace(b'"effect":"allow"', b'"effect":"deny"') if b"completion_signalled" in line else line
        for line in log_of(world)
    ]
    found = verify_lines(forged, MACHINES, contract=contract).findings
    assert any("a completion is accepted, but the policy says 'deny'" in str(one) for one in found)


# -- deny --------------------------------------------------------------------------------------------------------------
def test_a_denied_step_fails_as_governance_and_names_the_rule() -> None:
    """000 §3.1 governance; 003 §3.1 a policy deny is never retried."""
    world = World(work("a"), policy=(rule(DENY, reason="never on this line"),))
    assert (world.state("a"), world.run.state) == (S.FAILED, RunState.FAILED)
    row = world.row("a")
    assert (row.category, row.attempts) == (Category.GOVERNANCE, 0)
    assert row.error == "denied by the rule r of the definition: never on this line"
    assert verdicts(world, "a") == [{"effect": "deny", "rule": "r", "by": "definition", "reason": "never on this line"}]
    judge_world(world)


@pytest.mark.parametrize(
    ("answer", "states", "run"),
    [
        (OnFailure.SKIP, {"a": "skipped", "b": "succeeded"}, RunState.SUCCEEDED),
        (OnFailure.CONTINUE, {"a": "failed", "b": "succeeded"}, RunState.FAILED),
        (OnFailure.ABORT, {"a": "failed", "b": "cancelled"}, RunState.FAILED),
    ],
)
def test_what_a_denial_leads_to_is_the_failure_policy_of_the_step(
    answer: OnFailure, states: dict[str, str], run: RunState
) -> None:
    world = World(work("a", on_failure=answer), work("b"), policy=(rule(DENY, steps=("a",)),))
    if not world.over:
        world.finish("b")
    assert (world.states(), world.run.state) == (states, run)
    judge_world(world)


def test_a_rule_that_cannot_be_evaluated_denies_and_says_so() -> None:
    world = World(work("a"), policy=(rule(ALLOW, "input.amount > 3"),), given=b"{}")
    [said] = verdicts(world, "a")
    assert (said["effect"], said["rule"]) == ("deny", CANNOT_EVALUATE)
    assert "the rule r of policy w cannot be evaluated" in (world.row("a").error or "")
    judge_world(world)


def test_a_large_input_is_not_read_under_locks_so_its_rule_denies() -> None:
    world = World(work("a"), policy=(rule(ALLOW, "input.x == 1"),), given=Reference("a" * 64, 70_000, "rows").encoded())
    assert "kept outside its row: no rule reads them" in (world.row("a").error or "")
    judge_world(world)


def test_an_undo_step_is_never_judged() -> None:
    """A rollback must not depend on the rules that stopped the work."""
    steps = (work("a", undo=True), work("b", "a", on_failure=OnFailure.COMPENSATE))
    world = World(*steps, policy=(rule(DENY, "step.name != 'a'"),))
    world.finish("a")
    assert world.state("b") is S.FAILED
    world.finish("undo:a")
    assert world.run.state is RunState.ROLLED_BACK


# -- hold --------------------------------------------------------------------------------------------------------------
def test_a_held_step_waits_for_people_and_runs_when_they_approve() -> None:
    """000 §3.1: block and escalate."""
    terms = Approval(roles=("finance",), deadline=9 * SECOND)
    held = Membership(kind=MembershipKind.ROLE, name="finance", granted_at=0)
    bea = Authority(person="bea", registered=True, memberships=(held,))
    policy = live(rule(HOLD, steps=("b",), approval=terms))
    world = World(*sequence(work("a"), work("b")), live=policy, people={"bea": bea})
    world.finish("a")
    assert (world.state("b"), world.run.state) == (S.AWAITING_APPROVAL, RunState.BLOCKED)
    assert world.row("b").due_at == world.now + 9 * SECOND
    [said] = verdicts(world, "b")
    assert (said["effect"], said["rule"], said["by"], said["revision"]) == ("hold", "r", "tenant", 3)
    assert said["terms"]["roles"] == ["finance"]
    with pytest.raises(NotAllowed, match="it takes role finance"):
        world.approve("b", by="cyd")
    world.approve("b", by="bea")
    world.finish("b")
    assert world.run.state is RunState.SUCCEEDED
    judge_world(world)


@pytest.mark.parametrize(("answer", "category"), [(OnDeadline.REJECT, "governance"), (OnDeadline.FAIL, "timeout")])
def test_the_deadline_of_a_policy_hold_is_that_of_its_rule(answer: OnDeadline, category: str) -> None:
    terms = Approval(deadline=9 * SECOND, on_deadline=answer)
    world = World(work("a"), live=live(rule(HOLD, approval=terms)))
    world.later(9 * SECOND, "a")
    assert (world.state("a"), world.row("a").category) == (S.FAILED, category)
    judge_world(world)


def test_a_gate_and_a_wait_open_as_ever_where_a_policy_holds_them() -> None:
    """A hold before a gate would ask people twice; the verdict is on record."""
    world = World(gate("g"), wait("w", "paid"), live=live(rule(HOLD)))
    assert (world.trail("g")[-1], world.trail("w")[-1]) == ("gate_opened", "wait_opened")
    assert [verdicts(world, name)[0]["effect"] for name in ("g", "w")] == ["hold", "hold"]
    judge_world(world)


def test_a_denied_gate_fails() -> None:
    world = World(gate("g"), policy=(rule(DENY),))
    assert (world.state("g"), world.trail("g")[-1]) == (S.FAILED, "denied")
    judge_world(world)


def test_the_stricter_terms_count_where_the_step_holds_by_itself() -> None:
    own = Approval(roles=("ops",), quorum=2, excluded=("requester",), deadline=30 * SECOND)
    terms = Approval(roles=("finance",), quorum=1, excluded=("executed:a",), deadline=90 * SECOND)
    world = World(work("a", hold=own), live=live(rule(HOLD, approval=terms)))
    [said] = verdicts(world, "a")
    found = said["terms"]
    assert (found["roles"], found["quorum"]) == (["finance"], 2)
    assert (found["excluded"], found["deadline"]) == (["executed:a", "requester"], 30 * SECOND)
    assert world.row("a").due_at == world.now + 30 * SECOND
    judge_world(world)


# -- retries -----------------------------------------------------------------------------------------------------------
def fails_once(world: World, pause: int = SECOND) -> None:
    world.claim("a")
    world.report("a", Failed(category=Category.TRANSIENT, error="no"))
    if pause:
        world.later(pause, "a")


@pytest.mark.parametrize("pause", [SECOND, 0], ids=["by a sweep", "at once"])
@pytest.mark.parametrize(("effect", "state"), [(DENY, S.FAILED), (HOLD, S.AWAITING_APPROVAL), (ALLOW, S.READY)])
def test_a_retry_is_judged_when_it_is_due(effect: PolicyEffect, state: StepState, pause: int) -> None:
    retry = Retry(max_attempts=3, initial=pause)
    world = World(work("a", retry=retry), policy=(rule(effect, "step.attempt > 1"),))
    fails_once(world, pause)
    assert (world.state("a"), world.row("a").attempts) == (state, 1)
    assert [one["effect"] for one in verdicts(world, "a")] == ["allow", effect]
    judge_world(world)


def test_a_lost_step_is_judged_before_it_is_ready_again() -> None:
    world = World(work("a", retry=Retry(max_attempts=3)), policy=(rule(DENY, "step.attempt > 1"),))
    world.lose("a")
    assert world.state("a") is S.FAILED
    judge_world(world)


def test_people_who_approved_a_rule_are_not_asked_again_before_a_retry() -> None:
    world = World(work("a", retry=Retry(max_attempts=3)), live=live(rule(HOLD)))
    world.approve("a")
    fails_once(world)
    assert world.state("a") is S.READY
    assert [one.get("permitted") for one in verdicts(world, "a")] == [None, True]
    judge_world(world)


def test_another_revision_asks_again() -> None:
    world = World(work("a", retry=Retry(max_attempts=3)), live=live(rule(HOLD)))
    world.approve("a")
    world.live = live(rule(HOLD), revision=4)
    fails_once(world)
    assert world.state("a") is S.AWAITING_APPROVAL
    judge_world(world)


# -- which verdict, and from what --------------------------------------------------------------------------------------
def test_the_strictest_of_definition_and_tenant_counts_and_the_revision_is_on_record() -> None:
    world = World(work("a"), policy=(rule(DENY, name="own"),), live=live(rule(HOLD)))
    [said] = verdicts(world, "a")
    assert (said["rule"], said["by"], said["revision"]) == ("own", "definition", 3)
    judge_world(world)


def test_a_step_that_no_rule_concerns_has_no_verdict() -> None:
    world = World(work("a"), policy=(rule(DENY, steps=("b",)),), live=live(rule(DENY, workflows=("other",))))
    assert (world.state("a"), verdicts(world, "a")) == (S.READY, [])


def test_facts_are_those_that_the_rules_read_and_never_the_input() -> None:
    world = World(
        work("a"),
        live=live(rule(DENY, "input.x == 2 && labels.team == 'red' && principal.name == 'ann' && time.year > 1")),
        given=b'{"x": 1}',
        labels=b'{"team":"red"}',
    )
    [said] = verdicts(world, "a")
    assert said["effect"] == "allow"
    assert said["facts"]["labels"] == {"team": "red"}
    assert said["facts"]["principal"] == {"name": "ann", "registered": False, "roles": [], "groups": []}
    assert set(said["facts"]) == {"labels", "principal", "time"}


def test_roles_of_the_requester_count_while_they_hold() -> None:
    held = Membership(kind=MembershipKind.ROLE, name="treasurer", granted_at=0, valid_to=1_005 * SECOND)
    ann = Authority(person="ann", registered=True, memberships=(held,))
    world = World(
        *sequence(work("a"), work("b")),
        live=live(rule(ALLOW, "'treasurer' in principal.roles"), rule(DENY, name="others")),
        people={"ann": ann},
    )
    assert world.state("a") is S.READY
    world.claim("a")
    world.pass_time(6 * SECOND)
    world.report("a", Completed())
    assert world.row("b").error == "denied by the rule others of policy revision 3"
    judge_world(world)


def test_a_plan_with_a_policy_has_no_start_template() -> None:
    """A copy of another run's start would carry its verdicts."""
    assert start_template(World(work("a")).plan, start=True) is not None
    assert start_template(World(work("a"), policy=(rule(ALLOW),)).plan, start=True) is None


# -- budgets -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("answer", "state"),
    [(OnExceeded.STOP, S.FAILED), (OnExceeded.HOLD, S.AWAITING_APPROVAL), (OnExceeded.WARN, S.READY)],
)
def test_a_spent_budget_stops_holds_or_warns_at_the_next_step(answer: OnExceeded, state: StepState) -> None:
    world = World(*sequence(work("a"), work("b")), budget=Budget(limits={"usd": 2.0}, on_exceeded=answer))
    world.claim("a")
    world.report("a", Completed(cost=b'{"usd":2.5}'))
    assert world.state("b") is state
    [said] = verdicts(world, "b")
    assert (said["rule"], said["facts"]["cost"]) == ("budget:usd", {"usd": 2.5, "tokens": 0.0, "attempts": 1.0})
    assert said["reason"] == "the run has spent its budget of 2 usd"
    judge_world(world)


def test_a_budget_of_attempts_counts_those_of_all_steps() -> None:
    steps = (work("a", retry=Retry(max_attempts=9)), work("b", "a"))
    world = World(*steps, budget=Budget(limits={"attempts": 2.0}))
    fails_once(world)
    world.finish("a")
    assert world.row("b").error == (
        "denied by the rule budget:attempts of the definition: the run has spent its budget of 2 attempts"
    )
    judge_world(world)


def test_the_terms_of_a_rule_ask_for_a_quorum_and_rule_people_out() -> None:
    """Separation of duties holds for what a policy asks, as for what a definition asks."""
    terms = Approval(quorum=2, excluded=("requester",))
    world = World(work("a"), live=live(rule(HOLD, approval=terms)))
    with pytest.raises(NotAllowed, match="ann asked for the run"):
        world.approve("a", by="ann")
    world.approve("a", by="bea")
    assert world.trail("a")[-1] == "decision_recorded"
    world.approve("a", by="cyd")
    assert world.trail("a")[-1] == "hold_approved"
    judge_world(world)


def test_a_policy_hold_escalates_and_reminds_by_its_own_terms() -> None:
    terms = Approval(
        approvers=("bea",),
        deadline=10 * SECOND,
        on_deadline=OnDeadline.ESCALATE,
        escalate=(Level(approvers=("cyd",), deadline=10 * SECOND),),
        remind=4 * SECOND,
    )
    world = World(work("a"), live=live(rule(HOLD, approval=terms)))
    world.later(4 * SECOND, "a")
    world.later(4 * SECOND, "a")
    world.later(2 * SECOND, "a")
    assert world.trail("a")[-3:] == ["reminded", "reminded", "escalated"]
    world.approve("a", by="cyd")
    assert world.state("a") is S.READY
    judge_world(world)


# -- what an agent reports ---------------------------------------------------------------------------------------------
BLOCKED = Failed(category=Category.GOVERNANCE, error="the budget office has not agreed")


def blocked(**settings: Any) -> World:
    """A step of the ioa format whose agent reports that governance blocks it."""
    world = World(*sequence(work("a", **settings), work("b")), dialect="ioa")
    world.claim("a")
    world.report("a", BLOCKED)
    return world


@pytest.mark.parametrize("final", [False, True])
def test_an_agent_that_reports_governance_blocks_its_step_and_people_are_told(final: bool) -> None:
    """000 §3.1: "Governance | Block + escalate | No"."""
    world = World(work("a", retry=Retry(max_attempts=1)), dialect="ioa")
    world.claim("a")
    world.report("a", replace(BLOCKED, final=final))
    assert (world.state("a"), world.run.state) == (S.AWAITING_APPROVAL, RunState.BLOCKED)
    assert [emitted.name for emitted in world.outbox] == ["gate.escalated"]
    assert world.attempts_of("a") == ["failed"]
    assert world.row("a").attempts == 0
    judge_world(world)
    world.approve("a")
    assert world.state("a") is S.READY
    world.finish("a")
    assert world.run.state is RunState.SUCCEEDED
    judge_world(world)


def test_an_agent_that_reports_governance_again_blocks_again() -> None:
    world = blocked(retry=Retry(max_attempts=1))
    for _ in range(3):
        world.approve("a")
        world.claim("a")
        world.report("a", BLOCKED)
    assert world.state("a") is S.AWAITING_APPROVAL
    judge_world(world)


def test_a_rejected_block_has_failed_as_governance() -> None:
    world = blocked()
    world.reject("a")
    assert (world.state("a"), world.row("a").category) == (S.FAILED, Category.GOVERNANCE)
    assert world.run.state is RunState.FAILED
    judge_world(world)


def test_governance_fails_a_step_that_undoes_one_and_one_of_another_format() -> None:
    native = World(work("a"))
    native.claim("a")
    native.report("a", BLOCKED)
    assert native.state("a") is S.FAILED
    undone = World(*sequence(work("a", undo=True), work("b", on_failure=OnFailure.COMPENSATE)), dialect="ioa")
    undone.finish("a")
    undone.fail("b")
    undone.claim("undo:a")
    undone.report("undo:a", BLOCKED)
    assert undone.state("undo:a") is S.FAILED


@pytest.mark.parametrize(
    ("true", "false", "said"),
    [
        (b'"by":"agent"', b'"by":"parent"', "no agent of its format reports"),
        (b'"rule":"governance"', b'"rule":"other"', "an agent only blocks a step"),
    ],
)
def test_a_step_is_blocked_by_the_report_of_its_agent_alone(true: bytes, false: bytes, said: str) -> None:
    world = blocked()
    contract = read_contract(world.plan.document)
    assert isinstance(contract, Contract)
    forged = [line.replace(true, false) for line in log_of(world)]
    assert any(said in str(one) for one in verify_lines(forged, MACHINES, contract=contract).findings)
