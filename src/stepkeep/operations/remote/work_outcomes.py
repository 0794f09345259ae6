"""The outcome of an attempt as JSON, for workers that report over HTTP: one table, read in both directions.

A field that an outcome does not have is refused, because a report must not lose anything. It decides nothing; the
kernel judges the outcome like that of any other worker. `remote_work` and the remote worker call it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import msgspec

from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.outcomes import (
    Completed,
    Emitted,
    Failed,
    NewCall,
    Outcome,
    Released,
    RulesFailed,
    RulesPassed,
    Stopped,
    TimedOut,
    Waiting,
)
from stepkeep.kernel.machine.states import Category, ErrorClass
from stepkeep.operations.remote.asked_calls import AskedCalls, Proposed

KINDS: dict[str, tuple[type[Outcome], dict[str, str]]] = {
    "completed": (Completed, {"output": "output", "token_sha256": "token"}),
    "then": (Proposed, {"steps": "steps", "output": "output"}),
    "suspended": (AskedCalls, {"calls": "calls", "seen": "seen", "code": "code", "cancels": "cancels"}),
    "waiting": (
        Waiting,
        {
            "event": "event",
            "timeout_us": "timeout",
            "takes_timeouts": "takes_timeouts",
            "where": "accepts",
            "count": "count",
            "until": "enough",
        },
    ),
    "failed": (
        Failed,
        {
            "error": "error",
            "category": "category",
            "delay_us": "delay",
            "final": "final",
            "unrun": "unrun",
            "error_class": "error_class",
            "unfit": "unfit",
            "blames": "blames",
        },
    ),
    "timed_out": (TimedOut, {"error": "error"}),
    "released": (Released, {"reason": "reason", "unfit": "unfit"}),
    "stopped": (Stopped, {}),
    "rules_passed": (RulesPassed, {}),
    "rules_failed": (RulesFailed, {"error": "error"}),
}
"""Each kind of outcome, its class, and its fields in JSON with their names in the kernel."""

NEEDED = {"then": ("steps",), "waiting": ("event",), "failed": ("error",), "rules_failed": ("error",)}
EVERYWHERE = ("kind", "cost", "emit")

_encode = msgspec.json.Encoder().encode


def outcome_of(given: Mapping[str, Any]) -> Outcome:
    """The outcome that a report tells. Raises InvalidInput.

    >>> outcome_of({"kind": "failed", "error": "no answer", "category": "external"}).category
    <Category.EXTERNAL: 'external'>
    """
    kind = given.get("kind")
    if kind not in KINDS:
        raise InvalidInput(f"the kind of an outcome is one of {', '.join(KINDS)}.")
    made, fields = KINDS[kind]
    if unknown := sorted(set(given) - fields.keys() - set(EVERYWHERE)):
        raise InvalidInput(f"an outcome of the kind {kind} has no field {unknown[0]!a}.")
    if missing := [name for name in NEEDED.get(kind, ()) if given.get(name) is None]:
        raise InvalidInput(f"an outcome of the kind {kind} needs the field {missing[0]}.")
    values: dict[str, Any] = {fields[name]: given[name] for name in given if name in fields}
    for name in ("output", "steps"):
        if name in values:
            values[name] = _json(values[name])
    if "calls" in values:
        values["calls"] = tuple(
            NewCall(
                kind=one["kind"],
                name=one["name"],
                digest=one["digest"],
                arguments=_json(one.get("arguments")),
                step=_json(one["step"]).decode(),
            )
            for one in values["calls"] or ()
        )
    if "cancels" in values:
        values["cancels"] = tuple(values["cancels"] or ())
    if made is Failed:
        values["category"] = _choice(Category, values.get("category") or Category.UNKNOWN)
        if values.get("error_class") is not None:
            values["error_class"] = _choice(ErrorClass, values["error_class"])
    if values.get("blames") is not None:
        values["blames"] = tuple(values["blames"])
    if given.get("cost") is not None:
        values["cost"] = _json(given["cost"])
    values["emit"] = tuple(Emitted(one["name"], _json(one.get("payload"))) for one in given.get("emit") or ())
    return made(**values)


def outcome_json(outcome: Outcome) -> Mapping[str, object]:
    """The JSON form of an outcome. Payloads keep their bytes."""
    kind, fields = next((kind, fields) for kind, (made, fields) in KINDS.items() if isinstance(outcome, made))
    told: dict[str, object] = {"kind": kind}
    for name, field in fields.items():
        value = getattr(outcome, field)
        if name == "calls":
            told[name] = [_call_json(call) for call in value]
        elif value is not None and value != ():
            told[name] = msgspec.Raw(value) if isinstance(value, bytes) else value
    if outcome.cost is not None:
        told["cost"] = msgspec.Raw(outcome.cost)
    if outcome.emit:
        told["emit"] = [{"name": one.name, "payload": msgspec.Raw(one.payload)} for one in outcome.emit]
    return told


class _CallJson(TypedDict):
    kind: str
    name: str
    digest: str | None
    arguments: msgspec.Raw
    step: msgspec.Raw


def _call_json(call: NewCall) -> _CallJson:
    return {
        "kind": call.kind,
        "name": call.name,
        "digest": call.digest,
        "arguments": msgspec.Raw(call.arguments),
        "step": msgspec.Raw(call.step.encode()),
    }


def _json(value: Any) -> bytes:
    try:
        return _encode(value)
    except (OverflowError, UnicodeEncodeError):
        raise InvalidInput("the outcome has a number or a text that no database keeps.") from None


def _choice(kind: type[Category] | type[ErrorClass], value: Any) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise InvalidInput(f"{value!a} is none of {', '.join(one.value for one in kind)}.") from None
