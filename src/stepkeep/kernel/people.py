"""Actions of people on a run: decide gates, decide about held steps, and complete steps manually.

The first committed decision wins. The same decision by the same person again changes nothing and is not an error. Any
other decision is a conflict that names the winner. `decide` calls it. It does not ask who may decide.
"""

from __future__ import annotations

import hmac
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.errors import Conflict
from stepkeep.kernel.decision import Accepted, Reply
from stepkeep.kernel.draft import Draft, json_text
from stepkeep.kernel.events import (
    CompletionSignalled,
    GateDecided,
    HoldChoice,
    HoldDecided,
    ManualOutcome,
    TokenReissued,
)
from stepkeep.kernel.execution import pass_rules
from stepkeep.kernel.failure import COMPLETION, OPERATOR, REJECTION, Settled, fail_for_good
from stepkeep.kernel.journal import payload_digest
from stepkeep.kernel.progress import settle
from stepkeep.kernel.rows import Note, Step, is_exhausted
from stepkeep.kernel.states import RUN_TERMINAL, STEP_TERMINAL, Category, StepState
from stepkeep.kernel.tables import StepTrigger

decode_json = msgspec.json.decode


def decide_gate(draft: Draft, event: GateDecided) -> Reply:
    decision = "approved" if event.approve else "rejected"
    step = _the_gate(draft, event, decision)
    name = draft.planned(step).name
    if is_exhausted(step):
        raise _no_gate(draft, step)
    if step.state is not StepState.AWAITING_APPROVAL:
        return _decided_before(draft, step, event.actor, decision)
    detail = {"step": name, "decision": decision} | ({"comment": event.comment} if event.comment else {})
    draft.requested("gate_decided", event, detail)
    record = {"decision": decision, "by": event.actor, "at": draft.now, "comment": event.comment}
    told = json_text(record)
    note = replace(step.note or Note(), record=told)
    if not event.approve:
        said = f"rejected by {event.actor}" + (f": {event.comment}" if event.comment else "")
        settle(draft, fail_for_good(draft, step, REJECTION, Category.GOVERNANCE, said, hard=True, note=note))
    elif note.held:
        draft.make_ready(step, StepTrigger.HOLD_APPROVED, note=note)
    else:
        draft.move(step, StepTrigger.APPROVED, digest=payload_digest(told.encode()), note=replace(note, output=told))
        settle(draft, Settled(step.no, StepState.SUCCEEDED))
    return Accepted({"step": name, **record})


def _the_gate(draft: Draft, event: GateDecided, decision: str) -> Step:
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
    if last is not None and _record(last)["decision"] == decision:
        # The same decision again, whose answer may have been lost. After another decision it would be a new one.
        return last
    if waiting:
        raise _no_gate(draft, waiting[0])
    raise Conflict(f"run {event.run_id} is {draft.state} and has no open gate to be {decision}")


def _no_gate(draft: Draft, held: Step) -> Conflict:
    name = draft.planned(held).name
    said = f"step {name} of run {held.run_id} holds because no attempt is left; it is no gate"
    return Conflict(f"{said}. Decide to retry, skip or fail it instead.", {"step": name, "state": held.state})


def _last_decided(draft: Draft, actor: str) -> Step | None:
    """The gate that this person decided last."""
    decided = [step for step in draft.every_step() if _record(step).get("by") == actor and "decision" in _record(step)]
    return max(decided, key=lambda step: (_record(step)["at"], step.settled or 0), default=None)


def _no_double_click(draft: Draft, gate: Step, actor: str, decision: str) -> None:
    """A repeated click on one gate must not pass the next one: after an equal decision, the gate must be named."""
    numbers = [planned.no for planned in draft.plan.steps if planned.definition.approval or planned.definition.hold]
    draft.require(numbers)
    for no in numbers:
        record = _record(draft.step(no))
        if record.get("by") == actor and record.get("decision") == decision:
            before, now = draft.plan.at(no).name, draft.planned(gate).name
            said = f"{actor} has {decision} {before} of run {gate.run_id} already; now {now} is open. Name it"
            raise Conflict(f"{said} if you mean it.", {"step": before, **record})


def _decided_before(draft: Draft, step: Step, actor: str, decision: str) -> Reply:
    name, record = draft.planned(step).name, _record(step)
    if record.get("by") == actor and record.get("decision") == decision:
        return Accepted({"step": name, **record}, repeated=True)
    if "decision" in record:
        raise Conflict(
            f"the gate {name} of run {step.run_id} was {record['decision']} by {record['by']} first",
            {"step": name, **record},
        )
    if step.state in STEP_TERMINAL or draft.state in RUN_TERMINAL:
        raise Conflict(f"the gate {name} of run {step.run_id} is {step.state}; there is nothing to decide")
    raise Conflict(f"the gate {name} of run {step.run_id} is not open yet (it is {step.state})")


