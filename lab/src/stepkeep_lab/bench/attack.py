"""One tenant that does its worst over HTTP, in a process of its own.

Each attack is a coroutine that goes on until it is cancelled, and takes any answer for an answer. It only ever talks to
the address that it is given, which must be on loopback. `neighbour` starts it with the address, a key, a run that waits
and the seconds. It prints how often each status came.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from ipaddress import ip_address
from itertools import count
from urllib.parse import urlsplit

import msgspec

Answers = Counter[str]
IDLE_SOCKETS = 600
"""Of each kind that waits: more than a key may have of one kind of place would only be refused."""
KINDS = (
    "schemas",
    "expressions",
    "messages",
    "inputs",
    "simulations",
    "reads",
    "unread",
    "dripped",
    "polls",
    "streams",
)
TEXT = "x" * 250_000
NUMBERS = list(range(600_000))
STEP = {"name": "a", "uses": "bench.nothing", "timeout": "5s"}


class Attacker:
    """The requests of one tenant."""

    def __init__(self, address: str, key: str, run: str, only: Collection[str]) -> None:
        parts = urlsplit(address)
        self._host, self._port = parts.hostname or "", parts.port or 80
        if not ip_address(self._host).is_loopback:
            raise ValueError("only a service on loopback is attacked")
        self._key, self._run, self._only = key, run, only
        self.answers: Answers = Counter()
        self._numbers = count()

    def _head(self, method: str, path: str, size: int, *, keyed: bool = True) -> bytes:
        key = f"Authorization: Bearer {self._key}\r\n" if keyed else ""
        return (
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\n{key}Content-Type: application/json\r\n"
            f"Content-Length: {size}\r\n\r\n"
        ).encode()

    async def ask(self, name: str, requests: Callable[[], tuple[str, str, object]]) -> None:
        """One request after the other over one connection."""
        while True:
            try:
                reader, writer = await asyncio.open_connection(self._host, self._port)
                try:
                    while True:
                        method, path, body = requests()
                        sent = body if isinstance(body, bytes) else msgspec.json.encode(body)
                        writer.write(self._head(method, path, len(sent)) + sent)
                        head = await reader.readuntil(b"\r\n\r\n")
                        self.answers[f"{name} {head[9:12].decode()}"] += 1
                        _, _, rest = head.lower().partition(b"\r\ncontent-length:")
                        await reader.readexactly(int(rest.partition(b"\r\n")[0] or 0))
                finally:
                    writer.close()
            except (OSError, asyncio.IncompleteReadError, ValueError):
                self.answers[f"{name} cut"] += 1
                await asyncio.sleep(0.01)

    async def hold(self, name: str, sent: bytes, drip: bytes = b"") -> None:
        """A connection that waits for as long as it may, and then another one."""
        while True:
            try:
                reader, writer = await asyncio.open_connection(self._host, self._port)
                try:
                    writer.write(sent)
                    while True:
                        try:
                            told = await asyncio.wait_for(reader.read(4096), 1.0)
                        except TimeoutError:
                            writer.write(drip)
                            continue
                        if not told:
                            break
                        if told.startswith(b"HTTP/1.1 "):
                            self.answers[f"{name} {told[9:12].decode()}"] += 1
                            if told[9:12] != b"200":
                                break
                finally:
                    writer.close()
            except OSError:
                self.answers[f"{name} cut"] += 1
            await asyncio.sleep(0.5)

    def worst(self) -> list[Awaitable[None]]:
        """Every attack at once."""
        number = self._numbers.__next__

        def bomb() -> tuple[str, str, object]:
            parts = {f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(28)}
            schema = {"$defs": {**parts, "d28": {}}, "$ref": "#/$defs/d0"}
            return "POST", "/workflows", {"workflow": f"bomb{number()}", "input_schema": schema, "steps": [STEP]}

        def checked() -> tuple[str, str, object]:
            return "POST", "/runs", {"workflow": "checked", "input": {"text": "ab" * 40_000, "many": NUMBERS[:50_000]}}

        def expression() -> tuple[str, str, object]:
            condition = " || ".join(f"input.a{place} == {place}" for place in range(200))
            steps = [{**STEP, "name": f"s{place}", "when": condition} for place in range(20)]
            return "POST", "/workflows/check", {"workflow": f"w{number()}", "timeout": "1h", "steps": steps}

        def message() -> tuple[str, str, object]:
            return "POST", "/messages", {"name": "paid", "business_key": f"k{number()}", "payload": TEXT}

        large = msgspec.json.encode({"workflow": "plain", "input": {"many": NUMBERS}})
        asking: list[tuple[str, int, Callable[[], tuple[str, str, object]]]] = [
            ("schemas", 4, bomb),
            ("schemas", 4, checked),
            ("expressions", 4, expression),
            ("messages", 4, message),
            ("inputs", 4, lambda: ("POST", "/runs", large)),
            ("simulations", 2, lambda: ("GET", "/workflows/checked/simulation", b"")),
            ("reads", 16, lambda: ("GET", "/runs?limit=200", b"")),
        ]
        found: list[Awaitable[None]] = []
        for name, clients, requests in asking:
            if self._may(name):
                found += [self.ask(name, requests) for _ in range(clients)]
        unread, open_unread = self._head("POST", "/runs", 4000), self._head("POST", "/session", 4000, keyed=False)
        poll = self._head("GET", f"/runs/{self._run}/result?wait=25", 0)
        stream = self._head("GET", "/stream", 0)
        held = (("unread", open_unread, b""), ("dripped", unread, b" "), ("polls", poll, b""), ("streams", stream, b""))
        for name, sent, drip in held:
            if self._may(name):
                found += [self.hold(name, sent, drip) for _ in range(IDLE_SOCKETS)]
        return found

    def _may(self, name: str) -> bool:
        return not self._only or name in self._only


async def attack(address: str, key: str, run: str, seconds: float, only: Collection[str]) -> None:
    """Every attack at once, or only these, for so long; ends the process with its connections as they are."""
    attacker = Attacker(address, key, run, only)
    tasks = [asyncio.ensure_future(one) for one in attacker.worst()]
    await asyncio.sleep(seconds)
    sys.stdout.write(json.dumps(attacker.answers))
    sys.stdout.flush()
    os._exit(int(not tasks))


if __name__ == "__main__":
    _, given_address, given_key, given_run, given_seconds, *given_only = sys.argv
    asyncio.run(attack(given_address, given_key, given_run, float(given_seconds), given_only))
