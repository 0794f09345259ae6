"""Requests for changes at a gate, violations of duties on record, and notes: what they change and what they do not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.kernel.driver import World, gate, sequence, work
from tests.kernel.test_gates import FINANCE, HOUR, escalating, person, role, triggers, world_of

from stepkeep.kernel.decide.notes import MOST_VIOLATIONS
from stepkeep.kernel.definition import Approval, FourEyes
from stepkeep.kernel.errors import Conflict, NotAllowed
from stepkeep.kernel.machine.events import GateDecided, PauseRequested
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.states import RunState, StepState
from stepkeep.kernel.people.changes import MOST_REQUESTS

S = StepState
TWO = Approval(roles=("finance",), quorum=2, deadline=HOUR, prompt="Pay?")


def test_a_request_for_changes_voids_the_decisions_and_keeps_the_gate_open() -> None:
    """Companions 003, ApprovalV1: Pending → RequestChanges → Pending."""
    world = world_of(TWO, *FINANCE)
    due_at = world.row("sign").due_at
    world.approve("sign", by="bea")
    said = world.request_changes("sign", by="cyd", comment="the amount is missing")
    assert said.record["decision"] == "changes_requested"
    assert said.record["counted"] == {"approved": 0, "rejected": 0}
    assert triggers(world) == ["changes_requested"]
    assert (world.state("sign"), world.run.state) == (S.AWAITING_APPROVAL, RunState.BLOCKED)
    assert world.row("sign").due_at == due_at
    assert [gate.outcome for gate in world.gates.values()] == ["changes_requested", None]
    assert len({gate.shown_digest for gate in world.gates.values()}) == 1
    world.approve("sign", by="bea")
    assert world.state("sign") is S.AWAITING_APPROVAL, "one decision since the request, and two are needed"
    world.approve("sign", by="cyd")
    assert world.state("sign") is S.SUCCEEDED
    assert [vote.decision for vote in world.votes.values()] == ["approved"] * 3


def test_the_requester_is_told_by_an_event() -> None:
    world = world_of(TWO, *FINANCE)
    world.request_changes(by="cyd", comment="the amount is missing")
    told = json.loads(world.outbox[-1].payload)
    assert world.outbox[-1].name == "gate.changes_requested"
    assert (told["by"], told["comment"], told["approved"]) == ("cyd", "the amount is missing", 0)


def test_the_same_request_again_changes_nothing() -> None:
    world = world_of(TWO, *FINANCE)
    world.request_changes("sign", by="cyd")
    entries = len(world.bodies)
    assert world.request_changes("sign", by="cyd").repeated
    assert len(world.bodies) == entries
    world.approve("sign", by="bea")
    assert not world.request_changes("sign", by="cyd").repeated


def test_only_a_person_who_may_decide_and_has_not_may_request_changes() -> None:
    world = world_of(TWO, *FINANCE, person("fay"))
    with pytest.raises(NotAllowed, match="role finance"):
        world.request_changes("sign", by="fay")
    world.approve("sign", by="bea")
    with pytest.raises(Conflict, match="a decision is final"):
        world.request_changes("sign", by="bea")


def test_a_request_gives_nobody_a_right_that_came_after_the_gate_opened() -> None:
    """The standing is measured at the first opening, however often the gate opens anew."""
    world = world_of(TWO, *FINANCE)
    world.now += HOUR // 4
    world.people["fay"] = person("fay", role("finance", granted_at=world.now))
    world.now += HOUR // 4
    world.request_changes("sign", by="cyd")
    with pytest.raises(NotAllowed, match="did not have that when the gate opened"):
        world.approve("sign", by="fay")


def test_after_the_deadline_no_changes_are_requested() -> None:
    world = world_of(TWO, *FINANCE)
    world.now += HOUR
    with pytest.raises(Conflict, match="deadline"):
        world.request_changes("sign", by="cyd")


def test_a_gate_takes_a_bounded_number_of_requests() -> None:
    world = world_of(TWO, *FINANCE)
    for turn in range(MOST_REQUESTS):
        world.request_changes("sign", by="cyd", comment=f"change {turn}")
    with pytest.raises(Conflict, match="which is the most"):
        world.request_changes("sign", by="cyd", comment="one more")
    world.approve("sign", by="bea")
    world.approve("sign", by="cyd")
    assert world.state("sign") is S.SUCCEEDED


def test_a_void_decision_is_no_second_pair_of_eyes() -> None:
    """Ann's rejection is void; so bea alone has decided both gates, which four eyes do not allow."""
    first = Approval(reject_on=2)
    world = World(
        *sequence(gate("one", approval=first), gate("two", approval=Approval()), work("ship")),
        duties=(FourEyes(gates=("one", "two")),),
    )
    world.reject("one", by="dan")
    world.request_changes("one", by="cyd")
    world.approve("one", by="bea")
    with pytest.raises(NotAllowed, match="another person than bea"):
        world.approve("two", by="bea")
    world.approve("two", by="cyd")
    assert world.state("two") is S.SUCCEEDED


