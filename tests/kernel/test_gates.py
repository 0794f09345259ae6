"""Gates in full: who may decide, how many must, what is shown, and what time does to an open gate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from tests.kernel.driver import TOKEN, World, allowing, gate, sequence, work

from stepkeep.kernel.compiler import ConditionView
from stepkeep.kernel.definition import (
    SECOND,
    Approval,
    Completion,
    Distinct,
    FourEyes,
    Incompatible,
    Level,
    OnDeadline,
    OnExhausted,
    RequiresRole,
    Standing,
    digest_of,
)
from stepkeep.kernel.errors import Conflict, ExpressionError, NotAllowed, WrongToken
from stepkeep.kernel.machine.events import HoldChoice, ManualOutcome
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.outcomes import Completed, Failed
from stepkeep.kernel.machine.states import Category, RunState, StepState
from stepkeep.kernel.people.authority import Authority, Delegation, KeyUsed, Membership, MembershipKind

S = StepState
HOUR = 3600 * SECOND
ROLE, GROUP = MembershipKind.ROLE, MembershipKind.GROUP


def role(name: str, granted_at: int = 0, kind: MembershipKind = ROLE, **times: int) -> Membership:
    return Membership(kind=kind, name=name, granted_at=granted_at, **times)


def person(name: str, *memberships: Membership, **more: Any) -> Authority:
    return Authority(person=name, registered=True, memberships=memberships, **more)


def world_of(approval: Approval, *people: Authority, **settings: Any) -> World:
    """A run that waits at the gate `sign`, before the step `ship`."""
    world = World(*sequence(gate("sign", approval=approval), work("ship")), **settings)
    world.people = {one.person: one for one in people}
    return world


FINANCE = tuple(person(name, role("finance")) for name in ("bea", "cyd", "dan", "eve"))


def triggers(world: World) -> list[str]:
    """The triggers of the last journal entry."""
    return [hop.trigger for hop in open_entry(world.bodies[-1]).hops]


def detail(world: World) -> Mapping[str, Any]:
    [cause] = open_entry(world.bodies[-1]).causes
    return cause.detail or {}


# -- quorum ------------------------------------------------------------------------------------------------------------
def test_a_decision_below_the_quorum_is_counted_and_the_run_stays_blocked() -> None:
    world = world_of(Approval(quorum=2, roles=("finance",), deadline=HOUR), *FINANCE)
    due_at = world.row("sign").due_at
    told = world.approve("sign", by="bea")
    assert told.record["counted"] == {"approved": 1, "rejected": 0}
    assert told.record["needs"] == {"approved": 1, "of": "role finance"}
    assert triggers(world) == ["decision_recorded"]
    assert (world.state("sign"), world.run.state) == (S.AWAITING_APPROVAL, RunState.BLOCKED)
    assert world.row("sign").due_at == due_at


def test_the_quorum_settles_the_gate_and_the_record_has_every_decision() -> None:
    world = world_of(Approval(quorum=3), *FINANCE)
    for name in ("bea", "cyd", "dan"):
        world.approve("sign", by=name)
    assert (world.state("sign"), world.state("ship")) == (S.SUCCEEDED, S.READY)
    record = json.loads(world.row("sign").note.record)  # type: ignore[union-attr, arg-type]
    assert [(vote["by"], vote["decision"]) for vote in record["votes"]] == [
        ("bea", "approved"),
        ("cyd", "approved"),
        ("dan", "approved"),
    ]
    assert sorted(vote.person for vote in world.votes.values()) == ["bea", "cyd", "dan"]


def test_after_the_quorum_every_other_person_learns_what_was_decided() -> None:
    world = world_of(Approval(quorum=2), *FINANCE)
    world.approve("sign", by="bea")
    world.approve("sign", by="cyd")
    with pytest.raises(Conflict, match="was approved by cyd first"):
        world.approve("sign", by="dan")
    assert world.approve("sign", by="bea").repeated, "bea's decision is among those that counted"
    assert len(world.votes) == 2


def test_a_person_counts_once_and_the_same_decision_again_changes_nothing() -> None:
    world = world_of(Approval(quorum=2), *FINANCE)
    world.approve("sign", by="bea")
    before = len(world.bodies)
    assert world.approve("sign", by="bea").repeated
    assert len(world.bodies) == before
    assert world.state("sign") is S.AWAITING_APPROVAL


def test_a_decision_is_final() -> None:
    world = world_of(Approval(quorum=2), *FINANCE)
    world.approve("sign", by="bea")
    with pytest.raises(Conflict, match="bea has approved the gate sign of run r already, and a decision is final"):
        world.reject("sign", by="bea")


def test_one_rejection_rejects_and_reject_on_may_ask_for_more() -> None:
    strict = world_of(Approval(quorum=2), *FINANCE)
    strict.approve("sign", by="bea")
    strict.reject("sign", by="cyd", comment="no")
    assert (strict.state("sign"), strict.run.state) == (S.FAILED, RunState.FAILED)
    lenient = world_of(Approval(quorum=2, reject_on=2), *FINANCE)
    lenient.reject("sign", by="bea")
    assert lenient.state("sign") is S.AWAITING_APPROVAL
    lenient.reject("sign", by="cyd")
    assert lenient.state("sign") is S.FAILED


def test_a_held_step_with_a_quorum_becomes_ready_when_it_is_reached() -> None:
    world = World(work("pay", hold=Approval(quorum=2)))
    world.approve("pay", by="bea")
    assert world.state("pay") is S.AWAITING_APPROVAL
    world.approve("pay", by="cyd")
    assert world.state("pay") is S.READY
    assert world.trail("pay")[-2:] == ["decision_recorded", "hold_approved"]


def test_an_unnamed_decision_of_a_person_who_voted_before_does_not_pass_the_next_gate() -> None:
    world = World(*sequence(gate("one", approval=Approval(quorum=2)), gate("two")))
    world.approve(by="bea")
    world.approve(by="cyd")
    assert world.state("two") is S.AWAITING_APPROVAL
    for name in ("bea", "cyd"):
        with pytest.raises(Conflict, match="Name it if you mean it"):
            world.approve(by=name)


# -- which people ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("approval", "authority", "right"),
    [
        (Approval(roles=("finance",)), person("bea", role("finance")), ["role:finance"]),
        (Approval(roles=("law", "finance")), person("bea", role("finance")), ["role:finance"]),
        (Approval(groups=("board",)), person("bea", role("board", kind=GROUP)), ["group:board"]),
        (Approval(approvers=("bea",)), person("bea"), ["approver:bea"]),
        (Approval(approvers=("bea",)), Authority(person="bea"), ["approver:bea"]),
        (Approval(), Authority(person="bea"), []),
    ],
)
def test_a_gate_takes_roles_groups_or_names_and_its_journal_says_which(
    approval: Approval, authority: Authority, right: list[str]
) -> None:
    world = world_of(approval, authority)
    world.approve("sign", by="bea", evidence=("doc:7",))
    assert detail(world).get("by_right_of", []) == right
    [vote] = world.votes.values()
    assert (list(vote.held_roles), vote.evidence) == (right, b'["doc:7"]')
    assert detail(world)["evidence"]


@pytest.mark.parametrize(
    ("approval", "authority"),
    [
        (Approval(roles=("finance",)), person("bea", role("law"))),
        (Approval(roles=("finance",)), person("bea", role("finance", kind=GROUP))),
        (Approval(groups=("board",)), person("bea", role("board"))),
        (Approval(approvers=("cyd",)), person("bea", role("cyd"))),
        (Approval(roles=("finance",)), Authority(person="bea")),
        (Approval(roles=("finance",)), Authority(person="bea", memberships=(role("finance"),))),
        (Approval(roles=("finance",)), person("bea", role("finance", valid_to=5))),
        (Approval(roles=("finance",)), person("bea", role("finance", revoked_at=5))),
    ],
)
def test_a_person_without_what_the_gate_asks_for_is_refused_by_name(approval: Approval, authority: Authority) -> None:
    world = world_of(approval, authority)
    before = len(world.bodies)
    with pytest.raises(NotAllowed, match="bea may not decide sign of run r: it takes") as refused:
        world.approve("sign", by="bea")
    assert (refused.value.rule, refused.value.person) == ("approvers", "bea")
    assert len(world.bodies) == before
    assert not world.votes


@pytest.mark.parametrize(
    ("standing", "held", "allowed"),
    [
        (Standing.BOTH, "always", True),
        (Standing.BOTH, "gained", False),
        (Standing.BOTH, "lost", False),
        (Standing.OPENING, "gained", False),
        (Standing.OPENING, "lost", True),
        (Standing.NOW, "gained", True),
        (Standing.NOW, "lost", False),
    ],
)
def test_a_role_that_changed_after_the_opening_follows_the_declared_standing(
    standing: Standing, held: str, allowed: bool
) -> None:
    world = world_of(Approval(roles=("finance",), standing=standing))
    opened = world.now
    world.now += 10
    times: dict[str, dict[str, int]] = {
        "always": {},
        "gained": {"granted_at": opened + 5},
        "lost": {"revoked_at": opened + 5},
    }
    world.people["bea"] = person("bea", role("finance", **times[held]))
    if allowed:
        world.approve("sign", by="bea")
        assert world.state("sign") is S.SUCCEEDED
    else:
        with pytest.raises(NotAllowed, match=r"did not have that when|does not have that any more"):
            world.approve("sign", by="bea")


@pytest.mark.parametrize(
    "key",
    [KeyUsed(id="k1", owner="bea"), KeyUsed(id="k1", owner="cyd", scopes=frozenset({"vouch"}))],
)
def test_a_valid_key_proves_the_person_and_is_on_record(key: KeyUsed) -> None:
    world = world_of(Approval(), person("bea", key=key, vouching_allowed=False))
    world.approve("sign", by="bea")
    [vote] = world.votes.values()
    assert (vote.key_id, detail(world)["key"]) == ("k1", "k1")


# -- delegation --------------------------------------------------------------------------------------------------------
def lent(by: str, *memberships: Membership, granted_at: int = 0, **more: Any) -> Delegation:
    return Delegation(id=f"by-{by}", delegator=by, granted_at=granted_at, memberships=memberships, **more)


def test_a_delegate_decides_with_the_role_of_the_only_delegator_who_has_it() -> None:
    gil = person("gil", delegations=(lent("bea", role("law")), lent("cyd", role("finance"))))
    world = world_of(Approval(roles=("finance",)), gil)
    world.approve("sign", by="gil")
    [vote] = world.votes.values()
    assert (vote.person, vote.on_behalf_of, vote.delegation_id) == ("gil", "cyd", "by-cyd")
    assert (detail(world)["for"], detail(world)["delegation"]) == ("cyd", "by-cyd")


def test_with_two_fitting_delegations_the_delegator_must_be_named() -> None:
    gil = person("gil", delegations=(lent("bea", role("finance")), lent("cyd", role("finance"))))
    world = world_of(Approval(roles=("finance",)), gil)
    with pytest.raises(NotAllowed, match="gil may decide sign for bea, cyd"):
        world.approve("sign", by="gil")
    world.approve("sign", by="gil", on_behalf_of="bea")
    assert next(iter(world.votes.values())).on_behalf_of == "bea"


@pytest.mark.parametrize(
    "delegation",
    [
        lent("bea", role("finance"), revoked_at=5),
        lent("bea", role("finance"), valid_to=5),
        lent("bea", role("finance"), valid_from=2**60),
        lent("bea", role("finance"), enabled=False),
        lent("gil", role("finance")),
    ],
)
def test_a_delegation_that_does_not_count_now_gives_nothing(delegation: Delegation) -> None:
    world = world_of(Approval(roles=("finance",)), person("gil", delegations=(delegation,)))
    with pytest.raises(NotAllowed):
        world.approve("sign", by="gil")
    with pytest.raises(NotAllowed):
        world.approve("sign", by="gil", on_behalf_of=delegation.delegator)


def test_neither_the_delegate_nor_the_delegator_decides_twice() -> None:
    gil = person("gil", role("finance"), delegations=(lent("bea", role("finance")),))
    for first, then in ((("gil", "bea"), ("bea", None)), (("bea", None), ("gil", "bea"))):
        world = world_of(Approval(roles=("finance",), quorum=3), gil, *FINANCE)
        world.approve("sign", by=first[0], on_behalf_of=first[1])
        with pytest.raises(NotAllowed, match="each person decides once") as refused:
            world.approve("sign", by=then[0], on_behalf_of=then[1])
        assert refused.value.rule == "one_decision"


def test_duties_bind_the_delegate_and_the_delegator() -> None:
    """ann asked for the run: she may not decide through gil, nor may gil's own duty vanish when he acts for bea."""
    approval = Approval(roles=("finance",), excluded=("requester", "decided:first"))
    gil = person("gil", delegations=(lent("ann", role("finance")), lent("bea", role("finance"))))
    world = World(*sequence(gate("first"), gate("sign", approval=approval)))
    world.people = {"gil": gil}
    world.approve("first", by="gil")
    with pytest.raises(NotAllowed, match="ann asked for the run"):
        world.approve("sign", by="gil", on_behalf_of="ann")
    with pytest.raises(NotAllowed, match="gil decided first"):
        world.approve("sign", by="gil", on_behalf_of="bea")


