"""Finds a kind of sink by its name: the built-in ones first, then the entry point group `stepkeep.sinks`.

Message brokers come by entry points, because each needs the library of an extra. A kind is loaded when it is first
asked for. It opens nothing.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from stepkeep.kernel.errors import InvalidInput
from stepkeep.sinks.interface import SinkKind

GROUP = "stepkeep.sinks"

BUILT_IN = {
    "jsonl": "stepkeep.sinks.jsonl",
    "handler": "stepkeep.sinks.handler",
    "host": "stepkeep.sinks.host",
    "command": "stepkeep.sinks.command",
    "message": "stepkeep.sinks.message",
    "webhook": "stepkeep.sinks.webhook",
    "run_webhook": "stepkeep.sinks.run_webhook",
    "triggers": "stepkeep.sinks.triggers",
}
"""The modules of this package that hold a `KIND` and need no further library, by its name."""


def kind_names() -> tuple[str, ...]:
    """The names of all kinds."""
    return tuple(sorted({*BUILT_IN, *(one.name for one in entry_points(group=GROUP))} - {"run_webhook", "triggers"}))


@cache
def kind_of(name: str) -> SinkKind[Any]:
    """The kind of this name; raises InvalidInput where there is none, or its library is missing."""
    try:
        if name in BUILT_IN:
            found: object = import_module(BUILT_IN[name]).KIND
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
