"""Runs bounded work of user-given size in child processes: no call of a library then holds the interpreter lock here.

Work is a function of a module with its arguments, and refuses with InvalidInput. Children start with the first work and
end with this process. They import little, and know nothing of the environment. `aside` calls it in a thread of a
service.
"""

from __future__ import annotations

import atexit
import gc
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from stepkeep.kernel.errors import InvalidInput

P = ParamSpec("P")
T = TypeVar("T")

SMALL_BYTES: Final = 64 * 1024
"""Work on less than this is done here."""

_START = "import sys; from stepkeep.operations.in_child import live; live(int(sys.argv[1]))"


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
            self.line: Connection = Connection(ours.detach())

    def end(self) -> None:
        self.line.close()
        self.process.kill()
        self.process.wait()


_idle: list[_Child] = []
"""As many as ever worked at the same time: at most one for each thread."""


def in_child(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of the work. A child that has ended is replaced once."""
    for _ in range(2):
        child = _idle.pop() if _idle else _Child()
        try:
            child.line.send((work, args, kwargs))
            refused, result = child.line.recv()
        except (OSError, EOFError):
            child.end()
            continue
        except BaseException:  # what cannot be sent
            child.end()
            raise
        _idle.append(child)
        if refused is not None:
            raise InvalidInput(refused)
        return result  # type: ignore[no-any-return]
    raise InvalidInput("a value cannot be checked: the process that did it has ended twice. Send a smaller one.")


def live(line: int) -> None:
    """Do what the parent asks until it is gone. Its requests go first."""
    gc.disable()
    os.nice(5)
    with Connection(line) as parent, suppress(EOFError, OSError):
        while True:
            work, args, kwargs = parent.recv()
            try:
                refused, result = None, work(*args, **kwargs)
            except InvalidInput as problem:
                refused, result = str(problem), None
            parent.send((refused, result))


@atexit.register
def _end_all() -> None:
    while _idle:
        _idle.pop().end()
