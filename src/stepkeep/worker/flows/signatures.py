"""What the calls of a flow take and give, for type checkers and editors.

A call has the parameters of its handler and gives what the handler returns. It makes no call and checks none:
`context.py` does. A handler may take a context, which the flow does not give.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from stepkeep.definition.python.registry import Output
from stepkeep.definition.python.retry import Duration
from stepkeep.definition.python.workflow import Workflow
from stepkeep.worker.context import Context

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

if TYPE_CHECKING:

    class _Awaited(Coroutine[Any, Any, R]):
        """The loop of a flow makes a task of a call, so that `TaskGroup.create_task(ctx.step(...))` is right."""

        def send(self, value: Any, /) -> Any: ...
        def throw(self, *given: Any) -> Any: ...
        def close(self) -> None: ...

else:

    class _Awaited(Generic[R]):
        """A future alone: `asyncio.wait` takes no coroutines."""


class CallFuture(asyncio.Future[R], _Awaited[R]):
    """A call under way, as `ctx.step` and its like return it: await it, cancel it, or give it to `gather` or a task."""

    convert: Callable[[Any], R] | None = None
    """What makes the result of what is recorded; None: it is given as it is recorded."""

    place: int = -1
    """The place of its call; -1 if it is none."""
    cancelled_of: Callable[[int], None] | None = None
    """What is told that it was cancelled."""

    def cancel(self, msg: Any = None) -> bool:
        """Await it no longer. Its call is cancelled with the next suspension of the flow, unless it has settled."""
        is_cancelled = super().cancel(msg)
        if is_cancelled and self.cancelled_of is not None:
            self.cancelled_of(self.place)
        return is_cancelled

    def settle(self, recorded: Any) -> None:
        """Give the recorded result, as the type that the handler is annotated with."""
        if self.convert is None:
            self.set_result(recorded)
            return
        try:
            self.set_result(self.convert(recorded))
        except Exception as problem:  # noqa: BLE001 - a type of the user may raise anything: it is for the flow
            self.set_exception(problem)


class StepCall(Protocol):
    """`ctx.step`."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **inputs: P.kwargs
    ) -> CallFuture[R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /, *args: P.args, **inputs: P.kwargs) -> CallFuture[R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /, *args: P.args, **inputs: P.kwargs
    ) -> CallFuture[R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R], /, *args: P.args, **inputs: P.kwargs
    ) -> CallFuture[R]: ...
    @overload
    def __call__(self, function: str, /, *args: Any, **inputs: Any) -> CallFuture[Any]: ...


class MapCall(Protocol):
    """`ctx.map`. The types of `inputs` are checked where `in_flight` is not given beside them."""

    @overload
    def __call__(
        self, function: Callable[[T], Coroutine[Any, Any, R]], items: Iterable[T], *, in_flight: int = 10
    ) -> Coroutine[Any, Any, list[R]]: ...
    @overload
    def __call__(
        self, function: Callable[[T], R], items: Iterable[T], *, in_flight: int = 10
    ) -> Coroutine[Any, Any, list[R]]: ...
    @overload
    def __call__(
        self, function: Callable[[Context, T], Coroutine[Any, Any, R]], items: Iterable[T], *, in_flight: int = 10
    ) -> Coroutine[Any, Any, list[R]]: ...
    @overload
    def __call__(
        self, function: Callable[[Context, T], R], items: Iterable[T], *, in_flight: int = 10
    ) -> Coroutine[Any, Any, list[R]]: ...
    @overload
    def __call__(
        self,
        function: Callable[Concatenate[T, P], Coroutine[Any, Any, R]],
        items: Iterable[T],
        /,
        *args: P.args,
        **inputs: P.kwargs,
    ) -> Coroutine[Any, Any, list[R]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[T, P], R], items: Iterable[T], /, *args: P.args, **inputs: P.kwargs
    ) -> Coroutine[Any, Any, list[R]]: ...
    @overload
    def __call__(
        self,
        function: Callable[Concatenate[Context, T, P], Coroutine[Any, Any, R]],
        items: Iterable[T],
        /,
        *args: P.args,
        **inputs: P.kwargs,
    ) -> Coroutine[Any, Any, list[R]]: ...
    @overload
    def __call__(
        self,
        function: Callable[Concatenate[Context, T, P], R],
        items: Iterable[T],
        /,
        *args: P.args,
        **inputs: P.kwargs,
    ) -> Coroutine[Any, Any, list[R]]: ...
    @overload
    def __call__(
        self,
        function: Callable[Concatenate[T, ...], Coroutine[Any, Any, R]],
        items: Iterable[T],
        *,
        in_flight: int,
        **inputs: Any,
    ) -> Coroutine[Any, Any, list[R]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[T, ...], R], items: Iterable[T], *, in_flight: int, **inputs: Any
    ) -> Coroutine[Any, Any, list[R]]: ...
    @overload
    def __call__(
        self, function: str, items: Iterable[Any], *, in_flight: int = 10, **inputs: Any
    ) -> Coroutine[Any, Any, list[Any]]: ...


class ChildCall(Protocol):
    """`ctx.child`."""

    @overload
    def __call__(
        self,
        workflow: str | Workflow[Output],
        input: Any = None,
        /,
        *,
        version: int | None = None,
        deadline: Duration | None = None,
        detached: Literal[False] = False,
    ) -> CallFuture[Output]: ...
    @overload
    def __call__(
        self,
        workflow: str | Workflow,
        input: Any = None,
        /,
        *,
        version: int | None = None,
        deadline: Duration | None = None,
        detached: bool,
    ) -> CallFuture[Any]: ...


class OnceCall(Protocol):
    """`ctx.once` of a flow."""

    @overload
    def __call__(
        self, name: str, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> CallFuture[R]: ...
    @overload
    def __call__(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> CallFuture[R]: ...


def as_step(method: Callable[..., Any]) -> StepCall:
    """The method, with the types of `ctx.step`."""
    return cast("StepCall", method)


def as_map(method: Callable[..., Any]) -> MapCall:
    """The method, with the types of `ctx.map`."""
    return cast("MapCall", method)


def as_child(method: Callable[..., Any]) -> ChildCall:
    """The method, with the types of `ctx.child`."""
    return cast("ChildCall", method)


def as_once(method: Callable[..., Any]) -> OnceCall:
    """The method, with the types of `ctx.once`."""
    return cast("OnceCall", method)
