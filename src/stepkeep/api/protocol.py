"""The server's side of one connection, with a bound on how slowly the headers of a request may arrive.

A client that sends a header now and then would otherwise hold its connection forever. It changes nothing else of the
protocol. `server` uses it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0


class Protocol(H11Protocol):
    """HTTP/1.1 with a time limit for headers."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._begin()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    def _look(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._end()
        elif self._waiting is None and self.conn.trailing_data[0]:
            # Part of the next request on a connection that is kept open.
            self._begin()

    def _begin(self) -> None:
        self._waiting = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _end(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
