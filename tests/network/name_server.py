"""A small real name server in a network of its own, and requests that ask it: run by `test_name_server`.

    unshare --map-root-user --mount --net python name_server.py FOLDER

It has a loopback of its own, answers on port 53 of 127.0.0.1, and is the only server that `resolv.conf` names. The
addresses of a name change with each question. It prints JSON: the answer to each request, how often each name was asked
for, and how often the canary was reached.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

from stepkeep.network.allowing import AllowList
from stepkeep.network.client import GuardedClient
from stepkeep.network.failures import RequestFailed
from stepkeep.network.guard import Guard, Reach

ALLOWED, CANARY, PUBLIC = "127.0.0.2", "127.0.0.1", "203.0.113.9"
ANSWERS = {
    "rebinds.test": (ALLOWED, CANARY),
    "turns-inward.test": (CANARY,),
    "two-faced.test": (f"{ALLOWED},{CANARY}",),
}
"""Name to its answers, one after the other; the last one stays."""

SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1
TYPE_A = 1


def loopback_up() -> None:
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


class NameServer:
    """Answers questions for addresses over UDP, with no time to live."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 53))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            question, sender = self._socket.recvfrom(2048)
            self._socket.sendto(self._answer(question), sender)

    def _answer(self, question: bytes) -> bytes:
        labels, at = [], 12
        while size := question[at]:
            labels.append(question[at + 1 : at + 1 + size].decode("ascii"))
            at += size + 1
        name, (kind, _) = ".".join(labels).lower(), struct.unpack(">HH", question[at + 1 : at + 5])
        addresses: list[str] = []
        if kind == TYPE_A and name in ANSWERS:
            told = ANSWERS[name]
            addresses = told[min(self.asked[name], len(told) - 1)].split(",")
            self.asked[name] += 1
        records = [struct.pack(">HHHIH4s", 0xC00C, TYPE_A, 1, 0, 4, socket.inet_aton(one)) for one in addresses]
        head = question[:2] + struct.pack(">HHHHH", 0x8180, 1, len(records), 0, 0)
        return head + question[12 : at + 5] + b"".join(records)


class Site:
    """A web server at one address, which counts its connections."""

    def __init__(self, address: str, port: int = 0) -> None:
        self.connections = 0
        self._socket = socket.create_server((address, port))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            self.connections += 1
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            connection.close()


async def told(client: GuardedClient, url: str) -> str:
    try:
        return str((await client.send("GET", url)).status)
    except RequestFailed as problem:
        return type(problem).__name__


def settle_in(folder: Path) -> None:
    """A loopback, and a name server that the system's resolver asks."""
    loopback_up()
    written = folder / "resolv.conf"
    written.write_text("nameserver 127.0.0.1\noptions timeout:2 attempts:1\n", encoding="ascii")
    subprocess.run(["mount", "--bind", str(written), "/etc/resolv.conf"], check=True)


async def main() -> None:
    names, allowed = NameServer(), Site(ALLOWED)
    canary = Site(CANARY, allowed.port)
    client = GuardedClient(Guard(Reach(allow=AllowList.of([ALLOWED]))), seconds=10.0)
    found = {}
    for request, name in enumerate(("rebinds.test", "rebinds.test", "turns-inward.test", "two-faced.test")):
        found[f"{request} {name}"] = await told(client, f"http://{name}:{allowed.port}/")
    await client.aclose()
    reached = {"canary": canary.connections, "allowed": allowed.connections}
    print(json.dumps({"answers": found, "asked": names.asked, **reached}))


if __name__ == "__main__":
    settle_in(Path(sys.argv[1]))
    asyncio.run(main())