def test_a_violation_of_duties_is_on_record_once_and_the_refusal_stays_the_same() -> None:
    """Companions 003: violations go to the event SodViolationDetected."""
    world = world_of(Approval(excluded=("requester",)))
    before = len(world.bodies)
    refusals = []
    for _ in range(3):
        with pytest.raises(NotAllowed) as refused:
            world.approve("sign", by="ann")
        refusals.append(str(refused.value))
    assert len(set(refusals)) == 1
    [entry] = [open_entry(body) for body in world.bodies[before:]]
    assert entry.hops == ()
    [cause] = entry.causes
    assert (cause.event, cause.actor) == ("duty_violated", "ann")
    assert cause.detail == {"step": "sign", "rule": "maker_checker", "reason": "ann asked for the run"}
    assert world.state("sign") is S.AWAITING_APPROVAL
    with pytest.raises(NotAllowed):
        world.request_changes("sign", by="ann")
    assert len(world.bodies) == before + 1, "the same person and the same duty, by another act"


def test_many_names_cannot_fill_the_journal() -> None:
    names = [f"p{number}" for number in range(MOST_VIOLATIONS + 20)]
    world = world_of(Approval(excluded=tuple(names)))
    world.watched = False
    before = len(world.bodies)
    world.send(*(GateDecided(approve=True, no=world.no("sign"), **world.who(name)) for name in names[:3]))
    assert len(open_entry(world.bodies[-1]).causes) == 3
    for name in names:
        with pytest.raises(NotAllowed):
            world.approve("sign", by=name)
    causes = [cause for body in world.bodies[before:] for cause in open_entry(body).causes]
    assert len(causes) == MOST_VIOLATIONS


def test_a_refusal_that_is_about_no_duty_leaves_no_trace() -> None:
    world = world_of(TWO, *FINANCE, person("fay"))
    before = len(world.bodies)
    with pytest.raises(NotAllowed, match="role finance"):
        world.approve("sign", by="fay")
    assert len(world.bodies) == before


def test_a_note_is_journaled_and_changes_nothing_until_the_run_has_ended() -> None:
    world = world_of(Approval())
    run, rows = world.run, dict(world.rows)
    said = world.annotate("the bank has a holiday", "sign", by="cyd")
    assert (said.record["step"], said.record["note"]) == ("sign", "the bank has a holiday")
    assert world.rows == rows
    assert world.run.state is run.state
    [cause] = open_entry(world.bodies[-1]).causes
    assert (cause.event, cause.detail) == ("annotated", {"step": "sign", "note": "the bank has a holiday"})
    world.cancel()
    with pytest.raises(Conflict, match="its journal is closed"):
        world.annotate("too late")


def test_a_freeze_is_a_pause_of_its_own_name() -> None:
    world = world_of(Approval())
    world.one(PauseRequested(tenant="t", run_id="r", actor="cyd", reason="an audit", freeze=True))
    assert world.run.state is RunState.PAUSED
    assert open_entry(world.bodies[-1]).causes[0].detail == {"reason": "an audit", "freeze": True}
    with pytest.raises(Conflict, match="paused already"):
        world.one(PauseRequested(tenant="t", run_id="r", actor="cyd", freeze=True))
    world.resume()
    assert world.run.state is RunState.RUNNING or world.run.state is RunState.BLOCKED


def test_a_person_who_may_decide_opens_the_next_level_before_the_deadline() -> None:
    world = world_of(escalating(), *FINANCE, person("fay", role("boss")))
    with pytest.raises(NotAllowed, match="role finance"):
        world.escalate("sign", by="fay")
    said = world.escalate("sign", by="bea", reason="cyd is away")
    assert said.record["level"] == 1
    assert triggers(world) == ["escalated"]
    assert open_entry(world.bodies[-1]).causes[0].event == "escalation_requested"
    assert world.row("sign").due_at == world.now + 2 * HOUR
    assert world.outbox[-1].name == "gate.escalated"
    world.approve("sign", by="fay")
    world.escalate("sign", by="eve")
    with pytest.raises(Conflict, match="no level above"):
        world.escalate("sign", by="cyd")
    world.approve("sign", by="bea")
    assert world.state("sign") is S.SUCCEEDED


