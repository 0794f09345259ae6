"""Signed webhooks to a receiver that misbehaves, from workers that are killed: each event at least once, in order.

The receiver is a real HTTP server, and it verifies with the official library of Standard Webhooks.
"""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook
from tests.processes import Fleet, Program
from tests.suites import first_on, in_proof
from tests.worker.relay_process import EVENTS

import stepkeep as sk

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
OLD_SECRET = "whsec_" + base64.b64encode(b"o" * 32).decode()
STEPS = 2
MODES = ("ok", "ok", "500", "garbage", "hang", "reset", "half", "accepted, then reset")


class Receiver(ThreadingHTTPServer):
    """Misbehaves at the first arrival of most events, and then takes them."""

    daemon_threads = True
    request_queue_size = 100

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.changed = threading.Condition()
        self.arrived: list[str] = []
        self.taken: list[str] = []
        self.forged: list[str] = []
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hooks"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that was cut: one of the modes does it."""

    def wait_for(self, count: int, seconds: float) -> int:
        """Wait until so many different events were taken. Returns how many were."""
        with self.changed:
            self.changed.wait_for(lambda: len(set(self.taken)) >= count, seconds)
            return len(set(self.taken))


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        size = int(self.headers["content-length"])
        body = self.rfile.read(size)
        if len(body) < size:
            return  # the sender was killed in the middle of it
        name = self.headers["webhook-id"]
        with self.server.changed:
            first = name not in self.server.arrived
            self.server.arrived.append(name)
        try:
            for secret in (SECRET, OLD_SECRET):
                Webhook(secret).verify(body, dict(self.headers.items()))
        except Exception as problem:  # noqa: BLE001 - whatever the library says of it
            self.server.forged.append(f"{name}: {problem}")
        mode = MODES[hashlib.sha256(name.encode()).digest()[0] % len(MODES)] if first else "ok"
        getattr(self, f"_{mode.partition(',')[0]}")(name) if mode != "accepted, then reset" else self._cut(name)

    def _take(self, name: str) -> None:
        with self.server.changed:
            self.server.taken.append(name)
            self.server.changed.notify_all()

    def _ok(self, name: str) -> None:
        self._take(name)
        self.send_response(204)
        self.end_headers()

    def _500(self, name: str) -> None:
        self.send_response(500)
        self.end_headers()

    def _garbage(self, name: str) -> None:
        self.wfile.write(os.urandom(300))

    def _hang(self, name: str) -> None:
        self.server.closing.wait(3)

    def _reset(self, name: str) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def _half(self, name: str) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\nhalf")

    def _cut(self, name: str) -> None:
        """It has the event, and dies before it says so."""
        self._take(name)
        self._reset(name)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.closing.set()
    server.shutdown()
    server.server_close()
    thread.join(10)


class Relays(Fleet):
    """Worker processes; one of them is killed now and then and replaced."""

    def __init__(self, url: str, folder: Path, count: int, **variables: str) -> None:
        secrets = {"STEPKEEP_SECRET_HOOK": SECRET, "STEPKEEP_SECRET_HOOK_OLD": OLD_SECRET}
        super().__init__(url, folder, secrets | variables)
        self.live = [self._relay() for _ in range(count)]

    def _relay(self) -> Program:
        return self.start(str(Path(__file__).with_name("relay_process.py")), self.url, is_heard=False)

    def kill_one(self, place: int) -> None:
        self.live[place % len(self.live)].end()
        self.live[place % len(self.live)] = self._relay()

    def stop(self) -> list[int]:
        """A clean stop of all."""
        for one in self.live:
            one.terminate()
        return [one.wait(60) for one in self.live]


@first_on("sqlite")
@pytest.mark.parametrize(("runs", "kills", "seconds"), [(3, 1, 90.0), in_proof(150, 25, 600.0)])
def test_each_event_reaches_a_receiver_that_misbehaves_while_workers_are_killed(
    database_url: str, tmp_path: Path, receiver: Receiver, runs: int, kills: int, seconds: float
) -> None:
    flow = sk.Workflow("telling")
    # On a busy machine a worker is killed before it has finished anything, and losses are not the matter here.
    patient = sk.Retry(max_losses=10)
    first = flow.step("one", "tell", retry=patient)
    flow.step("two", "tell", after=[first], retry=patient)
    expected = runs * STEPS * EVENTS
    end = time.monotonic() + seconds
    with sk.open(database_url) as engine:
        options = {"url": receiver.url, "secrets": ["HOOK", "HOOK_OLD"], "seconds": 1.0}
        engine.sinks.add("shop", "webhook", on=["order.*"], options=options)
        ids = [engine.start(flow).run_id for _ in range(runs)]
        with Relays(database_url, tmp_path, 2) as fleet:
            for kill in range(kills):
                receiver.wait_for((kill + 1) * expected // (kills + 2), max(0.0, end - time.monotonic()) / (kills + 1))
                fleet.kill_one(kill)
            assert receiver.wait_for(expected, max(0.0, end - time.monotonic())) == expected
            for run in ids:
                assert engine.wait(run, seconds=30).state == "succeeded"
            while engine.outbox.status()["sinks"][0]["waiting"] and time.monotonic() < end:
                with receiver.changed:
                    receiver.changed.wait(0.2)
            assert fleet.stop() == [0, 0]
        assert engine.outbox.status()["sinks"] == [{"sink": "shop", "waiting": 0, "dead": 0, "lag_seconds": 0.0}]
        arrived = len(receiver.arrived)
        with Relays(database_url, tmp_path, 1) as again:
            late = engine.start(flow).run_id
            assert receiver.wait_for(expected + STEPS * EVENTS, 60) == expected + STEPS * EVENTS
            assert again.stop() == [0]
    assert receiver.forged == []
    others = [name for name in receiver.arrived[arrived:] if not name.startswith(late)]
    assert others == [], "what was acknowledged is never sent again after a clean stop"
    in_order: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for name in dict.fromkeys(receiver.taken):
        run, seq, number = name.split("/")
        in_order[run].append((int(seq), int(number)))
    assert set(in_order) == {*ids, late}
    for places in in_order.values():
        assert len(places) == STEPS * EVENTS
        assert places == sorted(places), "in order for each run"
