"""The contract of a sink: a kind checks its options and opens a sink; a sink sends one event after another.

    SinkKind   one kind, under a name: its options (a msgspec Struct) and how it is opened
    Sink       an open destination: `send` returns when the receiver has acknowledged the event, `close` ends it
    SinkFailed what `send` raises when the receiver did not acknowledge it

How to add a kind: write a module with `KIND = SinkKind(name="nats", options=NatsOptions, open=open_nats)`. Name it in
`BUILT_IN` of `registry`, or in the entry point group `stepkeep.sinks` of another distribution.

What the relay promises a sink: the events of one run arrive one at a time and in order; events of different runs may
arrive at the same time; `send` is cancelled after `SEND_SECONDS`. What a sink must do: raise unless the receiver has
the event for certain. An event is sent again after a crash, with the same id.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from stepkeep.kernel.errors import InvalidInput, StepkeepError
from stepkeep.network.guard import Reach
from stepkeep.sinks.event import OutgoingEvent

SEND_SECONDS = 15.0
"""The longest time of one `send`; after it the event counts as not acknowledged."""

MAX_REASON = 500
"""Characters of a failure that are kept."""


class SinkFailed(StepkeepError):
    """The receiver did not acknowledge an event; the text says why, without secrets and on one line.

    `retry_after` is the pause in seconds that the receiver asked for. With `is_final` it will never take this event:
    the event is dead at once.
    """

    def __init__(self, why: str, *, retry_after: float | None = None, is_final: bool = False) -> None:
        super().__init__(why[:MAX_REASON])
        self.retry_after, self.is_final = retry_after, is_final


class Sink(Protocol):
    """An open destination. It is used by one event loop."""

    async def send(self, event: OutgoingEvent) -> None:
        """Send one event. Returns when it is acknowledged; raises SinkFailed (or anything else) when it is not."""
        ...

    async def close(self) -> None:
        """Release what it holds. No `send` is under way."""
        ...


Call = Callable[[str, OutgoingEvent], Awaitable[None]]


async def _no_secret(name: str) -> str:
    raise SinkFailed(f"there is no secret {name} here")


async def _no_handler(name: str, event: OutgoingEvent) -> None:
    raise SinkFailed(f"there is no handler {name} here")


Run = Callable[[Sequence[str], str | None, bytes, Mapping[str, str]], Awaitable[None]]
"""Runs a program: its arguments, its directory, its standard input, and variables about the event."""

Message = Callable[[str, str, str, bytes], Awaitable[None]]
"""Sends a message: business key, name, id, payload."""


async def _no_program(argv: Sequence[str], cwd: str | None, given: bytes, about: Mapping[str, str]) -> None:
    raise SinkFailed("no program can be run here")


async def _no_message(key: str, name: str, message_id: str, payload: bytes) -> None:
    raise SinkFailed("no message can be sent here")


PUBLIC = Reach()


@dataclass(frozen=True, kw_only=True)
class SinkContext:
    """What the relay gives a sink besides its options.

    `secret` reads the value of a secret by its name, at each call, so that a rotated one is used. `call` runs a
    function of this program that was registered with `@on`. `reach` is what the worker may connect to. `run` runs a
    program under the policy of the worker, and `message` sends a message to a business key. `now` is the time in
    seconds since 1970.
    """

    name: str
    tenant: str
    secret: Callable[[str], Awaitable[str]] = _no_secret
    call: Call = _no_handler
    fire: Callable[[OutgoingEvent], Awaitable[None]] | None = None
    """Fires the triggers that an event concerns."""
    reach: Reach = PUBLIC
    run: Run = _no_program
    message: Message = _no_message
    now: Callable[[], float] = time.time


O = TypeVar("O", bound=msgspec.Struct)  # noqa: E741 - the options of a kind


@dataclass(frozen=True, kw_only=True)
class SinkKind(Generic[O]):
    """One kind of sink.

    `options` is a Struct with `forbid_unknown_fields=True`; secrets are in it as names, never as values. `check`
    raises InvalidInput for options that cannot work. `secrets` names the secrets that its sends will read.
    `is_relayed` is False where no relay sends: the host program takes the events itself.
    """

    name: str
    summary: str
    options: type[O]
    open: Callable[[O, SinkContext], Awaitable[Sink]]
    check: Callable[[O], None] = lambda options: None
    secrets: Callable[[O], tuple[str, ...]] = lambda options: ()
    is_relayed: bool = True

    def read(self, given: Mapping[str, Any]) -> O:
        """These options as a checked value; raises InvalidInput."""
        try:
            options = msgspec.convert(dict(given), self.options)
        except msgspec.ValidationError as problem:
            known = ", ".join(one.encode_name for one in msgspec.structs.fields(self.options)) or "none"
            raise InvalidInput(f"the options of a {self.name} sink: {problem}. It has: {known}.") from None
        self.check(options)
        return options
