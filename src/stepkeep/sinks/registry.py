"""Finds a kind of sink by its name: those of this package first, then the entry point group `stepkeep.sinks`.

A kind is loaded when it is first asked for, because some need a library that is an extra. It opens nothing.
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
    "redis": "stepkeep.sinks.redis",
    "nats": "stepkeep.sinks.nats",
    "kafka": "stepkeep.sinks.kafka",
}
"""The modules of this package that hold a `KIND`, by its name."""


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
