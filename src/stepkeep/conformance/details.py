"""What the detail of a cause may hold, by its event: the names, their types, and which report brings which.

The values come from outside and are free; what follows from them is checked elsewhere. A name that no such event
brings, or a value of another type, was not recorded by the engine. `reenact.py` calls it for each cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stepkeep.conformance.adoption import is_continuation
from stepkeep.conformance.limits import is_placed
from stepkeep.conformance.line import Line
from stepkeep.conformance.report import quoted
from stepkeep.conformance.schema import (
    FieldShape,
    Predicate,
    any_text,
    digest,
    is_persons,
    misfits,
    moment,
    text,
    whole,
)
from stepkeep.conformance.steps import is_granted


def _flag(value: Any) -> bool:
    return type(value) is bool


def _true(value: Any) -> bool:
    return value is True


def _integer(value: Any) -> bool:
    return type(value) is int


def _texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(text(item) for item in value)


def _verdicts(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(verdict, dict) for verdict in value.values())


def _free_slots(value: Any) -> bool:
    """Limits under which a slot was free: fewer held one than may."""
    return isinstance(value, list) and bool(value) and all(map(_is_free, value))


def _is_free(limit: Any) -> bool:
    if not isinstance(limit, dict) or limit.keys() != {"scope", "held", "most"}:
        return False
    held, most = limit["held"], limit["most"]
    return text(limit["scope"]) and type(held) is int and type(most) is int and 0 <= held < most


def _ends(value: Any) -> bool:
    """The ends of streams by their names: chunks, bytes and a digest."""
    return isinstance(value, dict) and bool(value) and all(text(name) and _is_end(end) for name, end in value.items())


def _is_end(end: Any) -> bool:
    if not isinstance(end, dict) or end.keys() != {"chunks", "bytes", "sha256"}:
        return False
    chunks, size = end["chunks"], end["bytes"]
    return type(chunks) is int and type(size) is int and 0 < chunks <= size and digest(end["sha256"])


_VOUCHED: dict[str, Predicate] = {"vouched_by": text, "key": text}
_NOTHING = FieldShape({}, {})
SHAPES: Mapping[str, FieldShape] = {
    "run_created": FieldShape(
        {},
        _VOUCHED
        | {
            "definition": digest, "input": digest, "start_at": moment, "asked_before": _texts,
            "policy_revision": whole, "continues": is_continuation, "awaits_slot": _true, "duty_rules": whole,
            "format": whole,
        },
    ),
    "run_started": FieldShape({}, _VOUCHED | {"start_at": moment, "asked_before": _texts}),
    "slot_granted": FieldShape({}, {"scopes": _free_slots}),
    "step_claimed": FieldShape({}, {"resources": is_granted, "limits": is_placed, "owner": text}),
    "message_arrived": FieldShape(
        {"id": any_text, "name": any_text}, _VOUCHED | {"kept_at": moment, "refused_by": _texts}
    ),
    "cancel_requested": FieldShape({"compensate": _flag}, _VOUCHED | {"reason": text}),
    "pause_requested": FieldShape({}, _VOUCHED | {"reason": text, "freeze": _true}),
    "unpause_requested": FieldShape({}, _VOUCHED | {"reason": text}),
    "gate_decided": FieldShape(
        {"step": text, "decision": text},
        _VOUCHED
        | {
            "comment": text, "for": text, "by_right_of": _texts, "delegation": text, "level": whole,
            "evidence": digest, "service": _true,
        },
    ),
    "changes_requested": FieldShape(
        {"step": text, "comment": text},
        _VOUCHED | {"for": text, "by_right_of": _texts, "delegation": text, "level": whole, "service": _true},
    ),
    "escalation_requested": FieldShape(
        {"step": text, "reason": text},
        _VOUCHED | {"for": text, "by_right_of": _texts, "delegation": text, "level": whole, "service": _true},
    ),
    "gate_reassigned": FieldShape({"step": text, "decision": text, "reason": text}, _VOUCHED | {"to": _texts}),
    "duty_violated": FieldShape({"step": text, "rule": text, "reason": text}, _VOUCHED),
    "checkpoint_recorded": FieldShape(
        {"step": text, "no": _integer, "checkpoint": text, "fence": whole, "digest": digest}, {}
    ),
    "annotated": FieldShape({"note": text}, _VOUCHED | {"step": text}),
    "hold_decided": FieldShape({"step": text, "decision": text}, _VOUCHED | {"reason": text}),
    "step_decided": FieldShape({"step": text, "decision": text, "reason": text}, _VOUCHED),
    "completion_signalled": FieldShape(
        {"step": text, "outcome": text}, _VOUCHED | {"for": text, "delegation": text, "evidence": digest}
    ),
    "child_ended": FieldShape({"step": text, "child": text, "state": text}, {"partial": _true, "persons": is_persons}),
    "token_reissued": FieldShape({"step": text, "reason": text}, _VOUCHED),
    "code_changed": FieldShape({"step": text, "code": text}, {}),
    "step_reported": FieldShape(
        {}, {"reason": text, "unfit": text, "waits_for": any_text, "takes_timeouts": _flag, "where": any_text,
         "count": whole, "until": any_text, "final": _true, "retry_in_us": _integer, "error_class": text,
         "streams": _ends}
    ),
}  # fmt: skip
"""The required and the optional names of each event's detail; every other event has no detail."""