# -- separation of duties ----------------------------------------------------------------------------------------------
def test_the_requester_and_those_who_did_a_step_may_not_decide() -> None:
    approval = Approval(excluded=("requester", "executed:pay", "completed:count"))
    world = World(*sequence(work("pay"), work("count", completion=Completion.MANUAL), gate("sign", approval=approval)))
    world.owners = {1: "bea"}
    world.finish("pay")
    world.claim("count")
    world.report("count", Completed(token=TOKEN))
    world.complete("count", by="cyd")
    for name, reason in (("ann", "asked for the run"), ("bea", "executed pay"), ("cyd", "completed count")):
        with pytest.raises(NotAllowed, match=f"{name} {reason}") as refused:
            world.approve("sign", by=name)
        assert refused.value.rule == "maker_checker"
    world.approve("sign", by="dan")
    assert world.run.state is RunState.SUCCEEDED


def test_distinct_gates_take_distinct_people_and_four_eyes_take_two() -> None:
    for duty, rule in ((Distinct(gates=("one", "two")), "distinct"), (FourEyes(gates=("one", "two")), "four_eyes")):
        world = World(*sequence(gate("one"), gate("two")), duties=(duty,))
        world.approve("one", by="bea")
        with pytest.raises(NotAllowed) as refused:
            world.approve("two", by="bea")
        assert refused.value.rule == rule
        world.approve("two", by="cyd")
        assert world.run.state is RunState.SUCCEEDED


