"""The socket that a server of this process listens on: a new one, or one that a supervisor passed on.

It accepts nothing itself. The HTTP service and the port of metrics use it.
"""

from __future__ import annotations

import os
import socket

from stepkeep.kernel.errors import InvalidInput

BACKLOG = 2048
UNREAD_SECONDS = 60


def listen(host: str, port: int, fd: int | None = None) -> socket.socket:
    """The socket to serve on: a new one, or the one that a supervisor passed on."""
    if fd is not None:
        try:
            return socket.socket(fileno=os.dup(fd))
        except OSError as problem:
            raise InvalidInput(f"--fd {fd} is no socket: {problem.strerror}.") from None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except (OSError, OverflowError, UnicodeError) as problem:
        said = getattr(problem, "strerror", None) or problem
        raise InvalidInput(f"the service cannot listen on {host}:{port}: {said}. Choose another --port.") from None
    # A client that takes nothing of its answer for so long is cut off by the kernel.
    made.setsockopt(socket.IPPROTO_TCP, getattr(socket, "TCP_USER_TIMEOUT", 18), UNREAD_SECONDS * 1000)
    made.listen(BACKLOG)
    return made


def address_of(listener: socket.socket) -> str:
    """The base address of the service on this socket."""
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
