"""The sink `redis`: appends each event to a Redis stream, as the fields `id`, `type`, `run` and `event`.

Redis keeps the order of a stream. An event that is sent again has the same `id`, by which a consumer ignores it. It
reads nothing and makes no consumer group. Needs the extra `redis`.
"""

from __future__ import annotations

from typing import Any

import msgspec
import redis.asyncio as client
from redis.exceptions import RedisError, ResponseError

from stepkeep.kernel.errors import InvalidInput
from stepkeep.sinks.event import OutgoingEvent
from stepkeep.sinks.interface import Sink, SinkContext, SinkFailed, SinkKind
from stepkeep.sinks.servers import CONNECT_SECONDS, Connection, check_name, failed

REPLY_SECONDS = 10.0


class RedisOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`server` names the secret with the URL (`redis://…`, `rediss://…`); `most` bounds the length of the stream."""

    server: str
    stream: str
    most: int | None = None


class RedisSink:
    """Appends to one stream."""

    def __init__(self, options: RedisOptions, context: SinkContext) -> None:
        self._options = options
        self._connection: Connection[Any] = Connection(context, options.server, _connect, _disconnect)

    async def send(self, event: OutgoingEvent) -> None:
        options = self._options
        fields = {"id": event.id, "type": event.type, "run": event.run_id, "event": event.body()}
        try:
            server = await self._connection.get()
            await server.xadd(options.stream, fields, maxlen=options.most, approximate=True)
        except ResponseError as problem:
            # The first word is the server's code, such as WRONGTYPE, OOM or NOAUTH.
            raise failed("redis", problem, said=f"the server answered {str(problem).partition(' ')[0][:40]}") from None
        except (RedisError, OSError) as problem:
            await self._connection.drop()
            raise failed("redis", problem) from None

    async def close(self) -> None:
        await self._connection.drop()


async def _connect(address: str) -> Any:
    try:
        return client.from_url(
            address,
            socket_timeout=REPLY_SECONDS,
            socket_connect_timeout=CONNECT_SECONDS,
            single_connection_client=False,
        )
    except ValueError:
        raise SinkFailed("redis: the secret with the address is no URL of Redis (redis://host:6379/0)") from None


async def _disconnect(server: Any) -> None:
    await server.aclose()


def _check(options: RedisOptions) -> None:
    check_name("redis", "server", options.server)
    check_name("redis", "stream", options.stream)
    if options.most is not None and not 0 < options.most <= 1_000_000_000:
        raise InvalidInput("the option most of a redis sink is a number of entries from 1 to 1,000,000,000.")


async def _open(options: RedisOptions, context: SinkContext) -> Sink:
    return RedisSink(options, context)


KIND = SinkKind(
    name="redis",
    summary="an entry per event in a Redis stream",
    options=RedisOptions,
    open=_open,
    check=_check,
    secrets=lambda options: (options.server,),
)