def test_four_eyes_count_everyone_who_decided_any_of_the_gates() -> None:
    world = World(
        *sequence(gate("one", approval=Approval(quorum=2)), gate("two")), duties=(FourEyes(gates=("one", "two")),)
    )
    world.approve("one", by="bea")
    world.approve("one", by="cyd")
    world.approve("two", by="bea")
    assert world.run.state is RunState.SUCCEEDED


def test_incompatible_duties_and_required_roles_hold_for_manual_completion_too() -> None:
    duties = (Incompatible(steps=("sign", "count")), RequiresRole(step="count", role="auditor"))
    world = World(*sequence(gate("sign"), work("count", completion=Completion.MANUAL)), duties=duties)
    world.people = {name: person(name, role("auditor")) for name in ("bea", "cyd")}
    world.approve("sign", by="bea")
    world.claim("count")
    world.report("count", Completed(token=TOKEN))
    for name, rule in (("bea", "incompatible"), ("dan", "requires_role")):
        with pytest.raises(NotAllowed) as refused:
            world.complete("count", by=name)
        assert refused.value.rule == rule
    world.complete("count", by="cyd")
    assert world.run.state is RunState.SUCCEEDED


def test_a_person_who_decided_about_a_hold_has_decided_the_step() -> None:
    """The record of a step is replaced when it is completed; the people who decided before that are not forgotten."""
    world = World(
        *sequence(
            work("pay", hold=Approval(), completion=Completion.MANUAL),
            gate("sign", approval=Approval(excluded=("decided:pay",))),
        )
    )
    world.approve("pay", by="bea")
    world.claim("pay")
    world.report("pay", Completed(token=TOKEN))
    world.complete("pay", by="cyd")
    with pytest.raises(NotAllowed, match="bea decided pay"):
        world.approve("sign", by="bea")


