"""Requests of people who may decide an open gate: that something is changed first, or that the next level decides.

After a request for changes the gate opens anew with the same terms, and the decisions so far are void. The deadline,
the level and the next reminder stay. Who may decide is still measured at the first opening, so that a request gives
nobody a right. `decide` calls it; `votes.py` counts decisions.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from stepkeep.errors import Conflict
from stepkeep.kernel.decision import Accepted, Reply
from stepkeep.kernel.definition import digest_of, shown_document
from stepkeep.kernel.draft import Draft
from stepkeep.kernel.events import ChangesRequested, EscalationRequested
from stepkeep.kernel.gates import CHANGES_REQUESTED, escalate, gate_of, opening_of, tell
from stepkeep.kernel.progress import facts_of
from stepkeep.kernel.rows import Changes, Gate, Note, Opening, Step, is_exhausted
from stepkeep.kernel.states import StepState
from stepkeep.kernel.tables import StepTrigger
from stepkeep.kernel.votes import (
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
    tell(draft, step, CHANGES_REQUESTED, opened, by=event.actor, comment=event.comment)
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


def _not_open(draft: Draft, step: Step, actor: str) -> Reply | None:
    """The answer where the step has no open gate; None if it has one."""
    if is_exhausted(step):
        raise no_gate(draft, step)
    return None if step.state is StepState.AWAITING_APPROVAL else decided_before(draft, step, actor, DECISION)


def _is_the_same(before: Changes, opening: Opening, event: ChangesRequested) -> bool:
    """Whether this person has said exactly this, and nothing was decided since."""
    same = (before.person, before.comment) == (event.actor, event.comment)
    return same and not opening.ballots and event.on_behalf_of in (None, before.on_behalf_of)


def changes_record(changes: Changes) -> dict[str, Any]:
    """A request for changes as answers and lists tell it."""
    lent = {} if changes.on_behalf_of is None else {"for": changes.on_behalf_of}
    return {"decision": DECISION, "by": changes.person, "at": changes.at, "comment": changes.comment, **lent}


def _detail(name: str, chosen: Chosen, opening: Opening, said: dict[str, str]) -> dict[str, Any]:
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
    draft.opened.append(
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
    # The deadline and the next reminder stay as they are.
    draft.move(
        step,
        StepTrigger.CHANGES_REQUESTED,
        due_at=step.due_at,
        note=replace(note, opening=opened, deciders=deciders),
    )
    return opened
