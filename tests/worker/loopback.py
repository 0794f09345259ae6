"""A real HTTP server on the loopback that keeps the requests it saw and gives the answers it was told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, str], bytes]
"""Status, headers and body."""


class Recorder(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections may be used again

    def answer(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        server: Any = self.server
        server.raw.setdefault(self.path, []).append(body)
        request = {
            "method": self.command,
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": body.decode("utf-8", "replace"),
            "peer": self.client_address,
        }
        server.requests.append(request)
        found = server.answers.get(self.path, (200, {}, b"{}"))
        status, headers, content = found(request) if callable(found) else found
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 - the standard library's names

    def log_message(self, *_: object) -> None: ...


class Server:
    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
        self.requests: list[dict[str, Any]] = []
        self.answers: dict[str, Answer | Callable[[dict[str, Any]], Answer]] = {}
        self.raw: dict[str, list[bytes]] = {}
        """The bodies as they came, by path."""
        self._server.requests, self._server.answers = self.requests, self.answers  # type: ignore[attr-defined]
        self._server.raw = self.raw  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
