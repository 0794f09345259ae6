"""Handlers as data: the function of each name, and its settings.

A registry stores and looks up; it calls nothing. Decorators fill the default one; workers and front ends read it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from stepkeep.definition.bounds import HANDLER_NAME, HANDLER_NAME_RULE
from stepkeep.definition.built_in import WORKTREE
from stepkeep.definition.python.listeners import Listener
from stepkeep.definition.python.signature import Signature, read_signature
from stepkeep.definition.text.document import nearest
from stepkeep.edges.safe_text import type_name
from stepkeep.kernel.definition import Effect, Retry
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Output = TypeVar("Output", default=Any)
else:
    from typing import TypeVar

    Output = TypeVar("Output")
"""What a workflow puts out: the annotation of a flow, and else anything."""

Function = Callable[..., Any]
Mode = Literal["auto", "async", "thread", "process"]
Kind = Literal["python", "agent"]


@dataclass(frozen=True, kw_only=True)
class HandlerSpec:
    """A function under a name. None means that the definition's own default applies.

    `mode` tells where it runs: `async` on the event loop, `thread`, or `process`; `auto` chooses by `async def`. `undo`
    names the handler that reverses its effect. `version` is that of a flow; other handlers have none.
    """

    name: str
    function: Function
    kind: Kind = "python"
    mode: Mode = "auto"
    retry: Retry | None = None
    timeout: int | None = None
    undo: str | None = None
    effect: Effect | None = None
    transactional: bool = False
    capabilities: tuple[str, ...] = ()
    queue: str = ""
    description: str = ""
    version: int | None = None

    @property
    def runs_in(self) -> Literal["async", "thread", "process"]:
        """The mode with `auto` resolved."""
        if self.mode != "auto":
            return self.mode
        return "async" if _is_async(self.function) else "thread"

    @cached_property
    def signature(self) -> Signature:
        """What the function takes, read once."""
        return read_signature(self.function)


@dataclass
class Registry:
    """Names to handlers, and agents beside them, each name once. A flow is there in each of its versions.

    >>> registry = Registry()
    >>> registry.register(HandlerSpec(name="mail.send", function=print))
    >>> registry.nearest("mail.sent")
    'mail.send'
    """

    _handlers: dict[str, HandlerSpec] = field(default_factory=dict)
    _agents: dict[str, HandlerSpec] = field(default_factory=dict)
    _flows: dict[str, dict[int, HandlerSpec]] = field(default_factory=dict)
    _lifespans: list[Function] = field(default_factory=list)
    _listeners: dict[str, Listener] = field(default_factory=dict)
    version: int = field(default=0, compare=False)
    """Changes with every registration."""

    def register(self, spec: HandlerSpec) -> None:
        """Add a handler or an agent. The same function may be added twice (a module loaded again), no other."""
        if not isinstance(spec.name, str):
            raise InvalidInput(f"the name of a handler is a text, not a value of type {type_name(spec.name)}.")
        if not HANDLER_NAME.fullmatch(spec.name):
            raise InvalidInput(
                f"{spec.name!r} cannot be the name of a handler: use {HANDLER_NAME_RULE}. "
                'Give it one: @step("some.name").'
            )
        if spec.name.startswith(WORKTREE):
            raise InvalidInput(f"{spec.name} cannot be a handler: every worker has the actions {WORKTREE}* by itself.")
        if spec.runs_in == "async" and not _is_async(spec.function):
            raise InvalidInput(f'handler {spec.name}: mode="async" needs an `async def` function.')
        if spec.runs_in != "async" and _is_async(spec.function):
            raise InvalidInput(f'handler {spec.name}: an `async def` function cannot run as mode="{spec.mode}".')
        table = self._agents if spec.kind == "agent" else self._handlers
        versions = self._flows.get(spec.name, {})
        known = table.get(spec.name)
        if versions and spec.version is not None:
            known = versions.get(spec.version)
        if known is not None and not _is_same(known.function, spec.function):
            what = "agent" if spec.kind == "agent" else "handler"
            first, second = _qualified_name(known.function), _qualified_name(spec.function)
            if spec.version is not None and known.version is not None:
                what, again = f"version {spec.version} of flow", "Give one of them another `version=`."
            else:
                again = "Rename one of them."
            raise InvalidInput(f"{what} {spec.name} is already {first}; {second} cannot be it too. {again}")
        if spec.version is not None:
            versions = self._flows.setdefault(spec.name, versions)
            versions[spec.version] = spec
            spec = versions[max(versions)]
        table[spec.name] = spec
        self.version += 1

    def add_listener(self, listener: Listener) -> None:
        """Add a function that takes events. The same function may be added twice (a module loaded again), no other."""
        known = self._listeners.get(listener.name)
        if known is not None and not _is_same(known.function, listener.function):
            raise InvalidInput(
                f"listener {listener.name} is already {_qualified_name(known.function)}; give another name=."
            )
        self._listeners[listener.name] = listener
        self.version += 1

    @property
    def listeners(self) -> Mapping[str, Listener]:
        """The functions that take events, by name."""
        return self._listeners

    def add_lifespan(self, function: Function) -> None:
        """Add what workers open for their handlers. The same function may be added twice (a module loaded again)."""
        known = [one for one in self._lifespans if not _is_same(one, function)]
        self._lifespans = [*known, function]
        self.version += 1

    @property
    def lifespans(self) -> tuple[Function, ...]:
        """What workers open for their handlers, in order."""
        return tuple(self._lifespans)

    def get(self, name: str, version: int | None = None) -> HandlerSpec | None:
        """The handler of this name: of a flow its newest version, or the one that is asked for."""
        versions = self._flows.get(name)
        return self._handlers.get(name) if version is None or not versions else versions.get(version)

    @property
    def flows(self) -> Mapping[str, Mapping[int, HandlerSpec]]:
        """The versions of each flow that has some, by name."""
        return self._flows

    def agent(self, name: str) -> HandlerSpec | None:
        """The agent of this name."""
        return self._agents.get(name)

    def of(self, function: Function) -> HandlerSpec | None:
        """The handler that was made of this very function."""
        flows = (spec for versions in self._flows.values() for spec in versions.values())
        return next((spec for spec in (*self._handlers.values(), *flows) if spec.function is function), None)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all handlers, sorted."""
        return tuple(sorted(self._handlers))

    @property
    def agents(self) -> tuple[str, ...]:
        """The names of all agents, sorted."""
        return tuple(sorted(self._agents))

    def nearest(self, name: str) -> str | None:
        """The nearest handler name."""
        return nearest(name, self._handlers)

    def nearest_agent(self, name: str) -> str | None:
        """The nearest agent name."""
        return nearest(name, self._agents)

    def __iter__(self) -> Iterator[HandlerSpec]:
        yield from self._handlers.values()
        yield from self._agents.values()


default_registry = Registry()
"""The registry that decorators fill."""


def _is_async(function: Function) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__ is async too
    return inspect.iscoroutinefunction(inspect.unwrap(function)) or inspect.iscoroutinefunction(call)


def _is_same(one: Function, other: Function) -> bool:
    # A file that is both run and imported, or a cell that is run again, gives two functions of one definition. A
    # closure is different: one `def` in a factory creates many handlers that only look alike.
    if one is other:
        return True
    if getattr(one, "__closure__", None) is not None or getattr(other, "__closure__", None) is not None:
        return False
    first, second = getattr(one, "__code__", None), getattr(other, "__code__", None)
    if first is None or second is None:
        return False
    same_line = (first.co_filename, first.co_firstlineno) == (second.co_filename, second.co_firstlineno)
    return same_line or _qualified_name(one) == _qualified_name(other)


def _qualified_name(function: Function) -> str:
    name = getattr(function, "__qualname__", repr(function))
    return f"{getattr(function, '__module__', '?')}.{name}"
