"""`ctx.once`: calls a function unless its result is on record, and records the result.

What is recorded is kept elsewhere (`checkpoints.py`). Here is the order: look, call, encode, record. A handler always
gets the recorded value, so that the first attempt and later ones get equal values. `Context` and the executor of flows
call it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, Protocol

import msgspec

from stepkeep.edges.safe_text import type_name
from stepkeep.kernel.errors import InvalidInput
from stepkeep.operations import validate
from stepkeep.operations.pipeline.payloads import MAX_PAYLOAD_BYTES
from stepkeep.worker.attempts.payloads import encode

_decode = msgspec.json.Decoder().decode


class Checkpoints(Protocol):
    """The checkpoints of one step. In a thread both methods return what they say, on an event loop an awaitable of it.

    A value has at most `most_bytes` of JSON.
    """

    most_bytes: int

    def find(self, name: str) -> Any:
        """The recorded JSON; None if there is none."""
        ...

    def record(self, name: str, value: bytes) -> Any:
        """Record this JSON. Raises Fenced if the lease of the attempt is gone."""
        ...


class LocalCheckpoints:
    """Checkpoints of a context that no worker made, such as one in a unit test: kept as long as the context is."""

    most_bytes = MAX_PAYLOAD_BYTES

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}

    def find(self, name: str) -> bytes | None:
        return self._known.get(name)

    def record(self, name: str, value: bytes) -> None:
        self._known[name] = value


class NoCheckpoints:
    """For code that cannot record any."""

    most_bytes = 0

    def __init__(self, why: str) -> None:
        self._why = why

    def find(self, name: str) -> NoReturn:
        raise InvalidInput(f"ctx.once: {self._why}.")

    def record(self, name: str, value: bytes) -> NoReturn:
        raise InvalidInput(f"ctx.once: {self._why}.")


def checked_name(name: str, function: Callable[..., Any]) -> str:
    """The name of a checkpoint. Refuses one that cannot be kept, and what cannot be called."""
    if not callable(function):
        raise InvalidInput(
            f"ctx.once takes a name and a function, not a value of type {type_name(function)}: "
            'write `ctx.once("charge", charge, cents)`, without calling it.'
        )
    return validate.key("the name of a checkpoint", name, 100)


def call_once(checkpoints: Checkpoints, name: str, call: Callable[[], Any]) -> Any:
    """The recorded value, or that of the call, which is recorded first. For handlers without an event loop."""
    found = checkpoints.find(name)
    if found is None:
        given = call()
        if inspect.isawaitable(given):
            if inspect.iscoroutine(given):
                given.close()
            raise InvalidInput(f"ctx.once: {name} is a coroutine: make the handler `async def` too, and await it.")
        found = encoded(name, given, checkpoints.most_bytes)
        checkpoints.record(name, found)
    return _decode(found)


async def await_once(checkpoints: Checkpoints, name: str, call: Callable[[], Any]) -> Any:
    """The same on an event loop; the call may be a coroutine."""
    found = await answer_of(checkpoints.find(name))
    if found is None:
        found = encoded(name, await answer_of(call()), checkpoints.most_bytes)
        await answer_of(checkpoints.record(name, found))
    return _decode(found)


def encoded(name: str, value: Any, most_bytes: int) -> bytes:
    """The value as it is recorded. Raises Unstorable."""
    return encode(value, what=f"the value of the checkpoint {name}", limit=most_bytes)


async def answer_of(given: Awaitable[Any] | Any) -> Any:
    return await given if inspect.isawaitable(given) else given
