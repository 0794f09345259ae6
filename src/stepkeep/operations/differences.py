"""What differs between two versions of a definition, in a few words. Pure; `publish` says it when it refuses one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from stepkeep.kernel.definition import Definition

MOST = 5
LONGEST = 60
_MISSING = object()


def differences(old: Definition, new: Definition) -> list[str]:
    """The places that differ, as `steps.label.timeout: 30 → 60`; the version itself does not count."""
    found = [
        f"{place}: {_shown(was)} → {_shown(now)}"
        for place, was, now in _differ("", _plain(old), _plain(new))
        if place not in ("version", "order") and not place.endswith(".order")
    ]
    return found if len(found) <= MOST else [*found[:MOST], f"and {len(found) - MOST} more"]


def _plain(definition: Definition) -> dict[str, Any]:
    """As JSON, with steps by their names, so that an added step is one difference."""
    said: dict[str, Any] = msgspec.to_builtins(definition)
    return said | {"steps": {step["name"]: step for step in said["steps"]}}


def _differ(place: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            inner = f"{place}.{name}" if place else str(name)
            yield from _differ(inner, old.get(name, _MISSING), new.get(name, _MISSING))
    elif old != new:
        yield place, old, new


def _shown(value: Any) -> str:
    if value is _MISSING:
        return "nothing"
    said = msgspec.json.encode(value).decode()
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 1]}…"
