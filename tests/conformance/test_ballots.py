"""The judge replays decisions of people: true ones pass, and forged ones with a chain in order are found by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from tests.conformance.logs import entries_of, written
from tests.conformance.tellings import CANONICAL, found_in, log_in
from tests.conformance.test_reenact import contract_of
from tests.kernel.driver import TOKEN, World, gate, sequence, work
from tests.kernel.test_gates import FINANCE, HOUR, come, escalating, person, role

from stepkeep.conformance.adoption import Adoption, is_continuation
from stepkeep.conformance.people import PersonAct, RunPeople
from stepkeep.conformance.verify import verify_lines
from stepkeep.dialects import registry
from stepkeep.kernel.definition import (
    Approval,
    Completion,
    Distinct,
    FourEyes,
    Incompatible,
    Level,
    OnDeadline,
    OnExhausted,
    Retry,
)
from stepkeep.kernel.errors import NotAllowed
from stepkeep.kernel.machine.events import HoldChoice
from stepkeep.kernel.machine.journal import Entry
from stepkeep.kernel.machine.outcomes import Completed
from stepkeep.kernel.people.authority import Authority
from stepkeep.operations.logs.log import canonical_machines

MACHINES = canonical_machines()
Told = list[Entry]
DECIDING = (
    "gate_decided",
    "changes_requested",
    "escalation_requested",
    "gate_reassigned",
    "duty_violated",
    "hold_decided",
    "completion_signalled",
)


def findings(world: World, entries: Sequence[Entry]) -> list[str]:
    report = verify_lines(written(entries, world.plan), MACHINES, contract=contract_of(world))
    return [str(finding) for finding in report.findings]


def signed() -> World:
    """Two of finance sign what ann asked for; ann may not."""
    world = World(*sequence(gate("sign", approval=Approval(roles=("finance",), quorum=2, excluded=("requester",)))))
    world.people = {one.person: one for one in FINANCE}
    world.approve("sign", by="bea")
    world.approve("sign", by="cyd")
    return world


def escalated() -> World:
    world = World(*sequence(gate("sign", approval=escalating()), work("ship")))
    world.people = {one.person: one for one in (*FINANCE, person("hal", role("boss")))}
    world.approve("sign", by="bea")
    come(world)
    world.approve("sign", by="hal")
    return world


def twice(*duties: Any) -> Callable[[], World]:
    def made() -> World:
        world = World(*sequence(gate("one"), gate("two")), duties=duties)
        world.approve("one", by="bea")
        world.approve("two", by="cyd")
        return world

    return made


def counted() -> World:
    """bea approves, and cyd completes what bea may not."""
    duties = (Incompatible(steps=("sign", "count")),)
    world = World(*sequence(gate("sign"), work("count", completion=Completion.MANUAL)), duties=duties)
    world.approve("sign", by="bea")
    world.claim("count")
    world.report("count", Completed(token=TOKEN))
    world.complete("count", by="cyd", evidence=("doc:1",))
    return world


def reminded(on_deadline: OnDeadline = OnDeadline.APPROVE) -> Callable[[], World]:
    def made() -> World:
        approval = Approval(deadline=3 * HOUR, remind=2 * HOUR, on_deadline=on_deadline)
        world = World(gate("sign", approval=approval))
        come(world)
        come(world)
        return world

    return made


def robotic() -> World:
    """A service decides the gate that names it; people decide the other one."""
    world = World(*sequence(gate("one", approval=Approval(approvers=("robot",))), gate("two")))
    world.people = {"robot": Authority(person="robot", registered=True, is_service=True)}
    world.approve("one", by="robot")
    world.approve("two", by="bea")
    return world


eyes = twice(FourEyes(gates=("one", "two")))


def sent_back() -> World:
    """One signs, another asks for changes; then two sign. Ann tries to, and may not."""
    terms = Approval(roles=("finance",), quorum=2, excluded=("requester",))
    world = World(*sequence(gate("sign", approval=terms), work("ship")))
    world.people = {one.person: one for one in (*FINANCE, person("ann", role("finance")))}
    world.approve("sign", by="bea")
    world.request_changes("sign", by="cyd", comment="the amount is missing")
    world.approve("sign", by="bea")
    with pytest.raises(NotAllowed):
        world.approve("sign", by="ann")
    world.annotate("ann tried", "sign")
    world.approve("sign", by="cyd")
    return world


def handed_up() -> World:
    """Bea opens the next level before its time, and then the deadline of that level comes."""
    world = World(*sequence(gate("sign", approval=escalating()), work("ship")))
    world.people = {one.person: one for one in (*FINANCE, person("fay", role("boss")))}
    world.escalate("sign", by="bea", reason="cyd is away")
    world.approve("sign", by="fay")
    come(world)
    return world


def handed_up_for_a_moment(deadline: int | None) -> Callable[[], World]:
    """Bea opens a level whose deadline comes before that of the gate, and it passes."""

    def made() -> World:
        last = Approval(
            roles=("finance",),
            deadline=deadline,
            escalate=(Level(roles=("boss",), deadline=HOUR),),
        )
        world = World(*sequence(gate("sign", approval=last), work("ship")))
        world.people = {one.person: one for one in FINANCE}
        world.escalate("sign", by="bea", reason="cyd is away")
        come(world)
        assert world.over
        return world

    return made


def held_and_signed() -> World:
    """bea signs, and cyd decides about a step that bea may not touch."""
    duties = (Incompatible(steps=("sign", "ship")),)
    hold = work("ship", on_exhausted=OnExhausted.HOLD, retry=Retry(max_attempts=1))
    world = World(*sequence(gate("sign"), hold), duties=duties)
    world.approve("sign", by="bea")
    world.claim("ship")
    world.fail("ship")
    world.decide_hold("ship", HoldChoice.SKIP, by="cyd")
    return world


def reassigned() -> World:
    """A gate whose only approver asked for the run is given to another person, who approves."""
    world = World(*sequence(gate("sign", approval=LONE), work("ship")))
    world.people = {name: person(name) for name in ("ann", "dan", "zoe")}
    world.reassign("sign", "dan", asked=("ann",))
    world.approve("sign", by="dan")
    return world


def refused_by_operator() -> World:
    world = World(*sequence(gate("sign", approval=LONE), work("ship")))
    world.people = {name: person(name) for name in ("ann", "zoe")}
    world.reassign("sign", asked=("ann",))
    return world


LONE = Approval(approvers=("ann",), excluded=("requester",))
WORLDS = (
    signed,
    reassigned,
    refused_by_operator,
    sent_back,
    handed_up,
    *(handed_up_for_a_moment(deadline) for deadline in (None, 9 * HOUR)),
    robotic,
    held_and_signed,
    escalated,
    counted,
    twice(Distinct(gates=("one", "two"))),
    twice(FourEyes(gates=("one", "two"))),
    *(reminded(what) for what in OnDeadline),
)


@pytest.mark.parametrize("words", [CANONICAL, *registry.names()])
@pytest.mark.parametrize("made", WORLDS)
def test_true_decisions_pass(made: Callable[[], World], words: str) -> None:
    assert found_in(words, log_in(words, made())) == ()


@pytest.mark.parametrize("words", registry.names())
def test_a_deadline_before_that_of_every_level_is_found(words: str) -> None:
    world = handed_up_for_a_moment(9 * HOUR)()
    *before, last = entries_of(world)
    early = log_in(words, world, [*before, replace(last, at=last.at - 1)])
    assert any("due" in said for said in found_in(words, early))


def by(actor: str, number: int = -1, **detail: Any) -> Callable[[World], Told]:
    """The log with another person, or another detail, behind one decision (the last)."""

    def forge(world: World) -> Told:
        entries = entries_of(world)
        places = [at for at, entry in enumerate(entries) if entry.causes[0].event in DECIDING]
        at = places[number]
        [cause] = entries[at].causes
        kept = {**(cause.detail or {}), **detail}
        changed = replace(cause, actor=actor, detail={key: value for key, value in kept.items() if value is not None})
        return [*entries[:at], replace(entries[at], causes=(changed,)), *entries[at + 1 :]]

    return forge


def by_a_delegate(world: World) -> Told:
    """The log with bea behind both decisions: first for dan, then in her own name."""
    changed = {0: {"for": "dan"}, 1: {}}
    entries = entries_of(world)
    places = [at for at, entry in enumerate(entries) if entry.causes[0].event in DECIDING]
    for number, more in changed.items():
        entry = entries[places[number]]
        [cause] = entry.causes
        entries[places[number]] = replace(
            entry, causes=(replace(cause, actor="bea", detail={**(cause.detail or {}), **more}),)
        )
    return entries


def created_without(name: str, told: Told) -> Told:
    """A log whose run was created before its creation said this."""
    first, *rest = told
    created, *more = first.causes
    detail = {key: value for key, value in (created.detail or {}).items() if key != name}
    return [replace(first, causes=(replace(created, detail=detail), *more)), *rest]


def started_by(actor: str, *before: str) -> Callable[[World], Told]:
    """The log of a run that was idle, and that this person started."""

    def forge(world: World) -> Told:
        first, *rest = entries_of(world)
        created, *more = first.causes
        told = {"asked_before": list(before)} if before else None
        changed = [replace(one, actor=actor, detail=told) if one.event == "run_started" else one for one in more]
        return [replace(first, causes=(created, *changed)), *rest]

    return forge


def without(trigger: str) -> Callable[[World], Told]:
    """The log without the entry of this trigger, numbered again."""

    def forge(world: World) -> Told:
        kept = [entry for entry in entries_of(world) if all(hop.trigger != trigger for hop in entry.hops)]
        return [replace(entry, seq=seq) for seq, entry in enumerate(kept, 1)]

    return forge


def again(trigger: str) -> Callable[[World], Told]:
    """The log with the entry of this trigger twice, numbered again."""

    def forge(world: World) -> Told:
        told = [
            one
            for entry in entries_of(world)
            for one in [entry] * (1 + any(hop.trigger == trigger for hop in entry.hops))
        ]
        return [replace(entry, seq=seq) for seq, entry in enumerate(told, 1)]

    return forge


def noted_again(event: str) -> Callable[[World], Told]:
    """The log with the note of this event twice, numbered again."""

    def forge(world: World) -> Told:
        told = [one for entry in entries_of(world) for one in [entry] * (1 + (entry.causes[0].event == event))]
        return [replace(entry, seq=seq) for seq, entry in enumerate(told, 1)]

    return forge


def renamed(trigger: str, other: str, **changes: Any) -> Callable[[World], Told]:
    def forge(world: World) -> Told:
        return [
            replace(
                entry,
                hops=tuple(
                    replace(hop, trigger=other, **changes) if hop.trigger == trigger else hop for hop in entry.hops
                ),
            )
            for entry in entries_of(world)
        ]

    return forge


def rerun(*names: str) -> Callable[[World], Told]:
    """The log of a run that repeats runs of these people."""

    def forge(world: World) -> Told:
        first, *rest = entries_of(world)
        created, *more = first.causes
        detail = {**(created.detail or {}), "asked_before": list(names)}
        return [replace(first, causes=(replace(created, detail=detail), *more)), *rest]

    return forge


FORGED: list[tuple[str, Callable[[], World], Callable[[World], Told], str]] = [
    ("a missing decision", signed, without("decision_recorded"), "decision 1 of 2"),
    ("a decision twice", signed, again("decision_recorded"), "a second decision"),
    ("a reassignment by the requester", reassigned, by("ann", 0), "a requester reassigns a gate"),
    ("a reassignment to the operator", reassigned, by("zoe", 0, to=["zoe"]), "a requester reassigns a gate"),
    ("a reassignment that is left out", reassigned, without("reassigned"), "does not name the right"),
    ("an approval by a person who was not named", reassigned, by("eve"), "does not name the right"),
    ("a rejection by the requester", refused_by_operator, by("ann", 0), "a requester reassigns a gate"),
    ("a request for changes that is left out", sent_back, without("changes_requested"), "a second decision"),
    ("changes that a person requests who has decided", sent_back, by("bea", 1), "a second decision"),
    ("changes that the requester asks for", sent_back, by("ann", 1), "`not: requester` rules out"),
    ("changes for no reason", sent_back, by("cyd", 1, comment=" "), "detail.comment is ' '"),
    ("changes by no right", sent_back, by("cyd", 1, by_right_of=None), "does not name the right"),
    ("a violation of no duty", sent_back, by("ann", 3, rule="four_eyes"), "has no such duty"),
    ("a violation of an unknown step", sent_back, by("ann", 3, step="pay"), "which the run does not have"),
    ("a violation twice", sent_back, noted_again("duty_violated"), "is on record already"),
    ("a violation at a step that waits for nobody", sent_back, by("ann", 3, step="ship"), "waits for no person"),
    (
        "a level that a stranger opens",
        handed_up,
        by("fay", 0, by_right_of=["role:boss"]),
        "does not name the right",
    ),
    ("a level that is opened for no reason", handed_up, by("bea", 0, reason=" "), "detail.reason is ' '"),
    ("the same person twice", signed, by("bea"), "a second decision"),
    ("a delegate of one who decided", signed, by("eve", **{"for": "bea"}), "a second decision"),
    ("the requester", signed, by("ann"), "`not: requester` rules out"),
    ("for the requester", signed, by("eve", **{"for": "ann"}), "`not: requester` rules out"),
    ("no right to decide", signed, by("eve", by_right_of=None), "does not name the right"),
    ("another right to decide", signed, by("eve", by_right_of=["role:law"]), "does not name the right"),
    ("a level not reached", signed, by("eve", level=1), "the gate is at level 0"),
    ("a level that was left", escalated, by("hal", level=None), "the gate is at level 1"),
    ("a right of a level not reached", escalated, by("hal", 0, by_right_of=["role:boss"]), "does not name the right"),
    ("an escalation left out", escalated, without("escalated"), "the gate is at level 0"),
    ("one person for distinct gates", twice(Distinct(gates=("one", "two"))), by("bea"), "`distinct` rules out"),
    ("one pair of eyes", twice(FourEyes(gates=("one", "two"))), by("bea"), "`four_eyes` rules out"),
    ("one delegate as two pairs of eyes", twice(FourEyes(gates=("one", "two"))), by_a_delegate, "`four_eyes`"),
    ("a start of an idle run that names no requester", signed, started_by("cyd"), "expected a list"),
    ("a start that names another requester", signed, started_by("cyd", "eve"), "detail.asked_before"),
    ("the person who started an idle run", signed, started_by("cyd", "ann"), "`not: requester` rules out"),
    ("one person in two spellings", signed, by("Bea"), "a second decision of one person: Bea"),
    ("one person in letters of another script", signed, by("b\u0435a"), "a second decision"),
    ("the requester in another spelling", signed, by("\uff21NN"), "`not: requester` rules out"),
    ("a requester of a run that it repeats", signed, rerun("cyd"), "`not: requester` rules out"),
    ("such a requester in another spelling", signed, rerun("zoe", "Cyd"), "`not: requester` rules out"),
    ("distinct gates, two spellings", twice(Distinct(gates=("one", "two"))), by("BEA"), "`distinct` rules out"),
    ("one pair of eyes, two spellings", twice(FourEyes(gates=("one", "two"))), by("Bea"), "`four_eyes` rules out"),
    ("incompatible duties, two spellings", counted, by("Bea"), "`incompatible` rules out"),
    ("a service in a quorum", signed, by("cyd", service=True), "a service counts as no person"),
    ("a service by a role", signed, by("cyd", service=True), "a service counts as no person"),
    ("a service for a person", robotic, by("robot", 0, **{"for": "zoe"}), "a service counts as no person"),
    ("a service at an open gate", robotic, by("portal", service=True), "a service counts as no person"),
    ("a service as a pair of eyes", eyes, by("bea", 0, service=True), "a service counts as no person"),
    ("a service that is none", robotic, by("robot", 0, service=1), "metadata.detail.service"),
    ("a hold that the duties rule out", held_and_signed, by("Bea"), "`incompatible` rules out"),
    ("incompatible duties", counted, by("bea"), "`incompatible` rules out"),
    (
        "an approval that was no deadline's to give",
        reminded(OnDeadline.REJECT),
        renamed("deadline_passed", "deadline_skipped", target="skipped", category=None, error=None),
        "the definition says 'reject'",
    ),
]


@pytest.mark.parametrize(("what", "made", "forge", "said"), FORGED, ids=[one[0] for one in FORGED])
def test_a_forged_decision_with_a_chain_in_order_is_found(
    what: str, made: Callable[[], World], forge: Callable[[World], Told], said: str
) -> None:
    world = made()
    found = findings(world, forge(world))
    assert any(said in finding for finding in found), found


def test_a_log_from_before_is_judged_by_the_rules_of_its_time() -> None:
    world = twice(FourEyes(gates=("one", "two")))()
    assert not findings(world, created_without("duty_rules", by_a_delegate(world)))
    world = signed()
    assert not findings(world, created_without("format", started_by("cyd")(world)))


def test_the_persons_that_a_child_or_adoption_carries_count_for_the_step() -> None:
    world = twice(Distinct(gates=("one", "two")), FourEyes(gates=("one", "two")))()
    people = RunPeople(contract_of(world).document.duties, {}, {"one": "succeeded"}.get)
    people.rules = 2
    people.carry("one", {"decided": ["bea", "dan"], "lent": [["bea", "dan"]], "shown": ["0" * 64]})

    def broken(actor: str, subject: str | None = None) -> int:
        detail = {} if subject is None else {"for": subject}
        act = PersonAct("two", "approved", "awaiting_approval", "succeeded", "gate_decided", actor, detail, 3, 3)
        return len(list(people._separated(act, act.subject, settles=True)))

    assert (broken("dan"), broken("eve", "bea"), broken("eve")) == (2, 2, 0)
    people.carry("one", {"many": True})
    assert broken("eve") == 1


def test_a_run_that_adopts_a_decision_of_its_requester_is_found() -> None:
    item = {"step": "sub", "run": "old", "fence": 0, "undo": False, "persons": {"decided": ["bea"]}}
    told = {"run": "old", "as": "retry", "adopted": [item]}
    assert is_continuation(told)
    assert list(Adoption(told).own_decisions("Bea"))
    assert not list(Adoption(told).own_decisions("cyd"))
    assert not list(Adoption({**told, "as": "rollback"}).own_decisions("bea"))
    assert not is_continuation({**told, "adopted": [{**item, "persons": {"decided": []}}]})
