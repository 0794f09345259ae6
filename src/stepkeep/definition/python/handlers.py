"""`@step` and `@agent`: register plain functions as handlers that definitions can name.

A decorated function is unchanged, so that tests can call it; only the registry knows it. Workers find it there by name.
`registry`, `retry` and `apps` hold the values, which are exported again here for users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar, cast, get_args, overload
from weakref import WeakKeyDictionary

from stepkeep.definition import arguments
from stepkeep.definition.apps import load_app, load_entry_points
from stepkeep.definition.bounds import STEP_TIMEOUT
from stepkeep.definition.python.registry import Function, HandlerSpec, Mode, Registry, default_registry
from stepkeep.definition.python.retry import Duration, Retry, microseconds
from stepkeep.edges.safe_text import type_name
from stepkeep.kernel import definition as kernel
from stepkeep.kernel.definition import Effect
from stepkeep.kernel.errors import InvalidInput

__all__ = [
    "Duration",
    "HandlerSpec",
    "Registry",
    "Retry",
    "agent",
    "default_registry",
    "lifespan",
    "load_app",
    "load_entry_points",
    "step",
]

F = TypeVar("F", bound=Callable[..., Any])


@overload
def step(function: F, /) -> F: ...


@overload
def step(
    name: str | None = None,
    /,
    *,
    retry: Retry | None = None,
    timeout: Duration | None = None,
    undo: str | Function | None = None,
    mode: Mode = "auto",
    effect: str | None = None,
    transactional: bool = False,
    capabilities: Iterable[str] = (),
    queue: str = "",
    registry: Registry | None = None,
) -> Callable[[F], F]: ...


def step(
    target: Function | str | None = None,
    /,
    *,
    retry: Retry | None = None,
    timeout: Duration | None = None,
    undo: str | Function | None = None,
    mode: Mode = "auto",
    effect: str | None = None,
    transactional: bool = False,
    capabilities: Iterable[str] = (),
    queue: str = "",
    registry: Registry | None = None,
) -> Any:
    """Register a function as a handler, under its own name or the one given.

    What is said here (retry, timeout, undo, effect …) is the default of every step that uses the handler; a
    step's own words come first. A step without `with` is given the run's input, and the function receives
    those fields that it has parameters for; a first parameter named `ctx` receives the context.

    >>> @step("greetings.say", timeout="5s")
    ... def say(name: str) -> str:
    ...     return f"Hello, {name}"
    >>> say("Ada")
    'Hello, Ada'
    """
    into = registry_of(registry)

    def decorate(function: F) -> F:
        name = target if isinstance(target, str) else _own_name(function)
        register(
            into,
            HandlerSpec(
                name=name,
                function=function,
                mode=_mode(name, mode),
                retry=_retry(retry),
                timeout=None if timeout is None else _timeout(name, timeout),
                undo=None if undo is None else undo if isinstance(undo, str) else name_of(undo, into),
                effect=None if effect is None else _effect(name, effect),
                transactional=arguments.flag(f"handler {name}: transactional", transactional),
                capabilities=_texts(f"handler {name}: capabilities", arguments.items("capabilities", capabilities)),
                queue=_texts(f"handler {name}: queue", [queue])[0],
                description=first_line(function),
            ),
        )
        return function

    return decorate(target) if callable(target) else decorate


def register(into: Registry, spec: HandlerSpec) -> None:
    """Add a decorated function to a registry."""
    into.register(spec)
    with suppress(TypeError):  # not every callable can be referred to weakly
        _decorated[spec.function] = spec.name


def agent(
    name: str,
    /,
    *,
    retry: Retry | None = None,
    timeout: Duration | None = None,
    mode: Mode = "auto",
    registry: Registry | None = None,
) -> Callable[[F], F]:
    """Register `async def f(ctx, action: str, inputs: dict)` as the agent of this name.

    >>> @agent("data-pipeline")
    ... async def data_pipeline(ctx, action, inputs):
    ...     return {"did": action}
    """
    into = registry_of(registry)

    def decorate(function: F) -> F:
        into.register(
            HandlerSpec(
                name=name,
                function=function,
                kind="agent",
                mode=_mode(name, mode),
                retry=_retry(retry),
                timeout=None if timeout is None else _timeout(name, timeout),
                description=first_line(function),
            )
        )
        return function

    return decorate


@overload
def lifespan(function: F, /) -> F: ...


@overload
def lifespan(*, registry: Registry | None = None) -> Callable[[F], F]: ...


def lifespan(function: Function | None = None, /, *, registry: Registry | None = None) -> Any:
    """Register what a worker opens before its first step and closes after its last: pools, clients.

    It is an async function with one `yield`, of a mapping that handlers read as `ctx.shared`. It runs on the loop of
    the async handlers, once per worker, or once per engine for the workers of an engine.

    >>> @lifespan
    ... async def clients():
    ...     yield {"rates": {"CHF": 1.05}}  # close here what was opened above
    >>> @step("prices.convert")
    ... def convert(ctx, amount: float, currency: str) -> float:
    ...     return amount * ctx.shared["rates"][currency]
    """
    into = registry_of(registry)

    def decorate(given: F) -> F:
        if not callable(given):
            raise InvalidInput(f"lifespan takes an async function with one `yield`, not {arguments.shown(given)}.")
        into.add_lifespan(given)
        return given

    return decorate if function is None else decorate(function)


def _retry(given: Retry | None) -> kernel.Retry | None:
    if given is None:
        return None
    if not isinstance(given, Retry):
        raise InvalidInput(f"retry takes a stepkeep.Retry, not a value of type {type_name(given)}.")
    return given.to_kernel()


def name_of(function: Function, registry: Registry) -> str:
    """The name of a registered function; an undecorated one is registered under its own name.

    A function that only another registry knows is refused: its runs would wait forever.
    """
    known = registry.of(function)
    if known is None and (elsewhere := decorated_name(function)) is not None:
        raise InvalidInput(
            f"this function is handler {elsewhere} of another registry, which a worker of this one would not find. "
            "Give the workflow that registry: Workflow(…, registry=…)."
        )
    if known is None:
        known = HandlerSpec(name=_own_name(function), function=function, description=first_line(function))
        registry.register(known)
    return known.name


def decorated_name(function: Function) -> str | None:
    """The name that a decorator gave this function, in any registry."""
    try:
        return _decorated.get(function)
    except TypeError:
        return None


_decorated: WeakKeyDictionary[Function, str] = WeakKeyDictionary()
"""The names of functions that a decorator registered, in any registry."""


def registry_of(given: object) -> Registry:
    """The given registry, or the default one."""
    if given is not None and not isinstance(given, Registry):
        raise InvalidInput(f"registry is a stepkeep.Registry, not a value of type {type_name(given)}.")
    return default_registry if given is None else given


def _own_name(function: Function) -> str:
    name = getattr(function, "__name__", "")
    if not isinstance(name, str) or not name.isidentifier():
        kind = type_name(function)
        raise InvalidInput(
            f'a handler of type {kind} has no name of its own. Give it one: step("some.name")(function).'
        )
    return name


def _timeout(name: str, value: Duration) -> int:
    return microseconds(value, what=f"handler {name}: timeout", bounds=STEP_TIMEOUT)


def _mode(name: object, value: object) -> Mode:
    return cast(Mode, arguments.choice(f"handler {arguments.shown(name)}: mode", value, get_args(Mode)))


def _texts(what: str, given: list[Any]) -> tuple[str, ...]:
    if odd := [one for one in given if not isinstance(one, str)]:
        raise InvalidInput(f"{what} takes texts, not {arguments.shown(odd[0])}.")
    return tuple(map(str.__str__, given))


STATED_EFFECTS = [effect for effect in Effect if effect is not Effect.UNKNOWN]


def _effect(name: str, value: str) -> Effect:
    return Effect(arguments.choice(f"handler {name}: effect", value, STATED_EFFECTS))


def first_line(function: Function) -> str:
    return (getattr(function, "__doc__", None) or "").strip().partition("\n")[0]
