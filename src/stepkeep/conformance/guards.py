"""What each trigger of a step asks for, beside what its row in the table of `enabled.py` says: one guard for each.

A guard compares a hop with what the definition, the step's past and the cause determine. It reports the field, the
expected value and the reason, and changes nothing. Triggers that the definition rules out for a step need no guard:
they are in `PlannedRule.never`.
"""

from __future__ import annotations

from collections.abc import Iterator

from stepkeep.conformance.hop import JOURNAL_FORMAT, Guard, GuardedHop, Problem, wrong_field
from stepkeep.conformance.people import ASKED
from stepkeep.conformance.policies import BLOCKING, terms_of
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.steps import NOT_RUN
from stepkeep.conformance.timers import pause_us

DEADLINED = frozenset({"awaiting_event", "awaiting_completion"})
"""States whose timer is a deadline; that of an open gate may be a reminder."""

MAX_GATHERED = 100
"""How many messages one wait takes at most."""


def by_holder(hop: GuardedHop) -> Iterator[Problem]:
    holder, actor = hop.step.holder, hop.line.actor
    if holder not in (None, actor):
        yield Code.CAUSE, wrong_field("actor", actor, holder, "only the worker that claimed it reports")


def _wrong_event(hop: GuardedHop, expected: str, why: str) -> Problem:
    return Code.CAUSE, wrong_field("event", hop.line.event, expected, why)


def _text(hop: GuardedHop, name: str, why: str) -> Iterator[Problem]:
    """What a person or a report says with it."""
    found = hop.asked.get(name)
    if not isinstance(found, str) or not found.strip():
        yield Code.CAUSE, wrong_field(f"detail.{name}", found, "a text", why)


def _detail(hop: GuardedHop, name: str, wanted: str) -> Iterator[Problem]:
    for field, expected in ((name, wanted), ("step", hop.place.name)):
        if hop.asked.get(field) != expected:
            why = f"its cause must say so for {quoted(hop.line.trigger)}"
            yield Code.CAUSE, wrong_field(f"detail.{field}", hop.asked.get(field), expected, why)


# -- opening -------------------------------------------------------------------------------------------------------
def opens(hop: GuardedHop) -> Iterator[Problem]:
    """A step opens as its kind does, or is held by a policy; an agent may block it while it runs."""
    line = hop.line
    if line.trigger == "held" and line.source == "running":
        yield from _blocked(hop)
    elif line.trigger != hop.place.opens_by and (line.trigger != "held" or terms_of(hop.verdict) is None):
        yield Code.POLICY, f"trigger is {quoted(line.trigger)}, expected {quoted(hop.place.opens_by)}: its kind"


def _blocked(hop: GuardedHop) -> Iterator[Problem]:
    """Only the agent of a format that says so blocks its step, by a report."""
    if hop.line.event != "step_reported":
        yield _wrong_event(hop, "step_reported", "its agent reports that it is blocked")
    else:
        yield from by_holder(hop)
    if hop.contract.document.dialect not in BLOCKING or (hop.verdict or {}).get("by") != "agent":
        yield Code.POLICY, "it is held while it runs, but no agent of its format reports that it is blocked"


def starts(hop: GuardedHop) -> Iterator[Problem]:
    """The owner of elements begins with them; after an approved hold it was ready for a moment."""
    if hop.place.kind.suspends:
        if hop.line.source != "running" or hop.line.event != "step_reported":
            yield Code.CAUSE, "a flow, or a step that adds steps, waits by the report of the worker that runs it"
        else:
            yield from by_holder(hop)
    elif hop.line.source != "ready" or not hop.place.kind.owns:
        yield from opens(hop)


def by_condition(hop: GuardedHop) -> Iterator[Problem]:
    if hop.line.trigger == "condition_broken" and hop.place.is_length_open:
        return
    shows_facts = hop.gate is not None and hop.gate.facts is not None
    if hop.rule is None or (hop.rule.condition is None and not shows_facts):
        yield Code.POLICY, f"trigger is {quoted(hop.line.trigger)}, but the definition gives it no condition"


