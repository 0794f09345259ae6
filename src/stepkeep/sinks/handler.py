"""The sink `handler`: calls a function of the worker's program that was registered with `@on`.

Only workers that have the function relay to it. The function runs where handlers of steps run, never on the worker's
own loop. An exception means that the event was not taken, and it is sent again.
"""

from __future__ import annotations

import msgspec

from stepkeep.sinks.event import OutgoingEvent
from stepkeep.sinks.interface import Sink, SinkContext, SinkKind


class HandlerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`handler` is the name under which the function is registered."""

    handler: str


class HandlerSink:
    """Calls one function."""

    def __init__(self, options: HandlerOptions, context: SinkContext) -> None:
        self._name, self._call = options.handler, context.call

    async def send(self, event: OutgoingEvent) -> None:
        await self._call(self._name, event)

    async def close(self) -> None:
        """The function belongs to the worker."""


async def _open(options: HandlerOptions, context: SinkContext) -> Sink:
    return HandlerSink(options, context)


KIND = SinkKind(name="handler", summary="a Python function of a worker", options=HandlerOptions, open=_open)
