"""The flag that asks a running handler to end early, from any thread or loop.

It only asks: coroutines are cancelled and processes killed elsewhere, and threads cannot be ended. The worker sets it;
handlers read it through `ctx.cancelled`. It costs nothing until a handler waits on it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Generator
from enum import StrEnum

import msgspec

from stepkeep.edges.safe_text import exception_text, inert_line
from stepkeep.kernel.errors import StepkeepError

log = logging.getLogger("stepkeep.handler")


class Why(StrEnum):
    """Why the worker asked."""

    RUN_STOPPING = "the run is stopping"
    LEASE_LOST = "the lease was lost"
    TIMED_OUT = "the attempt ran past its timeout"
    DRAINED = "the worker is shutting down"


class HandlerCancelled(StepkeepError):
    """Raised by `ctx.check_cancelled()` in a handler that should end early."""


_lock = threading.Lock()


def _call(callback: Callable[[], object]) -> None:
    # The worker sets the flag on its own loop; a handler's callback that raises must not reach it, SystemExit included.
    try:
        callback()
    except BaseException as problem:  # noqa: BLE001 - user code
        log.warning("a callback on cancellation raised %s", inert_line(exception_text(problem)))


class Cancellation(msgspec.Struct, eq=False):
    """Event-like: `is_set()`, `await ctx.cancelled`, or `wait(seconds)` from a thread.

    >>> Cancellation().is_set()
    False
    """

    why: Why | None = None
    _callbacks: list[Callable[[], object]] | None = None

    def is_set(self) -> bool:
        return self.why is not None

    def __bool__(self) -> bool:
        return self.why is not None

    def set(self, why: Why) -> None:
        """Set the flag. The first reason is kept; setting it again changes nothing."""
        with _lock:
            if self.why is not None:
                return
            self.why = why
            callbacks, self._callbacks = self._callbacks or (), None
        for callback in callbacks:
            _call(callback)

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Call back once when the flag is set, in the thread that sets it (at once if it is set already)."""
        with _lock:
            if self.why is None:
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append(callback)
                return
        callback()

    def wait(self, seconds: float | None = None) -> bool:
        """Block this thread until the flag is set or the time is over. Returns whether it is set. Not for
        coroutines."""
        if self.why is None:
            event = threading.Event()
            self.add_callback(event.set)
            event.wait(seconds)
        return self.why is not None

    def __await__(self) -> Generator[None, None, None]:
        if self.why is not None:
            return
        loop = asyncio.get_running_loop()
        event = asyncio.Event()

        def wake() -> None:
            # The loop may have ended before the worker asked; then no coroutine waits any more.
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

        self.add_callback(wake)
        yield from event.wait().__await__()
