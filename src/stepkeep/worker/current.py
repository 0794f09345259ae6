"""`sk.current()`: the context of the step or flow whose code runs, and `sk.durable`, which records calls by it.

Executors say what runs by `entered`; the context is made on first use. It holds for the handler, for tasks and threads
that it starts with its context variables, and for nothing else. Adapters to agent frameworks call it.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar, overload

from stepkeep.kernel.errors import InvalidInput
from stepkeep.worker.context import Context

P = ParamSpec("P")
T = TypeVar("T")

MOST_NAME = 100

_running: ContextVar[Callable[[], Context] | None] = ContextVar("stepkeep_running", default=None)
_is_recorded: ContextVar[bool] = ContextVar("stepkeep_is_recorded", default=False)


def entered(make: Callable[[], Context] | None) -> None:
    """From here on the code of this step runs; `make` gives its context."""
    _running.set(make)


def current() -> Context:
    """The context of the step or flow that runs, for code that is not given it: a tool of an agent, a library.

        async def look_up(city: str) -> dict:
            stepkeep.current().progress(None, f"looking up {city}")

    Raises InvalidInput outside of a step. In a subprocess a handler has it if it takes its context.
    """
    make = _running.get()
    if make is None:
        raise InvalidInput("stepkeep.current: no step runs here. Call it in a handler or a flow, or in what they call.")
    return make()


def recorder() -> Context | None:
    """The same, if it can record a call made here: None outside of a step, and in a call that is being recorded."""
    make = _running.get()
    return None if make is None or _is_recorded.get() else make()


@overload
async def durable(function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
@overload
async def durable(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
async def durable(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function once for each place in the step or flow that runs, whichever library calls it.

        async def model(messages: list[dict]) -> dict:
            return await stepkeep.durable(client.create, messages=messages)

    What it returned is recorded as JSON, and a later attempt gets that. Calls are told apart by the name of the
    function and their order, so calls of one function that run at the same time need `ctx.once` with names of their
    own. Outside of a step, and in a call that is being recorded, it calls the function and records nothing.
    """
    context = recorder()
    if context is None:
        answer = function(*args, **kwargs)
        return await answer if inspect.isawaitable(answer) else answer
    name = getattr(function, "__qualname__", type(function).__name__).replace(".<locals>", "")
    return await context.once(numbered(context, name), lambda: _alone(function, *args, **kwargs))


def numbered(context: Context, name: str) -> str:
    """A name for the next checkpoint of this kind in this attempt: `ask`, then `ask#2`. Long names are cut, and keep a
    digest of the whole."""
    count = context.counted(name)
    whole = name if count == 1 else f"{name}#{count}"
    if len(whole) <= MOST_NAME:
        return whole
    return f"{whole[: MOST_NAME - 17]}~{hashlib.sha256(whole.encode()).hexdigest()[:16]}"


@contextmanager
def unrecorded() -> Iterator[None]:
    """Code in here belongs to a call that is being recorded as a whole."""
    token = _is_recorded.set(True)
    try:
        yield
    finally:
        _is_recorded.reset(token)


async def _alone(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with unrecorded():
        answer = function(*args, **kwargs)
        return await answer if inspect.isawaitable(answer) else answer
