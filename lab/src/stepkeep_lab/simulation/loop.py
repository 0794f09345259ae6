"""An event loop with virtual time and processes: the seed determines which process runs next; nothing else varies.

Within a process, callbacks run in the order that asyncio guarantees; between processes any order is possible. A process
can be paused (its callbacks wait) or killed (nothing of it ever runs again, not even its `finally`).
"""

from __future__ import annotations

import asyncio
import heapq
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")

Code = Coroutine[Any, Any, T] | Generator[Any, None, T]


class SimulationOver(BaseException):
    """Raised into whatever is left when the loop is closed: it must not do anything any more."""


class Stalled(AssertionError):
    """Nothing is ready and no timer runs: all processes wait for each other."""


class Process:
    """What belongs together and dies together. `trouble_at` is when something last went wrong for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.trouble_at = float("-inf")
        self.ready: deque[Call] = deque()

    def __repr__(self) -> str:
        return f"<process {self.name}>"


OUTSIDE = Process("outside")
current: ContextVar[Process] = ContextVar("process", default=OUTSIDE)


class Call:
    """Something that is to be called, by whom and when: what asyncio calls a handle, with less to carry."""

    __slots__ = ("_cancelled", "_when", "args", "callback", "context", "process")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context, process: Process, when: float
    ) -> None:
        self.callback, self.args, self.context, self.process = callback, args, context, process
        self._when, self._cancelled = when, False

    def cancel(self) -> None:
        """Cancelled timers are dropped when their time comes."""
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self._when


class VirtualLoop(asyncio.AbstractEventLoop):
    """Runs until what it was asked for is done; time passes only when nothing else can happen."""

    def __init__(self, random: Random) -> None:
        self._random = random.random
        self._now = 0.0
        self._timers: list[tuple[float, int, Call]] = []
        self._count = 0
        self._runnable: list[Process] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._many = 256
        self._closed = False
        self.steps = 0
        self.unheard: list[str] = []

    # -- processes ---------------------------------------------------------------------------------------------------
    def spawn(self, process: Process, work: Code[T]) -> asyncio.Task[T]:
        """Begin a task that belongs to this process, with everything it begins in turn."""
        context = copy_context()
        context.run(current.set, process)
        return self.create_task(work, context=context)

    def kill(self, process: Process) -> None:
        process.alive = False
        process.ready.clear()
        if process in self._runnable:
            self._runnable.remove(process)

    def pause(self, process: Process) -> None:
        process.paused = True
        if process in self._runnable:
            self._runnable.remove(process)

    def resume(self, process: Process) -> None:
        process.paused = False
        if process.alive and process.ready and process not in self._runnable:
            self._runnable.append(process)

    # -- running -----------------------------------------------------------------------------------------------------
    def run_until_complete(self, future: Code[T] | asyncio.Future[T]) -> T:  # type: ignore[override]
        asyncio._set_running_loop(self)
        try:
            done = future if isinstance(future, asyncio.Future) else self.create_task(future)
            self._go_on_until(done)
            return done.result()
        finally:
            asyncio._set_running_loop(None)

    def _go_on_until(self, done: asyncio.Future[Any]) -> None:
        """The heart of it, written flat because everything that ever happens passes through here."""
        runnable, random, is_done = self._runnable, self._random, done.done
        while not is_done():
            if not runnable:
                self._pass_time()
                continue
            place = int(random() * len(runnable)) if len(runnable) > 1 else 0
            ready = runnable[place].ready
            call = ready.popleft()
            if not ready:
                runnable.pop(place)
            self.steps += 1
            if call._cancelled:
                continue
            try:
                call.context.run(call.callback, *call.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as problem:  # noqa: BLE001 - as asyncio does: told, and survived
                self.call_exception_handler({"message": f"{call.callback} broke", "exception": problem})

    def _pass_time(self) -> None:
        """Go on to the next moment for which something is set, and make ready everything that is set for it."""
        timers, pop = self._timers, heapq.heappop
        while timers and timers[0][2]._cancelled:
            pop(timers)
        if not timers:
            raise Stalled("nothing can happen any more")
        now = self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= now:
            call = pop(timers)[2]
            if not call._cancelled:
                self._enqueue(call)

    def _enqueue(self, call: Call) -> None:
        process = call.process
        if not process.alive:
            return
        if not process.ready and not process.paused:
            self._runnable.append(process)
        process.ready.append(call)

    def call_for(
        self, process: Process, context: Context, delay: float, work: Callable[..., object], *args: Any
    ) -> None:
        """Let a process do something later, come what may; for what is never taken back."""
        when = self._now + delay
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, Call(work, args, context, process, when)))

    # -- what asyncio asks of a loop -----------------------------------------------------------------------------------
    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Call:
        self._check_open()
        context = copy_context() if context is None else context
        call = Call(callback, args, context, context.get(current, OUTSIDE), self._now)
        self._enqueue(call)
        return call

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Call:
        return self.call_at(self._now + max(0.0, delay), callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Call:
        self._check_open()
        context = copy_context() if context is None else context
        call = Call(callback, args, context, context.get(current, OUTSIDE), when)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, call))
        return call

    def create_future(self) -> asyncio.Future[Any]:
        self._check_open()
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Code[T], *, name: str | None = None, context: Context | None = None, **more: Any
    ) -> asyncio.Task[T]:
        self._check_open()
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=name or "task", context=context)
        if len(self._tasks) > self._many:
            self._tasks = [one for one in self._tasks if not one.done()]
            self._many = 2 * len(self._tasks) + 256
        # A task of a killed process must not be collected: that would run its `finally` at a random moment.
        self._tasks.append(task)
        return task

    def _check_open(self) -> None:
        if self._closed:
            raise SimulationOver

    def is_running(self) -> bool:
        return not self._closed

    def is_closed(self) -> bool:
        return self._closed

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._closed:
            problem = context.get("exception")
            self.unheard.append(f"{context.get('message')}: {type(problem).__name__}: {problem}")

    def close(self) -> None:
        """End everything that is left, without letting it act or complain."""
        self._closed = True
        self._timers.clear()
        # Whoever is outside of all processes is so in the next loop too, and must not bring anything along.
        for process in (OUTSIDE, *self._runnable):
            process.ready.clear()
        self._runnable.clear()
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            for task in self._tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    _end(task.get_coro())
            self._tasks.clear()
        finally:
            sys.unraisablehook = hook


def _end(coroutine: Any) -> None:
    for _ in range(20):
        if getattr(coroutine, "cr_frame", None) is None and getattr(coroutine, "gi_frame", None) is None:
            return
        with suppress(BaseException):
            coroutine.close()
