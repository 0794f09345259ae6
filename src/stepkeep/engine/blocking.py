"""Makes the blocking form of a class from its coroutine methods: one row per method, typed like the method.

    class Slots(Blocking[AsyncSlots]):
        list = blocking(AsyncSlots.list)

It adds no behaviour: a call is made on the loop of the engine and awaited. Docstrings are those of the coroutines,
whose examples are written in the blocking form. The modules of this package use it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, get_args, overload

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C")


class BlockingCall(Protocol):
    """Run a coroutine on the engine's loop and return its result."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T: ...


class Blocking(Generic[C]):
    """The blocking form of a class: `_core` has the coroutine methods, and `_call` awaits one of them."""

    def __init__(self, core: C, call: BlockingCall) -> None:
        self._core, self._call = core, call

    def __init_subclass__(cls) -> None:
        [base] = vars(cls)["__orig_bases__"]
        cls.__doc__ = get_args(base)[0].__doc__


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """The method that calls a coroutine method of `_core` and awaits it."""
    name = method.__name__
    return _taking(method, lambda self, *given, **named: self._call(getattr(self._core, name)(*given, **named)))


def like(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, Any]],
) -> Callable[[Callable[..., T]], Callable[Concatenate[Any, P], T]]:
    """A method written by hand that takes the arguments of a coroutine method, and has its docstring."""

    def made(own: Callable[..., T]) -> Callable[Concatenate[Any, P], T]:
        call = _taking(method, own)
        shown = inspect.signature(method).replace(return_annotation=own.__annotations__["return"])
        call.__signature__ = shown  # type: ignore[attr-defined]
        return call

    return made


def _taking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, Any]], own: Callable[..., T]
) -> Callable[Concatenate[Any, P], T]:
    """`own` with the name, the words and the parameters of a coroutine method. Wrong arguments open no database."""

    @wraps(method)
    def call(self: Any, /, *given: P.args, **named: P.kwargs) -> T:
        try:
            _signature(method).bind(self, *given, **named)
        except TypeError as problem:
            raise TypeError(f"{call.__qualname__}() {problem}") from None
        return own(self, *given, **named)

    call.__qualname__ = method.__qualname__.removeprefix("Async")
    return call


# When first called: 150 signatures would slow down the import.
_signature = cache(inspect.signature)


class Group(property, Generic[T]):
    """An attribute of an engine that has methods of its own: `engine.slots`."""

    def __init__(self, make: Callable[[Any], T], words: str | None, kind: str | None = None) -> None:
        def get(host: Any) -> T:
            return make(host)

        get.__annotations__["return"] = kind or getattr(make, "__name__", None)
        get.__doc__ = words
        super().__init__(get)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    if TYPE_CHECKING:

        @overload
        def __get__(self, host: None, owner: type, /) -> Self: ...
        @overload
        def __get__(self, host: object, owner: type | None = None, /) -> T: ...
        def __get__(self, host: Any, owner: type | None = None, /) -> Any: ...


def blocking_group(kind: Callable[[C, BlockingCall], T], core: Group[C]) -> Group[T]:
    """The group of the blocking engine for a group of its `_core`."""
    return Group(
        lambda host: kind(getattr(host._core, core.name), host._call), core.__doc__, getattr(kind, "__name__", None)
    )
