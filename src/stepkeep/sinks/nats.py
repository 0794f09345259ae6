"""The sink `nats`: publishes each event to a subject of NATS JetStream and waits for the stream's acknowledgement.

The id of the event is its `Nats-Msg-Id`: the stream itself drops an event that is sent again within its window of
duplicates. It makes no stream: one must take the subject. Needs the extra `nats`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.errors import NoStreamResponseError

from stepkeep.kernel.errors import InvalidInput
from stepkeep.sinks.event import OutgoingEvent
from stepkeep.sinks.interface import Sink, SinkContext, SinkFailed, SinkKind
from stepkeep.sinks.servers import CONNECT_SECONDS, Connection, check_name, failed

ACK_SECONDS = 10.0


class NatsOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`server` names the secret with the URL (`nats://…`, `tls://…`); `subject` is where events are published."""

    server: str
    subject: str


class NatsSink:
    """Publishes to one subject."""

    def __init__(self, options: NatsOptions, context: SinkContext) -> None:
        self._subject = options.subject
        self._connection: Connection[Any] = Connection(context, options.server, _connect, _disconnect)

    async def send(self, event: OutgoingEvent) -> None:
        try:
            stream = (await self._connection.get()).jetstream()
            headers = {"Nats-Msg-Id": event.id, "ce-type": event.type}
            await stream.publish(self._subject, event.body(), timeout=ACK_SECONDS, headers=headers)
        except NoStreamResponseError as problem:
            raise failed(
                "nats", problem, said="no stream takes this subject; make one with `nats stream add`"
            ) from None
        except (NatsError, OSError, TimeoutError) as problem:
            await self._connection.drop()
            raise failed("nats", problem) from None

    async def close(self) -> None:
        await self._connection.drop()


async def _connect(address: str) -> Any:
    if "://" not in address:
        raise SinkFailed("nats: the secret with the address is no URL of NATS (nats://host:4222)")
    # The library would reconnect in the background and log the address; the next send opens a connection instead. It
    # tries a server forever with 0 as the number of attempts.
    server: Any = Client()
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await server.connect([address], allow_reconnect=False, max_reconnect_attempts=1, error_cb=_quiet)
    except BaseException:
        # The library leaves the socket open where the server refuses the login.
        await server.close()
        if server._transport is not None:
            server._transport.close()
        raise
    return server


async def _disconnect(server: Any) -> None:
    await server.close()


async def _quiet(problem: Exception) -> None:
    """The send that failed reports it."""


def _check(options: NatsOptions) -> None:
    check_name("nats", "server", options.server)
    check_name("nats", "subject", options.subject)
    if any(part in ("", "*", ">") for part in options.subject.split(".")):
        raise InvalidInput(f"the subject of a nats sink has no wildcards and no empty parts, not {options.subject!a}.")


async def _open(options: NatsOptions, context: SinkContext) -> Sink:
    return NatsSink(options, context)


KIND = SinkKind(
    name="nats",
    summary="a message per event in NATS JetStream",
    options=NatsOptions,
    open=_open,
    check=_check,
    secrets=lambda options: (options.server,),
)
