"""Ends copies of the worker that a handler made with `os.fork()`, before they can do the worker's work a second time.

A copy shares the worker's event loops, signals and connections. It may run on until its handler returns; then it ends
instead of delivering a result. A copy that never returns obeys SIGTERM and SIGINT as any program does. The places call
`end_copy` wherever a handler has just had control; the worker says which signals it heeds.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

COPY_STATUS = 70
"""The exit status of a copy: it was not meant to exist."""

_SAID = b"stepkeep: a handler forked the worker; the copy ends here, and only the original reports a result\n"

_heeded: set[signal.Signals] = set()


def end_copy(pid: int) -> None:
    """Return in the process of this id; end any other, which can only be a copy of it."""
    if os.getpid() != pid:
        try:
            os.write(2, _SAID)
        finally:
            os._exit(COPY_STATUS)


@contextmanager
def heeding(signals: tuple[signal.Signals, ...]) -> Iterator[None]:
    """While the worker has handlers of its own for these signals, a copy gets the default ones instead."""
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
