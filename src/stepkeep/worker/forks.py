"""Ends copies of the worker that a handler created with `os.fork()`, before they can act as the worker.

A copy shares the worker's event loops, signals and connections. It may run until its handler returns; then it ends and
delivers no result. A copy that never returns obeys SIGTERM and SIGINT like any program. The pools call `end_copy`
wherever a handler has just returned; the worker tells which signals it handles.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

COPY_STATUS = 70
"""The exit status of a copy."""

_SAID = b"stepkeep: a handler forked the worker; the copy ends here, and only the original reports a result\n"

_heeded: set[signal.Signals] = set()


def end_copy(pid: int) -> None:
    """Return in the process with this id; end any other process, which can only be a copy."""
    if os.getpid() != pid:
        try:
            os.write(2, _SAID)
        finally:
            os._exit(COPY_STATUS)


@contextmanager
def heeding(signals: tuple[signal.Signals, ...]) -> Iterator[None]:
    """While the worker handles these signals itself, a copy gets the default handlers instead."""
    _heeded.update(signals)
    try:
        yield
    finally:
        _heeded.difference_update(signals)


def _in_copy() -> None:
    if _heeded:
        # The copy shares the descriptor that wakes the worker's loop: a signal sent to the copy would stop the worker.
        signal.set_wakeup_fd(-1)
        for each in _heeded:
            signal.signal(each, signal.SIG_DFL)
        _heeded.clear()


os.register_at_fork(after_in_child=_in_copy)
