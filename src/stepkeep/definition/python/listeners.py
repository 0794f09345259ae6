"""Functions that take events: the decorator `on`, and what it registers.

It stores and calls nothing. A worker that has such a function adds a sink for it and calls it for each event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from stepkeep.definition.arguments import items
from stepkeep.definition.bounds import HANDLER_NAME, HANDLER_NAME_RULE
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.definition.python.registry import Registry

F = TypeVar("F", bound=Callable[..., Any])

SOURCES = ("emitted", "dialect", "transitions", "endings", "workers")
"""What events are derived from; `sinks.event.Source` has the meanings."""


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A function under a name, and which events it takes: none by itself if only hooks of definitions name it."""

    name: str
    function: Callable[..., Any]
    patterns: tuple[str, ...]
    sources: tuple[str, ...]


def on(
    *patterns: str,
    events: Iterable[str] = ("emitted",),
    name: str | None = None,
    registry: Registry | None = None,
) -> Callable[[F], F]:
    """Call the function for every event whose type matches one of the patterns; `*` stands for any characters.

    The worker that has the function calls it, at least once for each event and in order for each run; an event is
    taken when the function returns. `events` says what they are derived from: `emitted` (by steps), `dialect`,
    `transitions`, `endings`, `workers`. The name is that of the function unless another is given.

    >>> import stepkeep as sk
    >>> @sk.on("order.*", name="docs.notify")
    ... def notify(event):
    ...     print(event.type, event.payload)
    """
    if not patterns:
        raise InvalidInput('@on needs a pattern of event types: @on("order.*").')
    if not all(isinstance(one, str) for one in patterns):
        raise InvalidInput('@on takes patterns of event types, as texts: @on("order.*").')
    sources = tuple(items("`events` of @on", events))
    if not sources or any(one not in SOURCES for one in sources):
        raise InvalidInput(f"the events of @on are {', '.join(SOURCES)}.")

    def register(function: F) -> F:
        _add(function, name, registry, patterns, sources)
        return function

    return register


def hook(name: str | None = None, *, registry: Registry | None = None) -> Callable[[F], F]:
    """Register a function that hooks of definitions name in `uses`. It is given each event that they are for.

    It is called after the commit, at least once for each event, and never fails the run. The name is that of the
    function unless another is given.

    >>> import stepkeep as sk
    >>> @sk.hook("docs.page")
    ... def page(event):
    ...     print(event.type, event.run_id)
    >>> order = sk.Workflow("order", hooks=[{"on": "run.failed", "uses": page}])
    """
    if name is not None and not isinstance(name, str):
        raise InvalidInput('@hook takes a name, with brackets: @hook("ops.page") or @hook().')

    def register(function: F) -> F:
        _add(function, name, registry, (), ())
        return function

    return register


def hook_name(function: Callable[..., Any], registry: Registry) -> str:
    """The name of a function that a hook calls; one that is not registered is registered under its own name."""
    for one in registry.listeners.values():
        if one.function is function:
            return one.name
    return _add(function, None, registry, (), ())


def _add(
    function: Callable[..., Any],
    name: str | None,
    registry: Registry | None,
    patterns: tuple[str, ...],
    sources: tuple[str, ...],
) -> str:
    from stepkeep.definition.python.registry import default_registry

    called = name or f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
    if not HANDLER_NAME.fullmatch(called):
        raise InvalidInput(f"{called!a} cannot be the name of a listener: use {HANDLER_NAME_RULE}. Give name=.")
    listener = Listener(name=called, function=function, patterns=patterns, sources=sources)
    (registry if registry is not None else default_registry).add_listener(listener)
    return called
