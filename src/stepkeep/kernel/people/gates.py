"""The life of an open gate: it opens with what people are shown, reminds them, and escalates to the next level.

It counts no decision (`votes.py` does) and settles no step. `progress.py` opens gates, `timers.py` reminds and
escalates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.decide.draft import Draft
from stepkeep.kernel.definition import Approval, Level, digest_of, shown_document
from stepkeep.kernel.machine.rows import Gate, Note, Opening, Step
from stepkeep.kernel.machine.states import StepState
from stepkeep.kernel.machine.tables import StepTrigger
from stepkeep.kernel.plan import PlannedStep

CHANGES_REQUESTED = "gate.changes_requested"
ESCALATED = "gate.escalated"
REASSIGNED = "gate.reassigned"
REMINDED = "gate.reminded"
"""Outbound events that tell people about a gate."""

REPORTED, BY_AGENT = "governance", "agent"
"""The rule of a hold that an agent reports, and whose rule it is."""

_encode = msgspec.json.Encoder().encode


def open_gate(draft: Draft, step: Step, gate: Approval, facts: Mapping[str, Any] | None, of: int | None) -> None:
    """Open the gate of a step, or hold the step for approval. What is shown, and its digest, are fixed here."""
    held = draft.planned(step).kind.terms is None
    shown = shown_document(gate, facts)
    digest = digest_of(shown)
    deadline = kept_deadline(draft, step, after(draft.now, gate.deadline))
    earlier = () if step.note is None else step.note.deciders
    opening = Opening(activation=draft.seq, at=draft.now, deadline=deadline, shown=digest, earlier=earlier)
    draft.rows.add(
        Gate(
            tenant=step.tenant,
            run_id=step.run_id,
            no=step.no,
            activation=draft.seq,
            opened_at=draft.now,
            level=0,
            due_at=deadline,
            shown=shown,
            shown_digest=digest,
        )
    )
    note = replace(step.note or Note(), held=held, opening=opening)
    trigger = StepTrigger.HELD if held else StepTrigger.GATE_OPENED
    draft.move(step, trigger, of=of, due_at=_next_timer(draft, gate, deadline), digest=digest, note=note)


def kept_deadline(draft: Draft, step: Step, otherwise: int | None) -> int | None:
    """When a wait or a gate that opens ends: as in the run that this one was migrated from, if it was open there."""
    kept = draft.snapshot.kept.get(step.no)
    return otherwise if kept is None else max(kept, draft.now)


def open_levels(gate: Approval, opening: Opening | None) -> tuple[Level, ...]:
    """The levels of a gate that are open now, and the approvers whom an operator named."""
    if opening is None:
        return gate.levels[:1]
    return gate.levels[: opening.level + 1] + ((Level(approvers=opening.named),) if opening.named else ())


def gate_of(draft: Draft, step: Step) -> Approval:
    """The terms of a gate that is open."""
    return gate_terms(step, draft.planned(step)) or Approval()


def gate_terms(step: Step, planned: PlannedStep) -> Approval | None:
    """The terms of a gate: those of the policy that holds the step, or those of its definition."""
    terms = None if step.note is None else step.note.terms
    return terms or planned.gate


def holding_rule(step: Step) -> str | None:
    """The rule that holds this step, in words: of a policy, or as its agent reports."""
    note = step.note
    if step.state is not StepState.AWAITING_APPROVAL or note is None or note.permit is None or note.exhausted:
        return None
    rule, _, where = note.permit.rpartition("@")
    if where == BY_AGENT:
        return f"its agent, which reports {rule}"
    return f"the rule {rule} of " + ("its definition" if where == "definition" else f"policy revision {where}")


def opening_of(draft: Draft, step: Step) -> Opening:
    """The open gate of a step. A gate that an earlier version opened counts as opened now."""
    opening = None if step.note is None else step.note.opening
    return opening or Opening(activation=0, at=draft.now, deadline=step.due_at)


def is_past_deadline(opening: Opening, now: int) -> bool:
    """Whether time has settled or escalated a gate, also where no sweep has come yet."""
    return opening.deadline is not None and opening.deadline <= now


def escalate(draft: Draft, step: Step, gate: Approval, opening: Opening) -> bool:
    """Open the next level, with its own deadline. Returns false if there is none."""
    level = opening.level + 1
    if level >= len(gate.levels):
        return False
    deadline = after(draft.now, gate.levels[level].deadline)
    note = replace(step.note or Note(), opening=replace(opening, level=level, deadline=deadline))
    draft.change_gate(step, opening.activation, level, due_at=deadline)
    draft.move(step, StepTrigger.ESCALATED, due_at=_next_timer(draft, gate, deadline), note=note)
    emit_gate_event(draft, step, ESCALATED, replace(opening, level=level, deadline=deadline))
    return True


def remind(draft: Draft, step: Step, gate: Approval, opening: Opening) -> None:
    """Tell the approvers again; nothing else changes."""
    draft.move(step, StepTrigger.REMINDED, due_at=_next_timer(draft, gate, opening.deadline))
    emit_gate_event(draft, step, REMINDED, opening)


def emit_gate_event(draft: Draft, step: Step, name: str, opening: Opening, **more: Any) -> None:
    """Emit an event about an open gate, with the people whom it asks."""
    planned, gate = draft.planned(step), gate_of(draft, step)
    levels = open_levels(gate, opening)
    told = {
        "step": planned.name,
        "activation": opening.activation,
        "level": opening.level,
        "due_at": opening.deadline,
        "prompt": gate.prompt,
        "approved": sum(ballot.approve for ballot in opening.ballots),
        "quorum": gate.quorum,
        "roles": [role for level in levels for role in level.roles],
        "groups": [group for level in levels for group in level.groups],
        "approvers": [person for level in levels for person in level.approvers],
        **more,
    }
    draft.emit(name, _encode(told))


def _next_timer(draft: Draft, gate: Approval, deadline: int | None) -> int | None:
    """When time moves the gate next: the next reminder or the deadline, whichever is first."""
    if gate.remind is msgspec.UNSET:
        return deadline
    reminder = draft.now + gate.remind
    return reminder if deadline is None else min(reminder, deadline)


def after(now: int, duration: int | None) -> int | None:
    return None if duration is None else now + duration