# -- attempts ------------------------------------------------------------------------------------------------------
def claimed(hop: GuardedHop) -> Iterator[Problem]:
    # The rules of a step that a person completed are judged in an attempt of their own.
    most = hop.place.retry.max_attempts + (hop.line.source == "validating")
    if hop.is_budget_known and hop.step.attempt - (hop.step.spent or 0) > most:
        said = f"attempt {hop.step.attempt} is claimed, but the definition allows {hop.place.retry.max_attempts}"
        yield Code.ATTEMPT, said


def in_time(hop: GuardedHop) -> Iterator[Problem]:
    if hop.line.due_at is None or hop.line.due_at < hop.line.at:
        yield Code.TIMER, wrong_field("due_at", hop.line.due_at, "the end of a lease that still holds", "it reports")


def passed(hop: GuardedHop) -> Iterator[Problem]:
    """A step with a detached child succeeds when the child is asked for, by any event."""
    events = ("step_reported", "completion_signalled", "child_ended", "hold_decided", "step_decided")
    if "rules_passed" not in hop.place.kind.follows and hop.line.event not in events:
        yield _wrong_event(hop, " or ".join(events), "only that leads to 'rules_passed'")


def waited(hop: GuardedHop) -> Iterator[Problem]:
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


def _classed(hop: GuardedHop) -> Iterator[Problem]:
    """An error class is recorded only where the definition names some: elsewhere no decision rests on it."""
    if "error_class" in hop.asked and hop.place.retry.classes is None:
        yield Code.CAUSE, "its cause has an error class, but the definition names none: metadata.detail"


def retried(hop: GuardedHop) -> Iterator[Problem]:
    line, retry = hop.line, hop.place.retry
    if (line.error or "").startswith(NOT_RUN):
        yield Code.POLICY, "it is retried, but a rule failed before its handler: that is final"
    if hop.asked.get("final") is True:
        yield Code.POLICY, "it is retried, but its handler ruled out another attempt"
    if line.due_at is not None and hop.is_in_time(line.due_at) is False:
        yield Code.ATTEMPT, f"it is retried at {line.due_at}, later than its definition allows (max_elapsed)"
    yield from _classed(hop)
    error_class = hop.asked.get("error_class")
    if hop.is_budget_known and not retry.allows(line.category, hop.counted, error_class):
        of = "" if error_class is None else f" ({quoted(error_class)})"
        said = f"it is retried after attempt {hop.counted} of {retry.max_attempts} failed as {quoted(line.category)}"
        yield Code.ATTEMPT, f"{said}{of}, which the definition rules out"


def lost(hop: GuardedHop) -> Iterator[Problem]:
    counted = hop.counted_with_loss
    if hop.step.losses is not None and not hop.place.retry.allows_loss(counted, hop.step.losses + 1):
        said = f"after {counted} attempts and {hop.step.losses + 1} losses it must fail"
        yield Code.ATTEMPT, f"it continues after a lost lease, but {said}"
    if hop.line.source == "running" and hop.is_in_time(hop.line.at) is False:
        yield Code.ATTEMPT, "it continues after a lost lease, later than its definition allows (max_elapsed)"


def failed(hop: GuardedHop) -> Iterator[Problem]:
    line, retry = hop.line, hop.place.retry
    if "unfit" in hop.asked and hop.is_stopping is False and line.target in ("failed", "skipped"):
        yield Code.POLICY, "it fails by an error of its own code: it must hold until other code is there"
    if (line.error or "").startswith(NOT_RUN):
        yield from _unrun(hop)
    elif line.event == "time_came":
        yield from _lost_for_good(hop)
    elif hop.asked.get("final") is not True and hop.is_budget_known:
        yield from _classed(hop)
        is_allowed = retry.allows(line.category, hop.counted, hop.asked.get("error_class"))
        if is_allowed and hop.is_in_time(line.at + pause_us(hop)):
            said = f"attempt {hop.counted} of {retry.max_attempts} failed as {quoted(line.category)}"
            yield Code.ATTEMPT, f"it fails for good although {said}: it must be tried again"


