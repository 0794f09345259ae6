"""Which hop of a step is enabled, by the pinned definition: one row per trigger.

A row has the events that lead to a trigger, the categories that it can have, its guard and its timer. `reenact.py`
calls `check_enabled` before it records a hop, and `words/shown.py` for each way to a line of a dialect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from stepkeep.conformance import guards, timers
from stepkeep.conformance.growth import is_cancelled_by_owner
from stepkeep.conformance.hop import JOURNAL_FORMAT, Guard, GuardedHop, Problem, Timer, wrong_field
from stepkeep.conformance.people import COMPLETES
from stepkeep.conformance.policies import JUDGED, check_verdict
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.steps import IN_DOUBT, LOST, TIMED

NO_CATEGORY: tuple[str | None, ...] = (None,)
ANY_CATEGORY: tuple[str | None, ...] = ()


class JudgedTrigger(NamedTuple):
    """One trigger of a step. Without `events`, it may follow from any; ANY_CATEGORY stands for each but none.

    `is_report`: the report of the worker that holds the step causes it. `of_another`: another step may be its reason.
    """

    events: tuple[str, ...] = ()
    guard: Guard | None = None
    timer: Timer = timers.never
    categories: tuple[str | None, ...] = NO_CATEGORY
    is_report: bool = False
    of_another: bool = False


_REPORT, _TIME, _PERSON = ("step_reported",), ("time_came",), ("hold_decided", "step_decided")
_LOST = (*_REPORT, *_TIME)
_DECIDED, _SIGNALLED, _REASSIGNED = ("gate_decided",), ("completion_signalled",), ("gate_reassigned",)
_VALIDATION, _GOVERNANCE = ("validation",), ("governance",)
_OPENS = JudgedTrigger((), guards.opens, timers.opened, of_another=True)
_APPROVES = JudgedTrigger(_TIME, guards.at_deadline("approve"))

TRIGGERS: dict[str, JudgedTrigger] = {
    "dependencies_met": _OPENS,
    "gate_opened": _OPENS,
    "held": _OPENS,
    "wait_opened": _OPENS,
    "children_started": _OPENS._replace(guard=guards.starts),
    "condition_false": JudgedTrigger((), guards.by_condition, categories=(None, "validation"), of_another=True),
    "condition_broken": JudgedTrigger((), guards.by_condition, categories=_VALIDATION, of_another=True),
    "dependency_unmet": JudgedTrigger(of_another=True),
    "denied": JudgedTrigger(categories=_GOVERNANCE, of_another=True),
    "cancelled": JudgedTrigger(of_another=True),
    "adopted": JudgedTrigger(("run_created",)),
    "adopted_skipped": JudgedTrigger(("run_created",)),
    "claimed": JudgedTrigger(("step_claimed",), guards.claimed, timers.free),
    "released": JudgedTrigger(_REPORT, is_report=True),
    "completed": JudgedTrigger(_REPORT, guards.in_time, timers.free, is_report=True),
    "waited": JudgedTrigger(_REPORT, guards.waited, timers.free, is_report=True),
    "completion_requested": JudgedTrigger(_REPORT, None, timers.until_completed, is_report=True),
    "retry_scheduled": JudgedTrigger(_REPORT, guards.retried, timers.retried, ANY_CATEGORY, is_report=True),
    "rules_passed": JudgedTrigger((), guards.passed, is_report=True),
    "rules_failed": JudgedTrigger(_REPORT, None, categories=_VALIDATION, is_report=True),
    "failed": JudgedTrigger(_LOST, guards.failed, categories=ANY_CATEGORY, is_report=True),
    "lease_lost": JudgedTrigger(_TIME, guards.lost, timers.at_once_if_retrying),
    "held_exhausted": JudgedTrigger(_LOST, guards.held, categories=ANY_CATEGORY, is_report=True),
    "held_unfit": JudgedTrigger(_REPORT, guards.unfit, is_report=True),
    "code_changed": JudgedTrigger(("code_changed",), guards.other_code),
    "retry_due": JudgedTrigger(("time_came", "step_reported", "step_decided"), guards.retry_due),
    "message_arrived": JudgedTrigger(("message_arrived", "step_reported"), guards.heard),
    "wait_satisfied": JudgedTrigger((), guards.heard),
    "slept": JudgedTrigger((), guards.slept),
    "children_succeeded": JudgedTrigger((), guards.child_succeeded),
    "children_failed": JudgedTrigger(("child_ended",), guards.child_failed, categories=ANY_CATEGORY),
    "operator_retried": JudgedTrigger(("hold_decided",), guards.operator("retried")),
    "operator_completed": JudgedTrigger(_PERSON, guards.operator("completed")),
    "operator_skipped": JudgedTrigger(_PERSON, guards.operator("skipped")),
    "operator_failed": JudgedTrigger(_PERSON, guards.operator("failed"), categories=ANY_CATEGORY),
    "deadline_handed_over": JudgedTrigger(_TIME, guards.handed_over),
    "deadline_passed": JudgedTrigger(_TIME, guards.deadline, categories=("timeout",)),
    "deadline_approved": _APPROVES,
    "hold_deadline_approved": _APPROVES,
    "deadline_skipped": JudgedTrigger(_TIME, guards.at_deadline("skip")),
    "escalated": JudgedTrigger(("time_came", "escalation_requested"), guards.escalated, timers.escalated),
    "reassigned": JudgedTrigger(_REASSIGNED, guards.reassigned, timers.unchanged),
    "reminded": JudgedTrigger(_TIME, guards.reminded, timers.reminded),
    "decision_recorded": JudgedTrigger(_DECIDED, guards.recorded, timers.unchanged),
    "changes_requested": JudgedTrigger(("changes_requested",), guards.sent_back, timers.unchanged),
    "approved": JudgedTrigger(_DECIDED, guards.gate("approved")),
    "hold_approved": JudgedTrigger(_DECIDED, guards.gate("approved")),
    "rejected": JudgedTrigger((*_DECIDED, *_REASSIGNED), guards.gate("rejected"), categories=_GOVERNANCE),
    "completion_succeeded": JudgedTrigger(_SIGNALLED, guards.manual("Succeeded")),
    "completion_failed": JudgedTrigger(_SIGNALLED, guards.manual("Failed"), categories=("external",)),
    "completion_cancelled": JudgedTrigger(_SIGNALLED, guards.manual("Cancelled")),
    "token_reissued": JudgedTrigger(("token_reissued",), guards.reissued, timers.unchanged),
}

HARD = {
    word: "deadline_tolerated" if word == "deadline_passed" else f"{word}_tolerated"
    for word in (
        "failed", "rules_failed", "deadline_passed", "rejected", "completion_failed", "operator_failed", "denied",
        "children_failed",
    )
}  # fmt: skip
"""Failures, and what each is called where the definition tolerates it: that asks for the same."""
TRIGGERS |= {tolerated: TRIGGERS[word] for word, tolerated in HARD.items()}
TOLERATED = frozenset(HARD.values())

CATEGORIES: Mapping[tuple[str, str | None], tuple[str | None, ...]] = {
    ("failed", "validating"): ("poison",),
    ("failed_tolerated", "validating"): ("poison",),
    ("cancelled", "running"): (None, "transient", "external", "timeout", "agent", "unknown"),
}
"""The categories of a trigger where the state that it leaves matters."""

ANSWERS = JUDGED | COMPLETES | {"children_started"}
"""Hops of a main step that a policy was asked about."""

ANY_TRIGGER = JudgedTrigger()


def check_enabled(hop: GuardedHop) -> Iterator[Problem]:
    """Every reason why this hop of a step cannot have happened like this."""
    line, row = hop.line, TRIGGERS.get(hop.line.trigger, ANY_TRIGGER)
    if line.trigger in hop.place.never:
        said = f"trigger is {quoted(line.trigger)}, which the definition rules out for this step"
        yield Code.POLICY, f"{said} ({hop.place.kind.word})"
    yield from _cause(hop, row)
    yield from _tolerance(hop)
    yield from _reason(hop, row)
    if line.trigger in ANSWERS and hop.place.phase == "main":
        about = hop.place.concerned(... if hop.step.is_permit_unseen else hop.step.permit)
        for _, said in check_verdict(line.trigger, line.source, about, hop.verdict):
            yield Code.POLICY, said
    if row.guard is not None:
        yield from row.guard(hop)
    yield from _time(hop, row)


def _cause(hop: GuardedHop, row: JudgedTrigger) -> Iterator[Problem]:
    """Only some events lead to a trigger, and only the holder of a step reports."""
    line, kind = hop.line, hop.place.kind
    if line.of is not None and not row.of_another:
        yield Code.CONTRADICTION, wrong_field("of", line.of, None, "no other step leads to this")
    if line.trigger in kind.follows:
        return
    events = kind.events.get(line.trigger, row.events)
    if events and line.event not in events:
        said = wrong_field("event", line.event, " or ".join(events), f"only that leads to {quoted(line.trigger)}")
        yield Code.CAUSE, said
    # The report of a flow after its deadline stops its calls, also those that another worker runs.
    is_stopped_call = hop.place.owner is not None and hop.place.phase == "main" and line.of is not None
    is_cut_off = line.trigger == "cancelled" and line.took is not None and not is_stopped_call
    if line.event == "step_reported" and (row.is_report or is_cut_off):
        yield from guards.by_holder(hop)


def _time(hop: GuardedHop, row: JudgedTrigger) -> Iterator[Problem]:
    line = hop.line
    earliest = 0 if hop.step.is_timer_known or line.trigger not in TIMED else timers.earliest(hop)
    if line.at < earliest:
        yield Code.TIMER, f"{quoted(line.trigger)} comes at {line.at}, but it cannot have been due before {earliest}"
    due_at = row.timer(hop)
    if due_at is not timers.FREE and line.due_at != due_at:
        reasons = {"retry_scheduled": "the backoff of its definition", hop.place.opens_by: "its deadline"}
        yield Code.TIMER, wrong_field("due_at", line.due_at, due_at, reasons.get(line.trigger, "no timer"))


# -- what every failure has in common --------------------------------------------------------------------------------
def _reason(hop: GuardedHop, row: JudgedTrigger) -> Iterator[Problem]:
    """The category that belongs to a trigger; hops without a failure have none."""
    line, expected = hop.line, CATEGORIES.get((hop.line.trigger, hop.line.source), row.categories)
    if line.trigger in ("deadline_passed", "deadline_tolerated") and line.source == "awaiting_approval":
        by_gate = {"fail": ("timeout",), "": ("timeout", "governance")}
        expected = by_gate.get("" if hop.gate is None else hop.gate.on_deadline, _GOVERNANCE)
    elif line.trigger == "condition_false" and not hop.place.is_tolerant:
        expected = NO_CATEGORY
    if line.category is None if expected is ANY_CATEGORY else line.category not in expected:
        words = " or ".join(map(str, expected)) or "a category"
        yield Code.POLICY, wrong_field("category", line.category, words, f"that is what {quoted(line.trigger)} means")
    if line.error is not None or line.category is not None or line.trigger in NEED_ERROR:
        yield from _error(hop)


def _tolerance(hop: GuardedHop) -> Iterator[Problem]:
    """`on_failure: skip` tolerates every failure, and nothing else does."""
    line, is_tolerant = hop.line, hop.place.is_tolerant
    if line.trigger in TOLERATED if not is_tolerant else line.trigger in HARD or line.trigger == "condition_broken":
        tolerates = "tolerates its failure (skip)" if is_tolerant else "does not tolerate its failure"
        yield Code.POLICY, f"trigger is {quoted(line.trigger)}, but the definition {tolerates}"


NEED_ERROR = frozenset({"lease_lost", "held_unfit", "cancelled"})


def _error(hop: GuardedHop) -> Iterator[Problem]:
    """A failure has a text, whose words are free; an effect in doubt is said to be."""
    line = hop.line
    needs_error = line.category is not None or line.trigger in ("lease_lost", "held_unfit")
    if needs_error and line.error is None:
        yield Code.SCHEMA, wrong_field("error", None, "a text", "a failure has one")
    if _leaves_its_child(hop):
        if not (line.error or "").startswith(IN_DOUBT):
            why = "its child may still have run when its run waited no longer"
            yield Code.CONTRADICTION, wrong_field("error", line.error, IN_DOUBT, why)
    elif _hears_of_its_child(hop):
        if (line.error is None) is ("partial" in hop.asked):
            expected, why = ("a text", "its child left something of what it did")
            if line.error is not None:
                expected, why = "None", "its child left nothing"
            yield Code.CONTRADICTION, wrong_field("error", line.error, expected, why)
    elif _is_closed_in_flight(hop):
        yield from _closed(hop)
    elif line.error is not None and not needs_error and not _is_lost_while_stopping(hop):
        yield Code.CONTRADICTION, wrong_field("error", line.error, None, "nothing failed here")


def _closed(hop: GuardedHop) -> Iterator[Problem]:
    """An attempt that is closed while it is in flight leaves its effect in doubt."""
    error = hop.line.error or ""
    is_untold = hop.format < JOURNAL_FORMAT and hop.line.error is None
    is_lost = error.startswith(LOST) and hop.line.event == "time_came"
    if not error.startswith(IN_DOUBT) and not is_lost and not is_untold:
        why = "its handler may still have run when the attempt was closed"
        yield Code.CONTRADICTION, wrong_field("error", hop.line.error, IN_DOUBT, why)


def _hears_of_its_child(hop: GuardedHop) -> bool:
    """Whether a step that called its child back is cancelled by the end of that child."""
    is_told = hop.asked.get("step") == hop.place.name
    return hop.line.trigger == "cancelled" and hop.line.event == "child_ended" and hop.place.awaits_child and is_told


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
