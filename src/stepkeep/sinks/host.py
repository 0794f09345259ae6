"""The sink `host`: no relay sends; a host program takes the events with `engine.outbox(NAME)` and acknowledges them."""

from __future__ import annotations

import msgspec

from stepkeep.sinks.interface import Sink, SinkContext, SinkFailed, SinkKind


class HostOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """It has none."""


async def _open(options: HostOptions, context: SinkContext) -> Sink:
    raise SinkFailed(f"no relay sends to {context.name}: a host program takes its events with engine.outbox()")


KIND = SinkKind(
    name="host", summary="a program that relays by itself", options=HostOptions, open=_open, is_relayed=False
)
