"""Finds a kind of sink by its name: the built-in ones first, then the entry point group `stepkeep.sinks`.

Message brokers come by entry points, because each needs the library of an extra. A kind is loaded when it is first
asked for. It opens nothing.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Any

from stepkeep.kernel.errors import InvalidInput
from stepkeep.sinks.interface import SinkKind

GROUP = "stepkeep.sinks"

BUILT_IN = {
    "jsonl": "jsonl:KIND",
    "handler": "inside:HANDLER",
    "host": "inside:HOST",
    "command": "command:KIND",
    "message": "message:KIND",
    "webhook": "webhook:WEBHOOK",
    "run_webhook": "webhook:RUN_WEBHOOK",
    "triggers": "inside:TRIGGERS",
}
"""Where this package has the kinds that need no further library, by their names."""


def kind_names() -> tuple[str, ...]:
    """The names of all kinds."""
    return tuple(sorted({*BUILT_IN, *(one.name for one in entry_points(group=GROUP))} - {"run_webhook", "triggers"}))


@cache
def kind_of(name: str) -> SinkKind[Any]:
    """The kind of this name; raises InvalidInput where there is none, or its library is missing."""
    try:
        if name in BUILT_IN:
            found: object = resolve_name(f"stepkeep.sinks.{BUILT_IN[name]}")
        else:
            [entry] = [one for one in entry_points(group=GROUP) if one.name == name]
            found = entry.load()
    except ValueError:
        raise InvalidInput(f"there is no kind of sink {name!a}. There are: {', '.join(kind_names())}.") from None
    except ImportError as problem:
        raise InvalidInput(
            f"sinks of kind {name} need the library {problem.name}: pip install 'stepkeep[{name}]'."
        ) from None
    if not isinstance(found, SinkKind):
        raise InvalidInput(f"the entry point {name} of {GROUP} is no SinkKind.")
    return found
