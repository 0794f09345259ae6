"""What differs between two definitions, place by place, as texts for people. Pure.

Durations are stored in microseconds and told with their units. `publish` tells it when it refuses a version, and
`versions` beside the values of a comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stepkeep.definition.durations import format_duration
from stepkeep.edges.redaction import hide_secrets
from stepkeep.kernel.definition import Definition

MOST = 5
LONGEST = 60
AROUND = 20
"""How much that is the same is told before the first difference of two long texts."""

DURATIONS = frozenset(
    {
        *("timeout", "lease", "grace", "deadline", "completion_deadline", "remind", "pause", "per"),
        *("retry.initial", "retry.max", "retry.max_elapsed"),
    }
)
"""The fields of a definition that are microseconds, by the end of their place."""

FREE = frozenset(
    {
        *("inputs", "output", "about", "labels", "trigger", "triggers", "executor", "program", "facts"),
        *("schema", "schemas", "input_schema", "output_schema"),
    }
)
"""Fields with content of the user, in which a number under any name is a number."""

_MISSING = object()
Place = tuple[str, str, str]
"""Where something differs, with both values as texts."""


def differences(old: Definition, new: Definition) -> list[str]:
    """The places that differ, as `steps.label.timeout: 30s → 1m`; the version itself does not count."""
    found = [
        f"{place}: {was} → {now}"
        for place, was, now in places("", _plain(old), _plain(new))
        if place not in ("version", "order") and not place.endswith(".order")
    ]
    return found if len(found) <= MOST else [*found[:MOST], f"and {len(found) - MOST} more"]


def places(field: str, old: Any, new: Any) -> list[Place]:
    """Every place at which two values of a field differ, in parts as small as possible.

    >>> places("retry", {"max_attempts": 3, "max": 30_000_000}, {"max_attempts": 3, "max": 60_000_000})
    [('retry.max', '30s', '1m')]
    """
    found = _differ((field,) if field else (), old, new)
    return [(".".join(place), *value_texts(place, was, now)) for place, was, now in found]


def value_texts(place: Sequence[str], old: Any, new: Any) -> tuple[str, str]:
    """Two values as texts. Of long ones, the part around the first difference is told."""
    was, now = _text(place, old), _text(place, new)
    if max(len(was), len(now)) <= LONGEST:
        return was, now
    same = next((number for number, (one, other) in enumerate(zip(was, now, strict=False)) if one != other), 0)
    return _cut(was, same), _cut(now, same)


def _cut(text: str, first: int) -> str:
    begin = max(0, first - AROUND) if first > LONGEST - AROUND else 0
    part = text[begin : begin + LONGEST - 1]
    return f"{'…' if begin else ''}{part}{'…' if begin + len(part) < len(text) else ''}"


def _plain(definition: Definition) -> Mapping[str, Any]:
    """As JSON, with steps by their names, so that an added step is one difference."""
    said: dict[str, Any] = msgspec.to_builtins(definition)
    return said | {"steps": {step["name"]: step for step in said["steps"]}}


def _differ(place: tuple[str, ...], old: Any, new: Any) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from _differ((*place, str(name)), old.get(name, _MISSING), new.get(name, _MISSING))
    elif old != new:
        yield place, old, new


def _text(place: Sequence[str], value: Any) -> str:
    if value is _MISSING or value is None:
        return "nothing"
    if _is_duration(place) and type(value) is int:
        return format_duration(value)
    hidden = hide_secrets({place[-1] if place else "": value})
    assert isinstance(hidden, dict)
    [shown] = hidden.values()
    return msgspec.json.encode(shown).decode()


def _is_duration(place: Sequence[str]) -> bool:
    return FREE.isdisjoint(place) and bool({place[-1], ".".join(place[-2:])} & DURATIONS)