# -- a gate that nobody may decide -------------------------------------------------------------------------------------
def stuck(**terms: Any) -> World:
    """A gate for a role whose only member asked for the run."""
    gate = Approval(roles=("finance",), excluded=("requester",), **terms)
    return world_of(gate, person("ann", role("finance")), *(person(name) for name in ("dan", "eve", "zoe")))


def test_an_operator_names_other_approvers_of_a_gate_that_nobody_may_decide() -> None:
    world = stuck()
    said = world.reassign("sign", "dan", asked=("ann",))
    assert (said.record["decision"], said.record["to"], said.record["by"]) == ("reassigned", ["dan"], "zoe")
    assert triggers(world) == ["reassigned"]
    [cause] = open_entry(world.bodies[-1]).causes
    assert (cause.event, cause.actor, (cause.detail or {})["reason"]) == ("gate_reassigned", "zoe", "all left")
    assert world.outbox[-1].name == "gate.reassigned"
    assert world.reassign("sign", "dan", asked=("ann", "dan")).repeated
    for other in ("eve", "ann"):
        with pytest.raises(NotAllowed):
            world.approve("sign", by=other)
    world.approve("sign", by="dan")
    assert world.state("sign") is S.SUCCEEDED


def test_a_second_operator_whose_list_was_read_before_the_first_one_named_a_person_is_refused() -> None:
    world = stuck()
    world.reassign("sign", "dan", asked=("ann",))
    with pytest.raises(Conflict, match="dan may decide the gate"):
        world.reassign("sign", "eve", asked=("ann",))


def test_a_person_who_has_rejected_a_gate_is_not_told_that_they_reassigned_it() -> None:
    world = stuck()
    world.reassign("sign", "dan", asked=("ann",))
    world.reject("sign", by="dan")
    with pytest.raises(Conflict, match="was rejected by dan"):
        world.reassign("sign", "eve", by="dan", asked=("ann",))


def test_an_operator_fails_a_gate_that_nobody_may_decide_and_never_approves_it() -> None:
    world = stuck()
    with pytest.raises(NotAllowed):
        world.approve("sign", by="zoe")
    with pytest.raises(NotAllowed, match="not themselves"):
        world.reassign("sign", "Zoe", asked=("ann",))
    assert world.reassign("sign", asked=("ann",)).record["decision"] == "rejected"
    assert world.state("sign") is S.FAILED
    assert world.row("sign").error == "rejected by zoe: all left"
    assert world.reassign("sign", asked=("ann",)).repeated


@pytest.mark.parametrize(
    ("to", "by", "asked", "error", "said"),
    [
        (("dan",), "ann", ("ann",), NotAllowed, "asked for run"),
        (("dan",), "Ann", ("ann",), NotAllowed, "asked for run"),
        ((), "ann", ("ann",), NotAllowed, "asked for run"),
        (("ann",), "zoe", ("ann",), NotAllowed, "could not decide it either"),
        (("dan", "robot"), "zoe", ("ann",), NotAllowed, "could not decide it either"),
        (("dan",), "zoe", ("ann", "bea"), Conflict, "bea may decide the gate"),
        ((), "zoe", ("bea",), Conflict, "bea may decide the gate"),
    ],
)
def test_a_gate_is_not_reassigned_by_its_requester_to_those_who_may_not_or_while_a_person_may(
    to: tuple[str, ...], by: str, asked: tuple[str, ...], error: type[Exception], said: str
) -> None:
    world = stuck(quorum=2)
    others = (person("bea", role("finance")), person("robot", is_service=True), person("Ann"))
    world.people = {**world.people, **{one.person: one for one in others}}
    with pytest.raises(error, match=said):
        world.reassign("sign", *to, by=by, asked=asked)
    assert world.state("sign") is S.AWAITING_APPROVAL


def test_a_gate_that_is_open_to_every_person_is_not_reassigned() -> None:
    world = world_of(Approval(), person("zoe"), person("dan"))
    with pytest.raises(Conflict, match="any person may decide"):
        world.reassign("sign", "dan")
