"""Decisions of people about a gate: each counts once, and enough of them settle it.

A decision is final. The same decision by the same person again changes nothing and is not an error; any other is a
conflict that names the one on record. `decide` calls it; `eligibility.py` says which person may decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypedDict, cast

import msgspec
from msgspec.structs import replace

from stepkeep.edges.names import same_names
from stepkeep.kernel.composition.child_runs import open_child
from stepkeep.kernel.composition.elements import grow
from stepkeep.kernel.decide.decision import Accepted, Reply
from stepkeep.kernel.decide.draft import Draft, json_text
from stepkeep.kernel.decide.failure import REJECTION, Settled, fail_for_good
from stepkeep.kernel.decide.progress import settle
from stepkeep.kernel.definition import Approval, Level, Standing
from stepkeep.kernel.errors import Conflict, NotAllowed
from stepkeep.kernel.machine.events import ChangesRequested, EscalationRequested, GateDecided, GateReassigned
from stepkeep.kernel.machine.journal import payload_digest
from stepkeep.kernel.machine.rows import Ballot, Note, Opening, Step, Vote, is_exhausted
from stepkeep.kernel.machine.states import RUN_TERMINAL, STEP_TERMINAL, Category, StepState
from stepkeep.kernel.machine.tables import StepTrigger
from stepkeep.kernel.people.authority import MembershipKind
from stepkeep.kernel.people.eligibility import (
    Moments,
    Voice,
    check_separation,
    terms_met,
    voices_of,
    wanted,
)
from stepkeep.kernel.people.gates import gate_of, is_past_deadline, open_levels, opening_of
from stepkeep.kernel.people.persons import BallotRecord, StepRecord, record_of
from stepkeep.kernel.people.separation import Act, read_exclusion

GateRequest = ChangesRequested | EscalationRequested
"""What a person who may decide a gate may do besides deciding it."""


class Chosen(msgspec.Struct, frozen=True, gc=False):
    """The voice in which a person decides, and the terms of the gate that it meets."""

    voice: Voice
    met: tuple[str, ...]
    roles: frozenset[str]


def decide_gate(draft: Draft, event: GateDecided) -> Reply:
    decision = "approved" if event.approve else "rejected"
    step = the_gate(draft, event, decision)
    if is_exhausted(step):
        raise no_gate(draft, step)
    if step.state is not StepState.AWAITING_APPROVAL:
        return decided_before(draft, step, event.actor, decision)
    opening = opening_of(draft, step)
    mine = next((ballot for ballot in opening.ballots if ballot.person == event.actor), None)
    if mine is not None:
        return _counted_before(draft, step, opening, mine, event)
    check_deadline(draft, step, opening, decision)
    gate = gate_of(draft, step)
    chosen = choose_voice(draft, step, event)
    ballot = Ballot(person=event.actor, approve=event.approve, at=draft.now, on_behalf_of=chosen.voice.on_behalf_of)
    return _count(draft, step, gate, replace(opening, ballots=(*opening.ballots, ballot)), chosen, event)


def check_deadline(draft: Draft, step: Step, opening: Opening, decision: str) -> None:
    """Refuse a decision that comes too late."""
    if is_past_deadline(opening, draft.now):
        name = draft.planned(step).name
        said = f"the gate {name} of run {step.run_id} was to be {decision} before its deadline, which has passed"
        raise Conflict(f"{said}. What it says for that case comes next.", {"step": name, "state": step.state})


# -- which voice -------------------------------------------------------------------------------------------------------
def choose_voice(draft: Draft, step: Step, event: GateDecided | GateRequest) -> Chosen:
    """The voice in which the person may decide: their own, or that of the only delegator for whom they may."""
    fits = fitting_voices(draft, step, event)
    if fits[0].voice.on_behalf_of is None or len(fits) == 1:
        return fits[0]
    names = ", ".join(str(one.voice.on_behalf_of) for one in fits)
    said = f"{event.actor} may decide {draft.planned(step).name} for {names}. Name the one you mean."
    raise NotAllowed(said, rule="delegation", person=event.actor)


def fitting_voices(draft: Draft, step: Step, event: GateDecided | GateRequest) -> list[Chosen]:
    """Every voice in which the person may decide, their own first. Refuses where there is none."""
    gate, opening = gate_of(draft, step), opening_of(draft, step)
    authority = draft.authority(event.bearer)
    levels = open_levels(gate, opening)
    moments = Moments(opening.at, draft.now, gate.standing or Standing.BOTH)
    fits: list[Chosen] = []
    refusals: list[NotAllowed] = []
    for voice in voices_of(authority, event.on_behalf_of, draft.now):
        try:
            fits.append(_check(draft, step, gate, opening, _fit(draft, step, levels, voice, moments), event))
        except NotAllowed as refusal:
            refusals.append(refusal)
    if not fits:
        raise refusals[0]
    return fits


def _fit(draft: Draft, step: Step, levels: Sequence[Level], voice: Voice, moments: Moments) -> Chosen:
    met = terms_met(voice, levels, moments)
    name = draft.planned(step).name
    if met is None and voice.is_service:
        said = f"{voice.person} is a service and may not decide {name} of run {step.run_id}"
        why = "only a gate that names it takes its decision"
        raise NotAllowed(f"{said}: {why}", rule="service", person=voice.person, reason="it is a service")
    if met is None:
        who = wanted(levels)
        said = f"{voice.subject} may not decide {name} of run {step.run_id}: it takes {who}"
        why = f"is not {who}"
        if terms_met(voice, levels, replace(moments, standing=Standing.NOW)) is not None:
            why = "did not have that when the gate opened"
            said += f", and {voice.subject} {why}"
        elif terms_met(voice, levels, replace(moments, standing=Standing.OPENING)) is not None:
            why = "does not have that any more"
            said += f", and {voice.subject} {why}"
        raise NotAllowed(said, rule="approvers", person=voice.person, reason=why)
    held = moments.held(voice.memberships)
    return Chosen(voice, met, frozenset(one for kind, one in held if kind is MembershipKind.ROLE))


def _check(
    draft: Draft, step: Step, gate: Approval, opening: Opening, chosen: Chosen, event: GateDecided | GateRequest
) -> Chosen:
    """Refuse a voice that was heard before, or that the duties of its people rule out."""
    planned, voice = draft.planned(step), chosen.voice
    needed, settles = 1, False
    if isinstance(event, GateDecided):
        needed, settles = (gate.quorum if event.approve else gate.rejections), _settles(gate, opening, event.approve)
    if voice.is_service and needed > 1:
        said = f"{voice.person} is a service and may not decide {planned.name} of run {step.run_id}"
        raise NotAllowed(f"{said}: it takes {needed} people", "service", voice.person, "it is a service")
    for ballot in opening.ballots:
        if both := same_names(voice.names, ballot.names):
            said = f"{both[0]} has a decision about {planned.name} of run {step.run_id} already, by {ballot.person}"
            why = f"has a decision already, by {ballot.person}"
            raise NotAllowed(f"{said}: each person decides once", "one_decision", voice.person, why)
    act = Act(
        step=planned.name,
        within=draft.plan.within(planned),
        names=voice.names,
        roles=chosen.roles,
        settles=settles,
        is_service=voice.is_service,
    )
    check_separation(draft, (*map(read_exclusion, gate.excluded), *(draft.plan.definition.duties or ())), voice, act)
    return chosen


def _settles(gate: Approval, opening: Opening, approve: bool) -> bool:
    """Whether one more decision of this kind settles the gate."""
    count = 1 + sum(ballot.approve is approve for ballot in opening.ballots)
    return count >= (gate.quorum if approve else gate.rejections)


# -- counting ----------------------------------------------------------------------------------------------------------
def _count(draft: Draft, step: Step, gate: Approval, opening: Opening, chosen: Chosen, event: GateDecided) -> Accepted:
    name, voice = draft.planned(step).name, chosen.voice
    evidence = msgspec.json.encode(event.evidence) if event.evidence else None
    record = _record(draft, event, chosen, opening, evidence)
    detail = {"step": name, **{key: value for key, value in record.items() if key in JOURNALED and value}}
    draft.requested("gate_decided", event, detail)
    draft.rows.add(_vote(step, opening, chosen, event, draft.now, evidence))
    deciders = tuple(dict.fromkeys((*_deciders(step), event.actor, voice.subject)))
    lent = _lent(step) if voice.on_behalf_of is None else (*_lent(step), (event.actor, voice.on_behalf_of))
    note = replace(step.note or Note(), opening=opening, deciders=deciders, lent=tuple(dict.fromkeys(lent)))
    before = replace(opening, ballots=opening.ballots[:-1])
    if not _settles(gate, before, event.approve):
        # The deadline and the next reminder stay as they are.
        draft.move(step, StepTrigger.DECISION_RECORDED, due_at=step.due_at, note=note)
        return Accepted({"step": name, **record, **standing_of(gate, opening)})
    told = json_text({key: value for key, value in record.items() if key != "evidence"})
    note = replace(note, record=told)
    if not event.approve:
        said = f"rejected by {event.actor}" + (f": {event.comment}" if event.comment else "")
        settle(draft, fail_for_good(draft, step, REJECTION, Category.GOVERNANCE, said, hard=True, note=note))
    else:
        settle(draft, release(draft, step, note, StepTrigger.APPROVED, StepTrigger.HOLD_APPROVED))
    return Accepted({"step": name, **record})


def release(draft: Draft, step: Step, note: Note, gate: StepTrigger, hold: StepTrigger) -> Settled | None:
    """An approved gate succeeds with the decision as its output; an approved hold becomes ready, or begins at once
    where no worker runs it."""
    if note.held:
        ready, planned = draft.make_ready(step, hold, note=note), draft.planned(step)
        if planned.kind.starts_child:
            return Settled(step.no, StepState.SUCCEEDED) if open_child(draft, ready, None) else None
        return None if planned.kind.is_claimed or planned.kind.growth is None else grow(draft, ready)
    told = note.record or "null"
    draft.move(step, gate, digest=payload_digest(told.encode()), note=replace(note, output=told))
    return Settled(step.no, StepState.SUCCEEDED)


JOURNALED = ("decision", "comment", "for", "by_right_of", "delegation", "key", "level", "evidence", "service")
"""The parts of a decision that its cause in the journal has, besides the actor and the step."""


def _record(draft: Draft, event: GateDecided, chosen: Chosen, opening: Opening, evidence: bytes | None) -> StepRecord:
    """The decision as its caller and the record of the step see it. Parts that most decisions lack are left out."""
    decision = "approved" if event.approve else "rejected"
    rest = {
        "for": chosen.voice.on_behalf_of,
        "by_right_of": list(chosen.met),
        "delegation": chosen.voice.delegation,
        "key": event.key,
        "service": chosen.voice.is_service,
        "level": opening.level,
        "evidence": payload_digest(evidence),
        "votes": [ballot_record(ballot) for ballot in opening.ballots] if len(opening.ballots) > 1 else None,
    }
    record: StepRecord = {"decision": decision, "by": event.actor, "at": draft.now, "comment": event.comment}
    return record | cast("StepRecord", {name: value for name, value in rest.items() if value})


def ballot_record(ballot: Ballot) -> BallotRecord:
    said: BallotRecord = {"by": ballot.person, "decision": _word(ballot), "at": ballot.at}
    if ballot.on_behalf_of is not None:
        said["for"] = ballot.on_behalf_of
    return said


def _word(ballot: Ballot) -> Literal["approved", "rejected"]:
    return "approved" if ballot.approve else "rejected"


class CountedVotes(TypedDict):
    approved: int
    rejected: int


class NeededVotes(TypedDict):
    approved: int
    of: str


class GateStanding(TypedDict):
    """How an open gate stands: what was counted, and what is still needed of whom."""

    counted: CountedVotes
    needs: NeededVotes


def standing_of(gate: Approval, opening: Opening) -> GateStanding:
    """How an open gate stands: what was counted, and what is still needed of whom."""
    approved = sum(ballot.approve for ballot in opening.ballots)
    return {
        "counted": {"approved": approved, "rejected": len(opening.ballots) - approved},
        "needs": {"approved": gate.quorum - approved, "of": wanted(open_levels(gate, opening)) or "anyone"},
    }


def _vote(step: Step, opening: Opening, chosen: Chosen, event: GateDecided, now: int, evidence: bytes | None) -> Vote:
    return Vote(
        tenant=step.tenant,
        run_id=step.run_id,
        no=step.no,
        activation=opening.activation,
        person=event.actor,
        on_behalf_of=chosen.voice.on_behalf_of,
        level=opening.level,
        decision="approved" if event.approve else "rejected",
        at=now,
        comment=event.comment,
        evidence=evidence,
        key_id=event.key,
        delegation_id=chosen.voice.delegation,
        held_roles=chosen.met,
        vouched_by=event.vouched_by,
        shown_digest=opening.shown,
    )


def _deciders(step: Step) -> tuple[str, ...]:
    return () if step.note is None else step.note.deciders


def _lent(step: Step) -> tuple[tuple[str, str], ...]:
    return () if step.note is None else step.note.lent


# -- which gate, and decisions that came before ------------------------------------------------------------------------
def the_gate(draft: Draft, event: GateDecided | GateRequest | GateReassigned, decision: str) -> Step:
    """The named gate, or the only open one."""
    if event.no is not None:
        step = draft.named(event.no)
        planned = draft.planned(step)
        if planned.definition.approval is None and not (step.note and step.note.held) and not is_exhausted(step):
            raise Conflict(f"step {planned.name} of run {event.run_id} is no approval gate")
        return step
    waiting = draft.waiting_steps(StepState.AWAITING_APPROVAL)
    gates = [step for step in waiting if not is_exhausted(step)]
    if len(gates) == 1:
        _no_double_click(draft, gates[0], event.actor, decision)
        return gates[0]
    if gates:
        names = ", ".join(draft.planned(gate).name for gate in gates)
        raise Conflict(f"run {event.run_id} has {len(gates)} open gates: {names}. Name the one you mean.")
    last = _last_decided(draft, event.actor)
    if last is not None and _said_before(last, event.actor, decision):
        # The same decision again, whose answer may have been lost. After another decision it would be a new one.
        return last
    if waiting:
        raise no_gate(draft, waiting[0])
    raise Conflict(f"run {event.run_id} is {draft.state} and has no open gate to be {decision}")


def no_gate(draft: Draft, held: Step) -> Conflict:
    """The refusal of a decision about a gate for a step that holds because no attempt is left."""
    name = draft.planned(held).name
    said = f"step {name} of run {held.run_id} holds because no attempt is left; it is no gate"
    return Conflict(f"{said}. Decide to retry, skip or fail it instead.", {"step": name, "state": held.state})


def _last_decided(draft: Draft, actor: str) -> Step | None:
    """The gate that this person decided last."""
    decided = [(said["at"], step.settled or 0, step.no) for step in draft.every_step() for said in _said(step, actor)]
    return draft.step(max(decided)[-1]) if decided else None


def _no_double_click(draft: Draft, gate: Step, actor: str, decision: str) -> None:
    """A repeated click on one gate must not pass the next one: after an equal decision, the gate must be named."""
    any_held = bool(draft.plan.policies) or draft.snapshot.policy is not None
    numbers = [planned.no for planned in draft.plan.steps if any_held or planned.gate is not None]
    draft.require(numbers)
    rows = [draft.step(no) for no in numbers]
    if any(planned.kind.grows_by_report for planned in draft.plan.steps):
        # Calls of a flow and added steps may be gates; the definition does not know them.
        rows = draft.every_step()
    for step in rows:
        if step.no != gate.no and _said_before(step, actor, decision):
            before, now = draft.planned(step).name, draft.planned(gate).name
            said = f"{actor} has {decision} {before} of run {gate.run_id} already; now {now} is open. Name it"
            raise Conflict(f"{said} if you mean it.", {"step": before, **record_of(step)})


def _said(step: Step, actor: str) -> Iterable[StepRecord | BallotRecord]:
    """The decisions of this person in the record of a gate."""
    record = record_of(step)
    if "decision" in record:
        said: Sequence[StepRecord | BallotRecord] = record.get("votes") or (record,)
        yield from (one for one in said if one.get("by") == actor)


def _said_before(step: Step, actor: str, decision: str) -> bool:
    return any(one["decision"] == decision for one in _said(step, actor))


def _counted_before(draft: Draft, step: Step, opening: Opening, mine: Ballot, event: GateDecided) -> Reply:
    name = draft.planned(step).name
    record = {"step": name, **ballot_record(mine)}
    wants_other = event.on_behalf_of is not None and event.on_behalf_of != (mine.on_behalf_of or mine.person)
    if mine.approve is event.approve and not wants_other:
        gate = gate_of(draft, step)
        return Accepted({**record, **standing_of(gate, opening)}, repeated=True)
    said = f"{mine.person} has {_word(mine)} the gate {name} of run {step.run_id} already, and a decision is final"
    raise Conflict(said, record)


def decided_before(draft: Draft, step: Step, actor: str, decision: str) -> Reply:
    """The answer to a decision about a gate that is not open."""
    name, record = draft.planned(step).name, record_of(step)
    mine = next((one for one in _said(step, actor) if one["decision"] == decision), None)
    if mine is not None:
        return Accepted({"step": name, **record, **mine}, repeated=True)
    if "decision" in record:
        raise Conflict(
            f"the gate {name} of run {step.run_id} was {record['decision']} by {record['by']} first",
            {"step": name, **record},
        )
    if step.state in STEP_TERMINAL or draft.state in RUN_TERMINAL:
        raise Conflict(f"the gate {name} of run {step.run_id} is {step.state}; there is nothing to decide")
    raise Conflict(f"the gate {name} of run {step.run_id} is not open yet (it is {step.state})")
