"""Persons as a journal carries them from another run: at the end of a child, and with an adopted step.

Plain values; it shares no code with the engine. `details.py` and `adoption.py` check the shape, `people.py` counts
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepkeep.conformance.schema import Shape, digest, misfits, text

MOST_NAMES = 100


def _listed(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and 0 < len(value) <= MOST_NAMES and all(map(fits, value))


def _pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(text, value))


_names = _listed(text)
SHAPE = Shape(
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
