"""Which hop of a step is enabled, by the pinned definition: one guard per trigger.

A guard compares a hop with what the definition, the step's past and the cause determine. It reports the field, the
expected value and the reason, and changes nothing. `reenact.py` calls it before it records the hop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from stepkeep.conformance.contract import Contract, PlannedRule, StepRule
from stepkeep.conformance.growth import is_cancelled_by_owner
from stepkeep.conformance.line import Line
from stepkeep.conformance.people import ASKED, COMPLETES, GateRule
from stepkeep.conformance.policies import BLOCKING, JUDGED, Verdict, check_verdict, terms_of
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.steps import IN_DOUBT, LOST, NOT_RUN, TIMED, FollowedStep

Problem = tuple[Code, str]
JOURNAL_FORMAT = 2
"""The format of today's journals. Those before it do not tell for what a handler waits, nor that an attempt that was
closed is in doubt."""

FREE = object()
"""An expected value that the definition leaves open."""


class GuardedHop(NamedTuple):
    """A hop with everything that its guard reads. `asked` is the detail of its cause, and `verdict` what the
    policies said about the step. `is_stopping` is None where the log does not show whether its run stops."""

    line: Line
    step: FollowedStep
    place: PlannedRule
    contract: Contract
    asked: Mapping[str, Any]
    verdict: Verdict | None = None
    is_stopping: bool | None = False
    kept: int | None = None
    """When it ends, if it was open in the run that this one was migrated from."""
    format: int = JOURNAL_FORMAT
    """The format of the journal: an earlier program told less, and what it told is judged as today."""

    @property
    def gate(self) -> GateRule | None:
        """The terms of its gate: those of the policy that holds it, or those of its definition."""
        return self.step.terms or self.place.gate

    @property
    def rule(self) -> StepRule | None:
        return self.place.rule if self.place.phase == "main" else None

    @property
    def counted(self) -> int:
        """The attempts that the retry policy counts: those since the last retry by a person."""
        return (self.line.attempt or 0) - (self.step.spent or 0)

    @property
    def counted_with_loss(self) -> int:
        """The same after a lost lease, which uses up an attempt unless its handler was done or it is an undo."""
        return self.counted - (self.line.source != "running" or not self.place.retry.counts_losses)

    @property
    def is_budget_known(self) -> bool:
        """Whether the log shows every retry by a person; a step that never holds has none."""
        return not self.place.may_hold or self.step.spent is not None

    def is_in_time(self, due_at: int) -> bool | None:
        """Whether a retry that is due then keeps the limit of time; None where the log does not show it."""
        if self.place.retry.max_elapsed is None:
            return True
        began = self.step.began_at
        if began is None or not self.step.is_claim_known:
            return None
        return self.place.retry.is_in_time(due_at, began or self.step.claimed_at)


Guard = Callable[[GuardedHop], Iterator[Problem]]


def wrong_field(name: str, found: object, expected: object, why: str) -> str:
    """The text of a finding about one field."""
    return f"metadata.{name} is {quoted(found)}, expected {quoted(expected)}: {why}"


def check_enabled(hop: GuardedHop) -> Iterator[Problem]:
    """Every reason why this hop of a step cannot have happened like this."""
    line = hop.line
    kind, follows = hop.place.kind, line.trigger in hop.place.kind.follows
    events = None if follows else kind.events.get(line.trigger, EVENTS.get(line.trigger))
    if events is not None and line.event not in events:
        said = wrong_field("event", line.event, " or ".join(events), f"only that leads to {quoted(line.trigger)}")
        yield Code.CAUSE, said
    # The report of a flow after its deadline stops its calls, also those that another worker runs.
    is_stopped_call = hop.place.owner is not None and hop.place.phase == "main" and line.of is not None
    is_own = line.trigger in REPORTED or (line.trigger == "cancelled" and line.took is not None and not is_stopped_call)
    if line.event == "step_reported" and is_own and not follows:
        yield from _by_holder(hop)
    if line.of is not None and line.trigger not in WITH_OF:
        yield Code.CONTRADICTION, wrong_field("of", line.of, None, "no other step leads to this")
    yield from _tolerance(hop)
    yield from _reason(hop)
    if line.trigger in ANSWERS and hop.place.phase == "main":
        about = hop.place.concerned(... if hop.step.is_permit_unseen else hop.step.permit)
        for _, said in check_verdict(line.trigger, line.source, about, hop.verdict):
            yield Code.POLICY, said
    yield from GUARDS.get(line.trigger, _nothing)(hop)
    earliest = 0 if hop.step.is_timer_known or line.trigger not in TIMED else _earliest(hop)
    if line.at < earliest:
        yield Code.TIMER, f"{quoted(line.trigger)} comes at {line.at}, but it cannot have been due before {earliest}"
    due_at = _due_at(hop)
    if due_at is not FREE and line.due_at != due_at:
        yield Code.TIMER, wrong_field("due_at", line.due_at, due_at, _why_due(hop))


def _by_holder(hop: GuardedHop) -> Iterator[Problem]:
    holder, actor = hop.step.holder, hop.line.actor
    if holder not in (None, actor):
        yield Code.CAUSE, wrong_field("actor", actor, holder, "only the worker that claimed it reports")


def _nothing(hop: GuardedHop) -> Iterator[Problem]:
    yield from ()


# -- what every failure has in common --------------------------------------------------------------------------------
def _tolerance(hop: GuardedHop) -> Iterator[Problem]:
    """`on_failure: skip` tolerates every failure, and nothing else does."""
    hard, tolerated = hop.line.trigger in HARD, hop.line.trigger in TOLERATED
    if tolerated and not hop.place.is_tolerant:
        yield Code.POLICY, f"trigger is {quoted(hop.line.trigger)}, but the definition does not tolerate its failure"
    if hard and hop.place.is_tolerant:
        yield Code.POLICY, f"trigger is {quoted(hop.line.trigger)}, but the definition tolerates its failure (skip)"


def _reason(hop: GuardedHop) -> Iterator[Problem]:
    """The category that belongs to a trigger; hops without a failure have none."""
    line = hop.line
    expected = CATEGORIES.get((line.trigger, line.source or ""), CATEGORIES.get((line.trigger, ""), NO_CATEGORY))
    if line.trigger in ("deadline_passed", "deadline_tolerated") and line.source == "awaiting_approval":
        expected = ("timeout", "governance")
        if hop.gate is not None:
            expected = ("timeout",) if hop.gate.on_deadline == "fail" else ("governance",)
    if line.trigger == "condition_false" and not hop.place.is_tolerant:
        expected = NO_CATEGORY
    if expected is ANY_CATEGORY:
        if line.category is None:
            yield Code.SCHEMA, wrong_field("category", None, "a category", "a failure has one")
    elif line.category not in expected:
        words = " or ".join(map(str, expected))
        yield Code.POLICY, wrong_field("category", line.category, words, f"that is what {quoted(line.trigger)} means")
    yield from _error(hop)


def _error(hop: GuardedHop) -> Iterator[Problem]:
    """A failure has a text, whose words are free; an effect in doubt is said to be."""
    line = hop.line
    needs_error = line.category is not None or line.trigger in ("lease_lost", "held_unfit")
    if needs_error and line.error is None:
        yield Code.SCHEMA, wrong_field("error", None, "a text", "a failure has one")
    is_in_doubt = (line.error or "").startswith(IN_DOUBT)
    if _leaves_its_child(hop):
        if not is_in_doubt:
            why = "its child may still have run when its run waited no longer"
            yield Code.CONTRADICTION, wrong_field("error", line.error, IN_DOUBT, why)
    elif _hears_of_its_child(hop):
        yield from _what_its_child_left(hop)
    elif _is_closed_in_flight(hop):
        is_untold = hop.format < JOURNAL_FORMAT and line.error is None
        is_lost = (line.error or "").startswith(LOST) and line.event == "time_came"
        if not is_in_doubt and not is_lost and not is_untold:
            why = "its handler may still have run when the attempt was closed"
            yield Code.CONTRADICTION, wrong_field("error", line.error, IN_DOUBT, why)
    elif line.error is not None and not needs_error and not _is_lost_while_stopping(hop):
        yield Code.CONTRADICTION, wrong_field("error", line.error, None, "nothing failed here")


def _hears_of_its_child(hop: GuardedHop) -> bool:
    """Whether a step that called its child back is cancelled by the end of that child."""
    is_told = hop.asked.get("step") == hop.place.name
    return hop.line.trigger == "cancelled" and hop.line.event == "child_ended" and hop.place.awaits_child and is_told


def _what_its_child_left(hop: GuardedHop) -> Iterator[Problem]:
    """A step whose child left something of what it did says so."""
    error, expected = hop.line.error, "a text" if "partial" in hop.asked else None
    if (error is None) is not (expected is None):
        why = "its child left something of what it did" if expected else "its child left nothing"
        yield Code.CONTRADICTION, wrong_field("error", error, expected, why)


def _leaves_its_child(hop: GuardedHop) -> bool:
    """Whether a step of a stopping run is cancelled before its child has ended. A run that is cancelled at once only
    calls its children back."""
    line = hop.line
    if line.trigger != "cancelled" or line.source != "awaiting_children" or not hop.place.awaits_child:
        return False
    if line.event == "child_ended":
        return False
    if is_cancelled_by_owner(line, hop.place):
        return True  # its owner waited no longer: time came for it
    # A log that hides holds does not show whether a held child had been asked for.
    is_hidden = hop.is_stopping is None or (hop.step.was_held and not hop.step.is_timer_known)
    return (line.error or "").startswith(IN_DOUBT) if is_hidden else bool(hop.is_stopping)


def _is_closed_in_flight(hop: GuardedHop) -> bool:
    """Whether an attempt was cancelled without a report of its worker. Rules have no effect that could be in doubt.

    A flow that is suspended after its deadline ends its calls: the report is that of the flow.
    """
    in_flight = hop.line.trigger == "cancelled" and hop.line.source == "running" and hop.step.leased
    is_reported = hop.line.event == "step_reported" and hop.line.of is None
    return bool(in_flight and not is_reported and hop.place.phase != "check")


def _is_lost_while_stopping(hop: GuardedHop) -> bool:
    return bool(hop.line.trigger == "cancelled" and hop.line.event == "time_came" and hop.step.leased)


# -- one guard per trigger -------------------------------------------------------------------------------------------
def _opens(hop: GuardedHop) -> Iterator[Problem]:
    if hop.line.trigger == "held" and hop.line.source == "running":
        yield from _blocked(hop)
        return
    if hop.line.trigger == "held" and terms_of(hop.verdict) is not None:
        return
    if hop.line.trigger != hop.place.opens_by:
        yield Code.POLICY, f"trigger is {quoted(hop.line.trigger)}, expected {quoted(hop.place.opens_by)}: its kind"


def _blocked(hop: GuardedHop) -> Iterator[Problem]:
    """Only the agent of a format that says so blocks its step, by a report."""
    if hop.line.event != "step_reported":
        yield Code.CAUSE, wrong_field("event", hop.line.event, "step_reported", "its agent reports that it is blocked")
    else:
        yield from _by_holder(hop)
    if hop.contract.document.dialect not in BLOCKING or (hop.verdict or {}).get("by") != "agent":
        yield Code.POLICY, "it is held while it runs, but no agent of its format reports that it is blocked"


def _starts(hop: GuardedHop) -> Iterator[Problem]:
    """The owner of elements begins with them; after an approved hold it was ready for a moment."""
    if hop.place.kind.suspends:
        if hop.line.source != "running" or hop.line.event != "step_reported":
            yield Code.CAUSE, "a flow, or a step that adds steps, waits by the report of the worker that runs it"
        else:
            yield from _by_holder(hop)
    elif hop.line.source != "ready" or not hop.place.kind.owns:
        yield from _opens(hop)


def _woken(hop: GuardedHop) -> Iterator[Problem]:
    if hop.place.kind.waits_for != "calls":
        yield Code.POLICY, "it goes on after its calls, but the definition says that it makes none"


def _by_condition(hop: GuardedHop) -> Iterator[Problem]:
    if hop.line.trigger == "condition_broken" and hop.place.is_length_open:
        return
    shows_facts = hop.gate is not None and hop.gate.facts is not None
    if hop.rule is None or (hop.rule.condition is None and not shows_facts):
        yield Code.POLICY, f"trigger is {quoted(hop.line.trigger)}, but the definition gives it no condition"


def _claimed(hop: GuardedHop) -> Iterator[Problem]:
    if not hop.place.kind.is_claimed and not hop.place.undoes_child:
        yield Code.CLAIM, "it is claimed, but no worker runs a gate, a wait, a child or the owner of elements"
    # The rules of a step that a person completed are judged in an attempt of their own.
    is_judged = hop.line.source == "validating"
    most = hop.place.retry.max_attempts + is_judged
    if hop.is_budget_known and hop.step.attempt - (hop.step.spent or 0) > most:
        said = f"attempt {hop.step.attempt} is claimed, but the definition allows {hop.place.retry.max_attempts}"
        yield Code.ATTEMPT, said


def _completed(hop: GuardedHop) -> Iterator[Problem]:
    if hop.place.is_manual:
        yield Code.POLICY, "trigger is 'completed', expected 'completion_requested': it is completed manually"
    yield from _in_time(hop)


def _in_time(hop: GuardedHop) -> Iterator[Problem]:
    if hop.line.due_at is None or hop.line.due_at < hop.line.at:
        yield Code.TIMER, wrong_field("due_at", hop.line.due_at, "the end of a lease that still holds", "it reports")


def _has_rules(hop: GuardedHop) -> Iterator[Problem]:
    if not hop.place.is_checked:
        yield Code.POLICY, f"trigger is {quoted(hop.line.trigger)}, but the definition gives it no rules"


def _passed(hop: GuardedHop) -> Iterator[Problem]:
    """A step with a detached child succeeds when the child is asked for, by any event."""
    events = ("step_reported", "completion_signalled", "child_ended", "hold_decided", "step_decided")
    if "rules_passed" not in hop.place.kind.follows and hop.line.event not in events:
        said = wrong_field("event", hop.line.event, " or ".join(events), "only that leads to 'rules_passed'")
        yield Code.CAUSE, said


def _child(state: str) -> Guard:
    """The step ends as its child did; a detached child is not waited for."""

    def guard(hop: GuardedHop) -> Iterator[Problem]:
        kind = hop.place.kind
        if hop.line.trigger in kind.follows:
            return
        if hop.place.undoes_child:
            yield from _hook_ends(hop, undone=True)
        elif kind.waits_for != "child":
            yield Code.POLICY, f"trigger is {quoted(hop.line.trigger)}, but the definition gives it no child"
        elif hop.line.event != "child_ended":
            why = "only the end of its child does that"
            yield Code.CAUSE, wrong_field("event", hop.line.event, "child_ended", why)
        elif hop.asked.get("state") not in (None, state):
            why = "the step ends as its child did"
            yield Code.CONTRADICTION, wrong_field("state", hop.asked.get("state"), state, why)

    return guard


def _hook_ends(hop: GuardedHop, *, undone: bool) -> Iterator[Problem]:
    """A hook that rolls a child back ends as that rollback did; one that found nothing to undo was cancelled."""
    if hop.line.event != "child_ended":
        why = "only the end of the rollback does that"
        yield Code.CAUSE, wrong_field("event", hop.line.event, "child_ended", why)
        return
    state = hop.asked.get("state")
    if state is not None and undone != (state in ("rolled_back", "cancelled") and "partial" not in hop.asked):
        said = f"the rollback of its child has ended {quoted(state)}" + (", partial" if "partial" in hop.asked else "")
        yield Code.CONTRADICTION, f"trigger is {quoted(hop.line.trigger)}, but {said}"


def _child_failed(hop: GuardedHop) -> Iterator[Problem]:
    if hop.place.undoes_child:
        yield from _hook_ends(hop, undone=False)
        return
    owns = hop.place.kind.owns
    if hop.asked.get("state") == "succeeded" and not owns:
        yield Code.CONTRADICTION, "its child has succeeded, but the step fails"
    if hop.asked.get("state") in ("rolled_back", "not_started") and "partial" in hop.asked and not owns:
        yield Code.CONTRADICTION, "its child has undone everything or never began, but left something of what it did"


def _is_manual(hop: GuardedHop) -> Iterator[Problem]:
    if not hop.place.is_manual:
        yield Code.POLICY, f"trigger is {quoted(hop.line.trigger)}, but it is not completed manually"


MAX_GATHERED = 100
"""How many messages one wait takes at most."""


def _waited(hop: GuardedHop) -> Iterator[Problem]:
    is_untold = hop.format < JOURNAL_FORMAT and "waits_for" not in hop.asked
    is_told = isinstance(hop.asked.get("waits_for"), str) and type(hop.asked.get("takes_timeouts")) is bool
    if not is_told and not is_untold:
        yield Code.CAUSE, "it waits, but its cause does not say for what: metadata.detail"
    count = hop.asked.get("count")
    if count is not None and (type(count) is not int or not 1 <= count <= MAX_GATHERED or "until" in hop.asked):
        yield Code.POLICY, f"it waits for {quoted(count)} messages; a wait has an until, or takes 1 to {MAX_GATHERED}"
    if hop.place.phase != "main":
        yield Code.UNDO, "it waits; undo steps and rules must not"
    if hop.line.due_at is not None and hop.line.due_at < hop.line.at:
        yield Code.TIMER, wrong_field("due_at", hop.line.due_at, "a later time", "a wait ends after it began")


def _retried(hop: GuardedHop) -> Iterator[Problem]:
    if (hop.line.error or "").startswith(NOT_RUN):
        yield Code.POLICY, "it is retried, but a rule failed before its handler: that is final"
    if hop.asked.get("final") is True:
        yield Code.POLICY, "it is retried, but its handler ruled out another attempt"
    if hop.line.due_at is not None and hop.is_in_time(hop.line.due_at) is False:
        yield Code.ATTEMPT, f"it is retried at {hop.line.due_at}, later than its definition allows (max_elapsed)"
    yield from _classed(hop)
    error_class = hop.asked.get("error_class")
    if hop.is_budget_known and not hop.place.retry.allows(hop.line.category, hop.counted, error_class):
        said = f"it is retried after attempt {hop.counted} of {hop.place.retry.max_attempts}"
        of = "" if error_class is None else f" ({quoted(error_class)})"
        yield Code.ATTEMPT, f"{said} failed as {quoted(hop.line.category)}{of}, which the definition rules out"


def _classed(hop: GuardedHop) -> Iterator[Problem]:
    """An error class is recorded only where the definition names some: elsewhere no decision rests on it."""
    if "error_class" in hop.asked and hop.place.retry.classes is None:
        yield Code.CAUSE, "its cause has an error class, but the definition names none: metadata.detail"


def _lost(hop: GuardedHop) -> Iterator[Problem]:
    counted = hop.counted_with_loss
    if hop.step.losses is not None and not hop.place.retry.allows_loss(counted, hop.step.losses + 1):
        said = f"after {counted} attempts and {hop.step.losses + 1} losses it must fail"
        yield Code.ATTEMPT, f"it continues after a lost lease, but {said}"
    if hop.line.source == "running" and hop.is_in_time(hop.line.at) is False:
        yield Code.ATTEMPT, "it continues after a lost lease, later than its definition allows (max_elapsed)"


def _failed(hop: GuardedHop) -> Iterator[Problem]:
    line, retry = hop.line, hop.place.retry
    if "unfit" in hop.asked and hop.is_stopping is False and line.target in ("failed", "skipped"):
        yield Code.POLICY, "it fails by an error of its own code: it must hold until other code is there"
    if (line.error or "").startswith(NOT_RUN):
        yield from _unrun(hop)
        return
    if line.event == "time_came":
        counted = hop.counted_with_loss
        if hop.step.is_timer_known and (hop.step.due_at is None or line.at <= hop.step.due_at):
            yield Code.TIMER, f"its lease is lost at {line.at}, but it holds until {hop.step.due_at}"
        in_time = True if line.source != "running" else hop.is_in_time(line.at)
        if hop.step.losses is not None and in_time and retry.allows_loss(counted, hop.step.losses + 1):
            said = f"{counted} of {retry.max_attempts} attempts, {hop.step.losses + 1} of {retry.max_losses} losses"
            yield Code.ATTEMPT, f"it fails for good by a lost lease after {said}: it must be tried again"
        if line.category != "poison":
            yield Code.POLICY, wrong_field("category", line.category, "poison", "its last lease was lost")
    elif hop.asked.get("final") is True or not hop.is_budget_known:
        return
    elif "error_class" in hop.asked and retry.classes is None:
        yield from _classed(hop)
    elif retry.allows(line.category, hop.counted, hop.asked.get("error_class")) and hop.is_in_time(
        line.at + _pause_us(hop)
    ):
        said = f"attempt {hop.counted} of {retry.max_attempts} failed as {quoted(line.category)}"
        yield Code.ATTEMPT, f"it fails for good although {said}: it must be tried again"


def _unrun(hop: GuardedHop) -> Iterator[Problem]:
    """A rule that fails before the handler is final, and only a step with such rules has one."""
    if hop.rule is None or not hop.rule.pre:
        yield Code.POLICY, "its handler is said not to have run, but the definition gives it no rules before that"
    if hop.line.category != "validation":
        yield Code.POLICY, wrong_field("category", hop.line.category, "validation", "a rule failed before its handler")
    if hop.line.source != "running" or hop.line.event != "step_reported":
        yield Code.CAUSE, "its handler is said not to have run, but no worker reports that about a running step"


def _slept(hop: GuardedHop) -> Iterator[Problem]:
    if not hop.place.is_asleep:
        yield Code.POLICY, "it wakes up, but the definition does not let it sleep"
    if hop.line.event != "time_came" and hop.step.moved_in not in (None, hop.line.seq):
        yield Code.CAUSE, wrong_field("event", hop.line.event, "time_came", "its sleep began in an earlier entry")


def _not_asleep(hop: GuardedHop) -> Iterator[Problem]:
    if hop.place.is_asleep:
        yield Code.POLICY, f"trigger is {quoted(hop.line.trigger)}, but it sleeps: only its time ends that"


def _held(hop: GuardedHop) -> Iterator[Problem]:
    is_own = "unfit" in hop.asked and hop.place.kind.waits_for == "calls"
    if not hop.place.is_held and not is_own and hop.step.tried is not None:
        yield Code.POLICY, "it holds when no attempt is left, but the definition does not say so"
    if hop.asked.get("final") is True and not is_own:
        yield Code.POLICY, "it holds, but its handler ruled out another attempt: it must fail"
    yield from _failed(hop)


def _unfit(hop: GuardedHop) -> Iterator[Problem]:
    if not hop.asked.get("unfit"):
        why = "a flow whose code does not fit says which code"
        yield Code.CAUSE, wrong_field("detail.unfit", hop.asked.get("unfit"), "a text", why)


def _other_code(hop: GuardedHop) -> Iterator[Problem]:
    yield from _detail(hop, "step", hop.place.name)
    if hop.step.tried is None:
        return
    if not hop.step.tried:
        yield Code.POLICY, "other code makes it ready, but no code was said not to fit"
    elif hop.asked.get("code") in hop.step.tried:
        yield Code.POLICY, f"code {quoted(hop.asked.get('code'))} makes it ready, and was tried before"


def _operator(wanted: str) -> Guard:
    def guard(hop: GuardedHop) -> Iterator[Problem]:
        if hop.step.is_exhausted != (hop.line.event == "hold_decided"):
            why = "a step that has no attempt left holds, and no other does"
            yield Code.POLICY, wrong_field("event", hop.line.event, _decides(hop), why)
        if hop.line.source == "awaiting_approval" and not hop.step.is_exhausted:
            yield Code.POLICY, f"trigger is {quoted(hop.line.trigger)}, but it waits for an approval"
        yield from _by_person(hop, wanted)
        yield from _before_deadline(hop)

    return guard


def _decides(hop: GuardedHop) -> str:
    return "hold_decided" if hop.step.is_exhausted else "step_decided"


def _by_person(hop: GuardedHop, wanted: str) -> Iterator[Problem]:
    """What a person decided about a step, and why; a step that holds needs no reason."""
    reason = hop.asked.get("reason")
    if hop.line.event == "step_decided" and not (isinstance(reason, str) and reason.strip()):
        yield Code.CAUSE, wrong_field("detail.reason", reason, "a text", "a decision about a stuck step has one")
    yield from _detail(hop, "decision", wanted)


def _at_once(hop: GuardedHop) -> Iterator[Problem]:
    """A report ends a pause or a wait only in the entry that began it."""
    if hop.line.event == "step_reported" and hop.step.moved_in not in (None, hop.line.seq):
        ends = "time_came" if hop.line.trigger == "retry_due" else "message_arrived"
        yield Code.CAUSE, wrong_field("event", hop.line.event, ends, "its pause or wait began in an earlier entry")


def _heard(hop: GuardedHop) -> Iterator[Problem]:
    yield from _at_once(hop)
    yield from _not_asleep(hop)
    yield from _before_deadline(hop)


def _retry_due(hop: GuardedHop) -> Iterator[Problem]:
    """A pause without a length ends by the cause that began it; a person may end any."""
    if hop.line.event == "step_decided":
        yield from _by_person(hop, "retried")
        return
    yield from _at_once(hop)
    found, expected = (hop.line.event, hop.line.actor), hop.step.moved_by
    if hop.step.moved_in == hop.line.seq and found != expected:
        yield Code.CAUSE, wrong_field("event and actor", found, expected, "its pause began and ended by one cause")


def _handed_over(hop: GuardedHop) -> Iterator[Problem]:
    if hop.step.takes_timeouts is False:
        yield Code.POLICY, "its deadline is handed over, but its handler does not take timeouts"


def _deadline(hop: GuardedHop) -> Iterator[Problem]:
    yield from _not_asleep(hop)
    if hop.line.source == "awaiting_event" and hop.step.fence and hop.step.takes_timeouts:
        yield Code.POLICY, "its deadline fails it, but its handler takes timeouts"
    gate = hop.gate if hop.line.source == "awaiting_approval" else None
    if gate is None:
        return
    is_last = hop.step.open_gate is None or hop.step.open_gate.level >= len(gate.escalate)
    if gate.on_deadline in ("approve", "skip") or (gate.on_deadline == "escalate" and not is_last):
        yield Code.POLICY, f"its deadline fails it, but the definition says {quoted(gate.on_deadline)}"
    yield from _deadline_of_gate(hop)


def _deadline_of_gate(hop: GuardedHop) -> Iterator[Problem]:
    """A reminder may come before the deadline; nothing else that time does to a gate may."""
    opened = hop.step.open_gate
    if opened is not None and (opened.due_at is None or hop.line.at < opened.due_at):
        yield Code.TIMER, f"its deadline counts at {hop.line.at}, but it is at {opened.due_at}"


def _at_deadline(wanted: str) -> Guard:
    def guard(hop: GuardedHop) -> Iterator[Problem]:
        found = None if hop.gate is None else hop.gate.on_deadline
        if found != wanted and (hop.gate is not None or "held" in hop.place.never):
            said = f"trigger is {quoted(hop.line.trigger)}, but the definition says {quoted(found)} at its deadline"
            yield Code.POLICY, said
        if (hop.line.trigger == "deadline_approved") and (hop.rule is None or hop.rule.approval is None):
            yield Code.POLICY, "trigger is 'deadline_approved', but it is no gate"
        if (hop.line.trigger == "hold_deadline_approved") and (hop.rule is None or hop.rule.approval is not None):
            yield Code.POLICY, "trigger is 'hold_deadline_approved', but it is a gate"
        yield from _next_level(hop) if wanted == "escalate" else ()
        yield from _deadline_of_gate(hop)

    return guard


def _next_level(hop: GuardedHop) -> Iterator[Problem]:
    opened = hop.step.open_gate
    if opened is not None and opened.level >= len(opened.rule.escalate):
        yield Code.POLICY, f"it escalates to level {opened.level + 1}, which the definition does not have"


def _escalated(hop: GuardedHop) -> Iterator[Problem]:
    """By its deadline, or before it by a person who says why."""
    if hop.line.event != ASKED:
        yield from _at_deadline("escalate")(hop)
        return
    yield from _next_level(hop)
    reason = hop.asked.get("reason")
    if not isinstance(reason, str) or not reason.strip():
        yield Code.CAUSE, wrong_field("detail.reason", reason, "a text", "an escalation by a person has one")
    yield from _detail(hop, "step", hop.place.name)


def _reassigned(hop: GuardedHop) -> Iterator[Problem]:
    """By an operator, to other people, and with a reason."""
    yield from _detail(hop, "step", hop.place.name)
    yield from _detail(hop, "decision", "reassigned")
    if not hop.asked.get("to"):
        yield Code.CAUSE, wrong_field("detail.to", hop.asked.get("to"), "names", "a gate is reassigned to people")


def _reminded(hop: GuardedHop) -> Iterator[Problem]:
    if hop.gate is None or hop.gate.remind is None:
        yield Code.POLICY, "it reminds, but the definition does not say so"
    due_at = None if hop.step.open_gate is None else hop.step.open_gate.due_at
    if due_at is not None and hop.line.at >= due_at:
        yield Code.TIMER, f"it reminds at {hop.line.at}, but its deadline passed at {due_at}"


def _gate(wanted: str) -> Guard:
    def guard(hop: GuardedHop) -> Iterator[Problem]:
        if hop.step.is_exhausted:
            yield Code.POLICY, f"trigger is {quoted(hop.line.trigger)}, but it holds because no attempt is left"
        if hop.line.trigger == "approved" and (hop.rule is None or hop.rule.approval is None):
            yield Code.POLICY, "trigger is 'approved', but it is no gate: an approved hold makes it ready"
        if hop.line.trigger == "hold_approved" and (hop.rule is None or hop.rule.approval is not None):
            yield Code.POLICY, "trigger is 'hold_approved', but it is a gate: an approved gate succeeds"
        yield from _detail(hop, "decision", wanted)

    return guard


def _recorded(hop: GuardedHop) -> Iterator[Problem]:
    if hop.step.is_exhausted:
        yield Code.POLICY, "a decision is counted, but the step holds because no attempt is left"
    decision = hop.asked.get("decision")
    yield from _detail(hop, "decision", decision if decision in ("approved", "rejected") else "approved or rejected")


def _sent_back(hop: GuardedHop) -> Iterator[Problem]:
    """A request for changes says what is to change."""
    if hop.step.is_exhausted:
        yield Code.POLICY, "changes are requested, but the step holds because no attempt is left"
    comment = hop.asked.get("comment")
    if not isinstance(comment, str) or not comment.strip():
        yield Code.CAUSE, wrong_field("detail.comment", comment, "a text", "a request for changes has one")
    yield from _detail(hop, "step", hop.place.name)


def _manual(wanted: str) -> Guard:
    def guard(hop: GuardedHop) -> Iterator[Problem]:
        yield from _detail(hop, "outcome", wanted)
        yield from _before_deadline(hop)

    return guard


def _before_deadline(hop: GuardedHop) -> Iterator[Problem]:
    """A message, an outcome or a decision counts only before the deadline of what it ends. A wait that opens takes what
    came before."""
    due_at = hop.step.due_at
    if hop.format < JOURNAL_FORMAT and hop.line.source == "awaiting_event":
        return  # An earlier program took a late message until a worker had noticed the deadline.
    is_open = hop.step.is_timer_known and hop.step.moved_in != hop.line.seq
    if is_open and due_at is not None and hop.line.at >= due_at and hop.line.source in DEADLINED:
        yield Code.TIMER, f"{quoted(hop.line.trigger)} comes at {hop.line.at}, but its deadline passed at {due_at}"


def _reissued(hop: GuardedHop) -> Iterator[Problem]:
    reason = hop.asked.get("reason")
    if not isinstance(reason, str) or not reason.strip():
        yield Code.CAUSE, wrong_field("detail.reason", reason, "a text", "a new token has one")
    yield from _detail(hop, "step", hop.place.name)
    yield from _before_deadline(hop)


def _detail(hop: GuardedHop, name: str, wanted: str) -> Iterator[Problem]:
    for field, expected in ((name, wanted), ("step", hop.place.name)):
        if hop.asked.get(field) != expected:
            why = f"its cause must say so for {quoted(hop.line.trigger)}"
            yield Code.CAUSE, wrong_field(f"detail.{field}", hop.asked.get(field), expected, why)


# -- timers ----------------------------------------------------------------------------------------------------------
def _due_at(hop: GuardedHop) -> object:
    """When time moves the step next, after this hop."""
    line = hop.line
    if line.trigger in OPEN_DUE:
        return FREE
    if line.trigger == "children_started" and hop.place.kind.waits_for == "calls":
        return FREE
    if line.trigger == "children_started" and hop.rule is not None and hop.rule.growth is not None:
        return _after(line.at, hop.rule.growth.deadline)
    if (kept := _kept(hop)) is not None:
        return kept if hop.gate is None else hop.gate.timer(line.at, kept)
    if line.trigger == hop.place.opens_by and hop.place.is_length_open:
        # Its length follows from values that the log has digests of alone.
        return FREE if line.due_at is not None and line.due_at >= line.at else "a moment that is not past"
    if line.trigger == hop.place.opens_by and hop.place.wakes_at is not None:
        return max(hop.place.wakes_at, line.at)
    if hop.gate is not None and line.trigger in GATE_TIMERS:
        return _gate_timer(hop, hop.gate)
    if line.trigger == hop.place.opens_by:
        return _after(line.at, hop.place.opens_for_us)
    if line.trigger == "completion_requested":
        return _after(line.at, hop.rule.completion_deadline if hop.rule else None)
    if line.trigger in ("token_reissued", "decision_recorded", "changes_requested", "reassigned"):
        return hop.step.due_at if hop.step.is_timer_known else FREE
    if line.trigger == "retry_scheduled":
        return line.at + _pause_us(hop) if hop.is_budget_known or "retry_in_us" in hop.asked else _any_pause(hop)
    return line.at if line.trigger == "lease_lost" and line.target == "retrying" else None


def _kept(hop: GuardedHop) -> int | None:
    """The end of a wait or a gate that a migrated run opens again: that of the run before it, and never a later one
    than a new opening would have."""
    line = hop.line
    if hop.kept is None or line.seq != 1 or line.trigger not in ("gate_opened", "held", "wait_opened"):
        return None
    kept = max(hop.kept, line.at)
    lasts = hop.gate.deadline if hop.gate is not None else hop.place.opens_for_us
    limit = hop.place.wakes_at if hop.place.wakes_at is not None else _after(line.at, lasts)
    return kept if limit is None else min(kept, max(limit, line.at))


def _earliest(hop: GuardedHop) -> int:
    """The earliest moment of a deadline whose beginning is hidden: it began after the step was seen the last time."""
    place, source = hop.place, hop.line.source
    if source == "awaiting_children" and hop.rule is not None and hop.rule.child is not None and not place.kind.owns:
        return hop.step.seen_at + (hop.rule.child.deadline or 0)
    if source == "awaiting_completion":
        return hop.step.seen_at + ((hop.rule.completion_deadline if hop.rule else None) or 0)
    # A policy may hold a step on other terms than its own, so that a hidden hold has no known deadline.
    is_own = place.opens_by in ("gate_opened", "held", "wait_opened") and not hop.step.fence and not hop.step.was_held
    if source not in ("awaiting_approval", "awaiting_event") or not is_own or hop.line.trigger == "reminded":
        return 0
    lasts = place.opens_for_us if source == "awaiting_event" or hop.gate is None else hop.gate.shortest
    earliest = max(hop.step.seen_at + (lasts or 0), place.wakes_at or 0)
    return earliest if hop.kept is None else min(earliest, hop.kept)


def _gate_timer(hop: GuardedHop, gate: GateRule) -> object:
    """When a gate that opened, escalated or reminded is due next."""
    line, opened = hop.line, hop.step.open_gate
    if line.trigger in ("gate_opened", "held"):
        return gate.timer(line.at, _after(line.at, gate.deadline))
    if opened is None:
        return FREE
    if line.trigger == "reminded":
        return gate.timer(line.at, opened.due_at)
    levels = gate.levels
    level = min(opened.level + 1, len(levels) - 1)
    return gate.timer(line.at, _after(line.at, levels[level].deadline))


def _pause_us(hop: GuardedHop) -> int:
    asked = hop.asked.get("retry_in_us")
    if type(asked) is int:
        return hop.place.retry.asked_us(asked)
    return max(hop.place.retry.delay_us(hop.line.owner, hop.place.no, max(hop.counted, 1)), 0)


def _any_pause(hop: GuardedHop) -> object:
    """The pause after a retry where the log hides how many attempts its policy counts."""
    retry, line = hop.place.retry, hop.line
    most = min(line.attempt or 1, retry.max_attempts)
    ends = [line.at + max(retry.delay_us(line.owner, hop.place.no, counted), 0) for counted in range(1, most + 1)]
    return FREE if line.due_at in ends else ends[0]


def _why_due(hop: GuardedHop) -> str:
    reasons = {"retry_scheduled": "the backoff of its definition", "completion_requested": "its completion deadline"}
    return reasons.get(hop.line.trigger, "its deadline" if hop.line.trigger == hop.place.opens_by else "no timer")


def _after(at: int, duration_us: int | None) -> int | None:
    return None if duration_us is None else at + duration_us


# -- tables ----------------------------------------------------------------------------------------------------------
ANSWERS = JUDGED | COMPLETES | {"children_started"}
"""Hops of a main step that a policy was asked about."""

GATE_TIMERS = frozenset({"gate_opened", "held", "escalated", "reminded"})
"""Triggers after which the terms of a gate say when it is due."""

DEADLINED = frozenset({"awaiting_event", "awaiting_completion"})
"""States whose timer is a deadline; that of an open gate may be a reminder."""

OPEN_DUE = frozenset({"claimed", "completed", "waited"})
"""Triggers whose due time a worker or a handler chooses; their guards check its bounds."""

WITH_OF = frozenset(
    {
        "dependencies_met", "gate_opened", "held", "wait_opened", "children_started", "condition_false",
        "condition_broken", "dependency_unmet", "denied", "denied_tolerated", "cancelled",
    }
)  # fmt: skip
"""Triggers of which another step may be the reason."""

TOLERATED = frozenset(
    {
        "failed_tolerated", "rules_failed_tolerated", "deadline_tolerated", "rejected_tolerated",
        "completion_failed_tolerated", "operator_failed_tolerated", "denied_tolerated", "children_failed_tolerated",
    }
)  # fmt: skip
HARD = frozenset({word.removesuffix("_tolerated") for word in TOLERATED} - {"deadline"}) | {
    "deadline_passed",
    "condition_broken",
}

REPORTED = frozenset(
    {
        "completed", "released", "waited", "completion_requested", "retry_scheduled", "failed", "failed_tolerated",
        "rules_passed", "rules_failed", "rules_failed_tolerated", "held_exhausted", "held_unfit",
    }
)  # fmt: skip
"""Triggers that a report of the worker causes."""

_REPORT, _TIME, _PERSON = ("step_reported",), ("time_came",), ("hold_decided", "step_decided")
EVENTS: Mapping[str, tuple[str, ...]] = {
    "claimed": ("step_claimed",),
    "released": _REPORT,
    "completed": _REPORT,
    "waited": _REPORT,
    "completion_requested": _REPORT,
    "retry_scheduled": _REPORT,
    "rules_failed": _REPORT,
    "rules_failed_tolerated": _REPORT,
    "failed": ("step_reported", "time_came"),
    "failed_tolerated": ("step_reported", "time_came"),
    "held_exhausted": ("step_reported", "time_came"),
    "held_unfit": _REPORT,
    "code_changed": ("code_changed",),
    "operator_retried": ("hold_decided",),
    "operator_completed": _PERSON,
    "operator_skipped": _PERSON,
    "operator_failed": _PERSON,
    "operator_failed_tolerated": _PERSON,
    "lease_lost": _TIME,
    "retry_due": ("time_came", "step_reported", "step_decided"),
    "deadline_handed_over": _TIME,
    "deadline_passed": _TIME,
    "deadline_tolerated": _TIME,
    "deadline_approved": _TIME,
    "hold_deadline_approved": _TIME,
    "deadline_skipped": _TIME,
    "escalated": ("time_came", "escalation_requested"),
    "reassigned": ("gate_reassigned",),
    "reminded": _TIME,
    "decision_recorded": ("gate_decided",),
    "changes_requested": ("changes_requested",),
    "message_arrived": ("message_arrived", "step_reported"),
    "approved": ("gate_decided",),
    "hold_approved": ("gate_decided",),
    "rejected": ("gate_decided", "gate_reassigned"),
    "rejected_tolerated": ("gate_decided", "gate_reassigned"),
    "completion_succeeded": ("completion_signalled",),
    "completion_failed": ("completion_signalled",),
    "completion_failed_tolerated": ("completion_signalled",),
    "completion_cancelled": ("completion_signalled",),
    "children_failed": ("child_ended",),
    "children_failed_tolerated": ("child_ended",),
    "token_reissued": ("token_reissued",),
    "adopted": ("run_created",),
    "adopted_skipped": ("run_created",),
}
"""The events that can lead to a trigger; a trigger without a row may follow from any."""

NO_CATEGORY: tuple[str | None, ...] = (None,)
ANY_CATEGORY: tuple[str | None, ...] = ()
CATEGORIES: Mapping[tuple[str, str], tuple[str | None, ...]] = {
    ("failed", ""): ANY_CATEGORY,
    ("failed_tolerated", ""): ANY_CATEGORY,
    ("failed", "validating"): ("poison",),
    ("failed_tolerated", "validating"): ("poison",),
    ("retry_scheduled", ""): ANY_CATEGORY,
    ("held_exhausted", ""): ANY_CATEGORY,
    ("operator_failed", ""): ANY_CATEGORY,
    ("operator_failed_tolerated", ""): ANY_CATEGORY,
    ("rules_failed", ""): ("validation",),
    ("rules_failed_tolerated", ""): ("validation",),
    ("condition_broken", ""): ("validation",),
    ("condition_false", ""): (None, "validation"),
    ("denied", ""): ("governance",),
    ("denied_tolerated", ""): ("governance",),
    ("rejected", ""): ("governance",),
    ("rejected_tolerated", ""): ("governance",),
    ("deadline_passed", ""): ("timeout",),
    ("deadline_tolerated", ""): ("timeout",),
    ("children_failed", ""): ANY_CATEGORY,
    ("children_failed_tolerated", ""): ANY_CATEGORY,
    ("completion_failed", ""): ("external",),
    ("completion_failed_tolerated", ""): ("external",),
    ("cancelled", "running"): (
        None, "transient", "external", "timeout", "agent", "unknown",
    ),
}  # fmt: skip
"""The categories of a trigger, by the state that it leaves where that matters."""

GUARDS: Mapping[str, Guard] = {
    "dependencies_met": _opens,
    "gate_opened": _opens,
    "held": _opens,
    "wait_opened": _opens,
    "children_started": _starts,
    "children_succeeded": _child("succeeded"),
    "children_settled": _woken,
    "children_failed": _child_failed,
    "children_failed_tolerated": _child_failed,
    "rules_passed": _passed,
    "condition_false": _by_condition,
    "condition_broken": _by_condition,
    "claimed": _claimed,
    "completed": _completed,
    "rules_failed": _has_rules,
    "rules_failed_tolerated": _has_rules,
    "waited": _waited,
    "completion_requested": _is_manual,
    "retry_scheduled": _retried,
    "retry_due": _retry_due,
    "message_arrived": _heard,
    "lease_lost": _lost,
    "failed": _failed,
    "failed_tolerated": _failed,
    "slept": _slept,
    "wait_satisfied": _heard,
    "held_exhausted": _held,
    "held_unfit": _unfit,
    "code_changed": _other_code,
    "operator_retried": _operator("retried"),
    "operator_skipped": _operator("skipped"),
    "operator_completed": _operator("completed"),
    "operator_failed": _operator("failed"),
    "operator_failed_tolerated": _operator("failed"),
    "deadline_handed_over": _handed_over,
    "deadline_passed": _deadline,
    "deadline_tolerated": _deadline,
    "deadline_approved": _at_deadline("approve"),
    "hold_deadline_approved": _at_deadline("approve"),
    "deadline_skipped": _at_deadline("skip"),
    "escalated": _escalated,
    "reassigned": _reassigned,
    "reminded": _reminded,
    "decision_recorded": _recorded,
    "changes_requested": _sent_back,
    "approved": _gate("approved"),
    "hold_approved": _gate("approved"),
    "rejected": _gate("rejected"),
    "rejected_tolerated": _gate("rejected"),
    "completion_succeeded": _manual("Succeeded"),
    "completion_failed": _manual("Failed"),
    "completion_failed_tolerated": _manual("Failed"),
    "completion_cancelled": _manual("Cancelled"),
    "token_reissued": _reissued,
}