def decide_hold(draft: Draft, event: HoldDecided) -> Reply:
    """Retry, skip or fail a step that holds because no attempt is left."""
    step = draft.named(event.no)
    name, decision = draft.planned(step).name, DECISIONS[event.choice]
    if not is_exhausted(step):
        return _held_before(draft, step, event.actor, decision)
    draft.requested(
        "hold_decided",
        event,
        {"step": name, "decision": decision} | ({"reason": event.reason} if event.reason else {}),
    )
    record = {"decision": decision, "by": event.actor, "at": draft.now, "reason": event.reason}
    note = replace(step.note or Note(), exhausted=False, record=json_text(record))
    if event.choice is HoldChoice.RETRY:
        note = replace(note, spent=step.attempts, began_at=None)
        draft.make_ready(step, StepTrigger.OPERATOR_RETRIED, losses=0, note=note)
    elif event.choice is HoldChoice.SKIP:
        draft.move(step, StepTrigger.OPERATOR_SKIPPED, note=note)
        settle(draft, Settled(step.no, StepState.SKIPPED))
    else:
        said = f"{step.error} (failed by {event.actor}" + (f": {event.reason})" if event.reason else ")")
        category = step.category or Category.UNKNOWN
        settle(draft, fail_for_good(draft, step, OPERATOR, category, said, note=note))
    return Accepted({"step": name, **record})


DECISIONS = {HoldChoice.RETRY: "retried", HoldChoice.SKIP: "skipped", HoldChoice.FAIL: "failed"}
"""How the record names each choice."""


def _held_before(draft: Draft, step: Step, actor: str, decision: str) -> Reply:
    name, record = draft.planned(step).name, _record(step)
    if record.get("by") == actor and record.get("decision") == decision:
        return Accepted({"step": name, **record}, repeated=True)
    if record.get("decision") in DECISIONS.values():
        said = f"step {name} of run {step.run_id} was {record['decision']} by {record['by']} first"
        raise Conflict(said, {"step": name, **record})
    said = f"step {name} of run {step.run_id} is {step.state} and does not hold; there is nothing to decide"
    raise Conflict(said, {"step": name, "state": step.state})


def complete_by_hand(draft: Draft, event: CompletionSignalled) -> Reply:
    step = draft.named(event.no)
    name = draft.planned(step).name
    note = step.note or Note()
    if note.token is None or not hmac.compare_digest(note.token, event.token):
        raise Conflict(f"the completion token does not match an open manual step {name} of run {event.run_id}")
    if step.state is not StepState.AWAITING_COMPLETION:
        return _completed_before(step, name, event)
    record = _completion_record(draft, event)
    draft.requested("completion_signalled", event, {"step": name, "outcome": event.outcome})
    note = replace(note, record=json_text(record))
    settle(draft, _complete(draft, step, note, event))
    return Accepted({"step": name, **record})


def reissue_token(draft: Draft, event: TokenReissued) -> Reply:
    """Replace the token of an open manual step. The old one is useless from now on; the deadline stays."""
    step = draft.named(event.no)
    name = draft.planned(step).name
    if step.state is not StepState.AWAITING_COMPLETION:
        said = f"step {name} of run {event.run_id} is {step.state}"
        raise Conflict(f"{said}; only a step that waits to be completed by hand has a token")
    draft.requested("token_reissued", event, {"step": name, "reason": event.reason})
    note = replace(step.note or Note(), token=event.token)
    draft.move(step, StepTrigger.TOKEN_REISSUED, due_at=step.due_at, note=note)
    return Accepted({"step": name, "by": event.actor, "at": draft.now, "reason": event.reason})


def _complete(draft: Draft, step: Step, note: Note, event: CompletionSignalled) -> Settled | None:
    if event.outcome is ManualOutcome.CANCELLED:
        draft.move(step, StepTrigger.COMPLETION_CANCELLED, note=note)
        return Settled(step.no, StepState.CANCELLED)
    if event.outcome is ManualOutcome.FAILED:
        said = f"completed as Failed by {event.actor}" + (f": {event.notes}" if event.notes else "")
        return fail_for_good(draft, step, COMPLETION, Category.EXTERNAL, said, note=note)
    digest = payload_digest(event.output)
    if event.output is not None:
        note = replace(note, output=event.output.decode())
    if draft.planned(step).has_rules:
        note = replace(note, checked=step.fence)
        draft.make_ready(step, StepTrigger.COMPLETION_SUCCEEDED, digest=digest, note=note)
        return None
    return pass_rules(draft, draft.move(step, StepTrigger.COMPLETION_SUCCEEDED, note=note), digest)


def _completion_record(draft: Draft, event: CompletionSignalled) -> dict[str, Any]:
    record: dict[str, Any] = {"outcome": event.outcome.value, "by": event.actor, "at": draft.now}
    if event.notes:
        record["notes"] = event.notes
    if event.evidence:
        record["evidence"] = list(event.evidence)
    if event.claim is not None:
        record["claim"] = msgspec.Raw(event.claim)
    return record


def _completed_before(step: Step, name: str, event: CompletionSignalled) -> Reply:
    record = _record(step)
    if record.get("outcome") == event.outcome:
        return Accepted({"step": name, **record}, repeated=True)
    how = f"was already {step.state}"
    if record.get("outcome") == "expired":
        how += ": it was not completed before its deadline"
    elif "outcome" in record:
        how = f"was completed as {record['outcome']} by {record['by']}"
    raise Conflict(f"step {name} of run {step.run_id} {how}", {"step": name, "state": step.state, **record})


def _record(step: Step) -> dict[str, Any]:
    if step.note is None or step.note.record is None:
        return {}
    record: dict[str, Any] = decode_json(step.note.record)
    return record