def _lost_for_good(hop: GuardedHop) -> Iterator[Problem]:
    line, retry, counted = hop.line, hop.place.retry, hop.counted_with_loss
    if hop.step.is_timer_known and (hop.step.due_at is None or line.at <= hop.step.due_at):
        yield Code.TIMER, f"its lease is lost at {line.at}, but it holds until {hop.step.due_at}"
    may_go_on = line.source != "running" or hop.is_in_time(line.at)
    if hop.step.losses is not None and may_go_on and retry.allows_loss(counted, hop.step.losses + 1):
        said = f"{counted} of {retry.max_attempts} attempts, {hop.step.losses + 1} of {retry.max_losses} losses"
        yield Code.ATTEMPT, f"it fails for good by a lost lease after {said}: it must be tried again"
    if line.category != "poison":
        yield Code.POLICY, wrong_field("category", line.category, "poison", "its last lease was lost")


def _unrun(hop: GuardedHop) -> Iterator[Problem]:
    """A rule that fails before the handler is final, and only a step with such rules has one."""
    if hop.rule is None or not hop.rule.pre:
        yield Code.POLICY, "its handler is said not to have run, but the definition gives it no rules before that"
    if hop.line.category != "validation":
        yield Code.POLICY, wrong_field("category", hop.line.category, "validation", "a rule failed before its handler")
    if hop.line.source != "running" or hop.line.event != "step_reported":
        yield Code.CAUSE, "its handler is said not to have run, but no worker reports that about a running step"


def held(hop: GuardedHop) -> Iterator[Problem]:
    is_own = "unfit" in hop.asked and hop.place.kind.waits_for == "calls"
    if not hop.place.is_held and not is_own and hop.step.tried is not None:
        yield Code.POLICY, "it holds when no attempt is left, but the definition does not say so"
    if hop.asked.get("final") is True and not is_own:
        yield Code.POLICY, "it holds, but its handler ruled out another attempt: it must fail"
    yield from failed(hop)


def unfit(hop: GuardedHop) -> Iterator[Problem]:
    yield from _text(hop, "unfit", "a flow whose code does not fit says which code")


def other_code(hop: GuardedHop) -> Iterator[Problem]:
    yield from _detail(hop, "step", hop.place.name)
    if hop.step.tried is None:
        return
    if not hop.step.tried:
        yield Code.POLICY, "other code makes it ready, but no code was said not to fit"
    elif hop.asked.get("code") in hop.step.tried:
        yield Code.POLICY, f"code {quoted(hop.asked.get('code'))} makes it ready, and was tried before"


# -- children ------------------------------------------------------------------------------------------------------
def child_succeeded(hop: GuardedHop) -> Iterator[Problem]:
    """The step ends as its child did; a detached child is not waited for."""
    if hop.line.trigger in hop.place.kind.follows:
        return
    if hop.place.undoes_child:
        yield from _hook_ends(hop, undone=True)
    elif hop.line.event != "child_ended":
        yield _wrong_event(hop, "child_ended", "only the end of its child does that")
    elif hop.asked.get("state") not in (None, "succeeded"):
        why = "the step ends as its child did"
        yield Code.CONTRADICTION, wrong_field("state", hop.asked.get("state"), "succeeded", why)


def _hook_ends(hop: GuardedHop, *, undone: bool) -> Iterator[Problem]:
    """A hook that rolls a child back ends as that rollback did; one that found nothing to undo was cancelled."""
    if hop.line.event != "child_ended":
        yield _wrong_event(hop, "child_ended", "only the end of the rollback does that")
        return
    state = hop.asked.get("state")
    if state is not None and undone != (state in ("rolled_back", "cancelled") and "partial" not in hop.asked):
        said = f"the rollback of its child has ended {quoted(state)}" + (", partial" if "partial" in hop.asked else "")
        yield Code.CONTRADICTION, f"trigger is {quoted(hop.line.trigger)}, but {said}"


