"""What a handler may do wrong, as data: acts on its context, and ways to end.

Only what a process can survive is here; nothing exits, kills or forks. The handlers' target draws from it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import stepkeep as sk
from stepkeep.kernel.errors import Broken, Fenced, StoreUnavailable
from stepkeep.worker.answers import WaitFor

Act = Callable[[sk.Context, Any], object]
"""What is done before the end: with the context, and with a value of a wrong type."""


class NoText(Exception):
    """Its text cannot be read: a common slip."""

    def __str__(self) -> str:
        return str(self.args[5])


class NoTextTwice(Exception):
    """The error about its text has no text either."""

    def __str__(self) -> str:
        raise NoText


class OddText(Exception):
    """Its text is a number."""

    def __str__(self) -> str:
        return 5  # type: ignore[return-value]


class LeavingText(Exception):
    """Asking for its text ends the program."""

    def __str__(self) -> str:
        raise SystemExit(3)


class NoAttributes(Exception):
    """Nothing can be asked of it, which also breaks how its traceback is printed."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class NoRepr(BaseException):
    """No Exception, and not to be printed."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__


class Meta(type):
    """A metaclass whose types have no name."""

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no name")


class NoName(Exception, metaclass=Meta):
    """The name of its type cannot be read."""


def _deep() -> BaseException:
    try:
        return _deep()
    except RecursionError as error:
        return error


def _chained() -> BaseException:
    one, other = ValueError("one"), KeyError("other")
    one.__cause__, other.__context__ = other, one
    return one


EXCEPTIONS: Final[dict[str, Callable[[], BaseException]]] = {
    "plain": lambda: ValueError("wrong"),
    "no message": ValueError,
    "no text": NoText,
    "no text twice": NoTextTwice,
    "odd text": OddText,
    "leaving text": LeavingText,
    "no attributes": NoAttributes,
    "no repr": NoRepr,
    "no name": NoName,
    "recursion": _deep,
    "cycle of causes": _chained,
    "group": lambda: ExceptionGroup("several", [NoText(), ExceptionGroup("more", [OddText()])]),
    "base group": lambda: BaseExceptionGroup("several", [SystemExit(1), KeyboardInterrupt()]),
    "10 MB": lambda: ValueError("x" * 10_000_000),
    "odd characters": lambda: ValueError("\ud800\x00\x1b[2J\u202e"),
    "odd arguments": lambda: ValueError(object(), {1: lambda: None}),
    "SystemExit": lambda: SystemExit(7),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
    "StopIteration": lambda: StopIteration(5),
    "StopAsyncIteration": lambda: StopAsyncIteration(5),
    "TimeoutError": TimeoutError,
    "MemoryError": MemoryError,
    "InvalidInput": lambda: sk.InvalidInput("no"),
    "Conflict": lambda: sk.Conflict("no", winner={"a": object()}),
    "Fenced": lambda: Fenced("no"),
    "Broken": lambda: Broken("no"),
    "StoreUnavailable": lambda: StoreUnavailable("no"),
    "StepError": lambda: sk.StepError("no", category="conflict"),
    "failed for good": lambda: sk.fail("no", category="auth"),
}

ENDINGS: Final[dict[str, Callable[[Any], object]]] = {
    "return it": lambda value: value,
    "return it inside": lambda value: {"a": [value, {"b": value}]},
    "return an exception": lambda value: ValueError("returned"),
    "return a failure": lambda value: sk.fail("returned"),
    "wait for it": lambda value: sk.wait_for(value),
    "wait with it": lambda value: sk.wait_for("event", timeout=value),
    "wait and emit it": lambda value: sk.wait_for("event", emit=[value]),
    "wait and emit pairs": lambda value: sk.wait_for("event", emit=[("name", value), (value, None)]),
    "wait, made by hand": lambda value: WaitFor(event=value),
    "wait, made by hand, with time": lambda value: WaitFor(event="event", timeout=value),
    "wait, made by hand, emitting": lambda value: WaitFor(event="event", emit=value),
    "fail with it": lambda value: sk.fail(value),
    "fail as it": lambda value: sk.StepError("no", category=value),
    "fail after it": lambda value: sk.StepError("no", delay=value),
    "retry in it": lambda value: sk.retry_in(value),
}


def _stop_loop(ctx: sk.Context, value: Any) -> None:
    asyncio.get_running_loop().stop()


def _cancel_itself(ctx: sk.Context, value: Any) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def _forget(ctx: sk.Context, value: Any) -> None:
    vars(ctx).clear()


def _rename(ctx: sk.Context, value: Any) -> None:
    for name in list(vars(ctx)):
        setattr(ctx, name, value)


def _leave_task(ctx: sk.Context, value: Any) -> None:
    kept.append(asyncio.get_running_loop().create_task(asyncio.sleep(0.01)))


def _never_awaited(ctx: sk.Context, value: Any) -> None:
    asyncio.sleep(0).close()


def _emit_often(ctx: sk.Context, value: Any) -> None:
    for _ in range(200):
        ctx.emit("name", value)


def _cost_too_much(ctx: sk.Context, value: Any) -> None:
    for _ in range(2):
        ctx.cost(usd=1e308)


kept: list[Any] = []

ACTS: Final[dict[str, Act]] = {
    "emit it": lambda ctx, value: ctx.emit(value),
    "emit it as payload": lambda ctx, value: ctx.emit("name", value),
    "emit it often": _emit_often,
    "cost it": lambda ctx, value: ctx.cost(usd=value),
    "cost it in tokens": lambda ctx, value: ctx.cost(tokens=value),
    "cost it by odd names": lambda ctx, value: ctx.cost(**{"\ud800": 1, "a\x00": value}),
    "cost too much": _cost_too_much,
    "log it": lambda ctx, value: ctx.logger.info(value),
    "log it with arguments": lambda ctx, value: ctx.logger.warning("%d %s", value, value),
    "ask for its output": lambda ctx, value: ctx.outputs.get(value),
    "change its context": _rename,
    "empty its context": _forget,
    "stop the loop": _stop_loop,
    "cancel itself": _cancel_itself,
    "leave a task behind": _leave_task,
    "never await": _never_awaited,
    "block": lambda ctx, value: time.sleep(0.02),
}
"""By name. Some need an event loop, and raise without one, which is as good."""
