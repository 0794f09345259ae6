"""Events of workers: claims, and reports under the fence of a claim.

A report is accepted only from the holder of a valid lease; any other is `Fenced`, and the worker drops its result. In a
stopping run, a step that asks for a retry, a wait or a manual completion ends cancelled. `decide` calls it; it runs
nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from msgspec import UNSET
from msgspec.structs import replace

from stepkeep.kernel.composition.added import add_rows, await_added, is_stopping, misfit_of_added, open_added, owner_of
from stepkeep.kernel.composition.child_runs import ask_for_successor
from stepkeep.kernel.composition.flows import (
    GrownRecord,
    calls_told,
    cancelled_now,
    made_calls,
    settled_calls,
    suspend,
    tried_code,
)
from stepkeep.kernel.decide.decision import Accepted, Reply
from stepkeep.kernel.decide.draft import Draft
from stepkeep.kernel.decide.failure import FAILED, RULES, Settled, fail_for_good
from stepkeep.kernel.decide.limits import asked_of, places_detail
from stepkeep.kernel.decide.progress import hold_reported, next_message, retry_now, settle
from stepkeep.kernel.decide.resources import grants_detail, resources_of
from stepkeep.kernel.decide.retry import asked_delay, delay_after, is_in_time, may_retry, may_retry_lost
from stepkeep.kernel.decide.stopping import LEASE_EXPIRED, NOT_RUN
from stepkeep.kernel.decide.streams import end_streams
from stepkeep.kernel.decide.waits import asked_by, deliver, misfit_of_wait
from stepkeep.kernel.errors import Conflict, Fenced, InvalidInput, NotAllowed
from stepkeep.kernel.machine.events import StepClaimed, StepReported
from stepkeep.kernel.machine.journal import payload_digest
from stepkeep.kernel.machine.outcomes import (
    Added,
    Completed,
    Failed,
    Outcome,
    Released,
    RulesFailed,
    RulesPassed,
    Stopped,
    Suspended,
    TimedOut,
    Waiting,
)
from stepkeep.kernel.machine.rows import Note, Step
from stepkeep.kernel.machine.states import STEP_TERMINAL, AttemptState, Category, ErrorClass, Phase, RunState, StepState
from stepkeep.kernel.machine.tables import RunTrigger, StepTrigger
from stepkeep.kernel.people.eligibility import claim_objection
from stepkeep.kernel.plan import PlannedStep

CLAIMABLE_PHASES = {
    RunState.QUEUED: Phase.MAIN,
    RunState.RUNNING: Phase.MAIN,
    RunState.VALIDATING: Phase.CHECK,
    RunState.COMPENSATING: Phase.UNDO,
}


BLOCKED_BY_GOVERNANCE = frozenset({"ioa"})
"""Formats whose agents block a step by reporting `governance` (seed 000, 3.1: block and escalate)."""

ABOUT_RULES = (RulesPassed, RulesFailed)
ABOUT_CHECKED_STEPS = (RulesPassed, RulesFailed, Released)


def claim(draft: Draft, event: StepClaimed) -> Reply:
    """The claim query proposed a step; it is leased only if it is still claimable and its run continues.

    Steps of one run are claimed by number, which is their dispatch order (seed 003, 1.2).
    """
    step = draft.named(event.no)
    if not draft.may_be_claimed(step, aside=True):
        raise Conflict(f"step {event.no} of run {event.run_id} is {step.state}; there is nothing to claim")
    if event.queues and len(draft.snapshot.steps) > 1:
        first = draft.next_claimable(event.queues)
        if first is not None and first.no < event.no:
            raise Conflict(f"step {first.no} of run {event.run_id} is ready; it comes before step {event.no}")
    if CLAIMABLE_PHASES.get(draft.state) is not draft.planned(step).phase:
        raise Conflict(f"run {event.run_id} is {draft.state}; its step {event.no} is not to be run now")
    detail: dict[str, Any] = {}
    if draft.plan.sets_aside:
        _check_resources(draft, step, event)
        _check_limits(draft, step, event)
        detail |= {"resources": grants_detail(event.resources)} if event.resources else {}
        detail |= {"limits": places_detail(event.limits)} if event.limits else {}
        detail |= _check_owner(draft, step, event)
    if any(one.units for one in event.limits):
        step = draft.noted(step, paid=step.attempts + 1)
    draft.caused_by("step_claimed", event.actor, detail)
    draft.move(
        step,
        StepTrigger.CLAIMED,
        fence=step.fence + 1,
        worker=event.worker,
        claimed_at=draft.now,
        due_at=draft.now + event.lease,
    )
    draft.claimed.append(event.no)
    return Accepted()


def _check_resources(draft: Draft, step: Step, event: StepClaimed) -> None:
    """A claim has every resource that its step needs, or none is taken."""
    given = {one.name: one.amount for one in event.resources}
    if (needed := resources_of(draft.planned(step))) != given:
        raise Conflict(f"step {event.no} of run {event.run_id} needs {', '.join(needed) or 'no resources'}; it waits")


def _check_limits(draft: Draft, step: Step, event: StepClaimed) -> None:
    """A claim has a place under each limit of its step, or under none."""
    given = [(one.name, one.key) for one in event.limits]
    asked = [(one.limit.name, one.key) for one in asked_of(draft.planned(step), step)]
    if given != asked:
        named = ", ".join(name for name, _ in asked) or "no limits"
        raise Conflict(f"step {event.no} of run {event.run_id} counts under {named}; it waits")


def _check_owner(draft: Draft, step: Step, event: StepClaimed) -> dict[str, str]:
    """Refuse an owner that duties rule out. The journal names the owner of a step with duties, for later ones."""
    if event.owner is None or not draft.plan.duties_on(draft.planned(step)):
        return {}
    if (found := claim_objection(draft, step, event.owner)) is not None:
        name = draft.planned(step).name
        said = f"workers of {event.owner} may not execute {name} of run {event.run_id}: {found.reason} ({found.rule})"
        raise NotAllowed(said, rule=found.rule, person=event.owner, reason=found.reason)
    draft.owners[event.no] = event.owner
    return {"owner": event.owner}


def report(draft: Draft, event: StepReported) -> Reply:
    """Accept a report from the holder of the lease only."""
    step = draft.named(event.no)
    if step.worker != event.worker or step.fence != event.fence:
        raise Fenced(_too_late(event, "another claim, an expiry or a cancel came first"))
    if step.due_at is None or step.due_at < draft.now:
        raise Fenced(_too_late(event, "the lease had run out"))
    outcome = event.outcome
    if step.state is StepState.VALIDATING and _said_before(step, outcome):
        return Accepted({"state": step.state}, repeated=True)
    planned = draft.planned(step)
    if not _fits(planned, step, outcome):
        said = type(outcome).__name__
        raise Conflict(f"step {event.no} of run {event.run_id} is {step.state}; {said} says nothing about that")
    if planned.by_hand and isinstance(outcome, Completed) and not outcome.token:
        raise InvalidInput(f"step {event.no} of run {event.run_id} is completed by hand; its report needs a token")
    if isinstance(outcome, Suspended) and not 0 <= outcome.seen <= settled_calls(step):
        raise InvalidInput(
            f"step {event.no} of run {event.run_id} has seen {outcome.seen} ends of calls; "
            f"{settled_calls(step)} of its calls have settled"
        )
    if isinstance(outcome, Suspended) and any(not 0 <= place < made_calls(step, outcome) for place in outcome.cancels):
        raise InvalidInput(f"step {event.no} of run {event.run_id} cancels calls that it has not made")
    asked: Mapping[str, Any] | None = _asked_for(outcome, planned, step)
    if event.streams:
        asked = {**(asked or {}), "streams": end_streams(draft, event)}
    draft.caused_by("step_reported", event.actor, asked)
    settle(draft, REPORTS[type(outcome)](draft, step, outcome))
    after = draft.step(event.no)
    if after.state is StepState.RETRYING and after.due_at is not None:
        return Accepted({"state": after.state, "due_in": after.due_at - draft.now})
    if after.settled is not None and planned.call is not None:
        return Accepted({"state": after.state, "settled": after.settled, "at": draft.now})
    if isinstance(outcome, Suspended) and outcome.cancels and after.state not in STEP_TERMINAL:
        return Accepted({"state": after.state, "cancelled": cancelled_now(draft, event.no, outcome), "at": draft.now})
    return Accepted({"state": after.state})


class ReportRecord(TypedDict, total=False):
    """What a report asks for beyond the definition."""

    reason: str
    unfit: str
    waits_for: str
    takes_timeouts: bool
    where: str
    count: int
    until: str
    plan_grown: Mapping[str, GrownRecord]
    final: bool
    retry_in_us: int
    error_class: str


def _asked_for(outcome: Outcome, planned: PlannedStep, step: Step) -> ReportRecord | None:
    """What the report asks for beyond the definition; the journal keeps it, so that a judge can re-enact it."""
    if type(outcome) is Completed:
        return None
    if isinstance(outcome, Released):
        told: ReportRecord = {} if outcome.reason is None else {"reason": outcome.reason}
        if outcome.unfit is not None:
            told["unfit"] = outcome.unfit
        return told if len(told) else None
    if isinstance(outcome, Waiting):
        waits: ReportRecord = {"waits_for": outcome.event, "takes_timeouts": outcome.takes_timeouts}
        if outcome.accepts is not None:
            waits["where"] = outcome.accepts
        if outcome.count is not None:
            waits["count"] = outcome.count
        if outcome.enough is not None:
            waits["until"] = outcome.enough
        return waits
    if isinstance(outcome, Suspended):
        is_told = outcome.calls or outcome.cancels
        return {"plan_grown": {planned.name: calls_told(step, outcome)}} if is_told else None
    if not isinstance(outcome, Failed):
        return None
    asked: ReportRecord = {} if outcome.unfit is None else {"unfit": outcome.unfit}
    if outcome.final or outcome.unrun:
        return {**asked, "final": True}
    if outcome.delay is not None:
        asked["retry_in_us"] = outcome.delay
    if outcome.error_class is not None and planned.retry.classes is not UNSET:
        asked["error_class"] = outcome.error_class.value
    return asked if len(asked) else None


def _said_before(step: Step, outcome: Outcome) -> bool:
    """A repeated completion by the same holder: the reply to the first one was lost."""
    return isinstance(outcome, Completed) and step.note is not None and step.note.checked == step.fence


def _fits(planned: PlannedStep, step: Step, outcome: Outcome) -> bool:
    """Reports of rules need a validating step, all others a running one; only rules keep a handler from running."""
    if step.state is StepState.VALIDATING:
        return isinstance(outcome, ABOUT_CHECKED_STEPS)
    if isinstance(outcome, Failed) and outcome.unrun:
        return planned.has_pre
    if isinstance(outcome, Suspended) or (isinstance(outcome, Released | Failed) and outcome.unfit is not None):
        return planned.kind.is_flow
    return not isinstance(outcome, ABOUT_RULES) or planned.phase is Phase.CHECK


def _too_late(event: StepReported, why: str) -> str:
    return f"the report on step {event.no} of run {event.run_id} (fence {event.fence}) came too late: {why}"


def _completed(draft: Draft, step: Step, outcome: Completed) -> Settled | None:
    planned = draft.planned(step)
    if step.unmet and planned.kind.is_flow:
        said = f"it returned, but {step.unmet} of its calls have not settled"
        return _failed(draft, step, Failed(category=Category.VALIDATION, error=said, final=True))
    draft.close_attempt(step, AttemptState.SUCCEEDED, outcome, output=outcome.output)
    digest = payload_digest(outcome.output)
    if planned.by_hand:
        if draft.state is RunState.STOPPING:
            draft.move(step, StepTrigger.CANCELLED, digest=digest)
            return None
        deadline = planned.definition.completion_deadline
        draft.move(
            step,
            StepTrigger.COMPLETION_REQUESTED,
            due_at=None if deadline is None else draft.now + deadline,
            digest=digest,
            note=replace(step.note or Note(), token=outcome.token, woken_by=None),
        )
        return None
    if planned.has_rules:
        note = replace(step.note or Note(), checked=step.fence)
        draft.move(step, StepTrigger.COMPLETED, keep_lease=True, digest=digest, note=note)
        return None
    return pass_rules(draft, draft.pass_through(step, StepTrigger.COMPLETED), digest)


def _added(draft: Draft, step: Step, outcome: Added) -> Settled | None:
    """The handler returned steps. That of the owner awaits them; an added step succeeds, and its owner awaits them."""
    said = misfit_of_added(draft, step, outcome)
    if said is not None:
        return _failed(draft, step, Failed(category=Category.VALIDATION, error=said, final=True, cost=outcome.cost))
    if draft.planned(step).owner is None:
        return await_added(draft, step, outcome)
    settled = _completed(draft, step, Completed(output=outcome.output, cost=outcome.cost, emit=outcome.emit))
    owner = owner_of(draft, step)
    awaits = owner.state is StepState.AWAITING_CHILDREN and not is_stopping(owner)
    if draft.state is RunState.STOPPING or not awaits or not outcome.calls:
        return settled
    added = add_rows(draft, owner, outcome.calls)
    # The owner is told of this end before others can end: it counts the steps that have not settled.
    settle(draft, settled)
    open_added(draft, owner.no, added)
    return None


def pass_rules(draft: Draft, step: Step, digest: str | None = None) -> Settled:
    """The rules of a validating step hold, or it has none. `digest` is that of an output that came in this decision."""
    if step.category is None and step.error is None:
        draft.move(step, StepTrigger.RULES_PASSED, digest=digest)
    else:
        draft.move(step, StepTrigger.RULES_PASSED, digest=digest, category=None, error=None)
    return Settled(step.no, StepState.SUCCEEDED)


def _waiting(draft: Draft, step: Step, outcome: Waiting) -> Settled | None:
    said = _no_wait(draft.planned(step).phase, outcome) or misfit_of_wait(draft, asked_by(outcome))
    if said is not None:
        wrong = Failed(category=Category.VALIDATION, error=said, final=True, cost=outcome.cost, emit=outcome.emit)
        return _failed(draft, step, wrong)
    if draft.state is RunState.STOPPING:
        draft.close_attempt(step, AttemptState.WAITED, outcome)
        draft.move(step, StepTrigger.CANCELLED)
        return None
    draft.close_attempt(step, AttemptState.WAITED, outcome)
    draft.move(
        step,
        StepTrigger.WAITED,
        due_at=None if outcome.timeout is None else draft.now + outcome.timeout,
        note=replace(
            step.note or Note(),
            event=outcome.event,
            takes_timeouts=outcome.takes_timeouts,
            takes=asked_by(outcome),
            gathered=(),
            woken_by=None,
        ),
    )
    while draft.step(step.no).state is StepState.AWAITING_EVENT:
        message = next_message(draft, outcome.event, step.no)
        if message is None:
            break
        deliver(draft, draft.step(step.no), message)
    return None


def _no_wait(phase: Phase, outcome: Waiting) -> str | None:
    """Why this wait is impossible: nothing would ever end it."""
    if phase is not Phase.MAIN:
        return "an undo hook cannot wait for an event" if phase is Phase.UNDO else "rules cannot wait for an event"
    return None if outcome.event else "a wait needs the name of an event"


def _failed(draft: Draft, step: Step, outcome: Failed) -> Settled | None:
    category, error = outcome.category, outcome.error
    if outcome.unrun:
        category, error = Category.VALIDATION, f"{NOT_RUN}{error}"
    elif error.startswith(NOT_RUN):
        # The words of a handler, which did run.
        error = f"failed: {error}"
    draft.close_attempt(step, AttemptState.FAILED, outcome, category=category, error=error)
    if outcome.blames is not None and step.note is not None and step.note.grown is not None:
        step = draft.noted(step, grown=replace(step.note.grown, blames=outcome.blames))
    if category is Category.GOVERNANCE and _asks_people(draft, step):
        hold_reported(draft, step, error)
        return None
    final = outcome.final or outcome.unrun
    return _after_failure(draft, step, category, error, outcome.delay, final, outcome.error_class, outcome.unfit)


def _asks_people(draft: Draft, step: Step) -> bool:
    """Whether a step that governance blocks waits for people instead of failing."""
    goes_on = draft.state is not RunState.STOPPING and draft.planned(step).phase is Phase.MAIN
    return goes_on and draft.plan.definition.dialect in BLOCKED_BY_GOVERNANCE


def _timed_out(draft: Draft, step: Step, outcome: TimedOut) -> Settled | None:
    category = Category.TIMEOUT
    draft.close_attempt(step, AttemptState.TIMED_OUT, outcome, category=category, error=outcome.error)
    return _after_failure(draft, step, category, outcome.error, None, False)


def _after_failure(
    draft: Draft,
    step: Step,
    category: Category,
    error: str,
    delay: int | None,
    final: bool,
    error_class: ErrorClass | None = None,
    unfit: str | None = None,
) -> Settled | None:
    retry, counted = draft.planned(step).retry, step.attempts + 1
    if final and unfit is not None:
        return _exhaust(draft, step, category, error, unfit, attempts=counted)
    if final:
        return fail_for_good(draft, step, FAILED, category, error, attempts=counted)
    used = counted - _spent(step)
    pause = delay_after(retry, used, run_id=step.run_id, no=step.no) if delay is None else asked_delay(retry, delay)
    pause = max(pause, 0)
    retried = may_retry(retry, category, used, error_class)
    if not retried or not is_in_time(retry, draft.now + pause, _began_at(draft, step)):
        return _exhaust(draft, step, category, error, unfit, attempts=counted)
    if draft.state is RunState.STOPPING:
        draft.move(step, StepTrigger.CANCELLED, attempts=counted, category=category, error=error)
        return None
    return _retry(draft, step, StepTrigger.RETRY_SCHEDULED, pause, attempts=counted, category=category, error=error)


def _exhaust(
    draft: Draft, step: Step, category: Category, error: str, unfit: str | None = None, **tally: Any
) -> Settled | None:
    """No attempt is left: the step fails, or holds for a decision if its definition says so and its run goes on. A flow
    whose own code failed holds in any case, until other code is there."""
    holds = draft.planned(step).stays_exhausted or unfit is not None
    if holds and step.state is StepState.RUNNING and draft.state is not RunState.STOPPING:
        note = replace(step.note or Note(), exhausted=True, woken_by=None)
        note = replace(note, tried=()) if unfit is None else tried_code(note, unfit)
        draft.move(step, StepTrigger.HELD_EXHAUSTED, category=category, error=error, note=note, **tally)
        return None
    return fail_for_good(draft, step, FAILED, category, error, **tally)


def _spent(step: Step) -> int:
    """The attempts before the last retry by a person; they are no part of the present budget."""
    return step.note.spent if step.note is not None else 0


def _began_at(draft: Draft, step: Step) -> int:
    """When the first failed or lost attempt of the present budget began."""
    if step.note is not None and step.note.began_at is not None:
        return step.note.began_at
    return draft.now if step.claimed_at is None else step.claimed_at


def _retry(draft: Draft, step: Step, trigger: StepTrigger, pause: int, **changes: Any) -> Settled | None:
    """Schedule another attempt; one that is due at once does not wait for a sweep."""
    if draft.planned(step).retry.max_elapsed is not UNSET:
        changes["note"] = replace(step.note or Note(), began_at=_began_at(draft, step))
    retrying = draft.move(step, trigger, due_at=draft.now + pause, **changes)
    return retry_now(draft, retrying) if pause == 0 else None


def _released(draft: Draft, step: Step, outcome: Released) -> Settled | None:
    draft.close_attempt(step, AttemptState.RELEASED, outcome, error=outcome.reason)
    if draft.state is RunState.STOPPING:
        draft.move(step, StepTrigger.CANCELLED)
    elif outcome.unfit is not None:
        note = replace(tried_code(step.note or Note(), outcome.unfit), exhausted=True, woken_by=None)
        draft.move(step, StepTrigger.HELD_UNFIT, error=outcome.reason, note=note)
    else:
        # Not `make_ready`: that would offer the step to the very worker that just let go of it.
        draft.move(step, StepTrigger.RELEASED, ready_at=draft.claimable_from(step, draft.now))
    return None


def _stopped(draft: Draft, step: Step, outcome: Stopped) -> Settled | None:
    if draft.state is not RunState.STOPPING:
        said = "the handler was cancelled"
        return _failed(draft, step, Failed(category=Category.UNKNOWN, error=said, cost=outcome.cost, emit=outcome.emit))
    draft.close_attempt(step, AttemptState.CANCELLED, outcome)
    draft.move(step, StepTrigger.CANCELLED)
    return None


def _rules_passed(draft: Draft, step: Step, outcome: RulesPassed) -> Settled | None:
    draft.close_attempt(step, AttemptState.SUCCEEDED, outcome)
    if step.state is StepState.RUNNING:
        step = draft.pass_through(step, StepTrigger.COMPLETED)
    settled = pass_rules(draft, step)
    if draft.planned(step).phase is Phase.CHECK:
        pass_run(draft)
        return None
    return settled


def pass_run(draft: Draft) -> None:
    """The run-level rules hold."""
    if draft.state is RunState.VALIDATING:
        draft.move_run(RunTrigger.RULES_PASSED)
        ask_for_successor(draft)


def _rules_failed(draft: Draft, step: Step, outcome: RulesFailed) -> Settled | None:
    draft.close_attempt(step, AttemptState.FAILED, outcome, category=Category.VALIDATION, error=outcome.error)
    if step.state is StepState.RUNNING:
        step = draft.pass_through(step, StepTrigger.COMPLETED)
    return fail_for_good(draft, step, RULES, Category.VALIDATION, outcome.error)


def lose(draft: Draft, step: Step) -> Settled | None:
    """A lease expired. The attempt counts, and so does the loss; the first limit reached ends the step.

    While rules run the handler is done, so no attempt is counted: only losses are limited there. The same is true of an
    undo, whose attempts are those that its handler answered.
    """
    error = LEASE_EXPIRED
    draft.close_attempt(step, AttemptState.LOST, error=error)
    handler_done = step.state is StepState.VALIDATING
    retry = draft.planned(step).retry
    counts = not handler_done and retry.counts_losses is not False
    counted, losses = step.attempts + counts, step.losses + 1
    tally: dict[str, Any] = {"attempts": counted, "losses": losses}
    in_time = handler_done or is_in_time(retry, draft.now, _began_at(draft, step))
    if not in_time or not may_retry_lost(retry, counted - _spent(step), losses):
        return _exhaust(draft, step, Category.POISON, error, **tally)
    if draft.state is RunState.STOPPING:
        draft.move(step, StepTrigger.CANCELLED, error=error, **tally)
    elif handler_done:
        draft.make_ready(step, StepTrigger.LEASE_LOST, error=error, **tally)
    else:
        return _retry(draft, step, StepTrigger.LEASE_LOST, 0, error=error, **tally)
    return None


REPORTS: dict[type[Outcome], Callable[[Draft, Step, Any], Settled | None]] = {
    Completed: _completed,
    Waiting: _waiting,
    Suspended: suspend,
    Added: _added,
    Failed: _failed,
    TimedOut: _timed_out,
    Released: _released,
    Stopped: _stopped,
    RulesPassed: _rules_passed,
    RulesFailed: _rules_failed,
}
