"""Reads large JSON bodies with child processes: one call of a decoder would hold up every request of this process.

What is a payload is never decoded here. Children start with the first large body, and end with this process. It knows
no route. `requests` calls it in a thread.
"""

from __future__ import annotations

import atexit
import marshal
import os
import socket
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from stepkeep.api.problems import OVERLOADED, ApiError
from stepkeep.kernel.errors import InvalidInput
from stepkeep.operations.typed import LargePart

_START = "import sys; from stepkeep.api.body_child import live; live(int(sys.argv[1]))"


class _Child:
    """One process, and the line to it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs, ours:
            paths = os.pathsep.join(str(Path(path).absolute()) for path in sys.path if path)
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env={"PYTHONPATH": paths, "PATH": os.environ.get("PATH", "")},  # none of our secrets
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            self._line: Connection = Connection(ours.detach())

    def ask(self, body: bytes) -> bytes:
        self._line.send_bytes(body)
        return self._line.recv_bytes()

    def end(self) -> None:
        self._line.close()
        self.process.kill()
        self.process.wait()


_idle: list[_Child] = []
"""As many as ever worked at the same time: at most one for each thread."""


def read_large(body: bytes) -> Any:
    """The checked value of a body; large parts of an object are `LargePart`."""
    child = None
    try:
        child = _idle.pop() if _idle else _Child()
        answer = child.ask(body)
    except (OSError, EOFError):
        if child is not None:
            child.end()
        raise ApiError(OVERLOADED, "The process that checks large bodies has ended. Try again.") from None
    _idle.append(child)
    problem, value = marshal.loads(answer)  # noqa: S302 - of our own process
    if problem is not None:
        raise InvalidInput(problem)
    return {name: _unpacked(one) for name, one in value.items()} if isinstance(value, dict) else value


def _unpacked(one: Any) -> Any:
    match one:
        case bytes():
            return LargePart(one)
        case (str() as problem, value) if type(one) is tuple:
            return LargePart(b"", problem, value)
    return one


@atexit.register
def _end_all() -> None:
    while _idle:
        _idle.pop().end()