# -- time --------------------------------------------------------------------------------------------------------------
def escalating() -> Approval:
    return Approval(
        roles=("finance",),
        quorum=2,
        deadline=HOUR,
        on_deadline=OnDeadline.ESCALATE,
        escalate=(Level(roles=("boss",), deadline=2 * HOUR), Level(approvers=("eve",), deadline=HOUR)),
    )


def come(world: World, name: str = "sign") -> None:
    """Let the next timer of a gate come."""
    world.now = world.row(name).due_at or world.now
    world.tick(name)


def test_escalation_widens_the_approvers_keeps_the_votes_and_sets_the_next_deadline() -> None:
    world = world_of(escalating(), *FINANCE, person("hal", role("boss")))
    with pytest.raises(NotAllowed):
        world.approve("sign", by="hal")
    world.approve("sign", by="bea")
    come(world)
    assert triggers(world) == ["escalated"]
    assert (world.run.state, world.row("sign").due_at) == (RunState.BLOCKED, world.now + 2 * HOUR)
    [told] = [msgspec.json.decode(one.payload) for one in world.outbox if one.name == "gate.escalated"]
    assert (told["level"], told["roles"], told["approved"]) == (1, ["finance", "boss"], 1)
    world.approve("sign", by="hal")
    assert world.state("sign") is S.SUCCEEDED
    assert [vote.level for vote in world.votes.values()] == [0, 1]


