"""`@step` and `@agent`: register plain functions as handlers that definitions can name.

A decorated function is unchanged, so that tests can call it; only the registry knows it. Workers find it there by name.
`registry`, `retry` and `apps` hold the values, which are exported again here for users.

Imports the user's code: a module, a file, or installed packages with an entry point.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast, get_args, overload
from weakref import WeakKeyDictionary

from stepkeep.definition import arguments
from stepkeep.definition.bounds import STEP_TIMEOUT
from stepkeep.definition.python.registry import Function, HandlerSpec, Mode, Registry, default_registry
from stepkeep.definition.python.retry import Duration, Retry, microseconds
from stepkeep.edges.safe_text import exception_message, exception_text, type_name
from stepkeep.kernel import definition as kernel
from stepkeep.kernel.definition import Effect
from stepkeep.kernel.errors import InvalidInput, StepkeepError

ENTRY_POINTS = "stepkeep.handlers"


def load_app(target: str) -> ModuleType:
    """Import `some.module` or `path/file.py`, and with it the handlers that it registers.

    The directory of a file, or the current one for a module, becomes importable, as it does for `python file.py`.
    """
    is_file = target.endswith(".py") or "/" in target
    return _import_file(target) if is_file else _import_module(target)


def load_entry_points() -> tuple[str, ...]:
    """Import the entry points of installed packages under `stepkeep.handlers`; returns their names."""
    found = sorted(entry_points(group=ENTRY_POINTS), key=lambda point: (point.name, point.value))
    for point in found:
        try:
            point.load()
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # noqa: BLE001 - any error of theirs is told in one line
            raise InvalidInput(f"entry point {point.name} ({point.value}): {_exception_line(problem)}") from None
    return tuple(point.name for point in found)


def _import_module(name: str) -> ModuleType:
    _make_importable(Path.cwd())
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # noqa: BLE001 - any error of theirs is told in one line
        if isinstance(problem, ModuleNotFoundError) and problem.name and f"{name}.".startswith(f"{problem.name}."):
            raise InvalidInput(
                f"there is no module {name}. Name a module that can be imported, or a file that ends in .py."
            ) from None
        raise InvalidInput(f"cannot import {name}: {_exception_line(problem)}") from None


def _import_file(target: str) -> ModuleType:
    path = Path(target)
    if not path.is_file():
        raise InvalidInput(f"there is no file {target}. Name a Python file, or a module that Python can import.")
    path = path.resolve()
    _make_importable(path.parent)
    try:
        return _load(path)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # noqa: BLE001 - any error of theirs is told in one line
        raise InvalidInput(f"cannot load {target}: {_exception_line(problem, path)}") from None


def _load(path: Path) -> ModuleType:
    name = path.stem
    found = importlib.util.find_spec(name) if name.isidentifier() and name not in sys.builtin_module_names else None
    if found is not None and found.origin is not None and Path(found.origin) == path:
        return importlib.import_module(name)
    # Another module has that name: keep both apart, under a name that is the same in every process.
    name = f"stepkeep_app_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is not a Python source file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _make_importable(directory: Path) -> None:
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def _exception_line(problem: BaseException, path: Path | None = None) -> str:
    """An exception in one line: its type, its message, and the line of the user's code that raised it."""
    if isinstance(problem, StepkeepError):
        return f"{exception_message(problem) or type_name(problem)}{_where(problem, path)}"
    if isinstance(problem, SyntaxError) and type(problem) in (SyntaxError, IndentationError, TabError):
        said = f"{problem.msg} ({Path(problem.filename or '?').name}, line {problem.lineno})"
        return f"{type_name(problem)}: {said}"
    if isinstance(problem, SystemExit):
        status = exception_message(problem)
        return f"it ended the program (SystemExit{f' {status}' if status else ''}){_where(problem, path)}"
    return f"{exception_text(problem)}{_where(problem, path)}"


def _where(problem: BaseException, path: Path | None) -> str:
    frames = [
        frame
        for frame in traceback.extract_tb(problem.__traceback__)
        if "importlib" not in frame.filename and Path(frame.filename) != Path(__file__)
    ]
    own = [frame for frame in frames if path is not None and Path(frame.filename) == path]
    chosen = (own or frames)[-1:]
    return "".join(f" ({Path(frame.filename).name}, line {frame.lineno})" for frame in chosen)


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
    return cast("Mode", arguments.choice(f"handler {arguments.shown(name)}: mode", value, get_args(Mode)))


def _texts(what: str, given: list[Any]) -> tuple[str, ...]:
    if odd := [one for one in given if not isinstance(one, str)]:
        raise InvalidInput(f"{what} takes texts, not {arguments.shown(odd[0])}.")
    return tuple(map(str.__str__, given))


STATED_EFFECTS = [effect for effect in Effect if effect is not Effect.UNKNOWN]


def _effect(name: str, value: str) -> Effect:
    return Effect(arguments.choice(f"handler {name}: effect", value, STATED_EFFECTS))


def first_line(function: Function) -> str:
    return (getattr(function, "__doc__", None) or "").strip().partition("\n")[0]
