"""Every ending that decisions of people and of rules bring to a run, each played once on the kernel.

A story names the step that it is about, how that step ends, and how its run ends. The stories use no dialect: each is
told in the words of all five. `test_oracle_of_endings.py` compares what is told with the tables of the seeds.
"""

# ruff: noqa: E501 - a table stays aligned, one line for each row

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest
from tests.kernel.driver import TOKEN, World, allowing, gate, work

from stepkeep.definition.policy import CompiledPolicy, PolicyDocument
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
    Rule,
)
from stepkeep.kernel.errors import Conflict, TokenExpired, TokenUsed, WrongToken
from stepkeep.kernel.machine.events import ManualOutcome
from stepkeep.kernel.machine.outcomes import Completed, Failed, RulesFailed
from stepkeep.kernel.machine.states import Category, StepState

HOUR = 3_600 * SECOND
RULES = (Rule(expression="true"),)
Play = Callable[[], World]


class Ending(NamedTuple):
    """A story: how its step ends, how its run ends, what a person is asked for on the way, and what is true of it."""

    play: Play
    step: str
    run: str
    waits: str = ""
    facts: str = ""


# -- gates -------------------------------------------------------------------------------------------------------------
def gated(**terms: Any) -> World:
    """A gate `x`, and work after it that a skipped gate does not stop."""
    return World(gate("x", approval=Approval(**terms)), work("z", allowing("x", StepState.SKIPPED)))


def gate_approved() -> World:
    world = gated()
    world.approve("x")
    world.finish("z")
    return world


def gate_rejected() -> World:
    world = gated()
    world.reject("x", comment="no")
    return world


def gate_deadline(answer: OnDeadline) -> World:
    world = gated(deadline=HOUR, on_deadline=answer)
    world.later(HOUR, "x")
    if world.ready():
        world.finish("z")
    return world


def escalated() -> World:
    levels = (Level(approvers=("max",), deadline=HOUR),)
    world = gated(approvers=("bea",), deadline=HOUR, on_deadline=OnDeadline.ESCALATE, escalate=levels)
    world.later(HOUR, "x")
    return world


def escalated_and_approved() -> World:
    world = escalated()
    world.approve("x", by="max")
    world.finish("z")
    return world


def escalated_in_vain() -> World:
    world = escalated()
    world.later(HOUR, "x")
    return world


# -- holds, denials and budgets ----------------------------------------------------------------------------------------
def held(then: PolicyEffect = PolicyEffect.HOLD, **terms: Any) -> World:
    """Work `x` that a live policy stops, and work after it."""
    approval = {"approval": Approval(**terms)} if then is PolicyEffect.HOLD else {}
    rule = PolicyRule(name="r", then=then, steps=("x",), **approval)
    live = CompiledPolicy(PolicyDocument(name="p", rules=(rule,)), 1)
    return World(work("x"), work("z", "x"), live=live)


def hold_approved() -> World:
    world = held()
    world.approve("x")
    world.finish("x", "z")
    return world


def hold_denied() -> World:
    world = held()
    world.reject("x")
    return world


def hold_expired(answer: OnDeadline) -> World:
    world = held(deadline=HOUR, on_deadline=answer)
    world.later(HOUR, "x")
    if world.ready():
        world.finish("x", "z")
    return world


def denied() -> World:
    return held(PolicyEffect.DENY)


def over_budget(answer: OnExceeded) -> World:
    """The step before `x` costs more than the run may."""
    world = World(work("a"), work("x", "a"), budget=Budget(limits={"usd": 2.0}, on_exceeded=answer))
    world.claim("a")
    world.report("a", Completed(cost=msgspec.json.encode({"usd": 2.5})))
    return world


def budget_held() -> World:
    world = over_budget(OnExceeded.HOLD)
    world.approve("x")
    world.finish("x")
    return world


def budget_warned() -> World:
    world = over_budget(OnExceeded.WARN)
    world.finish("x")
    return world


def budget_stopped() -> World:
    return over_budget(OnExceeded.STOP)


# -- validation --------------------------------------------------------------------------------------------------------
def rule_before_failed() -> World:
    world = World(work("x", pre=RULES), work("z", "x"))
    world.claim("x")
    world.report("x", Failed(category=Category.VALIDATION, error="not clean", unrun=True))
    return world


def rule_after_failed() -> World:
    world = World(work("x", rules=RULES), work("z", "x"))
    world.claim("x")
    world.report("x", Completed())
    world.report("x", RulesFailed(error="not so"))
    return world


def final_rule_failed() -> World:
    world = World(work("x"), rules=RULES)
    world.finish("x")
    world.claim("check:run")
    if world.state("check:run") is StepState.RUNNING:
        world.report("check:run", Completed())
    world.report("check:run", RulesFailed(error="not so"))
    return world


# -- completion by hand ------------------------------------------------------------------------------------------------
def by_hand(**settings: Any) -> World:
    world = World(work("x", completion=Completion.MANUAL, **settings), work("z", allowing("x", StepState.CANCELLED)))
    world.claim("x")
    world.report("x", Completed(output=b'"made"', token=TOKEN))
    return world


def completed(outcome: ManualOutcome) -> World:
    world = by_hand()
    world.complete("x", outcome)
    if world.ready():
        world.finish("z")
    return world


def completion_expired() -> World:
    world = by_hand(completion_deadline=HOUR)
    world.later(HOUR, "x")
    return world