def test_after_the_last_level_the_gate_is_rejected() -> None:
    world = world_of(escalating(), *FINANCE)
    for _ in range(3):
        come(world)
    assert world.trail("sign")[-3:] == ["escalated", "escalated", "deadline_passed"]
    assert (world.state("sign"), world.row("sign").category) == (S.FAILED, "governance")
    [kept] = world.gates.values()
    assert (kept.level, kept.outcome, kept.closed_at) == (2, "deadline_passed", world.now)


@pytest.mark.parametrize(
    ("what", "trigger", "state", "run"),
    [
        (OnDeadline.APPROVE, "deadline_approved", S.SUCCEEDED, RunState.RUNNING),
        (OnDeadline.SKIP, "deadline_skipped", S.SKIPPED, RunState.RUNNING),
        (OnDeadline.REJECT, "deadline_passed", S.FAILED, RunState.FAILED),
        (OnDeadline.FAIL, "deadline_passed", S.FAILED, RunState.FAILED),
    ],
)
def test_a_gate_does_at_its_deadline_what_it_declares(
    what: OnDeadline, trigger: str, state: StepState, run: RunState
) -> None:
    world = world_of(Approval(deadline=HOUR, on_deadline=what))
    come(world)
    assert (world.trail("sign")[-1], world.state("sign"), world.run.state) == (trigger, state, run)
    with pytest.raises(Conflict):
        world.reject("sign", by="bea")


def test_a_hold_that_is_approved_at_its_deadline_becomes_ready() -> None:
    world = World(work("pay", hold=Approval(deadline=HOUR, on_deadline=OnDeadline.APPROVE)))
    come(world, "pay")
    assert (world.trail("pay")[-1], world.state("pay")) == ("hold_deadline_approved", S.READY)


def test_a_skip_at_the_deadline_satisfies_only_what_allows_it() -> None:
    approval = Approval(deadline=HOUR, on_deadline=OnDeadline.SKIP)
    world = World(gate("sign", approval=approval), work("strict", "sign"), work("lax", allowing("sign", S.SKIPPED)))
    come(world)
    assert (world.state("strict"), world.state("lax")) == (S.SKIPPED, S.READY)


def test_reminders_repeat_until_the_deadline_and_change_nothing_else() -> None:
    world = world_of(Approval(deadline=5 * HOUR, remind=2 * HOUR, quorum=2))
    opened = world.now
    world.approve("sign", by="bea")
    come(world)
    come(world)
    assert world.trail("sign")[-2:] == ["reminded", "reminded"]
    assert (world.now, world.row("sign").due_at) == (opened + 4 * HOUR, opened + 5 * HOUR)
    assert [one.name for one in world.outbox] == ["gate.reminded", "gate.reminded"]
    assert world.run.state is RunState.BLOCKED
    come(world)
    assert world.trail("sign")[-1] == "deadline_passed"


