"""A person decides about one step that is stuck: retry, skip, fail or complete it, on record.

A step is stuck if it holds because no attempt is left, or if only time, a message or a worker that does not come could
move it. A step that a worker holds, a gate, a step that waits for children and one that has not opened have ways of
their own: they are refused. `decide` calls it; `people.py` completes manual steps by their token.
"""

from __future__ import annotations

from msgspec.structs import replace

from stepkeep.kernel.decide.decision import Accepted, Reply
from stepkeep.kernel.decide.draft import Draft, json_text
from stepkeep.kernel.decide.execution import pass_rules
from stepkeep.kernel.decide.failure import OPERATOR, Settled, fail_for_good
from stepkeep.kernel.decide.progress import retry_now, settle
from stepkeep.kernel.decide.waits import is_past_wait
from stepkeep.kernel.definition import OnExhausted
from stepkeep.kernel.errors import Conflict, InvalidInput
from stepkeep.kernel.machine.events import HoldChoice, HoldDecided
from stepkeep.kernel.machine.journal import payload_digest
from stepkeep.kernel.machine.rows import Note, Step, is_exhausted
from stepkeep.kernel.machine.states import STEP_TERMINAL, Category, Phase, RunState, StepState
from stepkeep.kernel.machine.tables import StepTrigger
from stepkeep.kernel.people.people import check_duties
from stepkeep.kernel.people.persons import record_of
from stepkeep.kernel.plan import Plan, PlannedStep

RETRY, SKIP, FAIL, COMPLETE = HoldChoice

CHOICES = {
    StepState.RETRYING: frozenset({RETRY, SKIP, FAIL, COMPLETE}),
    StepState.READY: frozenset({SKIP, FAIL}),
    StepState.AWAITING_EVENT: frozenset({SKIP, FAIL, COMPLETE}),
}
"""What a person may decide about a step in this state. A step that holds takes every choice."""

WHY_NOT = {
    StepState.PENDING: "it has not opened: what it depends on has not settled",
    StepState.RUNNING: "a worker holds it; its lease ends by itself if the worker is gone",
    StepState.VALIDATING: "its handler has completed, and only its rules are left",
    StepState.AWAITING_APPROVAL: "it waits for an approval: approve or reject it",
    StepState.AWAITING_COMPLETION: "only its token completes it; `stepkeep token` replaces a lost one",
    StepState.AWAITING_CHILDREN: "it waits for what it started: decide about that, or cancel the run",
}
"""Why nothing is to be decided about a step in this state."""

NEED_EVERY_STEP = frozenset({"linear", "run", "workstream"})
"""Formats in which a run has completed only if every step of it has (seeds 001, 002 and 004)."""

DECISIONS = {RETRY: "retried", SKIP: "skipped", FAIL: "failed", COMPLETE: "completed"}
"""How the record names each choice."""


def decide_step(draft: Draft, event: HoldDecided) -> Reply:
    """Retry, skip, fail or complete a stuck step."""
    step = draft.named(event.no)
    name, decision, holds = draft.planned(step).name, DECISIONS[event.choice], is_exhausted(step)
    if not holds and event.choice not in CHOICES.get(step.state, ()):
        return _decided_before(draft, step, event.actor, decision)
    _check(draft, step, event, name, holds)
    check_duties(draft, step, event.bearer, event.actor)
    draft.requested(
        "hold_decided" if holds else "step_decided",
        event,
        {"step": name, "decision": decision} | ({"reason": event.reason} if event.reason else {}),
    )
    record = {"decision": decision, "by": event.actor, "at": draft.now, "reason": event.reason}
    note = step.note or Note()
    deciders = tuple(dict.fromkeys((*note.deciders, event.actor)))
    note = replace(note, exhausted=False, tried=(), record=json_text(record), deciders=deciders)
    settle(draft, _act(draft, step, note, event, holds))
    return Accepted({"step": name, **record})


def choices_about(plan: Plan, run_state: RunState, step: Step) -> tuple[HoldChoice, ...]:
    """What a person may decide about this step now; empty if there is nothing to decide."""
    allowed = tuple(HoldChoice) if is_exhausted(step) else CHOICES.get(step.state, ())
    return tuple(one for one in HoldChoice if one in allowed and _why_not(plan, run_state, step, one) is None)


