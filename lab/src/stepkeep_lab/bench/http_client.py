"""A small HTTP/1.1 client over one kept connection, so that a bench measures the service and not its client.

It sends JSON and reads answers with a Content-Length. It follows nothing and repeats nothing. After an answer that
closes the connection it opens another one. `http_service` and `restarts` call it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec

from stepkeep_lab.bench.ground import NotMeasured

DONE = range(200, 300)


class Connection:
    """One connection to a service, used by one client for one request at a time."""

    def __init__(self, address: str, key: str = "") -> None:
        parts = urlsplit(address)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        said = f"Host: {self._host}:{self._port}\r\nContent-Type: application/json\r\n"
        self._headers = said + (f"Authorization: Bearer {key}\r\n" if key else "")

    async def __aenter__(self) -> Self:
        await self._connect()
        return self

    async def _connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        self._is_closing = False

    async def __aexit__(self, *problem: object) -> None:
        self._writer.close()

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """The JSON value of an answer; NotMeasured where its status is no success."""
        if self._is_closing:
            self._writer.close()
            await self._connect()
        sent = b"" if body is None else msgspec.json.encode(body)
        self._writer.write(
            f"{method} {path} HTTP/1.1\r\n{self._headers}Content-Length: {len(sent)}\r\n\r\n".encode() + sent
        )
        head = await self._reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        small = head.lower()
        self._is_closing = b"\r\nconnection: close\r\n" in small
        _, _, rest = small.partition(b"\r\ncontent-length:")
        told = await self._reader.readexactly(int(rest.partition(b"\r\n")[0]))
        if status not in DONE:
            raise NotMeasured(f"{method} {path} was answered with {status}: {told[:200]!r}")
        return msgspec.json.decode(told)
