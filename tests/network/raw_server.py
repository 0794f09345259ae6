"""A real TCP listener on the loopback: it counts connections and bytes, and answers as a script says."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

Script = Callable[[socket.socket, threading.Event], None]
"""What happens on one connection; the event says that the listener closes."""


def answering(answer: bytes) -> Script:
    """Send an answer at once, and read what comes until the other side closes."""

    def script(connection: socket.socket, _: threading.Event) -> None:
        connection.sendall(answer)

    return script


class Listener:
    """Keeps all bytes of every connection in `received`."""

    def __init__(self, script: Script | None = None, family: int = socket.AF_INET, host: str = "127.0.0.1") -> None:
        self._script, self._over = script, threading.Event()
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((host, 0))
        self._socket.listen(128)
        self.port = int(self._socket.getsockname()[1])
        self.connections = 0
        self.received = b""
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(10)
            with contextlib.suppress(OSError):
                if self._script is not None:
                    self.received += connection.recv(65536)
                    self._script(connection, self._over)
                    connection.shutdown(socket.SHUT_WR)
                while piece := connection.recv(65536):
                    self.received += piece