def token_wrong_then_used_twice() -> World:
    world = by_hand()
    with pytest.raises(WrongToken):
        world.complete("x", token="0" * 64)
    world.complete("x")
    with pytest.raises(TokenUsed):
        world.complete("x", ManualOutcome.FAILED)
    world.finish("z")
    return world


def token_reissued() -> World:
    world = by_hand()
    world.reissue("x", "1" * 64)
    with pytest.raises(WrongToken):
        world.complete("x")
    world.complete("x", token="1" * 64)
    world.finish("z")
    return world


def token_late() -> World:
    world = by_hand(completion_deadline=HOUR)
    world.pass_time(HOUR)
    with pytest.raises(TokenExpired):
        world.complete("x")
    world.tick("x")
    return world


def late_vote() -> World:
    world = gated(deadline=HOUR)
    world.pass_time(HOUR)
    with pytest.raises(Conflict):
        world.approve("x")
    world.tick("x")
    return world


def last_gate(answer: OnDeadline | None) -> World:
    """A run that is nothing but a gate: the decision, or the deadline, ends both."""
    terms = Approval() if answer is None else Approval(deadline=HOUR, on_deadline=answer)
    world = World(gate("x", approval=terms))
    if answer is None:
        world.approve("x")
    else:
        world.later(HOUR, "x")
    return world


A, C = "approval", "completion"

# fmt: off
ENDINGS: dict[str, Ending] = {
    "gate approved":                 Ending(gate_approved,                              "succeeded", "succeeded", A, "approved"),
    "gate rejected":                 Ending(gate_rejected,                              "failed",    "failed",    A, "refused"),
    "gate deadline: reject":         Ending(lambda: gate_deadline(OnDeadline.REJECT),   "failed",    "failed",    A, "late"),
    "gate deadline: fail":           Ending(lambda: gate_deadline(OnDeadline.FAIL),     "failed",    "failed",    A, "late"),
    "gate deadline: approve":        Ending(lambda: gate_deadline(OnDeadline.APPROVE),  "succeeded", "succeeded", A, "late"),
    "gate deadline: skip":           Ending(lambda: gate_deadline(OnDeadline.SKIP),     "skipped",   "succeeded", A, "late left_out"),
    "gate escalated, then approved": Ending(escalated_and_approved,                     "succeeded", "succeeded", A, "approved"),
    "gate escalated in vain":        Ending(escalated_in_vain,                          "failed",    "failed",    A, "late"),
    "gate decided too late":         Ending(late_vote,                                  "failed",    "failed",    A, "late"),
    "last gate approved":            Ending(lambda: last_gate(None),                    "succeeded", "succeeded", A, "approved last"),
    "last gate: deadline approves":  Ending(lambda: last_gate(OnDeadline.APPROVE),      "succeeded", "succeeded", A, "late last"),
    "last gate: deadline skips":     Ending(lambda: last_gate(OnDeadline.SKIP),         "skipped",   "succeeded", A, "late left_out all_left_out"),
    "hold approved":                 Ending(hold_approved,                              "succeeded", "succeeded", A, "approved executed"),
    "hold denied":                   Ending(hold_denied,                                "failed",    "failed",    A, "refused"),
    "hold expired: reject":          Ending(lambda: hold_expired(OnDeadline.REJECT),    "failed",    "failed",    A, "late"),
    "hold expired: approve":         Ending(lambda: hold_expired(OnDeadline.APPROVE),   "succeeded", "succeeded", A, "late executed"),
    "denied by policy":              Ending(denied,                                     "failed",    "failed",    "", "denied"),
    "budget: hold, approved":        Ending(budget_held,                                "succeeded", "succeeded", A, "approved executed"),
    "budget: warn":                  Ending(budget_warned,                              "succeeded", "succeeded", "", "executed"),
    "budget: stop":                  Ending(budget_stopped,                             "failed",    "failed",    "", "denied"),
    "validation before failed":      Ending(rule_before_failed,                         "failed",    "failed",    "", "invalid_before"),
    "validation after failed":       Ending(rule_after_failed,                          "failed",    "failed",    "", "invalid"),
    "final validation failed":       Ending(final_rule_failed,                          "succeeded", "failed",    "", "invalid_end executed"),
    "completed by hand":             Ending(lambda: completed(ManualOutcome.SUCCEEDED), "succeeded", "succeeded", C, "signalled"),
    "refused by hand":               Ending(lambda: completed(ManualOutcome.FAILED),    "failed",    "failed",    C, "signalled refused"),
    "cancelled by hand":             Ending(lambda: completed(ManualOutcome.CANCELLED), "cancelled", "succeeded", C, "signalled left_out"),
    "completion expired":            Ending(completion_expired,                         "failed",    "failed",    C, "late"),
    "token wrong, then used twice":  Ending(token_wrong_then_used_twice,                "succeeded", "succeeded", C, "signalled"),
    "token reissued":                Ending(token_reissued,                             "succeeded", "succeeded", C, "signalled"),
    "token late":                    Ending(token_late,                                 "failed",    "failed",    C, "late"),
}
"""`facts`: approved or refused by a person, late (a deadline decided), left_out (all_left_out: nothing else was
there), executed by a worker, denied by a rule, invalid (before, after, or at the end), signalled by hand, last (nothing is left to do)."""
# fmt: on
