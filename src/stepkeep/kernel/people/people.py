"""Actions of people on a manual step: complete it, replace its token.

The first committed decision wins. The same decision by the same person again changes nothing and is not an error. Any
other decision is a conflict that names the winner. `decide` calls it; `votes.py` decides gates, and `stuck.py` is
about other steps.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.decide.decision import Accepted, Reply
from stepkeep.kernel.decide.draft import Draft, json_text
from stepkeep.kernel.decide.execution import pass_rules
from stepkeep.kernel.decide.failure import COMPLETION, Settled, fail_for_good
from stepkeep.kernel.decide.judging import judged_signal, record_verdict
from stepkeep.kernel.decide.progress import settle
from stepkeep.kernel.definition import Standing
from stepkeep.kernel.errors import Conflict, TokenExpired, TokenUsed, WrongToken
from stepkeep.kernel.machine.events import (
    CompletionSignalled,
    ManualOutcome,
    TokenReissued,
)
from stepkeep.kernel.machine.journal import payload_digest
from stepkeep.kernel.machine.rows import Note, Step
from stepkeep.kernel.machine.states import Category, StepState
from stepkeep.kernel.machine.tables import StepTrigger
from stepkeep.kernel.people.authority import Caller, MembershipKind
from stepkeep.kernel.people.eligibility import Moments, Voice, check_separation, voices_of
from stepkeep.kernel.people.persons import StepRecord, record_of
from stepkeep.kernel.people.separation import Act


def complete_by_hand(draft: Draft, event: CompletionSignalled) -> Reply:
    step = draft.named(event.no)
    name = draft.planned(step).name
    note = step.note or Note()
    if note.token is None or not hmac.compare_digest(note.token, event.token):
        raise WrongToken(f"the completion token does not match an open manual step {name} of run {event.run_id}")
    if step.state is not StepState.AWAITING_COMPLETION:
        return _completed_before(step, name, event)
    _check_deadline(draft, step, name)
    voice = check_duties(draft, step, event.bearer, event.on_behalf_of or event.actor)
    verdict = judged_signal(draft, step)
    record = _completion_record(draft, event, voice)
    draft.requested("completion_signalled", event, {"step": name, "outcome": event.outcome, **_proof(event, voice)})
    if verdict is not None:
        record_verdict(draft, name, verdict)
    note = replace(note, record=json_text(record))
    settle(draft, _complete(draft, step, note, event))
    return Accepted({"step": name, **record})


def _check_deadline(draft: Draft, step: Step, name: str) -> None:
    if step.due_at is not None and step.due_at <= draft.now:
        said = f"step {name} of run {step.run_id} was to be completed before its deadline, which has passed"
        raise TokenExpired(said, {"step": name, "state": step.state})


def check_duties(draft: Draft, step: Step, caller: Caller, subject: str) -> Voice:
    """The voice in which a person completes a step or decides its hold, unless the duties of the run rule it out."""
    [voice, *_] = voices_of(draft.authority(caller), subject, draft.now)
    moments = Moments(draft.now, draft.now, Standing.NOW)
    roles = frozenset(name for kind, name in moments.held(voice.memberships) if kind is MembershipKind.ROLE)
    planned = draft.planned(step)
    act = Act(step=planned.name, within=draft.plan.within(planned), names=voice.names, roles=roles)
    check_separation(draft, draft.plan.definition.duties or (), voice, act)
    return voice


def _proof(event: CompletionSignalled, voice: Voice) -> Mapping[str, str | None]:
    """What the journal keeps of a completion besides its outcome."""
    lent = {"for": voice.on_behalf_of, "delegation": voice.delegation} if voice.on_behalf_of else {}
    evidence = {"evidence": payload_digest(msgspec.json.encode(event.evidence))} if event.evidence else {}
    return {**lent, **evidence}


def reissue_token(draft: Draft, event: TokenReissued) -> Reply:
    """Replace the token of an open manual step. The old one is useless from now on; the deadline stays."""
    step = draft.named(event.no)
    name = draft.planned(step).name
    if step.state is not StepState.AWAITING_COMPLETION:
        said = f"step {name} of run {event.run_id} is {step.state}"
        raise Conflict(f"{said}; only a step that waits to be completed by hand has a token")
    _check_deadline(draft, step, name)
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


def _completion_record(draft: Draft, event: CompletionSignalled, voice: Voice) -> StepRecord:
    record: StepRecord = {"outcome": event.outcome.value, "by": event.actor, "at": draft.now}
    if voice.on_behalf_of is not None:
        record["for"] = voice.on_behalf_of
    if event.notes:
        record["notes"] = event.notes
    if event.evidence:
        record["evidence"] = list(event.evidence)
    if event.claim is not None:
        record["claim"] = msgspec.Raw(event.claim)
    return record


def _completed_before(step: Step, name: str, event: CompletionSignalled) -> Reply:
    record = record_of(step)
    if record.get("outcome") == event.outcome:
        return Accepted({"step": name, **record}, repeated=True)
    said, winner = f"step {name} of run {step.run_id} was", {"step": name, "state": step.state, **record}
    if record.get("outcome") == "expired":
        raise TokenExpired(f"{said} already {step.state}: it was not completed before its deadline", winner)
    if "outcome" in record:
        raise TokenUsed(f"{said} completed as {record['outcome']} by {record['by']}", winner)
    raise Conflict(f"{said} already {step.state}", winner)
