"""The server's side of one connection, with bounds on how slowly and how long the parts of a request may arrive.

A client that sends a header now and then would otherwise hold its connection forever, and one that never ends a header
would fill the memory. The same holds for a body that still arrives after the answer, and an answer that is not read.
Where all connections that the process can have are taken, the one that has been idle for the longest time is closed.
Trailers of a body are dropped: the headers of a request do not change once they are read. The parser is httptools;
where it is not installed, h11, which takes about 150 µs more for a request. `server` uses it.
"""

from __future__ import annotations

import asyncio
import resource
from collections import OrderedDict
from functools import cache
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    from uvicorn.server import ServerState
else:
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ImportError:
        HttpToolsProtocol = None

HEADER_SECONDS = 10.0
LINGER_SECONDS = 5.0
"""For how long the rest of a body may arrive after the answer."""
RESERVED_FILES = 128
MAX_INCOMPLETE_BYTES = 64 * 1024
"""What one request line with its headers may have, and what may stand between two parts of a body."""


class HeaderTimer:
    """Closes a connection whose headers take longer than `HEADER_SECONDS`, or whose body goes on after the answer."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    server_state: ServerState
    _waiting: asyncio.TimerHandle | None = None

    def _begin(self, seconds: float | None = None) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(seconds or HEADER_SECONDS, self.transport.close)

    def _rest(self) -> None:
        """No request is under way on this connection. Close the oldest such one if there are too many connections."""
        IDLE[self] = None
        if len(self.server_state.connections) > most_connections():
            oldest, _ = IDLE.popitem(last=False)
            oldest.transport.abort()

    def timeout_keep_alive_handler(self) -> None:
        """Called when no new request came for a while. A client that does not read its answer is cut off."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        self.transport.close()

    def _end(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


IDLE: OrderedDict[HeaderTimer, None] = OrderedDict()
"""Connections of this process without a request under way, the oldest first."""


@cache
def most_connections() -> int:
    """How many connections the process may have: the rest of its open files is for databases and logs."""
    return max(64, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - RESERVED_FILES)


class PythonProtocol(HeaderTimer, H11Protocol):
    """HTTP/1.1 by h11, which bounds the headers itself."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._begin()
        self._rest()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self._rest()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        IDLE.pop(self, None)
        super().connection_lost(exc)

    def _look(self) -> None:
        if self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete:
            self._begin(LINGER_SECONDS)
        elif self.conn.their_state is not h11.IDLE:
            self._end()
            IDLE.pop(self, None)
        elif self.conn.trailing_data[0]:
            # Part of the next request on a connection that is kept open.
            self._begin()


if HttpToolsProtocol is None:
    Protocol: type[asyncio.Protocol] = PythonProtocol
else:

    class NativeProtocol(HeaderTimer, HttpToolsProtocol):
        """HTTP/1.1 by httptools."""

        _has_headers = False
        _is_arriving = False
        _incomplete = 0

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._begin()
            self._rest()

        def data_received(self, data: bytes) -> None:
            self._incomplete += len(data)
            super().data_received(data)
            if self._incomplete > MAX_INCOMPLETE_BYTES and not self.transport.is_closing():
                self.send_400_response("Invalid HTTP request received.")

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.transport.is_closing() or not self.cycle.response_complete:
                return
            if self._is_arriving:
                self._begin(LINGER_SECONDS)
            else:
                self._rest()

        def connection_lost(self, exc: Exception | None) -> None:
            self._end()
            IDLE.pop(self, None)
            super().connection_lost(exc)

        def on_message_begin(self) -> None:
            self._has_headers = False
            self._begin()
            super().on_message_begin()

        def on_header(self, name: bytes, value: bytes) -> None:
            if not self._has_headers:
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            if sum(name == b"host" for name, _ in self.headers) != 1 and self.parser.get_http_version() == "1.1":
                raise ValueError("one Host header is needed")  # the parser makes a 400 of it, as h11 does
            self._has_headers, self._incomplete, self._is_arriving = True, 0, True
            self._end()
            IDLE.pop(self, None)
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._incomplete = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._incomplete, self._is_arriving = 0, False
            if self.cycle.response_complete:
                self._end()
                self._rest()
            super().on_message_complete()

    Protocol = NativeProtocol
