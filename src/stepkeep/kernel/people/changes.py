"""Requests about an open gate that do not decide it: changes first, the next level now, or other approvers.

After a request for changes the gate opens anew with the same terms, and the decisions so far are void. The deadline,
the level and the next reminder stay. Who may decide is still measured at the first opening, so that a request gives
nobody a right. Both are of people who may decide it. A gate that nobody may decide is given other approvers by an
operator, or fails; no operator approves it. `decide` calls it; `votes.py` counts decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from stepkeep.edges.names import same_names
from stepkeep.kernel.decide.decision import Accepted, Reply
from stepkeep.kernel.decide.draft import Draft, json_text
from stepkeep.kernel.decide.failure import REJECTION, fail_for_good
from stepkeep.kernel.decide.progress import facts_of, settle
from stepkeep.kernel.definition import Approval, digest_of, shown_document
from stepkeep.kernel.errors import Conflict, NotAllowed
from stepkeep.kernel.machine.events import ChangesRequested, EscalationRequested, GateReassigned
from stepkeep.kernel.machine.rows import Changes, Gate, Note, Opening, Step, is_exhausted
from stepkeep.kernel.machine.states import Category, StepState
from stepkeep.kernel.machine.tables import StepTrigger
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.people.eligibility import duties_of
from stepkeep.kernel.people.gates import (
    CHANGES_REQUESTED,
    REASSIGNED,
    emit_gate_event,
    escalate,
    gate_of,
    open_levels,
    opening_of,
)
from stepkeep.kernel.people.may_act import refusal_in
from stepkeep.kernel.people.persons import StepRecord
from stepkeep.kernel.people.votes import (
    Chosen,
    ballot_record,
    check_deadline,
    choose_voice,
    decided_before,
    no_gate,
    standing_of,
    the_gate,
)

DECISION = "changes_requested"
"""How records and the journal name it."""

MOST_REQUESTS = 50
"""Requests for changes that one gate takes; each is an entry of the journal."""


def request_changes(draft: Draft, event: ChangesRequested) -> Reply:
    step = the_gate(draft, event, "changed")
    if (refused := _not_open(draft, step, event.actor)) is not None:
        return refused
    opening, gate, name = opening_of(draft, step), gate_of(draft, step), draft.planned(step).name
    if (before := opening.changes) is not None and _is_the_same(before, opening, event):
        return Accepted({"step": name, **changes_record(before), **standing_of(gate, opening)}, repeated=True)
    for ballot in opening.ballots:
        if ballot.person == event.actor:
            record = {"step": name, **ballot_record(ballot)}
            said = f"{event.actor} has {record['decision']} the gate {name} of run {step.run_id} already"
            raise Conflict(f"{said}, and a decision is final", record)
    check_deadline(draft, step, opening, "changed")
    if before is not None and before.count >= MOST_REQUESTS:
        said = f"changes were requested {before.count} times at the gate {name} of run {step.run_id}"
        raise Conflict(f"{said}, which is the most. Reject it, or cancel the run.", {"step": name, "state": step.state})
    if opening.activation == draft.seq:
        said = f"the gate {name} of run {step.run_id} has opened in this moment"
        raise Conflict(f"{said}. Look at it and ask again.", {"step": name, "state": step.state})
    chosen = choose_voice(draft, step, event)
    changes = Changes(
        person=event.actor,
        at=draft.now,
        comment=event.comment,
        count=1 if before is None else before.count + 1,
        on_behalf_of=chosen.voice.on_behalf_of,
    )
    draft.requested("changes_requested", event, _detail(name, chosen, opening, {"comment": event.comment}))
    opened = _open_anew(draft, step, opening, changes)
    emit_gate_event(draft, step, CHANGES_REQUESTED, opened, by=event.actor, comment=event.comment)
    return Accepted({"step": name, **changes_record(changes), **standing_of(gate, opened)})


def request_escalation(draft: Draft, event: EscalationRequested) -> Reply:
    """Open the next level of a gate now; its deadline begins."""
    step = the_gate(draft, event, "escalated")
    if (refused := _not_open(draft, step, event.actor)) is not None:
        return refused
    opening, gate, name = opening_of(draft, step), gate_of(draft, step), draft.planned(step).name
    check_deadline(draft, step, opening, "escalated")
    chosen = choose_voice(draft, step, event)
    if opening.level + 1 >= len(gate.levels):
        said = f"the gate {name} of run {step.run_id} has no level above {opening.level}"
        raise Conflict(f"{said}. Decide it, or delegate the decision.", {"step": name, "state": step.state})
    draft.requested("escalation_requested", event, _detail(name, chosen, opening, {"reason": event.reason}))
    escalate(draft, step, gate, opening)
    record = {"by": event.actor, "at": draft.now, "reason": event.reason, "level": opening.level + 1}
    return Accepted({"step": name, "decision": "escalated", **record})


def reassign(draft: Draft, event: GateReassigned) -> Reply:
    """Name other approvers of a gate that nobody may decide, or fail it. No requester of the run may."""
    step, decision = the_gate(draft, event, "reassigned"), "reassigned" if event.to else "rejected"
    if (refused := _not_open(draft, step, event.actor, decision)) is not None:
        return refused
    opening, gate, name = opening_of(draft, step), gate_of(draft, step), draft.planned(step).name
    check_deadline(draft, step, opening, "reassigned")
    said: dict[str, Any] = {"decision": decision, "reason": event.reason}
    said |= {"to": list(event.to)} if event.to else {}
    record = {"by": event.actor, "at": draft.now, **said}
    if event.to and set(event.to) <= set(opening.named):
        return Accepted({"step": name, **record}, repeated=True)
    if both := same_names([event.actor], duties_of(draft, ()).requested):
        why = f"{both[0]} asked for run {step.run_id}, and reassigns no gate of it"
        raise NotAllowed(why, "maker_checker", both[0])
    _check_nobody_may(draft, step, gate, opening, event)
    opened = replace(opening, named=(*opening.named, *event.to))
    note = replace(step.note or Note(), opening=opened)
    for person in event.to:
        would = replace(step, note=note)
        if person in same_names(event.to, [event.actor]):
            raise NotAllowed(f"{event.actor} names other people, not themselves", "maker_checker", event.actor)
        if (refusal := refusal_in(draft, would, Caller(event.tenant, person), with_any_key=True)) is not None:
            raise NotAllowed(f"{person} could not decide it either: {refusal}", refusal.rule, person)
    draft.requested("gate_reassigned", event, {"step": name, **said})
    if event.to:
        draft.move(step, StepTrigger.REASSIGNED, due_at=step.due_at, note=note)
        emit_gate_event(draft, step, REASSIGNED, opened, by=event.actor, reason=event.reason)
        return Accepted({"step": name, **record})
    deciders = tuple(dict.fromkeys((*note.deciders, event.actor)))
    why = f"rejected by {event.actor}: {event.reason}"
    note = replace(note, record=json_text(record), deciders=deciders)
    settle(draft, fail_for_good(draft, step, REJECTION, Category.GOVERNANCE, why, hard=True, note=note))
    return Accepted({"step": name, **record})


def _check_nobody_may(draft: Draft, step: Step, gate: Approval, opening: Opening, event: GateReassigned) -> None:
    name = draft.planned(step).name
    levels = open_levels(gate, opening)
    able = "any person" if any(level.is_open for level in levels) else None
    # Another request may have named people, or opened a level, since `asked` was read.
    asked = dict.fromkeys((*event.asked, *(name for level in levels for name in level.approvers)))
    for person in () if able else asked:
        if refusal_in(draft, step, Caller(event.tenant, person), with_any_key=True) is None:
            able = person
    if able is not None:
        said = f"{able} may decide the gate {name} of run {step.run_id}"
        raise Conflict(f"{said}: an operator only unblocks one that nobody may", {"step": name, "state": step.state})


def _not_open(draft: Draft, step: Step, actor: str, decision: str = DECISION) -> Reply | None:
    """The answer where the step has no open gate; None if it has one."""
    if is_exhausted(step):
        raise no_gate(draft, step)
    return None if step.state is StepState.AWAITING_APPROVAL else decided_before(draft, step, actor, decision)


def _is_the_same(before: Changes, opening: Opening, event: ChangesRequested) -> bool:
    """Whether this person has said exactly this, and nothing was decided since."""
    same = (before.person, before.comment) == (event.actor, event.comment)
    return same and not opening.ballots and event.on_behalf_of in (None, before.on_behalf_of)


def changes_record(changes: Changes) -> StepRecord:
    """A request for changes as answers and lists tell it."""
    said: StepRecord = {"decision": DECISION, "by": changes.person, "at": changes.at, "comment": changes.comment}
    if changes.on_behalf_of is not None:
        said["for"] = changes.on_behalf_of
    return said


def _detail(name: str, chosen: Chosen, opening: Opening, said: dict[str, str]) -> Mapping[str, object]:
    rest = {
        "for": chosen.voice.on_behalf_of,
        "by_right_of": list(chosen.met),
        "delegation": chosen.voice.delegation,
        "level": opening.level,
        "service": chosen.voice.is_service,
    }
    return {"step": name, **said, **{key: value for key, value in rest.items() if value}}


def _open_anew(draft: Draft, step: Step, opening: Opening, changes: Changes) -> Opening:
    """Close this opening and begin the next one, which shows the same."""
    gate, note = gate_of(draft, step), step.note or Note()
    shown = shown_document(gate, facts_of(draft, draft.planned(step), gate))
    digest = digest_of(shown)
    if note.opening is not None:
        draft.change_gate(
            step, opening.activation, opening.level, closed_at=draft.now, outcome=StepTrigger.CHANGES_REQUESTED
        )
    draft.rows.add(
        Gate(
            tenant=step.tenant,
            run_id=step.run_id,
            no=step.no,
            activation=draft.seq,
            opened_at=draft.now,
            level=opening.level,
            due_at=opening.deadline,
            shown=shown,
            shown_digest=digest,
        )
    )
    opened = replace(opening, activation=draft.seq, shown=digest, ballots=(), changes=changes)
    void = frozenset().union(*(ballot.names for ballot in opening.ballots)) - frozenset(opening.earlier)
    deciders = tuple(name for name in note.deciders if name not in void)
    lent = tuple(pair for pair in note.lent if void.isdisjoint(pair))
    # The deadline and the next reminder stay as they are.
    draft.move(
        step,
        StepTrigger.CHANGES_REQUESTED,
        due_at=step.due_at,
        note=replace(note, opening=opened, deciders=deciders, lent=lent),
    )
    return opened
