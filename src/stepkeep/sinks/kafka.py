"""The sink `kafka`: sends each event to a topic of Kafka, with the run as its key, and waits for all in-sync replicas.

Events of one run have one key and so one partition, which keeps their order. The id is in the header `ce_id`. It makes
no topic. Needs the extra `kafka`. It is written against the client alone and was never run with a broker.
"""

from __future__ import annotations

from typing import Any

import aiokafka
import msgspec
from aiokafka.errors import KafkaError

from stepkeep.sinks.event import OutgoingEvent
from stepkeep.sinks.interface import Sink, SinkContext, SinkKind
from stepkeep.sinks.servers import Connection, check_name, failed

REQUEST_MS = 10_000


class KafkaOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`server` names the secret with the brokers (`host:9092,host:9092`); `topic` is where events are sent."""

    server: str
    topic: str


class KafkaSink:
    """Sends to one topic."""

    def __init__(self, options: KafkaOptions, context: SinkContext) -> None:
        self._topic = options.topic
        self._connection: Connection[Any] = Connection(context, options.server, _connect, _disconnect)

    async def send(self, event: OutgoingEvent) -> None:
        headers = [("ce_id", event.id.encode()), ("ce_type", event.type.encode())]
        try:
            producer = await self._connection.get()
            await producer.send_and_wait(self._topic, event.body(), key=event.run_id.encode(), headers=headers)
        except (KafkaError, OSError, ValueError) as problem:
            await self._connection.drop()
            raise failed("kafka", problem) from None

    async def close(self) -> None:
        await self._connection.drop()


async def _connect(address: str) -> Any:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=address, acks="all", enable_idempotence=True, request_timeout_ms=REQUEST_MS
    )
    try:
        await producer.start()
    except BaseException:
        await producer.stop()
        raise
    return producer


async def _disconnect(producer: Any) -> None:
    await producer.stop()


def _check(options: KafkaOptions) -> None:
    check_name("kafka", "server", options.server)
    check_name("kafka", "topic", options.topic)


async def _open(options: KafkaOptions, context: SinkContext) -> Sink:
    return KafkaSink(options, context)


KIND = SinkKind(
    name="kafka",
    summary="a record per event in a Kafka topic (untested)",
    options=KafkaOptions,
    open=_open,
    check=_check,
    secrets=lambda options: (options.server,),
)