ERROR_CLASSES = frozenset({"rate_limit", "5xx", "transport"})
"""How another system may fail (seed 003, 3.1)."""

JUDGED = frozenset(
    {
        "run_started", "step_reported", "time_came", "gate_decided", "gate_reassigned", "hold_decided",
        "step_decided", "completion_signalled", "message_arrived", "child_ended", "slot_granted",
    }
)  # fmt: skip
"""Events after which a step may open or be tried again: their detail may also have verdicts of policies."""

_WAIT = frozenset({"waits_for", "takes_timeouts", "where", "count", "until"})

REPORTS: Mapping[str, frozenset[str]] = {
    "released": frozenset({"reason"}),
    "held_unfit": frozenset({"reason", "unfit"}),
    "waited": _WAIT,
    "retry_scheduled": frozenset({"retry_in_us", "error_class", "unfit"}),
    "held_exhausted": frozenset({"retry_in_us", "error_class", "unfit", "final"}),
    "failed": _WAIT | {"final", "retry_in_us", "error_class", "unfit"},
    "failed_tolerated": _WAIT | {"final", "retry_in_us", "error_class", "unfit"},
    "completed": frozenset(),
    "completion_requested": frozenset(),
    "rules_passed": frozenset(),
    "rules_failed": frozenset(),
    "rules_failed_tolerated": frozenset(),
}
"""What a report may ask for, by the hop that it leads to; a step that is cancelled may have asked for anything.
A wait that the engine refuses fails the step. A step that no worker held is cancelled by the report of another step,
whose line has the detail."""


def check_detail(line: Line, asked: Mapping[str, Any]) -> Iterator[str]:
    """Every reason why the event of this line did not bring this detail."""
    shape = SHAPES.get(line.event, _NOTHING)
    if line.event in JUDGED:
        # Any of them may open steps: policies judge these, and some add elements to the plan.
        told = {name for name in ("policy", "plan_grown") if _verdicts(asked.get(name))}
        asked = {name: value for name, value in asked.items() if name not in told}
    if not asked and not shape.required:
        return
    for said in misfits(dict(asked), shape, "metadata.detail."):
        yield f"{said}; its event is {quoted(line.event)}"
    if (line.event, line.about) != ("step_reported", "step"):
        return
    asked = {name: value for name, value in asked.items() if name != "streams"}
    is_another = line.trigger == "cancelled" and line.took is None
    allowed = frozenset() if is_another else REPORTS.get(line.trigger, asked.keys())
    for name in sorted(asked.keys() - allowed):
        yield f"metadata.detail.{name} is {quoted(asked[name])}, but no report of a step {quoted(line.trigger)} says so"
    yield from _together(asked)


def _together(asked: Mapping[str, Any]) -> Iterator[str]:
    """What a report asks for fits together."""
    if len(asked.keys() & {"reason", "waits_for", "final", "retry_in_us"}) > 1:
        yield f"metadata.detail names {', '.join(sorted(asked))}: a report asks for one thing"
    if "waits_for" not in asked and asked.keys() & {"where", "count", "until"}:
        yield "metadata.detail chooses messages, and the report does not wait"
    if "error_class" in asked:
        if asked["error_class"] not in ERROR_CLASSES:
            yield f"metadata.detail.error_class is {quoted(asked['error_class'])}, which is no error class"
        if asked.keys() & {"reason", "waits_for", "final"}:
            yield "metadata.detail.error_class stands beside what is no failure that could be retried"
