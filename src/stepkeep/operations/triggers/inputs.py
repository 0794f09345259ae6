"""Conditions and inputs of triggers: compiled once, evaluated on the event or the moment of one firing.

Expressions read `trigger` (name, moment), `event` (id, name, time, run, correlation_id), `payload`, and `ended` for the
end of a run. Seed 000 writes conditions with the fields of the payload alone, as in `riskScore >= 0.7`: a name that is
none of these is read as a field of the payload. Publication compiles them, and firing evaluates them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import msgspec

from stepkeep.definition.native.triggers import compile_condition, compile_trigger_inputs
from stepkeep.kernel.errors import ExpressionError
from stepkeep.kernel.triggers import TriggerSpec
from stepkeep.store.rows import TriggerRow

_encode = msgspec.json.Encoder().encode


class TriggerFacts(TypedDict):
    """What expressions of a trigger read."""

    trigger: Mapping[str, str]
    event: Mapping[str, object]
    payload: Any


def facts_of(row: TriggerRow, moment: str, event: Mapping[str, Any] | None) -> TriggerFacts:
    """What expressions of a trigger read."""
    about = event or {}
    return {
        "trigger": {"name": row.name, "moment": moment},
        "event": {name: value for name, value in about.items() if name != "payload"},
        "payload": about.get("payload"),
    }


def holds(row: TriggerRow, spec: TriggerSpec, moment: str, event: Mapping[str, Any]) -> bool:
    """Whether the condition of a trigger holds for an event; raises ExpressionError if that cannot be said."""
    if spec.condition is None:
        return True
    value = compile_condition(spec.condition).evaluate(facts_of(row, moment, event))
    if not isinstance(value, bool):
        raise ExpressionError(f"the condition `{spec.condition}` is neither true nor false here")
    return value


def input_of(row: TriggerRow, spec: TriggerSpec, moment: str, event: Mapping[str, Any] | None) -> bytes:
    """The input of the run that a firing starts."""
    if spec.inputs is not None:
        return _encode(compile_trigger_inputs(spec.inputs).render(facts_of(row, moment, event)))
    if event is not None and event.get("payload") is not None:
        return _encode(event["payload"])
    return b"{}"
