"""The sink `message`: sends each event as a message to the run that has a business key, or keeps it for that run.

The id of the message is that of the event, so that a repeated send changes nothing. The key is a text in which
`{run_id}`, `{workflow}` and `{correlation_id}` are filled in.
"""

from __future__ import annotations

import msgspec

from stepkeep.kernel.errors import InvalidInput, Refused
from stepkeep.sinks.event import OutgoingEvent
from stepkeep.sinks.interface import Sink, SinkContext, SinkFailed, SinkKind

FILLED = ("run_id", "workflow", "correlation_id")


class MessageOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`key` is the business key of the run that gets the message, and `name` the name of the message: by default the
    type of the event. With `workflow`, events of other workflows are passed over."""

    key: str
    name: str | None = None
    workflow: str | None = None


class MessageSink:
    """Sends messages to one key, or to one key per run."""

    def __init__(self, options: MessageOptions, context: SinkContext) -> None:
        self._options, self._message = options, context.message

    async def send(self, event: OutgoingEvent) -> None:
        if self._options.workflow not in (None, event.workflow):
            return
        key = self._options.key
        for name in FILLED:
            key = key.replace(f"{{{name}}}", getattr(event, name))
        try:
            await self._message(key, self._options.name or event.type, event.id, event.body())
        except (InvalidInput, Refused) as refused:
            raise SinkFailed(str(refused), is_final=isinstance(refused, InvalidInput)) from None

    async def close(self) -> None:
        """It holds nothing between two events."""


def _check(options: MessageOptions) -> None:
    if not options.key.strip() or (options.name is not None and not options.name.strip()):
        raise InvalidInput("a message sink has a key, and a name that is not empty.")


async def _open(options: MessageOptions, context: SinkContext) -> Sink:
    return MessageSink(options, context)


KIND = SinkKind(
    name="message",
    summary="a message to the run that has a business key",
    options=MessageOptions,
    open=_open,
    check=_check,
)