def child_failed(hop: GuardedHop) -> Iterator[Problem]:
    if hop.place.undoes_child:
        yield from _hook_ends(hop, undone=False)
        return
    owns = hop.place.kind.owns
    if hop.asked.get("state") == "succeeded" and not owns:
        yield Code.CONTRADICTION, "its child has succeeded, but the step fails"
    if hop.asked.get("state") in ("rolled_back", "not_started") and "partial" in hop.asked and not owns:
        yield Code.CONTRADICTION, "its child has undone everything or never began, but left something of what it did"


# -- waits and people ----------------------------------------------------------------------------------------------
def _at_once(hop: GuardedHop) -> Iterator[Problem]:
    """A report ends a pause or a wait only in the entry that began it."""
    if hop.line.event == "step_reported" and hop.step.moved_in not in (None, hop.line.seq):
        ends = "time_came" if hop.line.trigger == "retry_due" else "message_arrived"
        yield _wrong_event(hop, ends, "its pause or wait began in an earlier entry")


def slept(hop: GuardedHop) -> Iterator[Problem]:
    if hop.line.event != "time_came" and hop.step.moved_in not in (None, hop.line.seq):
        yield _wrong_event(hop, "time_came", "its sleep began in an earlier entry")


def heard(hop: GuardedHop) -> Iterator[Problem]:
    yield from _at_once(hop)
    yield from _before_deadline(hop)


def retry_due(hop: GuardedHop) -> Iterator[Problem]:
    """A pause without a length ends by the cause that began it; a person may end any."""
    if hop.line.event == "step_decided":
        yield from _by_person(hop, "retried")
        return
    yield from _at_once(hop)
    found, expected = (hop.line.event, hop.line.actor), hop.step.moved_by
    if hop.step.moved_in == hop.line.seq and found != expected:
        yield Code.CAUSE, wrong_field("event and actor", found, expected, "its pause began and ended by one cause")


def _before_deadline(hop: GuardedHop) -> Iterator[Problem]:
    """A message, an outcome or a decision counts only before the deadline of what it ends. A wait that opens takes what
    came before."""
    due_at = hop.step.due_at
    if hop.format < JOURNAL_FORMAT and hop.line.source == "awaiting_event":
        return  # An earlier program took a late message until a worker had noticed the deadline.
    is_open = hop.step.is_timer_known and hop.step.moved_in != hop.line.seq
    if is_open and due_at is not None and hop.line.at >= due_at and hop.line.source in DEADLINED:
        yield Code.TIMER, f"{quoted(hop.line.trigger)} comes at {hop.line.at}, but its deadline passed at {due_at}"


def operator(wanted: str) -> Guard:
    """A person decides about a step that is stuck, or that holds because no attempt is left."""

    def guard(hop: GuardedHop) -> Iterator[Problem]:
        if hop.step.is_exhausted != (hop.line.event == "hold_decided"):
            expected = "hold_decided" if hop.step.is_exhausted else "step_decided"
            why = "a step that has no attempt left holds, and no other does"
            yield Code.POLICY, wrong_field("event", hop.line.event, expected, why)
        if hop.line.source == "awaiting_approval" and not hop.step.is_exhausted:
            yield Code.POLICY, f"trigger is {quoted(hop.line.trigger)}, but it waits for an approval"
        yield from _by_person(hop, wanted)
        yield from _before_deadline(hop)

    return guard


def _by_person(hop: GuardedHop, wanted: str) -> Iterator[Problem]:
    """What a person decided about a step, and why; a step that holds needs no reason."""
    if hop.line.event == "step_decided":
        yield from _text(hop, "reason", "a decision about a stuck step has one")
    yield from _detail(hop, "decision", wanted)


def manual(wanted: str) -> Guard:
    """The step is completed from outside."""

    def guard(hop: GuardedHop) -> Iterator[Problem]:
        yield from _detail(hop, "outcome", wanted)
        yield from _before_deadline(hop)

    return guard


def reissued(hop: GuardedHop) -> Iterator[Problem]:
    yield from _text(hop, "reason", "a new token has one")
    yield from _detail(hop, "step", hop.place.name)
    yield from _before_deadline(hop)


