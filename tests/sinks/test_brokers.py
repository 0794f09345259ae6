"""The sinks of brokers against real servers: acknowledged, in order, with the same id again, and after a kill -9."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats as nats_client
import pytest
import redis as redis_client
from msgspec.structs import replace
from tests.sinks.brokers import Broker, free_port, nats_server, redis_server, running
from tests.sinks.test_interface import PAID

from stepkeep.kernel.errors import InvalidInput
from stepkeep.sinks import nats, registry
from stepkeep.sinks.event import OutgoingEvent
from stepkeep.sinks.interface import Sink, SinkContext, SinkFailed

PASSWORD = "CANARY-4711"
REDIS = {"server": "BROKER", "stream": "orders"}
NATS = {"server": "BROKER", "subject": "orders.events"}
KAFKA = {"server": "BROKER", "topic": "orders"}


def numbered(number: int) -> OutgoingEvent:
    return replace(PAID, seq=number, run_id=f"r-{number % 3}")


async def opened(kind: str, options: dict[str, Any], *addresses: str) -> Sink:
    """A sink whose secret has these values, one after the other."""
    asked = iter(addresses)
    known = [addresses[0]]

    async def secret(name: str) -> str:
        assert name == "BROKER"
        known[0] = next(asked, known[0])
        return known[0]

    found = registry.kind_of(kind)
    read = found.read(options)
    assert found.secrets(read) == ("BROKER",)
    return await found.open(read, SinkContext(name="s", tenant="acme", secret=secret))


# -- Redis -------------------------------------------------------------------------------------------------------------
@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Broker]:
    with running(redis_server(tmp_path, PASSWORD)) as server:
        yield server


def redis_url(server: Broker) -> str:
    return f"redis://:{PASSWORD}@127.0.0.1:{server.port}/0"


def entries(server: Broker) -> list[dict[bytes, bytes]]:
    with redis_client.from_url(redis_url(server)) as client:
        return [fields for _, fields in client.xrange("orders")]


async def test_redis_has_every_acknowledged_event_in_order_also_after_a_kill(redis: Broker) -> None:
    sink = await opened("redis", REDIS, redis_url(redis))
    for number in range(20):
        await sink.send(numbered(number))
    redis.kill()
    with pytest.raises(SinkFailed) as caught:
        await sink.send(numbered(20))
    assert PASSWORD not in str(caught.value)
    redis.start()
    for number in (20, 20, 21):
        await sink.send(numbered(number))
    await sink.close()
    found = entries(redis)
    assert [one[b"id"].decode() for one in found] == [numbered(n).id for n in (*range(20), 20, 20, 21)]
    assert found[0][b"type"] == b"order.paid"
    assert json.loads(found[5][b"event"])["subject"] == found[5][b"run"].decode() == "r-2"


async def test_a_redis_that_refuses_says_why_and_shows_no_password(redis: Broker) -> None:
    async def refused(*addresses: str) -> str:
        sink = await opened("redis", REDIS, *addresses)
        try:
            with pytest.raises(SinkFailed) as caught:
                await sink.send(PAID)
        finally:
            await sink.close()
        assert PASSWORD not in str(caught.value)
        return str(caught.value)

    with redis_client.from_url(redis_url(redis)) as client:
        client.set("orders", "no stream")
    assert "WRONGTYPE" in await refused(redis_url(redis))
    await refused(redis_url(redis).replace(PASSWORD, f"wrong-{PASSWORD}"))
    await refused(f"redis://:{PASSWORD}@127.0.0.1:{free_port()}/0")
    assert "no URL of Redis" in await refused(f"http://{PASSWORD}")


async def test_a_redis_whose_address_changes_is_found_at_its_new_one(redis: Broker, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()

    async def send(other: Broker) -> None:
        sink = await opened("redis", REDIS | {"most": 100}, redis_url(redis), redis_url(other))
        await sink.send(numbered(1))
        await sink.send(numbered(2))
        await sink.close()

    with running(redis_server(tmp_path / "other", PASSWORD)) as other:
        await send(other)
        assert [len(entries(server)) for server in (redis, other)] == [1, 1]


# -- NATS --------------------------------------------------------------------------------------------------------------
def nats_url(server: Broker) -> str:
    return f"nats://stepkeep:{PASSWORD}@127.0.0.1:{server.port}"


async def messages(server: Broker) -> list[dict[str, Any]]:
    client = await nats_client.connect(nats_url(server))
    stream = client.jetstream()
    state = (await stream.stream_info("ORDERS")).state
    found = [await stream.get_msg("ORDERS", seq) for seq in range(1, state.last_seq + 1)]
    await client.close()
    return [json.loads(one.data or b"") for one in found]


async def test_nats_keeps_every_acknowledged_event_once_and_in_order_also_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats, "ACK_SECONDS", 1.0)
    server = nats_server(tmp_path, PASSWORD)

    with running(server):
        client = await nats_client.connect(nats_url(server))
        sink = await opened("nats", NATS, nats_url(server))
        with pytest.raises(SinkFailed, match="no stream takes this subject"):
            await sink.send(PAID)
        await client.jetstream().add_stream(name="ORDERS", subjects=["orders.>"])
        await client.close()
        for number in (*range(20), 7, 7):
            await sink.send(numbered(number))
        server.kill()
        with pytest.raises(SinkFailed) as caught:
            await sink.send(numbered(20))
        assert PASSWORD not in str(caught.value)
        server.start()
        for number in (20, 20, 21):
            await sink.send(numbered(number))
        await sink.close()
        found = await messages(server)
    assert [one["id"] for one in found] == [numbered(n).id for n in range(22)], "the stream drops what it has"


async def test_a_nats_that_is_not_there_or_refuses_is_a_failure_without_the_password(tmp_path: Path) -> None:
    async def refused(address: str) -> None:
        sink = await opened("nats", NATS, address)
        with pytest.raises(SinkFailed) as caught:
            await sink.send(PAID)
        await sink.close()
        assert PASSWORD not in str(caught.value)

    with running(nats_server(tmp_path, "another")) as server:
        await refused(nats_url(server))
    await refused(nats_url(server))
    await refused(PASSWORD)


# -- Kafka -------------------------------------------------------------------------------------------------------------
async def test_a_kafka_that_is_not_there_is_a_failure() -> None:
    """No broker is to be had here: that events arrive is not tested."""

    sink = await opened("kafka", KAFKA, f"127.0.0.1:{free_port()}")
    with pytest.raises(SinkFailed, match="kafka"):
        await sink.send(PAID)
    await sink.close()


# -- options -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("redis", {"server": "X"}),
        ("redis", REDIS | {"url": "redis://localhost"}),
        ("redis", REDIS | {"stream": ""}),
        ("redis", REDIS | {"stream": "a b"}),
        ("redis", REDIS | {"most": 0}),
        ("redis", REDIS | {"server": "a\nb"}),
        ("nats", NATS | {"subject": "a.*"}),
        ("nats", NATS | {"subject": "a..b"}),
        ("nats", NATS | {"subject": ">"}),
        ("nats", {}),
        ("kafka", KAFKA | {"topic": "x" * 201}),
        ("kafka", KAFKA | {"topic": 5}),
    ],
)
def test_options_that_cannot_work_are_refused(kind: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=kind):
        registry.kind_of(kind).read(options)
