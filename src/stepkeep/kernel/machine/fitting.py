"""Checks that a value matches its type, field by field, so that everything that is written can be read again.

Structs do not check their fields. Events are checked here before a transaction, and rows after they were read for
output. It decides nothing and changes nothing; `operations/pipeline/batch.py` and the stores call it.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from stepkeep.kernel.definition import SECOND
from stepkeep.kernel.machine.events import (
    ChildEnded,
    CompletionSignalled,
    Event,
    HoldDecided,
    MessageArrived,
    StepCheckpointed,
    StepReported,
)
from stepkeep.kernel.machine.outcomes import Added, Completed, NewCall, Outcome, Suspended

MAX_NAME = 255
MAX_TEXT = 20_000
MAX_OUTCOME_BYTES = 16 * 1024 * 1024
MAX_PAUSE_US = 3_650 * 86_400 * SECOND

Check = Callable[[Any], str | None]
"""Returns why a value does not match; None if it does."""

NAMES = frozenset({"event", "name", "id"})
"""Fields of events that are names or keys: short, printable, never empty."""

PAUSES = frozenset({"timeout", "delay", "lease"})
"""Fields of events that are added to the clock, in microseconds."""

_decode = msgspec.json.Decoder().decode
_checks: dict[type[msgspec.Struct], tuple[tuple[str, Check], ...]] = {}
_row_checks: dict[type[msgspec.Struct], tuple[tuple[str, Check], ...]] = {}


def misfit_of_event(event: Event) -> str | None:
    """Why an event cannot be recorded and read again; None if it can.

    >>> from stepkeep.kernel.machine.events import TimeCame
    >>> misfit_of_event(TimeCame(tenant="t", run_id="r", actor="sweep", no="1"))
    'no must be a whole number, not str'
    """
    if isinstance(event, StepReported):
        # Nearly every report: the worker made the rest of it from a row that was read.
        outcome = event.outcome
        if event.streams:
            return _event(event)
        if type(outcome) is Completed and not outcome.emit and outcome.token is None and outcome.cost is None:
            return None if outcome.output is None else _at("output", _json(outcome.output))
        if type(outcome) is Suspended and not outcome.emit and outcome.cost is None and _is_usual(outcome):
            return None
        if (size_bytes := outcome_bytes(outcome)) > MAX_OUTCOME_BYTES:
            return f"outcome holds {size_bytes} bytes in sum; at most {MAX_OUTCOME_BYTES} fit"
    return _event(event)


def misfit_of_row(row: msgspec.Struct) -> str | None:
    """Which field of a row does not match its type; None if all do.

    >>> from stepkeep.kernel.machine.rows import Run
    >>> misfit_of_row(Run("t", "r", "one"))
    'definition_id must be a whole number, not str'
    """
    checks = _row_checks.get(type(row))
    if checks is None:
        checks = _row_checks[type(row)] = tuple(
            (field.name, _of_row(field.type)) for field in msgspec.structs.fields(type(row))
        )
    return _first(row, checks)


def event_bytes(event: Event) -> int:
    """How many bytes of payload an event adds to its transaction."""
    if isinstance(event, StepReported):
        return outcome_bytes(event.outcome) + sum(_length(one.body) for one in event.streams)
    if isinstance(event, MessageArrived):
        return _length(event.payload)
    if isinstance(event, CompletionSignalled):
        return _length(event.output) + _length(event.claim)
    if isinstance(event, StepCheckpointed):
        return _length(event.value)
    if isinstance(event, ChildEnded | HoldDecided):
        return _length(event.output)
    return 0


def outcome_bytes(outcome: Outcome) -> int:
    """The same for an outcome. An invalid outcome counts as 0: it is refused later."""
    emit = getattr(outcome, "emit", ())
    emitted = sum(_length(getattr(each, "payload", None)) for each in emit) if isinstance(emit, tuple) else 0
    if isinstance(outcome, Suspended | Added) and isinstance(outcome.calls, tuple):
        emitted += sum(_length(getattr(each, "arguments", None)) for each in outcome.calls)
    return emitted + (_length(outcome.output) if isinstance(outcome, Completed | Added) else 0)


def _is_usual(outcome: Suspended) -> bool:
    """Whether the report of a flow is certainly valid: nearly every one, and each field by itself would take long."""
    if type(outcome.calls) is not tuple or type(outcome.seen) is not int or type(outcome.code) is not str:
        return False
    if outcome.cancels and any(type(place) is not int for place in outcome.cancels):
        return False
    for call in outcome.calls:
        short = (call.kind, call.name, call.digest) if type(call) is NewCall else (None,)
        if any(type(one) is not str or not 0 < len(one) <= MAX_NAME or not one.isprintable() for one in short):
            return False
        if type(call.step) is not str or not call.step.isascii() or len(call.step) > MAX_TEXT:
            return False
        if call.after or call.reads:
            return False
        if type(call.queue) is not int or type(call.undo_queue) is not int or _json(call.arguments) is not None:
            return False
    return outcome_bytes(outcome) <= MAX_OUTCOME_BYTES


def _length(payload: object) -> int:
    return len(payload) if isinstance(payload, bytes) else 0


def _event(value: msgspec.Struct) -> str | None:
    checks = _checks.get(type(value))
    if checks is None:
        checks = _checks[type(value)] = tuple(
            (field.name, _of_event(field.name, field.type)) for field in msgspec.structs.fields(type(value))
        )
    return _first(value, checks)


def _first(value: msgspec.Struct, checks: tuple[tuple[str, Check], ...]) -> str | None:
    for name, check in checks:
        said = check(getattr(value, name))
        if said is not None:
            return _at(name, said)
    return None


def _at(name: str, said: str | None) -> str | None:
    return None if said is None else f"{name} {said}"


# -- one check per type ------------------------------------------------------------------------------------------------


def _of_event(name: str, kind: Any) -> Check:
    if kind is bytes:
        return _json
    if kind is str:
        return _name if name in NAMES else _text
    if kind is int and name in PAUSES:
        return _pause
    return _composed(kind, lambda inner: _of_event(name, inner), _event)


def _of_row(kind: Any) -> Check:
    if kind is bytes:
        return _bytes
    if kind is str:
        return _any_text
    return _composed(kind, _of_row, misfit_of_row)


def _composed(kind: Any, inner: Callable[[Any], Check], struct: Callable[[msgspec.Struct], str | None]) -> Check:
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]  # bounds are the store's to check
    if kind is int:
        return _whole
    if kind is bool:
        return _of_type(bool, "true or false")
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        [rest] = [part for part in parts if part not in (type(None), msgspec.UnsetType)]
        check = inner(rest)
        missing = [None] * (type(None) in parts) + [msgspec.UNSET] * (msgspec.UnsetType in parts)
        return lambda value: None if any(value is one for one in missing) else check(value)
    if origin is dict:
        return _of_type(dict, "an object")
    if origin in (tuple, frozenset):
        return _each(origin, inner(parts[0]))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _of_type(kind, f"a {kind.__name__}")
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):

        def nested(value: Any) -> str | None:
            return struct(value) if isinstance(value, kind) else f"must be a {kind.__name__}, not {_kind(value)}"

        return nested
    raise TypeError(f"no check is known for the type {kind}")


def _of_type(kind: type, words: str) -> Check:
    return lambda value: None if type(value) is kind else f"must be {words}, not {_kind(value)}"


def _each(kind: type[Any], check: Check) -> Check:
    def items(value: Any) -> str | None:
        if type(value) is not kind:
            return f"must be a {kind.__name__}, not {_kind(value)}"
        for place, item in enumerate(value):
            said = check(item)
            if said is not None:
                return f"[{place}] {said}"
        return None

    return items


def _whole(value: Any) -> str | None:
    if type(value) is not int:
        return f"must be a whole number, not {_kind(value)}"
    return None if -(2**63) <= value < 2**63 else "is a number of more than 64 bits"


def _pause(value: Any) -> str | None:
    said = _whole(value)
    if said is None and not 0 <= value <= MAX_PAUSE_US:
        return "must be a time from 0 to 3,650 days"
    return said


def _name(value: Any) -> str | None:
    if type(value) is not str:
        return f"must be text, not {_kind(value)}"
    return None if 0 < len(value) <= MAX_NAME and value.isprintable() else name_rule("")


def name_rule(what: str) -> str:
    """The problem of an invalid name."""
    return f"{what} must have 1 to {MAX_NAME} printable characters".strip()


def _text(value: Any) -> str | None:
    if type(value) is not str:
        return f"must be text, not {_kind(value)}"
    if len(value) > MAX_TEXT:
        return f"has {len(value)} characters; at most {MAX_TEXT} fit"
    if "\x00" in value or not _is_unicode(value):
        return "has characters that no database keeps (NUL, or half of a surrogate pair)"
    return None


def _any_text(value: Any) -> str | None:
    return None if type(value) is str else f"must be text, not {_kind(value)}"


def _bytes(value: Any) -> str | None:
    return None if type(value) is bytes else f"must be bytes, not {_kind(value)}"


def _json(value: Any) -> str | None:
    if type(value) is not bytes:
        return f"must be JSON in bytes, not {_kind(value)}"
    try:
        _decode(value)
    except (ValueError, RecursionError) as problem:
        return f"is not JSON ({problem})"
    return None


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(value: object) -> str:
    return type(value).__name__


def misfit_of_json(payloads: Mapping[str, bytes | None]) -> str | None:
    """Which of these columns holds bytes that are not JSON; None if all are valid."""
    for name, payload in payloads.items():
        if payload is not None and (said := _json(payload)) is not None:
            return f"{name} {said}"
    return None