# -- gates ---------------------------------------------------------------------------------------------------------
def gate(wanted: str) -> Guard:
    """A gate is decided, or a hold; a step that holds because no attempt is left is not decided like that."""

    def guard(hop: GuardedHop) -> Iterator[Problem]:
        if hop.step.is_exhausted:
            yield Code.POLICY, f"trigger is {quoted(hop.line.trigger)}, but it holds because no attempt is left"
        yield from _detail(hop, "decision", wanted)

    return guard


def recorded(hop: GuardedHop) -> Iterator[Problem]:
    decision = hop.asked.get("decision")
    yield from gate(decision if decision in ("approved", "rejected") else "approved or rejected")(hop)


def sent_back(hop: GuardedHop) -> Iterator[Problem]:
    """A request for changes says what is to change."""
    if hop.step.is_exhausted:
        yield Code.POLICY, "changes are requested, but the step holds because no attempt is left"
    yield from _text(hop, "comment", "a request for changes has one")
    yield from _detail(hop, "step", hop.place.name)


def handed_over(hop: GuardedHop) -> Iterator[Problem]:
    if hop.step.takes_timeouts is False:
        yield Code.POLICY, "its deadline is handed over, but its handler does not take timeouts"


def deadline(hop: GuardedHop) -> Iterator[Problem]:
    """A deadline that fails its step."""
    if hop.line.source == "awaiting_event" and hop.step.fence and hop.step.takes_timeouts:
        yield Code.POLICY, "its deadline fails it, but its handler takes timeouts"
    if hop.gate is None or hop.line.source != "awaiting_approval":
        return
    is_last = hop.step.open_gate is None or hop.step.open_gate.level >= len(hop.gate.escalate)
    if hop.gate.on_deadline in ("approve", "skip") or (hop.gate.on_deadline == "escalate" and not is_last):
        yield Code.POLICY, f"its deadline fails it, but the definition says {quoted(hop.gate.on_deadline)}"
    yield from _deadline_of_gate(hop)


def _deadline_of_gate(hop: GuardedHop) -> Iterator[Problem]:
    """A reminder may come before the deadline; nothing else that time does to a gate may."""
    opened = hop.step.open_gate
    if opened is not None and (opened.due_at is None or hop.line.at < opened.due_at):
        yield Code.TIMER, f"its deadline counts at {hop.line.at}, but it is at {opened.due_at}"


def at_deadline(wanted: str) -> Guard:
    """A deadline that approves, skips or escalates."""

    def guard(hop: GuardedHop) -> Iterator[Problem]:
        found = None if hop.gate is None else hop.gate.on_deadline
        if found != wanted and (hop.gate is not None or "held" in hop.place.never):
            said = f"trigger is {quoted(hop.line.trigger)}, but the definition says {quoted(found)} at its deadline"
            yield Code.POLICY, said
        yield from _deadline_of_gate(hop)

    return guard


def escalated(hop: GuardedHop) -> Iterator[Problem]:
    """By its deadline, or before it by a person who says why."""
    opened = hop.step.open_gate
    if opened is not None and opened.level >= len(opened.rule.escalate):
        yield Code.POLICY, f"it escalates to level {opened.level + 1}, which the definition does not have"
    if hop.line.event != ASKED:
        yield from at_deadline("escalate")(hop)
        return
    yield from _text(hop, "reason", "an escalation by a person has one")
    yield from _detail(hop, "step", hop.place.name)


def reassigned(hop: GuardedHop) -> Iterator[Problem]:
    """By an operator, to other people, and with a reason."""
    yield from _detail(hop, "decision", "reassigned")
    if not hop.asked.get("to"):
        yield Code.CAUSE, wrong_field("detail.to", hop.asked.get("to"), "names", "a gate is reassigned to people")


def reminded(hop: GuardedHop) -> Iterator[Problem]:
    if hop.gate is None or hop.gate.remind is None:
        yield Code.POLICY, "it reminds, but the definition does not say so"
    due_at = None if hop.step.open_gate is None else hop.step.open_gate.due_at
    if due_at is not None and hop.line.at >= due_at:
        yield Code.TIMER, f"it reminds at {hop.line.at}, but its deadline passed at {due_at}"