def test_a_gate_without_a_deadline_reminds_without_end_and_still_takes_decisions() -> None:
    world = world_of(Approval(remind=HOUR))
    for _ in range(5):
        come(world)
    world.approve("sign", by="bea")
    assert world.state("sign") is S.SUCCEEDED
    assert world.row("ship").ready_at is not None


# -- what is shown -----------------------------------------------------------------------------------------------------
class Told(msgspec.Struct, frozen=True):
    """Facts as a Python function; stands in for the expression language."""

    reads: frozenset[str] = frozenset({"pay"})
    reads_input: bool = True

    def render(self, view: ConditionView) -> dict[str, Any]:
        if view.outputs["pay"] == b'"broken"':
            raise ExpressionError("nothing can be said about that")
        return {"paid": msgspec.json.decode(view.outputs["pay"] or b"null"), "of": msgspec.json.decode(view.input)}


def world_with_facts(output: bytes) -> World:
    approval = Approval(prompt="Pay?", facts={"paid": "${{ steps.pay.output }}", "of": "${{ input }}"})
    world = World(*sequence(work("pay"), gate("sign", approval=approval)), facts=Told(), given=b'{"order":7}')
    world.finish("pay", output=output)
    return world


def test_the_facts_of_a_gate_are_fixed_when_it_opens_and_their_digest_is_in_the_journal() -> None:
    world = world_with_facts(b'{"sum":3}')
    [kept] = world.gates.values()
    shown = msgspec.json.decode(kept.shown)
    assert shown["facts"] == {"paid": {"sum": 3}, "of": {"order": 7}}
    assert shown["gate"]["prompt"] == "Pay?"
    opened = [hop for hop in world.hops if hop.trigger == "gate_opened"]
    assert [hop.digest for hop in opened] == [digest_of(kept.shown)] == [kept.shown_digest]
    world.approve("sign", by="bea")
    [vote] = world.votes.values()
    assert vote.shown_digest == kept.shown_digest


def test_facts_that_cannot_be_evaluated_fail_the_gate_before_it_opens() -> None:
    world = world_with_facts(b'"broken"')
    assert (world.state("sign"), world.row("sign").category) == (S.FAILED, "validation")
    assert "its facts cannot be evaluated" in (world.row("sign").error or "")
    assert not world.gates


# -- manual completion -------------------------------------------------------------------------------------------------
def test_a_wrong_token_a_wrong_state_and_a_wrong_person_each_have_their_own_refusal() -> None:
    world = World(
        *sequence(work("count", completion=Completion.MANUAL)), duties=(RequiresRole(step="count", role="auditor"),)
    )
    world.people = {"bea": person("bea", role("auditor"))}
    world.claim("count")
    world.report("count", Completed(token=TOKEN))
    with pytest.raises(WrongToken):
        world.complete("count", by="bea", token="another")
    with pytest.raises(NotAllowed):
        world.complete("count", by="cyd")
    world.complete("count", by="bea")
    with pytest.raises(Conflict, match="was completed as Succeeded by bea"):
        world.complete("count", by="bea", outcome=ManualOutcome.FAILED)


def test_a_cancelled_run_closes_its_open_gates() -> None:
    world = world_of(Approval(quorum=2))
    world.approve("sign", by="bea")
    world.cancel()
    [kept] = world.gates.values()
    assert (kept.outcome, kept.closed_at) == ("cancelled", world.now)
    assert world.row("sign").note is not None
    assert world.row("sign").note.opening is None  # type: ignore[union-attr]


def test_a_disabled_person_decides_about_no_held_step() -> None:
    world = World(work("pay", on_exhausted=OnExhausted.HOLD))
    world.people["bea"] = person("bea", disabled=True)
    for _ in range(3):
        world.claim("pay")
        world.report("pay", Failed(category=Category.TRANSIENT, error="no"))
        world.later(HOUR, "pay")
    with pytest.raises(NotAllowed, match="bea is disabled"):
        world.decide_hold("pay", HoldChoice.RETRY, by="bea")
