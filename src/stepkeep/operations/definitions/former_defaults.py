"""Tells whether a published definition is the one given now, where only defaults of Stepkeep have moved since. Pure.

A stored definition has every value, written or not. So a value that an earlier version assumed counts as not written,
if all values of its kind in the definition are like that: a definition was read by one version. `publish` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from stepkeep.kernel.definition import Definition

_MISSING = object()
MOVED: dict[tuple[str, ...], tuple[Any, Any]] = {
    ("undo", "retry", "max_losses"): (3, 30),
    ("undo", "retry", "counts_losses"): (_MISSING, False),
    ("retry", "jitter"): (0.0, 0.5),
    ("effect",): ("read", "unknown"),
}
"""By the end of a place: the default of an earlier version, and that of today. Add a row where a default moves."""


def is_same_but_for_defaults(stored: Definition, given: Definition) -> bool:
    """Whether the definitions differ in nothing but defaults that have moved."""
    moved: dict[tuple[str, ...], set[bool]] = {}
    for place, was, now in _leaves((), msgspec.to_builtins(stored), msgspec.to_builtins(given)):
        kind = next((end for end in MOVED if place[-len(end) :] == end), ())
        former, today = MOVED.get(kind, (None, None))
        if kind and now == today and was in (former, today):
            moved.setdefault(kind, set()).add(was == former)
        elif was != now:
            return False
    return all(len(found) == 1 for found in moved.values())


def _leaves(place: tuple[str, ...], was: Any, now: Any) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if isinstance(was, dict) and isinstance(now, dict):
        for name in {**was, **now}:
            yield from _leaves((*place, name), was.get(name, _MISSING), now.get(name, _MISSING))
    elif isinstance(was, list | tuple) and isinstance(now, list | tuple) and len(was) == len(now):
        for one, other in zip(was, now, strict=True):
            yield from _leaves(place, one, other)
    else:
        yield place, was, now
