"""An event loop in a thread of its own, for programs that call the engine without one.

Calls from other threads are made on the loop and awaited. It knows nothing about the engine, and it must never leave a
caller waiting: not after the loop was stopped, not after it ended, not in the child of a fork. `Engine` holds one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, TypeVar

from stepkeep.kernel.errors import InvalidInput, StoreUnavailable

T = TypeVar("T")

log = logging.getLogger(__name__)

LONGEST_WAIT_SECONDS = 0.5


class LoopThread:
    """The loop and its thread, started by the constructor and ended by `end`."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._guard = threading.Lock()
        self._ending = False
        self._thread = threading.Thread(target=self._spin, name="stepkeep-engine", daemon=True)
        self._thread.start()

    @property
    def is_inherited(self) -> bool:
        """Whether this process is a fork of the one that started the thread. A fork has the object and no thread."""
        return self._pid != os.getpid()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work on the loop and wait for it."""
        if (refusal := self._refusal()) is not None:
            work.close()
            raise refusal
        answer: Future[T] = Future()
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            tasks.append(self._loop.create_task(work))
            tasks[0].add_done_callback(lambda task: _hand_over(task, answer))

        with self._guard:
            if self._ending:
                work.close()
                raise StoreUnavailable("the engine was closed while this call was under way")
            self._loop.call_soon_threadsafe(begin)
        try:
            return _awaited(answer)
        except BaseException:
            if not answer.done():
                # Interrupted (Ctrl-C): the work must not continue unobserved. It is cancelled, and releases what it
                # holds.
                self._loop.call_soon_threadsafe(lambda: tasks[0].cancel())
                wait([answer])
            raise

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call this on the loop, without waiting. Nothing is called once the loop has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)

    def end_after(self, work: Coroutine[Any, Any, object]) -> None:
        """Run work on the loop, then end the loop and the thread, without waiting for either."""

        def end(_: object) -> None:
            self._ending = True
            self._loop.stop()

        self.call_soon(lambda: self._loop.create_task(work).add_done_callback(end))

    def end(self) -> None:
        """Cancel tasks that other threads have not awaited, then end the loop and the thread."""
        if self.is_inherited:
            return
        with self._guard:
            self._ending = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _refusal(self) -> Exception | None:
        if self.is_inherited:
            return StoreUnavailable(
                f"this engine was opened by process {self._pid}, before a fork, and cannot be used in the child. "
                "Open another engine in the child, after the fork, or start processes with 'spawn'."
            )
        if threading.current_thread() is self._thread:
            return InvalidInput("the engine cannot wait for itself; await the method of an AsyncEngine here")
        return None

    def _spin(self) -> None:
        """Run the loop until `end`, then close it here: the thread that calls `end` may be running another loop."""
        asyncio.set_event_loop(self._loop)
        while not self._ending:
            # Again after a callback has stopped the loop: otherwise every later call would wait forever.
            self._run(self._loop.run_forever)
        for last in (end_tasks(), self._loop.shutdown_asyncgens(), self._loop.shutdown_default_executor()):
            self._run(lambda last=last: self._loop.run_until_complete(last))
        self._loop.close()

    def _run(self, turn: Any) -> None:
        try:
            turn()
        except (SystemExit, KeyboardInterrupt):
            # The call whose code raised it receives it as well.
            log.warning("code that was called by the engine tried to end the program from the engine's thread")


def _awaited(answer: Future[T]) -> T:
    """The result, as soon as it is there.

    A signal that comes just before the thread begins to wait interrupts nothing: Python would handle it only after the
    wait, and Ctrl-C would not end a call that takes for ever. Therefore no wait is long.
    """
    while True:
        try:
            return answer.result(timeout=LONGEST_WAIT_SECONDS)
        except TimeoutError:
            if answer.done():
                raise


def _hand_over(task: asyncio.Task[T], answer: Future[T]) -> None:
    if task.cancelled():
        answer.set_exception(StoreUnavailable("the engine was closed while this call was under way"))
    elif (problem := task.exception()) is not None:
        answer.set_exception(problem)
    else:
        answer.set_result(task.result())


async def end_tasks() -> None:
    """Cancel every other task of this loop and wait until each has ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
