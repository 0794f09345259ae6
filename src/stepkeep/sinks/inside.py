"""Sinks inside a program of Stepkeep: a function with `@on`, a host program that relays, the triggers of a tenant.

Only workers that have the function of a `handler` relay to it; it runs where handlers of steps run, never on the
worker's own loop. An exception means that the event was not taken, and it is sent again. No relay sends to a `host`:
its program takes the events with `engine.outbox(NAME)` and acknowledges them. `triggers` follows the event triggers of
a tenant and cannot be added by hand. It acknowledges an event when every trigger that it concerns has fired.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from stepkeep.sinks.event import OutgoingEvent
from stepkeep.sinks.interface import Sink, SinkContext, SinkFailed, SinkKind


class HandlerSinkOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`handler` is the name under which the function is registered."""

    handler: str


class HandlerSink:
    """Calls one function."""

    def __init__(self, options: HandlerSinkOptions, context: SinkContext) -> None:
        self._name, self._call = options.handler, context.call

    async def send(self, event: OutgoingEvent) -> None:
        await self._call(self._name, event)

    async def close(self) -> None:
        """The function belongs to the worker."""


async def _open_handler(options: HandlerSinkOptions, context: SinkContext) -> Sink:
    return HandlerSink(options, context)


HANDLER = SinkKind(
    name="handler", summary="a Python function of a worker", options=HandlerSinkOptions, open=_open_handler
)


class HostOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """It has none."""


async def _open_host(options: HostOptions, context: SinkContext) -> Sink:
    raise SinkFailed(f"no relay sends to {context.name}: a host program takes its events with engine.outbox()")


HOST = SinkKind(
    name="host", summary="a program that relays by itself", options=HostOptions, open=_open_host, is_relayed=False
)


NAME = "triggers"
"""The name of the sink of a tenant."""


class TriggerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """It has none."""


class TriggerSink:
    """Fires triggers."""

    def __init__(self, fire: Callable[[OutgoingEvent], Awaitable[None]] | None) -> None:
        self._fire = fire

    async def send(self, event: OutgoingEvent) -> None:
        if self._fire is None:
            raise SinkFailed("this program fires no triggers")
        await self._fire(event)

    async def close(self) -> None:
        """Nothing is open."""


async def _open_triggers(options: TriggerOptions, context: SinkContext) -> Sink:
    return TriggerSink(context.fire)


TRIGGERS = SinkKind(name=NAME, summary="the triggers of the tenant", options=TriggerOptions, open=_open_triggers)
