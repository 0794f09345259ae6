"""Handlers as data: the function of each name, and its settings.

A registry stores and looks up; it calls nothing. Decorators fill the default one; workers and front ends read it.

Maps a step's inputs to the arguments of a function, by its signature.

The names of handlers that every worker has by itself. Front ends write them; no application registers them.

Functions that take events: the decorator `on`, and what it registers.

Whether the inputs that a definition writes down fit the parameters of a handler.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from inspect import Parameter
from typing import TYPE_CHECKING, Any, Final, Literal

from stepkeep.definition.arguments import items
from stepkeep.definition.bounds import HANDLER_NAME, HANDLER_NAME_RULE
from stepkeep.definition.expressions.template_text import OPENING, WHOLE_INPUT
from stepkeep.definition.text.document import nearest
from stepkeep.edges.safe_text import type_name
from stepkeep.kernel.definition import Definition, Effect, Handler, QueueSpec, Retry
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Output = TypeVar("Output", default=Any)
else:
    from typing import TypeVar

    Output = TypeVar("Output")
"""What a workflow puts out: the annotation of a flow, and else anything."""

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


BUILT_IN: Final = "stepkeep."
"""The beginning of names that belong to the engine."""

WORKTREE: Final = f"{BUILT_IN}worktree."
"""The beginning of the names of actions on git worktrees."""


def is_built_in(executor: object) -> bool:
    """Whether this executor is one of the actions on worktrees."""
    return isinstance(executor, Handler) and executor.name.startswith(WORKTREE)


def kind_of(spec: QueueSpec) -> str:
    """What a worker must be able to run for a queue: the actions on worktrees are programs."""
    return "command" if spec.kind == "python" and spec.name.startswith(WORKTREE) else spec.kind


CONTEXT_NAMES = ("ctx", "context")
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The parameters of a handler, without its context."""

    takes_context: bool
    names: tuple[str, ...]
    required: tuple[str, ...]
    takes_any: bool

    def unknown(self, names: Mapping[str, Any]) -> list[str]:
        """The inputs that no parameter would receive."""
        return [] if self.takes_any else [name for name in names if name not in self.names]

    def missing(self, names: Mapping[str, Any]) -> list[str]:
        """The parameters without a default that no input would fill."""
        return [name for name in self.required if name not in names]

    def arguments(self, context: Any, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the call. Missing parameters are left to Python's own TypeError."""
        first = (context,) if self.takes_context else ()
        if inputs is None:
            return first, {}
        if not isinstance(inputs, Mapping):
            return (*first, inputs), {}
        chosen = inputs if self.takes_any else {name: inputs[name] for name in self.names if name in inputs}
        return first, dict(chosen)


def read_signature(function: Callable[..., Any]) -> Signature:
    """Read a function's parameters. If they cannot be read (some built-ins), it is assumed to accept anything."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return Signature(takes_context=False, names=(), required=(), takes_any=True)
    takes_context = bool(parameters) and _is_context(parameters[0])
    rest = parameters[1:] if takes_context else parameters
    named = [parameter for parameter in rest if parameter.kind in _BY_NAME]
    return Signature(
        takes_context=takes_context,
        names=tuple(parameter.name for parameter in named),
        required=tuple(parameter.name for parameter in named if parameter.default is Parameter.empty),
        takes_any=any(parameter.kind is Parameter.VAR_KEYWORD for parameter in rest),
    )


def _is_context(parameter: Parameter) -> bool:
    if parameter.kind not in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD):
        return False
    annotation = parameter.annotation
    said = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return parameter.name in CONTEXT_NAMES or said.rpartition(".")[2] == "Context"


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


def misfit(spec: HandlerSpec, inputs: Any, definition: Definition) -> str | None:
    """What is wrong between a handler and the written inputs of a step; None if they fit or data decides.

    Only the native format refuses inputs that no parameter takes, so they are no misfit in the others.
    """
    signature = spec.signature
    if isinstance(inputs, dict) and not any(OPENING in name for name in inputs):
        given, unknown = tuple(inputs), signature.unknown(inputs) if definition.dialect == "native" else []
    elif inputs == WHOLE_INPUT and definition.input_fields is not None:
        given, unknown = definition.input_fields, []
    else:
        return None
    missing = signature.missing(dict.fromkeys(given))
    if not missing and not unknown:
        return None
    parts = [f"needs {', '.join(missing)}"] if missing else []
    parts += [f"has no parameter {', '.join(unknown)}"] if unknown else []
    return f"handler {spec.name} {' and '.join(parts)}; the stored inputs are {', '.join(given) or 'empty'}"
