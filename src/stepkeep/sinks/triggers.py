"""The sink `triggers`: hands events that runs emit to the triggers of their tenant. Every worker relays to it.

It is added and kept up to date with the event triggers of a tenant; it is no kind that can be added by hand. An event
is acknowledged when every trigger that it concerns has fired; one that is sent again fires nothing again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from stepkeep.sinks.event import OutgoingEvent
from stepkeep.sinks.interface import Sink, SinkContext, SinkFailed, SinkKind

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


async def _open(options: TriggerOptions, context: SinkContext) -> Sink:
    return TriggerSink(context.fire)


KIND = SinkKind(name=NAME, summary="the triggers of the tenant", options=TriggerOptions, open=_open)
