"""The shape of a log line: required and optional fields per event type, and the values each may have.

Tables and small predicates only; the readers of lines and `details.py` use them. The vocabularies are written out here
again on purpose: a judge that imported them from the engine would accept whatever the engine writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from stepkeep.conformance.report import quoted

Predicate = Callable[[Any], bool]

LARGEST = 2**63 - 1
LATEST = 253_402_300_799_999_999
"""The last microsecond of the year 9999."""

SEVERITIES = frozenset({"info", "warning", "error", "critical"})
CATEGORIES = frozenset(
    {
        "transient", "external", "timeout", "agent", "unknown",
        "validation", "governance", "auth", "conflict", "poison",
    }
)  # fmt: skip

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HASH = re.compile(r"[0-9a-f]{64}")


def text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def any_text(value: Any) -> bool:
    return isinstance(value, str)


def text_or_null(value: Any) -> bool:
    return value is None or text(value)


def whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST


def counted(value: Any) -> bool:
    return whole(value) and value > 0


def moment(value: Any) -> bool:
    return whole(value) and value <= LATEST


def seconds(value: Any) -> bool:
    return (type(value) is int or isinstance(value, float)) and 0 <= value <= LARGEST // 1_000_000


def digest(value: Any) -> bool:
    return isinstance(value, str) and _HASH.fullmatch(value) is not None


def an_object(value: Any) -> bool:
    return isinstance(value, dict)


def severity(value: Any) -> bool:
    return isinstance(value, str) and value in SEVERITIES


def category(value: Any) -> bool:
    return isinstance(value, str) and value in CATEGORIES


class FieldShape(NamedTuple):
    """The required and optional metadata of one event type."""

    required: Mapping[str, Predicate]
    optional: Mapping[str, Predicate]

    @property
    def known(self) -> Mapping[str, Predicate]:
        """The predicate of every field."""
        known = _KNOWN.get(id(self))
        if known is None or known[0] is not self:
            known = _KNOWN[id(self)] = (self, {**self.optional, **self.required})
        return known[1]


_KNOWN: dict[int, tuple[FieldShape, Mapping[str, Predicate]]] = {}
"""Merged predicates of each shape, so that a line needs one lookup per field."""

LINE: dict[str, Predicate] = {
    "timestamp": text,
    "event_type": text,
    "severity": severity,
    "entity_id": text,
    "from_state": text_or_null,
    "to_state": text,
    "trigger": text,
    "metadata": an_object,
}

_JOURNAL: dict[str, Predicate] = {"tenant": text, "seq": counted, "at": moment}
_MOVE: dict[str, Predicate] = {"hop": whole, "hops": counted, "cause": whole, "event": text, "actor": any_text}
_MAY: dict[str, Predicate] = {"detail": an_object, "hash": digest}
_WHY: dict[str, Predicate] = {"of": text, "category": category, "error": any_text}
_HEAD: dict[str, Predicate] = {"entries": counted, "state": text, "hash": digest}

OWNERS: dict[str, dict[str, Predicate]] = {
    "run": {"run_id": text, "correlation_id": text},
    "worker": {"worker_id": text},
}
"""The two kinds of journal, and the field that names the owner."""

_STEP: dict[str, Predicate] = {"step": text, "no": whole}
_ATTEMPT: dict[str, Predicate] = {
    "attempt": counted,
    "retry_count": whole,
    "fence": counted,
    "duration_seconds": seconds,
    "due_at": whole,
    "digest": digest,
}

SHAPES: Mapping[str, tuple[str, str, FieldShape]] = {
    "run_state_transition": ("run", "run", FieldShape(OWNERS["run"] | _JOURNAL | _MOVE, _MAY | _WHY)),
    "step_state_transition": (
        "run",
        "step",
        FieldShape(OWNERS["run"] | _JOURNAL | _MOVE | _STEP, _MAY | _WHY | _ATTEMPT),
    ),
    "worker_state_transition": ("worker", "worker", FieldShape(OWNERS["worker"] | _JOURNAL | _MOVE, _MAY)),
    "run_note": ("run", "note", FieldShape(OWNERS["run"] | _JOURNAL | _MOVE, _MAY)),
}
"""Each event type with its kind of journal, the entity it is about, and its metadata."""

HEAD = "journal_head"
HEADS: Mapping[str, FieldShape] = {kind: FieldShape(owner | _JOURNAL | _HEAD, {}) for kind, owner in OWNERS.items()}

OPENING = "journal_definition"
FORMATS = ("stepkeep-log/2",)
"""The versions of the format that have such a first line. Logs without it are of version 1."""


def log_format(value: Any) -> bool:
    return value in FORMATS


def nothing(value: Any) -> bool:
    return value is None


def yes(value: Any) -> bool:
    return value is True


def zero(value: Any) -> bool:
    return type(value) is int and value == 0


WHOLE_OPENING = FieldShape(LINE | {"from_state": nothing, "to_state": nothing}, {})
_DEFINITION: dict[str, Predicate] = {
    "tenant": text,
    "run_id": text,
    "format": log_format,
    "at": moment,
    "written_in": text,
    "digest": digest,
    "definition": an_object,
}
OPENING_LINE = FieldShape(_DEFINITION | {"correlation_id": text}, {})
DIALECT_OPENING = FieldShape(
    _DEFINITION | {"dialect": text, "line": zero, "hash": digest},
    {"correlation_id": text, "live": yes},
)
"""The first line of a run's log, in canonical names and in a dialect."""


# -- checks against a shape ------------------------------------------------------------------------------------------
def misfits(found: dict[str, Any], shape: FieldShape, path: str) -> Iterator[str]:
    """The problems of an object: missing, unknown or malformed fields."""
    if _fits(found, shape):
        return
    for name, fits in shape.required.items():
        if name not in found:
            yield f"{path}{name} is missing"
        elif not fits(found[name]):
            yield f"{path}{name} cannot be {quoted(found[name])}"
    for name, value in found.items():
        if name in shape.optional:
            if not shape.optional[name](value):
                yield f"{path}{name} cannot be {quoted(value)}"
        elif name not in shape.required:
            yield f"{path}{quoted(name)[1:-1]} is not a field of this event type"


def _fits(found: dict[str, Any], shape: FieldShape) -> bool:
    """Whether the object has no problem. Nearly always true, and cheaper than listing problems."""
    if not shape.required.keys() <= found.keys():
        return False
    known = shape.known
    for name, value in found.items():
        predicate = known.get(name)
        if predicate is None or not predicate(value):
            return False
    return True


def timestamp_of(at: int) -> str:
    """Clock microseconds as UTC text."""
    return f"{_second(at // 1_000_000)}.{at // 1000 % 1000:03d}Z"


@lru_cache(maxsize=4096)
def _second(at: int) -> str:
    """Cached per second, because most lines share their second with others."""
    return f"{EPOCH + timedelta(seconds=at):%Y-%m-%dT%H:%M:%S}"


# -- persons -------------------------------------------------------------------------------------------------------
MOST_NAMES = 100


def _listed(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and 0 < len(value) <= MOST_NAMES and all(map(fits, value))


def _pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(text, value))


_names = _listed(text)
SHAPE = FieldShape(
    {},
    {
        "executed": _names,
        "completed": _names,
        "decided": _names,
        "lent": _listed(_pair),
        "shown": _listed(digest),
        "many": lambda value: value is True,
    },
)


def is_persons(value: Any) -> bool:
    """Whether a journal may carry this."""
    return isinstance(value, dict) and bool(value) and not list(misfits(value, SHAPE, ""))
