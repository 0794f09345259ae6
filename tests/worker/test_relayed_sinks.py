"""Functions, Redis and NATS through the relays of real worker processes, one of which is killed with -9 on the way."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats as nats_client
import pytest
import redis as redis_client
from tests.sinks.brokers import nats_server, redis_server, running
from tests.suites import first_on
from tests.worker.relay_process import EVENTS
from tests.worker.test_relay_kills import STEPS, Relays

import stepkeep as sk

PASSWORD = "CANARY-4711"
RUNS = 8
EXPECTED = (RUNS + 1) * STEPS * EVENTS
"""One run is started after the kill, so that the next worker has something to do in any case."""
SECONDS = 90.0


def until(holds: Callable[[], bool], end: float) -> None:
    """Look now and then until it holds."""
    changed = threading.Event()
    while not holds():
        assert time.monotonic() < end, "it did not come to it in time"
        changed.wait(0.05)


def relayed(
    url: str, folder: Path, arrived: Callable[[], list[str]], add: Callable[[sk.Engine], Any], **variables: str
) -> list[str]:
    """Start runs that emit, kill the only worker when some events have arrived, and return all arrivals."""
    flow = sk.Workflow("telling")
    patient = sk.Retry(max_losses=10)
    first = flow.step("one", "tell", retry=patient)
    flow.step("two", "tell", after=[first], retry=patient)
    end = time.monotonic() + SECONDS
    with sk.open(url) as engine:
        add(engine)
        with Relays(url, folder, 1, **variables) as fleet:
            until(lambda: bool(engine.sinks.list()["sinks"]), end)
            ids = [engine.start(flow).run_id for _ in range(RUNS)]
            until(lambda: len(arrived()) >= 3, end)
            fleet.kill_one(0)
            ids.append(engine.start(flow).run_id)
            until(lambda: len(set(arrived())) >= EXPECTED, end)
            until(lambda: engine.outbox.status()["sinks"][0]["waiting"] == 0, end)
            assert fleet.stop() == [0]
        assert {engine.wait(run, seconds=5).state for run in ids} == {"succeeded"}
    return in_order(arrived(), ids)


def in_order(arrived: list[str], ids: list[str]) -> list[str]:
    """Each event at least once, and first arrivals in order for each run."""
    firsts = list(dict.fromkeys(arrived))
    assert {name.partition("/")[0] for name in firsts} == set(ids)
    assert len(firsts) == EXPECTED
    for run in ids:
        places = [tuple(map(int, name.split("/")[1:])) for name in firsts if name.startswith(run)]
        assert places == sorted(places)
    return arrived


@first_on("sqlite")
def test_a_function_of_a_worker_gets_each_event_in_order_although_the_worker_is_killed(
    database_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "told"

    def arrived() -> list[str]:
        return file.read_text().splitlines() if file.exists() else []

    relayed(database_url, tmp_path, arrived, lambda engine: None, TOLD_FILE=str(file))


@first_on("sqlite")
@pytest.mark.proof
def test_redis_gets_each_event_in_order_although_the_relay_is_killed(database_url: str, tmp_path: Path) -> None:
    with running(redis_server(tmp_path, PASSWORD)) as server:
        address = f"redis://:{PASSWORD}@127.0.0.1:{server.port}/0"

        def arrived() -> list[str]:
            with redis_client.from_url(address) as client:
                return [fields[b"id"].decode() for _, fields in client.xrange("orders")]

        def add(engine: sk.Engine) -> None:
            engine.sinks.add("shop", "redis", on=["order.*"], options={"server": "BROKER", "stream": "orders"})

        relayed(database_url, tmp_path, arrived, add, STEPKEEP_SECRET_BROKER=address)


async def make_stream(address: str) -> None:
    client = await nats_client.connect(address)
    await client.jetstream().add_stream(name="ORDERS", subjects=["orders.>"])
    await client.close()


async def read_stream(address: str) -> list[str]:
    client = await nats_client.connect(address)
    stream = client.jetstream()
    state = (await stream.stream_info("ORDERS")).state
    found = [await stream.get_msg("ORDERS", seq) for seq in range(1, state.last_seq + 1)]
    await client.close()
    return [json.loads(one.data or b"")["id"] for one in found]


@first_on("sqlite")
@pytest.mark.proof
def test_nats_has_each_event_once_and_in_order_although_the_relay_is_killed(database_url: str, tmp_path: Path) -> None:
    with running(nats_server(tmp_path, PASSWORD)) as server:
        address = f"nats://stepkeep:{PASSWORD}@127.0.0.1:{server.port}"

        def add(engine: sk.Engine) -> None:
            asyncio.run(make_stream(address))
            engine.sinks.add("shop", "nats", on=["order.*"], options={"server": "BROKER", "subject": "orders.events"})

        found = relayed(
            database_url, tmp_path, lambda: asyncio.run(read_stream(address)), add, STEPKEEP_SECRET_BROKER=address
        )
        assert len(found) == len(set(found)), "the stream drops what it has"