def _check(draft: Draft, step: Step, event: HoldDecided, name: str, holds: bool) -> None:
    said = f"step {name} of run {step.run_id}"
    if not holds and not event.reason:
        raise InvalidInput(f"{said} does not hold by its definition: give the reason of the decision.")
    if is_past_wait(step, draft.now):
        raise Conflict(f"{said} waited until its deadline, which has passed: a worker settles it.", _stands(name, step))
    if (why := _why_not(draft.plan, draft.state, step, event.choice)) is not None:
        raise Conflict(f"{said} {why}", _stands(name, step))


def _why_not(plan: Plan, run_state: RunState, step: Step, choice: HoldChoice) -> str | None:
    """Why a step whose state takes this choice does not take it, in words; None if it does."""
    planned = plan.of(step)
    if run_state is RunState.PAUSED and step.state is StepState.READY:
        return "is held back by the pause of its run. Resume the run first."
    if step.unmet and choice is not RETRY:
        return "has calls that have not settled: decide about those, or cancel the run."
    if not is_exhausted(step) and planned.phase is not Phase.MAIN and choice is not RETRY:
        kind = "undoes what the run did" if planned.phase is Phase.UNDO else "checks the run"
        return f"{kind}: it can only be retried."
    if choice is SKIP and _is_required(plan, planned):
        return "cannot be skipped: the run needs it. Retry or fail it."
    if choice is COMPLETE and planned.by_hand:
        return "is completed by hand: complete it with its token."
    return None


def _is_required(plan: Plan, planned: PlannedStep) -> bool:
    """Whether the run must not end without this step. An undo is done, by a handler or a person, or it has failed."""
    is_held = planned.definition.on_exhausted is OnExhausted.HOLD_REQUIRED
    return planned.phase is Phase.UNDO or is_held or plan.definition.dialect in NEED_EVERY_STEP


def _act(draft: Draft, step: Step, note: Note, event: HoldDecided, holds: bool) -> Settled | None:
    if event.choice is COMPLETE:
        return _complete(draft, step, note, event.output)
    if event.choice is SKIP:
        # A skip is no failure, whatever became of the attempts before, and only a failure has a category. The error
        # stays, because it may say that an effect is in doubt.
        draft.move(step, StepTrigger.OPERATOR_SKIPPED, note=note, category=None)
        return Settled(step.no, StepState.SKIPPED)
    if event.choice is FAIL:
        said = f"failed by {event.actor}" + (f": {event.reason}" if event.reason else "")
        said = f"{step.error} ({said})" if step.error or holds else said
        return fail_for_good(draft, step, OPERATOR, step.category or Category.UNKNOWN, said, note=note)
    if holds:
        note = replace(note, spent=step.attempts, began_at=None)
        draft.make_ready(step, StepTrigger.OPERATOR_RETRIED, losses=0, note=note)
        return None
    draft.only_hot = False
    return retry_now(draft, replace(step, note=note))


def _complete(draft: Draft, step: Step, note: Note, output: bytes | None) -> Settled | None:
    """The step succeeds with what the person gave, if its rules hold."""
    digest = payload_digest(output)
    note = replace(note, output=None if output is None else output.decode())
    if note.grown is not None and note.grown.continues:
        # The output is that of the person, and names no successor.
        note = replace(note, grown=replace(note.grown, continues=False))
    if draft.planned(step).has_rules:
        note = replace(note, checked=step.fence)
        draft.make_ready(step, StepTrigger.OPERATOR_COMPLETED, digest=digest, note=note)
        return None
    return pass_rules(draft, draft.move(step, StepTrigger.OPERATOR_COMPLETED, note=note), digest)


def _decided_before(draft: Draft, step: Step, actor: str, decision: str) -> Reply:
    name, record = draft.planned(step).name, record_of(step)
    if record.get("by") == actor and record.get("decision") == decision:
        return Accepted({"step": name, **record}, repeated=True)
    said = f"step {name} of run {step.run_id}"
    if step.state in STEP_TERMINAL and record.get("decision") in DECISIONS.values():
        raise Conflict(f"{said} was {record['decision']} by {record['by']} first", {"step": name, **record})
    allowed = CHOICES.get(step.state)
    if allowed is None:
        why = WHY_NOT.get(step.state, "it has ended")
        raise Conflict(f"{said} is {step.state}, and there is nothing to decide: {why}", _stands(name, step))
    choices = " or ".join(choice for choice in HoldChoice if choice in allowed)
    raise Conflict(f"{said} is {step.state}; a person can only {choices} it now", _stands(name, step))


def _stands(name: str, step: Step) -> dict[str, str]:
    return {"step": name, "state": step.state}
